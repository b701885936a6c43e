"""A size, a form and a seed go in; the journal of a server that crashes at times comes out, with the truth.

The law: the same arguments give the same bytes.  Crashes differ from each other, so none hides behind an
equal one.  The wording is that of SGLang 0.5; a crash is a traceback of one rank of eight, what the other
ranks then print, the notice of the parent, and, where the form has it, what systemd says.

    python -m benchmarks.generate --size 10 --form short > journal.txt
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import attrs

__all__ = ["FORMS", "Crash", "generate"]

RANKS: Final = 8
UNIT: Final = "sglang-bench.service"
TITLE: Final = f"{UNIT} - SGLang under measurement"
_HOST: Final = "gpu07"
_MAIN: Final = 4000
_BOOT: Final = "3c1f9d0a7b5e4c2f8a6d1e0b9c7f5a43"
_START: Final = datetime.datetime(2026, 3, 9, 12, 0, 0, tzinfo=datetime.timezone.utc)
_FOLDER: Final = "/opt/sglang/python/sglang/srt"
_SYLLABLES: Final = (
    "ba",
    "de",
    "fi",
    "go",
    "ku",
    "la",
    "me",
    "ni",
    "po",
    "ru",
    "sa",
    "te",
    "vi",
    "wo",
    "xu",
    "za",
)


@attrs.frozen
class Crash:
    """One planted crash.

    Attributes:
        process: The rank it began on, as the log writes it.
        fault: What sort of fault it is.
        first: The line on which the traceback of that rank begins.
        last: The last line of the crash; what systemd says then is not counted.
    """

    process: str
    fault: str
    first: int
    last: int


@attrs.frozen
class Fault:
    """A sort of crash.

    Attributes:
        name: Its name.
        message: What the rank on which it began says last; ``{rank}`` and ``{word}`` are filled in.
        spreads: Other ranks fail in the same way; else they lose their connection to the first one.
    """

    name: str
    message: str
    spreads: bool


FAULTS: Final = (
    Fault(
        "memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB. GPU {rank} has a "
        "total capacity of 79.11 GiB of which 1.27 GiB is free. Process 913 has 77.83 GiB memory in use.",
        spreads=False,
    ),
    Fault("assertion", "AssertionError: layout of {word} does not fit the number of heads", spreads=True),
    Fault("key", "KeyError: 'model.layers.{word}.weight'", spreads=True),
    Fault(
        "cuda", "torch.AcceleratorError: CUDA error: an illegal memory access was encountered", spreads=False
    ),
)


class _Log:
    """The journal while it is written, in one of the forms."""

    def __init__(self, stream: BinaryIO, form: str, chance: random.Random) -> None:
        self.chance = chance
        self.form = form
        self.lines = 0
        self.size = 0
        self.invocation = 0
        self.now = _START
        self._stream = stream
        self._write = FORMS[form]
        self._pending: list[str] = []

    def say(self, pid: int, text: str) -> None:
        """Write one line of a process; pid 1 is systemd's, which only a journal holds."""
        line = self._write(self, pid, text)
        if line:
            self.lines += 1
            self.size += len(line) + 1  # the text is ASCII
            self._pending.append(line)
            if len(self._pending) >= 4096:
                self.flush()

    def flush(self) -> None:
        """Hand all lines to the stream."""
        if self._pending:
            self._stream.write(("\n".join(self._pending) + "\n").encode("ascii"))
            self._pending.clear()

    def pass_time(self, most: float) -> None:
        """Let up to *most* seconds go by."""
        self.now += datetime.timedelta(seconds=self.chance.random() * most)

    @property
    def stamp(self) -> str:
        """The time as the server writes it."""
        return f"{self.now:%Y-%m-%d %H:%M:%S}"


def _raw(_: _Log, pid: int, text: str) -> str:
    return "" if pid == 1 else text


def _short(log: _Log, pid: int, text: str) -> str:
    return f"{log.now:%b %d %H:%M:%S} {_HOST} {'systemd' if pid == 1 else 'python3'}[{pid}]: {text}"


