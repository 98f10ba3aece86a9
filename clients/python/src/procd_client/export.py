"""The retained bytes of a process, in chunks."""

from __future__ import annotations

import base64
import hashlib
from typing import Any, List, Mapping, Optional, Tuple

from .connection import Stream
from .errors import Disconnected, Nonsense
from .link import REPEATS_MAX, Link
from .types import Exported, read


class Export:
    """Chunks of raw bytes. The next one is asked for when one was taken: it holds four at most.

    Over a lost connection it goes on behind the last chunk. The daemon's SHA-256 of what it sent
    is compared with what came.
    """

    def __init__(self, link: Link, params: Mapping[str, Any], from_cursor: int) -> None:
        self._link = link
        self._params = params
        self._from = from_cursor
        self._cursor = from_cursor
        self._stream: Optional[Stream] = None
        self._part = hashlib.sha256()
        self._whole = hashlib.sha256()
        self._bytes = 0
        self._taken = 0
        self.gaps: List[Tuple[int, int]] = []
        """Ranges that are not kept any more, as far as the export has come."""
        self.result: Optional[Exported] = None
        """What was sent, of all parts together, once it is over."""

    async def read(self) -> bytes:
        """All chunks together."""
        return b"".join([chunk async for chunk in self])

    def __aiter__(self) -> Export:
        return self

    async def __anext__(self) -> bytes:
        if self.result is not None:
            raise StopAsyncIteration
        for left in range(REPEATS_MAX, 0, -1):
            try:
                chunk = await self._next()
            except Disconnected:
                self._stream = None
                if left == 1:
                    raise
                continue
            if chunk is None:
                break
            return chunk
        raise StopAsyncIteration

    async def _next(self) -> Optional[bytes]:
        stream = self._stream or await self._begin()
        if self._taken and stream.is_empty:
            chunks = {"for": stream.number, "chunks": self._taken}
            stream.connection.notify("export/continue", chunks)
            self._taken = 0
        while True:
            kind, body = await stream.next()
            if kind == "export/chunk":
                self._taken += 1
                return self._take(body)
            if kind == "export/gap":
                self.gaps.append((int(body["from"]), int(body["to"])))
                self._cursor = int(body["to"])
            elif kind == "":
                self._finish(read(Exported, body))
                return None

    async def _begin(self) -> Stream:
        connection = await self._link.connection()
        params = {**self._params, "from_cursor": self._cursor}
        self._stream = await connection.stream("process/export", params)
        self._part = hashlib.sha256()
        self._taken = 0
        return self._stream

    def _take(self, body: Mapping[str, Any]) -> bytes:
        chunk = base64.b64decode(body["data_base64"])
        if body["cursor"] != self._cursor:
            raise Nonsense(f"a chunk at {body['cursor']}, not at {self._cursor}")
        self._part.update(chunk)
        self._whole.update(chunk)
        self._cursor += len(chunk)
        self._bytes += len(chunk)
        return chunk

    def _finish(self, last: Exported) -> None:
        if last.sha256 != self._part.hexdigest():
            raise Nonsense("an export whose checksum is another")
        self.result = Exported(
            from_cursor=self._from,
            end_cursor=last.end_cursor,
            bytes=self._bytes,
            gap_bytes=sum(end - start for start, end in self.gaps),
            sha256=self._whole.hexdigest(),
            raw=last.raw,
        )
