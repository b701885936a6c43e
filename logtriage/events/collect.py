"""Lines of one process in, what every event says of its lines out; the base of each block of several lines.

Law: a block counts all its lines but keeps at most :data:`MAX_LINES` of them and :data:`MAX_TEXT`
characters, so a flood costs no memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, TypedDict

import attrs

from logtriage.model import Basis, Line, Process, Rank, Span

__all__ = [
    "HEAD",
    "MAX_LINES",
    "MAX_TEXT",
    "Gathering",
    "Origin",
    "after_bar",
    "in_app",
    "joined",
    "of_rank",
    "opens",
]

MAX_LINES: Final = 400
"""Lines whose text a block keeps."""

MAX_TEXT: Final = 16 * 1024
"""Characters a block keeps."""

HEAD: Final = 4096
"""Characters of a line that are shown to a regular expression."""

_TRUST: Final[tuple[Basis, ...]] = ("prefix", "pid", "continuation", "only-candidate", "guess")

# A tqdm bar ends without a line break when the process dies, so the next text stands behind it.
_BAR_ENDS: Final = ("it/s]", "s/it]")

_ENGINES: Final = re.compile(
    r"[/\\](?:sglang|sgl_kernel|sgl_jit_kernel|vllm|tensorrt_llm|lmdeploy|text_generation_server)[/\\]",
    re.IGNORECASE,
)

_OPENINGS: Final = (
    "Traceback (most recent call last)",
    "Fatal Python error",
    "terminate called ",
    "Exception ignored in",
    "Exception in thread",
    "Process SpawnProcess-",
    "Process ForkProcess-",
    "Process Process-",
    "Process VllmWorker",
    "Process EngineCore",
    "*** SIG",
    "*** Aborted at",
    "!!!!!!! Segfault",
    "usage: ",
    "Extension modules: ",
    "Current thread 0x",
    "Thread 0x",
    "Killed",
    "Aborted",
    "Segmentation fault",
    "Bus error",
    "MPI_ABORT was invoked",
    "[rank",
)


class Origin(TypedDict):
    """The fields that every event has, but for its message."""

    process: Process
    span: Span
    time: str | None
    basis: Basis
    stream: str


class Gathering:
    """Lines of one block: all counted, the first of them kept.

    Attributes:
        first: The line the block started on.
        texts: The kept texts.
    """

    def __init__(self, first: Line, *, keep: bool = True) -> None:
        self.first = first
        self.texts: list[str] = []
        self._size = 0
        self._last = first.line
        self._earliest = first.line
        self._basis: Basis = first.basis
        self.take(first, keep=keep)

    def take(self, line: Line, *, keep: bool = True) -> bool:
        """Count *line* in; keep its text if it is wanted and there is room.

        Returns:
            True always, so that ``offer`` can end with it.
        """
        self._last = max(self._last, line.line)
        self._earliest = min(self._earliest, line.line)
        if _TRUST.index(line.basis) > _TRUST.index(self._basis):
            self._basis = line.basis
        if keep and len(self.texts) < MAX_LINES and self._size < MAX_TEXT:
            text = line.text[: MAX_TEXT - self._size]
            self.texts.append(text)
            self._size += len(text) + 1
        return True

    def anew(self, line: Line) -> bool:
        """Whether a new message starts on *line*: it has a prefix, or comes from another place in code."""
        return line.prefixed or line.place != self.first.place

    def origin(self, process: Process | None = None) -> Origin:
        """What the events of this block have in common.

        Args:
            process: Who it happened to, if not the process that wrote the first line.
        """
        return Origin(
            process=self.first.process if process is None else process,
            span=Span(self._earliest, self._last),
            time=self.first.time,
            basis=self._basis,
            stream=self.first.stream,
        )


def joined(texts: Iterable[str]) -> str:
    r"""Lines of a message as one text, without blanks at their ends and without empty lines around.

    >>> joined(["CUDA error: x  ", "For debugging", ""])
    'CUDA error: x\nFor debugging'
    """
    return "\n".join(text.rstrip() for text in texts).strip("\n")


def after_bar(text: str) -> str:
    """The text behind the last progress bar of a line, or the whole line if it holds none.

    >>> after_bar("  0%|          | 0/58 [00:00<?, ?it/s]Fatal Python error: Aborted")
    'Fatal Python error: Aborted'
    """
    end = max(text.rfind(mark) for mark in _BAR_ENDS)
    return text if end < 0 else text[end + len("it/s]") :]


def in_app(filename: str) -> bool:
    """Whether a file belongs to an inference engine, not to a library below it.

    >>> in_app("/usr/lib/python3/dist-packages/sglang/srt/managers/scheduler.py")
    True
    """
    return _ENGINES.search(filename[-HEAD:]) is not None


def of_rank(process: Process, world: int | None) -> Process:
    """The process with torch's rank, if nothing better is known about its place.

    >>> of_rank(Process(), 5).label
    'rank5'
    """
    if world is None or process.rank:
        return process
    return attrs.evolve(process, rank=Rank(world=world), label=f"rank{world}", role="worker")


def opens(text: str) -> bool:
    """Whether *text* starts something new, so that no free text of an older block can go on in it."""
    return text.startswith(_OPENINGS) or "Warning: " in text[:300]
