"""A daemon of its own for each test, a proxy that cuts, and a daemon that says what it is told."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest
from collections import Counter
from pathlib import Path
from typing import Any, Awaitable, Callable, List, Optional, Tuple

PATIENCE = 60.0
"""Seconds that anything may take on a machine that is busy with other things."""


def binary(name: str) -> str:
    """A binary under test."""
    folder = os.environ.get("PROCD_TEST_BINARIES")
    if not folder:
        raise RuntimeError(
            "no PROCD_TEST_BINARIES: run the tests by `cargo xtask test`, which builds the"
            " binaries and says where they are"
        )
    return os.path.join(folder, name)


class Daemon:
    """A daemon in a folder of its own."""

    def __init__(self, limits: str = "") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="procd-py-"))
        (self.folder / "config.toml").write_text(f'containment = "shim"\n[limits]\n{limits}')
        self.socket = str(self.folder / "sock")
        self._child: Optional[subprocess.Popen[bytes]] = None

    def environment(self) -> dict[str, str]:
        """The variables that say where everything is."""
        return {
            **os.environ,
            "PROCD_SOCKET": self.socket,
            "PROCD_STATE_DIR": str(self.folder / "state"),
            "PROCD_CONFIG": str(self.folder / "config.toml"),
            "PROCD_DAEMON": binary("procd"),
        }

    def start(self) -> None:
        """Starts it, ready to serve: it says so on a pipe."""
        ours, theirs = os.pipe()
        with open(self.folder / "daemon.log", "ab") as log:
            self._child = subprocess.Popen(
                [binary("procd"), "--ready-fd", str(theirs)],
                pass_fds=(theirs,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=self.environment(),
            )
        os.close(theirs)
        with os.fdopen(ours) as pipe:
            line = pipe.readline()
        if line != "ready\n":
            raise AssertionError(f"the daemon says {line!r}: {self.log()}")

    def kill(self) -> None:
        """SIGKILL to the daemon itself."""
        assert self._child is not None
        self._child.kill()
        self._child.wait(PATIENCE)
        self._child = None

    def stop(self) -> None:
        """Ends it as an operator would, and removes its folder."""
        child, self._child = self._child, None
        if child is not None:
            child.send_signal(signal.SIGTERM)
            child.wait(PATIENCE)
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        """What it logged."""
        return (self.folder / "daemon.log").read_text(errors="replace")


class DaemonCase(unittest.IsolatedAsyncioTestCase):
    """A test with a daemon."""

    LIMITS = ""

    def setUp(self) -> None:
        self.daemon = Daemon(self.LIMITS)
        self.addCleanup(self.daemon.stop)
        self.daemon.start()

    def path(self, name: str) -> str:
        """A path in the folder of the test."""
        return str(self.daemon.folder / name)


async def within(work: Awaitable[Any]) -> Any:
    """What the work gives, in any time that makes sense."""
    return await asyncio.wait_for(work, PATIENCE)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """One frame as it comes, its length included."""
    head = await reader.readexactly(4)
    return head + await reader.readexactly(int.from_bytes(head, "big"))


Cut = Tuple[str, int]


class Proxy:
    """Passes frames on and counts them by their method, over all connections and both ways.

    At the frame ``cut_at``, such as the second ``reply``, both ends of its connection are hung up,
    before the frame is passed on or behind it. That happens once.
    """

    def __init__(self, path: str, target: str, cut_at: Cut = ("", 0), passes: bool = False) -> None:
        self.path = path
        self.seen: Counter[str] = Counter()
        self.has_cut = False
        self._target = target
        self._cut_at = cut_at
        self._passes = passes
        self._server: Optional[asyncio.AbstractServer] = None
        self._tasks: List[asyncio.Task[None]] = []

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_unix_server(self._serve, self.path)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Some versions of Python have removed it by now.
        Path(self.path).unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        up_reader, up_writer = await asyncio.open_unix_connection(self._target)
        ways = [
            asyncio.ensure_future(self._pass(reader, up_writer)),
            asyncio.ensure_future(self._pass(up_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            return
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            writer.close()
            up_writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                frame = await read_frame(reader)
                method = str(json.loads(frame[4:]).get("method", "reply"))
                self.seen[method] += 1
                is_cut = (method, self.seen[method]) == self._cut_at
                self.has_cut = self.has_cut or is_cut
                if is_cut and not self._passes:
                    return
                writer.write(frame)
                await writer.drain()
                if is_cut:
                    return
        except (asyncio.IncompleteReadError, OSError):
            return


Script = Callable[["Scripted"], Awaitable[None]]


class Scripted:
    """The daemon's end of one connection, which a test writes by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> Any:
        """The next frame of the client."""
        return json.loads((await read_frame(self._reader))[4:])

    async def expect(self, method: str) -> Tuple[int, Any]:
        """The next frame, which has to be a request of this method."""
        frame = await self.receive()
        assert frame.get("method") == method, frame
        return frame.get("id"), frame.get("params")

    async def send(self, message: Any) -> None:
        """Sends any object."""
        payload = json.dumps(message).encode()
        self._writer.write(len(payload).to_bytes(4, "big") + payload)
        await self._writer.drain()

    async def answer(self, number: int, result: Any) -> None:
        """Answers a request."""
        await self.send({"id": number, "result": result})

    async def refuse(self, number: Optional[int], code: str, **details: Any) -> None:
        """Refuses a request."""
        error = {"code": code, "message": "no", "retryable": False, "details": details}
        await self.send({"id": number, "error": error})

    async def greet(self) -> None:
        """Answers the handshake, with words that nobody knows."""
        number, params = await self.expect("hello")
        assert params["versions"] == [1], params
        server = {"name": "procd", "version": "9"}
        await self.answer(number, {"version": 1, "server": server, "novel": {"deep": [1]}})

    async def opened(self) -> None:
        """Answers ``session/open``."""
        number, params = await self.expect("session/open")
        ids = {name: params[name] for name in ("session_id", "loop_id")}
        await self.answer(number, {**ids, "free": {}})

    async def attached(self) -> None:
        """Answers ``session/attach``."""
        number, params = await self.expect("session/attach")
        ids = {name: params[name] for name in ("session_id", "loop_id")}
        await self.answer(number, {**ids, "state": "open", "totals": {}, "free": {}})

    def close(self) -> None:
        """Hangs up."""
        self._writer.close()


