"""The same for programs without an event loop: each call blocks until it is answered.

    from procd_client.sync import Session

    with Session.open(private_daemon=True) as session:
        process = session.start(["make", "test"], background=True)
        for page in process.follow():
            print(page.output, end="")

An event loop of its own thread does the work; objects of one session may be used by any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any, Awaitable, Callable, Iterator, List, Optional, Tuple, TypeVar, Union

from . import client as clients
from . import process as processes
from . import session as sessions
from .errors import ProcdError
from .session import Credentials
from .types import Closed, Excerpt, Input, Notification, Page, Record, Started, Stopped

T = TypeVar("T")


class _Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="procd-client", daemon=True
        )
        self._thread.start()

    def run(self, make: Callable[[], Awaitable[T]]) -> T:
        """Waits for what ``make`` makes. An interrupt of the waiting thread cancels it."""

        async def work() -> T:
            return await make()

        future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Ends the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Session:
    """A session. Leaving ``with`` hangs up; its processes live on."""

    def __init__(self, loop: _Loop, session: sessions.Session) -> None:
        self._loop = loop
        self._session = session
        self._notifications = session.notifications()

    @classmethod
    def open(cls, socket: Optional[str] = None, **options: Any) -> Session:
        """Connects and makes a session. Options are those of ``Client.connect``."""
        return cls._made(socket, options, lambda client: sessions.Session.open(client))

    @classmethod
    def attach(
        cls, credentials: Credentials, socket: Optional[str] = None, **options: Any
    ) -> Session:
        """Connects and comes back to a session."""
        return cls._made(
            socket, options, lambda client: sessions.Session.attach(client, credentials)
        )

    @classmethod
    def _made(
        cls,
        socket: Optional[str],
        options: Any,
        make: Callable[[clients.Client], Awaitable[sessions.Session]],
    ) -> Session:
        loop = _Loop()

        async def connected() -> sessions.Session:
            client = await clients.Client.connect(socket, **options)
            try:
                return await make(client)
            except BaseException:
                await client.close()
                raise

        try:
            return cls(loop, loop.run(connected))
        except BaseException:
            loop.stop()
            raise

    @property
    def credentials(self) -> Credentials:
        """What it takes to come back. Holds a secret."""
        return self._session.credentials

    def start(self, command: Union[str, List[str]], **params: Any) -> Process:
        """Starts a program with its arguments, or a text for a shell."""
        is_text = isinstance(command, str)
        made = self._session.shell("") if is_text else self._session.command("")
        whole = made.params(**{"command" if is_text else "argv": command}, **params)
        return Process(self._loop, self._loop.run(whole.start))

    def process(self, process_id: str) -> Process:
        """A process by its handle."""
        return Process(self._loop, self._session.process(process_id))

    def records(self, **params: Any) -> List[Record]:
        """The records of all pages, newest first."""

        async def all_pages() -> List[Record]:
            return [record async for record in self._session.records(**params)]

        return self._loop.run(all_pages)

    def notifications(self) -> Iterator[Notification]:
        """The completion of every process of this loop, each once.

        Each is accepted when the next one is asked for, or the session is left.
        """
        while True:
            yield self._loop.run(self._notifications.next)

    def close(self, *, purge: bool = False, grace: Optional[float] = None) -> Closed:
        """Ends the session and every process in it."""
        return self._loop.run(lambda: self._session.close(purge=purge, grace=grace))

    def disconnect(self) -> None:
        """Hangs up. The session and its processes live on."""
        try:
            with contextlib.suppress(ProcdError):
                self._loop.run(self._notifications.aclose)
            self._loop.run(self._session.disconnect)
        finally:
            self._loop.stop()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()


class Process:
    """A process of the daemon."""

    def __init__(self, loop: _Loop, process: processes.Process) -> None:
        self._loop = loop
        self._process = process

    @property
    def id(self) -> str:
        """The handle."""
        return self._process.id

    @property
    def reply(self) -> Started:
        """The reply to its start."""
        return self._process.reply

    def output(self, **params: Any) -> Page:
        """One page, or a wait for one."""
        return self._loop.run(lambda: self._process.output(**params))

    def follow(self, cursor: int = 0, **params: Any) -> Iterator[Page]:
        """The output from ``cursor`` on, as it comes, through the end."""
        follow = self._process.follow(cursor, **params)
        while True:
            try:
                page = self._loop.run(follow.__anext__)
            except StopAsyncIteration:
                return
            yield page

    def wait(self, **options: Any) -> Page:
        """Waits for the end."""
        return self._loop.run(lambda: self._process.wait(**options))

    def wait_for(self, pattern: str, **options: Any) -> Excerpt:
        """Waits until the output matches."""
        return self._loop.run(lambda: self._process.wait_for(pattern, **options))

    def write(self, data: Union[str, bytes], **params: Any) -> Input:
        """Writes to its stdin."""
        return self._loop.run(lambda: self._process.write(data, **params))

    def keys(self, *names: str) -> Input:
        """Types keys into its terminal."""
        return self._loop.run(lambda: self._process.keys(*names))

    def eof(self) -> Input:
        """Ends its stdin."""
        return self._loop.run(self._process.eof)

    def interrupt(self, **options: Any) -> Stopped:
        """SIGINT to the tree."""
        return self._loop.run(lambda: self._process.interrupt(**options))

    def stop(self, **options: Any) -> Stopped:
        """SIGTERM to the tree, SIGKILL when the grace is over."""
        return self._loop.run(lambda: self._process.stop(**options))

    def kill(self) -> Stopped:
        """SIGKILL to the tree."""
        return self._loop.run(self._process.kill)

    def export(self, from_cursor: int = 0) -> Tuple[bytes, str]:
        """All that is kept, and its SHA-256."""
        export = self._process.export(from_cursor)
        data = self._loop.run(export.read)
        return data, export.result.sha256 if export.result else ""
