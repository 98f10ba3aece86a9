"""The recorded transcripts of the protocol, with this client as the one who calls."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import unittest
from pathlib import Path
from typing import Any, Dict, List, Tuple

from procd_client.connection import Connection, Stream
from procd_client.errors import Disconnected, Refused

from .support import Scripted, within

FOLDER = Path(__file__).parents[3] / "protocol" / "transcripts" / "v1-0.1.0"

NO_CALLS = ("send_text", "send_length")
"""Frames that no client sends: their connections are left out."""

Key = Tuple[str, Any]


class Replay:
    """One transcript: the daemon says what it said then, the client has to understand it."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._accepted: asyncio.Queue[Scripted] = asyncio.Queue()
        self._ends: Dict[str, Tuple[Connection, Scripted]] = {}
        self._calls: Dict[Key, Stream] = {}
        self._numbers: Dict[Key, int] = {}

    async def run(self, lines: List[Any]) -> None:
        """Plays all lines."""
        left_out = {line.get("on", "a") for line in lines if any(word in line for word in NO_CALLS)}
        server = await asyncio.start_unix_server(self._accept, self._socket)
        try:
            for line in lines:
                on = line.get("on", "a")
                if "daemon" in line:
                    for name in list(self._ends):
                        await self._close(name)
                elif on not in left_out:
                    await self._step(on, line)
            for name in list(self._ends):
                await self._close(name)
        finally:
            server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._accepted.put(Scripted(reader, writer))

    async def _step(self, on: str, line: Any) -> None:
        if "sent" in line:
            await self._send(on, line["sent"])
        elif "came" in line:
            await self._come(on, line["came"])
        elif line.get("closed"):
            await self._close(on)

    async def _send(self, on: str, frame: Any) -> None:
        if on not in self._ends:
            connection = await Connection.open(self._socket)
            self._ends[on] = (connection, await self._accepted.get())
        connection, daemon = self._ends[on]
        method, params = frame["method"], self._renumbered(on, frame["params"])
        if "id" not in frame:
            connection.notify(method, params)
            seen = await daemon.receive()
            assert seen == {"method": method, "params": params}, seen
            return
        is_subscription = method == "events/subscribe"
        call = await connection.stream(method, params, is_subscription=is_subscription)
        number, seen = await daemon.expect(method)
        assert seen == params, seen
        self._calls[on, frame["id"]] = call
        self._numbers[on, frame["id"]] = number

    async def _come(self, on: str, frame: Any) -> None:
        daemon = self._ends[on][1]
        if "id" not in frame:
            params = self._renumbered(on, frame["params"])
            await daemon.send({"method": frame["method"], "params": params})
            call = self._calls[on, frame["params"]["for"]]
            assert await call.next() == (frame["method"], params)
            return
        await daemon.send({**frame, "id": self._numbers[on, frame["id"]]})
        call = self._calls[on, frame["id"]]
        if "result" in frame:
            assert await call.next() == ("", frame["result"])
            return
        try:
            await call.next()
        except Refused as error:
            expected = frame["error"]
            assert error.code == expected["code"], error
            assert error.details == expected["details"], error
            assert error.retryable == expected["retryable"], error
        else:
            raise AssertionError("no error")

    async def _close(self, on: str) -> None:
        connection, daemon = self._ends.pop(on)
        daemon.close()
        await connection.closed()
        try:
            await connection.call("daemon/status", {})
        except Disconnected:
            return
        raise AssertionError("a call on a closed connection")

    def _renumbered(self, on: str, params: Any) -> Any:
        if "for" not in params:
            return params
        return {**params, "for": self._numbers[on, params["for"]]}


class TestTranscripts(unittest.IsolatedAsyncioTestCase):
    async def test_every_recorded_transcript_is_understood(self) -> None:
        paths = sorted(FOLDER.glob("*.jsonl"))
        self.assertGreaterEqual(len(paths), 12)
        for path in paths:
            with self.subTest(path.stem):
                folder = tempfile.mkdtemp(prefix="procd-py-")
                self.addCleanup(shutil.rmtree, folder, True)
                lines = [json.loads(line) for line in path.read_text().splitlines()]
                await within(Replay(folder + "/sock").run(lines))
