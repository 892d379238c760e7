"""Stubs fail, solutions pass, and every known wrong answer gets its own name and hint."""

from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ddp_course.checks import check
from ddp_course.checks import judge as judging
from ddp_course.checks.verdict import Verdict
from ddp_course.errors import BadArgument
from ddp_course.launcher import launch
from ddp_course.runs import Run

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "    # TODO: write from here …\n", "    # … to here"
EXERCISES = sorted(judging.EXERCISES)

INSIDE = "with nullcontext() if i + 1 == k else model.no_sync():"


def loop(*lines: str) -> str:
    """A loop over ex07's micro-batches with these lines in it."""
    head = (
        "k = len(micro_batches)\n"
        "def mse(x, y, parts):\n    return nn.functional.mse_loss(model(x), y) / parts\n"
        "for i, (x, y) in enumerate(micro_batches):"
    )
    return "\n".join([head, *(f"    {line}" for line in lines)])


SURVIVES = """done, rank = 0, dist.get_rank()
draft = f"{path}.{rank}"
if path.exists():
    saved = torch.load(path)
    model.load_state_dict(saved['model'])
    optimizer.load_state_dict(saved['optimizer'])
    done = saved['done']
for step, (x, y) in enumerate(batches):
    if step >= done:
        take_step(model, optimizer, x, y)
        if rank == 0:
            torch.save(
                {'model': model.state_dict(), 'optimizer': optimizer.state_dict(),
                 'done': step + 1}, draft)
            os.replace(draft, path)"""


def gpu_or_cpu(gpu: str, condition: str = "gpus >= local_world_size") -> str:
    """Lines for ex01."""
    return f"if {condition}:\n    return {gpu}\nreturn DDP(model)"


# ex04: the solution's lines, to be damaged one at a time
RESUMES = """\
saved = load(path)
if saved:
    model.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["random"][dist.get_rank()])
for step in range(saved.get("step", 0), len(batches)):
    take_step(batches[step])
    states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
    save(path, {**states, "random": random_states(), "step": step + 1})
"""


def resumes_but(line: str, instead: str) -> str:
    assert line in RESUMES
    return RESUMES.replace(line, instead)


def partition(
    order: str = "torch.randperm(size, generator=torch.Generator().manual_seed(epoch)).tolist()",
    count: str = "math.ceil(size / world_size)",
    fill: str = "order[: count * world_size - size]",
    share: str = "order[rank::world_size]",
) -> str:
    """Lines for ex02b."""
    return f"order = {order}\ncount = {count}\norder += {fill}\nreturn {share}"


PARTITIONS = [
    ("order = list(range(size))", "no indices returned"),
    ("return [float(rank)] * size", "no indices returned"),
    (partition(fill="list(range(size, count * world_size))"), "indices beyond the data"),
    (partition(fill="[]", share="order"), "everything on every rank"),
    (partition(share="order[:count]"), "the same share on every rank"),
    (
        partition(count="size // world_size", fill="[]", share="order[rank * count :][:count]"),
        "the rest left out",
    ),
    (partition(fill="[]"), "unequal counts"),
    (partition(order="torch.randperm(size).tolist()"), "each rank shuffles its own way"),
    (
        partition().replace("manual_seed(epoch)", "manual_seed(epoch + rank)"),
        "each rank shuffles its own way",
    ),
    (partition(order="list(range(size))"), "not shuffled"),
    (partition(order="[(i + epoch) % size for i in range(size)]"), "not shuffled"),
    (
        "order = torch.randperm(size)\ndist.broadcast(order, src=0)\n"
        + partition(order="order.tolist()"),
        "another order when asked again",
    ),
    (
        "import random\n"
        + partition(order="list(range(size))").replace("return ", "mine = ")
        + "\nrandom.Random(epoch).shuffle(mine)\nreturn mine",
        "own share shuffled",
    ),
    (partition().replace("manual_seed(epoch)", "manual_seed(0)"), "the same order in every epoch"),
]


def repair(loss: str, before: str = "") -> str:
    """Lines for ex03c."""
    lines = [
        *before.splitlines(),
        "optimizer.zero_grad()",
        f"loss = {loss}",
        "loss.backward()",
        "optimizer.step()",
        "total += loss.item()",
    ]
    return "\n".join(
        ["total = 0", "for x, y in batches:", *(f"    {line}" for line in lines), "return total"]
    )


