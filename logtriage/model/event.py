"""What happened: one value for each thing a log can tell about a crash, a closed union."""

from __future__ import annotations

from typing import ClassVar, Literal

import attrs

from logtriage.model.process import Basis, Process
from logtriage.model.text import Span

__all__ = [
    "CollectiveTimeout",
    "Event",
    "ExceptionLink",
    "FatalError",
    "Frame",
    "KernelReport",
    "Lifecycle",
    "LoggedError",
    "NativeAbort",
    "Phase",
    "ProcessExit",
    "Traceback",
    "WatchdogTimeout",
]

Phase = Literal["args", "load", "init", "capture", "serve", "shutdown", "unknown"]


@attrs.frozen
class Frame:
    """One frame of a stack.

    Attributes:
        filename: As printed.
        lineno: Line number; ``None`` where the log has none.
        function: Function name, or ``""``.
        line: The source line printed under the frame, stripped, or ``""``.
        in_app: Whether the file belongs to an inference engine, not to a library below it.
    """

    filename: str
    lineno: int | None
    function: str
    line: str = ""
    in_app: bool = False


@attrs.frozen
class ExceptionLink:
    """One exception of a chain.

    Attributes:
        type: The class as printed, with its module (``torch.OutOfMemoryError``); ``""`` if cut off.
        message: The whole text after the colon, several lines joined by line breaks.
        frames: Oldest call first, as CPython prints them.
        relation: How it leads to the next link: ``cause`` (direct cause), ``context`` (during
            handling of), ``remote`` (quoted from another process); ``""`` for the last link.
    """

    type: str
    message: str
    frames: tuple[Frame, ...] = ()
    relation: Literal["cause", "context", "remote", ""] = ""


@attrs.frozen(kw_only=True)
class Event:
    """What all events share.

    Attributes:
        process: Who it happened to.
        span: The input lines it was read from.
        message: The most telling text, one or more lines.
        time: The time of its first line as written, or ``None``.
        basis: How sure the assignment to *process* is; the weakest of its lines.
        stream: The text stream it stood in.
        unit: systemd's unit it is of, if the collector said.
        invocation_id: systemd's invocation it is of, if the collector said.
    """

    kind: ClassVar[str] = "event"
    process: Process
    span: Span
    message: str
    time: str | None = None
    basis: Basis = "prefix"
    stream: str = ""
    unit: str | None = None
    invocation_id: str | None = None


@attrs.frozen(kw_only=True)
class Traceback(Event):
    """A Python traceback, with all exceptions of its chain.

    Attributes:
        chain: Oldest exception first; the last one is what the process died of or logged.
        header: The text before the traceback (``Scheduler hit an exception``), or ``""``.
        complete: Neither its start nor its end is missing.
        ignored: Python itself said that nothing came of it (``Exception ignored in``, a logging error).
    """

    kind: ClassVar[str] = "traceback"
    chain: tuple[ExceptionLink, ...]
    header: str = ""
    complete: bool = True
    ignored: bool = False


@attrs.frozen(kw_only=True)
class FatalError(Event):
    """A faulthandler dump (``Fatal Python error: Segmentation fault``).

    Attributes:
        reason: The text after ``Fatal Python error:``.
        frames: Frames of the crashing thread, newest first as printed.
    """

    kind: ClassVar[str] = "fatal-error"
    reason: str
    frames: tuple[Frame, ...] = ()


@attrs.frozen(kw_only=True)
class NativeAbort(Event):
    """Native code gave up: an uncaught C++ exception, an assertion, heap corruption.

    Attributes:
        origin: ``cuda-assert``, ``terminate``, ``glibc``, ``c10``, ``cuda``, ``nccl``, ``jit``, ``mpi`` or ``signal``.
        exception: The C++ class, if named.
        repeats: Lines of the same kind folded into this one (a device assert prints one per thread).
    """

    kind: ClassVar[str] = "native-abort"
    origin: str
    exception: str = ""
    repeats: int = 1


@attrs.frozen(kw_only=True)
class ProcessExit(Event):
    """Somebody reports that a process ended.

    Attributes:
        victim: The process that ended, as far as the line names it.
        exit_code: Its exit code; negative for a signal, ``None`` if not said.
    """

    kind: ClassVar[str] = "process-exit"
    victim: Process
    exit_code: int | None = None


@attrs.frozen(kw_only=True)
class Lifecycle(Event):
    """A step in the life of the service, as systemd or the engine tells it.

    Attributes:
        action: ``started``, ``stopping``, ``stopped``, ``main-exited``, ``failed``, ``restart-scheduled``,
            ``start-limit``, ``exec-failed``, ``timeout``, ``oom-killed``, ``server-args``, ``phase``, ``ready``,
            ``sigquit`` (the parent was told that a child failed), ``sigterm``, ``teardown``, ``boot``.
        detail: What the action carries: the phase, the result, ``KILL``, the arguments line.
        number: A number it carries: exit status, restart counter.
    """

    kind: ClassVar[str] = "lifecycle"
    action: str
    detail: str = ""
    number: int | None = None


@attrs.frozen(kw_only=True)
class KernelReport(Event):
    """The kernel or its GPU driver reports a fault.

    Attributes:
        report: ``xid``, ``sxid``, ``oom``, ``segfault``, ``bus`` (fallen off the bus without an Xid) or ``driver``.
        code: The Xid number, if it is one.
        pid: The process it names.
        comm: Its name, at most 15 characters.
        device: PCI address, if named.
        trusted: It came over the kernel's own channel, not as text in somebody's output.
    """

    kind: ClassVar[str] = "kernel"
    report: str
    code: int | None = None
    pid: int | None = None
    comm: str = ""
    device: str = ""
    trusted: bool = True


@attrs.frozen(kw_only=True)
class CollectiveTimeout(Event):
    """A rank waited in a collective until the watchdog ended it.

    Attributes:
        operation: ``ALLREDUCE`` and so on, if named.
        sequence: Sequence number of the collective.
        completed: Last completed sequence number, if said.
    """

    kind: ClassVar[str] = "collective"
    operation: str = ""
    sequence: int | None = None
    completed: int | None = None


@attrs.frozen(kw_only=True)
class WatchdogTimeout(Event):
    """The engine's own watchdog saw no progress.

    Attributes:
        seconds: The limit, if said.
        soft: It only warns.
    """

    kind: ClassVar[str] = "watchdog"
    seconds: float | None = None
    soft: bool = False


@attrs.frozen(kw_only=True)
class LoggedError(Event):
    """An error line without a traceback.

    Attributes:
        type: The exception class the line names, or ``""``.
        origin: ``argparse``, ``bind`` (a port is taken), ``engine``, ``nccl``, ``gloo``, ``advice``,
            ``import-ignored``, or ``excerpt`` (a sentence that somebody pasted alone).
        repeats: Equal lines folded into this one.
    """

    kind: ClassVar[str] = "logged-error"
    type: str = ""
    origin: str = "engine"
    repeats: int = 1
