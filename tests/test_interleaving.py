"""Law: how the processes of a server take turns in one stream never shows in the tracebacks that are read.

The exceptions are raised, Python's own ``traceback`` prints them and says what is true of them; only the turns are
made up.  Three kinds of stream keep their writers apart in three ways, so the law has three forms:

- a journal stamps each piece with the pid of its writer: all turns are legal, also those in the middle of a line;
- records that are written whole: all turns between records;
- bursts of whole frames: all turns, if no two stacks share a function and each call names the one below.

The recordings in ``fixtures/interleaved-*`` are of real processes (``tests/lab/crashing.py``), which told what is
true themselves: a pipe without ranks, records that a full pipe has torn, and a journal of processes that ran
with ``PYTHONUNBUFFERED``, each of whose lines came in many pieces.
"""

from __future__ import annotations

import itertools
import json
import linecache
import re
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.interleaving import compare, read_events
from logtriage.model import Event, Traceback
from tests.lab.crashing import Link, chain_of, read_back

RECORDINGS: Final = sorted((Path(__file__).parent.parent / "fixtures").glob("interleaved-*"))

FILES: Final = ("/opt/sglang/srt/managers/scheduler.py", "/opt/sglang/srt/layers/linear.py", "/opt/sglang/srt/model.py")
CALLS: Final = ("return {}(x)", "result = {}(x)", "output, cache = {}(x), None", "{}(x)", "x.last = {}(x, mode='a')")
TYPES: Final = ("ValueError", "RuntimeError", "TimeoutError", "AssertionError", "BufferError", "OverflowError")
WORDS: Final = ("out", "of", "memory", "on", "rank", "shard", "größer", "4096", "(7168,)", "batch:", "a=b", "'x'", "->")
SHAPES: Final = ("plain", "plain", "cause", "context", "notes", "group", "recursion")
NEWER: Final = ("notes", "group")
"""Shapes that Python 3.11 brought."""

FRAME: Final = re.compile(r'  File "[^"]+", line \d+, in \w+$')
OPENS: Final = re.compile(r'  File "| +[~^]+$|[A-Z]\w+Error: rank|\[2026', re.MULTILINE)
"""What no line of source and no message goes on in, in these stories."""

law = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@attrs.frozen
class Story:
    """What one process writes, and what is true of it.

    Attributes:
        rank: Its rank.
        records: Texts of one write each; the traceback is one of them.
        entries: The traceback once more in the pieces in which Python prints it, the header with the first frame.
        chain: The exceptions of the traceback.
    """

    rank: int
    records: tuple[str, ...]
    entries: tuple[str, ...]
    chain: tuple[Link, ...]

    @property
    def pid(self) -> int:
        return 4_000 + self.rank


