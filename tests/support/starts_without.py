"""Start a program without what a hardened container withholds: `starts_without.py LACKING,… program argument…`.

A program of its own, in a mount namespace of its own. It changes what it may do itself, and then becomes the other.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import subprocess
import sys

PIDFD_OPEN = 434
SIGNALFD = {"x86_64": (282, 289), "aarch64": (74, 74)}[platform.machine()]

REFUSED = {
    "pidfd_open: EPERM": ((PIDFD_OPEN,), errno.EPERM),
    "pidfd_open: ENOSYS": ((PIDFD_OPEN,), errno.ENOSYS),
    "signalfd: EPERM": (SIGNALFD, errno.EPERM),
}

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
REFUSE, ALLOW = 0x00050000, 0x7FFF0000


def withhold(what: str) -> None:
    """Do without, from now on."""
    if what == "root to write":
        # Whatever the test can write to is part of it, or mounted below it.
        for folder in ("/", "/tmp"):
            if os.path.ismount(folder):
                _mount("-o", "remount,bind,ro", folder)
    elif what == "/dev/shm":
        _mount("-t", "tmpfs", "none", "/mnt")
        for device in ("null", "zero", "random", "urandom"):
            with open(f"/mnt/{device}", "x"):
                pass
            _mount("--bind", f"/dev/{device}", f"/mnt/{device}")
        _mount("--move", "/mnt", "/dev")
    else:
        refuse(*REFUSED[what])


def refuse(calls: tuple[int, ...], error: int) -> None:
    """Have the kernel answer these calls with an error: a seccomp filter, as containers have them."""
    steps = [(LOAD, 0, 0, 0)]
    for call in calls:
        steps += [(EQUAL, 0, 1, call), (RETURN, 0, 0, REFUSE | error)]
    steps.append((RETURN, 0, 0, ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(PR_SET_SECCOMP, FILTER, ctypes.c_void_p(ctypes.addressof(program)), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no seccomp filter can be set")


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    for lacking in sys.argv[1].split(","):
        withhold(lacking)
    os.execv(sys.argv[2], sys.argv[2:])
