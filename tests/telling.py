"""Events in few words; for tests of the stages behind the parsers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from logtriage.model import (
    CollectiveTimeout,
    Event,
    ExceptionLink,
    FatalError,
    Frame,
    Incident,
    Invocation,
    KernelReport,
    Lifecycle,
    LoggedError,
    NativeAbort,
    Phase,
    Process,
    ProcessExit,
    Rank,
    Span,
    Traceback,
    WatchdogTimeout,
)

SYSTEMD = Process("manager", "systemd", pid=1)
KERNEL = Process("kernel", "kernel")
MAIN = Process("launcher", "main")


def rank(number: int, pid: int | None = None) -> Process:
    """A scheduler of tensor-parallel rank *number*."""
    return Process("scheduler", f"TP{number}", Rank(tp=number), pid=pid)


def base(line: int, process: Process | int | None, **more: Any) -> dict[str, Any]:
    """What every event has."""
    who = rank(process) if isinstance(process, int) else process or Process()
    return {"process": who, "span": Span(line, line), "stream": f"{who.label}@{who.pid}", **more}


def frames(*places: str, line: str = "") -> tuple[Frame, ...]:
    """Frames of ``file:function``, oldest first; *line* is the source of the last."""
    out = []
    for place in places:
        name, _, function = place.partition(":")
        out.append(
            Frame(f"/opt/site/{name}", 7, function, line if place == places[-1] else "", "sglang/" in name)
        )
    return tuple(out)


def raised(
    line: int,
    said: str,
    process: Process | int | None = None,
    *,
    stack: Sequence[Frame] = (),
    header: str = "",
    before: ExceptionLink | None = None,
    complete: bool = True,
    ignored: bool = False,
    **more: Any,
) -> Traceback:
    """A traceback that ends with ``Type: message``."""
    kind, _, message = said.partition(": ")
    chain = ((before,) if before else ()) + (
        ExceptionLink(kind, message, tuple(stack or frames("sglang/srt/run.py:run"))),
    )
    return Traceback(
        message=said,
        chain=chain,
        header=header,
        complete=complete,
        ignored=ignored,
        **base(line, process, **more),
    )


def systemd(
    line: int,
    action: str,
    detail: str = "",
    number: int | None = None,
    unit: str | None = "llm.service",
    **more: Any,
) -> Lifecycle:
    """What systemd says of a unit."""
    text = more.pop("message", f"{unit}: {action} {detail}".strip())
    who = more.pop("process", SYSTEMD)
    return Lifecycle(
        message=text, action=action, detail=detail, number=number, unit=unit, **base(line, who, **more)
    )


def engine(
    line: int, action: str, detail: str = "", process: Process | int | None = MAIN, **more: Any
) -> Lifecycle:
    """A step that the engine tells."""
    return Lifecycle(message=detail or action, action=action, detail=detail, **base(line, process, **more))


def logged(
    line: int, said: str, process: Process | int | None = None, origin: str = "engine", **more: Any
) -> LoggedError:
    """An error line."""
    return LoggedError(message=said, origin=origin, **base(line, process, **more))


def exited(line: int, victim: Process | int, code: int | None, said: str = "", **more: Any) -> ProcessExit:
    """The launcher's report of a death."""
    dead = rank(victim) if isinstance(victim, int) else victim
    text = said or f"Subprocess scheduler (pid={dead.pid}) crashed with exit code {code}."
    return ProcessExit(message=text, victim=dead, exit_code=code, **base(line, MAIN, **more))


def xid(
    line: int,
    code: int,
    pid: int | None = None,
    comm: str = "",
    *,
    trusted: bool = True,
    device: str = "0000:1a:00",
) -> KernelReport:
    """What the GPU driver reports."""
    text = f"NVRM: Xid (PCI:{device}): {code}, pid={pid}, name={comm}"
    return KernelReport(
        message=text,
        report="xid",
        code=code,
        pid=pid,
        comm=comm,
        device=device,
        trusted=trusted,
        **base(line, KERNEL),
    )


def kernel(line: int, report: str, pid: int | None = None, comm: str = "") -> KernelReport:
    """Any other report of the kernel."""
    return KernelReport(
        message=f"{report} {pid} ({comm})", report=report, pid=pid, comm=comm, **base(line, KERNEL)
    )


def native(
    line: int, said: str, process: Process | int | None = None, origin: str = "terminate", **more: Any
) -> NativeAbort:
    """Native code gives up."""
    return NativeAbort(message=said, origin=origin, **base(line, process, **more))


def dumped(line: int, reason: str, process: Process | int | None = None, **more: Any) -> FatalError:
    """A dump of faulthandler's."""
    return FatalError(message=f"Fatal Python error: {reason}", reason=reason, **base(line, process, **more))


def waited(line: int, process: Process | int, operation: str = "ALLREDUCE") -> CollectiveTimeout:
    """A collective that timed out."""
    text = f"Watchdog caught collective operation timeout: OpType={operation} ran for {600_000 + line} ms"
    return CollectiveTimeout(message=text, operation=operation, **base(line, process))


def stuck(line: int, process: Process | int | None, *, soft: bool = False) -> WatchdogTimeout:
    """The engine's watchdog."""
    return WatchdogTimeout(
        message=f"Scheduler watchdog timeout (soft={soft})", soft=soft, **base(line, process)
    )


def unanswered(line: int) -> WatchdogTimeout:
    """A health check that the engine did not answer."""
    said = "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds."
    return WatchdogTimeout(message=f"{said} last_heartbeat time: 11:42:10", seconds=20.0, **base(line, MAIN))


def incident(*events: Event, phase: Phase = "serve", **invocation: Any) -> Incident:
    """Events of one invocation."""
    span = Span(events[0].span.first, events[-1].span.last)
    return Incident(Invocation(**invocation), events, phase, span)
