"""Lines that torch's C++ code prints in; what kind of line each is, and blocks of C++ exceptions, out.

Source:
    torch: ``c10/util/Logging.cpp`` sets the head of a line, ``ProcessGroupNCCL.cpp`` the texts,
    libstdc++'s verbose terminate handler the ``terminate called`` block.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

import attrs

from logtriage.events.collect import HEAD, Gathering, after_bar, joined, of_rank, opens
from logtriage.model import CollectiveTimeout, Event, Line, NativeAbort

__all__ = [
    "CppLine",
    "CppText",
    "Kind",
    "Terminate",
    "is_cpp_frame",
    "read_cpp",
    "tells_timeout",
    "timeout_event",
]

Kind = Literal["timeout", "status", "abort", "afterword", "teardown", "store", "error", "noise"]

# The month has no leading zero (E321, E1206); up to torch 2.3 there is no time, up to 2.1 no rank.
_HEAD: Final = re.compile(
    r"(?:\[rank(?P<rank>\d+)\]:)?\[(?P<level>[IWEF])(?:\d{3,4} [\d:.]+)? (?P<file>[\w.+-]+\.\w+):\d+\] ?"
)
_TAGS: Final = re.compile(r"(?:\[(?:PG|Rank|c10d)[^\]]{0,80}\] {0,2}){0,3}")
_GROUP_RANK: Final = re.compile(r"\[(?:PG [^\]]{0,80})?Rank (\d+)\]")
_WORK: Final = re.compile(r"WorkNCCL\(SeqNum=(\d+), OpType=(\w+)")
_STATUS: Final = re.compile(
    r"(?:detected by watchdog at work(?: sequence id)?|Timeout at NCCL work): (?P<sequence>\d+)"
)
_COMPLETED: Final = re.compile(r"last completed (?:NCCL )?work: (-?\d+)")
_FRAME: Final = re.compile(
    r" *(?:frame #\d+: |#\d+ |@ +0x|<omitting python frames>|C\+\+ CapturedTraceback:)"
)
_TERMINATE: Final = re.compile(r"terminate called after throwing an instance of '(?P<type>.*)'$")
_TERMINATES: Final = ("terminate called ", "pure virtual method called")

_TIMEOUTS: Final = (
    "Watchdog caught collective operation timeout",
    "due to a collective timeout",
    "Received a timeout signal",
    "Received a global timeout",
    "watchdog got stuck for",
    "Heartbeat monitor timed out",
    "failed to pass monitoredBarrier",
    "NCCL timeout in",
)
_CAUGHT: Final = _TIMEOUTS[0]
_AFTERWORDS: Final = (
    "Some NCCL operations have failed or timed out",
    "To avoid data inconsistency",
    "Stack trace of the failed collective",
    "preparing to dump debug info",
    "dumping nccl trace",
    "light Recorder",
    "light recorder",
    "First PG on this rank to signal dumping",
    "Dumping c++ stacktraces",
    "Could not acquire GIL",
    "Terminating the process after",
    "ttempting to terminate",
)
_STORE: Final = (
    "recvValue",
    "recvVector",
    "sendBytes failed",
    "waitForInput",
    "client socket has timed out",
    "TCP client failed to connect",
    "server socket has failed",
    "should dump",
    "on TCPStore",
    "ailed to recv, got 0 bytes",
)


@attrs.frozen
class CppLine:
    """One line of torch's C++ log.

    Attributes:
        kind: What it tells.
        message: Its text without the tags of group and rank.
        rank: Global rank of the process, or the rank in the group where only that is said.
    """

    kind: Kind
    message: str
    rank: int | None


def read_cpp(text: str) -> CppLine | None:
    """Read a line of torch's C++ log.

    Args:
        text: A line, with or without ``[rank5]:`` before it.

    >>> line = read_cpp("[rank5]:[E407 02:11:40.3 ProcessGroupNCCL.cpp:70] [Rank 5] To avoid data loss")
    >>> line.kind, line.message, line.rank
    ('error', 'To avoid data loss', 5)
    """
    text = after_bar(text)
    head = _HEAD.match(text[:HEAD])
    if head is None:
        return None
    rest = text[head.end() :]
    tags = _TAGS.match(rest)
    message = rest[tags.end() :] if tags else rest
    group = _GROUP_RANK.match(rest)
    said = head["rank"] or (group[1] if group else None)
    return CppLine(_kind(message[:HEAD], head["level"]), message.rstrip(), int(said) if said else None)


def _kind(message: str, level: str) -> Kind:
    """What a message tells; the watchdog's last words may quote a timeout and are then one too."""
    if "destroy_process_group() was not called" in message or "has NOT been destroyed" in message:
        return "teardown"
    if _STATUS.search(message):
        return "status"
    if any(text in message for text in _TIMEOUTS):
        return "timeout"
    if "watchdog thread terminated with exception" in message or "the following async exception" in message:
        return "abort"
    if any(text in message for text in _AFTERWORDS):
        return "afterword"
    if any(text in message for text in _STORE):
        return "store"
    return "error" if level in "EF" else "noise"


