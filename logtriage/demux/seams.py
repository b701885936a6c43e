"""Lines of one pipe in, the pieces they are made of out, where writers cut in on each other.

A record larger than the pipe's free space is written in several pieces, and another process may get in between:
a line ends in the middle, with the other's text glued to it, and goes on later, alone or glued to a third one.

Law: nothing is put together that was not seen in whole before, or is not a frame line.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import regex

from logtriage.demux.grammar import is_frame

__all__ = ["Seams", "glued"]

_MAX_LINES: Final = 2_048
_MAX_TEXT: Final = 500
_MAX_SEARCHES: Final = 5_000
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


class Seams:
    """The lines of tracebacks that one pipe carried in whole."""

    def __init__(self) -> None:
        self._whole: OrderedDict[str, None] = OrderedDict()
        self._searches = _MAX_SEARCHES  # nothing that a log can say must make reading slow

    def remember(self, text: str) -> None:
        """Note a whole line of a traceback."""
        if len(text) <= _MAX_TEXT:
            self._whole[text] = None
            if len(self._whole) > _MAX_LINES:
                self._whole.popitem(last=False)

    def mends(self, cut: str, text: str) -> bool:
        """Whether *text* is the rest of the line that was *cut*."""
        if text in self._whole or is_frame(text):
            return False
        return cut + text in self._whole or is_frame(cut + text)

    def ending(self, text: str) -> str:
        """A whole line, seen before, that ends with *text*; ``""`` if there is none, or *text* is one itself."""
        if len(text) < 3 or text in self._whole:
            return ""
        return next((whole for whole in reversed(self._whole) if whole.endswith(text)), "")

    def split(self, cut: str, text: str) -> int:
        """Where in *text*, which begins as another line, the rest of the line that was *cut* stands; 0 for nowhere."""
        if text in self._whole or is_frame(text) or not cut or len(text) > 2 * _MAX_TEXT or not self._searches:
            return 0
        self._searches -= 1
        best = 0
        for whole in self._whole:
            if whole.startswith(cut):
                at = len(text) - len(whole) + len(cut)
                if 0 < at < (best or len(text)) and text.endswith(whole[len(cut) :]) and self._begins(text[:at]):
                    best = at
        return best

    def _begins(self, piece: str) -> bool:
        """Whether a known line begins with *piece*."""
        return any(whole.startswith(piece) for whole in self._whole)