SUM = "((model(x) - y) ** 2).sum()"
MEAN = f"{SUM} / max(1, len(x))"
FEWEST = "least = torch.tensor(len(x))\ndist.all_reduce(least, op=dist.ReduceOp.MIN)\n"
REPAIRS = [
    (repair("nn.functional.mse_loss(model(x), y)"), "mean of no samples"),
    (repair(MEAN).replace("return total", "print(total)"), "no loss returned"),
    (repair(MEAN, FEWEST + "if not least:\n    continue"), "the step left out on all ranks"),
    (repair(MEAN, FEWEST + "if not least:\n    break"), "stops at the first empty batch"),
    (
        repair(
            f"{MEAN} * dist.get_world_size() / those",
            "those = torch.tensor(len(x) > 0).float()\ndist.all_reduce(those)",
        ),
        "divided by the ranks that have samples",
    ),
    ("model = model.module\n" + repair(MEAN), "each rank trains alone"),
    ("return model.train() and 0.0", "nothing trained"),
    (repair(SUM), "sum instead of mean"),
]

# exercise, the learner's lines, the mistake's name
WRONG = [
    ("ex00", "dist.all_reduce(number.clone())", "nothing returned"),
    ("ex00", "return number", "own number returned"),
    ("ex00", "return number * dist.get_world_size()", "own number times the world size"),
    (
        "ex00",
        "total = number.clone()\ndist.all_reduce(total)\nreturn total / dist.get_world_size()",
        "mean instead of sum",
    ),
    (
        "ex00",
        "total = number.clone()\ndist.broadcast(total, src=0)\nreturn total",
        "rank 0's number everywhere",
    ),
    (
        "ex00",
        "total = number.clone()\ndist.reduce(total, dst=0)\nreturn total",
        "one rank has the sum",
    ),
    ("ex00", "dist.all_reduce(number)\nreturn number", "argument overwritten"),
    ("ex01", "return model", "not wrapped in DDP"),
    (
        "ex01",
        gpu_or_cpu("DDP(model.to(f'cuda:{dist.get_rank()}'), device_ids=[dist.get_rank()])"),
        "the rank as a device number",
    ),
    (
        "ex01",
        gpu_or_cpu("DDP(model.to('cuda:0'), device_ids=[0])"),
        "the first GPU for everyone",
    ),
    (
        "ex01",
        gpu_or_cpu("DDP(model, device_ids=[local_rank]).to(local_rank)"),
        "not on the GPU when it is wrapped",
    ),
    ("ex01", gpu_or_cpu("DDP(model.cuda(local_rank))"), "device_ids left out"),
    (
        "ex01",
        gpu_or_cpu("DDP(model.to(local_rank), device_ids=list(range(gpus)))"),
        "all GPUs in device_ids",
    ),
    (
        "ex01",
        gpu_or_cpu("DDP(model.to(local_rank), device_ids=[local_rank])", "gpus > local_rank"),
        "a GPU for some ranks only",
    ),
    (
        "ex02",
        "for p in model.parameters():\n    if p.grad is not None:\n"
        "        dist.all_reduce(p.grad)\n        p.grad /= 3\n        dist.all_reduce(p.data)",
        "weights changed",
    ),
    (
        "ex02",
        "for p in model.parameters():\n    if p.grad is not None:\n        dist.all_reduce(p.grad)",
        "sum instead of mean",
    ),
    (
        "ex02",
        "for p in model.parameters():\n    if p.grad is not None:\n"
        "        dist.all_reduce(p.grad)\n        p.grad /= 2",
        "divided by 2",
    ),
    (
        "ex02",
        "for p in model.parameters():\n    if p.grad is not None:\n"
        "        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)\n"
        "        p.grad /= dist.get_world_size()",
        "divided twice",
    ),
    (
        "ex02",
        "for p in model.parameters():\n    if p.grad is not None:\n"
        "        p.grad /= dist.get_world_size()",
        "divided but not reduced",
    ),
    (
        "ex02",
        "for p in model.parameters():\n    if p.grad is not None:\n"
        "        mean = p.grad.clone()\n        dist.all_reduce(mean)\n"
        "        mean /= dist.get_world_size()",
        "gradients unchanged",
    ),
    (
        "ex02",
        "for p in model.parameters():\n    if p.grad is not None:\n"
        "        dist.broadcast(p.grad, src=0)",
        "rank 0's gradients everywhere",
    ),
    (
        "ex02",
        "for p in model.parameters():\n    if p.grad is not None:\n"
        "        dist.reduce(p.grad, dst=0)\n        p.grad /= dist.get_world_size()",
        "one rank has the mean",
    ),
    (
        "ex02",
        "for p in model.parameters():\n    if p.grad is not None:\n"
        "        dist.all_reduce(p.grad)\n        p.grad /= dist.get_world_size()\n        return",
        "some parameters only",
    ),
    *(("ex02b", lines, mistake) for lines, mistake in PARTITIONS),
    *(("ex03c", lines, mistake) for lines, mistake in REPAIRS),
    ("ex07", "model.zero_grad()", "no gradients"),
    ("ex07", loop("with model.no_sync():", "    mse(x, y, k).backward()"), "never synchronised"),
    (
        "ex07",
        loop(
            "with nullcontext() if i == 0 else model.no_sync():",
            "    mse(x, y, k).backward()",
        ),
        "synchronised on the first",
    ),
    (
        "ex07",
        loop(f"{INSIDE}", "    mse(x, y, 1).backward()"),
        "not divided by the number of micro-batches",
    ),
    (
        "ex07",
        loop(f"{INSIDE}", "    mse(x, y, k * dist.get_world_size()).backward()"),
        "divided by the world size, too",
    ),
    (
        "ex07",
        loop("model.zero_grad()", f"{INSIDE}", "    mse(x, y, k).backward()"),
        "only the last micro-batch counts",
    ),
    (
        "ex07",
        loop(f"{INSIDE}", "    mse(x, y, 4).backward()"),
        "the short window is not divided by its own length",
    ),
    (
        "ex07",
        "x, y = (torch.cat(parts) for parts in zip(*micro_batches))\n"
        "nn.functional.mse_loss(model(x), y).backward()",
        "one backward for the whole window",
    ),
    (
        "ex07",
        loop("with model.no_sync():", "    mse(x, y, k).backward()")
        + "\nfor p in model.parameters():\n    dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)",
        "averaged by hand",
    ),
    ("ex07", loop("mse(x, y, k).backward()"), "every micro-batch synchronised"),
    (
        "ex07",
        loop("loss = mse(x, y, k)", f"{INSIDE}", "    loss.backward()"),
        "forward outside no_sync",
    ),
    (
        "ex03",
        "losses.sum()",
        "no loss returned",
    ),
    (
        "ex03",
        "return losses.mean()",
        "mean of the means",
    ),
    (
        "ex03",
        "n = torch.tensor(float(len(losses)), device=losses.device)\n"
        "dist.all_reduce(n)\n"
        "return losses.sum() / n",
        "world size forgotten",
    ),
    (
        "ex03",
        "return losses.sum()",
        "sum instead of mean",
    ),
    (
        "ex03",
        "return losses.sum() * dist.get_world_size()",
        "sum over all samples",
    ),
    (
        "ex03",
        "return losses.sum() * dist.get_world_size() / len(losses)",
        "own count times the world size",
    ),
    (
        "ex03",
        "n = torch.tensor(float(len(losses)), device=losses.device)\n"
        "dist.broadcast(n, src=0)\n"
        "return losses.sum() / n",
        "rank 0's count for all",
    ),
    (
        "ex03",
        "n = torch.tensor(float(len(losses)), device=losses.device)\n"
        "mine = len(losses)\n"
        "dist.all_reduce(n)\n"
        "return losses.mean() * mine * dist.get_world_size() / n",
        "mean of no samples",
    ),
    (
        "ex03b",
        "flag = torch.tensor(float(wish), device=device)\ndist.all_reduce(flag)",
        "no answer returned",
    ),
    (
        "ex03b",
        "flag = torch.tensor(float(wish), device=device)\n"
        "dist.all_reduce(flag.clone())\n"
        "return bool(flag)",
        "own wish returned",
    ),
    (
        "ex03b",
        "flag = torch.tensor(float(wish), device=device)\n"
        "dist.all_reduce(flag, op=dist.ReduceOp.MIN)\n"
        "return bool(flag)",
        "all instead of any",
    ),
    (
        "ex03b",
        "flag = torch.tensor(float(wish), device=device)\n"
        "dist.broadcast(flag, src=0)\n"
        "return bool(flag)",
        "rank 0 decides",
    ),
    (
        "ex03b",
        "flag = torch.tensor(float(wish), device=device)\n"
        "dist.all_reduce(flag, op=dist.ReduceOp.AVG)\n"
        "return bool(flag > 0.5)",
        "the majority decides",
    ),
    (
        "ex03b",
        "flag = torch.tensor(float(wish), device=device)\n"
        "dist.reduce(flag, dst=0, op=dist.ReduceOp.MAX)\n"
        "return bool(flag)",
        "one rank knows",
    ),
    (
        "ex03b",
        "flag = torch.tensor(float(wish), device=device)\n"
        "dist.all_reduce(flag)\n"
        "return flag is not None",
        "always yes",
    ),
    *(
        ("ex06", SURVIVES.replace(old, new), mistake)
        for old, new, mistake in [
            ("path.exists()", "False", "begins again at step 0"),
            ("optimizer.load_state_dict(saved['optimizer'])", "pass", "optimizer forgotten"),
            ("done = saved['done']", "pass", "step number forgotten"),
            ("step + 1", "step", "one step repeated"),
            ("model.load_state_dict(saved['model'])", "pass", "model forgotten"),
            ("rank == 0", "True", "every rank writes"),
        ]
    ),
    ("ex04", "for batch in batches:\n    take_step(batch)", "nothing saved"),
    ("ex04", resumes_but('saved.get("step", 0)', "0"), "every batch again"),
    ("ex04", resumes_but('"step": step + 1', '"step": step'), "one batch twice"),
    ("ex04", resumes_but("if saved:\n", "if saved:\n    return\n"), "the rest left out"),
    (
        "ex04",
        resumes_but('    model.module.load_state_dict(saved["model"])\n', ""),
        "weights not loaded",
    ),
    (
        "ex04",
        resumes_but('    optimizer.load_state_dict(saved["optimizer"])\n', ""),
        "optimizer forgotten",
    ),
    (
        "ex04",
        resumes_but('    torch.set_rng_state(saved["random"][dist.get_rank()])\n', ""),
        "random state forgotten",
    ),
    ("ex04", resumes_but("[dist.get_rank()]", "[0]"), "rank 0's random state everywhere"),
    (
        "ex04",
        resumes_but(
            "    take_step(batches[step])\n",
            "    early = random_states()\n    take_step(batches[step])\n",
        ).replace('"random": random_states()', '"random": early'),
        "random state of the step before",
    ),
]

