"""Bytes of ``journalctl -o export`` in, records out, whatever the cut of the chunks.

Source: systemd's Journal Export Format: ``FIELD=value`` lines, or ``FIELD``, a line break, the length as 64 bits
little-endian, the value, a line break; an empty line ends an entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logtriage.formats.json_lines import journal_fields
from logtriage.model import Gap, Record, Span

__all__ = ["MAGIC", "JournalExport"]

MAGIC: Final = b"__CURSOR="
"""How every export begins."""

_MAX_VALUE: Final = 1 << 24
_MAX_KEPT: Final = 1 << 17
"""Characters of a value that are kept; readers want 64 KiB of a line."""

_MAX_FIELDS: Final = 1_000
"""Fields of an entry that are kept; journald itself takes 1024."""



class JournalExport:
    """Read entries of the export format.

    Attributes:
        lines: Line breaks seen so far, those inside binary values included.
        bytes: Bytes seen so far.
        gaps: What could not be read.
    """

    name = "journal-export"

    def __init__(self) -> None:
        self.lines = 0
        self.bytes = 0
        self.gaps: list[Gap] = []
        self._buffer = bytearray()
        self._entry: dict[str, object] = {}
        self._first = 1
        self._searched = 0  # so many bytes of the buffer hold no line break
        self._skipping = False  # until the next line break: a field without an end

    def feed(self, chunk: bytes) -> Sequence[Record]:
        """Take the next bytes; return the entries they complete."""
        self.bytes += len(chunk)
        self._buffer += chunk
        out: list[Record] = []
        start = 0
        while (end := self._buffer.find(b"\n", max(start, self._searched))) >= 0:
            self._searched = 0
            if self._skipping or end - start > _MAX_VALUE:
                self._lose("a field of more than 16 MiB")
                self._skipping = False
                self.lines += 1
                start = end + 1
                continue
            line = bytes(self._buffer[start:end])
            if b"=" in line or not line:
                self._take(line, out)
                self.lines += 1
                start = end + 1
                continue
            length = int.from_bytes(self._buffer[end + 1 : end + 9], "little")
            if len(self._buffer) - end - 1 < 8 or (length <= _MAX_VALUE and len(self._buffer) < end + 10 + length):
                break  # the value has not wholly arrived
            if length > _MAX_VALUE:
                self._lose("a field that claims to be larger than 16 MiB")
                self.lines += 1
                start = end + 1
                continue
            value = bytes(self._buffer[end + 9 : end + 9 + length])
            self._keep(line, value)
            self.lines += 2 + value.count(b"\n")
            start = end + 10 + length
        del self._buffer[:start]
        if end < 0:
            self._skipping = self._skipping or len(self._buffer) > _MAX_VALUE
            if self._skipping:
                self._buffer.clear()
            self._searched = len(self._buffer)
        return out

    def close(self) -> Sequence[Record]:
        """End the stream; return the last entry, whole or not."""
        out: list[Record] = []
        if self._buffer or self._skipping:
            self._lose("the export ends in the middle of an entry")
            if b"=" in self._buffer and b"\n" not in self._buffer:
                self._take(bytes(self._buffer), out)
            self.lines += 1
            self._buffer.clear()
        self._take(b"", out)
        return out

    def _take(self, line: bytes, out: list[Record]) -> None:
        """Handle one text field, or the end of an entry."""
        if line:
            name, _, value = line.partition(b"=")
            self._keep(name, value)
            return
        entry, self._entry = self._entry, {}
        if "MESSAGE" in entry:
            fields = journal_fields(entry)
            out.append(Record(str(entry["MESSAGE"]), max(self._first, 1), **fields))  # type: ignore[arg-type]
        self._first = self.lines + 2

    def _keep(self, name: bytes, value: bytes) -> None:
        if len(self._entry) < _MAX_FIELDS:
            self._entry[name[:64].decode("ascii", "replace")] = value[:_MAX_KEPT].decode("utf-8", "replace")

    def _lose(self, what: str) -> None:
        if len(self.gaps) < 100:
            at = self.lines + 1
            self.gaps.append(Gap("truncated-line", Span(at, at), f"journal export: {what}"))
