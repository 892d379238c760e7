"""What picture() draws: small models of a job, and their drawings; pictures.toml has the words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ddp_course.show import svg
from ddp_course.show.document import rank_colour, rank_ink
from ddp_course.show.shapes import Drawn, Panel, arrow, framed, of_rank

Cells = list[list[int]]  # [rank][piece]; 0: nothing there
_LABEL = 48.0  # width of "rank 0"


def _owner(value: int) -> int | None:
    """Rank r's numbers are 1 … 9 times 10**r, so a sum shows in its digits who is in it."""
    digits = str(value).rstrip("0")
    return len(str(value)) - 1 if value and len(digits) == 1 else None


def _grid(
    x: float, y: float, cells: Cells, colour: Callable[[int, int], int | None], width: float = 34
) -> str:
    """A row of cells for each rank; colour says whose colour a cell has."""
    drawn = []
    for rank, row in enumerate(cells):
        for piece, value in enumerate(row):
            whose = colour(rank, piece)
            fill, ink = (
                (svg.PAPER, svg.TEXT) if whose is None else (rank_colour(whose), rank_ink(whose))
            )
            place = x + piece * width, y + 24 * rank, width - 2, 22.0
            said = (str(value),) if value else ()
            drawn.append(framed(*place, *said, fill=fill, ink=ink, bold=whose is None, size=11))
    return "".join(drawn)


def _names(count: int, y: float, first: int = 0) -> str:
    """ "rank 0" … before rows of 24 units."""
    return "".join(
        svg.text(0, y + 15 + 24 * i, f"rank {first + i}", size=12, weight=600) for i in range(count)
    )


# The collectives, before and after

_OWN: Cells = [[(piece + 1) * 10**rank for piece in range(3)] for rank in range(3)]
_SUM = [sum(column) for column in zip(*_OWN, strict=True)]


def _only(cells: Cells) -> Cells:
    """Rank r's piece r, and nothing else."""
    return [[v if p == r else 0 for p, v in enumerate(row)] for r, row in enumerate(cells)]


COLLECTIVES: dict[str, tuple[Cells, Cells]] = {
    "broadcast from rank 0": ([_OWN[0], [0] * 3, [0] * 3], [_OWN[0]] * 3),
    "all-reduce (sum)": (_OWN, [_SUM] * 3),
    "reduce-scatter (sum)": (_OWN, _only([_SUM] * 3)),
    "all-gather": (_only(_OWN), [[_OWN[i][i] for i in range(3)]] * 3),
    "all-to-all": (_OWN, [list(column) for column in zip(*_OWN, strict=True)]),
}


def collectives() -> Drawn:
    def panel(name: str, before: Cells, after: Cells) -> Panel:
        wide = 34 * 3
        body = svg.text(_LABEL, 11, "before", size=11, fill=svg.QUIET)
        body += svg.text(_LABEL + wide + 34, 11, "after", size=11, fill=svg.QUIET)
        body += _names(3, 18)
        for x, cells in ((_LABEL, before), (_LABEL + wide + 34, after)):
            body += _grid(x, 18, cells, lambda r, p, cells=cells: _owner(cells[r][p]))  # type: ignore[misc]
        body += arrow((_LABEL + wide + 4, 53), (_LABEL + wide + 28, 53))
        return Panel(name, _LABEL + 2 * wide + 36, 92, body)

    return [panel(name, *cells) for name, cells in COLLECTIVES.items()], ""


# The ring


def ring_steps(ranks: int) -> Iterator[tuple[Cells, list[int]]]:
    """After each step of a ring all-reduce: every rank's pieces, and the piece that it received."""
    cells = [[10**rank] * ranks for rank in range(ranks)]
    for step in range(2 * (ranks - 1)):
        adding = step < ranks - 1
        # A rank passes on what it received in the step before.
        sent = [(rank - step) % ranks for rank in range(ranks)]
        old = [list(row) for row in cells]
        for rank in range(ranks):
            piece, target = sent[rank], (rank + 1) % ranks
            cells[target][piece] = old[rank][piece] + adding * old[target][piece]
        yield [list(row) for row in cells], [sent[rank - 1] for rank in range(ranks)]