# The right answer to ex05, and what turns it into each known mistake.
HANDED_OVER = """\
if dist.get_rank() == 0:
    hidden = stage(data)
    dist.send(hidden.detach(), dst=1)
    gradient = torch.zeros_like(hidden)
    dist.recv(gradient, src=1)
    torch.autograd.backward(hidden, gradient)
else:
    hidden = torch.zeros_like(data)
    dist.recv(hidden, src=0)
    hidden.requires_grad_()
    loss = ((stage(hidden) - data) ** 2).mean()
    gradient, *own = torch.autograd.grad(loss, [hidden, *stage.parameters()])
    for parameter, g in zip(stage.parameters(), own):
        parameter.grad = g if parameter.grad is None else parameter.grad + g
    dist.send(gradient, dst=0)
"""
EVERY = "for p in stage.parameters():\n    "
WRONG += [
    ("ex05", HANDED_OVER.replace(old, new) + more, mistake)
    for old, new, more, mistake in (
        ("torch.autograd.backward(hidden, gradient)", "pass", "", "rank 0 never goes back"),
        ("parameter.grad = g if parameter.grad is None else parameter.grad + g", "pass", "",
         "rank 1 never goes back"),
        ("torch.autograd.backward(hidden, gradient)", "hidden.sum().backward()", "",
         "rank 0 goes back with ones"),
        ("dist.recv(gradient, src=1)", "dist.recv(gradient.clone(), src=1)", "",
         "rank 0 goes back with zeros"),
        ("dist.recv(hidden, src=0)", "dist.recv(hidden.clone(), src=0)", "",
         "rank 1 computes with zeros"),
        ("dist.send(hidden.detach(), dst=1)", "dist.send(data, dst=1)", "",
         "the inputs are handed on"),
        ("", "", EVERY + "dist.all_reduce(p.grad)", "the ranks' gradients are mixed"),
        ("", "", EVERY + "p.grad /= dist.get_world_size()", "halved"),
        ("    hidden = ", "    stage.zero_grad()\n    hidden = ", "",
         "only the last micro-batch counts"),
    )
]  # fmt: skip