class ScriptedCase(unittest.IsolatedAsyncioTestCase):
    """A test against a daemon that is written by hand, one script a connection."""

    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="procd-py-")
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.socket = os.path.join(self.folder, "sock")

    async def serve(self, *scripts: Script) -> asyncio.Task[None]:
        """Serves the scripts in their order: the task ends with the last one, or fails with it."""
        connections: asyncio.Queue[Scripted] = asyncio.Queue()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await connections.put(Scripted(reader, writer))

        server = await asyncio.start_unix_server(accept, self.socket)

        async def run() -> None:
            try:
                for script in scripts:
                    scripted = await connections.get()
                    try:
                        await script(scripted)
                    finally:
                        # Also when it failed: whoever waits for an answer learns that none comes.
                        scripted.close()
            finally:
                server.close()

        return asyncio.create_task(run())


def page(start: int, end: int, total: int, state: str = "running", **more: Any) -> Any:
    """An entry of ``process/output``."""
    has_ended = state != "running"
    return {
        "process_id": ID,
        "state": state,
        "start_cursor": start,
        "from_cursor": start,
        "next_cursor": end,
        "total_bytes": total,
        "retained_from": 0,
        "gap": False,
        "more": end < total,
        "eof": has_ended and end == total,
        "output": "x" * (end - start),
        "artifact": {"id": ID, "encoding": "base64", "start_cursor": start, "end_cursor": end},
        **more,
    }


ID = "AAAAAAAAAAAAAAAAAAAAAA"
