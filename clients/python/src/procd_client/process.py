"""One process."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, Dict, Mapping, Optional, Tuple, Union

from .command import millis
from .connection import Connection
from .errors import Disconnected, NoMatch, Nonsense, NotFound, StdinClosed
from .export import Export
from .follow import Follow
from .link import Link
from .types import (
    Excerpt,
    Input,
    Inspection,
    Page,
    Search,
    Started,
    Stopped,
    read,
    read_entry,
)


class Process:
    """A process of the daemon. Letting go of it touches nothing."""

    def __init__(self, link: Link, process_id: str, reply: Optional[Started] = None) -> None:
        self._link = link
        self._id = process_id
        self._reply = reply

    @property
    def id(self) -> str:
        """The handle."""
        return self._id

    @property
    def reply(self) -> Started:
        """The reply to its start, when it was started here: the result of a foreground command."""
        if self._reply is None:
            raise Nonsense("this process was not started by this object")
        return self._reply

    async def output(self, *, timeout: Optional[float] = None, **params: Any) -> Page:
        """One page, or a wait for one.

        ``params`` are those of ``process/output`` by their names there, such as ``cursor``,
        ``limit_bytes``, ``encoding`` or ``wait``. ``timeout`` bounds the wait, in seconds: also
        over a lost connection. Cancelling the wait ends it and touches nothing.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout

        async def ask(connection: Connection) -> Tuple[Page, Connection]:
            call = {"process_id": self._id, **params}
            if deadline is not None:
                call["timeout_ms"] = millis(deadline - loop.time())
            result = await connection.call("process/output", call, cancels=True)
            return _page(result, params), connection

        while True:
            page, connection = await self._link.repeated(ask)
            if page.woke_by != "shutdown" or page.has_ended:
                return page
            # The end is told by the daemon that comes after this one.
            await self._link.after(connection, Disconnected("the daemon shuts down"))

    def follow(
        self,
        cursor: int = 0,
        *,
        tail_lines: Optional[int] = None,
        limit_bytes: int = 256 * 1024,
        **params: Any,
    ) -> Follow:
        """The output from ``cursor`` on, as it comes, through the end: an async iterator of pages.

        It goes on at its cursor over a lost connection. A page is asked for when the one before
        was taken: a slow reader holds one page, and what it cannot keep up with is told as a gap.
        """
        where: Mapping[str, Any] = (
            {"cursor": cursor} if tail_lines is None else {"tail_lines": tail_lines}
        )
        return Follow(self.output, {**where, "limit_bytes": limit_bytes, **params})

    async def wait(self, *, timeout: Optional[float] = None, require_success: bool = False) -> Page:
        """Waits for the end: state, code, and no output to speak of.

        Raises ``asyncio.TimeoutError`` when it still runs after ``timeout`` seconds. With
        ``require_success`` an end that is no success raises its error, such as
        :class:`LostOnRestore`; a code that is not zero is a result like any other.
        """
        page = await self.output(cursor=-1, limit_bytes=1, wait="exit", timeout=timeout)
        if not page.has_ended:
            raise asyncio.TimeoutError
        if require_success:
            page.require_success()
        return page

    async def wait_for(
        self, pattern: str, *, cursor: int = 0, timeout: Optional[float] = None
    ) -> Excerpt:
        """Waits until the output from ``cursor`` on matches: where and what.

        Raises :class:`NoMatch` when it ends, or the time is over, without.
        """
        wait = {"until": {"match": pattern}}
        page = await self.output(cursor=cursor, limit_bytes=1, wait=wait, timeout=timeout)
        if page.match is None:
            raise NoMatch(page, page.woke_by or "")
        return page.match

    async def write(self, data: Union[str, bytes], *, eof: bool = False, **params: Any) -> Input:
        """Writes to its stdin, whole or not at all; 1 MiB at most.

        When the connection is lost under it, nobody can tell whether it arrived: that raises
        :class:`Disconnected` with ``maybe_done``, and nothing is sent twice. With ``eof``, which
        ends stdin behind the data, it is sent again, since a pipe takes it once only.
        """
        call: Dict[str, Any] = {**params}
        if isinstance(data, str):
            call["data"] = data
        else:
            call["data_base64"] = base64.b64encode(data).decode()
        if not eof:
            return await self.input(**call)
        return await self._last_input({**call, "eof": True})

    async def keys(self, *names: str, **params: Any) -> Input:
        """Types keys into its terminal, such as ``enter``, ``up`` or ``ctrl-c``."""
        return await self.input(keys=list(names), **params)

    async def eof(self) -> Input:
        """Ends its stdin, behind what waits to be written. May be repeated."""
        return await self.input(repeats=True, eof=True)

    async def resize(self, rows: int, cols: int) -> Input:
        """The new size of its terminal."""
        return await self.input(repeats=True, rows=rows, cols=cols)

    async def input(self, *, repeats: bool = False, **params: Any) -> Input:
        """Any parameters of ``process/input``, by their names there."""
        call = {"process_id": self._id, **params}
        return read(Input, await self._link.call("process/input", call, repeats=repeats))

    async def _last_input(self, params: Mapping[str, Any]) -> Input:
        is_again = False
        call = {"process_id": self._id, **params}

        async def send(connection: Connection) -> Optional[Input]:
            nonlocal is_again
            try:
                return read(Input, await connection.call("process/input", call))
            except Disconnected:
                is_again = True
                raise
            except StdinClosed:
                if not is_again:
                    raise
                return None

        taken = await self._link.repeated(send)
        if taken is not None:
            return taken
        # The first attempt had arrived: its stdin is ended. Nothing but that is known of it.
        page = await self.output(limit_bytes=1)
        if page.has_ended:
            raise Disconnected("the process has ended meanwhile", maybe_done=True)
        return read(Input, dict(page.raw))

    async def signal(self, signal: Union[str, int], target: str = "leader") -> int:
        """Delivers one signal, which is no request to end: how many processes got it."""
        call = {"process_id": self._id, "signal": signal, "target": target}
        result = await self._link.call("process/signal", call, repeats=False)
        return int(result["delivered"])

    async def interrupt(self, *, grace: Optional[float] = None) -> Stopped:
        """SIGINT to the tree. Answered at the end."""
        return await self._stop("interrupt", grace)

    async def stop(self, *, grace: Optional[float] = None) -> Stopped:
        """SIGTERM to the tree, SIGKILL when the grace is over. Answered when the tree is gone."""
        return await self._stop("terminate", grace)

    async def kill(self) -> Stopped:
        """SIGKILL to the tree. Answered when it is gone."""
        return await self._stop("kill", None)

    async def _stop(self, mode: str, grace: Optional[float]) -> Stopped:
        call: Dict[str, Any] = {"process_id": self._id, "mode": mode}
        if grace is not None:
            call["grace_ms"] = millis(grace)
        return read(Stopped, await self._link.call("process/stop", call))

    def export(self, from_cursor: int = 0, **params: Any) -> Export:
        """All that is kept, as raw bytes: an async iterator of chunks, or ``read()``."""
        return Export(self._link, {"process_id": self._id, **params}, from_cursor)

    async def search(self, pattern: str, **params: Any) -> Search:
        """Lines that match: ``from_cursor`` and ``limit`` say where and how many."""
        call = {"process_id": self._id, "pattern": pattern, **params}
        return read(Search, await self._link.call("process/search", call))

    async def inspect(self) -> Inspection:
        """Its record, and what its tree uses now."""
        call = {"process_id": self._id}
        return read(Inspection, await self._link.call("process/inspect", call))

    async def pin(self, pinned: bool = True) -> None:
        """Exempts its record and output from retention, or gives them back to it."""
        await self._link.call("process/pin", {"process_id": self._id, "pinned": pinned})

    async def remove(self) -> None:
        """Removes its record and output, which have to be those of an ended process."""
        is_again = False

        async def send(connection: Connection) -> None:
            nonlocal is_again
            try:
                await connection.call("process/remove", {"process_id": self._id})
            except Disconnected:
                is_again = True
                raise
            except NotFound:
                if not is_again:
                    raise

        await self._link.repeated(send)


def _page(result: Any, params: Mapping[str, Any]) -> Page:
    entries = result.get("results") if isinstance(result, dict) else None
    if not entries:
        raise Nonsense("no entry for the process asked for")
    entry = entries[0]
    if isinstance(entry, dict):
        entry = {**entry, "woke_by": result.get("woke_by")}
    return read_entry(entry, params.get("encoding") == "base64")
