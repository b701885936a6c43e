"""Laws that hold for every parser, whatever it is fed."""


from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logtriage.events import (
    collective,
    faulthandler,
    kernel,
    lifecycle,
    logged_error,
    native_abort,
    process_exit,
    watchdog,
)
from logtriage.events.block import Opener
from logtriage.events.collect import MAX_TEXT
from logtriage.model import Line, Process, Record
from tests.events.feeding import KERNEL, SYSTEMD, events_of, lines_of

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


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_a_hostile_line_costs_no_more_than_its_length(name: str) -> None:
    opener: Opener = PARSERS[name]
    heads = [
        "",
        "x.cu:",
        "[rank1]:[E1 a.cpp:1] ",
        "NVRM: Xid (PCI:0000:00:00): 1, ",
        "oom-kill:constraint=",
        "srun: ",
    ]
    units = [
        "a",
        "[",
        "a: ",
        "1:",
        "Assertion `x",
        "pid=",
        "it/s]",
        " ",
        "exited with code ",
        "error: ",
        "block: [",
    ]
    start = time.process_time()
    for head in heads:
        for unit in units:
            text = head + unit * (200_000 // len(unit))
            for record in RECORDS:
                events_of(
                    opener, [Line(text, 1, Process(), record=record), Line(text, 2, Process(), record=record)]
                )
    # 264 pairs of 200 KB lines took 0.4 s of CPU; a quadratic pattern would take minutes.
    assert time.process_time() - start < 20