def ring() -> Drawn:
    n = 4

    def panel(caption: str, cells: Cells, received: Sequence[int]) -> Panel:
        def arrived(rank: int, piece: int) -> int | None:
            return (rank - 1) % n if received and received[rank] == piece else None

        right = _LABEL + 38 * n
        body = _names(n, 0) + _grid(_LABEL, 0, cells, arrived, width=38)
        for rank in range(n - 1):
            body += arrow((right + 4, 24 * rank + 13), (right + 4, 24 * rank + 32))
        back = right + 14
        body += arrow((right + 2, 24 * n - 13), (back, 24 * n - 13), (back, 8), (right + 2, 8))
        return Panel(caption, right + 18, 24 * n, body)

    start = panel("start: four pieces each", [[10**r] * n for r in range(n)], ())
    steps = [
        panel(f"step {i + 1}: pass on and {'add' if i < n - 1 else 'keep'}", *step)
        for i, step in enumerate(ring_steps(n))
    ]
    return [start, *steps], ""


# Processes, ranks, nodes; two agents and a store


def ranks() -> Drawn:
    def node(number: int) -> Panel:
        body = framed(0, 0, 250, 132, edge=svg.LINE)
        body += framed(12, 10, 226, 24, "torchrun starts and watches them", fill=svg.TINT)
        for local in range(2):
            rank, x = 2 * number + local, 12 + 118 * local
            body += arrow((x + 54, 35), (x + 54, 52))
            body += of_rank(x, 54, 108, 66, rank, f"rank {rank}", f"local rank {local}",
                            f"GPU {local}, or CPU")  # fmt: skip
        return Panel(f"node {number}: one machine", 250, 133, body)

    return [node(0), node(1)], ""


def agents() -> Drawn:
    steps = (
        "1: each agent joins at the store",
        "2: each learns node rank and world size",
        "3: each starts its ranks; they meet at a store",
    )

    def panel(step: int) -> Panel:
        body = framed(60, 132, 196, 36, "the store, a TCP server at", "--rdzv-endpoint",
                      fill=svg.TINT, size=11)  # fmt: skip
        for node in range(2):
            x, middle = 166 * node, 75 + 166 * node
            body += framed(x, 0, 150, 104, edge=svg.LINE)
            body += svg.text(x + 8, 15, f"node {node}", size=11, fill=svg.QUIET)
            body += framed(x + 10, 66, 130, 28, "agent (torchrun)", fill=svg.TINT)
            if step == 0:
                body += arrow((middle, 95), (middle, 131))
            if step == 1:
                body += arrow((middle, 131), (middle, 95))
            for local in range(2 * (step == 2)):
                rank, left = 2 * node + local, x + 10 + 68 * local
                body += arrow((left + 31, 65), (left + 31, 46))
                body += of_rank(left, 22, 62, 23, rank)
        return Panel(steps[step], 317, 169, body)

    return [panel(step) for step in range(3)], ""


# DataParallel's six moves

_MOVES = (
    ("1 scatter: the batch is dealt out", "out", "batch", "share"),
    ("2 replicate: weights are copied", "out", "weights", "copy"),
    ("3 forward: a thread for each GPU", "", "forward", "forward"),
    ("4 gather: outputs come to GPU 0", "in", "outputs", "output"),
    ("5 loss on GPU 0, backward on all", "out", "loss", "backward"),
    ("6 reduce: gradients to GPU 0", "in", "gradients", "gradient"),
)


def dp_moves() -> Drawn:
    def panel(caption: str, way: str, root: str, others: str) -> Panel:
        body = framed(0, 0, 86, 92, "GPU 0", root, fill=svg.PALE, bold=True)
        for i in range(2):
            y = 48.0 * i
            body += framed(144, y, 86, 44, f"GPU {i + 1}", others, fill=svg.TINT, bold=True)
            if way:
                line = ((88.0, y + 22), (142.0, y + 22))
                body += arrow(*(line if way == "out" else line[::-1]))
        return Panel(caption, 231, 93, body)

    return [panel(*move) for move in _MOVES], ""


