"""faulthandler's dumps: which of them somebody died of, and where the process stood."""


from __future__ import annotations

import json

import pytest

from logtriage.events import EventReader
from logtriage.events.faulthandler import open_block
from logtriage.model import FatalError, Span
from tests.events.cpython_runs import DUMPS, FIXTURES, INTERPRETERS, VERSIONS, run_program
from tests.events.feeding import events_of, lines_of, one

SEGFAULT = """
Fatal Python error: Segmentation fault

Thread 0x00007f69abfff6c0 (most recent call first):
  File "/opt/site/sglang/srt/utils/watchdog.py", line 147 in _watchdog_once
  File "/usr/lib/python3.12/threading.py", line 1073 in _bootstrap_inner

Current thread 0x00007f6e79c4a140 (most recent call first):
  File "/opt/site/sglang/srt/model_executor/runner/decode_cuda_graph_runner.py", line 951 in load_batch
  File "/usr/lib/python3.12/multiprocessing/process.py", line 108 in run
  File "<string>", line 1 in <module>

Extension modules: numpy._core._multiarray_umath, torch._C, zmq.backend.cython._zmq (total: 3)
"""


def test_the_frames_are_those_of_the_thread_that_died_newest_first() -> None:
    event = one(open_block, SEGFAULT, FatalError)
    assert event.message == "Fatal Python error: Segmentation fault"
    assert event.reason == "Segmentation fault"
    assert [(frame.function, frame.lineno, frame.in_app) for frame in event.frames] == [
        ("load_batch", 951, True),
        ("run", 108, False),
        ("<module>", 1, False),
    ]


def test_the_span_holds_the_whole_dump() -> None:
    assert one(open_block, SEGFAULT, FatalError).span == Span(1, 13)


def test_a_dump_ends_at_the_next_message_of_an_engine() -> None:
    text = SEGFAULT.rstrip("\n") + "\n» Subprocess scheduler_0 (pid=4970) crashed with exit code -11."
    assert one(open_block, text, FatalError).span == Span(1, 12)


def test_a_dump_ends_at_a_traceback() -> None:
    text = (
        "Fatal Python error: Aborted\n\nCurrent thread 0x00007f6e79c4a140 (most recent call first):\n"
        '  File "/x.py", line 3 in f\nTraceback (most recent call last):\n  File "/y.py", line 9, in g'
    )
    event = one(open_block, text, FatalError)
    assert event.span == Span(1, 4)
    assert [frame.function for frame in event.frames] == ["f"]


def test_a_signal_may_arrive_in_the_middle_of_a_progress_bar() -> None:
    bar = "  0%|          | 0/58 [00:00<?, ?it/s]"
    event = one(open_block, bar + SEGFAULT.lstrip("\n"), FatalError)
    assert event.reason == "Segmentation fault"


def test_a_signal_may_arrive_behind_text_that_lacks_its_line_break() -> None:
    event = one(open_block, "Loading weights" + SEGFAULT.lstrip("\n"), FatalError)
    assert event.message == "Fatal Python error: Segmentation fault"


@pytest.mark.parametrize(
    "text",
    [
        "Receive: obj=GenerateReqInput(text='Fatal Python error: Segmentation fault')",
        "prompt: 'what does this mean: Fatal Python error: Aborted",
        "A user asks about Fatal Python error: Aborted in his own program",
        "A user asks about Fatal Python error: Aborted",  # nothing of a dump follows
    ],
)
def test_a_quoted_first_line_is_no_crash(text: str) -> None:
    assert events_of(open_block, text) == []


def test_a_first_line_at_the_very_end_of_a_log_is_still_a_crash() -> None:
    assert one(open_block, "Fatal Python error: Bus error", FatalError).reason == "Bus error"


def test_a_c_thread_that_dies_leaves_no_frames_of_others() -> None:
    text = """
Fatal Python error: Aborted

Thread 0x000058e5076fe9ec (most recent call first):
  File "/a.py", line 1 in watch

Thread 0x000058e5076fe9ed (most recent call first):
  File "/b.py", line 2 in main
"""
    assert one(open_block, text, FatalError).frames == ()


def test_the_only_thread_of_a_dump_is_where_it_stood() -> None:
    text = """
Fatal Python error: Segmentation fault

Thread 0x0000adb4e5e588b5 (most recent call first):
  File "/opt/sglang/srt/disaggregation/nixl/conn.py", line 452 in _send_kvcache_generic
"""
    [frame] = one(open_block, text, FatalError).frames
    assert frame.function == "_send_kvcache_generic"


