"""The owner's side: a session and its processes. And the operator's, who looks at everything."""

from __future__ import annotations

import secrets
import uuid
from dataclasses import asdict, dataclass, field
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional

from .client import Client
from .command import Command, millis
from .connection import Connection
from .errors import InvalidArguments, LeaseLost, Nonsense, NotFound, ProcdError
from .link import Link, Opening
from .process import Process
from .subscriptions import Events, Notifications, Seen
from .types import Closed, Listing, Record, SessionInfo, Stopped, read


@dataclass(frozen=True)
class Credentials:
    """What it takes to come back to a session. Holds a secret."""

    session_id: str
    loop_id: str
    session_key: str = field(repr=False)

    @classmethod
    def random(cls) -> Credentials:
        """New ones. Brought along, so that a lost reply orphans nothing."""
        return cls(str(uuid.uuid4()), str(uuid.uuid4()), secrets.token_urlsafe(32))

    def to_dict(self) -> Dict[str, str]:
        """As an object to keep, as secret as a password."""
        return asdict(self)

    @classmethod
    def from_dict(cls, kept: Mapping[str, str]) -> Credentials:
        """From what :meth:`to_dict` gave."""
        return cls(kept["session_id"], kept["loop_id"], kept["session_key"])


class Session:
    """A session, as one of its loops. Its processes live on when it is let go of.

    Leaving ``async with`` hangs up; :meth:`close` ends the session and its processes.
    """

    def __init__(self, link: Link, credentials: Credentials, info: SessionInfo) -> None:
        self._link = link
        self._credentials = credentials
        self._info = info
        self._seen = Seen()

    @staticmethod
    def open(
        client: Client,
        *,
        credentials: Optional[Credentials] = None,
        idle_close: Optional[float] = None,
        **params: Any,
    ) -> Opening[Session]:
        """Makes a session. ``params`` are those of ``session/open``, by their names there.

        - ``credentials``: ids and key to use; without them random ones.
        - ``idle_close``: the session closes by itself when nobody was attached for so many seconds.
        """
        mine = credentials or Credentials.random()
        asked = {**mine.to_dict(), **params}
        if idle_close is not None:
            asked["idle_close_ms"] = millis(idle_close)

        async def make() -> Session:
            link = _without_role(client)
            is_again = False

            async def send(connection: Connection) -> SessionInfo:
                nonlocal is_again
                try:
                    return await opened(connection)
                finally:
                    is_again = True

            async def opened(connection: Connection) -> SessionInfo:
                if is_again:
                    # The first attempt may have arrived: then there is one already.
                    try:
                        call = connection.call("session/attach", mine.to_dict())
                        return read(SessionInfo, await call)
                    except NotFound:
                        pass
                try:
                    return read(SessionInfo, await connection.call("session/open", asked))
                except InvalidArguments as error:
                    if not is_again or error.details.get("field") != "session_id":
                        raise
                    call = connection.call("session/attach", mine.to_dict())
                    return read(SessionInfo, await call)

            info = await link.repeated(send)
            link.take_role(("session/attach", mine.to_dict()))
            return Session(link, mine, info)

        return Opening(make, Session.disconnect)

    @staticmethod
    def attach(client: Client, credentials: Credentials) -> Opening[Session]:
        """Comes back to a session. ``NotFound`` for an unknown one and a wrong key alike."""

        async def make() -> Session:
            link = _without_role(client)
            info = await link.call("session/attach", credentials.to_dict())
            link.take_role(("session/attach", credentials.to_dict()))
            return Session(link, credentials, read(SessionInfo, info))

        return Opening(make, Session.disconnect)

    @property
    def credentials(self) -> Credentials:
        """What it takes to come back. Holds a secret."""
        return self._credentials

    @property
    def info(self) -> SessionInfo:
        """What the daemon said when it was opened or attached."""
        return self._info

    def command(self, program: str) -> Command:
        """A program to start, without a shell."""
        return Command(self._link, {"argv": [program]})

    def shell(self, text: str) -> Command:
        """A text for a shell to start."""
        return Command(self._link, {"command": text})

    def process(self, process_id: str) -> Process:
        """A process by its handle. Whether there is one shows with the first call."""
        return Process(self._link, process_id)

    async def list(self, **params: Any) -> Listing:
        """One page of records, newest first."""
        return read(Listing, await self._link.call("process/list", params))

    def records(self, **params: Any) -> AsyncIterator[Record]:
        """The records of all pages, newest first."""
        return _records(self._link, params)

    def events(
        self,
        from_seq: Optional[int] = None,
        *,
        kinds: Optional[List[str]] = None,
        scope: Optional[str] = None,
    ) -> Events:
        """Events from that number on, then live; without one, live only."""
        params = {"from_seq": from_seq, "kinds": kinds, "scope": scope}
        return Events(self._link, {name: v for name, v in params.items() if v is not None})

    def notifications(self) -> Notifications:
        """The completion of every process of this loop, each once."""
        return Notifications(self._link, self._seen)

    def lease(
        self,
        root: str,
        kind: str = "structured_write",
        *,
        paths: Optional[List[str]] = None,
        timeout: float = 0,
    ) -> Lease:
        """A claim on a workspace for one's own work, to be entered with ``async with``."""
        params: Dict[str, Any] = {"root": root, "kind": kind, "timeout_ms": millis(timeout)}
        if paths is not None:
            params["paths"] = paths
        return Lease(self._link, params)

    async def stop_all(self, **params: Any) -> List[Stopped]:
        """Stops all that runs in this loop, or with ``scope="session"`` in the session."""
        result = await self._link.call("session/stop_all", params)
        return [read(Stopped, item) for item in result["results"]]

    async def status(self) -> Dict[str, Any]:
        """What the daemon says of itself and of this session."""
        found: Dict[str, Any] = await self._link.call("daemon/status", {})
        return found

    async def call(self, method: str, params: Optional[Mapping[str, Any]] = None) -> Any:
        """Calls any method with any parameters, once: the result as it came."""
        return await self._link.call(method, params or {}, repeats=False, cancels=True)

    async def close(self, *, purge: bool = False, grace: Optional[float] = None) -> Closed:
        """Ends the session and every process in it. Its data stay readable, but for ``purge``."""
        params: Dict[str, Any] = {"scope": "session", "purge": purge}
        if grace is not None:
            params["grace_ms"] = millis(grace)
        return read(Closed, await self._link.call("session/close", params))

    async def disconnect(self) -> None:
        """Hangs up for good. The session and its processes live on."""
        self._link.shut()

    def drop(self) -> None:
        """Loses the connection, as an accident would: the next call comes back by itself."""
        self._link.drop()


