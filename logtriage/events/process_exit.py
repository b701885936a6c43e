"""Lines that report somebody's death in, one event out that names the dead as far as the line does.

Law: the process of the event is the one that reports; the one that ended is its victim.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from logtriage.events.block import Block, Whole
from logtriage.events.collect import HEAD, Gathering, after_bar
from logtriage.model import Event, Line, Process, ProcessExit, ProcessRole, Rank

__all__ = ["open_block"]

_SIGNALS: Final = {
    "Hangup": 1,
    "Illegal instruction": 4,
    "Trace/breakpoint trap": 5,
    "Aborted": 6,
    "Bus error": 7,
    "Floating point exception": 8,
    "Killed": 9,
    "Segmentation fault": 11,
    "Terminated": 15,
}
_SIGNAL_WORDS: Final = "|".join(_SIGNALS)
_COREDUMP: Final = "fc2e22bc6ee647b6b90729ab34a250b1"

# A shell tells of a signal on a line of its own; in a script it names script, line and job first.
_SHELL: Final = re.compile(
    rf"(?:[\w./~+-]+: line \d+: +(?P<pid>\d+) )?(?P<signal>{_SIGNAL_WORDS})(?P<core> \(core dumped\))?"
    r"(?(pid)(?: .*)?$|\s*$)"
)
_EXIT_CODE: Final = re.compile(r"Exit code: (?P<code>-?\d+|None)\s*$")
_DEAD: Final = re.compile(
    r"Rank (?P<index>\d+) (?P<what>[\w ]{1,40}) is dead\. Please check if there are relevant logs"
)

_CODE: Final = r"(?P<code>-?\d+|None)"
_PATTERNS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"Subprocess (?P<name>\S+) \(pid=(?P<pid>\d+)\) crashed with exit code {_CODE}",
        r"Child process unexpectedly failed with exitcode=(?P<status>\d+)\. pid=(?P<pid>\d+)",
        r"Child process unexpectedly failed with an exit code (?P<status>\d+)\. pid=(?P<pid>\d+)",
        rf"(?P<name>Scheduler or DataParallelController) (?P<pid>\d+) terminated with {_CODE}",
        rf"Worker proc (?P<name>\S+) died unexpectedly(?: \(exit code: {_CODE}\))?",
        r"(?P<name>RayWorkerProc) rank=(?P<index>\d{1,9})\S{0,200} died unexpectedly",
        r"Engine core proc(?:ess)? (?P<name>\S+) died unexpectedly",
        rf"Worker (?P<name>\S+) pid (?P<pid>\d+) died, exit code: {_CODE}",
        rf"Process (?P<name>\S+) \(PID: (?P<pid>\d+)\) died with exit code {_CODE}",
        rf"Process (?P<name>\S+?),? exited with (?:exit )?code:? {_CODE}",
        rf"(?P<name>Server) process (?:\(?pid[= ](?P<pid>\d+)\)? )?exited with (?:exit )?code:? {_CODE}",
        rf"(?P<name>[\w:-]+) exited during initialization \(exit code {_CODE}\)",
        rf"(?P<name>[\w./-]+) exited with code {_CODE}(?: \(restarting\))?\s*$",
        r"Shard process was signaled to shutdown with signal (?P<signal>\d+)(?: rank=(?P<index>\d+))?",
        rf"failed \(exitcode: {_CODE}\) local_rank: (?P<index>\d+) \(pid: (?P<pid>\d+)\) of binary",
        r"srun: error: (?P<host>[\w.-]+): tasks? (?P<index>\d{1,9})[\d,-]*: Exited with exit code (?P<code>\d+)",
        r"srun: error: (?P<host>[\w.-]+): tasks? (?P<index>\d{1,9})[\d,-]*: "
        rf"(?P<word>{_SIGNAL_WORDS}|Out Of Memory)",
        r"(?:mpirun|prterun|mpiexec) noticed that process rank (?P<index>\d+) with PID (?P<pid>\d+) on node "
        r"(?P<host>\S+) exited on signal (?P<signal>\d+)",
        r"(?:WARN|INFO) exited: (?P<name>\S+) \(terminated by SIG(?P<named>\w+)",
        r"(?:WARN|INFO) exited: (?P<name>\S+) \(exit status (?P<code>[1-9]\d*); not expected\)",
        r"App \[(?P<name>[^\]]{1,80})\] exited with code \[(?P<code>[1-9]\d*)\]",
        r"A worker died or was killed while executing a task by an unexpected system error",
    )
)
_HINTS: Final = (
    "exit code",
    "exitcode",
    "exited",
    "died",
    "terminated with",
    "with code",
    "was signaled to shutdown",
    "srun: error: ",
)
_TORCH_LOG: Final = re.compile(r"[EWF]\d{4} [\d:.]+ \d+ torch/distributed/elastic/\S{1,120}:\d+\] ")
_NAMED_SIGNALS: Final = {"ILL": 4, "ABRT": 6, "BUS": 7, "FPE": 8, "KILL": 9, "SEGV": 11, "TERM": 15, "INT": 2}
_DUMPED: Final = re.compile(
    r"Process (?P<pid>\d+) \((?P<name>.{1,64}?)\) of user \d+ "
    r"(?:dumped core|terminated abnormally(?: with signal (?P<signal>\d+))?)"
)


def open_block(line: Line) -> Block | None:
    """Start a block on a line that reports a death.

    >>> from logtriage.model import Process
    >>> line = Line("Subprocess scheduler_3 (pid=77) crashed with exit code -9. Triggering", 1, Process())
    >>> [event] = open_block(line).close()
    >>> event.victim.label, event.victim.pid, event.exit_code
    ('TP3', 77, -9)
    """
    text = line.text
    if not line.prefixed and (found := _SHELL.match(after_bar(text)[:HEAD])):
        return _whole(line, _shell_victim(found["pid"]), -_SIGNALS[found["signal"]])
    if " is dead. " in text and (dead := _DEAD.match(text[:HEAD])):
        return _Dead(line, _indexed(line, dead["what"], int(dead["index"])))
    if text.startswith("Exit code: ") and line.prefixed and (code := _EXIT_CODE.match(text[:HEAD])):
        return _whole(line, Process(role="scheduler"), _code(code["code"]))
    if text.startswith("Root Cause (first observed failure):"):
        return _Elastic(line)
    if text.startswith("Primary job ") and "terminated normally, but" in text:
        return _Mpi(line)
    if line.record.message_id == _COREDUMP or line.record.ident == "systemd-coredump":
        return _dumped(line)
    if any(hint in text[:HEAD] for hint in _HINTS):
        return _reported(line)
    return None


def _reported(line: Line) -> Block | None:
    """A death told in one sentence."""
    head = line.text[:HEAD]
    if torch_log := _TORCH_LOG.match(head):
        head = head[torch_log.end() :]
    for pattern in _PATTERNS:
        if found := pattern.match(head):
            said = {name: value for name, value in found.groupdict().items() if value is not None}
            if line.prefixed and "host" in said:
                return None
            return _whole(line, _victim(line, said), _exit_code(said))
    return None


def _whole(line: Line, victim: Process, code: int | None) -> Block:
    return Whole(
        ProcessExit(
            message=after_bar(line.text)[:HEAD].rstrip(),
            victim=victim,
            exit_code=code,
            **Gathering(line).origin(),
        )
    )


def _exit_code(said: dict[str, str]) -> int | None:
    """The exit code a sentence carries, negative for a signal."""
    if "status" in said:
        # The launcher prints what waitpid() gave it: the code times 256, or the number of a signal,
        # plus 128 where a core was written.
        status = int(said["status"])
        return status >> 8 if status >= 256 else -(status & 0x7F)
    if "signal" in said:
        return -int(said["signal"])
    if "named" in said:
        return -_NAMED_SIGNALS[said["named"]] if said["named"] in _NAMED_SIGNALS else None
    if "word" in said:
        return -_SIGNALS[said["word"]] if said["word"] in _SIGNALS else -9
    return _code(said.get("code"))


def _code(text: str | None) -> int | None:
    return None if text in (None, "None") else int(str(text))


_SCHEDULER: Final = re.compile(r"(?:sglang::)?scheduler(?:_(\d+))?$")
_ROLES: Final[tuple[tuple[str, ProcessRole], ...]] = (
    ("detoken", "detokenizer"),
    ("token", "tokenizer"),
    ("cheduler", "scheduler"),
    ("data_parallel", "manager"),
    ("Controller", "manager"),
    ("EngineCore", "scheduler"),
    ("orker", "worker"),
    ("erver", "launcher"),
)


def _victim(line: Line, said: dict[str, str]) -> Process:
    """The process that a sentence names."""
    name = said.get("name", "")
    pid = int(said["pid"]) if "pid" in said else None
    host = said.get("host", line.process.host)
    if found := _SCHEDULER.match(name):
        rank = Rank(tp=int(found[1])) if found[1] else Rank()
        return Process(role="scheduler", label=str(rank) or "scheduler", rank=rank, pid=pid, host=host)
    role: ProcessRole = next((role for part, role in _ROLES if part in name), "unknown")
    label = "detokenizer" if role == "detokenizer" else name
    if name == "Scheduler or DataParallelController":
        role, label = "scheduler", ""
    if "index" in said:
        rank = Rank(world=int(said["index"]))
        return Process(role="worker", label=label or str(rank), rank=rank, pid=pid, host=host)
    return Process(role=role, label=label, pid=pid, host=host)


def _indexed(line: Line, what: str, index: int) -> Process:
    """The victim of ``Rank 3 scheduler is dead``."""
    role: ProcessRole = "scheduler" if "scheduler" in what else "worker"
    rank = Rank(tp=index)
    return Process(role=role, label=str(rank), rank=rank, host=line.process.host)


def _shell_victim(pid: str | None) -> Process:
    """A shell waits for the command it started: the server itself."""
    return Process(role="launcher", label="main", pid=int(pid) if pid else None)


def _dumped(line: Line) -> Block | None:
    """What systemd-coredump says; the stack below it is in the same entry."""
    found = _DUMPED.match(line.text[:HEAD])
    if found is None:
        return None
    fields = dict(line.record.fields)
    signal = found["signal"] or fields.get("COREDUMP_SIGNAL", "")
    victim = Process(label=found["name"], pid=int(found["pid"]), host=line.record.host)
    return _whole(line, victim, -int(signal) if signal.isdecimal() else None)


class _Dead(Gathering):
    """``Rank 0 scheduler is dead`` and the exit code that follows when the launcher has joined it."""

    def __init__(self, first: Line, victim: Process) -> None:
        super().__init__(first)
        self._victim = victim
        self._code: int | None = None

    def offer(self, line: Line) -> bool:
        """Take the exit code; it has a prefix of its own."""
        found = _EXIT_CODE.match(line.text[:HEAD]) if len(self.texts) == 1 else None
        if found is None:
            return False
        self._code = _code(found["code"])
        return self.take(line)

    def close(self) -> Sequence[Event]:
        """One death."""
        message = "\n".join(self.texts)
        return [ProcessExit(message=message, victim=self._victim, exit_code=self._code, **self.origin())]


class _Rows(Gathering):
    """A report of several lines ``key : value``."""

    def __init__(self, first: Line) -> None:
        super().__init__(first)
        self._rank: int | None = None
        self._pid: int | None = None
        self._host: str | None = None
        self._code: int | None = None

    def close(self) -> Sequence[Event]:
        """One death."""
        rank = Rank(world=self._rank)
        victim = Process(role="worker", label=str(rank), rank=rank, pid=self._pid, host=self._host)
        message = "\n".join(self.texts)
        return [ProcessExit(message=message, victim=victim, exit_code=self._code, **self.origin())]


class _Elastic(_Rows):
    """The rows under ``Root Cause (first observed failure):`` of torchrun's table."""

    _ROW = re.compile(r"\s+(?P<key>time|host|rank|exitcode|error_file|traceback) *: ?(?P<value>.*)$")
    _NUMBERS = re.compile(r"(-?\d+)(?: \((?:pid|local_rank): (\d+)\))?")

    def offer(self, line: Line) -> bool:
        """Take rows up to the double rule."""
        text = line.text[:HEAD]
        if self.anew(line) or text.startswith("====") or not text.strip():
            return False
        row = self._ROW.match(text)
        numbers = self._NUMBERS.match(row["value"]) if row else None
        if row and row["key"] == "host":
            self._host = row["value"].strip()
        elif row and numbers and row["key"] == "rank":
            self._rank = int(numbers[1])
        elif row and numbers and row["key"] == "exitcode":
            self._code = int(numbers[1])
            self._pid = int(numbers[2]) if numbers[2] else None
        elif not row and not text.startswith(("[", "  ")):
            return False
        return self.take(line)


class _Mpi(_Rows):
    """Open MPI's paragraph about the process that ended first."""

    _NAME = re.compile(r"\s*Process name: \[\[\d+,\d+\],(\d+)\]")
    _EXIT = re.compile(r"\s*Exit code: +(\d+)")

    def offer(self, line: Line) -> bool:
        """Take the paragraph up to the exit code."""
        text = line.text[:HEAD]
        if self.anew(line) or self._code is not None:
            return False
        if found := self._NAME.match(text):
            self._rank = int(found[1])
            return self.take(line)
        if found := self._EXIT.match(text):
            self._code = int(found[1])
            return self.take(line)
        wanted = not text.strip() or text.startswith(
            ("-----", "mpirun detected", "a non-zero exit code", "the job to be terminated")
        )
        return wanted and self.take(line, keep=False)
