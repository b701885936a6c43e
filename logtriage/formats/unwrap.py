"""Numbered lines of bytes in, records out: takes envelopes off, joins what a collector split.

The law: what a line becomes depends on the lines before it, never on the cut of the chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import attrs

from logtriage.formats.envelope import Format, Peeled
from logtriage.model import Gap, Record, Span

__all__ = ["Unwrapper"]

_DEEPEST: Final = 4
"""Envelopes inside each other: journal, compose, Ray and a logger is the deepest nest seen."""

_MAX_JOINED: Final = 1 << 16
"""Characters of a message in parts; readers want no more of a line."""

_MAX_PARTIAL: Final = 256
"""Sources whose message may be in parts at the same time."""

_GAP_NOTES: Final = {
    "null-message": "journalctl left out messages of 4 KB and more; export again with: journalctl -o json --all",
    "blob": "journalctl hid messages that are not plain text; export again with: journalctl --all",
    "suppressed": "journald dropped messages over its rate limit; raise RateLimitBurst= in journald.conf",
}


class Unwrapper:
    """Take the envelopes off each line.

    Args:
        formats: The envelopes, most precise first.
        clean: Removes escape sequences; collectors colour what they put in front of a line.

    Attributes:
        seen: Names of the formats that took a line, in the order of their first.
    """

    def __init__(self, formats: Sequence[Format], clean: Callable[[str], str]) -> None:
        self._formats = formats
        self._clean = clean
        self._likely: list[Format] = []  # the nest of the line before, tried first
        self.seen: list[str] = []
        self._width = 0
        self._last: Record | None = None
        self._partial: dict[str, Record] = {}
        self._cut: set[tuple[object, object]] = set()
        self._gaps: dict[str, Gap] = {}

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What was lost, one gap a kind, counted."""
        return tuple(self._gaps.values())

    def feed(self, lines: Iterable[tuple[int, bytes]]) -> Sequence[Record]:
        """Take numbered lines, without line breaks; return the records they make."""
        out: list[Record] = []
        for number, raw in lines:
            text = raw.decode("utf-8", "replace")
            # A progress bar overwrites itself with CR; what stands between two of them is a line to a reader.
            pieces = [piece for piece in text.split("\r") if piece] if "\r" in text else [text]
            for piece in pieces:
                self._line(number, piece, out)
            if not pieces:
                self._line(number, "", out)
        return out

    def close(self) -> Sequence[Record]:
        """End the stream; return messages whose last part never came."""
        out = list(self._partial.values())
        self._partial.clear()
        return out

    def _line(self, number: int, text: str, out: list[Record]) -> None:
        if "\x1b" in text:
            text = self._clean(text)
        if self._last is not None and self._width and text[: self._width].isspace() and len(text) >= self._width:
            out.append(attrs.evolve(self._last, text=text[self._width :], line=number, continued=True))
            return
        fields: dict[str, object] = {}
        nest: list[Format] = []
        width = 0
        partial = False
        for _ in range(_DEEPEST):
            taken = self._peel(text, nest)
            if taken is None:
                break
            used, peeled = taken
            nest.append(used)
            text = peeled.rest
            # The outer envelope is the collector's own word; text inside it may claim anything.
            for name, value in peeled.fields.items():
                if value is not None and fields.get(name) in (None, "", ()):
                    fields[name] = value
            width = width or peeled.width
            partial = partial or peeled.partial
            if peeled.gap:
                self._lose(peeled.gap, number)
            if (fields.get("host"), fields.get("pid")) in self._cut:
                break  # it goes on in the middle of a line: no envelope begins there
        if nest and nest[0].name in ("journal-short", "journal-json"):
            self._check_journal(text, number, fields)
            self._note_cut(fields)
        self._emit(number, text, fields, nest, partial, out)
        self._width = width if nest and nest[0].name == "journal-short" else 0

    def _emit(
        self,
        number: int,
        text: str,
        fields: dict[str, object],
        nest: list[Format],
        partial: bool,
        out: list[Record],
    ) -> None:
        self._likely = nest
        for used in nest:
            if used.name not in self.seen:
                self.seen.append(used.name)
        source = f"{fields.get('host')}/{fields.get('ident')}"
        before = self._partial.pop(source, None)
        record = Record(text, number, **fields)  # type: ignore[arg-type]
        if before is not None:
            record = attrs.evolve(before, text=before.text + text)
        if partial and len(record.text) < _MAX_JOINED:
            self._partial[source] = record
            if len(self._partial) <= _MAX_PARTIAL:
                return
            record = self._partial.pop(next(iter(self._partial)))
        # A JSON message may hold several lines; a reader of text wants them one by one.
        head, *more = record.text.split("\n") if nest else [record.text]
        self._last = attrs.evolve(record, text=head) if more else record
        out.append(self._last)
        out.extend(attrs.evolve(record, text=line, continued=True) for line in more)

    def _peel(self, text: str, nest: list[Format]) -> tuple[Format, Peeled] | None:
        depth = len(nest)
        guess = self._likely[depth : depth + 1]
        for candidate in (*guess, *self._formats):
            if candidate not in nest and (peeled := candidate.peel(text)) is not None:
                return candidate, peeled
        return None

    def _check_journal(self, text: str, number: int, fields: dict[str, object]) -> None:
        """Notice journald's own word that it dropped messages."""
        if text.startswith("Suppressed ") and " messages from " in text and fields.get("ident") == "systemd-journald":
            self._lose("suppressed", number)

    def _note_cut(self, fields: dict[str, object]) -> None:
        """Remember of which process another one has cut off a line (``_LINE_BREAK=pid-change``)."""
        writer = (fields.get("host"), fields.get("pid"))
        self._cut.discard(writer)
        said = fields.get("fields")
        if isinstance(said, tuple) and ("_LINE_BREAK", "pid-change") in said and len(self._cut) < _MAX_PARTIAL:
            self._cut.add(writer)

    def _lose(self, kind: str, number: int) -> None:
        known = self._gaps.get(kind)
        if known is None:
            self._gaps[kind] = Gap(kind, Span(number, number), _GAP_NOTES[kind])
        else:
            self._gaps[kind] = attrs.evolve(known, span=Span(known.span.first, number), count=known.count + 1)