# Layers, buckets, all-reduces

_LAYERS, _SEND = 8, 0.8  # backward of a layer: 1; sending its gradients: 0.8


def buckets() -> Drawn:
    def panel(caption: str, count: int) -> Panel:
        left, unit = 66.0, (330 - 66) / (_LAYERS * (1 + _SEND))
        each, free = _LAYERS // count, 0.0
        body = svg.text(0, 16, "backward", size=12) + svg.text(0, 66, "all-reduce", size=12)
        for i in range(_LAYERS):
            place = left + i * unit, 2, unit - 1, 20
            body += framed(*place, str(_LAYERS - i), fill=svg.PALE, edge="none", size=11)
        for bucket in range(count):
            ready = each * (bucket + 1.0)
            free = max(free, ready)  # buckets leave in order, one after the other
            x, wide = left + free * unit, each * _SEND * unit
            body += arrow((left + ready * unit - 1, 23), (x + 1, 51))
            body += framed(x, 52, wide - 1, 20, str(bucket), fill=svg.STRONG, edge="none", size=11)
            free += each * _SEND
        x = left + free * unit
        body += f'<path d="M{x:g} 0V78" style="stroke:{svg.TEXT};stroke-dasharray:3 2"/>'
        body += svg.text(x - 4, 91, f"done after {free:.1f}", size=11, anchor="end", fill=svg.QUIET)
        return Panel(caption, 332, 95, body)

    return [panel("one bucket: nothing overlaps", 1), panel("four buckets: most is hidden", 4)], ""


# A mesh of replicas and stages


def mesh() -> Drawn:
    body = ""
    for i in range(2):
        body += svg.box(84, 30 + 66 * i, 240, 52, svg.TINT)
        body += svg.text(0, 52 + 66 * i, f"replica {i}", size=12, weight=600)
        body += svg.text(0, 67 + 66 * i, "a pp group", size=11, fill=svg.QUIET)
        body += svg.text(142 + 124 * i, 12, f"stage {i}", size=12, weight=600, anchor="middle")
        body += svg.text(142 + 124 * i, 26, "a dp group", size=11, anchor="middle", fill=svg.QUIET)
    for rank in range(4):
        row, column = divmod(rank, 2)
        body += of_rank(94 + 124 * column, 38 + 66 * row, 96, 36, rank)
    for i in range(2):
        body += arrow((191, 56 + 66 * i), (217, 56 + 66 * i))
        body += arrow((142 + 124 * i, 76), (142 + 124 * i, 103))
        body += arrow((142 + 124 * i, 103), (142 + 124 * i, 75))
    body += svg.text(84, 164, "→ activations, and their gradients back", size=11, fill=svg.QUIET)
    body += svg.text(84, 179, "↕ all-reduce of the weights' gradients", size=11, fill=svg.QUIET)
    return [Panel("", 326, 186, body)], ""


# GPipe and 1F1B

Slot = tuple[str, int, float]  # "F" or "B", micro-batch, when it begins
_TAKES = {"F": 1.0, "B": 2.0}


def schedule(stages: int, batches: int, warm_up: Callable[[int], int]) -> list[list[Slot]]:
    """When each stage does what, as early as it may; warm_up(stage): forwards before a backward."""
    orders = []
    for stage in range(stages):
        ahead = min(batches, warm_up(stage))
        order = [("F", i) for i in range(ahead)]
        for i in range(batches):
            order += [("B", i)] + [("F", ahead + i)] * (ahead + i < batches)
        orders.append(order)
    ends: dict[tuple[str, int, int], float] = {}
    slots: list[list[Slot]] = [[] for _ in range(stages)]
    while any(orders):
        for stage, order in enumerate(orders):
            for kind, i in order[:1]:
                last = stage == stages - 1
                before = ("F", i, stage - 1) if kind == "F" else ("B", i, stage + 1)
                before = ("F", i, stage) if kind == "B" and last else before
                if before not in ends and before[2] >= 0:
                    continue
                own = slots[stage][-1] if slots[stage] else ("F", 0, -1.0)
                begin = max(ends.get(before, 0.0), own[2] + _TAKES[own[0]])
                ends[kind, i, stage] = begin + _TAKES[kind]
                slots[stage].append((kind, i, begin))
                order.pop(0)
    return slots


