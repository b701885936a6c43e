"""Lines that native code prints when it gives up in, one event out with the words that tell why.

Law: what stands below the words (C++ frames, addresses, copies of a line for each thread) belongs
to the event and is counted, not kept.

Source:
    torch, libstdc++, glibc 2.36, CUDA's device printf, UCX, glog, abseil, Open MPI, AddressSanitizer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import attrs

from logtriage.events.block import Block
from logtriage.events.collect import HEAD, Gathering, after_bar, joined, of_rank, opens
from logtriage.events.cpp import CppLine, CppText, Terminate, is_cpp_frame, read_cpp, tells_timeout
from logtriage.events.jit import open_build
from logtriage.model import CollectiveTimeout, Event, Line, NativeAbort

__all__ = ["open_block"]

_ASSERT: Final = re.compile(
    r"(?:\[\d+\])?(?P<file>[^\s:]{1,400}):(?P<line>\d+): (?:.{0,400}?: )?"
    r"block: \[[\d, ]+\], thread: \[[\d, ]+\] Assertion [`'](?P<condition>.*)['`] failed\.?\s*$"
)
_DEEP_GEMM: Final = re.compile(r"Assertion failed: [^\s:]{1,400}:\d+, condition: ")
_CUDA: Final = re.compile(
    r"Failed: C(?:uda|UDA) error \S{1,400}:\d+ '"
    r"|CUDA (?:runtime |driver )?error \([^)]{1,400}\): "
    r"|CUDA (?:runtime |driver )?error: "
    r"|CUDART error: "
    r"|cudaError[A-Z]\w+: "
    r"|HIP error: "
    r"|Memory access fault by GPU node-"
    r"|(?:Error: )?Failed to initialize the TMA descriptor "
    r"|\[TM\]\[(?:FATAL|ERROR)\](?:\[[^\]]{1,80}\]){0,2} CUDA (?:runtime )?error"
)
_TRTLLM_CUDA: Final = ("CUDA runtime error in ", "CUDA driver error in ", "CUDA error: ")
_GLIBC: Final = re.compile(
    r"(?:(?:malloc|free|realloc|calloc|malloc_consolidate|munmap_chunk|mremap_chunk)\(\): [a-z]"
    r"|double free or corruption \(|corrupted double-linked list|corrupted size vs\. prev_size"
    r"|break adjusted to free malloc space"
    r"|\*\*\* (?:stack smashing|buffer overflow) detected \*\*\*|\*\*\* %n in writable segment"
    r"|\*\*\* Error in [`'].{1,200}': .{1,80}: 0x"
    r"|Fatal glibc error: |The futex facility returned an unexpected error code"
    r"|cannot allocate memory (?:in static TLS block|for thread-local data)"
    r"|[\w./-]{1,200}: (?:symbol lookup error|relocation error|error while loading shared libraries): )"
)
_C_ASSERT: Final = re.compile(
    r"(?:[\w./+-]{1,200}: )?[^\s:]{1,400}\.(?:c|cc|cpp|cxx|h|hpp|hh|cu|cuh):\d+: (?:.{0,1200}: )?"
    r"Assertion [`'].{1,1200}['`] failed\.\s*$"
)
_ASAN: Final = re.compile(r"==\d+==ERROR: (?:Address|Leak|Thread|UndefinedBehavior)Sanitizer: ")
_CAUGHT: Final = re.compile(r"(?:\[[^\]\s]{1,120} {0,12}:[^\]]{0,80}\] )?Caught signal \d+ \(")
# Ray's own log takes the lines of abseil's handler in.
_RAY: Final = r"(?:\[[\d :,-]{19,30} [A-Z] \d+ \d+\] logging\.cc:\d+: )?"
_GLOG_SIGNAL: Final = re.compile(_RAY + r"\*\*\* SIG[A-Z]+ (?:\(@0x[0-9a-f]+\) )?received (?:by PID|at time)")
_GLOG_FATAL: Final = re.compile(r"F(?:\d{4}){1,2} [\d:.]{1,24} +\d+ [\w./+-]{1,200}:\d+\] ")
_SIGNAL_TEXTS: Final = ("!!!!!!! Segfault encountered !!!!!!!", "Segfault encountered")
_GLOG_STACK: Final = ("*** Check failure stack trace", "PC: @", "    @ ", "  @ ", "*** SIG")
_ADVICE: Final = (
    "Search for `",
    "CUDA kernel errors might be asynchronously",
    "HIP kernel errors might be asynchronously",
    "For debugging consider passing",
    "Compile with `TORCH_USE_",
    "Device-side assertion tracking",
)
_NUMBERED_FRAME: Final = re.compile(r"\s{0,4}\d+ {1,12}(?:0x[0-9a-f]+|/\S)")


def open_block(line: Line) -> Block | None:
    """Start a block on the words with which native code gives up.

    >>> from logtriage.model import Process
    >>> [event] = open_block(Line("free(): invalid pointer", 1, Process())).close()
    >>> event.origin
    'glibc'
    """
    text = after_bar(line.text)
    if not text or text[0] == " ":
        return None
    if len(text) < len(line.text):
        line = attrs.evolve(line, text=text)
    if "[" in text[:HEAD] and (log := read_cpp(text)) is not None:
        return _open_log(line, log)
    if Terminate.starts(line):
        return Terminate(line)
    if "ssert" in text:
        return _open_assertion(line)
    return _open_signal(line) or _open_text(line) or open_build(line)


def _open_log(line: Line, log: CppLine) -> Block | None:
    """A line of torch's C++ log; timeouts, store errors and notices of a teardown are read elsewhere."""
    if log.kind == "abort" and not tells_timeout(log.message[:HEAD]):
        return _Watchdog(line, log)
    if log.kind in ("afterword", "noise"):
        return _Silent(line)
    return None


