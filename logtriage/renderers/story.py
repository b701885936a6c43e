"""A diagnosis goes in; its parts as short, safe sentences for people come out, without any layout.

The text and the Markdown renderer tell the same story; here it is put into words once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from logtriage.model import (
    Change,
    Diagnosis,
    Event,
    FatalError,
    Frame,
    Gap,
    Match,
    Remediation,
    Source,
    Span,
    Traceback,
)
from logtriage.renderers.fence import Fence, shorten

__all__ = ["Cure", "Root", "Story", "gap_line", "lines_of", "nothing_crashed", "read_line", "summary", "tell"]

_PHASES: Final = {
    "args": " while reading its arguments",
    "load": " while loading the model",
    "init": " while starting up",
    "capture": " while capturing CUDA graphs",
    "serve": " while serving",
    "shutdown": " while shutting down",
}
_APPLICABILITY: Final = {
    "safe": "safe",
    "review": "review it first",
    "display-only": "advice: a person must decide",
}
# Kinds of fault that a broken GPU, link or node can be behind; a setting or a bug follows no rank.
_HARDWARE: Final = ("cuda.", "dist.", "hw.", "nccl.", "process.", "watchdog.")
_UNKNOWN: Final = "Unknown: no signature fits the event above."


@attrs.frozen
class Root:
    """The event to read first.

    Attributes:
        evidence: It is only the earliest evidence, not the cause.
        who: The process.
        where: Its lines and time.
        message: What it says, one or more lines.
        origin: The exception that led to it, or ``""``.
        frame: The innermost frame worth reading, or ``""``.
        reason: Why this event.
    """

    evidence: bool
    who: str
    where: str
    message: str
    origin: str
    frame: str
    reason: str


@attrs.frozen
class Cure:
    """One remediation.

    Attributes:
        title: What to do.
        applicability: How far it can be trusted.
        changes: Each change.
        steps: What to do by hand.
        rationale: Why it helps.
        side_effects: What it costs.
        references: Where that is written.
        patch: The diff, or ``""``.
    """

    title: str
    applicability: str
    changes: tuple[str, ...]
    steps: tuple[str, ...]
    rationale: str
    side_effects: str
    references: tuple[str, ...]
    patch: str


@attrs.frozen
class Story:
    """A diagnosis in words; every string is clean and on one line, except ``root.message`` and patches.

    Attributes:
        service: What the service did.
        systemd: What systemd says about it, or ``""``.
        began: On which processes several crashes began, if that tells something, or ``""``.
        root: The event to read first.
        observers: Other processes that report the same fault.
        followers: What followed, each kind once: who, and why it is no cause.
        lost: How many lines of the crash could not be read, or ``""``.
        unread: How many lines inside the crash belong to no event, then where each stands and what it says; empty
            if there are none.
        known: Some signature fits.
        title: Name of the fault.
        identity: Category and signature.
        cause: What went wrong.
        confidence: How sure.
        constraint: What the match does not prove.
        cures: Best first.
        alternatives: What else was considered.
        next_steps: What to collect or read.
        redacted: Secrets removed, or ``""``.
    """

    service: str
    systemd: str
    began: str
    root: Root | None
    observers: tuple[str, ...]
    followers: tuple[tuple[str, str], ...]
    lost: str
    unread: tuple[str, ...]
    known: bool
    title: str
    identity: str
    cause: str
    confidence: str
    constraint: str
    cures: tuple[Cure, ...]
    alternatives: tuple[str, ...]
    next_steps: tuple[str, ...]
    redacted: str


def _line(text: str) -> str:
    return " ".join(text.split())


def tell(diagnosis: Diagnosis) -> Story:
    """Put a diagnosis into words.

    Args:
        diagnosis: One entry of a report.

    Returns:
        Its parts, free of control characters and secrets.
    """
    fence = Fence()
    match, verdict = diagnosis.match, diagnosis.verdict

    def say(text: str) -> str:
        return _line(fence.filled(text, match))

    story = Story(
        service=_service(diagnosis, fence),
        systemd=_systemd(diagnosis, fence),
        began=_began(diagnosis, fence),
        root=_root(diagnosis, fence),
        observers=tuple(
            dict.fromkeys(_who(each.event, fence) for each in verdict.findings if each.role == "observer")
        ),
        followers=_followers(diagnosis, fence),
        lost=_lost(diagnosis),
        unread=_unread(diagnosis, fence),
        known=match is not None,
        title=say(match.signature.title) if match else _UNKNOWN,
        identity=f"{match.signature.category}, {match.signature.id}" if match else "",
        cause=say(match.signature.cause) if match else "",
        confidence=diagnosis.confidence,
        constraint=say(match.signature.constraint) if match else "",
        cures=tuple(_cure(each, match, fence) for each in diagnosis.remediations),
        alternatives=tuple(
            f"{other.signature}: {say(other.why_not)}" if other.why_not else other.signature
            for other in diagnosis.alternatives
        ),
        next_steps=tuple(say(step) for step in diagnosis.next_steps),
        redacted="",
    )
    removed = ", ".join(f"{each.count} {each.kind}" for each in fence.redacted(diagnosis))
    return attrs.evolve(story, redacted=removed)


# --- the service ----------------------------------------------------------------------------------


def _service(diagnosis: Diagnosis, fence: Fence) -> str:
    invocation = diagnosis.incident.invocation
    engine = " ".join(filter(None, (invocation.engine, invocation.engine_version)))
    name = invocation.unit or "The server"
    host = f" on {invocation.host}" if invocation.host else ""
    times = "crashed" if diagnosis.repeats == 1 else f"crashed {diagnosis.repeats} times in the same way"
    open_end = "" if diagnosis.final else " (provisional: the log has not ended)"
    label = f" ({engine})" if engine else ""
    return _line(
        fence.text(f"{name}{label}{host} {times}{_PHASES.get(diagnosis.incident.phase, '')}{open_end}")
    )


def _systemd(diagnosis: Diagnosis, fence: Fence) -> str:
    invocation = diagnosis.incident.invocation
    parts = []
    if invocation.state != "unknown":
        parts.append(invocation.state)
    if invocation.result:
        parts.append(f"result {invocation.result}")
    if invocation.restarts is not None:
        parts.append(f"restart counter at {invocation.restarts}")
    ended = f"; last sign of life {invocation.ended}" if invocation.ended else ""
    return _line(fence.text(f"systemd: {', '.join(parts)}{ended}")) if parts else ""


def _began(diagnosis: Diagnosis, fence: Fence) -> str:
    """On whom several crashes began: a fault that wanders is no GPU's, one that stays on a rank may well be."""
    counts = Counter(_line(fence.text(each.process)) or "a process" for each in diagnosis.occurrences)
    left_out = diagnosis.repeats - len(diagnosis.occurrences)
    more = f"; {left_out} crashes in between not counted" if left_out > 0 else ""
    if len(counts) > 1:
        if counts.total() == len(counts):
            return f"on {_some(list(counts))} (once each){more}"
        often = [f"{who} ({_count(times, 'time')})" for who, times in counts.most_common()]
        return f"on {_some(often)}{more}"
    if diagnosis.repeats < 3 or not counts or not _may_be_hardware(diagnosis):
        return ""
    return f"on {next(iter(counts))} each time and on no other rank: its GPU or its node may be at fault{more}"


