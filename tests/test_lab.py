"""What `make lab` starts: JupyterLab with its token, on loopback only, at the first lesson."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from conftest import ROOT, tool


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[psutil.Process, str]]:
    """A real JupyterLab in a copy of the project without lessons, and the address it printed."""
    project = tmp_path_factory.mktemp("project")
    for part in ("tools", "ddp_course"):
        shutil.copytree(ROOT / part, project / part)
    (project / "notebooks").mkdir()
    notebook = tool("build_notebooks").build("# %%\n1 + 1\n")
    (project / "notebooks" / "00_start_here.ipynb").write_text(notebook)
    home = tmp_path_factory.mktemp("home")
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    with subprocess.Popen(
        [sys.executable, str(project / "tools" / "lab.py")],
        env={**environment, "HOME": str(home), "PYTHONPATH": str(project)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = ""
        try:
            while not (found := re.search(r"http://127\.0\.0\.1:\S+token=\S+", said)):
                line = process.stdout.readline()
                assert line, f"JupyterLab ended without an address:\n{said}"
                said += line
            _wait_until_it_answers(process, found.group())
            yield psutil.Process(process.pid), found.group()
        finally:
            process.terminate()
            process.communicate()


def _wait_until_it_answers(process: subprocess.Popen[str], url: str) -> None:
    """The address is printed a moment before the server listens."""
    while True:
        try:
            get(url)
            return
        except urllib.error.URLError:
            assert process.poll() is None, "JupyterLab ended"
            time.sleep(0.05)


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""


def test_prints_the_address_of_the_first_lesson(lab: tuple[psutil.Process, str]) -> None:
    _, url = lab
    assert "/lab/tree/my_course/notebooks/00_start_here.ipynb?token=" in url
    assert get(url)[0] == 200


def test_a_second_start_opens_the_one_that_runs(lab: tuple[psutil.Process, str]) -> None:
    process, url = lab
    env = process.environ()
    second = subprocess.run(
        [sys.executable, str(Path(env["PYTHONPATH"]) / "tools" / "lab.py")],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert second.returncode == 0, second.stderr
    assert "already runs" in second.stdout
    assert url in second.stdout


def test_keeps_its_token(lab: tuple[psutil.Process, str]) -> None:
    base, token = re.split(r"/lab/\S+\?", lab[1])
    assert get(f"{base}/api/contents")[0] == 403
    assert get(f"{base}/api/contents?{token}")[0] == 200


def test_listens_on_loopback_only(lab: tuple[psutil.Process, str]) -> None:
    listening = [
        connection.laddr.ip
        for connection in lab[0].net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert set(listening) == {"127.0.0.1"}


def test_serves_the_whole_project(lab: tuple[psutil.Process, str]) -> None:
    base, token = re.split(r"/lab/\S+\?", lab[1])
    content = json.loads(get(f"{base}/api/contents?{token}")[1])["content"]
    assert {"my_course", "notebooks", "tools"} <= {entry["name"] for entry in content}


def test_asks_no_question_on_the_first_screen(lab: tuple[psutil.Process, str]) -> None:
    base, token = re.split(r"/lab/\S+\?", lab[1])
    plugin = "@jupyterlab/apputils-extension:notification"
    settings = json.loads(get(f"{base}/lab/api/settings/{plugin}?{token}")[1])
    properties = settings["schema"]["properties"]
    assert properties["fetchNews"]["default"] == "false"
    assert properties["checkForUpdates"]["default"] is False


def test_root_is_allowed_only_where_it_must_be() -> None:
    command = tool("lab").command
    assert "--allow-root" in command(uid=0, browser=True)
    assert "--allow-root" not in command(uid=1000, browser=True)
    assert "--no-browser" in command(uid=1000, browser=False)
    assert "--no-browser" not in command(uid=1000, browser=True)


def test_the_users_own_jupyter_settings_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "/mine")
    path = tool("lab").environment()["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    assert path == [str(ROOT / "tools" / "jupyter"), "/mine"]
    assert (Path(path[0]) / "labconfig" / "default_setting_overrides.json").is_file()
