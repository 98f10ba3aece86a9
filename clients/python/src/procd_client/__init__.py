"""Client of procd, the supervisor daemon for long-running commands.

Connect, call, follow. What a call means is the daemon's: PROTOCOL.md tells. A dropped connection
is made anew and attached again, and what may be repeated is repeated.
"""

from . import errors
from .client import VERSION as __version__
from .client import Client
from .command import Command
from .errors import *  # noqa: F403 - every error by its name
from .export import Export
from .follow import Follow
from .process import Process
from .session import Credentials, Lease, Operator, Session
from .subscriptions import Events, Notifications
from .types import (
    Closed,
    Event,
    EventRecord,
    Excerpt,
    Exported,
    Hello,
    Input,
    Inspection,
    Listing,
    Notification,
    Page,
    Record,
    Search,
    Started,
    Stopped,
)

__all__ = [
    "Client",
    "Closed",
    "Command",
    "Credentials",
    "Event",
    "EventRecord",
    "Events",
    "Excerpt",
    "Export",
    "Exported",
    "Follow",
    "Hello",
    "Input",
    "Inspection",
    "Lease",
    "Listing",
    "Notification",
    "Notifications",
    "Operator",
    "Page",
    "Process",
    "Record",
    "Search",
    "Session",
    "Started",
    "Stopped",
    "__version__",
]
__all__ += errors.__all__
