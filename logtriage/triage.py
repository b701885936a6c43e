"""Bytes or records in, diagnoses out: the only module that knows all stages and their order.

The law: the report depends on the input alone, never on the cut of its chunks.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Final

import attrs

from logtriage.consequences import is_at_work, is_settled, is_stop
from logtriage.database import Database, load_database
from logtriage.demux import Demux
from logtriage.diagnosis import diagnose, headline
from logtriage.events import EventReader
from logtriage.formats import FORMATS, JournalExport, Unwrapper
from logtriage.incidents import IncidentAssembler
from logtriage.launch import parse_server_args
from logtriage.matching import Index, match
from logtriage.model import (
    Diagnosis,
    Event,
    Gap,
    Incident,
    Invocation,
    Line,
    LoggedError,
    Record,
    Report,
    Source,
    Span,
)
from logtriage.redaction import clean, redact
from logtriage.repeats import fold, occurrence
from logtriage.rootcause import judge
from logtriage.scan import Scanner
from logtriage.sources import open_source
from logtriage.unread import UnreadLines
from logtriage.weight import weigh

__all__ = ["Limits", "Triage", "triage"]

_EXPORT: Final = b"__CURSOR="
_EXCERPT_BYTES: Final = 16 * 1024
_EXCERPT_LINES: Final = 20
# What stands in a field of a request, or of the answer that refuses one, a user said, not the server.
_PAYLOAD: Final = re.compile(
    r"\b(?:prompt|text|inputs?|content|body|query|question|completion|output)[\"']?\s{0,4}[=:]\s{0,4}[bfru]?[\"']"
    r"|\b4\d\d (?:Bad Request|Unprocessable)",
    re.IGNORECASE,
)
_WITNESSED: Final = ("driver.", "kernel.", "systemd.")
_DAEMONS: Final = frozenset(("containerd", "dockerd", "kubelet", "nv-fabricmanager", "nvidia-persistenced"))
_SAMPLE_BYTES: Final = 4 * 1024
_WEIGHT: Final = 1 << 25  # bytes of events of all diagnoses together, roughly; later ones keep few
_FEW: Final = 20


@attrs.frozen
class Limits:
    """How much is kept, however long the stream.

    Attributes:
        diagnoses: Different faults kept; later ones are counted in a gap.
    """

    diagnoses: int = 1_000


class Triage:
    """Read one log, in pieces of any size, and tell what crashed.

    Args:
        database: The known faults; the built-in ones if ``None``.
        limits: How much is kept.
        name: The name of the input in the report.
    """

    def __init__(self, database: Database | None = None, limits: Limits | None = None, name: str = "-") -> None:
        self._database = database or load_database()
        self._limits = limits or Limits()
        self._name = name
        self._index = Index(self._database.signatures)
        self._scanner = Scanner()
        self._unwrapper = Unwrapper(FORMATS, clean)
        self._export: JournalExport | None = None
        self._head: bytes | None = b""  # until there is enough to tell an export from lines
        self._demux = Demux(self._purify)
        self._reader = EventReader()
        self._unread = UnreadLines()
        self._assembler = IncidentAssembler(parse_server_args)
        self._redacted: Counter[str] = Counter()
        self._found: dict[tuple[str | None, str], Diagnosis] = {}
        self._records = 0
        self._unkept = 0
        self._weight = 0  # of the events in the diagnoses
        self._thinned = 0  # events that were left out of diagnoses for it
        self._sample = b""
        self._excerpt: bytes | None = b""  # the whole input as long as it is a few lines
        self._settled: set[int] = set()  # of its first lines those of which no more is to be said
        self._stopped = False  # somebody asked it to end
        self._at_work = 0  # the last line on which an engine said that it serves

    def feed(self, chunk: bytes) -> Sequence[Diagnosis]:
        """Take the next bytes of the log.

        Args:
            chunk: Any number of bytes, cut anywhere.

        Returns:
            The diagnoses that became known: a provisional one (``final`` is false) when an invocation's
            first trouble is read, the final one when it has ended.
        """
        if len(self._sample) < _SAMPLE_BYTES:
            self._sample += chunk[: _SAMPLE_BYTES - len(self._sample)]
        if self._excerpt is not None:
            fits = len(self._excerpt) + len(chunk) <= _EXCERPT_BYTES
            self._excerpt = self._excerpt + chunk if fits else None
        if self._head is not None:
            self._head += chunk
            if len(self._head) < len(_EXPORT) and _EXPORT.startswith(self._head):
                return []
            chunk, self._head = self._head, None
            if chunk.startswith(_EXPORT):
                self._export = JournalExport()
        if self._export is not None:
            return self._records_in(self._export.feed(chunk))
        return self._records_in(self._unwrapper.feed(self._scanner.feed(chunk)))

    def feed_record(self, record: Record) -> Sequence[Diagnosis]:
        """Take a record from a collector that was read elsewhere, such as a binary journal.

        Returns:
            As :meth:`feed`.
        """
        self._records += 1
        head, *more = record.text.split("\n")
        parts = [
            attrs.evolve(record, text=head),
            *(attrs.evolve(record, text=t, continued=True) for t in more),
        ]
        return self._records_in(parts)

    def close(self) -> Sequence[Diagnosis]:
        """End the log; return the diagnoses of what was still open."""
        out: list[Diagnosis] = []
        if self._head:
            rest, self._head = self._head, None
            out += self._records_in(self._unwrapper.feed(self._scanner.feed(rest)))
        if self._export is not None:
            out += self._records_in(self._export.close())
        else:
            out += self._records_in(self._unwrapper.feed(self._scanner.close()))
        out += self._records_in(self._unwrapper.close())
        for line in self._demux.close():
            out += self._line_in(line)
        for event in self._reader.close():
            self._note(event)
            out += self._incidents_in(self._assembler.feed(event))
        out += self._incidents_in(self._assembler.close())
        self._unread = UnreadLines()  # what an excerpt is answered by is a line that no parser took
        return out if self._found else [*out, *self._incidents_in(self._read_excerpt())]

    def _read_excerpt(self) -> Sequence[Incident]:
        """Somebody pasted the one sentence that matters: no parser knows it, but a signature may."""
        raw = (self._excerpt or b"").removesuffix(b"\n").split(b"\n")  # as the scanner counts them
        if len(raw) > _EXCERPT_LINES or self._export is not None:
            return []
        demux = Demux(self._purify)
        answers: list[Incident] = []
        records = Unwrapper(FORMATS, clean).feed(enumerate(raw, 1))
        lines = [line for record in records for line in demux.feed(record)]
        for line in [*lines, *demux.close()]:
            at = Span(line.line, line.line)
            said = _PAYLOAD.split(line.text, 1)[0]
            event = LoggedError(process=line.process, span=at, message=said, basis="guess", origin="excerpt")
            incident = Incident(Invocation(), (event,), "unknown", at)
            if line.line in self._settled or line.line < self._at_work or not said.strip():
                continue
            if found := match(event, incident, self._index)[0]:
                if found[0].signature.id.startswith(_WITNESSED) and not _is_witness(line):
                    continue  # the collector says that neither the kernel nor a daemon of the host said it
                if found[0].signature.role == "initiating":
                    return [incident]
                if not self._stopped:  # who was asked to end does end
                    answers.append(incident)
        return answers[:1]

    def report(self) -> Report:
        """What is known so far; the whole answer after :meth:`close`."""
        diagnoses = tuple(sorted(self._found.values(), key=lambda found: found.incident.span.first))
        return Report(self._source(), diagnoses, headline(diagnoses), self._database.version)

    def _purify(self, text: str) -> str:
        safe, counts = redact(clean(text))
        self._redacted.update(counts)
        return safe

    def _records_in(self, records: Iterable[Record]) -> list[Diagnosis]:
        if self._export is not None:
            records = [
                part
                for record in records
                for part in [
                    attrs.evolve(record, text=text, continued=i > 0) for i, text in enumerate(record.text.split("\n"))
                ]
            ]
        # One record after the other to the very end, or the cut of the chunks would show in what is counted.
        return [found for record in records for line in self._demux.feed(record) for found in self._line_in(line)]

    def _line_in(self, line: Line) -> list[Diagnosis]:
        out: list[Diagnosis] = []
        events = self._reader.feed(line)
        if line not in self._reader.unread:
            self._unread.read(line)
        for lost in self._reader.unread:
            self._unread.lose(lost)
        for event in events:
            self._note(event)
            out += self._incidents_in(self._assembler.feed(event))
            if event.kind != "lifecycle":
                out += [found for each in self._assembler.provisional() if (found := self._diagnose(each))]
        return out

    def _note(self, event: Event) -> None:
        """Remember of the first lines which ones must not be read as a sentence of its own."""
        self._stopped = self._stopped or is_stop(event)
        if is_at_work(event):
            self._at_work = event.span.last
        if is_settled(event) and event.span.first <= _EXCERPT_LINES:
            self._settled.update(range(event.span.first, min(event.span.last, _EXCERPT_LINES) + 1))

    def _incidents_in(self, incidents: Iterable[Incident]) -> list[Diagnosis]:
        out: list[Diagnosis] = []
        for incident in incidents:
            found = self._diagnose(incident)
            self._unread.forget(incident)
            self._redacted.clear()
            if found is not None:
                out.append(self._keep(found))
        return out

    def _diagnose(self, incident: Incident) -> Diagnosis | None:
        verdict = judge(incident)
        if verdict is None:
            return None
        if incident.invocation.engine is None and self._demux.engines:
            incident = attrs.evolve(
                incident, invocation=attrs.evolve(incident.invocation, engine=self._demux.engines[0])
            )
        return attrs.evolve(
            diagnose(incident, verdict, self._index, self._redacted),
            occurrences=(occurrence(incident, verdict.root),),
            unread=self._unread.within(incident),
        )

    def _keep(self, found: Diagnosis) -> Diagnosis:
        """Fold a crash into the one before that is the same."""
        key = (found.incident.invocation.unit, found.fingerprint)
        before = self._found.get(key)
        if before is not None:
            found = fold(before, found)
        elif len(self._found) >= self._limits.diagnoses:
            self._unkept += 1
            return found
        else:
            found = self._thin(found)
        self._found[key] = found
        return found

    def _thin(self, found: Diagnosis) -> Diagnosis:
        """A new diagnosis with few events beside its root, once those before it hold very many."""
        events = found.incident.events
        self._weight += sum(map(weigh, events))
        if self._weight <= _WEIGHT or len(events) <= _FEW:
            return found
        self._weight -= sum(map(weigh, events[_FEW:]))
        self._thinned += len(events) - _FEW
        incident = attrs.evolve(found.incident, events=events[:_FEW])
        verdict = attrs.evolve(found.verdict, findings=found.verdict.findings[:_FEW])
        return attrs.evolve(found, incident=incident, verdict=verdict)

    def _source(self) -> Source:
        lines, size = self._scanner.lines, self._scanner.bytes
        formats = [*self._unwrapper.seen, *self._demux.engines]
        gaps = list(self._unwrapper.gaps)
        if self._export is not None:
            lines, size = self._export.lines, self._export.bytes
            formats.insert(0, self._export.name)
            gaps += self._export.gaps
        if self._records:
            lines += self._records
            formats.insert(0, "journal")
        gaps += self._own_gaps(lines, size)
        return Source(self._name, tuple(dict.fromkeys(formats)), lines, size, tuple(gaps))

    def _own_gaps(self, lines: int, size: int) -> list[Gap]:
        gaps = []
        whole = Span(1, max(lines, 1))
        if self._scanner.cut_count:
            first = self._scanner.cut_lines[0]
            note = "lines longer than 1 MiB: only their head and tail were read"
            gaps.append(Gap("truncated-line", Span(first, self._scanner.cut_lines[-1]), note, self._scanner.cut_count))
        if not size and not self._records:
            gaps.append(Gap("empty", whole, "the input is empty"))
        elif self._looks_binary:
            gaps.append(Gap("binary", whole, "the input does not look like text; nothing in it could be read"))
        if self._reader.failures:
            note = f"internal error: {self._reader.failure}; the answer may lack a part"
            gaps.append(Gap("internal-error", self._reader.failed_on or whole, note, self._reader.failures))
        if dropped := self._assembler.dropped + self._thinned:
            gaps.append(Gap("overflow", whole, "events of invocations that had too many", dropped))
        if self._unkept:
            gaps.append(Gap("overflow", whole, "different faults beyond the limit", self._unkept))
        return gaps

    @property
    def _looks_binary(self) -> bool:
        """Whether nothing was recognised, and the beginning of the input is hardly text."""
        if self._found or self._unwrapper.seen or self._demux.engines or not self._sample:
            return False
        text = self._sample.decode("utf-8", "replace")
        strange = sum(
            not (character.isprintable() or character in "\t\r\n\x1b") or character == "\ufffd" for character in text
        )
        return strange > len(text) * 0.3


def _is_witness(line: Line) -> bool:
    """Whether it was not the server itself that said a line, as far as the collector tells who did."""
    return not line.record.ident or line.process.label in ("kernel", "systemd") or line.record.ident in _DAEMONS


def triage(
    stream: IO[bytes] | Iterable[bytes] | str | os.PathLike[str],
    *,
    database: Database | None = None,
    limits: Limits | None = None,
) -> Report:
    """Read a whole log and tell what crashed.

    Args:
        stream: A path (also of a compressed file or a binary journal), anything with ``read()``, or an
            iterable of bytes.
        database: The known faults; the built-in ones if ``None``.
        limits: How much is kept.

    Returns:
        The report.

    Raises:
        SourceError: A path cannot be opened or read.
    """
    path = os.fspath(stream) if isinstance(stream, (str, os.PathLike)) else None
    reading = Triage(database, limits, name=path or "-")
    if path is not None:
        for piece in open_source(str(Path(path))):
            if isinstance(piece, Record):
                reading.feed_record(piece)
            else:
                reading.feed(piece)
    else:
        for chunk in _chunks(stream):  # type: ignore[arg-type]
            reading.feed(chunk)
    reading.close()
    return reading.report()


def _chunks(stream: IO[bytes] | Iterable[bytes]) -> Iterable[bytes]:
    read = getattr(stream, "read", None)
    return iter(lambda: read(1 << 17), b"") if read is not None else stream
