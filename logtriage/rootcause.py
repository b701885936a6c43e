"""An incident in, the event that started it and the part of every other one out.

The law: a rule looks at events, never at signatures, and each one carries the sentence it prints.  RULES is
the whole judgement in order: the first rule that knows an event decides its part and its rank among the
suspects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import attrs

from logtriage.consequences import (
    ECHO_XIDS,
    HANDLED_XIDS,
    heads_traceback,
    is_cuda_fault,
    is_echo_of_child,
    is_foreign,
    is_health_failure,
    is_interrupt,
    is_of_server,
    is_peer_loss,
    is_request_error,
    is_self_trapped,
    is_story,
    is_waiting_rank,
    is_wrapper,
    proves_nothing,
    recovers,
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
from logtriage.scene import Scene, read_scene
from logtriage.victims import silent_rank, with_victim

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


Rule = Callable[[Event, Scene], Judgement | None]


def _told_to_stop(event: Event, scene: Scene) -> Judgement | None:
    if scene.stopped and event.span.first > scene.stopped and not isinstance(event, Lifecycle):
        return Judgement("teardown", None, "printed after the service had been asked to stop")
    return None


def _ignored(event: Event, scene: Scene) -> Judgement | None:
    if isinstance(event, Traceback) and event.ignored:
        return Judgement("noise", None, "Python says itself that it ignored this exception")
    if isinstance(event, LoggedError) and event.origin in ("import-ignored", "advice"):
        return Judgement("noise", None, "the engine goes on without this; healthy servers print it too")
    if isinstance(event, WatchdogTimeout) and event.soft:
        return Judgement("noise", None, "a soft watchdog only warns")
    if recovers(event, scene.events):
        return Judgement("noise", None, "the server was at work again after this")
    return None


def _life(event: Event, scene: Scene) -> Judgement | None:
    if not isinstance(event, Lifecycle):
        return None
    if event.action == "timeout":
        return _out_of_patience(event, scene)
    if scene.stopped and event.span.first > scene.stopped:
        return Judgement("teardown", None, "a step of the stop that was asked for")
    if event.action == "exec-failed":
        if "skipping:" in event.message:
            return Judgement("noise", None, "systemd skips a command that is marked as optional")
        return Judgement("initiating", 12, "systemd says itself what it could not do to start the service")
    if event.action == "oom-killed":
        return Judgement("initiating", 12, "systemd says itself that the service was killed for its memory")
    if event.action in ("main-exited", "failed", "control-exited", "start-limit"):
        return _reported_end(event, scene)
    if event.action == "sigquit":
        return Judgement("teardown", 94, "the notice to the parent that a child failed; it does not say why")
    if event.action == "teardown":
        return Judgement("teardown", None, "a step of the shutdown")
    if event.action == "restart-scheduled" and not scene.stopped and any(map(is_of_server, scene.events)):
        return Judgement("cascade", 97, "systemd starts the server again, though nobody had asked it to end")
    return Judgement("noise", None, "a step of the service's life")


def _out_of_patience(event: Lifecycle, scene: Scene) -> Judgement:
    """A limit of systemd's ran out: the cause, unless the service was in trouble or ending already."""
    if 0 < scene.trouble < event.span.first:
        return Judgement("cascade", 73, "systemd lost its patience with a service that was in trouble before")
    ending = event.detail.startswith(("stop", "final"))
    begun = any(isinstance(e, Lifecycle) and e.action == "timeout" and e is not event for e in scene.events)
    if ending and (begun or not scene.stopped):
        return Judgement("cascade", 95, "systemd waited in vain for the rest of the service to end")
    return Judgement("initiating", 12, "systemd says itself that it ended the service after a time limit")


