"""What can go wrong, by what the caller can do.

A refusal of the daemon is a :class:`Refused`, of the class that its code names; a code that this
version does not know is a plain :class:`Refused`. Everything else is about the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Dict, Mapping, Optional, Type

if TYPE_CHECKING:
    from .types import Page


__all__ = [
    "Cancelled",
    "CursorAhead",
    "CursorGap",
    "Disconnected",
    "FrameTooLarge",
    "IdempotencyCollision",
    "InputBackpressure",
    "Internal",
    "Interrupted",
    "InvalidArguments",
    "InvalidSettings",
    "Killed",
    "LaunchError",
    "LeaseLost",
    "LifetimeEnforcementUnavailable",
    "LostOnRestore",
    "ManifestCorrupt",
    "NoDaemon",
    "NoMatch",
    "Nonsense",
    "NotFound",
    "OutputQuotaExceeded",
    "PermissionDenied",
    "PlaceError",
    "ProcdError",
    "ProcessNotificationsUnsupported",
    "ProcessQuotaExceeded",
    "ProcessSetupFailed",
    "PtyUnavailable",
    "Refused",
    "SpawnFailed",
    "SpoolCorrupt",
    "StdinClosed",
    "SupervisorShuttingDown",
    "TeardownFailed",
    "Terminated",
    "TimedOut",
    "TooManyRequests",
    "Unsendable",
    "UnsupportedVersion",
    "WorkspaceBusy",
]


class ProcdError(Exception):
    """The base of everything that this package raises by itself."""


class PlaceError(ProcdError):
    """There is no place for the socket."""


class NoDaemon(ProcdError):
    """Nobody listens: start a daemon, or ask for a private one."""

    def __init__(self, path: str, cause: object) -> None:
        super().__init__(f"no daemon answers at `{path}`: {cause}")
        self.path = path


class LaunchError(ProcdError):
    """A private daemon could not be started."""


class Disconnected(ProcdError):
    """The connection is gone.

    ``maybe_done`` says whether what was asked may have been done all the same.
    """

    def __init__(self, message: str, *, maybe_done: bool = False) -> None:
        super().__init__(f"the connection to the daemon is gone: {message}")
        self.maybe_done = maybe_done


class Nonsense(ProcdError):
    """The daemon said something that makes no sense here."""


class Unsendable(ProcdError):
    """The request cannot be sent as it is."""


class LeaseLost(ProcdError):
    """The connection that held a lease is gone, and the lease with it."""


class NoMatch(ProcdError):
    """A wait for a pattern came back without one; ``page`` says how things stand.

    ``woke_by`` is ``exit``, ``timeout`` or ``gap``.
    """

    def __init__(self, page: Page, woke_by: str) -> None:
        super().__init__(f"no match ({woke_by}), the process is {page.state}")
        self.page = page
        self.woke_by = woke_by


class Refused(ProcdError):
    """The daemon refused. Act on ``code`` and ``details``; the message is for a person."""

    CODE: ClassVar[str] = ""

    def __init__(
        self, code: str, message: str, retryable: bool = False, details: Optional[Any] = None
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retryable = retryable
        self.details: Dict[str, Any] = details if isinstance(details, dict) else {}

    @property
    def process_id(self) -> Optional[str]:
        """The process that the refusal is about, where there is one."""
        found = self.details.get("process_id")
        return found if isinstance(found, str) else None


class InvalidArguments(Refused):
    """A parameter is wrong or not supported yet: ``details["field"]``."""

    CODE = "invalid_arguments"


class InvalidSettings(Refused):
    """The daemon's settings are wrong; it goes on with the old ones."""

    CODE = "invalid_settings"


class ProcessQuotaExceeded(Refused):
    """No running slot is free."""

    CODE = "process_quota_exceeded"


class OutputQuotaExceeded(Refused):
    """No room for memory, spool, disk or another wait."""

    CODE = "output_quota_exceeded"


class LifetimeEnforcementUnavailable(Refused):
    """Trees cannot be held together as required."""

    CODE = "lifetime_enforcement_unavailable"


class ProcessNotificationsUnsupported(Refused):
    """Notifications were asked for without the feature."""

    CODE = "process_notifications_unsupported"


class SpawnFailed(Refused):
    """The command could not be started: ``details["cause"]``."""

    CODE = "spawn_failed"


class ProcessSetupFailed(Refused):
    """The daemon could not set the process up: ``details["cause"]``."""

    CODE = "process_setup_failed"


class PtyUnavailable(Refused):
    """No terminal is to be had, or the process has none."""

    CODE = "pty_unavailable"


class NotFound(Refused):
    """Unknown, removed or somebody else's: one answer for all."""

    CODE = "not_found"


class StdinClosed(Refused):
    """The process takes no input any more, or never did."""

    CODE = "stdin_closed"


class InputBackpressure(Refused):
    """No room for the input, and nothing of it was taken."""

    CODE = "input_backpressure"


class CursorGap(Refused):
    """Bytes from the cursor on are not kept any more."""

    CODE = "cursor_gap"


class CursorAhead(Refused):
    """A cursor beyond the end of the output."""

    CODE = "cursor_ahead"


class TimedOut(Refused):
    """A process that had to succeed passed its deadline."""

    CODE = "timed_out"


class Interrupted(Refused):
    """A process that had to succeed was interrupted."""

    CODE = "interrupted"


class Terminated(Refused):
    """A process that had to succeed was terminated."""

    CODE = "terminated"


class Killed(Refused):
    """A process that had to succeed was killed."""

    CODE = "killed"


class SupervisorShuttingDown(Refused):
    """The daemon or the session shuts down, or is closed."""

    CODE = "supervisor_shutting_down"


class ManifestCorrupt(Refused):
    """A record is damaged beyond repair."""

    CODE = "manifest_corrupt"


class SpoolCorrupt(Refused):
    """The stored output is damaged; the record is not."""

    CODE = "spool_corrupt"


class LostOnRestore(Refused):
    """A process that had to succeed ran when the daemon ended."""

    CODE = "lost_on_restore"


class TeardownFailed(Refused):
    """A killed tree is not proven empty yet."""

    CODE = "teardown_failed"


class UnsupportedVersion(Refused):
    """Daemon and client speak no version in common."""

    CODE = "unsupported_version"


class PermissionDenied(Refused):
    """Not for this role, or not for this peer."""

    CODE = "permission_denied"


class TooManyRequests(Refused):
    """A count is at its limit."""

    CODE = "too_many_requests"


class FrameTooLarge(Refused):
    """A frame over the limit."""

    CODE = "frame_too_large"


class IdempotencyCollision(Refused):
    """The same key or id with another content."""

    CODE = "idempotency_collision"


class WorkspaceBusy(Refused):
    """A workspace is claimed by somebody else."""

    CODE = "workspace_busy"


class Cancelled(Refused):
    """The call was cancelled by ``$/cancel``."""

    CODE = "cancelled"


class Internal(Refused):
    """A bug of the daemon; its log says more."""

    CODE = "internal"


BY_CODE: Mapping[str, Type[Refused]] = {kind.CODE: kind for kind in Refused.__subclasses__()}
"""The class of each code of version 1."""


def refusal(body: object) -> Refused:
    """The error that the error object of a reply stands for."""
    fields = body if isinstance(body, dict) else {}
    code = str(fields.get("code", ""))
    kind = BY_CODE.get(code, Refused)
    message = str(fields.get("message", ""))
    return kind(code, message, fields.get("retryable") is True, fields.get("details"))
