"""Lines that say "error" without a traceback in, one event out for each.

Law: only what stands at the start of a line counts; requests, prompts and access lines never do.

Source:
    argparse, uvicorn, NCCL 2.18 to 2.32, gloo, glog, SGLang, vLLM, TensorRT-LLM, shells, docker.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from logtriage.events.block import Block, Whole
from logtriage.events.collect import HEAD, Gathering, after_bar, joined, opens
from logtriage.events.cpp import CppText, read_cpp
from logtriage.model import Event, Line, LoggedError, Process

__all__ = ["open_block"]

_USAGE: Final = re.compile(r"usage: \S")
_USAGE_ERROR: Final = re.compile(r"(?P<program>[\w./-]{1,120}(?: [\w-]{1,40}){0,3}): error: (?P<text>.+)")
_ARGPARSE: Final = re.compile(
    r"argument |unrecognized arguments: |the following arguments are required: |ambiguous option: "
    r"|one of the arguments |expected |invalid choice: |too few arguments"
    r"|No such option|.{1,80}: not allowed with"
)
_IMPORT: Final = re.compile(r"Ignore import error when loading (?P<module>[\w.]+): ")
_NCCL: Final = re.compile(
    r"(?:\[[\d :.-]{10,40}\] )?(?P<host>\S{1,255}):(?P<pid>\d+):(?P<tid>\d+) (?:\[\d+\] )?"
    r"(?:\S{1,255}:\d+ (?:\([^)]{0,120}\) )?)?(?:NCCL|NVSHMEM) (?:WARN|ERROR|ABORT) (?P<text>.+)"
)
_GLOO: Final = re.compile(r"\[\S{0,300}gloo/\S{1,200}:\d+\] (?P<text>.+)")
_GLOG: Final = re.compile(r"E(?:\d{4}){1,2} [\d:.]{8,24} +\d+ (?P<file>[\w./+-]{1,200}):\d+\] (?P<text>.+)")
_UCX: Final = re.compile(
    r"\[\d+\.\d+\] \[[^\]]{1,120}\] +[\w.-]{1,80}:\d+ +UCX +(?:FATAL|ERROR) (?P<text>.+)"
)
_BIND: Final = re.compile(r"(?:ERROR: +)?\[Errno \d+\] .{1,400}")
_UVICORN: Final = re.compile(r"ERROR: {4,6}(?P<text>\S.*)")
_SHELL: Final = re.compile(
    r"(?:[\w./-]{1,120}: (?:line \d+: |\d+: )?)[\w./+-]{1,200}: "
    r"(?:command not found|not found|Permission denied|No such file or directory|cannot execute.{0,80})\s*$"
    r"|[\w./-]{0,200}python[\d.]*: (?:No module named |can't open file |Error while finding module ).{1,400}"
)
# The server makes room and goes on.
_ADVICE: Final = ("Decode out of memory happened", "KV cache pool is full", "Testing retraction")
_STARTS: Final = (
    # SGLang says these before it raises something shorter, or instead.
    "Prefill out of memory",
    "Decode out of memory",
    "Initialization failed. ",
    "SubprocessWatchdog thread crashed",
    # docker and its NVIDIA part: the container never ran
    "docker: Error response from daemon",
    "Error response from daemon",
    "nvidia-container-cli: ",
    "OCI runtime create failed",
    # systemctl, slurm, text-generation-inference
    "slurmstepd: error: Detected ",
    "Error: Shard",
    "Error: DownloadError",
    "Error: Webserver",
    "Error: ArgumentValidation",
    "Error: NotEnoughCUDADevices",
)
# Arguments are parsed before there is another process.
_MAIN: Final = Process("launcher", "main")
_ERROR_LEVELS: Final = frozenset(("ERROR", "CRITICAL", "FATAL", "E", "F"))
_SEVERE: Final = re.compile(
    r"(?:\[\d\d/\d\d/\d{4}-[\d:]{8}\] )?\[TRT-LLM\] (?:\[(?:RANK|MPI_Rank) \d+\] )?\[[EF]\] "
    r"(?:\[\w+\])?(?:\[RANK \d+\] )?"
    r"|\[TensorRT-LLM\]\[ERROR\] |\[TM\]\[(?:FATAL|ERROR)\](?:\[[^\]]{1,80}\]){0,2} "
)
_NOT_NEWS: Final = ("Traceback (most recent call last)", "During handling of", "The above exception")


def open_block(line: Line) -> Block | None:
    """Start a block on an error that no traceback holds.

    >>> from logtriage.model import Process
    >>> line = Line("launch_server.py: error: unrecognized arguments: --tpp 8", 1, Process())
    >>> [event] = open_block(line).close()
    >>> event.origin
    'argparse'
    """
    text = line.text[:HEAD]
    if not text or text[0] == " ":
        return None
    if text.startswith("Ignore import error") and _IMPORT.match(text):
        return _whole(line, text, origin="import-ignored")
    if not line.prefixed:
        if text.startswith("usage: ") and _USAGE.match(text):
            return _Usage(line)
        if ": error: " in text and (block := _open_usage_error(line, text)):
            return block
    if text.startswith(_ADVICE):
        return _whole(line, text, origin="advice")
    if text.startswith(_STARTS) or (text.startswith("Job for ") and " failed because " in text):
        return _Text(line, "engine")
    return _open_library(line, text) or _open_level(line, text)


def _open_usage_error(line: Line, text: str) -> Block | None:
    """The last line of argparse, where the usage above it was cut off."""
    found = _USAGE_ERROR.match(text)
    return _whole(line, text, origin="argparse") if found and _ARGPARSE.match(found["text"]) else None


def _open_library(line: Line, text: str) -> Block | None:
    """The lines of libraries, each with its own head."""
    library = " WARN " in text or "NCCL ERROR" in text or "NVSHMEM ABORT" in text
    if library and (found := _NCCL.match(after_bar(text))):
        return _Same(line, found["text"].rstrip(), "nccl", int(found["pid"]))
    if text[0] == "[":
        if "gloo/" in text and (found := _GLOO.match(text)):
            return _Text(line, "gloo")
        if " UCX " in text and (found := _UCX.match(text)):
            return _Same(line, found["text"].rstrip(), "engine")
        log = read_cpp(text)
        if log is not None:
            return _Store(line, log.message) if log.kind in ("store", "error") and log.message else None
    if text[0] == "E" and (found := _GLOG.match(text)) and not found["file"].startswith("torch/"):
        return _Same(line, found["text"].rstrip(), "engine")
    return None


def _open_level(line: Line, text: str) -> Block | None:
    """Lines that carry a level, a bare exception, or the words of a shell."""
    if "[Errno " in text[:24] and _BIND.match(text):
        return _whole(line, text.removeprefix("ERROR:").lstrip(), origin="bind", type="OSError")
    if found := _SEVERE.match(text):
        rest = text[found.end() :]
        if _Component.follows(rest):
            return _Component(line, rest)
        return _Same(line, rest.rstrip(), "engine") if rest.strip() and not _wraps(rest) else None
    if text.startswith("ERROR:") and (found := _UVICORN.match(text)):
        return None if _wraps(found["text"]) else _Same(line, found["text"].rstrip(), "engine")
    if not line.prefixed and _SHELL.match(text):
        return _whole(line, text, origin="engine")
    if line.level in _ERROR_LEVELS and not _wraps(text):
        return _Same(line, text.rstrip(), "engine")
    return None


def _wraps(text: str) -> bool:
    """Whether the text only leads to a traceback, or is a piece of one."""
    return text.lstrip().startswith(_NOT_NEWS) or text[:1] == " " or not text.strip().strip(" ^~")


def _whole(line: Line, text: str, *, origin: str, type: str = "") -> Block:  # noqa: A002 - the name of the field
    process = _MAIN if origin == "argparse" and not line.process.label else None
    return Whole(LoggedError(message=text.rstrip(), type=type, origin=origin, **Gathering(line).origin(process)))


class _Usage(Gathering):
    """argparse's usage, hundreds of lines of it, and the error at its end."""

    def __init__(self, first: Line) -> None:
        super().__init__(first, keep=False)
        self._error = ""

    def offer(self, line: Line) -> bool:
        """Take the indented usage; the first line with ``error:`` ends it."""
        text = line.text[:HEAD]
        if self.anew(line) or self._error or opens(text):
            return False
        found = _USAGE_ERROR.match(text)
        if found:
            self._error = text.rstrip()
        return bool(found or text[:1] in ("", " ", "\t", "[", "{", "-", "(")) and self.take(line, keep=False)

    def close(self) -> Sequence[Event]:
        """One error; nothing where somebody asked for help."""
        if not self._error:
            return []
        process = None if self.first.process.label else _MAIN
        return [LoggedError(message=self._error, origin="argparse", **self.origin(process))]