def _json(log: _Log, pid: int, text: str) -> str:
    micros = int(log.now.timestamp() * 1_000_000)
    entry = {
        "__CURSOR": f"s=5f0e;i={log.lines:x};b={_BOOT};t={micros:x}",
        "__REALTIME_TIMESTAMP": str(micros),
        "__MONOTONIC_TIMESTAMP": str(micros - 1_700_000_000_000_000),
        "_BOOT_ID": _BOOT,
        "_MACHINE_ID": "0123456789abcdef0123456789abcdef",
        "_HOSTNAME": _HOST,
        "_RUNTIME_SCOPE": "system",
        "_PID": str(pid),
        "_UID": "0",
        "_GID": "0",
        "_CAP_EFFECTIVE": "1fffeffffff",
        "PRIORITY": "6",
    }
    invocation = f"{log.invocation:032x}"
    if pid == 1:
        entry |= {
            "SYSLOG_IDENTIFIER": "systemd",
            "_TRANSPORT": "journal",
            "UNIT": UNIT,
            "INVOCATION_ID": invocation,
        }
        entry |= {"_SYSTEMD_UNIT": "init.scope", "_COMM": "systemd"}
    else:
        entry |= {"SYSLOG_IDENTIFIER": "python3", "_TRANSPORT": "stdout", "_SYSTEMD_UNIT": UNIT}
        entry |= {"_SYSTEMD_INVOCATION_ID": invocation, "_COMM": "python3"}
    return json.dumps({**entry, "MESSAGE": text}, separators=(",", ":"))


FORMS: Final[dict[str, Callable[[_Log, int, str], str]]] = {"raw": _raw, "short": _short, "json": _json}


