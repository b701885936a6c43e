"""Lines of compilers that run inside a server in, one event out with the compiler's own error.

Law: the message is the first error of the first failed command, never the wrapper around it.

Source:
    ninja 1.10 to 1.13, gcc, nvcc, ptxas, LLVM; Triton, flashinfer, torch's ``cpp_extension``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from logtriage.events.block import Block
from logtriage.events.collect import HEAD, Gathering, joined, opens
from logtriage.model import Event, Line, NativeAbort

__all__ = ["open_build"]

_ERROR: Final = re.compile(
    r"(?:nvcc|ptxas|cicc|nvlink|fatbinary) (?:fatal|error) *: "
    r"|ptxas [^\s,]{1,400}, line \d+; (?:error|fatal) *: "
    r"|(?:loc\(\"?)?[^\s:(\"]{1,400}\.(?:c|cc|cpp|cxx|cu|cuh|h|hpp|inc|ptx|py|S|inl)\"?"
    r"(?::\d+(?::\d+)?|\(\d+\)){1,2}\)?: (?:fatal |catastrophic )?error *: "
    r"|LLVM ERROR: |error: Failures have been detected while processing an MLIR"
    r"|(?:c\+\+|g\+\+|gcc|cc|clang\+{0,2}|nvcc|ld|x86_64-linux-gnu-\S{1,40}): (?:fatal )?error: "
    r"|(?:/\S{1,200}/)?ld(?:\.\w+)?: cannot find |collect2: error: "
    r"|/bin/sh: (?:line )?\d+: \S{1,200}(?:nvcc|ninja|g\+\+|gcc|c\+\+)\S{0,40}: not found"
    r"|NVCC compilation failed: |ninja: (?:fatal|error): "
)
_MORE: Final = re.compile(
    r"\s*(?:\d+ +\||\||(?<= )\^|compilation terminated\.|\d+ errors? detected in|ninja: build stopped|FAILED: "
    r"|In file included)"
)
_EXCERPT: Final = re.compile(r"\s*(?:\d+ +\||\|)")
_END: Final = "ninja: build stopped"


def open_build(line: Line) -> Block | None:
    """Start a block on a failed command of ninja, or on a compiler's error.

    >>> from logtriage.model import Process
    >>> line = Line("ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'", 1, Process())
    >>> open_build(line).close()[0].origin
    'jit'
    """
    text = line.text[:HEAD]
    if text.startswith("FAILED: "):
        return _Failed(line)
    if any(word in text for word in ("rror", "ERROR", "fatal", "cannot find", "not found")) and _ERROR.match(
        text
    ):
        return _Compiler(line)
    return None


class _Failed(Gathering):
    """A failed command of ninja with the output of the compiler."""

    def __init__(self, first: Line) -> None:
        super().__init__(first, keep=False)
        self._cause: list[str] = []
        self._over = False

    def offer(self, line: Line) -> bool:
        """Take the output up to ninja's last word."""
        text = line.text[:HEAD]
        if self.anew(line) or self._over or opens(text):
            return False
        if (
            not self._cause and (_ERROR.match(text) or "No space left on device" in text or text == "Killed")
        ) or (self._cause and len(self._cause) < 3 and _EXCERPT.match(text)):
            self._cause.append(text.rstrip())
        self._over = text.startswith(_END)
        return self.take(line, keep=False)

    def close(self) -> Sequence[Event]:
        """One abort; what ninja says, if the compiler said nothing."""
        message = joined(self._cause) or self.first.text[:HEAD].rstrip()
        return [NativeAbort(message=message, origin="jit", **self.origin())]


class _Compiler(Gathering):
    """An error of a compiler outside of ninja."""

    def offer(self, line: Line) -> bool:
        """Take further errors and the excerpt of the source."""
        text = line.text[:HEAD]
        if self.anew(line):
            return False
        if _MORE.match(text):
            return self.take(line, keep=_EXCERPT.match(text) is not None and len(self.texts) < 3)
        return _ERROR.match(text) is not None and self.take(line, keep=False)

    def close(self) -> Sequence[Event]:
        """One abort."""
        return [NativeAbort(message=joined(self.texts), origin="jit", **self.origin())]