# A second, differently written right answer per exercise.
RIGHT = {
    "ex02b": "from torch.utils.data.distributed import DistributedSampler\n"
    "sampler = DistributedSampler(range(size), world_size, rank)\n"
    "sampler.set_epoch(epoch)\nreturn list(sampler)",
    "ex03c": repair("nn.functional.mse_loss(model(x), y) if len(x) else model(x).sum() * 0"),
    "ex05": HANDED_OVER,
    "ex06": SURVIVES,
    "ex00": "parts = [torch.empty_like(number) for _ in range(dist.get_world_size())]\n"
    "dist.all_gather(parts, number)\nreturn torch.stack(parts).sum(0)",
    "ex01": "device = torch.device('cuda', local_rank) if gpus >= local_world_size else 'cpu'\n"
    "if gpus >= local_world_size:\n    torch.cuda.set_device(device)\n    model = model.cuda()\n"
    "return nn.parallel.DistributedDataParallel(\n"
    "    model, device_ids=None if device == 'cpu' else [device])",
    "ex02": "gradients = [p.grad for p in model.parameters() if p.grad is not None]\n"
    "flat = torch.cat([g.flatten() for g in gradients])\n"
    "dist.all_reduce(flat, op=dist.ReduceOp.AVG)\n"
    "at = 0\nfor g in gradients:\n    g.copy_(flat[at : at + g.numel()].view_as(g))\n"
    "    at += g.numel()",
    "ex07": "*others, (x, y) = micro_batches\n"
    "with model.no_sync():\n    for mine in others:\n"
    "        nn.functional.mse_loss(model(mine[0]), mine[1]).div(len(micro_batches)).backward()\n"
    "nn.functional.mse_loss(model(x), y).div(len(micro_batches)).backward()",
    "ex03": "counts = [torch.empty(1) for _ in range(dist.get_world_size())]\n"
    "dist.all_gather(counts, torch.tensor([float(len(losses))]))\n"
    "return losses.sum() / torch.stack(counts).mean()",
    "ex03b": "wishes = [None] * dist.get_world_size()\n"
    "dist.all_gather_object(wishes, wish)\nreturn any(wishes)",
    "ex04": "parts = torch.load(path, weights_only=True) if path.exists() else {'done': []}\n"
    "done = parts['done']\n"
    "if done:\n    model.load_state_dict(parts['wrapper'])\n"
    "    optimizer.load_state_dict(parts['sgd'])\n"
    "    torch.random.set_rng_state(parts['mine'][dist.get_rank()])\n"
    "for batch in batches[len(done):]:\n    take_step(batch)\n    done.append(True)\n"
    "    parts = {'wrapper': model.state_dict(), 'sgd': optimizer.state_dict()}\n"
    "    save(path, {**parts, 'mine': random_states(), 'done': done})",
}


