"""Lines of one stream in while several tracebacks are open in it, held back until they can be told apart.

Law: a tangle holds at most :data:`MAX_LINES` lines and :data:`MAX_TEXT` characters.
"""

from __future__ import annotations

from typing import Final

import regex

from logtriage.demux.grammar import Kind
from logtriage.demux.mending import Held
from logtriage.demux.prefix import Prefix
from logtriage.model import Record

__all__ = ["MAX_LINES", "MAX_TEXT", "Tangle", "glued"]

MAX_LINES: Final = 20_000
"""Lines that are held back at a time."""

MAX_TEXT: Final = 4 << 20
"""Characters that are held back at a time."""

_QUIET: Final = 48
_GRAMMAR: Final = frozenset({"header", "frame", "source", "caret", "exception", "chain", "child", "margin"})
_GLUED: Final = regex.compile(
    r"\[(?:(?:\d{4}-)?\d\d-\d\d )?\d\d:\d\d:\d\d(?:\.\d+)?(?: [A-Z_]{2,7}\d+)*\] "
    r"(?:\w+ hit an exception: Traceback \(most recent call last\):\s*$|Received sigquit |SIGQUIT received\.)"
    r"|(?<=it/s\]|s/it\])Traceback \(most recent call last\):\s*$"
)


def glued(text: str, open_traceback: bool) -> int:
    """Where another writer's record begins in the middle of a line; 0 if none does.

    Args:
        text: The line.
        open_traceback: The writer of the line is in the middle of a traceback, so that a quote in
            front of the record is source text, not that of a request.

    >>> glued("   return f([2026-12-01 10:00:00 TP3] Received sigquit from a child process.", True)
    12
    """
    if "]" not in text:
        return 0
    match = _GLUED.search(text)
    if match is None or not match.start():
        return 0
    before = text[: match.start()][:2000]
    if "obj=" in before or "text=" in before or (not open_traceback and regex.search(r"['\"]", before)):
        return 0
    return match.start()


class Tangle:
    """Lines of one stream that are held back.

    Args:
        owed: Tracebacks that are open where it begins; each must come to its exception.

    Attributes:
        records: What the collector said of each line.
        held: The lines.
    """

    def __init__(self, owed: int) -> None:
        self.records: list[Record] = []
        self.held: list[Held] = []
        self.is_over = False
        self._owed = owed
        self._quiet = 0
        self._size = 0

    def take(
        self, record: Record, text: str, prefix: Prefix | None, label: str, kind: Kind, *, inside: bool
    ) -> None:
        """Hold one more line.

        Args:
            record: Its record.
            text: The line.
            prefix: Its prefix.
            label: The writer that the prefix names.
            kind: What the line is, below its prefix.
            inside: Another record begins in the middle of it.
        """
        self.records.append(record)
        self.held.append(Held(text, kind, prefix, label))
        self._size += len(text)
        self._owed += inside or kind == "header"
        self._owed -= kind == "exception"
        self._quiet = 0 if inside or kind in _GRAMMAR else self._quiet + 1
        says_else = prefix is not None and prefix.starts and kind not in _GRAMMAR and not inside
        self.is_over = (
            (self._owed <= 0 and says_else)
            or self._quiet >= _QUIET
            or len(self.held) >= MAX_LINES
            or self._size >= MAX_TEXT
        )
