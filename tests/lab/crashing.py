"""Real processes that fail at once and write into one stream, and what is true of each of them.

As a library: a plan in, what the stream carried and the truth about every process out.  As a program it is what
:func:`record` starts, with that stream as its standard error: it starts the processes, and a barrier lets all of
them write at the same time.  Each keeps its own account in a file nobody else writes: the exact text, and the
stack, class and message of each exception of the chain, taken from the exception itself.

Nothing here knows logtriage.  The code that fails is written into a folder first, so that the stacks are real and
so are the source lines in them:

    ways     how a process writes
        logging          its logger writes the traceback as one record, as SGLang's does: one write
        excepthook       ``sys.excepthook`` prints it: a write a line before Python 3.13, a write a frame since
        multiprocessing  nobody catches it: the name of the process, then a write a frame
        faulthandler     it dies of a signal: a dump, piece by piece
    shapes   what it fails with; every process calls functions of its own, if not said otherwise
        plain, cause, context, lines (of a message), empty (message), recursion, group, notes
        shared           all walk through the same functions, each on its own way
        identical        all stand in the same stack
        mixed            the others in turn
    streams  what lies between them and the reader
        pipe, slow-pipe (full, so that the kernel tears records), file, pty, journald
"""

from __future__ import annotations

import builtins
import faulthandler
import functools
import importlib
import itertools
import json
import linecache
import logging
import multiprocessing
import os
import pty
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import attrs

__all__ = ["SHAPES", "STREAMS", "WAYS", "Link", "Plan", "Recording", "Told", "read_back", "record", "why_no_journal"]

WAYS: Final = ("logging", "excepthook", "multiprocessing", "faulthandler")
STREAMS: Final = ("pipe", "slow-pipe", "file", "pty", "journald")
_NEWER: Final = ("group", "notes")  # Python 3.11 brought them
_OWN: Final = ("plain", "cause", "context", "lines", "empty", "recursion", *_NEWER)
SHAPES: Final = (*_OWN, "shared", "identical", "mixed")

_JOURNALD: Final = Path("/lib/systemd/systemd-journald")
_DUMPED_FRAMES: Final = 100  # MAX_FRAME_DEPTH of Python/traceback.c
_REPEATED_FRAMES: Final = 3  # _RECURSIVE_CUTOFF of Lib/traceback.py
_MOST_FRAMES: Final = 270
_PATIENCE: Final = 120.0  # seconds after which a process that hangs is given up

# --- values -----------------------------------------------------------------------------------------


@attrs.frozen
class Plan:
    """What to do.

    Attributes:
        processes: How many.
        way: One of :data:`WAYS`.
        shape: One of :data:`SHAPES`.
        stream: One of :data:`STREAMS`.
        size: About how many bytes a traceback has.
        start: How multiprocessing starts them, ``fork`` or ``spawn``.
        seed: Makes another run of the same kind.
        form: What ``journalctl -o`` prints a journal as.
        unbuffered: They run with ``PYTHONUNBUFFERED``, as in many containers: a write for each piece of a line.
    """

    processes: int = 8
    way: str = "logging"
    shape: str = "plain"
    stream: str = "pipe"
    size: int = 4_000
    start: str = "fork"
    seed: int = 1
    form: str = "json"
    unbuffered: bool = False

    def shape_of(self, rank: int) -> str:
        """The shape that a process takes; those that its Python does not know fall away from ``mixed``."""
        known = [shape for shape in _OWN if sys.version_info >= (3, 11) or shape not in _NEWER]
        return known[rank % len(known)] if self.shape == "mixed" else self.shape


@attrs.frozen
class Link:
    """One exception of a chain, as it is printed.

    Attributes:
        type: Its class with its module.
        message: All that is printed after the colon, notes included.
        frames: File, line, function and source line of each frame that is printed, oldest call first.
        relation: How it leads to the next one: ``cause``, ``context`` (also of a part of a group) or ``""``.
    """

    type: str
    message: str
    frames: tuple[tuple[str, int, str, str], ...]
    relation: str


@attrs.frozen
class Told:
    """What one process knows of its own failure.

    Attributes:
        rank: Its number.
        label: The name that its lines say, ``TP3``; ``""`` where they say none.
        name: Its name in multiprocessing.
        pid: Its process id.
        chain: Its exceptions, the oldest first; of a dump one link, its reason and its frames, newest first.
        text: The text it wrote; ``""`` of a dump.
    """

    rank: int
    label: str
    name: str
    pid: int
    chain: tuple[Link, ...]
    text: str


