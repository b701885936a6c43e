"""What CPython prints is read as what the program that raised it says of itself."""

# ruff: noqa: E501 - lines of logs are as long as they are
from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logtriage.events import EventReader
from logtriage.events.traceback import open_block
from logtriage.model import Event, Line, Process, ProcessExit, Span, Traceback
from tests.demux.stories import events_of as logged
from tests.demux.stories import records_of
from tests.events.cpython_runs import FIXTURES, INTERPRETERS, RECORDED, programs_of, run_program
from tests.events.feeding import events_of, lines_of


def links_of(event: Event) -> list[dict[str, Any]]:
    """The chain in the words of the truth."""
    assert isinstance(event, Traceback)
    return [
        {
            "type": link.type,
            "message": link.message,
            "frames": [[frame.function, frame.lineno] for frame in link.frames],
            "relation": link.relation,
        }
        for link in event.chain
    ]


def check(events: Sequence[Event], truth: str) -> None:
    """Hold *events* against what the program said."""
    told = [json.loads(line) for line in truth.splitlines()]
    for said in told:
        for link in said["chain"]:
            if link["message"] is None:  # str() fails: the printers of different releases say so differently
                link["message"] = "<exception str() failed>"
            link["message"] = link["message"].rstrip()
    for event, said in zip(events, told, strict=False):
        found = links_of(event)
        for link in found:
            if link["message"].startswith("<unprintable "):
                link["message"] = "<exception str() failed>"
        assert found == said["chain"]
        assert isinstance(event, Traceback)
        assert event.header.startswith(said["header"])
        assert bool(event.header) == bool(said["header"])
        assert event.ignored == said["ignored"]
    assert len(events) == len(told)


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_traceback_is_read_as_its_program_tells_it(name: str) -> None:
    text = (FIXTURES / f"{name}.txt").read_text(encoding="utf-8")
    check(events_of(open_block, plain(text)), (FIXTURES / f"{name}.jsonl").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_log_is_read_as_its_program_tells_it(name: str) -> None:
    found = logged(records_of((FIXTURES / f"{name}.txt").read_bytes()))
    check(sorted(found, key=lambda event: event.span.first), (FIXTURES / f"{name}.jsonl").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("version", "program"), [(version, program) for version in INTERPRETERS for program in programs_of(version)]
)
def test_the_interpreters_of_this_machine_print_what_is_read(version: str, program: str) -> None:
    printed, truth = run_program(version, program)
    check(events_of(open_block, plain(printed)), truth)


def plain(text: str) -> list[Line]:
    """The lines as they reach the parser; a log's prefix is taken off by the stage before."""
    lines = lines_of(text)
    prefix = "[2026-12-01 10:00:00 TP0] "
    return [
        Line(line.text.removeprefix(prefix), line.line, line.process, prefixed=line.text.startswith(prefix))
        for line in lines
    ]


def read(lines: Iterable[Line]) -> list[Event]:
    """The events of all parsers."""
    reader = EventReader()
    return [*(event for line in lines for event in reader.feed(line)), *reader.close()]


PLAIN = """\
Traceback (most recent call last):
  File "/opt/sglang/srt/managers/scheduler.py", line 3239, in run_scheduler_process
    scheduler = Scheduler(server_args, port_args, gpu_id, tp_rank, dp_rank)
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1751, in _wrapped_call_impl
    return self._call_impl(*args, **kwargs)
ValueError: the heads cannot be divided
by eight ranks"""
FRAMES = [("run_scheduler_process", 3239), ("_wrapped_call_impl", 1751)]
MESSAGE = "the heads cannot be divided\nby eight ranks"


def one(text: str, **options: Any) -> Traceback:
    """The only event of *text*, read by all parsers."""
    [event] = read(lines_of(text, **options))
    assert isinstance(event, Traceback)
    return event


def frames_of(event: Traceback) -> list[tuple[str, int | None]]:
    return [(frame.function, frame.lineno) for frame in event.chain[-1].frames]


def check_plain(event: Traceback) -> None:
    assert frames_of(event) == FRAMES
    assert (event.chain[-1].type, event.chain[-1].message.replace("\n", " ")) == ("ValueError", MESSAGE.replace("\n", " "))


def test_a_traceback_is_read_whole() -> None:
    event = one(PLAIN)
    check_plain(event)
    assert event.complete
    assert event.header == ""
    assert event.span == Span(1, 8)
    assert event.message == f"ValueError: {MESSAGE}"
    assert [frame.in_app for frame in event.chain[0].frames] == [True, False]
    assert event.chain[0].frames[1].line == "return self._call_impl(*args, **kwargs)"


@pytest.mark.parametrize(
    ("before", "header"),
    [
        ("Scheduler hit an exception: ", "Scheduler hit an exception"),
        ("DetokenizerManager hit an exception: ", "DetokenizerManager hit an exception"),
        ("Executor worker initialization error: ", "Executor worker initialization error"),
        ("Capturing batches (bs=1 avail_mem=2.00 GB):   0%|          | 0/3 [00:00<?, ?it/s]", ""),
        ("Loading shards:  25% Completed | 1/4 [00:01<00:04,  1.46s/it]", ""),
        ("it doesn't work: ", "it doesn't work"),
    ],
)
def test_a_header_may_stand_behind_other_text(before: str, header: str) -> None:
    [event] = events_of(open_block, before + PLAIN)
    assert isinstance(event, Traceback)
    check_plain(event)
    assert event.header == header
    assert event.complete


@pytest.mark.parametrize(
    "before",
    [
        "Receive: obj=GenerateReqInput(text='why: ",
        "Receive: obj=GenerateReqInput(text=",
        '{"prompt": "what is this: ',
        "the user said `",
        "x" * 400,
    ],
)
def test_a_quoted_header_is_none(before: str) -> None:
    assert events_of(open_block, before + "Traceback (most recent call last):") == []


@pytest.mark.parametrize(
    "line",
    [
        "Receive: obj=GenerateReqInput(text='{}', sampling_params={{}})",
        "Receive: obj=GenerateReqInput(rid='1', text=\"{}\")",
        '{{"messages": [{{"role": "user", "content": "{}"}}]}}',
        '{{"model": "x", "prompt": "{}"}}',
        "INFO: request input='{}'",
    ],
)
def test_an_escaped_traceback_in_a_request_is_no_event(line: str) -> None:
    escaped = PLAIN.replace("\n", "\\n").replace('"', '\\"')
    assert events_of(open_block, line.format(escaped)) == []


@pytest.mark.parametrize(
    ("line", "header"),
    [
        ('{{"time": "10:00", "msg": "Scheduler hit an exception: {}", "level": "error"}}', "Scheduler hit an exception"),
        ('{{"level": "error", "exc_info": "{}"}}', ""),
        ('{{"message":"{}"}}', ""),
        ("Scheduler hit an exception: {}", "Scheduler hit an exception"),
    ],
)
def test_an_escaped_traceback_of_a_log_is_read(line: str, header: str) -> None:
    event = one(line.format(PLAIN.replace("\n", "\\n").replace('"', '\\"')))
    check_plain(event)
    assert event.header == header
    assert event.span == Span(1, 1)


def test_nothing_goes_on_below_an_escaped_traceback() -> None:
    escaped = PLAIN.replace("\n", "\\n").replace('"', '\\"')
    [event] = events_of(open_block, f'{{"msg": "{escaped}"}}\nsome other text')
    assert isinstance(event, Traceback)
    check_plain(event)


@pytest.mark.parametrize("lost", range(1, 7))
def test_a_lost_beginning_leaves_the_rest(lost: int) -> None:
    text = "\n".join(PLAIN.split("\n")[lost:])
    event = one(text)
    assert frames_of(event) == [frame for frame, line in zip(FRAMES, (1, 4), strict=True) if line >= lost]
    assert (event.chain[-1].type, event.chain[-1].message) == ("ValueError", MESSAGE)
    assert not event.complete


@pytest.mark.parametrize("kept", range(2, 7))
def test_a_lost_end_leaves_the_rest(kept: int) -> None:
    event = one("\n".join(PLAIN.split("\n")[:kept]))
    assert frames_of(event) == FRAMES[: 1 if kept < 5 else 2]
    assert event.chain[-1].type == ""
    assert not event.complete
    assert event.message.startswith(event.chain[-1].frames[-1].filename)


def test_a_header_alone_is_no_event() -> None:
    assert events_of(open_block, "Traceback (most recent call last):\n\n") == []
    assert events_of(open_block, "Scheduler hit an exception:\nsomething else") == []


def test_a_chain_that_ends_in_its_sentence_is_incomplete() -> None:
    event = one(PLAIN + "\n\nDuring handling of the above exception, another exception occurred:\n\n[...]")
    check_plain(event)
    assert not event.complete


def test_a_frame_line_that_was_wrapped_is_joined() -> None:
    for cut in (30, 60, len('  File "/opt/sglang/srt/managers/scheduler.py", line ')):
        lines = PLAIN.split("\n")
        lines[1:2] = [lines[1][:cut], lines[1][cut:]]
        check_plain(one("\n".join(lines)))
    at = PLAIN.index("39, in run_scheduler")
    check_plain(one(PLAIN[:at] + "\n" + PLAIN[at:]))


def test_a_source_line_that_was_wrapped_does_not_end_the_traceback() -> None:
    at = PLAIN.index("tp_rank, dp_rank)")
    event = one(PLAIN[:at] + "\n" + PLAIN[at:])
    check_plain(event)
    assert event.chain[0].frames[0].line.endswith("gpu_id, tp_rank, dp_rank)")


def test_indentation_may_be_lost() -> None:
    check_plain(one("\n".join(line.strip() for line in PLAIN.split("\n"))))
    check_plain(one("\n".join(line[1:] if line.startswith(" ") else line for line in PLAIN.split("\n"))))


def test_indentation_may_be_added() -> None:
    check_plain(one("\n".join("    " + line for line in PLAIN.split("\n"))))


def test_blank_lines_may_stand_between_all_lines() -> None:
    check_plain(one(PLAIN.replace("\n", "\n\n").replace("divided\n\nby", "divided\nby")))


def test_trailing_blanks_do_not_matter() -> None:
    check_plain(one("\n".join(line.ljust(120) for line in PLAIN.split("\n"))))


@pytest.mark.parametrize("margin", ["> ", ">", "> > ", "│ ", "| "])
def test_a_traceback_may_be_quoted_as_in_a_mail(margin: str) -> None:
    check_plain(one("\n".join(margin + line for line in PLAIN.split("\n"))))
    assert len(events_of(open_block, "\n".join(margin + line for line in PLAIN.split("\n")) + "\nand my own text")) == 1


def test_curly_quotes_of_a_pasted_text_are_read() -> None:
    check_plain(one(PLAIN.replace('"/', "“/").replace('py"', "py”")))


def test_a_new_prefix_ends_the_message() -> None:
    events = read([*lines_of(PLAIN), Line("Received sigquit from a child process.", 9, Process(), prefixed=True)])
    assert isinstance(events[0], Traceback)
    check_plain(events[0])


@pytest.mark.parametrize(
    "after",
    [
        "Fatal Python error: Aborted",
        "terminate called after throwing an instance of 'c10::Error'",
        "Process SpawnProcess-3:",
        "Exception in thread Thread-1:",
        "/opt/lib/multiprocessing/resource_tracker.py:254: UserWarning: leaked",
        "./serve.sh: line 31: 20417 Killed                  python -m sglang.launch_server --tp 2",
        "Killed",
        "\nTraceback (most recent call last):",
        "\nINFO:     Shutting down",
        "\n[2026-12-01T10:00:00Z] something else",
        "\n2026-12-01 10:00:00 something else",
        "\n 25%|##        | 1/4",
        "\nValueError: another one",
    ],
)
def test_what_starts_something_else_is_no_message(after: str) -> None:
    event = read(lines_of(f"{PLAIN}\n{after}"))[0]
    assert isinstance(event, Traceback)
    check_plain(event)


def test_paragraphs_of_a_message_belong_to_it() -> None:
    event = one(PLAIN + "\n\nPossible solutions:\n1. fewer ranks\n\nSee the manual.")
    assert event.chain[-1].message == MESSAGE + "\n\nPossible solutions:\n1. fewer ranks\n\nSee the manual."


def test_vllm_notes_are_no_second_failure() -> None:
    text = f"{PLAIN}\n{PLAIN}"
    lines = [Line(line.text, line.line, line.process, place="core.py:710") for line in lines_of(text)]
    [event] = read(lines)
    assert isinstance(event, Traceback)
    check_plain(event)


def test_ray_quotes_the_stack_of_its_task() -> None:
    event = one(
        "ray.exceptions.RayTaskError(ValueError): ray::Engine.start() (pid=12, ip=10.0.0.5)\n"
        '  File "/opt/engine.py", line 3, in start\n'
        "    raise ValueError(1)\n"
        "ValueError: 1"
    )
    assert [(link.type, link.relation) for link in event.chain] == [
        ("ray.exceptions.RayTaskError(ValueError)", "remote"),
        ("ValueError", ""),
    ]
    assert frames_of(event) == [("start", 3)]


def test_frames_that_a_message_quotes_are_its_text() -> None:
    event = one(PLAIN + "\nfrom user code:\n  File \"/m.py\", line 4, in forward\n    return x\nSet TORCH_LOGS for more.")
    assert frames_of(event) == FRAMES
    assert event.chain[-1].message.endswith('from user code:\n  File "/m.py", line 4, in forward\n    return x\nSet TORCH_LOGS for more.')


def test_an_announcement_names_the_process() -> None:
    event = one(f"DetokenizerManager hit an exception: {PLAIN}")
    assert (event.process.label, event.process.role) == ("detokenizer", "detokenizer")
    event = one(f"Process SpawnProcess-3:\n{PLAIN}")
    assert (event.process.label, event.process.role) == ("SpawnProcess-3", "worker")


def test_an_exception_of_a_file_that_cannot_be_parsed_needs_no_header() -> None:
    event = one('  File "/srv/app.py", line 7\n    def f(:\n          ^\nSyntaxError: invalid syntax')
    assert frames_of(event) == [("", 7)]
    assert event.complete


CPP = """\
torch.distributed.DistBackendError: NCCL error in: /src/ProcessGroupNCCL.cpp:1970, unhandled system error
Last error:
Error while creating shared memory segment /dev/shm/nccl-0nEdlr (size 9637888)
Exception raised from getNCCLComm at /src/ProcessGroupNCCL.cpp:1970 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x57 (0x7f617e4d5897 in /libc10.so)
<omitting python frames>
frame #35: __libc_start_main + 0x80 (0x7f61 in /lib/libc.so.6)

. This may indicate a possible application crash on rank 0 or a network set up issue."""


def test_the_stack_of_a_cpp_exception_does_not_end_a_traceback() -> None:
    head = PLAIN[: PLAIN.index("ValueError")]
    event = one(
        f"{head}{CPP}\n\nThe above exception was the direct cause of the following exception:\n\n{PLAIN}\n"
        "[rank1]:[W1201 02:46:21.2 Context.cpp:525] Warning: something else"
    )
    first, last = event.chain
    assert (first.relation, last.message) == ("cause", MESSAGE)
    assert first.message.startswith("NCCL error in: ")
    assert "frame #" not in first.message
    assert first.message.endswith("a network set up issue.")


def test_what_stands_below_the_stack_of_a_cpp_exception_is_no_message() -> None:
    head = PLAIN[: PLAIN.index("ValueError")]
    text = "\n".join(CPP.split("\n")[:7])
    event = one(f"{head}{text}\n\nserver stopped")
    assert event.chain[-1].message.endswith("(most recent call first):")


def test_a_part_of_a_group_may_hold_paragraphs_that_look_like_a_log() -> None:
    text = """\
  + Exception Group Traceback (most recent call last):
  |   File "/a.py", line 1, in f
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: first
    |\x20
    | [2026] second paragraph
    | ...
    +---------------- 2 ----------------
    | KeyError: 1
    +------------------------------------"""
    assert [(link.type, link.message) for link in one(text).chain] == [
        ("ValueError", "first\n\n[2026] second paragraph\n..."),
        ("KeyError", "1"),
        ("ExceptionGroup", "two (2 sub-exceptions)"),
    ]


def test_the_rule_of_mpi_is_no_message() -> None:
    event = read(lines_of(f"{PLAIN}\n{'-' * 74}\nMPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD"))[0]
    assert isinstance(event, Traceback)
    check_plain(event)


def test_the_table_of_torchelastic_is_a_death_of_its_own() -> None:
    rule = "-" * 60
    table = f"{'=' * 60}\nserve.py FAILED\n{rule}\nFailures:\n  <NO_OTHER_FAILURES>\n{rule}"
    cause = (
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-01-17_15:20:31\n  host      : node-7\n"
        "  rank      : 5 (local_rank: 5)\n  exitcode  : -11 (pid: 8123)\n  error_file: <N/A>\n"
        f"  traceback : Signal 11 (SIGSEGV) received by PID 8123\n{'=' * 60}"
    )
    head = PLAIN[: PLAIN.index("ValueError")]
    error = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"
    raised, death = read(lines_of(f"{head}{error} \n{table}\n{cause}"))
    assert isinstance(raised, Traceback)
    assert raised.complete
    assert raised.message == f"{error} \n{table}"
    assert isinstance(death, ProcessExit)
    assert (death.victim.label, death.victim.pid, death.exit_code) == ("rank5", 8123, -11)


def test_an_object_that_is_ignored_may_be_printed_at_any_length() -> None:
    event = one(f"Exception ignored in: <generator {'x' * 5_000}>\n{PLAIN}")
    assert event.ignored
    check_plain(event)


@pytest.mark.parametrize(
    "header",
    [
        "Exception ignored in: <function D.__del__ at 0x7f30>",
        "Exception ignored in atexit callback: <function stop at 0x7f30>",
        "Exception ignored in atexit callback <function stop at 0x7f30>:",
        "Exception ignored on flushing sys.stdout:",
        "Exception ignored in thread started by: <function f at 0x7f30>",
        "Exception ignored on threading shutdown: <module 'threading' from '/usr/lib/threading.py'>",
        "Exception ignored while calling deallocator <function D.__del__ at 0x7f30>:",
        "Exception ignored while calling weakref callback <function f at 0x7f30>:",
        "Exception ignored while closing generator <generator object f at 0x7f30>:",
    ],
)
def test_every_wording_of_what_is_ignored_is_known(header: str) -> None:
    event = one(f"{header}\n{PLAIN}")
    assert event.ignored
    assert event.header == header
    check_plain(event)


def test_where_a_task_was_made_is_no_traceback() -> None:
    made = PLAIN.replace("Traceback (", "source_traceback: Object created at (").partition("ValueError")[0]
    assert events_of(open_block, f"Task was destroyed but it is pending!\n{made}done") == []


PIECES = [
    *PLAIN.split("\n"),
    *("", '"""', "[...]", "x.RemoteTraceback: ", "Call stack:", "--- Logging error ---", "    | ValueError: x"),
    *("  + Exception Group Traceback (most recent call last):", "  +-+---------------- 1 ----------------"),
    *("    +------------------------------------", "  [Previous line repeated 9 more times]"),
    "The above exception was the direct cause of the following exception:",
]


@given(st.lists(st.sampled_from(PIECES), max_size=25))
def test_any_order_of_lines_gives_events_that_stand_in_them(texts: list[str]) -> None:
    for event in events_of(open_block, "\n".join(texts)):
        assert isinstance(event, Traceback)
        assert 1 <= event.span.first <= event.span.last <= len(texts)
        assert event.chain
        assert event.chain[-1].relation == ""
        assert event.message or event.chain[-1].frames == ()


def test_a_flood_is_bounded() -> None:
    frame = '  File "/a.py", line {}, in f\n    f()\n'
    text = "Traceback (most recent call last):\n" + "".join(frame.format(number) for number in range(5_000)) + "E.Error: " + "x\n" * 20_000
    event = events_of(open_block, text)[0]
    assert isinstance(event, Traceback)
    assert len(event.chain[0].frames) <= 300
    assert event.chain[0].frames[-1].lineno == 4_999
    assert len(event.chain[0].message) <= 16_384