def generate(stream: BinaryIO, *, size: int, form: str, crashes: int, seed: int = 1) -> tuple[Crash, ...]:
    """Write a journal.

    Args:
        stream: Where to.
        size: About how many bytes; more if the crashes alone take more.
        form: A key of :data:`FORMS`.
        crashes: How many to plant, evenly spread; the server serves before the first and after the last.
        seed: Makes another journal of the same kind.

    Returns:
        The crashes in the order of the journal.
    """
    chance = random.Random(seed)
    words = ["".join((a, b, c)) for a in _SYLLABLES for b in _SYLLABLES for c in _SYLLABLES]
    chance.shuffle(words)
    log = _Log(stream, form, chance)
    truth = []
    _start(log)
    for index in range(crashes):
        _serve(log, size * (index + 1) // (crashes + 1))
        truth.append(_crash(log, FAULTS[index % len(FAULTS)], words[index]))
        _restart(log, index + 1)
        _start(log)
    _serve(log, size)
    log.flush()
    return tuple(truth)


def _pid(log: _Log, rank: int | None) -> int:
    """Pids of one start; the parent is the one without a rank."""
    return _MAIN + 100 * log.invocation + (0 if rank is None else 10 + rank)


def _start(log: _Log) -> None:
    log.say(1, f"Started {TITLE}.")
    main = _pid(log, None)
    args = "model_path='/models/bench', tp_size=8, attention_backend='fa3', mem_fraction_static=0.88"
    log.say(main, f"[{log.stamp}] server_args=ServerArgs({args})")
    for step in (
        "Init torch distributed begin.",
        "Load weight begin. avail mem=78.60 GB",
        "KV Cache is allocated. #tokens: 2621440, K size: 20.00 GB, V size: 20.00 GB",
        "Memory pool end. avail mem=9.14 GB",
        "Capture cuda graph begin. This can take up to several minutes. avail mem=8.71 GB",
    ):
        log.pass_time(9.0)
        for rank in range(RANKS):
            log.say(_pid(log, rank), f"[{log.stamp} TP{rank}] {step}")
    log.say(main, f"[{log.stamp}] INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)")
    log.say(main, f"[{log.stamp}] The server is fired up and ready to roll!")


def _serve(log: _Log, until: int) -> None:
    """Serve until the journal has that size."""
    chance = log.chance
    main, first = _pid(log, None), _pid(log, 0)
    while log.size < until:
        kind = chance.random()
        usage, running = chance.random(), chance.randrange(200)
        log.pass_time(0.2)
        if kind < 0.60:
            log.say(
                first,
                f"[{log.stamp} TP0] Decode batch, #running-req: {running}, #token: {running * 941}, token "
                f"usage: {usage:.2f}, cuda graph: True, gen throughput (token/s): {usage * 4000:.2f}, "
                "#queue-req: 0",
            )
        elif kind < 0.75:
            log.say(
                first,
                f"[{log.stamp} TP0] Prefill batch, #new-seq: 1, #new-token: {running * 7}, #cached-token: 0, "
                f"token usage: {usage:.2f}, #running-req: {running}, #queue-req: 0, "
                "input throughput (token/s): 15.82",
            )
        else:
            client = f"10.0.{running}.17:{40000 + running}"
            log.say(main, f'[{log.stamp}] INFO:     {client} - "POST /v1/chat/completions HTTP/1.1" 200 OK')


def _crash(log: _Log, fault: Fault, word: str) -> Crash:
    ranks = list(range(RANKS))
    log.chance.shuffle(ranks)
    root, *others = ranks
    log.pass_time(5.0)
    first = log.lines + 1
    for line in _traceback(log, root, word, fault.message):
        log.say(_pid(log, root), line)
    hit = others[: log.chance.randrange(1, 5)]
    source = "/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547"
    lost = f"RuntimeError: [{source}] Connection closed by peer [127.0.0.1]:4351"
    said = {rank: list(_traceback(log, rank, word, fault.message if fault.spreads else lost)) for rank in hit}
    # A collector sees lines of several processes as they come; in a plain file each traceback is one write.
    whole = log.form == "raw"
    while said:
        rank = log.chance.choice(list(said))
        for line in said[rank] if whole else said[rank][:1]:
            log.say(_pid(log, rank), line)
        said[rank] = [] if whole else said[rank][1:]
        if not said[rank]:
            del said[rank]
    main = _pid(log, None)
    log.say(main, f"[{log.stamp}] Received sigquit from a child process. It usually means the child failed.")
    log.say(
        main, f"[{log.stamp}] kill_process_tree called: parent_pid={main}, include_parent=True, pid={main}"
    )
    return Crash(f"TP{root}", fault.name, first, log.lines)


def _traceback(log: _Log, rank: int, word: str, message: str) -> Iterator[str]:
    yield f"[{log.stamp} TP{rank}] Scheduler hit an exception: Traceback (most recent call last):"
    for file, line, function, source in (
        ("managers/scheduler.py", 2982, "run_scheduler_process", "scheduler.event_loop_overlap()"),
        ("managers/scheduler.py", 1143, "event_loop_overlap", "batch_result = self.run_batch(batch)"),
        ("managers/tp_worker.py", 445, "forward_batch_generation", "out = self.model_runner.forward("),
        ("model_executor/model_runner.py", 2741, "forward", "output = self._forward_raw("),
        (f"models/{word}.py", 417, f"forward_{word}", "hidden_states = self.mlp(hidden_states)"),
    ):
        yield f'  File "{_FOLDER}/{file}", line {line}, in {function}'
        yield f"    {source}"
        yield "    " + "^" * len(source)
    yield message.format(rank=rank, word=word)


def _restart(log: _Log, counter: int) -> None:
    log.say(1, f"{UNIT}: Main process exited, code=killed, status=9/KILL")
    log.say(1, f"{UNIT}: Failed with result 'signal'.")
    log.pass_time(10.0)
    log.say(1, f"{UNIT}: Scheduled restart job, restart counter is at {counter}.")
    log.say(1, f"Stopped {TITLE}.")
    log.invocation += 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.generate", description="Write a journal to standard output."
    )
    parser.add_argument("--size", type=float, default=10.0, metavar="MB", help="how large (default: 10)")
    parser.add_argument(
        "--form", choices=list(FORMS), default="short", help="how it was collected (default: short)"
    )
    parser.add_argument("--crashes", type=int, default=20, help="how many to plant (default: 20)")
    parser.add_argument(
        "--seed", type=int, default=1, help="makes another journal of the same kind (default: 1)"
    )
    parser.add_argument("--truth", type=Path, metavar="FILE", help="write the planted crashes, as JSON")
    options = parser.parse_args(arguments)
    size = int(options.size * 1e6)
    crashes = generate(
        sys.stdout.buffer, size=size, form=options.form, crashes=options.crashes, seed=options.seed
    )
    if options.truth:
        options.truth.write_text(json.dumps([attrs.asdict(crash) for crash in crashes], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
