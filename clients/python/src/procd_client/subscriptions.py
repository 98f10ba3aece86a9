"""Events of a session, and completion notifications of a loop."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Dict, Mapping, Optional

from .connection import Connection, Stream
from .errors import Disconnected, ProcdError
from .link import Link
from .types import EventRecord, Notification, read

SEEN_MAX = 4096
"""Ids of notifications that a session remembers."""
UNACKNOWLEDGED_MAX = 16
"""Events that are taken before they are acknowledged together."""


class Seen:
    """A bounded set of ids: the oldest go first."""

    def __init__(self, capacity: int = SEEN_MAX) -> None:
        self._capacity = capacity
        self._ids: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, name: str) -> bool:
        return name in self._ids

    def add(self, name: str) -> None:
        """Remembers an id."""
        self._ids[name] = None
        self._ids.move_to_end(name)
        while len(self._ids) > self._capacity:
            self._ids.popitem(last=False)


class _Subscription:
    """A subscription that comes back by itself."""

    def __init__(self, link: Link, params: Mapping[str, Any]) -> None:
        self._link = link
        self._params: Dict[str, Any] = dict(params)
        self._stream: Optional[Stream] = None

    async def _subscribe(self, connection: Connection) -> Stream:
        stream = await connection.stream("events/subscribe", self._params, is_subscription=True)
        _, result = await stream.next()
        self._begun(result)
        self._stream = stream
        return stream

    def _begun(self, result: Mapping[str, Any]) -> None:
        """The subscription stands."""

    async def _notice(self, method: str) -> Mapping[str, Any]:
        """The parameters of the next notice of this kind."""
        while True:
            stream = self._stream
            if stream is None:
                stream = await self._link.repeated(self._subscribe)
            try:
                kind, params = await stream.next()
            except Disconnected:
                self._stream = None
                continue
            if kind == method and isinstance(params, dict):
                return params

    async def aclose(self) -> None:
        """Ends the subscription."""
        stream, self._stream = self._stream, None
        if stream is None or stream.connection.is_closed:
            return
        try:
            await stream.connection.call("events/unsubscribe", {"for": stream.number})
        except ProcdError:
            return
        stream.connection.forget(stream.number)

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Events(_Subscription):
    """Events, in order, each once: an async iterator, to be entered with ``async with``.

    Over a lost connection it goes on behind the last event that was taken.
    """

    def __init__(self, link: Link, params: Mapping[str, Any]) -> None:
        super().__init__(link, params)
        self._taken: Optional[int] = None
        self._unacknowledged = 0
        self.gap = False
        """Whether an event between the number asked for and the first one kept was dropped."""

    def _begun(self, result: Mapping[str, Any]) -> None:
        self._unacknowledged = 0
        self.gap = self.gap or result.get("gap") is True
        # Live from here on: what comes while the connection is lost is not missed.
        self._params.setdefault("from_seq", int(result.get("last_seq", 0)) + 1)

    async def __aenter__(self) -> Events:
        await self._link.repeated(self._subscribe)
        return self

    def __aiter__(self) -> Events:
        return self

    async def next(self) -> EventRecord:
        """The next event."""
        return await self.__anext__()

    async def __anext__(self) -> EventRecord:
        await self._acknowledge()
        while True:
            record = read(EventRecord, await self._notice("events/record"))
            if self._taken is None or record.seq > self._taken:
                break
        self._taken = record.seq
        self._params["from_seq"] = record.seq + 1
        self._unacknowledged += 1
        return record

    async def _acknowledge(self) -> None:
        stream = self._stream
        if stream is None or self._taken is None or self._unacknowledged == 0:
            return
        if stream.is_empty or self._unacknowledged >= UNACKNOWLEDGED_MAX:
            self._unacknowledged = 0
            params = {"for": stream.number, "up_to_seq": self._taken}
            try:
                await stream.connection.post("events/ack", params)
            except Disconnected:
                return


class Notifications(_Subscription):
    """Completions, each once: an async iterator, to be entered with ``async with``.

    A notification is answered ``accepted`` when the next one is asked for, or the block is left:
    one that was being worked on when the client died is offered again.
    """

    def __init__(self, link: Link, seen: Seen) -> None:
        super().__init__(link, {"notifications": True, "kinds": []})
        self._seen = seen
        self._taken: Optional[str] = None

    async def __aenter__(self) -> Notifications:
        return self

    def __aiter__(self) -> Notifications:
        return self

    async def next(self) -> Notification:
        """The next completion. Accepts the one before."""
        return await self.__anext__()

    async def __anext__(self) -> Notification:
        await self.accept()
        while True:
            offer = await self._notice("notifications/offer")
            found = read(Notification, offer.get("notification"))
            if found.command_id not in self._seen:
                self._seen.add(found.command_id)
                self._taken = found.command_id
                return found
            await self._answer(found.command_id, "duplicate")

    async def accept(self) -> None:
        """Says that the loop took the last one. It is never offered again."""
        if self._taken is not None:
            await self._answer(self._taken, "accepted")
            self._taken = None

    async def _answer(self, command_id: str, disposition: str) -> None:
        params = {"command_id": command_id, "disposition": disposition}
        await self._link.call("notifications/ack", params)

    async def aclose(self) -> None:
        """Accepts the last one and ends the subscription."""
        await self.accept()
        await super().aclose()
