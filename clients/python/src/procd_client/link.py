"""A connection in its role that comes back by itself: a dropped one is made anew and attached
again, and what may be repeated is repeated."""

from __future__ import annotations

import asyncio
from typing import Any, Awaitable, Callable, Generator, Generic, Mapping, Optional, Tuple, TypeVar

from .connection import Connection
from .errors import Disconnected, NoDaemon, ProcdError

T = TypeVar("T")

REPEATS_MAX = 16
"""How often one call is repeated on connections that drop under it."""
PAUSE_FIRST_SECONDS = 0.01
PAUSE_LAST_SECONDS = 0.5

Role = Tuple[str, Mapping[str, Any]]
"""The method that gives a connection its role, and its parameters."""


class Opening(Generic[T]):
    """Something to ``await``, or to enter with ``async with``."""

    def __init__(self, make: Callable[[], Awaitable[T]], leave: Callable[[T], Awaitable[None]]):
        self._make = make
        self._leave = leave
        self._made: Optional[T] = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._make().__await__()

    async def __aenter__(self) -> T:
        self._made = await self._make()
        return self._made

    async def __aexit__(self, *_: object) -> None:
        if self._made is not None:
            await self._leave(self._made)


class Link:
    """See the module. Made over a connection that has said hello."""

    def __init__(
        self,
        connection: Connection,
        again: Callable[[], Awaitable[Connection]],
        window: float,
    ) -> None:
        self._current = connection
        self._again = again
        self._window = window
        self._role: Optional[Role] = None
        self._lock = asyncio.Lock()
        self._is_shut = False

    @property
    def has_role(self) -> bool:
        """Whether the role is given, which is for life."""
        return self._role is not None

    def take_role(self, role: Role) -> None:
        """What every new connection is attached with from now on."""
        self._role = role

    def drop(self) -> None:
        """Hangs up, as an accident would: the next call comes back by itself."""
        self._current.close("dropped by this client")

    def shut(self) -> None:
        """Hangs up for good."""
        self._is_shut = True
        self._current.close()

    async def connection(self) -> Connection:
        """The connection, made anew when it is gone. Of several callers one makes it."""
        async with self._lock:
            if self._is_shut:
                raise Disconnected("closed by this client")
            if self._current.is_closed:
                self._current = await self._reconnected()
            return self._current

    async def _reconnected(self) -> Connection:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._window
        pause = PAUSE_FIRST_SECONDS
        while True:
            try:
                connection = await self._again()
                try:
                    if self._role is not None:
                        await connection.call(*self._role)
                except BaseException:
                    connection.close()
                    raise
                return connection
            except (NoDaemon, Disconnected):
                # A daemon that is being restarted has no socket for a moment.
                if loop.time() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_LAST_SECONDS)

    async def call(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        repeats: bool = True,
        cancels: bool = False,
    ) -> Any:
        """Calls a method: its result as it came.

        With ``repeats`` the call changes nothing, or the same thing: it is made again when the
        connection was lost under it.
        """
        return await self.repeated(
            lambda connection: connection.call(method, params, cancels=cancels), repeats=repeats
        )

    async def repeated(
        self, call: Callable[[Connection], Awaitable[T]], *, repeats: bool = True
    ) -> T:
        """Makes a call, again when the connection was lost under it."""
        left = REPEATS_MAX
        while True:
            connection = await self.connection()
            try:
                return await call(connection)
            except Disconnected as error:
                left -= 1
                if left == 0 or (error.maybe_done and not repeats):
                    raise

    async def after(self, connection: Connection, error: ProcdError) -> None:
        """Waits for the end of a connection whose daemon said that it shuts down."""
        try:
            await asyncio.wait_for(connection.closed(), self._window)
        except asyncio.TimeoutError:
            raise error from None