@attrs.frozen
class Recording:
    """What came of a plan.

    Attributes:
        plan: The plan.
        log: What the reader of the stream got; of a journal, what ``journalctl`` printed.
        told: What the processes told, by rank.
    """

    plan: Plan
    log: bytes
    told: tuple[Told, ...]

    def keep(self, folder: Path) -> None:
        """Write it into *folder*, for :func:`read_back`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "log.txt").write_bytes(self.log)
        told = ",\n".join(json.dumps(attrs.asdict(each)) for each in self.told)
        truth = f'{{"plan": {json.dumps(attrs.asdict(self.plan))}, "told": [\n{told}\n]}}\n'
        (folder / "told.json").write_text(truth, encoding="utf-8")


def read_back(folder: Path) -> Recording:
    """The recording that was kept in *folder*."""
    truth = json.loads((folder / "told.json").read_text(encoding="utf-8"))
    told = tuple(_told(facts) for facts in truth["told"])
    return Recording(Plan(**truth["plan"]), (folder / "log.txt").read_bytes(), told)


def _told(facts: dict[str, Any]) -> Told:
    chain = tuple(
        Link(**{**link, "frames": tuple((str(f), int(n), str(w), str(s)) for f, n, w, s in link["frames"])})
        for link in facts["chain"]
    )
    return Told(**{**facts, "chain": chain})


# --- the code that fails ----------------------------------------------------------------------------

_MODULES: Final = (
    "engine/srt/managers/scheduler.py",
    "engine/srt/managers/tp_worker.py",
    "engine/srt/model_executor/model_runner.py",
    "engine/srt/model_loader/loader.py",
    "engine/srt/models/qwen3_next.py",
    "engine/srt/layers/linear.py",
    "engine/srt/layers/attention/hybrid_backend.py",
)
_FAULTS: Final = "engine/srt/faults.py"
_TYPES: Final = (
    "ValueError",
    "RuntimeError",
    "ModelLoadError",
    "OutOfMemoryError",
    "AssertionError",
    "TimeoutError",
    "CaptureException",
)
_OWN_TYPES: Final = ("ModelLoadError", "OutOfMemoryError", "CaptureException")
_VERBS: Final = (
    "load", "forward", "capture", "replay", "init", "run", "build", "apply",
    "fetch", "route", "split", "merge", "copy", "pad", "plan", "reset",
    "warm", "check", "quantize", "dispatch", "gather", "scatter", "allocate", "launch",
    "prefill", "decode", "verify", "sample", "update", "release",
)  # fmt: skip
_NOUNS: Final = (
    "weights", "batch", "graph", "shard", "cache", "pool", "layer", "expert",
    "token", "state", "request", "prompt", "block", "table", "mask", "bias",
    "scale", "kernel", "stream", "group", "rank", "device", "adapter", "draft",
    "logits", "hidden", "embedding", "buffer", "index", "queue", "page", "radix",
    "config", "tensor", "param", "module", "norm", "gate", "rope",
)  # fmt: skip
_ENDS: Final = ("", "_impl", "_once", "_inner", "_fused", "_async", "_step", "_all", "_raw", "_fast", "_v2", "_sync")
_OPTIONS: Final = (
    'backend="fa3"',
    "page_size=64",
    'dtype="auto"',
    "max_running_requests=256",
    'moe_runner="triton"',
    "chunked_prefill_size=8192",
    'kv_cache_dtype="fp8_e4m3"',
    "mem_fraction_static=0.88",
    'speculative_algorithm="EAGLE"',
    "cuda_graph_max_bs=160",
)
_CALLS: Final = (
    "return {call}",
    "result = {call}",
    "output, cache = {call}, None",
    "batch.last = {call}",
    "{call}",
)
_PADDING: Final = ("step = batch", "# the ranks agree on it", "size = 1 + len(options)", "state = dict(options)", "")
_LINES: Final = (
    "{said}",
    "  expected shape (4096, 7168)",
    "  got      shape (4096, 7160)",
    "",
    "Set another size, or:",
    "    1. use fewer experts",
    "    2. ask for less memory",
)


class _Author:
    """Writes the modules, function after function.

    Args:
        plan: The plan; its size says how deep the stacks are and how long their lines.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.chance = random.Random(f"{plan.seed}/{plan.shape}/{plan.processes}")
        names = [f"{verb}_{noun}{end}" for end in _ENDS for verb in _VERBS for noun in _NOUNS]
        self.chance.shuffle(names)
        self.names = iter(names)
        self.depth = max(3, min(_MOST_FRAMES, plan.size // 180))
        doubled = 2 if sys.version_info >= (3, 11) else 1  # carets below it are as long as the line
        self.pad = max(0, (plan.size // self.depth - 180) // doubled)
        self.text = {module: ["from engine.srt.faults import *", ""] for module in (*_MODULES, _FAULTS)}
        self.text[_FAULTS] = [f"class {name}(Exception): pass" for name in _OWN_TYPES]

    def options(self) -> str:
        """Arguments that make a call as long as the size asks for."""
        said, length, names = "", self.chance.randint(self.pad // 2, self.pad + self.pad // 2), list(_OPTIONS)
        self.chance.shuffle(names)
        while names and len(said) < length:
            said += f", {names.pop()}"
        rest = length - len(said) - 20
        return said + (f', reason="{"too slow " * (rest // 9 + 1)}"' if rest > 0 else "")

    def define(self, *body: str, name: str = "") -> str:
        """A new function with *body*; its name."""
        name = name or next(self.names)
        text = self.text[self.chance.choice(_MODULES)]
        text += [f"def {name}(batch, *steps, **options):"]
        text += [f"    {self.chance.choice(_PADDING)}" for _ in range(self.chance.randint(0, 3))]
        text += [*(f"    {line}" for line in body), "", ""]
        return name

    def path(self, end: str, length: int) -> str:
        """Functions that call each other and *end* at last; the first one's name."""
        for _ in range(length):
            call = f"{end}(batch{self.options()})"
            end = self.define(self.chance.choice(_CALLS).format(call=call))
        return end

    def fails(self) -> str:
        """A function that raises; its name."""
        return self.define(f"raise {self.chance.choice(_TYPES)}(batch.message)")

    def way_to_fail(self, shape: str) -> str:
        """Functions for one process; the first one's name."""
        if shape == "empty":
            line = self.chance.choice(("raise NotImplementedError", "assert batch is None", "raise ModelLoadError"))
            return self.path(self.define(line), self.depth - 1)
        if shape in ("cause", "context"):
            inner = self.path(self.fails(), self.depth // 3)
            tail = " from error" if shape == "cause" else ""
            outer = self.define(
                "try:",
                f"    {inner}(batch)",
                "except Exception as error:",
                f"    raise {self.chance.choice(_TYPES)}('gave up: ' + batch.message){tail}",
            )
            return self.path(outer, self.depth - self.depth // 3)
        if shape == "recursion":
            end, again = self.fails(), next(self.names)
            self.define(
                f"if len(steps) < {self.chance.randint(8, 60)}:",
                f"    return {again}(batch, *steps, 1)",
                f"return {end}(batch)",
                name=again,
            )
            return self.path(again, self.depth - 6)
        if shape == "group":
            parts = [self.path(self.fails(), self.depth // 6) for _ in range(3)]
            outer = self.define(
                "errors = []",
                f"for call in ({', '.join(parts)}):",
                "    try:",
                "        call(batch)",
                "    except Exception as error:",
                "        errors.append(error)",
                "raise ExceptionGroup(batch.message, errors)",
            )
            return self.path(outer, self.depth // 2)
        if shape == "notes":
            end = self.define(
                f"error = {self.chance.choice(_TYPES)}(batch.message)",
                "error.add_note('while loading shard 7 of 12')",
                "error.add_note('the file may be cut off\\n  size on disk: 4096')",
                "raise error",
            )
            return self.path(end, self.depth - 1)
        return self.path(self.fails(), self.depth - 1)

    def common_ground(self) -> list[str]:
        """Functions each of which can call several others; their names.  What comes next, ``steps`` say."""
        names = [next(self.names) for _ in range(24)]
        for name in names:
            body = ["if not steps:", "    return fail_at_last(batch)"]
            for branch, other in enumerate(self.chance.sample(names, 3)):
                call = f"{other}(batch, *steps[1:]{self.options()})"
                body += [f"if steps[0] == {branch}:", f"    {self.chance.choice(_CALLS).format(call=call)}"]
                body += ["    return"]
            self.define(*body, name=name)
        self.define("raise batch.kind(batch.message)", name="fail_at_last")
        return names

    def message(self, rank: int, shape: str) -> str:
        """What a process says of its failure."""
        words = self.chance.sample(_NOUNS, 3)
        said = f"rank {rank} has no {words[0]} for the {words[1]} of its {words[2]}"
        if shape == "identical":
            return f"GPU {rank} ran out of memory"
        if shape == "lines":
            return "\n".join(_LINES).format(said=said)
        return said


def write_code(plan: Plan, folder: Path) -> None:
    """Write the modules below *folder*, and ``ways.json``: where each process enters and what it says."""
    author = _Author(plan)
    common = author.common_ground() if plan.shape == "shared" else []
    same = author.path(author.fails(), author.depth - 1) if plan.shape == "identical" else ""
    ways = []
    for rank in range(plan.processes):
        shape = plan.shape_of(rank)
        steps: list[int] = []
        if common:
            enter, steps = author.chance.choice(common), author.chance.choices(range(3), k=author.depth - 2)
        else:
            enter = same or author.way_to_fail(shape)
        kind = author.chance.choice(_TYPES)
        ways.append({"enter": enter, "steps": steps, "kind": kind, "message": author.message(rank, shape)})
    for module, lines in author.text.items():
        path = folder / module
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "ways.json").write_text(json.dumps(ways), encoding="utf-8")


def load_code(folder: Path) -> dict[str, Any]:
    """Import what :func:`write_code` wrote; all functions and exceptions by name."""
    sys.path.insert(0, str(folder))
    modules = [importlib.import_module(name[:-3].replace("/", ".")) for name in (*_MODULES, _FAULTS)]
    found = {name: value for module in modules for name, value in vars(module).items() if callable(value)}
    for module in modules:  # they call each other across modules, in circles
        vars(module).update(found)
    return found


# --- one process ------------------------------------------------------------------------------------


class Batch:
    """What the functions hand down: the last one raises *kind* with *message*."""

    def __init__(self, kind: type[BaseException], message: str) -> None:
        self.kind, self.message = kind, message


class DeadlyBatch:
    """The same, but who asks for the message does what *doings* says, one after the other."""

    kind = RuntimeError

    def __init__(self, doings: Sequence[Callable[[], object]]) -> None:
        self.doings = doings

    @property
    def message(self) -> str:
        """Nothing that anybody will see."""
        last, wait, kill = self.doings
        return f"{last()}{wait()}{kill()}"  # on one line of source, so that the stack that is told is the one dumped


class Rank:
    """One of the processes.

    Args:
        plan: The plan.
        folder: Where the code lies and the truth goes.
        rank: Its number.
        start: Lets all write at once.
    """

    def __init__(self, plan: Plan, folder: Path, rank: int, start: Any) -> None:
        self.plan, self.folder, self.rank, self.start = plan, folder, rank, start

    def fail(self) -> None:
        """Fail, tell the truth, and write about it once all are ready to."""
        functions = load_code(self.folder)
        way = json.loads((self.folder / "ways.json").read_text(encoding="utf-8"))[self.rank]
        enter, kind = functions[way["enter"]], functions.get(way["kind"]) or getattr(builtins, way["kind"])
        if self.plan.way == "faulthandler":
            self.die(enter, way["steps"])
        try:
            enter(Batch(kind, way["message"]), *way["steps"])
        except Exception as error:
            if self.plan.way == "multiprocessing":
                told = self.as_uncaught(error)
                self.tell(chain_of(told), f"Process {multiprocessing.current_process().name}:\n{_text(told)}")
                self.wait()
                raise
            told = traceback.TracebackException.from_exception(error)
            if self.plan.way == "excepthook":
                self.tell(chain_of(told), _text(told))
                self.wait()
                sys.excepthook(type(error), error, error.__traceback__)
                return
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter(f"[%(asctime)s TP{self.rank}] %(message)s", "%Y-%m-%d %H:%M:%S"))
            said = f"Scheduler hit an exception: {traceback.format_exc()}"
            entry = logging.LogRecord("engine", logging.ERROR, __file__, 0, said, None, None)
            self.tell(chain_of(told), f"{handler.format(entry)}\n")
            self.wait()
            handler.handle(entry)

    def wait(self) -> None:
        """Wait for the others; who fails for the first time has read no source yet."""
        linecache.clearcache()
        self.start.wait(_PATIENCE)

    def as_uncaught(self, error: Exception) -> traceback.TracebackException:
        """The traceback with the frames that it will have passed when multiprocessing prints it."""
        told = traceback.TracebackException.from_exception(error)
        for frame, line in traceback.walk_stack(sys._getframe(2)):
            code = frame.f_code
            where: dict[str, Any] = {}
            if sys.version_info >= (3, 11):  # for the carets
                _, end, column, last = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None))
                where = {"end_lineno": end, "colno": column, "end_colno": last}
            told.stack.insert(0, traceback.FrameSummary(code.co_filename, line, code.co_name, **where))
            if code.co_name == "_bootstrap":
                break
        return told

    def die(self, enter: Callable[..., None], steps: Sequence[int]) -> None:
        """Let faulthandler dump the stack where an exception would have been raised."""
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.enable()
        kill = functools.partial(os.kill, os.getpid(), signal.SIGSEGV)
        enter(DeadlyBatch((self.tell_stack, self.wait, kill)), *steps)

    def tell_stack(self) -> None:
        """Tell the stack of the caller as a dump has it."""
        stack = [(frame.f_code.co_filename, line, frame.f_code.co_name, "") for frame, line in _callers()]
        self.tell((Link("Segmentation fault", "", tuple(stack[:_DUMPED_FRAMES]), ""),), "")

    def tell(self, chain: tuple[Link, ...], text: str) -> None:
        """Write the truth into a file of its own."""
        label = f"TP{self.rank}" if self.plan.way == "logging" else ""
        told = Told(self.rank, label, multiprocessing.current_process().name, os.getpid(), chain, text)
        (self.folder / f"told.{self.rank}.json").write_text(json.dumps(attrs.asdict(told)), encoding="utf-8")


def _callers() -> list[tuple[Any, int]]:
    return list(traceback.walk_stack(sys._getframe(2)))


def _text(told: traceback.TracebackException) -> str:
    return "".join(told.format())


def chain_of(told: traceback.TracebackException, relation: Literal["cause", "context", ""] = "") -> tuple[Link, ...]:
    """The exceptions in the order in which the last one stands after all that led to it.

    Args:
        told: The last one.
        relation: How it leads to a further one.
    """
    before: tuple[Link, ...] = ()
    if told.__cause__ is not None:
        before = chain_of(told.__cause__, "cause")
    elif told.__context__ is not None and not told.__suppress_context__:
        before = chain_of(told.__context__, "context")
    for part in getattr(told, "exceptions", None) or ():
        before += chain_of(part, "context")
    name = _type(told)
    said = "".join(told.format_exception_only()).removeprefix(name).removeprefix(": ").rstrip()
    return (*before, Link(name, said, _printed(told.stack), relation))


def _type(told: traceback.TracebackException) -> str:
    """The name of the class as it is printed."""
    if sys.version_info >= (3, 13):
        return told.exc_type_str
    assert told.exc_type is not None
    module = "" if told.exc_type.__module__ in ("builtins", "__main__") else f"{told.exc_type.__module__}."
    return module + told.exc_type.__qualname__


def _printed(stack: Iterable[traceback.FrameSummary]) -> tuple[tuple[str, int, str, str], ...]:
    """The frames that are printed: of many equal ones only the first few."""
    runs = itertools.groupby((frame.filename, frame.lineno or 0, frame.name, frame.line or "") for frame in stack)
    return tuple(frame for _, run in runs for frame in itertools.islice(run, _REPEATED_FRAMES))


def main() -> None:
    """Start the processes and wait for them; the folder that is named holds the plan."""
    folder = Path(sys.argv[1])
    plan = Plan(**json.loads((folder / "plan.json").read_text(encoding="utf-8")))
    load_code(folder)
    context: Any = multiprocessing.get_context(plan.start)
    start = context.Barrier(plan.processes)
    ranks = [Rank(plan, folder, rank, start) for rank in range(plan.processes)]
    children = [context.Process(target=rank.fail, daemon=True) for rank in ranks]
    for child in children:
        child.start()
    for child in children:
        child.join(_PATIENCE)


# --- the stream -------------------------------------------------------------------------------------


class Stream:
    """What lies between the processes and the reader.

    Attributes:
        end: The descriptor that the processes write to.
    """

    end: int

    def read(self) -> bytes:
        """All that was written, once nobody writes any more."""
        raise NotImplementedError


class Pipe(Stream):
    """A pipe with a reader that is as fast as it can be, or so slow that the pipe is full all the time."""

    def __init__(self, *, slow: bool = False) -> None:
        self._reader, self.end = os.pipe()
        self._slow = slow
        self._got: list[bytes] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while chunk := self._next():
            self._got.append(chunk)
            if self._slow:
                time.sleep(0.001)

    def _next(self) -> bytes:
        try:
            return os.read(self._reader, 4096 if self._slow else 65536)
        except OSError:  # what a terminal says when the last writer has gone
            return b""

    def read(self) -> bytes:
        os.close(self.end)
        self._thread.join()
        os.close(self._reader)
        return b"".join(self._got)


class Terminal(Pipe):
    """A pseudo-terminal, as tmux and script have one."""

    def __init__(self) -> None:
        self._reader, self.end = pty.openpty()
        self._slow = False
        self._got = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()


class File(Stream):
    """A file that all append to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.end = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def read(self) -> bytes:
        os.close(self.end)
        return self._path.read_bytes()


class Journal(Stream):
    """A socket of a journald of its own, as systemd hands it to a service."""

    def __init__(self, form: str) -> None:
        self._form = form
        self._name = f"lab{os.getpid()}x{time.monotonic_ns() % 1_000_000}"
        self._journald = subprocess.Popen(
            [str(_JOURNALD), self._name], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        for _ in range(100):
            try:
                self._socket.connect(f"/run/systemd/journal.{self._name}/stdout")
                break
            except OSError:
                time.sleep(0.05)
        self._socket.sendall(b"lab\n\n6\n1\n0\n0\n0\n")
        self.end = self._socket.fileno()

    def read(self) -> bytes:
        self._socket.close()
        self._ask("--sync")
        got = self._ask("--output", self._form, "--all", "--identifier=lab")
        self._journald.terminate()
        self._journald.wait()
        for base in ("/var/log/journal", "/run/log/journal"):
            for path in Path(base).glob(f"*.{self._name}"):
                shutil.rmtree(path)
        shutil.rmtree(f"/run/systemd/journal.{self._name}", ignore_errors=True)
        return got

    def _ask(self, *options: str) -> bytes:
        command = ["journalctl", f"--namespace={self._name}", "--no-pager", "--quiet", *options]
        return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout


def why_no_journal() -> str | None:
    """Why no journald can be started here; ``None`` if one can."""
    if os.geteuid() != 0:
        return "only root can start a journald"
    if not _JOURNALD.exists() or shutil.which("journalctl") is None:
        return "systemd is not installed (Debian: apt-get install systemd)"
    return None


def _open(plan: Plan, folder: Path) -> Stream:
    if plan.stream == "file":
        return File(folder / "stream.txt")
    if plan.stream == "pty":
        return Terminal()
    if plan.stream == "journald":
        return Journal(plan.form)
    return Pipe(slow=plan.stream == "slow-pipe")


def record(plan: Plan, folder: Path) -> Recording:
    """Do what a plan says.

    Args:
        plan: The plan.
        folder: An empty folder, for the code that fails and the truth; its path stands in the stacks.

    Returns:
        What the stream carried, and the truth.

    Raises:
        RuntimeError: A process did not get so far as to tell.
    """
    write_code(plan, folder)
    (folder / "plan.json").write_text(json.dumps(attrs.asdict(plan)), encoding="utf-8")
    stream = _open(plan, folder)
    command = [sys.executable, str(Path(__file__).resolve()), str(folder)]
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    surroundings |= {"PYTHONUNBUFFERED": "1"} if plan.unbuffered else {}
    nothing = subprocess.DEVNULL
    try:
        subprocess.run(command, stdin=nothing, stdout=nothing, stderr=stream.end, env=surroundings, check=True)
    finally:
        log = stream.read()
    paths = [folder / f"told.{rank}.json" for rank in range(plan.processes)]
    if not all(path.exists() for path in paths):
        raise RuntimeError(f"not all processes told what they know: {log[-2000:].decode('utf-8', 'replace')}")
    return Recording(plan, log, tuple(_told(json.loads(path.read_text(encoding="utf-8"))) for path in paths))


if __name__ == "__main__":
    main()