class Author:
    """Writes functions into files that are not there, and calls them."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {name: [] for name in FILES}

    def define(self, name: str, body: Sequence[str], choice: int) -> None:
        lines = self.lines[FILES[choice % len(FILES)]]
        lines += [f"def {name}(x, mode='', left=9):", *(f"    {line}" for line in body), ""]

    def path(self, rank: int, shape: str, kind: str, choices: Sequence[int]) -> str:
        """The functions of one rank; the name of the outermost."""
        name = f"fail_{rank}"
        body = [f"raise {kind}(x.message)"]
        if shape in ("cause", "context"):
            self.define(f"inner_{rank}", [f"raise {TYPES[choices[0] % len(TYPES)]}('first')"], choices[0])
            tail = " from error" if shape == "cause" else ""
            body = ["try:", f"    inner_{rank}(x)", "except Exception as error:", f"    {body[0]}{tail}"]
        elif shape == "group":
            self.define(f"part_{rank}", [f"raise {TYPES[choices[0] % len(TYPES)]}('one part')"], choices[0])
            body = ["errors = []", "for _ in range(2):", "    try:", f"        part_{rank}(x)"]
            body += ["    except Exception as error:", "        errors.append(error)"]
            body += ["raise ExceptionGroup(x.message, errors)"]
        elif shape == "notes":
            body = [f"error = {kind}(x.message)", "error.add_note('shard 7 of 12')", "raise error"]
        elif shape == "recursion":
            body = ["if left:", f"    {name}(x, left=left - 1)", *body]
        self.define(name, body, choices[-1])
        for step, choice in enumerate(choices):
            called, name = name, f"step_{rank}_{step}"
            self.define(name, [CALLS[choice % len(CALLS)].format(called)], choice // len(CALLS))
        return name

    def functions(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, lines in self.lines.items():
            text = "\n".join(lines) + "\n"
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
            exec(compile(text, name, "exec"), found)
        return found


class Subject:
    last: object = None

    def __init__(self, message: str) -> None:
        self.message = message


messages = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join), min_size=1, max_size=3)
before = st.lists(st.sampled_from(("Load weight begin.", "Capture begin.", "KV Cache is allocated.")), max_size=2)


@st.composite
def stories(draw: st.DrawFn, *, plain: bool = False) -> list[Story]:
    """Processes that fail in different ways; *plain* ones without a chain, with a message of one line."""
    author, told, steps = Author(), [], st.lists(st.integers(0, 14), min_size=1, max_size=6)
    kinds = draw(st.permutations(TYPES))
    for rank in range(draw(st.integers(2, 5))):
        shape = "plain" if plain else draw(st.sampled_from(SHAPES))
        shape = "plain" if shape in NEWER and sys.version_info < (3, 11) else shape
        said = draw(messages)
        message = f"rank {rank}: " + ("\n  ".join(said[:1] if plain else said))
        told.append((rank, author.path(rank, shape, kinds[rank], draw(steps)), message, draw(before)))
    functions = author.functions()
    return [tell(rank, functions[enter], message, healthy) for rank, enter, message, healthy in told]


def tell(rank: int, enter: Any, message: str, healthy: Sequence[str]) -> Story:
    try:
        enter(Subject(message))
    except Exception as error:  # noqa: BLE001  that is what it is for
        stack = error.__traceback__
        told = traceback.TracebackException.from_exception(error.with_traceback(stack and stack.tb_next))
    prefix = f"[2026-03-09 12:00:0{rank} TP{rank}] "
    header, first, *rest = told.format()
    header = f"{prefix}Scheduler hit an exception: {header}"
    records = (*(f"{prefix}{text}\n" for text in healthy), "".join((header, first, *rest)))
    return Story(rank, records, (header + first, *rest), chain_of(told))


def taking_turns(draw: st.DrawFn, writes: Sequence[Sequence[str]]) -> list[tuple[int, str]]:
    """All writes in an order that leaves each process its own, with the index of the process."""
    turns = draw(st.permutations([index for index, own in enumerate(writes) for _ in own]))
    left = [iter(own) for own in writes]
    return [(index, next(left[index])) for index in turns]


@st.composite
def by_record(draw: st.DrawFn) -> tuple[list[Story], str]:
    told = draw(stories())
    return told, "".join(text for _, text in taking_turns(draw, [each.records for each in told]))


@st.composite
def by_frame(draw: st.DrawFn) -> tuple[list[Story], str]:
    told = draw(stories(plain=True))
    return told, "".join(text for _, text in taking_turns(draw, [each.entries for each in told]))


@st.composite
def by_byte(draw: st.DrawFn) -> tuple[list[Story], str]:
    told = draw(stories())
    writes = []
    for each in told:
        text = "".join(each.records)
        places = [at for at in range(1, len(text)) if is_mendable(text, at)]
        drawn = draw(st.sets(st.sampled_from(places), max_size=8))
        # a line whose line break before it is gone shows where it begins only as a whole
        cuts = sorted(at for at in drawn if text[at] == "\n" or text.rfind("\n", 0, at) not in drawn)
        writes.append([text[start:end] for start, end in itertools.pairwise((0, *cuts, len(text)))])
    turns = taking_turns(draw, writes)
    return told, journal([(told[index].pid, text) for index, text in turns])


def is_mendable(text: str, at: int) -> bool:
    """Whether what a journal keeps of *text*, if another process cuts in *at*, tells how it was.

    The blanks before a cut are gone, if there is more in front of them.  A line break behind it is gone as well:
    that the line has ended there shows only where the next one cannot be its rest.
    """
    line = text[:at].rpartition("\n")[2]
    if text[at] == "\n":
        return FRAME.match(line) is not None or OPENS.match(text[at + 1 :]) is not None
    return not line.strip() or not line[-1].isspace()


def journal(writes: Sequence[tuple[int, str]]) -> str:
    """What journald makes of writes into one stream, as ``journalctl -o json`` prints it.

    Source: systemd 252, ``src/journal/journald-stream.c``: a change of the writer ends a line, blanks at the end of
    a line are dropped, and so is a line that is empty then.
    """
    entries: list[dict[str, str]] = []

    def enter(pid: int, text: str, **more: str) -> None:
        if text.strip():
            text = text.rstrip()
        if text:
            time = str(1_773_057_601_000_000 + len(entries))
            told = {"__REALTIME_TIMESTAMP": time, "_PID": str(pid), "_TRANSPORT": "stdout", "MESSAGE": text}
            entries.append({**told, **more})

    open_text, writer = "", 0
    for pid, text in writes:
        if open_text and pid != writer:
            enter(writer, open_text, _LINE_BREAK="pid-change")
            open_text = ""
        *lines, open_text = (open_text + text).split("\n")
        writer = pid
        for line in lines:
            enter(pid, line)
    if open_text:
        enter(writer, open_text, _LINE_BREAK="eof")
    return "".join(json.dumps(entry) + "\n" for entry in entries)


Found = Counter[tuple[object, ...]]


def truth(told: Sequence[Story]) -> Found:
    return Counter((f"TP{each.rank}", *map(attrs.astuple, each.chain)) for each in told)


def found(log: str, chunk: int = 1 << 17) -> Found:
    return Counter(map(read, filter(is_traceback, read_events(log.encode(), chunk))))


def is_traceback(event: Event) -> bool:
    return isinstance(event, Traceback)


def read(event: Event) -> tuple[object, ...]:
    assert isinstance(event, Traceback)
    links = (
        (link.type, link.message, tuple((f.filename, f.lineno, f.function, f.line) for f in link.frames), link.relation)
        for link in event.chain
    )
    return (event.process.label, *links)


@law
@given(stories())
def test_one_after_the_other_they_are_read_as_they_were_raised(told: list[Story]) -> None:
    assert found("".join(text for each in told for text in each.records)) == truth(told)


@law
@given(by_record(), st.integers(1, 4_000))
def test_turns_between_records_do_not_show(written: tuple[list[Story], str], chunk: int) -> None:
    told, log = written
    assert found(log, chunk) == truth(told)


@law
@given(by_frame(), st.integers(1, 4_000))
def test_turns_between_frames_of_distinct_stacks_do_not_show(written: tuple[list[Story], str], chunk: int) -> None:
    told, log = written
    assert found(log, chunk) == truth(told)


@law
@given(by_byte(), st.integers(1, 4_000))
def test_turns_in_a_journal_do_not_show(written: tuple[list[Story], str], chunk: int) -> None:
    told, log = written
    assert found(log, chunk) == truth(told)


@pytest.mark.parametrize("folder", RECORDINGS, ids=lambda folder: folder.name)
def test_what_real_processes_told_is_read_out_of_their_stream(folder: Path) -> None:
    tally = compare(read_back(folder))
    assert (tally.unclear, tally.lost) == (0, 0)
    assert (tally.exact, tally.told, tally.read) == (tally.written,) * 3
