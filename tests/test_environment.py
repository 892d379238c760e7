"""environment.yml, pyproject.toml, the installer, the doctor and the README tell the same."""

from __future__ import annotations

import ast
import sys
import tomllib
from typing import Any

import pytest
import yaml
from conftest import ROOT, tool
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from rattler import MatchSpec

from ddp_course.machine import PYTHONS, TORCHES


@pytest.fixture(scope="module")
def conda() -> dict[str, Any]:
    text = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert isinstance(text, dict)
    return text


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def name_of(entry: str) -> str:
    return str(MatchSpec(entry).name.normalized)


def flaws(text: dict[str, Any]) -> list[str]:
    """What `conda env create` would refuse, or what mixes conda's packages with pip's."""
    found = [f"unknown key {key}" for key in set(text) - {"name", "channels", "dependencies"}]
    if not isinstance(text.get("channels"), list):
        found.append("channels must be a list")
    elif text["channels"] != ["conda-forge", "nodefaults"]:
        found.append("channels must be conda-forge alone")
    by_conda = []
    for entry in text.get("dependencies", []):
        if isinstance(entry, str):
            try:
                by_conda.append(name_of(entry))
            except Exception as error:
                found.append(f"{entry!r}: {error}")
        elif list(entry) != ["pip"] or not isinstance(entry["pip"], list):
            found.append(f"only a list called pip may stand there, not {entry}")
        elif "pip" not in by_conda:
            found.append("pip itself must come before pip's list")
    return found


def test_the_conda_file_is_valid(conda: dict[str, Any]) -> None:
    assert flaws(conda) == []


@pytest.mark.parametrize(
    "change",
    [
        {"channels": "conda-forge"},
        {"channels": ["pytorch", "nvidia"]},
        {"dependencys": []},
        {"dependencies": ["python ==>3.11"]},
        {"dependencies": [{"pip": ["-e ."]}]},
        {"dependencies": ["pip", {"pip": "-e ."}]},
        {"dependencies": ["pip", {"npm": ["left-pad"]}]},
    ],
)
def test_the_validation_finds_flaws(conda: dict[str, Any], change: dict[str, Any]) -> None:
    assert flaws({**conda, **change}) != []


def test_conda_brings_python_and_pip_and_pip_brings_the_project(conda: dict[str, Any]) -> None:
    *by_conda, by_pip = conda["dependencies"]
    assert [name_of(entry) for entry in by_conda] == ["python", "pip"]
    assert by_pip == {"pip": ["-e ."]}


def test_one_range_of_pythons(conda: dict[str, Any], pyproject: dict[str, Any]) -> None:
    stated = SpecifierSet(pyproject["project"]["requires-python"])
    by_conda = conda["dependencies"][0].removeprefix("python ")
    assert SpecifierSet(by_conda) == stated

    installer = tool("install")
    assert (installer.OLDEST, installer.TOO_NEW) == PYTHONS
    for version in ("3.10", "3.11", "3.12", "3.13", "3.14"):
        numbers = tuple(int(part) for part in version.split("."))
        assert (PYTHONS[0] <= numbers < PYTHONS[1]) == stated.contains(version)
        assert (f"python{version}" in installer.CANDIDATES) == stated.contains(version)


def test_one_range_of_torches(pyproject: dict[str, Any]) -> None:
    requirements = map(Requirement, pyproject["project"]["dependencies"])
    torch = next(entry for entry in requirements if entry.name == "torch")
    low, high = (".".join(map(str, numbers)) for numbers in TORCHES)
    assert torch.specifier == SpecifierSet(f">={low},<{high}")


def test_every_tested_pair_is_allowed(pyproject: dict[str, Any]) -> None:
    allowed = {
        entry.name: entry.specifier
        for entry in map(Requirement, pyproject["project"]["dependencies"])
    }
    allowed["python"] = SpecifierSet(pyproject["project"]["requires-python"])
    pairs = pyproject["tool"]["ddp-course"]["tested"]["pairs"]
    for pair in pairs:
        for name, version in pair.items():
            assert allowed[name].contains(Version(version)), f"{name} {version}"
    assert pairs[0]["torch"] == ".".join(map(str, TORCHES[0])), "the oldest torch is tested"


def test_the_installer_takes_the_newest_pair_that_is_tested(pyproject: dict[str, Any]) -> None:
    pairs = pyproject["tool"]["ddp-course"]["tested"]["pairs"]
    for version in ((3, 11), (3, 12), (3, 13)):
        mine = [pair for pair in pairs if pair["python"] == "{}.{}".format(*version)]
        wanted = (mine or pairs)[-1]
        assert tool("install").tested_pair(version) == (wanted["torch"], wanted["torchvision"])


def test_the_readme_names_the_versions(pyproject: dict[str, Any]) -> None:
    readme = (ROOT / "README.md").read_text()
    assert "Python 3.11, 3.12 or 3.13" in readme
    for pair in pyproject["tool"]["ddp-course"]["tested"]["pairs"]:
        assert f"Python {pair['python']} with torch {pair['torch']}" in readme


def test_every_import_of_ours_is_a_requirement(pyproject: dict[str, Any]) -> None:
    """pip installs what is listed, not what another package happens to bring along."""
    project = pyproject["project"]
    listed = {Requirement(entry).name.lower() for entry in project["dependencies"]}
    listed |= {"ddp_course", "ddp_grading", "ipython"}  # ipykernel is IPython's kernel
    known = {"sklearn": "scikit-learn", "IPython": "ipython"}
    files = [*(ROOT / "ddp_course").rglob("*.py"), *(ROOT / "ddp_grading").rglob("*.py")]
    # Programs that are run by their path find their neighbours.
    listed |= {path.parent.name if path.name == "__init__.py" else path.stem for path in files}
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in {name.split(".")[0] for name in names} - sys.stdlib_module_names:
                assert known.get(name, name) in listed, f"{path.name} imports {name}"