class Lease:
    """A claim on a workspace. It ends with the block, and with the connection."""

    def __init__(self, link: Link, params: Mapping[str, Any]) -> None:
        self._link = link
        self._params = params
        self._id: Optional[str] = None
        self._connection: Optional[Connection] = None

    @property
    def is_lost(self) -> bool:
        """Whether the connection is gone, and the claim with it."""
        return self._connection is not None and self._connection.is_closed

    async def lost(self) -> None:
        """Waits until the claim is lost."""
        if self._connection is not None:
            await self._connection.closed()

    def check(self) -> None:
        """Raises :class:`LeaseLost` when somebody else may have it by now."""
        if self.is_lost:
            raise LeaseLost("the connection that held the lease is gone")

    async def __aenter__(self) -> Lease:
        async def acquire(connection: Connection) -> None:
            result = await connection.call("lease/acquire", self._params, cancels=True)
            self._id, self._connection = str(result["lease_id"]), connection

        await self._link.repeated(acquire)
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            self.check()
            await connection.call("lease/release", {"lease_id": self._id})
        except ProcdError as error:
            # What the block raised comes first.
            if kind is None:
                raise LeaseLost("the lease was lost before its release") from error


class Operator:
    """The operator, who looks at everything and owns nothing."""

    def __init__(self, link: Link, attached: Mapping[str, Any]) -> None:
        self._link = link
        self.attached = attached

    @staticmethod
    def attach(client: Client, reason: Optional[str] = None) -> Opening[Operator]:
        """Becomes the operator. ``reason`` is logged with every look at somebody's output."""
        params = {} if reason is None else {"reason": reason}

        async def make() -> Operator:
            link = _without_role(client)
            attached = await link.call("operator/attach", params)
            link.take_role(("operator/attach", params))
            return Operator(link, attached)

        async def leave(operator: Operator) -> None:
            operator._link.shut()

        return Opening(make, leave)

    def process(self, process_id: str) -> Process:
        """A process of any session."""
        return Process(self._link, process_id)

    def records(self, **params: Any) -> AsyncIterator[Record]:
        """The records of all sessions, or of the ``session_id`` given, newest first."""
        return _records(self._link, params)

    async def call(self, method: str, params: Optional[Mapping[str, Any]] = None) -> Any:
        """Calls any method with any parameters, once: the result as it came."""
        return await self._link.call(method, params or {}, repeats=False, cancels=True)


def _without_role(client: Client) -> Link:
    if client.link.has_role:
        raise Nonsense("this client has a role already: connect another one")
    return client.link


async def _records(link: Link, params: Mapping[str, Any]) -> AsyncIterator[Record]:
    asked = dict(params)
    while True:
        page = read(Listing, await link.call("process/list", asked))
        for record in page.records:
            yield record
        if page.next is None:
            return
        asked["after"] = page.next
