"""An incident in, the event that started it and the part of every other one out.

The law: a rule looks at events, never at signatures, and each one carries the sentence it prints.  RULES is the
whole judgement in order: the first rule that knows an event decides its part and its rank among the suspects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import attrs

from logtriage.consequences import (
    is_cuda_fault,
    is_echo_of_child,
    is_interrupt,
    is_peer_loss,
    is_request_error,
    is_waiting_rank,
    is_wrapper,
)
from logtriage.faults import same_fault
from logtriage.model import (
    CollectiveTimeout,
    Event,
    FatalError,
    Finding,
    FindingRole,
    Incident,
    KernelReport,
    Lifecycle,
    LoggedError,
    NativeAbort,
    ProcessExit,
    Traceback,
    Verdict,
    WatchdogTimeout,
)
from logtriage.victims import with_victim

__all__ = ["RULES", "judge"]

EVIDENCE: Final = 70
"""From this rank on an event shows a consequence only: it may be the root, but as the earliest evidence."""


@attrs.frozen
class Judgement:
    """What a rule says of an event.

    Attributes:
        role: Its part, unless it becomes the root.
        suspicion: Rank among the suspects, lower is likelier; ``None``: never the root.
        reason: One sentence.
    """

    role: FindingRole
    suspicion: float | None
    reason: str


@attrs.frozen
class Scene:
    """What rules may ask about the incident besides the event.

    Attributes:
        events: All events in order.
        stopped: Input line from which somebody had asked the service to stop; 0 if nobody had.
        cuda_faults: First line of the first CUDA fault of each stream.
        exceptions: Messages of all exceptions, by the line on which each traceback begins.
        exits: Input line of the first report that a process ended badly; 0 if there is none.
    """

    events: Sequence[Event]
    stopped: int
    cuda_faults: dict[str, int]
    exceptions: Sequence[tuple[int, str]]
    exits: int


Rule = Callable[[Event, Scene], Judgement | None]


def _told_to_stop(event: Event, scene: Scene) -> Judgement | None:
    if scene.stopped and event.span.first > scene.stopped and not isinstance(event, Lifecycle):
        return Judgement("teardown", None, "printed after the service had been asked to stop")
    return None


def _ignored(event: Event, _: Scene) -> Judgement | None:
    if isinstance(event, Traceback) and event.ignored:
        return Judgement("noise", None, "Python says itself that it ignored this exception")
    if isinstance(event, LoggedError) and event.origin in ("import-ignored", "advice"):
        return Judgement(
            "noise", None, "the engine goes on without this; it is printed by healthy servers too"
        )
    if isinstance(event, WatchdogTimeout) and event.soft:
        return Judgement("noise", None, "a soft watchdog only warns")
    return None


def _life(event: Event, scene: Scene) -> Judgement | None:
    if not isinstance(event, Lifecycle):
        return None
    if scene.stopped and event.span.first > scene.stopped and event.action != "timeout":
        return Judgement("teardown", None, "a step of the stop that was asked for")
    if event.action in ("exec-failed", "timeout", "oom-killed"):
        return Judgement("initiating", 12, "systemd itself says why it ended the service")
    if event.action == "start-limit":
        return Judgement(
            "cascade", 72, "systemd gave up after the crashes before; it does not say why they happened"
        )
    if event.action in ("main-exited", "failed"):
        return Judgement(
            "cascade", 92, "systemd reports the end of the main process, which kills itself after most faults"
        )
    if event.action == "sigquit":
        return Judgement("teardown", 94, "the notice to the parent that a child failed; it does not say why")
    return (
        Judgement("teardown", None, "a step of the shutdown")
        if event.action == "teardown"
        else Judgement("noise", None, "a step of the service's life")
    )


def _kernel(event: Event, scene: Scene) -> Judgement | None:
    if not isinstance(event, KernelReport):
        return None
    if event.report == "xid" and event.code in (43, 45, 154, 63, 92, 93, 106, 107, 121):
        others = any(
            isinstance(e, (KernelReport, Traceback, FatalError)) and e is not event for e in scene.events
        )
        return Judgement(
            "cascade" if others else "initiating",
            76 if others else 20,
            f"Xid {event.code} is the echo or the record of another fault",
        )
    if not event.trusted:
        return Judgement(
            "initiating", 8, "the GPU driver reports it, though not over the kernel's own channel"
        )
    return Judgement(
        "initiating",
        0 if event.report != "segfault" else 30,
        "the kernel reports it, and the kernel is a witness outside the server",
    )


def _consequence(event: Event, _: Scene) -> Judgement | None:
    """Exceptions that only say that somebody else died."""
    if is_peer_loss(event):
        return Judgement("cascade", 80, "lost its connection to a peer that had died before")
    if is_waiting_rank(event):
        return Judgement("cascade", 82, "this rank waited for others that never came")
    if is_echo_of_child(event):
        return Judgement("cascade", 84, "the parent reports that a child died; it does not say why")
    if is_interrupt(event):
        return Judgement("teardown", 90, "raised by the shutdown itself")
    if is_request_error(event):
        return Judgement("noise", 88, "one request failed; the server went on")
    return None


def _repeated_cuda_fault(event: Event, scene: Scene) -> Judgement | None:
    first = scene.cuda_faults.get(event.stream)
    if (
        is_cuda_fault(event)
        and first is not None
        and first < event.span.first
        and not isinstance(event, KernelReport)
    ):
        return Judgement(
            "cascade", 60, "after the first CUDA fault every later CUDA call of that process repeats it"
        )
    return None


def _native_assertion(event: Event, _: Scene) -> Judgement | None:
    if isinstance(event, NativeAbort) and event.origin == "cuda-assert":
        return Judgement(
            "initiating",
            10,
            "a device-side assertion names the check that failed; the Python frames after it are not where it happened",
        )
    return None


def _after_exit(event: Event, scene: Scene) -> Judgement | None:
    """What the parent raises after a child's end is about the child."""
    if not isinstance(event, Traceback) or not scene.exits or event.span.first < scene.exits or event.process.rank:
        return None
    return Judgement("cascade", 84, "raised by the parent after one of its processes had ended")