def test_an_interpreter_that_cannot_start_has_no_frames() -> None:
    text = """
Fatal Python error: init_fs_encoding: failed to get the Python codec of the filesystem encoding
Python runtime state: core initialized
ModuleNotFoundError: No module named 'encodings'

Current thread 0x00007f0b2c5f4740 (most recent call first):
  <no Python frame>
"""
    event = one(open_block, text, FatalError)
    assert event.reason.startswith("init_fs_encoding: ")
    assert event.frames == ()
    assert event.span == Span(1, 7)


def test_python_3_14_adds_the_stack_of_c() -> None:
    text = """
Fatal Python error: Segmentation fault

Current thread 0x00007f0b2c5f4740 [MainThread] (most recent call first):
  File "/x.py", line 3 in f

Current thread's C stack trace (most recent call first):
  Binary file "/usr/lib/libc.so.6", at gsignal+0x12 [0x7f0b2c6f4740]
  <truncated rest of calls>
Extension modules: no longer part of it
"""
    event = one(open_block, text, FatalError)
    assert event.span == Span(1, 8)
    assert [frame.function for frame in event.frames] == ["f"]


@pytest.mark.parametrize("first", ["Timeout (0:05:00)!", ""])
def test_a_dump_that_somebody_asked_for_is_no_crash(first: str) -> None:
    text = f"""{first}
Thread 0x00007f69abfff6c0 (most recent call first):
  File "/opt/site/sglang/srt/managers/scheduler.py", line 1606 in event_loop_overlap
  ...
Current thread 0x00007f6e79c4a140 (most recent call first):
  File "/a.py", line 1 in <module>"""
    assert events_of(open_block, text) == []


def test_a_deep_stack_is_counted_and_kept_within_bounds() -> None:
    frames = '  File "/x.py", line 3 in f\n' * 5000
    text = f"Fatal Python error: Aborted\n\nCurrent thread 0x00007f6e79c4a140 (most recent call first):\n{frames}"
    event = one(open_block, text, FatalError)
    assert len(event.frames) == 400
    assert event.span.last == 5004


def test_frames_of_a_traceback_do_not_belong_to_a_dump() -> None:
    text = """
Fatal Python error: Aborted

Current thread 0x00007f6e79c4a140 (most recent call first):
  File "/x.py", line 3 in f
  File "/y.py", line 4, in g
"""
    event = one(open_block, text, FatalError)
    assert event.span == Span(1, 4)


# --- what interpreters print ---


def check_dumps(printed: str, truth: str) -> None:
    """Hold the dumps of processes that died against what each wrote of itself before."""
    told = [json.loads(line) for line in truth.splitlines()]
    found = [event for event in events_of(open_block, printed) if isinstance(event, FatalError)]
    for event, said in zip(found, told, strict=True):
        assert event.reason == said["reason"]
        assert [[frame.function, frame.lineno] for frame in event.frames] == said["frames"]
    assert len(told) == 12


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_dumps_are_read_as_their_processes_tell_them(version: str) -> None:
    folder = FIXTURES / version
    check_dumps(
        (folder / f"{DUMPS}.dump").read_text(encoding="utf-8"), (folder / f"{DUMPS}.frames").read_text(encoding="utf-8")
    )


@pytest.mark.parametrize("version", INTERPRETERS)
def test_the_dumps_of_this_machine_are_read_as_their_processes_tell_them(version: str) -> None:
    check_dumps(*run_program(version, DUMPS))


@pytest.mark.parametrize("version", VERSIONS)
def test_glibc_and_the_dump_below_it_are_two_events(version: str) -> None:
    text = (FIXTURES / version / f"{DUMPS}.dump").read_text(encoding="utf-8")
    reader = EventReader()
    found = [*(event for line in lines_of(text) for event in reader.feed(line)), *reader.close()]
    assert [event.message for event in found if not isinstance(event, FatalError)] == ["free(): invalid pointer"]


def test_a_dump_may_be_told_of_one_thread_only() -> None:
    text = """
Fatal Python error: Segmentation fault

Stack (most recent call first):
  File "/x.py", line 3 in f
  File "/x.py", line 9 in <module>
"""
    event = one(open_block, text, FatalError)
    assert [frame.function for frame in event.frames] == ["f", "<module>"]


@pytest.mark.parametrize("name", ["Floating point exception", "Floating-point exception"])
def test_a_signal_has_another_name_from_3_13_on(name: str) -> None:
    text = f"Loading weightsFatal Python error: {name}\n\nThread 0x00007f6e79c4a140 (most recent call first):\n"
    assert one(open_block, f'{text}  File "/x.py", line 3 in f', FatalError).reason == name
