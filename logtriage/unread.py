"""Lines that no parser of events took go in; those inside an incident come out, all counted, few of them kept.

Law: a line counts for an incident between the first and the last line of its events, unless the collector says
that it is of another service.  The kernel's and systemd's lines never count: they are no output of the server.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final

import attrs

from logtriage.model import Incident, Line, Span, Unread, UnreadLine

__all__ = ["MAX_OTHERS", "MAX_PIECES", "MAX_PLACES", "MAX_TEXT", "UnreadLines", "join"]

MAX_PIECES: Final = 200
"""Pieces of a traceback that are kept of one incident: the first and the last of them, as many of each."""

MAX_OTHERS: Final = 100
"""Other lines that are kept of one incident: the last ones, which are the nearest to its end."""

MAX_PLACES: Final = 128
"""Senders whose lines are kept apart; of more, the one that was silent longest is forgotten."""

MAX_TEXT: Final = 200
"""Characters of a line that are kept."""

_MAX_RUNS: Final = 512
_MAX_STREAMS: Final = 1_024
_HEAD: Final = 2_000

# Whole lines of a stack, and what is left of one when another process cuts in.
_PIECE: Final = re.compile(
    r"""
      Traceback\ \(most\ recent\ call\ last\)
    | \bFile\ "[^"]{1,300}(?: ",\ line\ \d | "?,?[ ]?(?:l(?:i(?:ne?)?)?)?[ ]?$ )
    | (?:\bline\ |^(?:ine|ne|e)?\ ?)\d{1,9},\ in\ [\w<>.]{1,100}\s*$
    | ^\s{4,8}(?:assert|await|raise|return)\b
    | ^\s+[~^][~^\s]*$
    | ^\s{0,8}(?:\w{1,60}\.){0,8}[A-Z]?\w{0,80}(?:Error|Exception(?:Group)?|Interrupt|Exit|Timeout)(?::|$)
    | ^(?:During\ handling\ of\ the\ above\ exception|The\ above\ exception\ was\ the\ direct\ cause)
    | ^Process\ [\w:.-]{1,60}:$ | ^Exception\ in\ thread\s
    | Fatal\ Python\ error | ^(?:Current\ thread|Thread)\ 0x | terminate\ called | ^frame\ \#\d
    """,
    re.VERBOSE,
)
_BAR: Final = re.compile(r"\s{0,40}\d{1,3}%\|")

_Place = tuple[str | None, str | None, str | None, str | None]


@attrs.define
class _Run:
    """Unread lines of one sender with none of anybody between them that was taken.

    So no incident begins or ends amid it; but where there are very many, the oldest are joined.
    """

    first: int
    last: int
    epoch: int
    count: int = 0
    pieces: int = 0


@attrs.define
class _Sender:
    """What one sender said in vain since the last incident of it was told."""

    runs: list[_Run] = attrs.field(factory=list)
    early: list[UnreadLine] = attrs.field(factory=list)
    late: deque[UnreadLine] = attrs.field(factory=lambda: deque(maxlen=MAX_PIECES // 2))
    others: deque[UnreadLine] = attrs.field(factory=lambda: deque(maxlen=MAX_OTHERS))
    heard: Span | None = None  # the first and the last line that was taken

    def count(self, line: Line, *, piece: bool, epoch: int) -> None:
        run = self.runs[-1] if self.runs else None
        if run is None or run.epoch != epoch or line.line < run.last:
            run = _Run(line.line, line.line, epoch)
            self.runs.append(run)
        run.last = line.line
        run.count += 1
        run.pieces += piece
        if len(self.runs) > _MAX_RUNS:
            half = _MAX_RUNS // 2
            self.runs[:half] = map(_merged, self.runs[:half:2], self.runs[1:half:2])
        kept = UnreadLine(Span(line.line, line.line), line.process.label, piece, line.text.rstrip()[:MAX_TEXT])
        if not piece:
            self.others.append(kept)
        elif len(self.early) < MAX_PIECES // 2:
            self.early.append(kept)
        else:
            self.late.append(kept)

    def forget(self, last: int) -> None:
        self.runs = [run for run in self.runs if run.first > last]
        self.early = [kept for kept in self.early if kept.span.first > last]
        for queue in (self.late, self.others):
            rest = [kept for kept in queue if kept.span.first > last]
            queue.clear()
            queue.extend(rest)
        if self.heard is not None:
            self.heard = Span(max(self.heard.first, last + 1), self.heard.last) if self.heard.last > last else None


def _merged(run: _Run, other: _Run) -> _Run:
    return _Run(run.first, other.last, other.epoch, run.count + other.count, run.pieces + other.pieces)


class UnreadLines:
    """Keep what no parser took until it is known which incident it stands in.

    Memory is bounded: :data:`MAX_PLACES` senders, of each :data:`MAX_PIECES` and :data:`MAX_OTHERS` lines of
    :data:`MAX_TEXT` characters.
    """

    def __init__(self) -> None:
        self._senders: OrderedDict[_Place, _Sender] = OrderedDict()
        self._streams: OrderedDict[str, tuple[str, bool]] = OrderedDict()  # last text, whether it was a piece
        self._epoch = 0  # counts the lines that were taken: there an incident may begin or end

    def read(self, line: Line) -> None:
        """Take note of a line that a parser took."""
        self._epoch += 1
        if _is_witness(line):
            return
        sender = self._sender(line)
        at = Span(line.line, line.line)
        sender.heard = sender.heard.join(at) if sender.heard else at
        self._remember(line, piece=False)

    def lose(self, line: Line) -> None:
        """Count a line that no parser took; a blank one says nothing and does not count."""
        if _is_witness(line) or not line.text.strip():
            return
        piece = self._is_piece(line)
        self._remember(line, piece=piece)
        self._sender(line).count(line, piece=piece, epoch=self._epoch)

    def within(self, incident: Incident) -> Unread:
        """The lines inside an incident that belong to none of its events.

        Args:
            incident: One incident.

        Returns:
            How many, and the kept ones in the order of the input.  A sender of which no line at all was taken
            counts with its pieces of a traceback only: the rest may be another program's.
        """
        span = incident.span
        count = pieces = 0
        early: list[UnreadLine] = []
        others: list[UnreadLine] = []
        for sender in self._of(incident):
            heard = sender.heard is not None and sender.heard.first <= span.last and sender.heard.last >= span.first
            for run in sender.runs:
                if span.first <= run.first <= span.last:
                    pieces += run.pieces
                    count += run.count if heard else run.pieces
            early += [kept for kept in (*sender.early, *sender.late) if _is_within(kept, span)]
            others += [kept for kept in sender.others if heard and _is_within(kept, span)]
        return Unread(count, pieces, _chosen(early, others))

    def forget(self, incident: Incident) -> None:
        """Let go of what was said up to the end of an incident that has been told."""
        for sender in self._of(incident):
            sender.forget(incident.span.last)
        for place in [place for place, sender in self._senders.items() if not sender.runs and sender.heard is None]:
            del self._senders[place]

    def _of(self, incident: Incident) -> Iterator[_Sender]:
        invocation = incident.invocation
        hosts = {event.process.host for event in incident.events}
        for (host, unit, invocation_id, _), sender in self._senders.items():
            same = (
                (host is None or None in hosts or host in hosts)
                and (unit is None or invocation.unit in (None, unit))
                and (invocation_id is None or invocation.id in (None, invocation_id))
            )
            if same:
                yield sender

    def _sender(self, line: Line) -> _Sender:
        record = line.record
        place = (record.host, record.unit, record.invocation_id, record.ident)
        sender = self._senders.get(place)
        if sender is None:
            sender = self._senders[place] = _Sender()
            if len(self._senders) > MAX_PLACES:
                self._senders.popitem(last=False)
        self._senders.move_to_end(place)
        return sender

    def _remember(self, line: Line, *, piece: bool) -> None:
        self._streams[line.stream] = (line.text[:_HEAD], piece)
        self._streams.move_to_end(line.stream)
        if len(self._streams) > _MAX_STREAMS:
            self._streams.popitem(last=False)

    def _is_piece(self, line: Line) -> bool:
        """Whether a line has the shape of a part of a stack; source code does below another part only."""
        if _PIECE.search(line.text[:_HEAD]):
            return True
        if line.prefixed or not line.text[:2].isspace() or _BAR.match(line.text[:_HEAD]):
            return False
        before, piece = self._streams.get(line.stream, ("", False))
        return piece or _PIECE.search(before) is not None


def join(first: Unread, second: Unread) -> Unread:
    """The unread lines of two crashes that are told as one."""
    lines = (*first.lines, *second.lines)
    pieces = [kept for kept in lines if kept.piece]
    others = [kept for kept in lines if not kept.piece]
    return Unread(first.count + second.count, first.pieces + second.pieces, _chosen(pieces, others))


def _chosen(pieces: list[UnreadLine], others: list[UnreadLine]) -> tuple[UnreadLine, ...]:
    """As many lines as are kept of one incident, in the order of the input."""
    pieces.sort(key=_number)
    others.sort(key=_number)
    half = MAX_PIECES // 2
    shown = pieces if len(pieces) <= MAX_PIECES else [*pieces[:half], *pieces[-half:]]
    return tuple(sorted([*shown, *others[-MAX_OTHERS:]], key=_number))


def _number(kept: UnreadLine) -> int:
    return kept.span.first


def _is_within(kept: UnreadLine, span: Span) -> bool:
    return span.first <= kept.span.first <= span.last


def _is_witness(line: Line) -> bool:
    return line.process.label in ("kernel", "systemd")
