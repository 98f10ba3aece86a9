"""Following the output of a process, by cursor."""

from __future__ import annotations

from typing import Any, Awaitable, Callable, Mapping

from .types import Page


class Follow:
    """Pages of output as they come, through the end. Nothing is polled: a page is waited for.

    What was not returned is read again, so that a cancelled :meth:`__anext__` loses nothing.
    """

    def __init__(self, output: Callable[..., Awaitable[Page]], params: Mapping[str, Any]) -> None:
        self._output = output
        self._params = {"wait": "any", **params}
        self._has_ended = False

    @property
    def cursor(self) -> int:
        """Where it goes on; of a tail, or of a negative cursor, known after the first page."""
        return int(self._params.get("cursor", 0))

    def __aiter__(self) -> Follow:
        return self

    async def __anext__(self) -> Page:
        if self._has_ended:
            raise StopAsyncIteration
        page = await self._output(**self._params)
        # With nothing more to come from a process that has ended, that was the last page.
        is_idle = self._params.get("cursor") == page.next_cursor and not page.more
        self._params.pop("tail_lines", None)
        self._params["cursor"] = page.next_cursor
        self._has_ended = page.eof or (is_idle and page.has_ended)
        return page