def _announced(event: Event, scene: Scene) -> Judgement | None:
    """An error line whose text an exception repeats further down is the first word on that fault."""
    if not isinstance(event, LoggedError) or event.origin in ("argparse", "nccl"):
        return None
    said = event.message.partition("\n")[0]
    for line, message in scene.exceptions:
        if line > event.span.first and len(message) > 15 and message in said:
            return Judgement("initiating", 18, "the engine states the fault here, before the exception that repeats it")
    return None


def _exception(event: Event, _: Scene) -> Judgement | None:
    if not isinstance(event, Traceback):
        return None
    last = event.chain[-1]
    if not last.type:
        return Judgement(
            "initiating", 26, "the first traceback of the incident, though the log ends before its exception"
        )
    if is_wrapper(event):
        return Judgement(
            "initiating",
            24,
            "the first exception of the incident; it wraps the text of the one that caused it",
        )
    if "hit an exception" in event.header or len(event.chain) > 1 or last.frames:
        return Judgement("initiating", 20, "the first exception of the incident")
    return Judgement("initiating", 28, "an exception whose traceback the log does not hold")


def _engine(event: Event, _: Scene) -> Judgement | None:
    if isinstance(event, LoggedError) and event.origin == "argparse":
        return Judgement("initiating", 20, "the argument parser refused the command line")
    if isinstance(event, FatalError):
        if event.reason == "Aborted":
            return Judgement(
                "initiating", 47, "the process aborted; what made it abort should stand before this dump"
            )
        return Judgement(
            "initiating", 22, "native code crashed; a process that dies this way writes no exception"
        )
    if isinstance(event, NativeAbort):
        return Judgement(
            "initiating",
            21 if event.origin in ("cuda", "jit", "c10", "nccl") else 23,
            "native code reports the fault itself",
        )
    if isinstance(event, CollectiveTimeout):
        return Judgement(
            "initiating",
            44,
            "a collective timed out; the rank that never came is the suspect, not the one that waited",
        )
    if isinstance(event, WatchdogTimeout):
        return Judgement("initiating", 46, "the engine's watchdog saw no progress")
    return None


def _logged(event: Event, scene: Scene) -> Judgement | None:
    if not isinstance(event, LoggedError):
        return None
    if event.origin == "nccl" and any("NCCL" in message for _, message in scene.exceptions):
        return Judgement("initiating", 19, "NCCL names the cause before the exception that follows from it")
    if event.origin in ("bind", "engine-fatal", "excerpt"):
        return Judgement("initiating", 45, "the engine says itself that it cannot go on")
    return Judgement("unknown", 74, "an error line without a traceback")


def _exit(event: Event, _: Scene) -> Judgement | None:
    if not isinstance(event, ProcessExit):
        return None
    if event.exit_code == 0:
        return Judgement("teardown", None, "a clean exit")
    if event.victim.label or event.exit_code is not None:
        return Judgement("cascade", EVIDENCE, "names the process that died first, but not what killed it")
    return Judgement("cascade", 86, "a process was killed; this does not say by whom")


