"""Open JupyterLab at the first lesson: on loopback only, with its token, in the whole project.

Where one already serves this project, that one is opened: two would write the same notebooks.
"""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path

from jupyter_server import serverapp

from ddp_course import copies

ROOT = Path(__file__).resolve().parent.parent
LESSON = f"lab/tree/{copies.HOME.name}/notebooks/00_start_here.ipynb"


def command(*, uid: int, browser: bool) -> list[str]:
    """The command that starts JupyterLab; it picks a free port itself."""
    flags = [
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.root_dir={ROOT}",
        f"--LabApp.default_url=/{LESSON}",
        "--log-level=WARN",
    ]
    if uid == 0:
        flags.append("--allow-root")
    if not browser:
        flags.append("--no-browser")
    return [sys.executable, "-m", "jupyterlab", *flags]


def environment() -> dict[str, str]:
    """This process's, plus the settings that keep questions off the first screen."""
    path = [str(ROOT / "tools" / "jupyter"), os.environ.get("JUPYTER_CONFIG_PATH", "")]
    return {**os.environ, "JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, path))}


def has_browser() -> bool:
    """Whether a browser can open here: false on a server, in a container, over ssh."""
    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("BROWSER")
    ):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def running() -> str | None:
    """The address of the first lesson in a JupyterLab that already serves this project."""
    for server in serverapp.list_running_servers():
        if Path(server["root_dir"]).resolve() == ROOT:
            return f"{server['url']}{LESSON}?token={server['token']}"
    return None


def main() -> None:
    start = command(uid=os.getuid(), browser=has_browser())
    sys.stdout.write(f"{copies.lay_out()}\n")
    if address := running():
        sys.stdout.write(f"JupyterLab already runs here; this is its address:\n    {address}\n")
        if has_browser():
            webbrowser.open(address)
        return
    sys.stdout.write("Starting JupyterLab; Ctrl-C twice ends it.\n")
    sys.stdout.flush()
    os.execve(start[0], [*start, *sys.argv[1:]], environment())


if __name__ == "__main__":
    main()
