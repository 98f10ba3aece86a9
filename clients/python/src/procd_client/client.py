"""Finding the daemon, starting a private one when asked to, and the handshake."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from . import launch, places
from .connection import Connection
from .errors import Disconnected, NoDaemon, ProcdError
from .link import Link, Opening
from .types import Hello, read

VERSION = "0.1.0"
PROTOCOL_VERSIONS = [1]
FEATURES = ["notifications"]
RECONNECT_SECONDS = 10.0


class Client:
    """A connection that has said hello and has no role yet.

    It gets one for life by :meth:`Session.open`, :meth:`Session.attach` or
    :meth:`Operator.attach`.
    """

    def __init__(self, link: Link, hello: Hello) -> None:
        self._link = link
        self._hello = hello

    @staticmethod
    def connect(
        socket: Optional[str] = None,
        *,
        private_daemon: bool = False,
        daemon: Optional[str] = None,
        name: str = "procd-client-python",
        version: str = VERSION,
        reconnect: float = RECONNECT_SECONDS,
    ) -> Opening[Client]:
        """Connects to the daemon of this user and says hello.

        - ``socket``: in place of the one that the environment names.
        - ``private_daemon``: starts one when none answers; ``daemon`` is its executable, in place
          of ``$PROCD_DAEMON`` and the one on PATH.
        - ``reconnect``: seconds for which a lost connection is tried again.
        """

        async def make() -> Client:
            path = places.socket_path() if socket is None else places.checked(socket)
            greeting = {"client": {"name": name, "version": version}}
            try:
                connection, hello = await _greeted(path, greeting)
            except (NoDaemon, Disconnected):
                if not private_daemon:
                    raise
                connection, hello = await _launched(path, greeting, daemon)

            async def again() -> Connection:
                return (await _greeted(path, greeting))[0]

            return Client(Link(connection, again, reconnect), hello)

        return Opening(make, Client.close)

    @property
    def hello(self) -> Hello:
        """What the daemon said of itself."""
        return self._hello

    @property
    def link(self) -> Link:
        """The connection, as it comes back by itself."""
        return self._link

    async def call(self, method: str, params: Optional[Mapping[str, Any]] = None) -> Any:
        """Calls any method with any parameters: the result as it came.

        It is not repeated when the connection is lost under it.
        """
        return await self._link.call(method, params or {}, repeats=False, cancels=True)

    async def status(self) -> Dict[str, Any]:
        """What the daemon says of itself to a connection of this role."""
        found: Dict[str, Any] = await self._link.call("daemon/status", {})
        return found

    async def close(self) -> None:
        """Hangs up. Processes do not depend on it."""
        self._link.shut()


async def _greeted(path: str, greeting: Mapping[str, Any]) -> tuple[Connection, Hello]:
    """A connection that has said hello. One that is lost meanwhile is tried once more."""
    params = {**greeting, "versions": PROTOCOL_VERSIONS, "features": FEATURES}
    for left in (2, 1, 0):
        connection = await Connection.open(path)
        try:
            return connection, read(Hello, await connection.call("hello", params))
        except Disconnected:
            if left == 0:
                raise
        except BaseException:
            connection.close()
            raise
    raise AssertionError


async def _launched(
    path: str, greeting: Mapping[str, Any], daemon: Optional[str]
) -> tuple[Connection, Hello]:
    """Starts a private daemon. Of several that start at once one wins, and all use it."""
    refused: Optional[ProcdError] = None
    try:
        await launch.private_daemon(daemon, path)
    except ProcdError as error:
        refused = error
    try:
        return await _greeted(path, greeting)
    except NoDaemon:
        raise refused or NoDaemon(path, "it was started and is gone") from None
