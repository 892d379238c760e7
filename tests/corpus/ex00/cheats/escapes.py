# status: fail
# says: What each rank had
# mistake: own number returned
# Ways out: root in a namespace of one's own, mounts, device files, the network, the caller's files.
import ctypes
import os
import socket
import urllib.request

OUT = []


def attempt(what):
    try:
        what()
    except (OSError, ValueError):
        return
    OUT.append(what)


def unshare():
    if ctypes.CDLL(None, use_errno=True).unshare(0x10000000) != 0:
        raise OSError("refused")


def sum_over_ranks(number):
    attempt(unshare)
    attempt(lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(8, 0)))
    attempt(lambda: os.chroot("/tmp"))
    attempt(lambda: os.setuid(0))
    attempt(lambda: os.mkdir("/submission/new"))
    attempt(lambda: os.mkdir("/usr/new"))
    attempt(lambda: os.stat("/etc/shadow"))
    attempt(lambda: os.listdir("/root/.ssh"))
    attempt(lambda: os.listdir("/home"))
    attempt(lambda: socket.create_connection(("192.0.2.1", 80), timeout=1))
    attempt(lambda: urllib.request.urlopen("http://192.0.2.1/", timeout=1))
    if OUT:
        os._exit(99)
    return number