RULES: Final[tuple[Rule, ...]] = (
    _ignored,
    _life,
    _told_to_stop,
    _kernel,
    _native_assertion,
    _consequence,
    _repeated_cuda_fault,
    _after_exit,
    _announced,
    _exception,
    _engine,
    _logged,
    _exit,
)

_STORY: Final = frozenset(
    ("started", "starting", "stopping", "stopped", "server-args", "phase", "ready", "restart-scheduled", "version")
    + ("sigterm", "boot")
)


def judge(incident: Incident) -> Verdict | None:
    """Say which event started an incident.

    Args:
        incident: The events of one invocation.

    Returns:
        The verdict, or ``None`` if nothing in it is a crash: a healthy life, or one that ended on request.
    """
    scene = _scene(incident)
    judged = [(event, _ask(event, scene)) for event in incident.events]
    suspects = [(event, said) for event, said in judged if said.suspicion is not None]
    if not suspects or all(_proves_nothing(event) for event, _ in suspects):
        return None
    root, said = min(suspects, key=lambda pair: (pair[1].suspicion or 0, pair[0].span.first))
    evidence = (said.suspicion or 0) >= EVIDENCE
    root_event = with_victim(root, incident)
    reason = said.reason
    if evidence:
        reason = f"the earliest evidence that the log holds, not the cause: {said.reason}"
    findings = _folded(
        _finding(event, judgement, root, root_event)
        for event, judgement in judged
        if event is not root and not _is_story(event)
    )
    return Verdict(root_event, "earliest-evidence" if evidence else "initiating", reason, findings)


def _folded(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings with the floods of advice, hundreds of lines a start, each folded into its first line."""
    out: list[Finding] = []
    floods: dict[str, int] = {}
    for finding in findings:
        event = finding.event
        if isinstance(event, LoggedError) and finding.role == "noise":
            if event.origin in floods:
                first = out[floods[event.origin]]
                assert isinstance(first.event, LoggedError)
                folded = attrs.evolve(first.event, repeats=first.event.repeats + event.repeats)
                out[floods[event.origin]] = attrs.evolve(first, event=folded)
                continue
            floods[event.origin] = len(out)
        out.append(finding)
    return tuple(out)


def _ask(event: Event, scene: Scene) -> Judgement:
    for rule in RULES:
        said = rule(event, scene)
        if said is not None:
            return said
    return Judgement("unknown", None, "no rule knows this event")


def _scene(incident: Incident) -> Scene:
    stopped = 0
    faults: dict[str, int] = {}
    for event in incident.events:
        if isinstance(event, Lifecycle):
            if event.action in ("sigterm", "stopping") and not stopped:
                stopped = event.span.first
        elif not stopped and not (
            isinstance(event, LoggedError) or (isinstance(event, WatchdogTimeout) and event.soft)
        ):
            stopped = stopped or -1  # a stop that is asked for after the first trouble explains nothing
        if is_cuda_fault(event):
            faults.setdefault(event.stream, event.span.first)
    exceptions = [
        (event.span.first, link.message.partition("\n")[0].strip())
        for event in incident.events
        if isinstance(event, Traceback)
        for link in event.chain
    ]
    exits = [e.span.first for e in incident.events if isinstance(e, ProcessExit) and e.exit_code != 0 and e.victim.label]
    return Scene(incident.events, max(stopped, 0), faults, exceptions, min(exits, default=0))


def _proves_nothing(event: Event) -> bool:
    """Events that a healthy service prints too: they tell of a crash only beside others."""
    if isinstance(event, Lifecycle):
        return event.action == "main-exited" and event.detail in ("exited:0", "TERM", "0")
    if isinstance(event, LoggedError):
        return event.origin not in ("argparse", "bind", "nccl", "engine-fatal", "excerpt")
    return isinstance(event, Traceback) and is_request_error(event)


def _is_story(event: Event) -> bool:
    return isinstance(event, Lifecycle) and event.action in _STORY


def _finding(event: Event, said: Judgement, root: Event, shown: Event) -> Finding:
    if said.role == "initiating":
        if same_fault(event, root) and event.process.label != shown.process.label:
            return Finding(
                event,
                "observer",
                f"the same fault as on {shown.process.label or 'the root'}, later in the log",
            )
        if same_fault(event, root):
            return Finding(event, "cascade", "the same fault again")
        return Finding(event, "cascade", "after the root, or less telling: " + said.reason)
    return Finding(event, said.role, said.reason)
