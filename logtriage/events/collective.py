"""Lines of torch's watchdog in, one event out for each rank and collective that timed out.

Source:
    torch: ``ProcessGroupNCCL.cpp``, releases 2.1 to 2.14.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from logtriage.events.block import Block
from logtriage.events.collect import HEAD, Gathering, of_rank
from logtriage.events.cpp import CppLine, CppText, Terminate, read_cpp, tells_timeout, timeout_event
from logtriage.model import CollectiveTimeout, Event, Line

__all__ = ["open_block"]

_BARRIER: Final = re.compile(
    r"\[Rank (?P<rank>\d+)\]:? (?:Rank \d+ failed to pass monitoredBarrier|Ranks .{1,200} failed to pass)"
)
_DEEPEP: Final = re.compile(
    r"DeepEP (?:(?P<operation>\w{1,40})[\w ]{0,80} timeout(?: \([^)]*\))?, |timeout check failed: rank = \d+)"
)
_SEQUENCE: Final = re.compile(r"SeqNum=(\d+)")


def open_block(line: Line) -> Block | None:
    """Start a block on the watchdog's first word about a collective.

    >>> from logtriage.model import Process
    >>> open_block(Line("Decode batch. #running-req: 1", 1, Process())) is None
    True
    """
    text = line.text
    if "atchdog" in text or "imeout" in text or "imed out" in text or "NCCL work" in text:
        log = read_cpp(text)
        if log is not None and (log.kind in ("timeout", "status") or _quotes_timeout(log)):
            return _Timeout(line, log)
    if text.startswith("DeepEP ") and (found := _DEEPEP.match(text[:HEAD])):
        return _Flood(line, f"DeepEP {found['operation'] or 'barrier'}")
    if text.startswith("[Rank ") and (found := _BARRIER.match(text[:HEAD])):
        return _Barrier(line, int(found["rank"]))
    return None


def _quotes_timeout(log: CppLine) -> bool:
    """Whether the watchdog dies of the timeout it reports."""
    return log.kind == "abort" and tells_timeout(log.message[:HEAD])


class _Timeout(CppText):
    """All that one rank says about one collective, down to the abort that ends it."""

    def __init__(self, first: Line, log: CppLine) -> None:
        super().__init__(first, keep=False)
        self._log = log
        self._status = ""
        self._terminate: Terminate | None = None

    def offer(self, line: Line) -> bool:
        """Take the watchdog's further words, copies of them, their stacks and the abort."""
        if self._terminate is not None:
            return self._terminate.offer(line) and self.take(line, keep=False)
        log = read_cpp(line.text)
        if log is not None:
            return self._belongs(log) and self._continue(line, log)
        if Terminate.starts(line):
            self._terminate = Terminate(line)
            return self.take(line, keep=False)
        return self.take_text(line)

    def _belongs(self, log: CppLine) -> bool:
        """Whether *log* is about the same rank and the same collective."""
        if None not in (log.rank, self._log.rank) and log.rank != self._log.rank:
            return False
        if log.kind in ("status", "afterword"):
            return True
        if log.kind == "timeout" or _quotes_timeout(log):
            mine, theirs = (_SEQUENCE.search(text[:HEAD]) for text in (self._log.message, log.message))
            return mine is None or theirs is None or mine[1] == theirs[1]
        return False

    def _continue(self, line: Line, log: CppLine) -> bool:
        if log.kind == "status":
            self._status = self._status or log.message[:HEAD]
        elif self._log.kind == "status" and tells_timeout(log.message):
            # The status came first; the sentence that names the collective tells more.
            self._status = self._log.message[:HEAD]
            self._log = log
        self._state = "message"
        return self.take(line, keep=False)

    def close(self) -> Sequence[Event]:
        """One timeout, and what the process died of where that is something else."""
        events: list[Event] = [timeout_event(self, self._log.message, self._log.rank, self._status)]
        if self._terminate is not None:
            events += [
                event
                for event in self._terminate.close()
                if not isinstance(event, CollectiveTimeout)
                and not event.message.startswith("terminate called")
            ]
        return events


class _Flood(Gathering):
    """The lines of a timeout that every thread block of a kernel prints."""

    def __init__(self, first: Line, operation: str) -> None:
        super().__init__(first)
        self._operation = operation

    def offer(self, line: Line) -> bool:
        """Take further lines of the flood."""
        return not self.anew(line) and bool(_DEEPEP.match(line.text[:HEAD])) and self.take(line, keep=False)

    def close(self) -> Sequence[Event]:
        """One timeout."""
        return [CollectiveTimeout(message=self.texts[0], operation=self._operation, **self.origin())]


class _Barrier(Gathering):
    """A monitored barrier that somebody did not reach, and the error that told so."""

    def __init__(self, first: Line, rank: int) -> None:
        super().__init__(first)
        self._rank = rank

    def offer(self, line: Line) -> bool:
        """Take the original exception."""
        return not line.prefixed and line.text.lstrip().startswith("Original exception:") and self.take(line)

    def close(self) -> Sequence[Event]:
        """One timeout."""
        process = of_rank(self.first.process, self._rank)
        return [CollectiveTimeout(message="\n".join(self.texts), operation="BARRIER", **self.origin(process))]
