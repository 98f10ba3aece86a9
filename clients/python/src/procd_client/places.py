"""Where the daemon's socket is: the rules of PROTOCOL.md, *The socket*."""

from __future__ import annotations

import os
import stat
from typing import Mapping, Optional

from .errors import PlaceError

SOCKET_VARIABLE = "PROCD_SOCKET"
DAEMON_VARIABLE = "PROCD_DAEMON"
SOCKET_PATH_BYTES_MAX = 107
"""Bytes of a socket's path that the kernel takes."""


def socket_path(environment: Optional[Mapping[str, str]] = None, uid: Optional[int] = None) -> str:
    """The socket of this user. Whether a daemon listens there is another question."""
    variables = os.environ if environment is None else environment
    user = os.geteuid() if uid is None else uid
    named = variables.get(SOCKET_VARIABLE, "")
    if named:
        return checked(named)
    runtime = variables.get("XDG_RUNTIME_DIR", "")
    for base in (runtime, f"/run/user/{user}"):
        if os.path.isabs(base) and _is_private(base, user):
            return checked(os.path.join(base, "procd", "procd.sock"))
    folder = f"/tmp/procd-{user}"
    if os.path.lexists(folder) and not _is_private(folder, user):
        raise PlaceError(
            f"the folder `{folder}` is not a folder of ours with mode 0700:"
            f" remove it, or set {SOCKET_VARIABLE}"
        )
    return checked(os.path.join(folder, "procd.sock"))


def checked(path: str) -> str:
    """A socket's path as it was named: absolute, and short enough."""
    if not os.path.isabs(path):
        raise PlaceError(f"`{path}` is not an absolute path: see {SOCKET_VARIABLE}")
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_BYTES_MAX:
        raise PlaceError(
            f"the socket path `{path}` has {length} bytes, and a socket's path may have"
            f" {SOCKET_PATH_BYTES_MAX} at most: set {SOCKET_VARIABLE} to a shorter one"
        )
    return path


def _is_private(folder: str, uid: int) -> bool:
    """Whether it is a folder and no symlink, of this user, and closed to everybody else."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and found.st_mode & 0o077 == 0