def held(slots: Sequence[Slot]) -> int:
    """The most micro-batches whose activations a stage keeps at a time."""
    kinds = [kind for kind, _, _ in slots]
    return max(kinds[:i].count("F") - kinds[:i].count("B") for i in range(len(kinds) + 1))


def schedules() -> Drawn:
    stages, batches = 3, 4

    def panel(name: str, warm_up: Callable[[int], int]) -> Panel:
        lanes = schedule(stages, batches, warm_up)
        unit = (330 - _LABEL) / max(begin + _TAKES[kind] for kind, _, begin in lanes[0])
        body = _names(stages, 0)
        for stage, lane in enumerate(lanes):
            body += svg.box(_LABEL, 24 * stage, 330 - _LABEL, 22, "none", stroke=svg.LINE)
            for kind, i, begin in lane:
                place = _LABEL + begin * unit, 24 * stage, _TAKES[kind] * unit - 1, 22
                fill = svg.PALE if kind == "F" else svg.STRONG
                body += framed(*place, str(i), fill=fill, edge="none", size=11)
        kept = ", ".join(str(held(lane)) for lane in lanes)
        body += svg.text(_LABEL, 24 * stages + 14, f"micro-batches held at a time: {kept}", size=11,
                         fill=svg.QUIET)  # fmt: skip
        return Panel(name, 332, 24 * stages + 20, body)

    panels = [
        panel("GPipe: all forwards, then all backwards", lambda stage: batches),
        panel("1F1B: a backward as soon as there is one", lambda stage: stages - stage),
    ]
    return panels, svg.legend(
        (
            (svg.PALE, "none", 12, "forward, with the number of its micro-batch"),
            (svg.STRONG, "none", 12, "its backward"),
            ("none", svg.LINE, 12, "idle: the bubble"),
        )
    )


# Memory

_PARAMETERS, _RANKS = 526_336, 4


def memory() -> Drawn:
    n = _RANKS
    plans = {  # the parts of parameters, gradients and optimizer state that a rank keeps
        "DDP: all of it on each rank": (1, 1, 1),
        "ZeRO-1: the optimizer's state in pieces": (1, 1, n),
        "FSDP: everything in pieces, gathered when used": (n, n, n),
        "tensor parallel: pieces that are never gathered": (n, n, n),
    }
    whole = [4 * _PARAMETERS / 1e6 * numbers for numbers in (1, 1, 2)]  # AdamW keeps two
    fills = (svg.PALE, svg.STRONG, svg.TEXT)
    body = ""
    for i, (name, parts) in enumerate(plans.items()):
        kept = [mb / part for mb, part in zip(whole, parts, strict=True)]
        y, x = 44.0 * i, 0.0
        body += svg.text(0, y + 12, name, size=12)
        for mb, fill in zip(kept, fills, strict=True):
            wide = 280 * mb / sum(whole)
            body += svg.box(x, y + 18, wide - 1, 16, fill)
            x += wide
        body += svg.text(x + 5, y + 30, f"{sum(kept):.1f} MB", size=11, weight=600)
    return [Panel("", 340, 44.0 * len(plans), body)], svg.legend(
        [
            (fill, "none", 12, name)
            for fill, name in zip(fills, ("parameters", "gradients", "optimizer"), strict=True)
        ]
    )


PICTURES: dict[str, Callable[[], Drawn]] = {
    drawn.__name__: drawn
    for drawn in (
        ranks, collectives, ring, dp_moves, buckets, agents, mesh, schedules, memory,
    )
}  # fmt: skip