def _reported_end(event: Lifecycle, scene: Scene) -> Judgement:
    """What systemd says of an end: that it came, seldom why."""
    if event.action == "control-exited":
        if not scene.failed:
            return Judgement("noise", None, "a helper command of the unit failed, and the unit did not")
        if any(isinstance(e, Lifecycle) and e.action == "main-exited" for e in scene.events):
            return Judgement("teardown", None, "a helper command that runs after the end failed as well")
        return Judgement("cascade", 91, "a helper command of the unit failed; why, only its own output says")
    if event.action == "start-limit":
        return Judgement("cascade", 93, "systemd gave up after the crashes before, whatever caused them")
    troubled = 0 < scene.trouble < event.span.first
    if event.action == "failed" and event.detail in ("oom-kill", "watchdog", "timeout") and not troubled:
        return Judgement("initiating", 14, "systemd names as the result why it ended the service")
    if event.action == "failed" and event.detail in ("dependency", "assert"):
        return Judgement("cascade", 92, "systemd did not start the unit, because another one did not come up")
    return Judgement("cascade", 92, "systemd reports an end; the server kills itself after most faults")


def _kernel(event: Event, scene: Scene) -> Judgement | None:
    if not isinstance(event, KernelReport):
        return None
    if is_foreign(event, scene.events):
        return Judgement("noise", 79, "the kernel speaks of a program that is no part of the server")
    if event.report == "xid" and event.code in ECHO_XIDS:
        return Judgement("cascade", 76, f"Xid {event.code} echoes another fault or the end of a process")
    if event.report == "xid" and event.code in HANDLED_XIDS:
        return Judgement("cascade", 76, f"Xid {event.code} records what the hardware has dealt with")
    if event.report == "xid" and event.code == 43:
        reason = "Xid 43 is the echo of a fault in the program's own kernel, which others describe better"
        return Judgement("initiating", 40, reason)
    if not event.trusted:
        return Judgement("initiating", 8, "the kernel's words, though not from its own channel")
    rank = {"segfault": 30, "hung-task": 48}.get(event.report, 0)
    return Judgement("initiating", rank, "the kernel reports it, a witness outside the server")


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
        return Judgement("noise", 98, "one request failed; the server went on")
    return None


def _repeated_cuda_fault(event: Event, scene: Scene) -> Judgement | None:
    if is_self_trapped(event, scene.events):
        return Judgement("cascade", 61, "the kernel ended itself after it had waited in vain for a peer")
    first = scene.cuda_faults.get(event.stream)
    if first is not None and first < event.span.first and is_cuda_fault(event):
        reason = "after the first CUDA fault every later CUDA call of that process repeats it"
        return Judgement("cascade", 60, reason)
    return None


def _native_assertion(event: Event, _: Scene) -> Judgement | None:
    if isinstance(event, NativeAbort) and event.origin == "cuda-assert":
        reason = "a device-side assertion names the check that failed; later frames are not where it happened"
        return Judgement("initiating", 10, reason)
    return None


def _after_exit(event: Event, scene: Scene) -> Judgement | None:
    """What is raised after a process's end, by its parent or by who talks to it, is about that end."""
    if not isinstance(event, Traceback) or not scene.exits or event.span.first < scene.exits:
        return None
    if not event.process.rank:
        return Judgement("cascade", 84, "raised by the parent after one of its processes had ended")
    if event.chain[-1].type.rpartition(".")[2].startswith("Dist"):
        return Judgement("cascade", 81, "a collective failed after one of its processes had ended")
    return None


def _announced(event: Event, scene: Scene) -> Judgement | None:
    """An error line whose text an exception repeats further down is the first word on that fault."""
    if not isinstance(event, LoggedError) or event.origin in ("argparse", "nccl"):
        return None
    said = event.message.partition("\n")[0]
    for line, message in scene.exceptions:
        if line > event.span.first and len(message) > 15 and message in said:
            reason = "the engine states the fault here, before the exception that repeats it"
            return Judgement("initiating", 18, reason)
    return None


