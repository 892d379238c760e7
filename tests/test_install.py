"""tools/install.py and the Makefile, driven with pretended Pythons and a pretended pip."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from conftest import ROOT, tool

# Answers as an interpreter does to what install.py asks of it. Its pip does what $FAKE_PIP says.
FAKE = """#!{real} -ES
import os, shutil, signal, sys, time

VERSION, LACKS = {version!r}, {lacks!r}
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODULES = ("torch torchvision jupyterlab ipykernel ipywidgets matplotlib sklearn ddp_course "
           "pytest xdist nbclient jupytext ruff mypy").split()
given = sys.argv[1:]

def path_of(name):
    return os.path.join(HERE, "lib", name)

if given[0] == "tools/install.py":
    os.execv({real!r}, [{real!r}, *given])
elif given[0].endswith(".py") or given[:2] == ["-m", "pytest"]:
    print("ran", *given)
elif given[0] == "-c" and "find_spec" in given[1]:
    lacks = [m for m in given[2:] if m in LACKS or m in MODULES and not os.path.exists(path_of(m))]
    print(*VERSION.split(".")[:2], 64, *lacks)
elif given[:3] == ["-m", "venv", "--clear"]:
    shutil.rmtree(given[3], ignore_errors=True)
    os.makedirs(os.path.join(given[3], "bin"))
    shutil.copy(os.path.abspath(__file__), os.path.join(given[3], "bin", "python"))
elif given[:2] in (["-m", "pip"], ["-m", "uv"]):
    with open(os.environ["FAKE_CALLS"], "a") as calls:
        calls.write(" ".join(given) + "\\n")
    pip = os.environ.get("FAKE_PIP", "ok")
    if pip == "kill parent":
        os.kill(os.getppid(), signal.SIGKILL)
    elif pip == "interrupt parent":
        os.kill(os.getppid(), signal.SIGINT)
        signal.pause()
    elif pip == "wait":
        while not os.path.exists(os.environ["FAKE_CALLS"] + ".go"):
            time.sleep(0.01)
    elif pip == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif pip not in ("ok", "nothing"):
        print("Collecting torch>=2.14.1")
        sys.exit(pip)
    if pip != "nothing":
        os.makedirs(os.path.join(HERE, "lib"), exist_ok=True)
        for name in MODULES:
            open(path_of(name), "w").close()
"""


class Project:
    """A copy of what the installer needs, with pretended Pythons as the only ones on PATH."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.bin = folder / "bin"
        self.calls_file = folder / "calls"
        self.bin.mkdir()
        (self.root / "tools").mkdir(parents=True)
        shutil.copy(ROOT / "tools" / "install.py", self.root / "tools")
        shutil.copy(ROOT / "pyproject.toml", self.root)
        shutil.copy(ROOT / "Makefile", self.root)

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    def has_python(self, name: str, version: str, lacks: str = "") -> Path:
        path = self.bin / name
        path.write_text(FAKE.format(real=sys.executable, version=version, lacks=lacks))
        path.chmod(0o755)
        return path

    def environment(self, pip: str) -> dict[str, str]:
        return {"PATH": str(self.bin), "FAKE_PIP": pip, "FAKE_CALLS": str(self.calls_file)}

    def start(self, *flags: str, pip: str = "ok") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "tools/install.py", *flags],
            cwd=self.root,
            env=self.environment(pip),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def install(self, *flags: str, pip: str = "ok") -> tuple[int, str]:
        with self.start(*flags, pip=pip) as process:
            said, _ = process.communicate()
        return process.returncode, said

    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines() if self.calls_file.exists() else []


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def installed(project: Project) -> Project:
    project.has_python("python3", "3.12.1")
    assert project.install() == (0, project_says_first_time())
    return project


def project_says_first_time() -> str:
    return (
        "Making .venv with Python 3.12 …\n"
        "Installing the course (3 GB the first time, some minutes) …\n"
    )