def _open_assertion(line: Line) -> Block | None:
    text = line.text[:HEAD]
    for pattern in (_ASSERT, _DEEP_GEMM):
        if pattern.match(text):
            return _Flood(line, text.rstrip(), pattern)
    if _C_ASSERT.match(text):
        return _Plain(line, "glibc")
    if text.startswith("[TensorRT-LLM][ERROR] Assertion failed: "):
        return _Plain(line, "terminate")
    return _open_text(line)


def _open_signal(line: Line) -> Block | None:
    text = line.text[:HEAD]
    if text.startswith(_SIGNAL_TEXTS) or ("Caught signal" in text and _CAUGHT.match(text)):
        return _Stack(line, line)
    if text[0] in "*[" and _GLOG_SIGNAL.match(text):
        return _Stack(line, line)
    if text.startswith("*** Aborted at "):
        return _Stack(line, None)
    return None


def _open_text(line: Line) -> Block | None:
    """Words that stand alone on a line."""
    text = line.text[:HEAD]
    if _CUDA.match(text):
        return _Plain(line, "cuda")
    if text.startswith("[TensorRT-LLM][ERROR]") and any(word in text for word in _TRTLLM_CUDA):
        return _Plain(line, "cuda")
    if _GLIBC.match(text):
        return _Plain(line, "glibc")
    if _ASAN.match(text):
        return _Plain(line, "glibc")
    if text.startswith("MPI_ABORT was invoked on rank"):
        return _MpiAbort(line)
    if _GLOG_FATAL.match(text):
        return _Plain(line, "terminate")
    return None


class _Watchdog(CppText):
    """The watchdog thread of a process group dies of an exception, and takes the process with it."""

    def __init__(self, first: Line, log: CppLine) -> None:
        super().__init__(first, keep=False)
        self._log = log
        self._terminate: Terminate | None = None
        self.texts.append(log.message)

    def offer(self, line: Line) -> bool:
        """Take the message's further lines, the stack, and the abort that repeats it."""
        if self._terminate is not None:
            return self._terminate.offer(line) and self.take(line, keep=False)
        log = read_cpp(line.text)
        if log is not None:
            same = log.rank == self._log.rank and log.kind in ("abort", "afterword")
            if same and (log.kind == "afterword" or log.message == self._log.message):
                return self.take(line, keep=False)
            return False
        if Terminate.starts(line):
            self._terminate = Terminate(line)
            return self.take(line, keep=False)
        return self.take_text(line)

    def close(self) -> Sequence[Event]:
        """One abort; what ended the process comes second where it is something else."""
        # The watchdog always throws this class on; the line of the abort names it, if it was not cut off.
        exception = "c10::DistBackendError"
        more: list[Event] = []
        if self._terminate is not None:
            exception = self._terminate.exception or exception
            for event in self._terminate.close():
                told = (
                    event.message.startswith("terminate called") or self._log.message[:HEAD] in event.message
                )
                if not told or isinstance(event, CollectiveTimeout):
                    more.append(event)
        process = of_rank(self.first.process, self._log.rank)
        message = joined(self.texts)
        return [
            NativeAbort(message=message, origin="c10", exception=exception, **self.origin(process)),
            *more,
        ]


