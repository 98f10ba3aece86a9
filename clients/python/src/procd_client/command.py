"""A command that is put together and then started."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Dict, Iterable, Mapping, Optional

from .link import Link
from .types import Started, read

if TYPE_CHECKING:
    from .process import Process


def millis(seconds: float) -> int:
    """As whole milliseconds."""
    return max(0, round(seconds * 1000))


class Command:
    """A command to start. Each call gives another one; nothing runs before :meth:`start`.

    What is not said is as the daemon has it: wait for the end, no deadline, stdin from /dev/null.
    """

    def __init__(self, link: Link, params: Mapping[str, Any]) -> None:
        self._link = link
        self._params = params

    def params(self, **params: Any) -> Command:
        """Any parameters of ``process/start``, by their names there."""
        return Command(self._link, {**self._params, **params})

    def arg(self, word: str) -> Command:
        """One argument more. A shell's text takes none."""
        return self.args([word])

    def args(self, words: Iterable[str]) -> Command:
        """More arguments."""
        return self.params(argv=[*self._params.get("argv", []), *words])

    def cwd(self, folder: str) -> Command:
        """The working folder."""
        return self.params(cwd=folder)

    def env(self, name: str, value: Optional[str]) -> Command:
        """Sets a variable; ``None`` removes it."""
        return self.params(env={**self._params.get("env", {}), name: value})

    def stdin(self, kind: str) -> Command:
        """Where stdin comes from: ``pipe`` or ``null``."""
        return self.params(stdin=kind)

    def tty(self, rows: int = 24, cols: int = 80) -> Command:
        """A pseudo-terminal in place of pipes."""
        return self.params(tty=True, rows=rows, cols=cols)

    def merge_streams(self) -> Command:
        """One pipe for stdout and stderr: their order is exact."""
        return self.params(merge_streams=True)

    def background(self) -> Command:
        """Answered as soon as it runs."""
        return self.params(background=True)

    def yield_time(self, seconds: float) -> Command:
        """Answered after so long at the latest; it runs on."""
        return self.params(yield_time_ms=millis(seconds))

    def timeout(self, seconds: float) -> Command:
        """The deadline of the process, from its spawn."""
        return self.params(timeout_ms=millis(seconds))

    def queue_timeout(self, seconds: float) -> Command:
        """How long it may wait for slots, bytes and workspace."""
        return self.params(queue_timeout_ms=millis(seconds))

    def label(self, text: str) -> Command:
        """What it is called, at most 128 characters: finds it again."""
        return self.params(label=text)

    def request_key(self, key: str) -> Command:
        """The key under which the start is the same start; without one it gets a random one."""
        return self.params(request_key=key)

    def workspace(self, root: str, access: str, paths: Optional[Iterable[str]] = None) -> Command:
        """Claims a workspace: ``read_only``, ``scoped_write`` (of ``paths``), ``broad_write``."""
        claim: Dict[str, Any] = {"root": root, "access": access}
        if paths is not None:
            claim["paths"] = list(paths)
        return self.params(workspace=claim)

    async def start(self) -> Process:
        """Starts it.

        A start whose connection is lost is made again under its key, so that there is one process.
        Cancelling this before it is answered stops the process; nothing else of a client does.
        """
        from .process import Process

        params = {"request_key": str(uuid.uuid4()), **self._params}
        reply = read(Started, await self._link.call("process/start", params, cancels=True))
        return Process(self._link, reply.process_id, reply)

    async def plan(self) -> Dict[str, Any]:
        """What a start would be (``dry_run``); nothing is started."""
        params = {**self._params, "dry_run": True}
        reply = await self._link.call("process/start", params)
        plan: Dict[str, Any] = reply["plan"]
        return plan
