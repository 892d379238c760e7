"""The worker process that torchrun sees in a warm launch: it stands in for one rank.

    python -S -E shim.py ADDRESS script [args …]

It hands its environment, folder, arguments and its three streams to the launch's supervisor (see
host.py), which has forked the rank: a length of 8 bytes, then the fields, separated by NUL
bytes. It passes signals on, waits, and dies the way the rank died. If either of the two goes, the
connection breaks and the other one goes too.
"""

import os
import signal
import socket
import sys


def main(address: str, arguments: list[str]) -> None:
    supervisor = socket.socket(socket.AF_UNIX)
    supervisor.connect("\0" + address)
    environment = [f"{name}={value}" for name, value in os.environ.items()]
    fields = [os.getcwd(), str(len(arguments)), *arguments, *environment]
    request = "\0".join(fields).encode(errors="surrogateescape")
    header = len(request).to_bytes(8, "big")
    socket.send_fds(supervisor, [header], [0, 1, 2])
    supervisor.sendall(request)

    def pass_on(caught: int, _: object) -> None:
        try:  # noqa: SIM105 - contextlib would cost every worker's start
            supervisor.sendall(bytes([caught]))
        except OSError:
            pass  # the rank has just ended: its answer waits to be read

    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2"):
        signal.signal(getattr(signal, name), pass_on)
    answer = supervisor.recv(16)
    if not answer:
        os._exit(70)  # EX_SOFTWARE: the supervisor is gone
    leave(int(answer))


def leave(status: int) -> None:
    """End with the wait status of the rank: its exit code, or the signal that killed it."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.pause()
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
