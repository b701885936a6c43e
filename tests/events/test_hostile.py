"""Laws that hold for every parser, whatever it is fed."""


from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

import logtriage.events
from logtriage.events import (
    collective,
    faulthandler,
    kernel,
    lifecycle,
    logged_error,
    native_abort,
    process_exit,
    traceback,
    watchdog,
)
from logtriage.events.block import Opener
from logtriage.events.collect import MAX_TEXT
from logtriage.model import Line, Process, Record
from tests.events.feeding import KERNEL, SYSTEMD, events_of, lines_of
from tests.steps import executed_lines, search_steps

PARSERS = {
    module.__name__.rpartition(".")[2]: module.open_block
    for module in (
        collective,
        faulthandler,
        kernel,
        lifecycle,
        logged_error,
        native_abort,
        process_exit,
        watchdog,
    )
}
PIECES = [
    "Fatal Python error: Segmentation fault",
    "Current thread 0x00007f6e79c4a140 (most recent call first):",
    '  File "/x.py", line 3 in f',
    '  File "/x.py", line ??? in f',
    "Extension modules: a (total: 1)",
    "terminate called after throwing an instance of 'c10::Error'",
    "  what():  boom",
    "[rank5]:[E321 02:11:40.3 ProcessGroupNCCL.cpp:1984] [PG ID 2 PG GUID 3 Rank 5] Process group watchdog thread "
    "terminated with exception: CUDA error: x",
    "[E321 02:11:40.3 ProcessGroupNCCL.cpp:632] [Rank 5] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=1, OpType=ALLREDUCE)",
    "frame #0: f + 0x1 (0x7f in /x.so)",
    "Exception raised from f at /x.cpp:1 (most recent call first):",
    "/x.cu:1: f: block: [0,0,0], thread: [0,0,0] Assertion `x` failed.",
    "free(): invalid pointer",
    "FAILED: a.o",
    "x.cu:5:10: fatal error: y.h: No such file or directory",
    "ninja: build stopped: subcommand failed.",
    "Killed",
    "Rank 0 scheduler is dead. Please check if there are relevant logs.",
    "Exit code: -9",
    "Root Cause (first observed failure):",
    "  exitcode  : 99999999999999999999 (pid: 29123)",
    "Subprocess scheduler_3 (pid=9198) crashed with exit code -9. Triggering SIGQUIT",
    "usage: x [-h]",
    "x: error: argument --y: invalid",
    "NVRM: Xid (PCI:0000:70:00): 31, pid=1, name=x, y",
    "NVRM: The NVIDIA GPU 0000:b3:00.0",
    "NVRM: fallen off the bus and is not responding to commands.",
    "python3 invoked oom-killer: order=0",
    "Out of memory: Killed process 77 (python3) total-vm:1kB",
    "llm.service: Main process exited, code=killed, status=9/KILL",
    "llm.service: Scheduled restart job, restart counter is at 3.",
    "Pyspy dump for PID 611:",
    "kill_process_tree called: parent_pid=1",
    "Load weight begin.",
    "Scheduler debug info:",
    "Scheduler watchdog timeout (self.watchdog_timeout=12.0, self.soft=False)",
    "Watchdog timeout (self.watchdog_timeout=1.2.3)",
    "vm:1:1 [0] init.cc:904 NCCL WARN x",
    "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD",
    "Primary job  terminated normally, but 1 process returned",
    "  Exit code:    1",
    "",
]
RECORDS = [Record("", 1), KERNEL, SYSTEMD, Record("", 1, ident="python3", transport="stdout")]
LINES = st.builds(
    Line,
    text=st.one_of(
        st.sampled_from(PIECES),
        st.text(max_size=80),
        st.builds(lambda piece, cut: piece[:cut], st.sampled_from(PIECES), st.integers(0, 60)),
    ),
    line=st.just(0),
    process=st.just(Process()),
    prefixed=st.booleans(),
    level=st.sampled_from(["", "ERROR", "INFO"]),
    place=st.sampled_from(["", "core.py:7"]),
    record=st.sampled_from(RECORDS),
)


@pytest.mark.parametrize("name", sorted(PARSERS))
@given(lines=st.lists(LINES, max_size=12))
def test_any_lines_give_events_that_stand_in_them(name: str, lines: list[Line]) -> None:
    numbered = [
        Line(
            line.text,
            number,
            line.process,
            prefixed=line.prefixed,
            level=line.level,
            place=line.place,
            record=line.record,
        )
        for number, line in enumerate(lines, 1)
    ]
    for event in events_of(PARSERS[name], numbered):
        assert 1 <= event.span.first <= event.span.last <= len(lines)
        assert event.message
        assert len(event.message) <= MAX_TEXT + 200