def _exception(event: Event, _: Scene) -> Judgement | None:
    if not isinstance(event, Traceback):
        return None
    last = event.chain[-1]
    if not last.type:
        reason = "the first traceback of the incident, though the log ends before its exception"
        return Judgement("initiating", 26, reason)
    if is_wrapper(event):
        reason = "the first exception of the incident; it wraps the text of the one that caused it"
        return Judgement("initiating", 24, reason)
    if is_cuda_fault(event):
        reason = "the first CUDA fault of the incident; CUDA reports late, so its frames may be innocent"
        return Judgement("initiating", 20, reason)
    if "hit an exception" in event.header or len(event.chain) > 1 or last.frames:
        return Judgement("initiating", 20, "the first exception of the incident")
    return Judgement("initiating", 28, "an exception whose traceback the log does not hold")


def _engine(event: Event, scene: Scene) -> Judgement | None:
    if isinstance(event, LoggedError) and event.origin == "argparse":
        return Judgement("initiating", 20, "the argument parser refused the command line")
    if isinstance(event, FatalError):
        if event.reason == "Aborted":
            reason = "the process aborted; what made it abort should stand before this dump"
            return Judgement("initiating", 47, reason)
        return Judgement("initiating", 22, "native code crashed; who dies this way writes no exception")
    if isinstance(event, NativeAbort):
        known = event.origin in ("cuda", "jit", "c10", "nccl")
        return Judgement("initiating", 21 if known else 23, "native code reports the fault itself")
    if isinstance(event, CollectiveTimeout):
        reason = "a collective timed out; the rank that never came is the suspect, not the one that waited"
        return Judgement("initiating", 44, reason)
    if is_health_failure(event) and 0 < scene.trouble < event.span.first:
        return Judgement("cascade", 85, "a server in trouble does not answer its health check")
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
    if heads_traceback(event, scene.events):
        return Judgement("unknown", 99, "the headline of the traceback below it")
    return Judgement("unknown", 74, "an error line without a traceback")


def _exit(event: Event, _: Scene) -> Judgement | None:
    if not isinstance(event, ProcessExit):
        return None
    if event.exit_code == 0:
        return Judgement("teardown", None, "a clean exit")
    if event.victim.label or event.exit_code is not None:
        reason = "names the process that died first, but not what killed it"
        return Judgement("cascade", EVIDENCE, reason)
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


def judge(incident: Incident) -> Verdict | None:
    """Say which event started an incident.

    Args:
        incident: The events of one invocation.

    Returns:
        The verdict, or ``None`` if nothing in it is a crash: a healthy life, or one that ended on request.
    """
    scene = read_scene(incident)
    judged = [(event, _ask(event, scene)) for event in incident.events]
    suspects = [(event, said) for event, said in judged if said.suspicion is not None]
    if not suspects or all(proves_nothing(event, scene.events) for event, _ in suspects):
        return None
    root, said = min(suspects, key=lambda pair: (pair[1].suspicion or 0, pair[0].span.first))
    evidence = (said.suspicion or 0) >= EVIDENCE
    root_event = with_victim(root, incident)
    reason = said.reason
    if silent := silent_rank(root, incident):
        reason = f"{reason}; {silent.label} alone does not complain"
    if evidence:
        reason = f"the earliest evidence that the log holds, not the cause: {reason}"
    findings = _folded(
        _finding(event, judgement, root, root_event)
        for event, judgement in judged
        if event is not root and not is_story(event)
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


def _finding(event: Event, said: Judgement, root: Event, shown: Event) -> Finding:
    if said.role == "initiating":
        if same_fault(event, root) and event.process.label != shown.process.label:
            first = shown.process.label or "the root"
            return Finding(event, "observer", f"the same fault as on {first}, later in the log")
        if same_fault(event, root):
            return Finding(event, "cascade", "the same fault again")
        return Finding(event, "cascade", "after the root, or less telling: " + said.reason)
    return Finding(event, said.role, said.reason)
