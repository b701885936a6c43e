"""The answer: a report with one diagnosis for each fault, and the patch that mends it."""

from __future__ import annotations

from typing import Literal

import attrs

from logtriage.model.incident import Incident, Verdict
from logtriage.model.signature import Confidence, Match, Remediation
from logtriage.model.text import Gap, Span

__all__ = [
    "Alternative",
    "Diagnosis",
    "Occurrence",
    "Patch",
    "Redaction",
    "Report",
    "Source",
    "Unread",
    "UnreadLine",
]


@attrs.frozen
class Alternative:
    """A signature that nearly was the answer.

    Attributes:
        signature: Its id.
        why_not: Why it is not.
    """

    signature: str
    why_not: str


@attrs.frozen
class Redaction:
    """Secrets that were removed.

    Attributes:
        kind: ``api-key``, ``token``, ``password``, ``url-userinfo``.
        count: How many.
    """

    kind: str
    count: int


@attrs.frozen
class Occurrence:
    """One of the crashes that are told as one.

    Attributes:
        span: The lines of its root event; of the incident if it has no root.
        process: The label of the process it began on, or ``""``.
        time: The time of its root event as written, or ``None``.
        restarts: systemd's restart counter then; ``None`` if not said.
    """

    span: Span
    process: str = ""
    time: str | None = None
    restarts: int | None = None


@attrs.frozen
class UnreadLine:
    """A line inside an incident that belongs to none of its events.

    Attributes:
        span: Where it stands.
        process: The label of the process that wrote it, or ``""``.
        piece: It has the shape of a part of a stack: a header, a frame, source code below one, carets, the
            line of an exception, or what is left of one of these.
        text: Its beginning, without secrets.
    """

    span: Span
    process: str
    piece: bool
    text: str


@attrs.frozen
class Unread:
    """The lines inside an incident that belong to none of its events.

    Attributes:
        count: How many there are; blank ones and those that healthy servers print all the time are none.
        pieces: How many of them have the shape of a part of a stack: these were lost.
        lines: Some of them, in the order of the input.
    """

    count: int = 0
    pieces: int = 0
    lines: tuple[UnreadLine, ...] = ()


@attrs.frozen
class Diagnosis:
    """What ended one invocation, or several in the same way.

    Attributes:
        fingerprint: ``lt1:`` and 16 hex digits; the same fault in another place has the same one.
        incident: The first incident of its kind, with the invocation as the last one left it.
        verdict: The root event and the part of every other one.
        match: The signature, or ``None``: the crash is then unknown.
        confidence: Ordinal, never an invented decimal.
        alternatives: What else was considered.
        remediations: Best first; with patches if a file was given.
        next_steps: What to collect or read when the log does not suffice.
        redacted: Secrets removed from what is shown here.
        repeats: Incidents folded into this diagnosis.
        occurrences: Each of these incidents, in the order of time; the middle of very many is left out.
        unread: The lines inside them that belong to no event.
        final: False for the provisional diagnosis of an open stream.
    """

    fingerprint: str
    incident: Incident
    verdict: Verdict
    match: Match | None
    confidence: Confidence
    alternatives: tuple[Alternative, ...] = ()
    remediations: tuple[Remediation, ...] = ()
    next_steps: tuple[str, ...] = ()
    redacted: tuple[Redaction, ...] = ()
    repeats: int = 1
    final: bool = True
    occurrences: tuple[Occurrence, ...] = ()
    unread: Unread = Unread()


@attrs.frozen
class Source:
    """What was read.

    Attributes:
        name: File name, or ``-`` for standard input.
        formats: Envelopes and engines recognised, in the order they appeared.
        lines: Number of input lines.
        bytes: Number of input bytes.
        gaps: What could not be read.
    """

    name: str = "-"
    formats: tuple[str, ...] = ()
    lines: int = 0
    bytes: int = 0
    gaps: tuple[Gap, ...] = ()


@attrs.frozen
class Report:
    """The whole answer.

    Attributes:
        source: What was read.
        diagnoses: In the order of time.
        headline: Index of the answer in ``diagnoses``; ``None`` when nothing crashed.
        database_version: Version of the signature database.
    """

    source: Source
    diagnoses: tuple[Diagnosis, ...] = ()
    headline: int | None = None
    database_version: str = ""


@attrs.frozen
class Patch:
    """An edit of one file, not yet made.

    Attributes:
        path: The file as the diff should name it.
        before: Its text.
        after: Its text with the changes made.
        kind: What sort of file it is: ``systemd-unit``, ``systemd-drop-in``, ``shell-script``.
        steps: What to do after applying it.
        creates: The diff makes a new file (``before`` is then empty).
        unified: The unified diff, made once with the patch.
    """

    path: str
    before: str
    after: str
    kind: Literal["systemd-unit", "systemd-drop-in", "shell-script"]
    steps: tuple[str, ...] = ()
    creates: bool = False
    unified: str = ""

    def diff(self) -> str:
        """The patch as a unified diff that ``git apply`` and ``patch -p1`` take; ``""`` if nothing changes."""
        return self.unified
