"""Ordinary uses of the public API, which only the type checker runs: they must go on to type-check."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import logtriage
from logtriage import Database, Diagnosis, Limits, Patch, Record, Remediation, Report, Triage
from logtriage.model import (
    CollectiveTimeout,
    Event,
    FatalError,
    KernelReport,
    Lifecycle,
    LoggedError,
    NativeAbort,
    ProcessExit,
    Traceback,
    WatchdogTimeout,
)

Confidence = Literal["certain", "likely", "possible"]


def reads_anything() -> list[Report]:
    def pieces() -> Iterator[bytes]:
        yield b"ValueError: "
        yield b"x\n"

    with Path("server.log").open("rb") as stream, gzip.open("server.log.gz") as packed:
        return [
            logtriage.triage("server.log"),
            logtriage.triage(Path("system.journal")),
            logtriage.triage(stream),
            logtriage.triage(packed),
            logtriage.triage(sys.stdin.buffer),
            logtriage.triage(pieces()),
            logtriage.triage(
                [b"one line\n"], database=logtriage.load_database(), limits=Limits(diagnoses=10)
            ),
        ]


def follows_a_stream(chunks: Iterator[bytes], records: Iterator[Record]) -> Report:
    reading = Triage(database=None, limits=Limits(), name="journal of gpu01")
    for chunk in chunks:
        for found in reading.feed(chunk):
            print("first word" if not found.final else "last word", found.fingerprint)
    for record in records:
        told: Sequence[Diagnosis] = reading.feed_record(record)
        print(len(told))
    reading.feed_record(Record("ValueError: x", 1, unit="sglang.service", pid=17))
    last: Sequence[Diagnosis] = reading.close()
    print(last[-1].final if last else None)
    return reading.report()


def knows_more(site: Path) -> Database:
    try:
        database = logtriage.load_database(site, "/etc/logtriage/signatures")
    except logtriage.DatabaseError as error:
        for defect in error.defects:
            print(defect.location.path, defect.location.key, defect.reason)
        return logtriage.load_database()
    print(database.version, database.digest, [signature.id for signature in database.signatures])
    return database


def reads_the_answer(report: Report) -> str:
    for gap in report.source.gaps:
        print(gap.kind, gap.span.first, gap.span.last, gap.count, gap.note)
    if report.headline is None:
        return f"nothing crashed in {report.source.lines} lines of {report.source.name}"
    found = report.diagnoses[report.headline]
    confidence: Confidence = found.confidence
    print(confidence)
    invocation = found.incident.invocation
    print(invocation.unit, invocation.state, invocation.restarts, invocation.server_args.get("tp_size"))
    print(found.fingerprint, found.repeats, found.incident.phase, found.verdict.reason)
    for finding in found.verdict.findings:
        print(finding.role, finding.event.process.label, finding.event.span.first, finding.reason)
    for other in found.alternatives:
        print(other.signature, other.why_not)
    for removed in found.redacted:
        print(removed.kind, removed.count)
    if found.match is None:
        return "unknown: " + "; ".join(found.next_steps)
    signature = found.match.signature
    print(dict(found.match.captures).get("backend"), signature.category, signature.revision)
    return f"{signature.id}: {signature.title}"


def proposes_a_patch(report: Report, unit: Path) -> str:
    if report.headline is None:
        return ""
    for remediation in report.diagnoses[report.headline].remediations:
        if remediation.applicability == "display-only":
            continue
        try:
            patch: Patch = logtriage.propose_patch(remediation, unit.read_text(), str(unit))
        except logtriage.PatchError as error:
            print(error.reason, error.location)
            continue
        print(patch.kind, patch.creates, *patch.steps)
        return patch.diff()
    return ""


def makes_a_drop_in(remediation: Remediation, text: str) -> Patch:
    for change in remediation.changes:
        print(change.op, change.name, change.old, change.value)
    return logtriage.propose_patch(
        remediation, text, "/etc/systemd/system/x.service", target="systemd-drop-in"
    )


def shows_it(report: Report) -> None:
    print(logtriage.render(report, color=sys.stdout.isatty()))
    for name in ("text", "json", "jsonl", "markdown"):
        text: str = logtriage.render(report, name)
        print(text)
    print(logtriage.render(report, format="markdown"), logtriage.__version__)


def tells_events_apart(event: Event) -> str:
    match event:
        case Traceback(chain=(*_, last), header=header):
            frame = last.frames[-1] if last.frames else None
            return f"{header} {last.type}: {last.message} in {frame.function if frame else '?'}"
        case FatalError(reason=reason, frames=frames):
            return f"{reason} in {len(frames)} frames"
        case NativeAbort(origin=origin):
            return origin
        case ProcessExit(victim=victim, exit_code=code):
            return f"{victim.label} ended with {code}"
        case KernelReport(report="xid", code=int(code), device=device):
            return f"Xid {code} on {device}"
        case CollectiveTimeout(operation=operation) | WatchdogTimeout(message=operation):
            return operation
        case Lifecycle(action=action, detail=detail):
            return f"{action} {detail}"
        case LoggedError(type=name, repeats=repeats):
            return f"{name}, {repeats} times"
    return f"{event.kind} of {event.process.rank.tp}, {event.process.pid}: {event.message}"


def handles_what_is_raised() -> Report | None:
    try:
        return logtriage.triage("missing.log")
    except logtriage.SourceError as error:
        print(error)
    except logtriage.LogtriageError:
        raise
    return None