def filled(exercise: str, lines: str) -> str:
    """A stub with `lines` in place of its TODO."""
    stem = judging.EXERCISES[exercise].stem
    head, rest = (ROOT / "exercises" / f"{stem}.py").read_text().split(BEGIN)
    body = "".join(f"    {line}\n" for line in lines.splitlines())
    return head + body + END + rest.split(END)[1]


def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exercise: str, lines: str) -> Verdict:
    """The verdict on a stub with `lines` in place of its TODO."""
    path = tmp_path / f"{judging.EXERCISES[exercise].stem}.py"
    path.write_text(filled(exercise, lines))
    monkeypatch.setenv("DDP_COURSE_EXERCISES", str(tmp_path))
    return check(exercise)


def outside(text: str) -> tuple[str, str]:
    head, rest = text.split(BEGIN)
    return head, rest.split(END)[1]


@pytest.mark.parametrize("exercise", EXERCISES)
def test_stub_and_solution_are_mirrored(exercise: str) -> None:
    stem = judging.EXERCISES[exercise].stem
    stub = (ROOT / "exercises" / f"{stem}.py").read_text()
    solution = (ROOT / "solutions" / f"{stem}.py").read_text()
    assert outside(stub) == outside(solution)
    inside = solution.split(BEGIN)[1].split(END)[0]
    assert 0 < len(inside.splitlines()) <= 12


@pytest.mark.parametrize("exercise", EXERCISES)
def test_a_file_says_what_its_manifest_says(exercise: str) -> None:
    one = judging.EXERCISES[exercise]
    words = ast.get_docstring(ast.parse((ROOT / "exercises" / f"{one.stem}.py").read_text()))
    assert words is not None
    assert words.startswith(f"Exercise {exercise.removeprefix('ex')}: ")
    assert f"Difficulty: {one.difficulty}, about {one.minutes} minutes." in words
    assert one.difficulty in ("easy", "medium", "hard")
    assert f'`check("{exercise}")` in lesson {one.lesson}' in words
    assert f"--nproc-per-node={one.ranks}" in words
    for wanted in ("Target:", "API:", f"exercises/{one.stem}.py"):
        assert wanted in words
    (lesson,) = (ROOT / "notebooks" / "src").glob(f"{one.lesson}_*.py")
    assert f'check("{exercise}")' in lesson.read_text()


