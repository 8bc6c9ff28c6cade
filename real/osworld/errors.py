"""Faults of real desktops, counted by their ``cause``.

EnvStartFailed
└── NotReady             the desktop never showed a good screen
    └── WrongScreenAtStart   it showed one of another size than configured
EnvBroken
├── VmRefused            nothing listens: the server, or the whole desktop, is down or restarting
├── VmHung               no whole answer within the time-out; nothing more is asked of that server
│   └── HostUnreachable  no connection within the time-out: its host is down, or the network; nothing was sent
├── VmBadReply           an answer that makes no sense: a status, a shape
│   ├── VmMissing        the file asked for is not there
│   ├── VmLost           the connection broke before the answer was whole
│   └── BadScreenshot    not a whole PNG
├── ActionUncertain      an action was sent and no whole answer came; it is never sent again
├── ActionFailed         the desktop could not carry out an action that makes sense
├── BlackScreen          the server answers, the screen shows nothing
├── WrongScreenSize      the screen is not as large as configured
├── OutOfMemory          out of memory, the kernel killed programs of the desktop
├── DiskFull             no space is left on the desktop's disk
├── ApplicationCrashed   a program that the task's set-up or evaluation had started crashed
├── ServerRestarted      the server restarted under an attempt, and what it had started may be gone
├── SnapshotFailed       the state of a virtual machine was not saved or restored
├── DesktopLost          an earlier fault of the same desktop: it takes no more calls
└── SetupFailed          a set-up step of the task failed
FetchFailed              a file that a task names could not be fetched
"""

from __future__ import annotations

from typing import ClassVar

from dartsim.core.errors import DartsimError, EnvBroken, EnvStartFailed

TOO_LARGE = 413
"""Status of a reply that exceeds the size limit, possibly because of the agent."""


class NotReady(EnvStartFailed):
    cause: ClassVar[str] = "not_ready"


class WrongScreenAtStart(NotReady):
    cause = "wrong_screen_size"


class VmRefused(EnvBroken):
    cause: ClassVar[str] = "vm_refused"


class VmHung(EnvBroken):
    """The server did not answer in time; what it was asked for may still be under way there.

    Attributes:
        sent: Whether the request may have reached the server.
    """

    cause: ClassVar[str] = "vm_hung"

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class HostUnreachable(VmHung):
    cause: ClassVar[str] = "vm_unreachable"

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=False)


class VmBadReply(EnvBroken):
    """The server answered something that makes no sense.

    Attributes:
        status: HTTP status, or None if there was none.
        body: What came, cut to 2,000 characters.
    """

    cause: ClassVar[str] = "vm_bad_reply"

    def __init__(self, message: str, *, status: int | None = None, body: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.body = body[:2000]

    @property
    def refused(self) -> bool:
        """Whether the server says in its own words, not by an error page, that it cannot do what it was asked for.

        So it does with a reply that is too large.
        """
        return self.status is not None and self.status >= 400 and not self.body.lstrip().startswith("<")


class VmMissing(VmBadReply):
    cause: ClassVar[str] = "vm_missing"


class VmLost(VmBadReply):
    cause: ClassVar[str] = "vm_lost"


class BadScreenshot(VmBadReply):
    cause: ClassVar[str] = "bad_screenshot"


class ActionUncertain(EnvBroken):
    cause: ClassVar[str] = "action_uncertain"


class ActionFailed(EnvBroken):
    cause: ClassVar[str] = "action_failed"


class BlackScreen(EnvBroken):
    cause: ClassVar[str] = "black_screen"


class WrongScreenSize(EnvBroken):
    cause: ClassVar[str] = "wrong_screen_size"


class ServerRestarted(EnvBroken):
    cause: ClassVar[str] = "server_restarted"


class OutOfMemory(EnvBroken):
    cause: ClassVar[str] = "out_of_memory"


class DiskFull(EnvBroken):
    cause: ClassVar[str] = "disk_full"


class ApplicationCrashed(EnvBroken):
    cause: ClassVar[str] = "application_crashed"


class SnapshotFailed(EnvBroken):
    cause = "snapshot_failed"


class DesktopLost(EnvBroken):
    cause: ClassVar[str] = "desktop_lost"


class FetchFailed(DartsimError):
    pass


class SetupFailed(EnvBroken):
    """A set-up step of a task failed: the attempt did not begin where the task says.

    Attributes:
        cause: ``setup_failed``, ``setup_download_failed``, ``setup_tabs_failed`` or ``setup_until_never_met``.
    """

    def __init__(self, message: str, *, cause: str = "setup_failed") -> None:
        super().__init__(message)
        self.cause = cause
