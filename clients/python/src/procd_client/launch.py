"""Starting a private daemon.

It makes its own POSIX session, keeps its own log, and says by one line on an inherited pipe
whether it is ready.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from typing import Optional

from .errors import LaunchError
from .places import DAEMON_VARIABLE, SOCKET_VARIABLE

READY_SECONDS = 60.0
"""How long it may take: it waits for the guardian of the one before and reads what that left."""
LINE_BYTES_MAX = 4096


async def private_daemon(program: Optional[str], socket: str) -> None:
    """Starts a private daemon that serves ``socket`` and waits until it is ready."""
    found = program or _find()
    ours, theirs = os.pipe()
    try:
        try:
            child = subprocess.Popen(  # noqa: ASYNC220 - it returns as soon as it is started
                [found, "--private", "--ready-fd", str(theirs)],
                pass_fds=(theirs,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, SOCKET_VARIABLE: socket},
            )
        finally:
            os.close(theirs)
        # Reaps it, should it end before this process does.
        threading.Thread(target=child.wait, name="procd-reaper", daemon=True).start()
        line = await asyncio.wait_for(_line(ours), READY_SECONDS)
    except asyncio.TimeoutError:
        raise LaunchError(f"`{found}` says nothing") from None
    except OSError as error:
        raise LaunchError(f"`{found}`: {error}") from error
    finally:
        os.close(ours)
    if line == "ready":
        return
    ended = "it ended before it was ready; see its log in the state folder"
    prefix = "error: "
    raise LaunchError((line[len(prefix) :] if line.startswith(prefix) else line) or ended)


async def _line(descriptor: int) -> str:
    """Up to the end of the line: the pipe may stay open with a child of the daemon."""
    loop = asyncio.get_running_loop()
    text = b""
    os.set_blocking(descriptor, False)
    while b"\n" not in text and len(text) < LINE_BYTES_MAX:
        readable: asyncio.Future[None] = loop.create_future()
        loop.add_reader(descriptor, _settle, readable)
        try:
            await readable
        finally:
            loop.remove_reader(descriptor)
        more = os.read(descriptor, LINE_BYTES_MAX)
        if not more:
            break
        text += more
    return text.split(b"\n")[0].decode("utf-8", "replace")


def _settle(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)


def _find() -> str:
    """The daemon's executable: ``$PROCD_DAEMON``, else ``procd`` on PATH."""
    named = os.environ.get(DAEMON_VARIABLE, "")
    if named:
        return named
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, "procd")
        if os.path.isabs(folder) and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise LaunchError(f"there is no `procd` on PATH: set {DAEMON_VARIABLE}")
