"""What the daemon says, as frozen dataclasses.

They are read openly: fields of a later version are left in ``raw``, words of a later version stay
the text that they are. Cursors and sizes are bytes, times are RFC 3339 in UTC.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Dict, List, Mapping, Optional, Type, TypeVar, Union, cast, get_type_hints

from .errors import Nonsense, Refused, refusal

M = TypeVar("M", bound="Message")

TERMINAL = frozenset(
    ("exited", "failed", "timed_out", "interrupted", "terminated", "killed", "lost_on_restore")
)
"""The states that are never left."""


@dataclass(frozen=True)
class Message:
    """What all of them have: the object as it came."""

    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Server(Message):
    """Name and version of the daemon."""

    name: str = ""
    version: str = ""


@dataclass(frozen=True)
class Containment(Message):
    """How trees are held together: what was achieved."""

    tier: str = ""
    guarantees: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class Hello(Message):
    """What the daemon says of itself."""

    version: int = 0
    server: Server = field(default_factory=Server)
    features: List[str] = field(default_factory=list)
    limits: Dict[str, int] = field(default_factory=dict)
    containment: Containment = field(default_factory=Containment)
    instance_id: str = ""
    boot_id: str = ""
    warnings: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class Free(Message):
    """What is left for an owner: running slots, and bytes that can be reserved."""

    loop: int = 0
    session: int = 0
    daemon: int = 0
    memory_bytes: int = 0
    spool_bytes: int = 0


@dataclass(frozen=True)
class Leader(Message):
    """How the command itself ended: a code, or a signal."""

    code: Optional[int] = None
    signal: Optional[int] = None
    signal_name: Optional[str] = None
    core_dumped: Optional[bool] = None


@dataclass(frozen=True)
class Excerpt(Message):
    """A piece of safe text and its place."""

    text: str = ""
    start_cursor: int = 0
    end_cursor: int = 0


@dataclass(frozen=True)
class Artifact(Message):
    """Where the raw bytes of a page can be had again."""

    id: str = ""
    encoding: str = ""
    start_cursor: int = 0
    end_cursor: int = 0


@dataclass(frozen=True)
class Chunk(Message):
    """A chunk as it was read from its pipe."""

    start: int = 0
    end: int = 0
    source: str = ""
    at: Optional[str] = None


@dataclass(frozen=True)
class Page(Message):
    """A page of output, and what is known of its process."""

    process_id: str = ""
    state: str = ""
    start_cursor: int = 0
    from_cursor: int = 0
    next_cursor: int = 0
    total_bytes: int = 0
    retained_from: int = 0
    gap: bool = False
    more: bool = False
    eof: bool = False
    output: Optional[str] = None
    artifact: Artifact = field(default_factory=Artifact)
    gap_bytes: Optional[int] = None
    filtered_bytes: Optional[int] = None
    mixed: bool = False
    held_bytes: Optional[int] = None
    pending_line: Optional[str] = None
    normalized: bool = False
    binary: bool = False
    chunks: Optional[List[Chunk]] = None
    match: Optional[Excerpt] = None
    exit_code: Optional[int] = None
    leader: Optional[Leader] = None
    reason: Optional[str] = None
    started_at: Optional[str] = None
    finished_at: Optional[str] = None
    duration_ms: Optional[int] = None
    durable: bool = True
    woke_by: Optional[str] = None
    is_base64: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether the process is in a state that is never left."""
        return self.state in TERMINAL or self.reason is not None

    @property
    def is_lost(self) -> bool:
        """Whether it ran when the daemon ended, so that nobody knows how it ended."""
        return self.state == "lost_on_restore"

    @property
    def data(self) -> bytes:
        """The output as bytes: of a ``base64`` page the raw ones."""
        text = self.output or ""
        return base64.b64decode(text) if self.is_base64 else text.encode()

    def require_success(self) -> None:
        """Raises the error that the daemon has for an end that is no success.

        That is a process that was timed out, interrupted, terminated, killed or lost. A code that
        is not zero is a result like any other.
        """
        if self.state in ("timed_out", "interrupted", "terminated", "killed", "lost_on_restore"):
            details = {"process_id": self.process_id}
            message = f"the process is {self.state}"
            raise refusal({"code": self.state, "message": message, "details": details})


