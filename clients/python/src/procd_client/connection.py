"""One connection: concurrent calls by id over one reader.

Frames are a length of four bytes, big-endian, and one JSON object. Whatever the daemon says that is
not known here is ignored.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Dict, Mapping, Optional, Tuple, Union

from .errors import Disconnected, NoDaemon, Nonsense, ProcdError, Unsendable, refusal

FRAME_BYTES_MAX = 8 * 1024 * 1024
REQUESTS_IN_FLIGHT_MAX = 256
NOTICES_QUEUED_MAX = 512
"""Far beyond what the daemon's windows let it send: more is nonsense, and closes."""

Item = Tuple[str, Any]
"""A notice, as its method and parameters; a reply, as an empty text and its result."""


class Connection:
    """A connection to the daemon. Ended once, by whoever ends it, with one error for all."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._next_id = 1
        self._pending: Dict[int, Union[asyncio.Future[Any], Stream, None]] = {}
        self._free = asyncio.Semaphore(REQUESTS_IN_FLIGHT_MAX)
        self._draining = asyncio.Lock()
        self._error: Optional[ProcdError] = None
        self._ended = asyncio.Event()
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def open(cls, path: str) -> Connection:
        """Connects, and says nothing yet."""
        try:
            reader, writer = await asyncio.open_unix_connection(path)
        except OSError as error:
            raise NoDaemon(path, error) from error
        return cls(reader, writer)

    @property
    def is_closed(self) -> bool:
        """Whether the connection is gone."""
        return self._error is not None

    async def closed(self) -> None:
        """Waits until the connection is gone."""
        await self._ended.wait()

    def close(self, why: str = "closed by this client") -> None:
        """Ends the connection. Everything that waits for an answer is told so."""
        self._end(Disconnected(why, maybe_done=True))

    async def call(self, method: str, params: Mapping[str, Any], *, cancels: bool = False) -> Any:
        """Calls a method: its result as it came.

        With ``cancels`` a cancelled wait for the answer sends ``$/cancel``; otherwise the request
        goes on and its answer is thrown away.
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        number = await self._send(method, params, answer)
        try:
            return await answer
        except asyncio.CancelledError:
            if number in self._pending:
                self._pending[number] = None
                if cancels:
                    self.notify("$/cancel", {"for": number})
            raise

    async def stream(
        self, method: str, params: Mapping[str, Any], *, is_subscription: bool = False
    ) -> Stream:
        """Sends a request whose notices are wanted, too. The id of a subscription stays taken."""
        stream = Stream(self, is_subscription)
        stream.number = await self._send(method, params, stream)
        return stream

    async def post(self, method: str, params: Mapping[str, Any]) -> None:
        """Sends a request whose answer nobody waits for."""
        await self._send(method, params, None)

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Sends a notice. It is small, and waits for nobody."""
        if not self.is_closed:
            self._writer.write(_frame({"method": method, "params": params}))

    async def _send(
        self,
        method: str,
        params: Mapping[str, Any],
        waiter: Union[asyncio.Future[Any], Stream, None],
    ) -> int:
        await self._free.acquire()
        number = self._next_id
        self._next_id += 1
        try:
            frame = _frame({"id": number, "method": method, "params": params})
            if self._error is not None:
                raise Disconnected(str(self._error), maybe_done=False)
        except BaseException:
            self._free.release()
            raise
        self._pending[number] = waiter
        # From here on it is sent: a frame is handed over whole.
        self._writer.write(frame)
        try:
            async with self._draining:
                await self._writer.drain()
        except asyncio.CancelledError:
            self._pending[number] = None
            self.notify("$/cancel", {"for": number})
            raise
        except OSError as error:
            self._end(Disconnected(str(error), maybe_done=True))
        return number

    async def _read(self) -> None:
        error: ProcdError = Disconnected("the daemon has closed it", maybe_done=True)
        try:
            while True:
                length = int.from_bytes(await self._reader.readexactly(4), "big")
                if not 1 <= length <= FRAME_BYTES_MAX:
                    raise Nonsense(f"a frame of {length} bytes")
                self._take(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            pass
        except ProcdError as refused:
            error = refused
        except ValueError as bad:
            error = Nonsense(f"no json: {bad}")
        finally:
            self._end(error)

    def _take(self, frame: bytes) -> None:
        message = json.loads(frame)
        if not isinstance(message, dict):
            raise Nonsense("a frame that is no object")
        if "method" in message:
            params = message.get("params")
            owner = params.get("for") if isinstance(params, dict) else None
            stream = self._pending.get(owner) if isinstance(owner, int) else None
            if isinstance(stream, Stream):
                stream.put((str(message["method"]), params))
            return
        number = message.get("id")
        if number is None and "error" in message:
            # Not about a request that could be told: the daemon is about to hang up.
            raise refusal(message["error"])
        if not isinstance(number, int) or number not in self._pending:
            return
        if "error" in message:
            self._settle(number, refusal(message["error"]))
        else:
            self._settle(number, message.get("result"))

    def _settle(self, number: int, outcome: Any) -> None:
        waiter = self._pending[number]
        if isinstance(waiter, Stream):
            waiter.put(outcome if isinstance(outcome, ProcdError) else ("", outcome))
            if waiter.is_subscription and not isinstance(outcome, ProcdError):
                return
        elif waiter is not None and not waiter.done():
            if isinstance(outcome, ProcdError):
                waiter.set_exception(outcome)
            else:
                waiter.set_result(outcome)
        self.forget(number)

    def forget(self, number: int) -> None:
        """Frees the id of a request that has ended."""
        if self._pending.pop(number, self) is not self:
            self._free.release()

    def _end(self, error: ProcdError) -> None:
        if self._error is not None:
            return
        self._error = error
        self._reading.cancel()
        self._writer.close()
        for number in list(self._pending):
            waiter = self._pending[number]
            if isinstance(waiter, Stream):
                waiter.put(error)
            elif waiter is not None and not waiter.done():
                waiter.set_exception(error)
            self.forget(number)
        self._ended.set()


class Stream:
    """A request with notices. The daemon's windows bound what waits here."""

    def __init__(self, connection: Connection, is_subscription: bool) -> None:
        self.connection = connection
        self.number = 0
        self.is_subscription = is_subscription
        self._items: asyncio.Queue[Union[Item, ProcdError]] = asyncio.Queue()

    def put(self, item: Union[Item, ProcdError]) -> None:
        """Keeps what came."""
        if self._items.qsize() >= NOTICES_QUEUED_MAX and not isinstance(item, ProcdError):
            raise Nonsense("more notices than were asked for")
        self._items.put_nowait(item)

    @property
    def is_empty(self) -> bool:
        """Whether nothing has come that was not taken."""
        return self._items.empty()

    async def next(self) -> Item:
        """What came next.

        Raises the refusal of the request, or what ended the connection.
        """
        item = await self._items.get()
        if isinstance(item, ProcdError):
            self.put(item)
            raise item
        return item


def _frame(message: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        payload = text.encode()
    except (TypeError, ValueError) as error:
        raise Unsendable(f"the request cannot be written: {error}") from error
    if len(payload) > FRAME_BYTES_MAX:
        raise Unsendable(f"a request of {len(payload)} bytes, over the {FRAME_BYTES_MAX} allowed")
    return len(payload).to_bytes(4, "big") + payload
