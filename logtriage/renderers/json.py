"""A report goes in; the published JSON document comes out (``schema/report-v1.schema.json``).

Law: the same report gives the same bytes; keys and entries keep their order.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Final

from logtriage._version import VERSION
from logtriage.model import (
    Change,
    Diagnosis,
    Event,
    ExceptionLink,
    Finding,
    Frame,
    Gap,
    Invocation,
    Match,
    Occurrence,
    Process,
    Remediation,
    Report,
    Source,
    Span,
    Traceback,
    Unread,
)
from logtriage.renderers.fence import Fence, shorten

__all__ = ["MAX_FRAMES", "SCHEMA_VERSION", "diagnosis_to_dict", "dumps", "render", "report_to_dict"]

SCHEMA_VERSION: Final = "1.0"
# A runaway recursion has thousands of equal frames; its two ends tell the story.
MAX_FRAMES: Final = 200

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def render(report: Report, *, color: bool = False, verbose: bool = False) -> str:  # noqa: ARG001  as every renderer
    """The report as one JSON document, indented, with a line break at its end."""
    return dumps(report_to_dict(report), indent=1) + "\n"


def dumps(document: object, *, indent: int | None = None) -> str:
    """Serialise to JSON that any UTF-8 stream can carry.

    A patch of a file that is no UTF-8 holds lone surrogates; escaped they survive the way out and in.
    """
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=indent)
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def report_to_dict(report: Report) -> dict[str, object]:
    """The report as plain values, exactly as the published schema describes it.

    Args:
        report: What triage found.

    Returns:
        Dictionaries, lists, strings, numbers, booleans and ``None``, ready for :func:`json.dumps`.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "logtriage_version": VERSION,
        "database_version": report.database_version,
        "source": _source(report.source),
        "headline": report.headline,
        "diagnoses": [diagnosis_to_dict(diagnosis) for diagnosis in report.diagnoses],
    }


def diagnosis_to_dict(diagnosis: Diagnosis) -> dict[str, object]:
    """One diagnosis as plain values.

    Args:
        diagnosis: One of ``report.diagnoses``.

    Returns:
        The entry of ``diagnoses`` in the published schema.
    """
    fence = Fence()
    verdict, match = diagnosis.verdict, diagnosis.match
    root = verdict.root
    shown: dict[str, object] = {
        "fingerprint": diagnosis.fingerprint,
        "repeats": diagnosis.repeats,
        "final": diagnosis.final,
        "invocation": _invocation(diagnosis.incident.invocation, fence),
        "phase": diagnosis.incident.phase,
        "root": None
        if root is None
        else {"role": verdict.root_role, "event": _event(root, fence), "reason": fence.text(verdict.reason)},
        "findings": [_finding(finding, fence) for finding in verdict.findings],
        "match": None if match is None else _match(match, fence),
        "confidence": diagnosis.confidence,
        "alternatives": [
            {"signature": other.signature, "why_not": fence.text(other.why_not)}
            for other in diagnosis.alternatives
        ],
        "remediations": [_remediation(each, match, fence) for each in diagnosis.remediations],
        "next_steps": [fence.filled(step, match) for step in diagnosis.next_steps],
        "occurrences": [_occurrence(each, fence) for each in diagnosis.occurrences],
        "unread": _unread(diagnosis.unread, fence),
    }
    shown["redacted"] = [{"kind": each.kind, "count": each.count} for each in fence.redacted(diagnosis)]
    return shown


def _source(source: Source) -> dict[str, object]:
    fence = Fence()
    return {
        "name": fence.text(source.name),
        "formats": [fence.text(name) for name in source.formats],
        "lines": source.lines,
        "bytes": source.bytes,
        "gaps": [_gap(gap, fence) for gap in source.gaps],
    }


def _gap(gap: Gap, fence: Fence) -> dict[str, object]:
    return {"kind": gap.kind, "span": _span(gap.span), "note": fence.text(gap.note), "count": gap.count}


def _span(span: Span) -> list[int]:
    return [span.first, span.last]


def _invocation(invocation: Invocation, fence: Fence) -> dict[str, object]:
    return {
        "unit": fence.optional(invocation.unit),
        "id": fence.optional(invocation.id),
        "host": fence.optional(invocation.host),
        "started": fence.optional(invocation.started),
        "ended": fence.optional(invocation.ended),
        "state": fence.text(invocation.state),
        "result": fence.optional(invocation.result),
        "restarts": invocation.restarts,
        "engine": fence.optional(invocation.engine),
        "engine_version": fence.optional(invocation.engine_version),
        "argv": None if invocation.argv is None else fence.arguments(invocation.argv),
        "server_args": {name: _plain(value) for name, value in fence.mapping(invocation.server_args).items()},
    }