class _Same(Gathering):
    """An error line and equal ones that follow it."""

    def __init__(self, first: Line, message: str, origin: str, pid: int | None = None) -> None:
        super().__init__(first, keep=False)
        self._process = first.process
        if pid is not None and not first.process.rank:
            # Nothing but the process id tells who says this: the line has no rank of its own.
            self._process = Process(role="worker", pid=pid, host=first.process.host)
        self._message = message
        self._origin = origin
        self._repeats = 1

    def offer(self, line: Line) -> bool:
        """Take copies."""
        if line.text != self.first.text or line.process != self.first.process:
            return False
        self._repeats += 1
        return self.take(line, keep=False)

    def close(self) -> Sequence[Event]:
        """One error with the number of copies."""
        common = self.origin(self._process)
        return [LoggedError(message=self._message, origin=self._origin, repeats=self._repeats, **common)]


class _Component(Gathering):
    """TensorRT-LLM's executor could not be made; below an empty line it says which part, and how much memory it saw."""

    _SAID: Final = ("The following component could not be created:", "Total GPU memory", "Free GPU memory")

    def __init__(self, first: Line, message: str) -> None:
        super().__init__(first, keep=False)
        self.texts.append(message)

    @staticmethod
    def follows(text: str) -> bool:
        """Whether *text* leads to that."""
        return "insufficient GPU memory" in text

    def offer(self, line: Line) -> bool:
        """Take the empty lines and what is said of the part."""
        if self.anew(line):
            return False
        if not line.text.strip():
            return self.take(line, keep=False)
        return line.text.startswith(self._SAID) and self.take(line)

    def close(self) -> Sequence[Event]:
        """One error."""
        return [LoggedError(message=joined(self.texts), origin="engine", **self.origin())]


class _Text(CppText):
    """An error of several lines: its text, and the C++ stack that may stand below."""

    def __init__(self, first: Line, origin: str) -> None:
        super().__init__(first)
        self._origin = origin

    def close(self) -> Sequence[Event]:
        """One error."""
        return [LoggedError(message=joined(self.texts), origin=self._origin, **self.origin())]


class _Store(CppText):
    """A line of torch's C++ log about a store or a socket, with its stack."""

    def __init__(self, first: Line, message: str) -> None:
        super().__init__(first, keep=False)
        self.texts.append(message)

    def close(self) -> Sequence[Event]:
        """One error."""
        return [LoggedError(message=joined(self.texts), origin="nccl", **self.origin())]