@pytest.mark.parametrize("exercise", EXERCISES)
def test_a_manifest_holds_together(exercise: str) -> None:
    one = judging.EXERCISES[exercise]
    ids = [check.id for check in one.checks]
    assert len(set(ids)) == len(ids)
    for number, check_ in enumerate(one.checks):
        assert check_.points > 0 and check_.tolerance > 0
        assert set(check_.depends) <= set(ids[:number]), "what it depends on comes before it"
    assert "…" in one.tiers.skeleton and one.tiers.question.endswith("?")
    assert (one.calls is None) is not one.talks


def test_every_file_has_a_check_and_every_check_its_files() -> None:
    stems = sorted(one.stem for one in judging.EXERCISES.values())
    assert sorted(path.stem for path in (ROOT / "exercises").glob("*.py")) == stems
    assert sorted(path.stem for path in (ROOT / "solutions").glob("*.py")) == stems


@pytest.mark.parametrize("exercise", EXERCISES)
def test_an_untouched_stub_is_not_yet(exercise: str) -> None:
    verdict = check(exercise)
    assert (verdict.status, verdict.points) == ("ungradable", 0)
    assert "not yet" in str(verdict) and "not yet" in verdict._repr_html_()


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_solution_passes(exercise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDP_COURSE_EXERCISES", "solutions")
    verdict = check(exercise)
    assert verdict.passed, str(verdict)
    assert verdict.points == verdict.max_points
    assert json.loads((Path(verdict.folder) / "verdict.json").read_text())["status"] == "pass"


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("exercise", [one for one in EXERCISES if one != "ex05"])  # two halves
def test_the_solution_passes_on_other_numbers_of_ranks(
    exercise: str, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = judging.EXERCISES[exercise]
    assert one.ranks == 3
    monkeypatch.setitem(judging.EXERCISES, exercise, replace(one, ranks=ranks))
    monkeypatch.setenv("DDP_COURSE_EXERCISES", "solutions")
    verdict = check(exercise)
    assert verdict.passed, str(verdict)
    assert f"--nproc-per-node={ranks}" in verdict.command


@pytest.mark.parametrize("exercise", EXERCISES)
def test_another_right_answer_passes(
    exercise: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = answer(tmp_path, monkeypatch, exercise, RIGHT[exercise])
    assert verdict.passed, str(verdict)


@pytest.mark.parametrize("exercise", EXERCISES)
def test_an_exercise_file_is_a_script(exercise: str) -> None:
    one = judging.EXERCISES[exercise]
    solved = launch(ROOT / "solutions" / f"{one.stem}.py", ranks=one.ranks, limit_s=200)
    assert solved.ok, str(solved)
    stub = launch(ROOT / "exercises" / f"{one.stem}.py", ranks=one.ranks, limit_s=200)
    assert not stub.ok
    assert "is yours to " in str(stub)


def test_the_command_that_a_verdict_shows_runs_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDP_COURSE_EXERCISES", "solutions")
    ran = subprocess.run(
        shlex.split(check("ex00").command),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("total=[6.0]") == 3


@pytest.mark.parametrize(("exercise", "lines", "mistake"), WRONG, ids=[w[2] for w in WRONG])
def test_a_wrong_answer_is_named(
    exercise: str, lines: str, mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = answer(tmp_path, monkeypatch, exercise, lines)
    assert verdict.status == "fail", str(verdict)
    opened = next(one for one in verdict.results if one.status == "fail")
    hints = {one.name: one.hint for one in judging.EXERCISES[exercise].mistakes}
    assert (opened.mistake, opened.hint) == (mistake, hints[mistake])
    assert verdict.points < verdict.max_points
    assert mistake in str(verdict) and opened.hint in str(verdict)
    assert any("✗" in row for row in opened.rows), "the table marks where it diverges"
    assert verdict.results[-1].status in ("fail", "blocked")


def test_every_known_mistake_has_a_wrong_answer() -> None:
    known = {(one.name, m.name) for one in judging.EXERCISES.values() for m in one.mistakes}
    assert {(exercise, mistake) for exercise, _, mistake in WRONG} == known
    assert all(len(one.mistakes) >= 3 for one in judging.EXERCISES.values())
    hints = [m.hint for one in judging.EXERCISES.values() for m in one.mistakes]
    assert len(set(hints)) == len(hints)


@pytest.mark.parametrize("exercise", EXERCISES)
def test_one_rank_alone_in_a_collective_is_a_timeout(
    exercise: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "PATIENCE_S", 1.0)
    lines = "if dist.get_rank() == 1:\n    dist.all_reduce(torch.ones(1))"
    verdict = answer(tmp_path, monkeypatch, exercise, lines)
    first = verdict.results[0]
    assert (verdict.status, verdict.points) == ("timeout", 0)
    assert first.hint == judging.EXERCISES[exercise].hang_hint
    words = ["returned", "is still inside your function", "returned"]
    assert [row[1] for row in first.rows] == words[: judging.EXERCISES[exercise].ranks]
    assert not Run.open(verdict.folder).ok


def test_the_given_loop_of_ex03c_hangs_and_the_table_shows_who_made_fewer_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "PATIENCE_S", 1.0)
    one = judging.EXERCISES["ex03c"]
    lines = one.given.split("\n", 1)[1]
    verdict = answer(tmp_path, monkeypatch, "ex03c", lines)
    assert (verdict.status, verdict.results[0].hint) == ("timeout", one.hang_hint)
    rows = verdict.results[0].rows
    fewer = [row for row in rows if row[3].endswith("✗")]
    assert len(fewer) == 1 and fewer[0][1] == "returned"
    for row in rows:
        if row not in fewer:
            assert row[1] == "is still inside your function" and "loss.backward()" in row[2]
            assert int(row[3]) == int(fewer[0][3].split()[0]) + 1


def test_a_loop_without_end_is_told_from_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "PATIENCE_S", 1.0)
    verdict = answer(tmp_path, monkeypatch, "ex00", "while True:\n    number = number + 0")
    assert (verdict.status, verdict.results[0].mistake) == ("timeout", "a loop without end")
    assert "number = number + 0" in str(verdict) or "while True" in str(verdict)


@pytest.mark.parametrize(
    ("exercise", "lines", "status", "said"),
    [
        ("ex02", "for p in model.parameters():\n    dist.all_reduce(p.grad)", "error", "frozen"),
        ("ex00", "dist.init_process_group('gloo')", "error", "twice"),
        (
            "ex05",
            HANDED_OVER.replace("hidden = stage(data)", "hidden = stage(data).detach()"),
            "error",
            "not its detached copy",
        ),
        ("ex05", HANDED_OVER.replace("(hidden, gradient)", "(hidden)"), "error", "is no scalar"),
        ("ex00", "if dist.get_rank() == 2:\n    1 / 0\nreturn number", "error", "Rank 2 raised"),
        ("ex00", "import os\nos._exit(0)", "error", "without an answer"),
        ("ex00", "raise SystemExit(0)", "error", "SystemExit"),
        (
            "ex00",
            "if dist.get_rank() == 1:\n    import os\n    os._exit(0)\ndist.all_reduce(number)",
            "error",
            "Rank 1 left without an answer",
        ),
        (
            "ex00",
            "if dist.get_rank() == 2:\n    1 / 0\ndist.all_reduce(number)",
            "error",
            "Rank 2 raised first: ZeroDivisionError",
        ),
        ("ex00", "return dist.all_reduce(nmber)", "error", "a letter that differs"),
        ("ex00", "print('x' * (5 << 20))\nreturn number", "fail", "own number returned"),
        ("ex00", "raise RuntimeError('\\x1b[2Jred\\a')", "error", "RuntimeError: [2Jred"),
        ("ex00", "raise ValueError", "error", "Rank"),
        (
            "ex00",
            "class Mute(Exception):\n    def __str__(self):\n        raise ValueError\nraise Mute",
            "error",
            "Mute: it has no text",
        ),
        (
            "ex00",
            "import os\nos.environ.clear()\nos.chdir('/')\nreturn number",
            "fail",
            "own number",
        ),
        ("ex00", "return number.to('meta')", "error", "NotImplementedError"),
        ("ex00", "dist.destroy_process_group()\nreturn number", "error", "neither create nor"),
        ("ex00", "while True:\n    print('x' * 10000)", "error", "write without end"),
        (
            "ex00",
            "import threading, time\nthreading.Thread(target=time.sleep, args=[60]).start()\n"
            "return number",
            "fail",
            "own number returned",
        ),
        (
            "ex00",
            "store, n = dist.distributed_c10d._get_default_store(), len(number)\n"
            "store.set(f'{n} {dist.get_rank()}', number.numpy().tobytes())\n"
            "parts = [bytearray(store.get(f'{n} {rank}')) for rank in range(3)]\n"
            "return sum(torch.frombuffer(part, dtype=torch.float32) for part in parts)",
            "fail",
            "no collective",
        ),
        ("ex00", "return number.bool()", "error", "cannot be judged"),
        ("ex00", "return torch.zeros(1 << 23)", "error", "cannot be judged"),
        ("ex00", "return number * float('nan')", "fail", "+nan"),
        ("ex00", "return number[0]", "fail", "shape ()"),
        ("ex00", "number = (", "ungradable", "(ex00_sum_over_ranks.py, line"),
        ("ex00", "...", "ungradable", "still to be written"),
        ("ex00", "x = 1\nraise NotImplementedError('soon')", "ungradable", "soon"),
    ],
)
def test_other_endings(
    exercise: str,
    lines: str,
    status: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verdict = answer(tmp_path, monkeypatch, exercise, lines)
    assert (verdict.status, verdict.points) == (status, 0), str(verdict)
    assert said in str(verdict)


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("def sum_over_ranks():\n    return 1\n", "error", "as the stub defines it"),
        ("async def sum_over_ranks(number):\n    return number\n", "ungradable", "async"),
        ("def sum_over_rank(number):\n    return number\n", "ungradable", "no longer defines"),
        ("def sum_over_ranks(n):\n    return n\ndel sum_over_ranks\n", "error", "can be called"),
        ("sum_over_ranks = 3\n", "error", "sum_over_ranks is 3"),
        ("class sum_over_ranks:\n    def __init__(self, n):\n        pass\n", "fail", "no tensor"),
        ("sum_over_ranks = lambda number: number\n", "fail", "own number returned"),
        ("from torch import clone as sum_over_ranks\n", "fail", "own number returned"),
        ("raise RuntimeError('at import')\ndef sum_over_ranks(number):\n    return number\n",
         "error", "at import"),
        ("import sys\nsys.exit()\ndef sum_over_ranks(number):\n    return number\n", "error",
         "SystemExit"),
        ("def sum_over_ranks(number):\n    return 'é'\n".encode("latin-1"), "ungradable", "utf-8"),
        ("def sum_over_ranks(number):\n\0    return number\n", "ungradable", "null"),
        ("def sum_over_ranks(number):\n    retrn number\n", "ungradable", "    retrn number\n"),
        ("def sum_over_ranks(number):\n\treturn number\n        x\n", "ungradable", "line 3"),
        ("\ufeffdef sum_over_ranks(number):\n    return '\\d'\n", "fail", "no tensor"),
        ("x = " + "(" * 5000 + ")" * 5000 + "\n", "ungradable", "Repair that first"),
        ("#" * (2 << 20), "ungradable", "larger than"),
        ("", "ungradable", "no longer defines"),
    ],
)  # fmt: skip
def test_whole_files(
    text: str | bytes, status: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "ex00_sum_over_ranks.py").write_bytes(whole)
    monkeypatch.setenv("DDP_COURSE_EXERCISES", str(tmp_path))
    verdict = check("ex00")
    assert (verdict.status, verdict.points) == (status, 0), str(verdict)
    assert said in str(verdict)


def test_a_file_beside_it_can_be_imported_and_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_helper.py").write_text("def same(number):\n    return number\n")
    (tmp_path / "random.py").write_text("raise RuntimeError('not this one')\n")
    text = "import random\nfrom my_helper import same as sum_over_ranks\n"
    (tmp_path / "ex00_sum_over_ranks.py").write_text(text)
    monkeypatch.setenv("DDP_COURSE_EXERCISES", str(tmp_path))
    verdict = check("ex00")
    assert verdict.results[0].mistake == "own number returned", str(verdict)


def test_what_is_no_file_is_not_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDP_COURSE_EXERCISES", str(tmp_path))
    path = tmp_path / "ex00_sum_over_ranks.py"
    path.mkdir()
    assert "is a folder" in str(check("ex00"))
    path.rmdir()
    os.mkfifo(path)
    assert "no regular file" in str(check("ex00"))
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    assert check("ex00").status == "ungradable"


def test_ranks_that_never_come_are_our_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDP_COURSE_EXERCISES", "solutions")
    monkeypatch.setattr(judging, "DRIVER", ROOT / "tests" / "data" / "leaves_at_once.py")
    verdict = check("ex00")
    assert (verdict.status, verdict.points) == ("infra", 0)


def test_a_missing_file_and_an_unknown_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDP_COURSE_EXERCISES", str(tmp_path))
    assert check("ex00").status == "ungradable"
    with pytest.raises(BadArgument, match="ex00, ex01, ex02"):
        check("ex99")