def _plain(value: object) -> object:
    """A value that JSON knows: arguments are read from Python literals, which know more."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return shorten(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, Sequence):
        return [_plain(each) for each in value]
    return shorten(str(value))


def _process(process: Process, fence: Fence) -> dict[str, object]:
    return {
        "label": fence.text(process.label),
        "role": process.role,
        "rank": dict(process.rank.said()),
        "pid": process.pid,
        "host": fence.optional(process.host),
    }


def _event(event: Event, fence: Fence) -> dict[str, object]:
    return {
        "kind": event.kind,
        "process": _process(event.process, fence),
        "span": _span(event.span),
        "time": fence.optional(event.time),
        "message": fence.text(event.message),
        "exception": _exception(event, fence) if isinstance(event, Traceback) and event.chain else None,
    }


def _exception(event: Traceback, fence: Fence) -> dict[str, object]:
    """The exception the process died of or logged, with those that led to it, oldest first."""
    *earlier, last = event.chain
    return {
        **_link(last, fence),
        "chain": [{"relation": _relation(link), **_link(link, fence)} for link in earlier],
        "complete": event.complete,
    }


def _relation(link: ExceptionLink) -> str:
    # An exception quoted from another process reaches this one as the direct cause.
    return "cause" if link.relation in ("cause", "remote") else "context"


def _link(link: ExceptionLink, fence: Fence) -> dict[str, object]:
    return {
        "type": fence.text(link.type),
        "message": fence.text(link.message),
        "frames": _frames(link.frames, fence),
    }


def _frames(frames: Sequence[Frame], fence: Fence) -> list[dict[str, object]]:
    half = MAX_FRAMES // 2
    if len(frames) > MAX_FRAMES:
        left_out = Frame(filename="…", lineno=None, function=f"[{len(frames) - MAX_FRAMES} frames left out]")
        frames = (*frames[:half], left_out, *frames[-half:])
    return [
        {
            "filename": fence.text(frame.filename),
            "lineno": frame.lineno,
            "function": fence.text(frame.function),
            "line": fence.text(frame.line),
            "in_app": frame.in_app,
        }
        for frame in frames
    ]


def _finding(finding: Finding, fence: Fence) -> dict[str, object]:
    return {
        "role": finding.role,
        "reason": fence.text(finding.reason),
        "event": _event(finding.event, fence),
    }


def _match(match: Match, fence: Fence) -> dict[str, object]:
    signature = match.signature
    return {
        "signature": signature.id,
        "revision": signature.revision,
        "category": signature.category,
        "title": fence.filled(signature.title, match),
        "cause": fence.filled(signature.cause, match),
        "captures": {name: fence.text(text) for name, text in match.captures},
    }


def _occurrence(occurrence: Occurrence, fence: Fence) -> dict[str, object]:
    return {
        "span": _span(occurrence.span),
        "process": fence.text(occurrence.process),
        "time": fence.optional(occurrence.time),
        "restarts": occurrence.restarts,
    }


def _unread(unread: Unread, fence: Fence) -> dict[str, object]:
    return {
        "count": unread.count,
        "pieces": unread.pieces,
        "lines": [
            {
                "span": _span(line.span),
                "process": fence.text(line.process),
                "piece": line.piece,
                "text": fence.text(line.text),
            }
            for line in unread.lines
        ],
    }


def _change(change: Change, match: Match | None, fence: Fence) -> dict[str, object]:
    return {
        "op": change.op,
        "name": fence.filled(change.name, match),
        "from": fence.optional(change.old),
        "value": None if change.value is None else fence.filled(change.value, match),
    }


def _remediation(remediation: Remediation, match: Match | None, fence: Fence) -> dict[str, object]:
    patch = remediation.patch
    shown = None if patch is None else fence.patch(patch)
    return {
        "title": fence.filled(remediation.title, match),
        "applicability": remediation.applicability,
        "changes": [_change(change, match, fence) for change in remediation.changes],
        "steps": [fence.filled(step, match) for step in remediation.steps],
        "rationale": fence.filled(remediation.rationale, match),
        "side_effects": fence.filled(remediation.side_effects, match),
        "references": [fence.text(reference) for reference in remediation.references],
        "patch": shown,
        # The lines of the file held a secret: this text shows the change but does not apply.
        "patch_redacted": shown != patch,
    }