def test_installs_once_and_then_does_nothing(installed: Project) -> None:
    assert installed.install() == (0, "")
    assert len(installed.calls()) == 1
    assert "-e . torch==2.15.0 torchvision==0.29.2" in installed.calls()[0], "the tested pair"


def test_tests_add_their_tools_and_the_lab_keeps_them(installed: Project) -> None:
    assert installed.install("--dev")[0] == 0
    assert "-e .[dev]" in installed.calls()[1]
    assert installed.install() == (0, "")


def test_changed_requirements_are_installed_and_dev_stays(installed: Project) -> None:
    installed.install("--dev")
    with (installed.root / "pyproject.toml").open("a") as file:
        file.write("\n# changed\n")
    assert installed.install()[0] == 0
    assert "-e .[dev]" in installed.calls()[2]
    assert installed.install("--dev") == (0, "")


def test_takes_the_first_right_python_and_steps_over_a_shim_that_does_not_run(
    project: Project,
) -> None:
    project.has_python("python3", "3.9.18")
    shim = project.bin / "python3.13"
    shim.write_text("#!/bin/sh\necho 'command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    project.has_python("python3.12", "3.12.1")
    code, said = project.install()
    assert code == 0
    assert "Making .venv with Python 3.12" in said


def test_python_that_is_too_old_or_too_new_is_named(project: Project) -> None:
    project.has_python("python3", "3.14.0")
    project.has_python("python", "2.7.18")
    code, said = project.install()
    assert code == 1
    assert "the course needs Python 3.11, 3.12 or 3.13" in said
    assert "python3 is Python 3.14 (64-bit); python is Python 2.7 (64-bit)" in said
    assert not project.venv.exists()


def test_a_named_python_must_fit_and_run(project: Project) -> None:
    project.has_python("python3", "3.12.1")
    old = project.has_python("old", "3.10.2")
    assert f"{old} is Python 3.10 (64-bit)" in project.install("--python", str(old))[1]
    assert "nowhere does not run here" in project.install("--python", "nowhere")[1]
    assert not project.calls()


def test_python_without_ensurepip_gets_the_package_to_install(project: Project) -> None:
    project.has_python("python3", "3.11.2", lacks="ensurepip")
    code, said = project.install()
    assert code == 1
    assert "sudo apt-get install python3.11-venv" in said
    assert not project.venv.exists()


NO_NETWORK = (
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError("
    "'Failed to establish a new connection: [Errno -2] Name or service not known')'\n"
    "ERROR: Could not find a version that satisfies the requirement torch (from versions: none)\n"
    "ERROR: No matching distribution found for torch"
)


@pytest.mark.parametrize(
    ("pip", "what", "to_do"),
    [
        (NO_NETWORK, "the packages could not be downloaded", "the same command again"),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on "
            "device",
            "the disk is full",
            "make lab CPU=1",
        ),
        (
            "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]'))",
            "could not be downloaded",
            "PIP_CERT",
        ),
        (
            "ERROR: No matching distribution found for torch==9.9",
            "(exit code 1): ERROR: No matching distribution found for torch==9.9",
            "it says more in build/install.log",
        ),
        ("die", "(exit code -9)", "lack of memory"),
        ("nothing", "after the installation these are missing: torch", "build/install.log"),
    ],
)
def test_a_failure_is_one_message_and_the_next_run_repairs(
    project: Project, pip: str, what: str, to_do: str
) -> None:
    project.has_python("python3", "3.12.1")
    code, said = project.install(pip=pip)
    message = said[said.index("The course could not be set up.") :]
    assert code == 1
    assert what in message
    assert to_do in message
    assert "Traceback" not in said
    assert len(message.splitlines()) <= 5, "one message, not a wall of text"
    log = (project.root / "build" / "install.log").read_text()
    assert pip in log or pip in ("die", "nothing")

    code, said = project.install()
    assert code == 0
    assert "Making .venv again: its installation was not finished." in said
    assert project.install() == (0, "")


@pytest.mark.parametrize(("pip", "code"), [("kill parent", -9), ("interrupt parent", 130)])
def test_an_interrupted_installation_is_made_again(project: Project, pip: str, code: int) -> None:
    project.has_python("python3", "3.12.1")
    ended, said = project.install(pip=pip)
    assert ended == code
    assert "Traceback" not in said
    code, said = project.install()
    assert code == 0
    assert "Making .venv again" in said


def _delete_python(project: Project) -> None:
    (project.venv / "bin" / "python").unlink()


def _dangle_python(project: Project) -> None:
    _delete_python(project)
    (project.venv / "bin" / "python").symlink_to("/nonexistent/python3.12")


def _move(project: Project) -> None:
    project.root = project.root.rename(project.root.parent / "moved")


def _delete_torch(project: Project) -> None:
    (project.venv / "lib" / "torch").unlink()


def _empty(project: Project) -> None:
    shutil.rmtree(project.venv)
    project.venv.mkdir()


@pytest.mark.parametrize("harm", [_delete_python, _dangle_python, _move, _delete_torch, _empty])
def test_a_broken_environment_is_made_again(
    installed: Project, harm: Callable[[Project], None]
) -> None:
    harm(installed)
    code, said = installed.install()
    assert code == 0
    assert "Making .venv again" in said
    assert installed.install() == (0, "")


def test_an_environment_made_by_hand_is_taken_over(project: Project) -> None:
    python = project.has_python("python3", "3.12.1")
    subprocess.run([python, "-m", "venv", "--clear", project.venv], check=True)
    code, said = project.install()
    assert code == 0
    assert "Making" not in said


def test_cpu_only_is_said_once(installed: Project) -> None:
    assert installed.install("--cpu", "1")[0] == 0
    assert "-m uv pip install" in installed.calls()[-1]
    assert "--torch-backend cpu" in installed.calls()[-1]
    assert installed.install() == (0, "")
    code, said = installed.install("--cpu", "0")
    assert code == 0
    assert "it holds the other build of torch" in said
    assert "torch-backend" not in installed.calls()[-1]


def test_cpu_only_survives_a_repair(project: Project) -> None:
    project.has_python("python3", "3.12.1")
    assert project.install("--cpu", "1", pip=NO_NETWORK)[0] == 1
    assert project.install()[0] == 0
    assert "--torch-backend cpu" in project.calls()[-1]


def test_another_pair_has_an_environment_of_its_own(installed: Project) -> None:
    other = installed.has_python("python3.13", "3.13.0")
    folder = ".venv-python3.13-torch2.14.1"
    code, _ = installed.install("--venv", folder, "--python", str(other), "--torch", "2.14.1")
    assert code == 0
    assert installed.calls()[-1].endswith("-e . torch==2.14.1"), "pip finds the torchvision to it"
    assert installed.install() == (0, "")


def test_two_at_once_wait_for_each_other(project: Project) -> None:
    project.has_python("python3", "3.12.1")
    with project.start(pip="wait") as first:
        assert first.stdout is not None
        while "Installing" not in first.stdout.readline():
            assert first.poll() is None
        with project.start() as second:
            assert second.stdout is not None
            assert "waiting for it" in second.stdout.readline()
            Path(f"{project.calls_file}.go").touch()
            first.communicate()
            second.communicate()
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(project.calls()) == 1


@pytest.fixture
def installer(project: Project) -> ModuleType:
    return tool("install", project.root)


@pytest.mark.parametrize(
    ("free_gb", "flags", "offers_cpu"),
    [(5.0, [], True), (1.0, [], False), (1.0, ["--cpu", "1"], False)],
)
def test_too_little_room_is_said_before_anything_is_downloaded(
    project: Project,
    installer: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    free_gb: float,
    flags: list[str],
    offers_cpu: bool,
) -> None:
    project.has_python("python3", "3.12.1")
    monkeypatch.setenv("PATH", str(project.bin))
    usage = SimpleNamespace(free=free_gb * 1e9)
    monkeypatch.setattr(installer.shutil, "disk_usage", lambda path: usage)
    assert installer.main(flags) == 1
    said = capsys.readouterr().err
    assert f"{free_gb} GB free" in said
    assert ("CPU=1" in said) == offers_cpu
    assert not project.calls(), "before anything is downloaded"


def test_a_disk_that_is_full_from_the_beginning_is_said(
    project: Project,
    installer: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(installer, "_wait_for_turn", full)
    assert installer.main([]) == 1
    assert "the disk is full" in capsys.readouterr().err


def test_an_old_python_can_read_the_installer() -> None:
    source = (ROOT / "tools" / "install.py").read_text()
    ast.parse(source, feature_version=(3, 6))


def make(project: Project, *arguments: str, path: str | None = None) -> tuple[int, str]:
    program = shutil.which("make")
    assert program is not None
    environment = project.environment("ok")
    ended = subprocess.run(
        [program, *arguments],
        cwd=project.root,
        env={**environment, "PATH": environment["PATH"] if path is None else path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return ended.returncode, ended.stdout


def test_make_setup_installs_and_nothing_else(project: Project) -> None:
    (project.bin / "python3").symlink_to(sys.executable)
    (project.root / "tools" / "install.py").write_text("import sys; print(sys.argv[1:])")
    assert make(project, "setup") == (
        0,
        "['--venv', '.venv', '--python', '', '--torch', '', '--cpu', '']\n",
    )
    code, said = make(project, "setup", "PYTHON=/opt/python3.13", "TORCH=2.15.0", "CPU=1")
    assert code == 0
    assert "'.venv-python3.13-torch2.15.0', '--python', '/opt/python3.13'" in said
    assert said.rstrip().endswith("'--torch', '2.15.0', '--cpu', '1']")


@pytest.mark.parametrize(
    ("target", "ran", "dev"),
    [
        ("lab", "tools/lab.py", False),
        ("test", "-m pytest -n 3 --dist worksteal", True),
        ("course", "tools/course.py", True),
        ("bench", "tools/bench.py", True),
        ("notebooks", "tools/build_notebooks.py", True),
    ],
)
def test_make_installs_what_a_target_needs_and_runs_it(
    project: Project, target: str, ran: str, dev: bool
) -> None:
    project.has_python("python3", "3.12.1")
    code, said = make(project, target, "ARGS=-k x")
    assert code == 0
    assert said.endswith(f"\nran {ran} -k x\n")
    assert ("-e .[dev]" in project.calls()[0]) == dev
    assert make(project, target) == (0, f"ran {ran}\n")


def test_make_nightly_runs_what_test_leaves_out_and_the_endurance(project: Project) -> None:
    project.has_python("python3", "3.12.1")
    code, said = make(project, "nightly")
    assert code == 0
    assert said.endswith("ran -m pytest -m nightly -n 3 --dist worksteal\nran tools/endure.py\n")


def test_make_stops_where_the_installation_failed(project: Project) -> None:
    project.has_python("python3", "3.9.18")
    code, said = make(project, "lab")
    assert code != 0
    assert "the course needs Python 3.11, 3.12 or 3.13" in said
    assert "ran tools/lab.py" not in said


def test_make_without_any_python_says_so(project: Project) -> None:
    code, said = make(project, "lab", path=str(project.root))
    assert code != 0
    assert "no Python 3 was found" in said
    assert "make lab PYTHON=/path/to/python3.12" in said


def test_make_lists_its_targets_by_default(project: Project) -> None:
    code, said = make(project, path=os.environ["PATH"])
    assert code == 0
    for target in [
        "setup",
        "lab",
        "test",
        "nightly",
        "course",
        "bench",
        "check",
        "notebooks",
        "clean",
    ]:
        assert f"make {target} " in said


def test_the_modules_that_are_looked_for_are_requirements() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    listed = " ".join([*project["dependencies"], *project["optional-dependencies"]["dev"]])
    source = (ROOT / "tools" / "install.py").read_text()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith("MODULES"):
            for module in ast.literal_eval(node.value):
                assert {"sklearn": "scikit-learn"}.get(module, module) in listed
