"""Chunks of bytes in, numbered lines worth reading out, whatever the cut of the chunks.

The law: which lines come out depends on the lines alone.  A line comes out if an anchor stands
in it, in one of the :data:`AFTER` lines before it or in one of the :data:`BEFORE` lines after it,
or if it is the first mark of a stretch of lines that are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logtriage.scan.anchors import AFTER, ANCHORS, BEFORE, MARKS

__all__ = ["MAX_LINE", "RawLine", "Scanner"]

MAX_LINE: Final = 1 << 20
"""Longest line kept whole, in bytes; of a longer one the head and the tail are kept."""

_CUT_MARK: Final = b" [...] "
_KEPT_TAIL: Final = 1 << 16
_KEPT_HEAD: Final = MAX_LINE - _KEPT_TAIL - len(_CUT_MARK)  # head, mark and tail make MAX_LINE

RawLine = tuple[int, bytes]
"""Number of the input line (1-based) and its bytes without the line break."""


class Scanner:
    """Find the lines worth reading in a stream of bytes.

    Memory stays below :data:`MAX_LINE` times :data:`BEFORE` plus one chunk, however long the
    stream or one line of it.

    Attributes:
        lines: Lines seen so far.
        bytes: Bytes seen so far.
        cut_lines: Numbers of the first lines that were too long to keep whole.
        cut_count: How many lines were too long.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.bytes = 0
        self.cut_lines: list[int] = []
        self.cut_count = 0
        self._tail = bytearray()  # an unfinished line: it grows in place, however small the pieces
        self._overlong: bytes | None = None  # head of an unfinished line that is too long
        self._held: list[bytes] = []  # the last dropped lines, which a hit may still want
        self._credit = 0  # lines still to hand on after the last hit
        self._marked = False  # this stretch of dropped lines has had its mark

    def feed(self, chunk: bytes) -> Sequence[RawLine]:
        """Take the next bytes of the stream; return the lines worth reading that they complete.

        Args:
            chunk: Any number of bytes, cut anywhere.

        Returns:
            Numbered lines in the order of the stream.
        """
        self.bytes += len(chunk)
        head, newline, rest = chunk.rpartition(b"\n")
        out: list[RawLine] = []
        if newline:
            if self._overlong is not None:
                end, _, head = (head + newline).partition(b"\n")
                self._extend(end)
                body = self._overlong + _CUT_MARK + self._tail[-_KEPT_TAIL:] + b"\n" + self._shorten(head, 1)
                self._overlong = None
            else:
                body = self._shorten(bytes(self._tail) + head) + newline
            self._tail = bytearray()
            out = self._body(body)
        self._extend(rest)
        return out

    def close(self) -> Sequence[RawLine]:
        """End the stream; return what its last line, if it had no line break, makes worth reading."""
        out: list[RawLine] = []
        if self._tail or self._overlong is not None:
            self.bytes -= 1  # the line break that we add
            out += self.feed(b"\n")
        self._drop(b"".join(line + b"\n" for line in self._held), out)
        self._held = []
        return out

    def _extend(self, piece: bytes) -> None:
        """Grow the unfinished line by *piece*; of a line that is too long keep head and tail."""
        self._tail += piece
        if self._overlong is None and len(self._tail) > MAX_LINE:
            self._overlong, self._tail = bytes(self._tail[:_KEPT_HEAD]), self._tail[_KEPT_HEAD:]
            self._note_cut(0)
        if self._overlong is not None and len(self._tail) > 2 * _KEPT_TAIL:
            self._tail = self._tail[-_KEPT_TAIL:]

    def _shorten(self, body: bytes, before: int = 0) -> bytes:
        """Cut the lines of *body*, which *before* lines precede, just as :meth:`_extend` would have."""
        if len(body) <= MAX_LINE:
            return body
        lines = body.split(b"\n")
        for index, line in enumerate(lines):
            if len(line) > MAX_LINE:
                lines[index] = line[:_KEPT_HEAD] + _CUT_MARK + line[-_KEPT_TAIL:]
                self._note_cut(before + index)
        return b"\n".join(lines)

    def _note_cut(self, index: int) -> None:
        """Note that the line *index* places after the last whole one was too long."""
        self.cut_count += 1
        if len(self.cut_lines) < 100:
            self.cut_lines.append(self.lines + len(self._held) + index + 1)

    def _body(self, body: bytes) -> list[RawLine]:
        """Handle *body*, which is whole lines."""
        out: list[RawLine] = []
        position = 0
        for start in _hits(body):
            if start >= position:
                self._pass(body[position:start], out)
                self._release(out)
                end = body.index(b"\n", start)
                self.lines += 1
                out.append((self.lines, body[start:end]))
                position = end + 1
                self._credit = AFTER
        self._pass(body[position:], out)
        return out

    def _pass(self, region: bytes, out: list[RawLine]) -> None:
        """Handle lines without an anchor: hand on those still in credit, hold or drop the rest."""
        start = 0
        while self._credit and start < len(region):
            end = region.index(b"\n", start)
            self.lines += 1
            out.append((self.lines, region[start:end]))
            self._credit -= 1
            start = end + 1
        if start < len(region):
            self._hold(region[start:], out)

    def _hold(self, region: bytes, out: list[RawLine]) -> None:
        """Keep the last lines of *region* for the next hit, drop the others."""
        start = len(region)
        for _ in range(BEFORE):
            start = region.rfind(b"\n", 0, start - 1) + 1 if start else 0
        fresh = region[start:].split(b"\n")[:-1]
        dropped = region[:start]
        excess = len(self._held) + len(fresh) - BEFORE
        if excess > 0:
            for line in self._held[:excess]:
                self._drop(line + b"\n", out)
            self._held = self._held[excess:]
        if dropped:
            self._drop(dropped, out)
        self._held += fresh

    def _drop(self, region: bytes, out: list[RawLine]) -> None:
        """Count the lines of *region*, which nobody wants, but hand on the first mark of a stretch."""
        if not self._marked:
            found = [at for mark in MARKS if (at := region.find(mark)) >= 0]
            if found:
                at = min(found)
                start = region.rfind(b"\n", 0, at) + 1
                out.append(
                    (self.lines + region.count(b"\n", 0, at) + 1, region[start : region.index(b"\n", at)])
                )
                self._marked = True
        self.lines += region.count(b"\n")

    def _release(self, out: list[RawLine]) -> None:
        """Hand on the held lines: a hit wants what stands before it."""
        for line in self._held:
            self.lines += 1
            out.append((self.lines, line))
        self._held = []
        self._marked = False


# A healthy server says the same few sentences with other numbers.  Without their digits most lines are equal,
# and what no distinct line holds, no line holds: the whole block need not be searched for it.
_DIGITS: Final = b"0123456789abcdef."
_ANCHORS: Final = tuple((anchor, anchor.translate(None, _DIGITS)) for anchor in ANCHORS)


def _hits(body: bytes) -> list[int]:
    """Offsets of the lines of *body* that hold an anchor, in order."""
    distinct = b"\n".join(set(body.translate(None, _DIGITS).split(b"\n")))
    starts: set[int] = set()
    for anchor, bare in _ANCHORS:
        if bare not in distinct:
            continue
        at = body.find(anchor)
        while at >= 0:
            starts.add(body.rfind(b"\n", 0, at) + 1)
            at = body.find(anchor, body.index(b"\n", at))
    return sorted(starts)