@dataclass(frozen=True)
class Started(Page):
    """The reply to a start: a page from cursor 0 on."""

    origin: str = ""
    truncated: bool = False
    head: Optional[Excerpt] = None
    tail: Optional[Excerpt] = None
    omitted_bytes: Optional[int] = None

    @property
    def text(self) -> str:
        """All that came, a marker where the middle of a long output is left out."""
        if self.head is None or self.tail is None:
            return self.output or ""
        return f"{self.head.text}\n[... {self.omitted_bytes} bytes ...]\n{self.tail.text}"


@dataclass(frozen=True)
class Input(Page):
    """The reply to input: what became of it, and a page."""

    accepted_bytes: int = 0
    pending_bytes: int = 0
    discarded_bytes: Optional[int] = None
    flushed: bool = False


@dataclass(frozen=True)
class SignalError(Message):
    """A signal that the kernel refused."""

    signal: str = ""
    errno: str = ""
    count: int = 0


@dataclass(frozen=True)
class Stopped(Message):
    """What became of a process that was to be stopped."""

    process_id: str = ""
    state: str = ""
    reason: Optional[str] = None
    exit_code: Optional[int] = None
    leader: Optional[Leader] = None
    escalated: bool = False
    signal_errors: List[SignalError] = field(default_factory=list)
    durable: bool = True
    error: Optional[Dict[str, Any]] = None


@dataclass(frozen=True)
class Record(Message):
    """The record of a process."""

    version: int = 0
    process_id: str = ""
    session_id: str = ""
    loop_id: str = ""
    origin: str = ""
    label: Optional[str] = None
    command: Dict[str, Any] = field(default_factory=dict)
    access: Dict[str, Any] = field(default_factory=dict)
    tty: Optional[Dict[str, Any]] = None
    tier: str = ""
    limits: Dict[str, Any] = field(default_factory=dict)
    state: str = ""
    reason: Optional[str] = None
    exit_code: Optional[int] = None
    leader: Optional[Leader] = None
    escalated: bool = False
    ended_by: Optional[str] = None
    leftovers: int = 0
    signal_errors: List[SignalError] = field(default_factory=list)
    input_dropped_bytes: int = 0
    oom_killed: bool = False
    limit_exceeded: Optional[str] = None
    created_at: str = ""
    started_at: Optional[str] = None
    finished_at: Optional[str] = None
    deadline_at: Optional[str] = None
    duration_ms: Optional[int] = None
    total_bytes: int = 0
    retained_from: int = 0
    spool_state: str = ""
    spool_lost_bytes: int = 0
    sha256: Optional[str] = None
    pinned: bool = False
    diagnostic: Optional[str] = None
    request_key: Optional[str] = None
    durable: bool = True


@dataclass(frozen=True)
class Usage(Message):
    """What a tree uses."""

    cpu_ms: int = 0
    memory_bytes: int = 0


@dataclass(frozen=True)
class Inspection(Message):
    """A record, and what its tree uses now."""

    record: Record = field(default_factory=Record)
    live_descendants: int = 0
    usage: Usage = field(default_factory=Usage)
    pids: Optional[List[int]] = None


@dataclass(frozen=True)
class Listing(Message):
    """A page of records, newest first."""

    records: List[Record] = field(default_factory=list)
    next: Optional[str] = None
    totals: Dict[str, int] = field(default_factory=dict)
    free: Optional[Free] = None


@dataclass(frozen=True)
class Search(Message):
    """Lines that match a pattern."""

    matches: List[Excerpt] = field(default_factory=list)
    next_cursor: int = 0
    more: bool = False
    gap: bool = False
    gap_bytes: Optional[int] = None


@dataclass(frozen=True)
class Exported(Message):
    """What an export sent."""

    from_cursor: int = 0
    end_cursor: int = 0
    bytes: int = 0
    gap_bytes: int = 0
    sha256: str = ""