def _may_be_hardware(diagnosis: Diagnosis) -> bool:
    """Whether one of several ranks alone had the fault, and it is of a kind that hardware can cause."""
    root, match = diagnosis.verdict.root, diagnosis.match
    alone = all(finding.role != "observer" for finding in diagnosis.verdict.findings)
    possible = match is None or match.signature.category.startswith(_HARDWARE)
    return root is not None and bool(root.process.rank) and alone and possible and _has_ranks(diagnosis)


def _has_ranks(diagnosis: Diagnosis) -> bool:
    """Whether the server has more than one rank."""
    ranks = {event.process.label for event in diagnosis.incident.events if event.process.rank}
    sizes = (diagnosis.incident.invocation.server_args.get(name) for name in ("tp_size", "dp_size", "pp_size"))
    return len(ranks) > 1 or any(isinstance(size, int) and size > 1 for size in sizes)


def _some(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


# --- events ---------------------------------------------------------------------------------------


def lines_of(span: Span) -> str:
    """The lines of a span as people say it: ``line 5``, ``lines 5-9``."""
    return f"line {span.first}" if span.first == span.last else f"lines {span.first}-{span.last}"


def _who(event: Event, fence: Fence) -> str:
    return _line(fence.text(event.process.label)) or "a process"


def _root(diagnosis: Diagnosis, fence: Fence) -> Root | None:
    event = diagnosis.verdict.root
    if event is None:
        return None
    process = event.process
    details: list[str] = [process.role] if process.role not in ("unknown", process.label) else []
    if process.pid is not None:
        details.append(f"pid {process.pid}")
    about = f" ({', '.join(details)})" if details else ""
    time = f", {_line(fence.text(event.time))}" if event.time else ""
    return Root(
        evidence=diagnosis.verdict.root_role == "earliest-evidence",
        who=f"{_who(event, fence)}{about}",
        where=f"{lines_of(event.span)}{time}",
        message=_message(event, fence),
        origin=_origin(event, fence),
        frame=_frame(event, fence),
        reason=_line(fence.text(diagnosis.verdict.reason)),
    )


def _message(event: Event, fence: Fence) -> str:
    if isinstance(event, Traceback) and event.chain:
        last = event.chain[-1]
        text = f"{last.type}: {last.message}" if last.message else last.type
        return fence.text(text or event.message or event.header)
    return fence.text(event.message)


def _origin(event: Event, fence: Fence) -> str:
    """The oldest exception of a chain, if the last one did not come alone."""
    if not isinstance(event, Traceback) or len(event.chain) < 2:
        return ""
    first = event.chain[0]
    return _line(fence.text(f"{first.type}: {first.message}" if first.message else first.type))


def _frame(event: Event, fence: Fence) -> str:
    """The innermost frame of an engine's own code, else the innermost of all."""
    frames: Sequence[Frame] = ()
    if isinstance(event, Traceback) and event.chain:
        frames = event.chain[-1].frames[::-1]
    elif isinstance(event, FatalError):
        frames = event.frames  # faulthandler prints the newest first
    if not frames:
        return ""
    frame = next((each for each in frames if each.in_app), frames[0])
    place = "/".join(frame.filename.replace("\\", "/").split("/")[-4:])
    number = "" if frame.lineno is None else f":{frame.lineno}"
    function = f" in {frame.function}" if frame.function else ""
    return _line(fence.text(f"{place}{number}{function}"))


def _followers(diagnosis: Diagnosis, fence: Fence) -> tuple[tuple[str, str], ...]:
    """What followed, grouped by reason: four rows instead of forty."""
    groups: dict[str, list[str]] = {}
    for finding in diagnosis.verdict.findings:
        if finding.role in ("cascade", "teardown", "unknown"):
            groups.setdefault(_line(fence.text(finding.reason)), []).append(_who(finding.event, fence))
    return tuple((counted(labels), reason) for reason, labels in groups.items())


def counted(labels: Sequence[str]) -> str:
    """Labels, each once; how many events, if there are more than labels.

    >>> counted(["TP0", "TP1", "TP0"])
    'TP0, TP1 (3 events)'
    """
    names = list(dict.fromkeys(labels))
    more = f" (and {len(names) - 8} more)" if len(names) > 8 else ""
    events = f" ({len(labels)} events)" if len(labels) > len(names) else ""
    return f"{', '.join(names[:8])}{more}{events}"


# --- lines of no event ----------------------------------------------------------------------------


def _lost(diagnosis: Diagnosis) -> str:
    pieces = diagnosis.unread.pieces
    return f"{_count(pieces, 'line')} of the crash could not be read (--verbose shows them)" if pieces else ""


def _unread(diagnosis: Diagnosis, fence: Fence) -> tuple[str, ...]:
    """How many lines there are, then each: a piece of a stack is marked, for it is what was lost."""
    unread = diagnosis.unread
    if not unread.count:
        return ()
    verb = "belongs" if unread.count == 1 else "belong"
    head = f"{_count(unread.count, 'line')} inside the crash {verb} to no event"
    if unread.pieces:
        head += f"; {unread.pieces:,} of them (marked !) could not be read"
    if len(unread.lines) < unread.count:
        head += f"; {len(unread.lines):,} of them {'is' if len(unread.lines) == 1 else 'are'} shown"
    rows = (
        f"{'!' if line.piece else ' '} {lines_of(line.span)}, {_line(fence.text(line.process)) or 'a process'}: "
        f"{' '.join(fence.text(line.text).expandtabs(4).splitlines())}"  # its indentation tells its part
        for line in unread.lines
    )
    return (head, *rows)


# --- remediations ---------------------------------------------------------------------------------


def _cure(remediation: Remediation, match: Match | None, fence: Fence) -> Cure:
    def say(texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(_line(fence.filled(text, match)) for text in texts)

    title, rationale, side_effects = say((remediation.title, remediation.rationale, remediation.side_effects))
    return Cure(
        title=title,
        applicability=_APPLICABILITY.get(remediation.applicability, remediation.applicability),
        changes=say(_change(change) for change in remediation.changes),
        steps=say(remediation.steps),
        rationale=rationale,
        side_effects=side_effects,
        references=say(remediation.references),
        patch=fence.shown_patch(remediation.patch or ""),
    )


def _change(change: Change) -> str:
    old, value = change.old, change.value
    if change.op in ("set-flag", "set-env") and old is not None and value is not None:
        return f"{change.name}: {old} -> {value}"
    if change.op == "set-flag":
        return f"add {change.name}" + (f" {value}" if value is not None else "")
    if change.op == "set-env":
        return f"set {change.name}={value or ''}"
    if change.op in ("remove-flag", "unset-env"):
        return f"remove {change.name}" + (f" (now {old})" if old is not None else "")
    words = {"require-version": "use ", "install": "install ", "start-service": "start "}
    version = f" {value}" if value else ""
    had = f" (now {old})" if old else ""
    return f"{words.get(change.op, '')}{change.name}{version}{had}"


# --- what was read --------------------------------------------------------------------------------


def read_line(source: Source) -> str:
    """What was read, in one line."""
    fence = Fence()
    name = "standard input" if source.name == "-" else _line(fence.text(source.name, 200))
    formats = f": {', '.join(source.formats)}" if source.formats else ""
    return f"{_count(source.lines, 'line')} ({_count(source.bytes, 'byte')}) from {name}{formats}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def gap_line(gap: Gap) -> str:
    """One gap, in one line."""
    times = f" ({gap.count} times)" if gap.count > 1 else ""
    return _line(Fence().text(f"{lines_of(gap.span)}: {gap.kind}{times}: {gap.note}"))


def nothing_crashed(source: Source) -> str:
    """The whole answer for a log without a crash, in one line."""
    gaps = f"; {_count(len(source.gaps), 'gap')}: {gap_line(source.gaps[0])}" if source.gaps else ""
    return f"Nothing crashed in {read_line(source)}{gaps}"


def summary(diagnosis: Diagnosis) -> str:
    """A diagnosis that is not the answer, in one line."""
    story = tell(diagnosis)
    times = f" (x{diagnosis.repeats})" if diagnosis.repeats > 1 else ""
    message = _line(story.root.message) if story.root else "no event could be read"
    where = f"{lines_of(diagnosis.incident.span)}{times}: "
    who = f"{story.root.who.split(' (')[0]}: " if story.root else ""
    return where + who + (story.title if story.known else shorten(message, 300))