@pytest.mark.parametrize("name", sorted(PARSERS))
@pytest.mark.parametrize("piece", [piece for piece in PIECES if piece])
def test_a_request_that_quotes_a_crash_is_none(name: str, piece: str) -> None:
    for text in (
        f"Receive: obj=GenerateReqInput(text='{piece}')",
        f'    "prompt": "{piece}",',
        f"> {piece} <",
    ):
        assert events_of(PARSERS[name], lines_of(text)) == []


# --- cost ------------------------------------------------------------------------------------------------------------

ROOM = Path(logtriage.events.__file__).parent
MODULES = [importlib.import_module(f"logtriage.events.{path.stem}") for path in sorted(ROOM.glob("[a-z]*.py"))]


def patterns_of(name: str, value: object) -> Iterator[tuple[str, re.Pattern[str] | regex.Pattern[str]]]:
    """The patterns that a name stands for: one, a tuple or a dictionary of them, or those of a class."""
    if isinstance(value, (re.Pattern, regex.Pattern)):
        yield name, value
    elif isinstance(value, (dict, tuple)):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from patterns_of(f"{name}{key}", one)
    elif isinstance(value, type):
        for key, one in vars(value).items():
            yield from patterns_of(f"{name}.{key}", one)


PATTERNS = {
    name: pattern
    for module in MODULES
    for key, value in vars(module).items()
    if f"\n{key}: Final" in inspect.getsource(module) or isinstance(value, type)
    for name, pattern in patterns_of(f"{module.__name__.rpartition('.')[2]}.{key}", value)
}
SOURCES = "\n".join(path.read_text(encoding="utf-8") for path in ROOM.glob("*.py"))
HEADS = [
    *("", "x.cu:", "[rank1]:[E1 a.cpp:1] ", "NVRM: Xid (PCI:0000:00:00): 1, ", "oom-kill:constraint=", "srun: "),
    *('  File "', "Exception in thread ", '{"msg": "', "Traceback (most recent call last):", "F20261201 0:0 1 "),
    *("terminate called after throwing an instance of '", "Process 1 (", "python3[1]: segfault at ", "[1 [", "x: "),
]
UNITS = [
    *("a", "[", "a: ", "1:", "Assertion `x", "pid=", "it/s]", " ", "exited with code ", "error: ", "block: [", "0"),
    *("~^", '"', "'", "File ", "a.", "| ", "+-", "\\n", "\\", "x hit an exception ", "<locals>."),
    *("&gt;", r"\_", "{", "_"),
]
LENGTH = 400
MOST_STEPS = 100
"""For a character; if the steps grew with the square of the length, there would be hundreds more."""


def is_searched(name: str) -> bool:
    """Whether the room looks for a pattern anywhere in a text, not at its beginning alone."""
    return re.search(rf"\b{re.escape(name.rpartition('.')[2])}\.(?:search|finditer|sub)\(", SOURCES) is not None


def as_standard(pattern: re.Pattern[str] | regex.Pattern[str], *, searched: bool) -> re.Pattern[str]:
    """The pattern for the standard library, held to the beginning where it is used there."""
    text = pattern.pattern if searched else f"\\A(?:{pattern.pattern}\n)"
    flags = pattern.flags & (re.VERBOSE | re.DOTALL | re.IGNORECASE)
    if not searched and not flags & re.VERBOSE:
        text = f"\\A(?:{pattern.pattern})"  # elsewhere a comment could hide the bracket
    return re.compile(text, flags)


def test_the_patterns_of_the_room_are_counted() -> None:
    assert len(PATTERNS) > 60
    assert {"traceback_text.FRAME", "native_abort._Stack._FRAMES", "process_exit._PATTERNS3"} <= set(PATTERNS)
    assert not is_searched("traceback_text.FRAME")
    assert is_searched("escaped._TOKEN")


@pytest.mark.parametrize("name", PATTERNS)
def test_the_steps_of_a_pattern_are_bounded_for_each_character(name: str) -> None:
    searched = is_searched(name)
    pattern = as_standard(PATTERNS[name], searched=searched)
    for head in HEADS:
        for unit in UNITS:
            text = (head + unit * LENGTH)[:LENGTH]
            assert search_steps(pattern, text) < MOST_STEPS * len(text), (head, unit)


@pytest.mark.parametrize("name", [*sorted(PARSERS), "traceback"])
def test_each_character_of_a_hostile_line_is_looked_at_a_few_times(name: str) -> None:
    opener: Opener = PARSERS.get(name, traceback.open_block)
    frame = '  File "a", line 1, in f'

    def cost(text: str) -> int:
        texts = [text, "Traceback (most recent call last):", frame, text, "ValueError: x", text, text]
        return executed_lines(lambda: events_of(opener, [Line(one, at, Process()) for at, one in enumerate(texts, 1)]))

    for head in HEADS:
        for unit in UNITS:
            few, many = (cost(head + unit * (size // len(unit))) for size in (2_000, 8_000))
            assert many < 5 * few + 1_000, (head, unit)  # linear is 4, the square would be 16