def is_cpp_frame(text: str) -> bool:
    """Whether *text* is a frame of a C++ stack or the line above the first one."""
    return text.startswith("Exception raised from ") or _FRAME.match(text[:HEAD]) is not None


def tells_timeout(message: str) -> bool:
    """Whether *message* is, or quotes, the watchdog's word about a collective that timed out."""
    return "collective operation timeout" in message


def timeout_event(block: Gathering, message: str, rank: int | None, status: str = "") -> CollectiveTimeout:
    """The event of a collective that timed out.

    Args:
        block: Its lines.
        message: The watchdog's first words.
        rank: Torch's rank, if said.
        status: The line that tells how far the rank had come, if it is not the message itself.
    """
    message = message[max(message.find(_CAUGHT), 0) :]
    if status:
        message = f"{message}\n{status}"
    told = message[: 2 * HEAD]
    work = _WORK.search(told)
    at = _STATUS.search(told)
    sequence = int(work[1]) if work else int(at["sequence"]) if at else None
    completed = _COMPLETED.search(told)
    return CollectiveTimeout(
        message=message,
        operation=work[2] if work else "",
        sequence=sequence,
        completed=int(completed[1]) if completed else None,
        **block.origin(of_rank(block.first.process, rank)),
    )


class CppText(Gathering):
    """The text of a C++ exception: lines of a message, an empty line, frames.

    Frames are counted and not kept.  The message ends at ``Exception raised from``, at a frame, at
    a prefixed line and at anything that starts something new; after an empty line only more of the
    stack may follow.
    """

    def __init__(self, first: Line, *, keep: bool = True) -> None:
        super().__init__(first, keep=keep)
        self._state: Literal["message", "gap"] = "message"

    def take_text(self, line: Line) -> bool:
        """Take *line* if the message or its stack goes on in it."""
        text = line.text
        if is_cpp_frame(text):
            self._state = "gap"
            return self.take(line, keep=False)
        if self.anew(line):
            return False
        if not text.strip():
            self._state = "gap"
            return self.take(line, keep=False)
        if self._state == "gap" or opens(text) or read_cpp(text):
            return False
        return self.take(line)

    def offer(self, line: Line) -> bool:
        """Take a line of the message or of the stack."""
        return self.take_text(line)


class Terminate(CppText):
    """An uncaught C++ exception: ``terminate called``, the line ``what():`` and a stack."""

    def __init__(self, first: Line) -> None:
        super().__init__(first)
        self.exception = ""
        if found := _TERMINATE.match(first.text[:HEAD].rstrip()):
            self.exception = found["type"]
        self._said = False

    @classmethod
    def starts(cls, line: Line) -> bool:
        """Whether such a block starts on *line*."""
        return line.text.startswith(_TERMINATES)

    def offer(self, line: Line) -> bool:
        """Take ``what():`` once, then its text and its stack."""
        if not self._said and line.text.lstrip().startswith("what():"):
            self._said = True
            return self.take(line)
        if not self._said:
            return False
        return self.take_text(line)

    @property
    def message(self) -> str:
        """What the exception says, or the line itself where it says nothing."""
        if not self._said:
            return self.texts[0].rstrip()
        first, *rest = self.texts[1:]
        return joined([first.lstrip().removeprefix("what():").strip(), *rest])

    def close(self) -> Sequence[Event]:
        """One abort; a timeout if that is what the exception says."""
        message = self.message
        tags = _TAGS.match(message)
        group = _GROUP_RANK.match(message)
        bare = message[tags.end() :] if tags else message
        rank = int(group[1]) if group else None
        if tells_timeout(bare[:HEAD]):
            return [timeout_event(self, bare, rank)]
        process = of_rank(self.first.process, rank)
        origin = "c10" if self.exception.startswith("c10::") else "terminate"
        return [NativeAbort(message=bare, origin=origin, exception=self.exception, **self.origin(process))]
