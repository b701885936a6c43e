"""Lines of CPython's faulthandler in, one event out for each dump that a fatal error made.

Law: frames stand newest first, as faulthandler prints them; a dump that nobody died of gives no event.

Source:
    CPython: ``Python/traceback.c`` and ``Modules/faulthandler.c``, releases 3.8 to 3.14.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

from logtriage.events.block import Block
from logtriage.events.collect import HEAD, MAX_LINES, Gathering, after_bar, in_app
from logtriage.model import Event, FatalError, Frame, Line

__all__ = ["open_block"]

_FATAL: Final = "Fatal Python error: "
_SIGNALS: Final = (
    "Segmentation fault",
    "Aborted",
    "Bus error",
    "Floating point exception",
    "Floating-point exception",  # from 3.13 on
    "Illegal instruction",
)
_THREAD: Final = re.compile(
    r"(?P<current>Current thread|Thread) 0x[0-9a-f]{4,16}(?: \[.*\])? \(most recent call first\):\s*$"
)
_STACK: Final = "Stack (most recent call first):"
"""The head of the only thread of a dump that was asked to leave the others out."""

_FRAME: Final = re.compile(r'\s+File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.+)$')
_OTHER: Final = re.compile(
    r"\s+(?:<no Python frame>|<invalid frame>|<freed frame>|<freed thread state>|\.\.\.|Garbage-collecting"
    r"|<tstate is freed>|\(\d+ more frames?\)|plus \d+ frames)\s*$|\.\.\.\s*$"
)
_C_STACK: Final = "Current thread's C stack trace (most recent call first):"
_C_FRAME: Final = re.compile(
    r'\s+(?:Binary file "|<truncated rest of calls>|<cannot get C stack on this system>|\.\.\.)'
)
_TIMEOUT: Final = re.compile(r"Timeout \(\d+:\d\d:\d\d(?:\.\d+)?\)!\s*$")
_EXCEPTION: Final = re.compile(r"[A-Za-z_][\w.]{0,80}(?:Error|Exception): ")


def open_block(line: Line) -> Block | None:
    """Start a block on the first line of a dump, also where it stands behind other text.

    A signal can arrive in the middle of a line; such a first line counts only if it ends in the
    name of a signal, has no quote before it and is followed by a thread.

    >>> from logtriage.model import Process
    >>> block = open_block(Line("Fatal Python error: Aborted", 3, Process()))
    >>> block.close()[0].reason
    'Aborted'
    """
    text = line.text
    if _FATAL in text:
        before, _, reason = after_bar(text).rpartition(_FATAL)
        if not before:
            return _Dump(line, reason.strip())
        if reason.strip() in _SIGNALS and not any(quote in before for quote in "'\"`"):
            return _Dump(line, reason.strip(), glued=True)
        return None
    if line.prefixed or not text.startswith(("Thread 0x", "Current thread", "Timeout (")):
        return None
    if _THREAD.match(text[:HEAD]) or _TIMEOUT.match(text[:HEAD]):
        return _Dump(line, None)
    return None


class _Dump(Gathering):
    """The threads of one dump."""

    def __init__(self, first: Line, reason: str | None, *, glued: bool = False) -> None:
        super().__init__(first, keep=False)
        self._reason = reason
        self._glued = glued
        self._state: Literal["head", "threads", "end", "c-stack"] = "head"
        self._threads = 0
        self._current: list[Frame] | None = None
        self._open: list[Frame] = []
        self._only: list[Frame] = []
        if reason is None and _THREAD.match(first.text[:HEAD]):
            self._start_thread(first.text)

    def offer(self, line: Line) -> bool:
        """Take what the grammar of a dump allows next."""
        text = line.text
        # The grammar is narrow enough to be believed behind a prefix that is repeated on every line.
        if self._state in ("head", "threads") and self._thread_line(text):
            return self.take(line, keep=False)
        if self.anew(line):
            return False
        if not text.strip():
            return self.take(line, keep=False)
        if text.startswith(_C_STACK) and self._state != "head":
            self._state = "c-stack"
            return self.take(line, keep=False)
        if self._state == "c-stack" and _C_FRAME.match(text[:HEAD]):
            return self.take(line, keep=False)
        if text.startswith("Extension modules: ") and self._state == "threads":
            self._state = "end"
            return self.take(line, keep=False)
        if self._state == "head" and (
            text.startswith("Python runtime state: ") or _EXCEPTION.match(text[:HEAD])
        ):
            return self.take(line, keep=False)
        return False

    def _thread_line(self, text: str) -> bool:
        """Read the head of a thread or a frame below one."""
        if _THREAD.match(text[:HEAD]) or text.rstrip() == _STACK:
            if self._current is not None and not text.startswith("Thread"):
                return False  # somebody asked for another dump
            self._start_thread(text)
            return True
        if self._state != "threads":
            return False
        if found := _FRAME.match(text[:HEAD]):
            if len(self._open) < MAX_LINES:
                number = found["line"]
                self._open.append(
                    Frame(
                        filename=found["file"],
                        lineno=int(number) if number.isdecimal() else None,
                        function=found["function"].strip(),
                        in_app=in_app(found["file"]),
                    )
                )
            return True
        return _OTHER.match(text[:HEAD]) is not None

    def _start_thread(self, text: str) -> None:
        self._state = "threads"
        self._threads += 1
        self._open = []
        if self._threads == 1:
            self._only = self._open
        if not text.startswith("Thread"):
            self._current = self._open

    def close(self) -> Sequence[Event]:
        """One fatal error, or nothing where somebody only asked for the stacks.

        Without a current thread a C thread died; its frames are not there, and those of several
        others do not stand for them.
        """
        if self._reason is None or (self._glued and not self._threads):
            return []
        frames = self._current
        if frames is None:
            frames = self._only if self._threads == 1 else []
        return [
            FatalError(
                message=f"{_FATAL}{self._reason}",
                reason=self._reason,
                frames=tuple(frames),
                **self.origin(),
            )
        ]