@dataclass(frozen=True)
class Event(Message):
    """Something that happened to a process."""

    event_id: str = ""
    kind: str = ""
    session_id: str = ""
    loop_id: str = ""
    process_id: str = ""
    origin: str = ""
    state: str = ""
    created_at: str = ""
    started_at: Optional[str] = None
    finished_at: Optional[str] = None
    diagnostic: Optional[str] = None
    exit_code: Optional[int] = None
    reason: Optional[str] = None
    signal: Optional[int] = None
    access: Optional[str] = None
    phase: Optional[str] = None


@dataclass(frozen=True)
class EventRecord(Message):
    """An event and its number. ``gap``: events before it are not kept any more."""

    seq: int = 0
    event: Event = field(default_factory=Event)
    gap: bool = False


@dataclass(frozen=True)
class Notification(Message):
    """The completion of a process, told once."""

    command_id: str = ""
    session_id: str = ""
    loop_id: str = ""
    process_id: str = ""
    state: str = ""
    reason: str = ""


@dataclass(frozen=True)
class SessionInfo(Message):
    """A session as it was opened or attached."""

    session_id: str = ""
    loop_id: str = ""
    label: Optional[str] = None
    state: str = "open"
    totals: Dict[str, int] = field(default_factory=dict)
    free: Free = field(default_factory=Free)


@dataclass(frozen=True)
class Closed(Message):
    """What the close of a session stopped."""

    stopped: int = 0
    failures: List[Stopped] = field(default_factory=list)


_REQUIRED = {
    Page: ("process_id", "state", "next_cursor", "total_bytes"),
    Stopped: ("process_id", "state"),
    Record: ("process_id", "state"),
    Notification: ("command_id", "process_id", "state"),
    Event: ("event_id", "kind", "process_id"),
    EventRecord: ("seq", "event"),
    Hello: ("version", "server"),
    SessionInfo: ("session_id", "loop_id"),
    Exported: ("end_cursor", "sha256"),
    Listing: ("records",),
    Inspection: ("record",),
}


@cache
def _shape(kind: Any) -> Mapping[str, Any]:
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind) if f.name != "raw"}


@cache
def _required(kind: Any) -> List[str]:
    return [name for base, names in _REQUIRED.items() if issubclass(kind, base) for name in names]


def read(kind: Type[M], value: object) -> M:
    """Reads an object of the daemon as ``kind``.

    Fields that ``kind`` does not know are kept in ``raw``; one that is missing and has to be
    there, or is of another type, is :class:`Nonsense`.
    """
    if not isinstance(value, dict):
        raise Nonsense(f"no object where a {kind.__name__} should be")
    missing = [name for name in _required(cast(Any, kind)) if name not in value]
    if missing:
        raise Nonsense(f"`{missing[0]}` is missing in a {kind.__name__}")
    known = {
        name: _value(hint, value[name], f"{kind.__name__}.{name}")
        for name, hint in _shape(cast(Any, kind)).items()
        if value.get(name) is not None
    }
    return kind(raw=value, **known)


def _value(hint: Any, value: object, place: str) -> Any:
    origin: Any = getattr(hint, "__origin__", None)
    arguments: Any = getattr(hint, "__args__", ())
    if hint is Any:
        return value
    if origin is Union:
        return _value(arguments[0], value, place)
    if origin is list and isinstance(value, list):
        return [_value(arguments[0], item, place) for item in value]
    if origin is dict and isinstance(value, dict):
        return {str(key): _value(arguments[1], item, place) for key, item in value.items()}
    if isinstance(hint, type) and issubclass(hint, Message):
        return read(hint, value)
    is_number = hint is int and isinstance(value, int) and not isinstance(value, bool)
    if is_number or (hint in (str, bool) and isinstance(value, hint)):
        return value
    raise Nonsense(f"`{place}` is a {type(value).__name__}")


def read_entry(value: object, is_base64: bool) -> Page:
    """Reads an entry of ``process/output``: a page, or the error of its process."""
    if isinstance(value, dict) and isinstance(value.get("error"), dict):
        error: Refused = refusal(value["error"])
        error.details.setdefault("process_id", value.get("process_id"))
        raise error
    return replace(read(Page, value), is_base64=is_base64)