class _Silent(CppText):
    """A line of no consequence whose stack must not be read as something else."""

    def offer(self, line: Line) -> bool:
        """Take frames only."""
        return is_cpp_frame(line.text) and self.take(line, keep=False)

    def close(self) -> Sequence[Event]:
        """No event."""
        return []


class _Flood(Gathering):
    """Copies of one line, as many as threads failed."""

    def __init__(self, first: Line, message: str, same: re.Pattern[str]) -> None:
        super().__init__(first, keep=False)
        self._message = message
        self._same = same
        self._repeats = 1

    def offer(self, line: Line) -> bool:
        """Take further copies."""
        if self.anew(line) or not self._same.match(line.text[:HEAD]):
            return False
        self._repeats += 1
        return self.take(line, keep=False)

    def close(self) -> Sequence[Event]:
        """One abort with the number of copies."""
        return [
            NativeAbort(message=self._message, origin="cuda-assert", repeats=self._repeats, **self.origin())
        ]


class _Plain(Gathering):
    """Words on one line, equal copies of it, the advice and the addresses below."""

    def __init__(self, first: Line, origin: str) -> None:
        super().__init__(first)
        self._origin = origin
        self._repeats = 1

    def offer(self, line: Line) -> bool:
        """Take copies, advice and frames."""
        text = line.text
        if self.anew(line):
            return False
        if text.rstrip() == self.texts[0].rstrip():
            self._repeats += 1
            return self.take(line, keep=False)
        if text.startswith(_ADVICE):
            return self.take(line)
        frames = is_cpp_frame(text) or text.startswith(_GLOG_STACK) or _NUMBERED_FRAME.match(text[:HEAD])
        return bool(frames) and self.take(line, keep=False)

    def close(self) -> Sequence[Event]:
        """One abort."""
        message = joined(self.texts)
        return [NativeAbort(message=message, origin=self._origin, repeats=self._repeats, **self.origin())]


class _Stack(Gathering):
    """What a signal handler prints: a line that names the signal, a rule, frames, a rule."""

    _FRAMES = re.compile(
        _RAY + r"\s*(?:=+\s*(?:backtrace|$)|\d+ +(?:0x|/|\w)|@ |PC: @|<truncated|\.\.\. and at least)"
        r'|\s*File "<unknown>"'
    )

    def __init__(self, first: Line, named: Line | None) -> None:
        super().__init__(first)
        self._named = named

    def offer(self, line: Line) -> bool:
        """Take the stack; the line that names the signal may come second."""
        text = line.text[:HEAD]
        if self.anew(line):
            return False
        if self._named is None and _GLOG_SIGNAL.match(text):
            self._named = line
            return self.take(line, keep=False)
        if not text.strip() or opens(text):
            return False
        # tvm-ffi prints its frames as tracebacks do, but never names a file.
        return self._FRAMES.match(text) is not None and self.take(line, keep=False)

    def close(self) -> Sequence[Event]:
        """One abort."""
        message = (self._named or self.first).text[:HEAD].rstrip()
        return [NativeAbort(message=message, origin="signal", **self.origin())]


class _MpiAbort(Gathering):
    """Open MPI's paragraph about a rank that asked to abort."""

    _RANK = re.compile(r"MPI_ABORT was invoked on rank (\d{1,9})")
    _TEXTS = (
        "Proc: ",
        "with errorcode",
        "NOTE: invoking MPI_ABORT",
        "You may or may not see",
        "exactly when Open MPI",
    )

    def offer(self, line: Line) -> bool:
        """Take the paragraph up to its closing rule."""
        text = line.text
        if self.anew(line):
            return False
        if text.lstrip().startswith(self._TEXTS):
            return self.take(line, keep=text.lstrip().startswith(("with errorcode", "Proc: ")))
        return (not text.strip() or text.startswith("-----")) and self.take(line, keep=False)

    def close(self) -> Sequence[Event]:
        """One abort."""
        rank = self._RANK.match(self.texts[0])
        process = of_rank(self.first.process, int(rank[1]) if rank else None)
        return [NativeAbort(message=joined(self.texts), origin="mpi", **self.origin(process))]
