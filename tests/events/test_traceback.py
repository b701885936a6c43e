"""What CPython prints is read as what the program that raised it says of itself."""

# ruff: noqa: E501 - lines of logs are as long as they are
from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logtriage.events import EventReader
from logtriage.events.traceback import open_block
from logtriage.model import Event, Line, Process, Span, Traceback
from tests.demux.stories import events_of as logged
from tests.demux.stories import records_of
from tests.events.feeding import events_of, lines_of

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "cpython"
RECORDED = sorted(str(path.relative_to(FIXTURES))[:-4] for path in FIXTURES.glob("3.*/*.txt"))


def recorder() -> Any:
    """The script that recorded the fixtures."""
    spec = importlib.util.spec_from_file_location("record", FIXTURES / "record.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RECORD = recorder()
PROGRAMS = [name for name in RECORD.PROGRAMS if sys.version_info >= (3, 11) or name not in RECORD.NEEDS_311]


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


@pytest.mark.parametrize("program", PROGRAMS)
def test_this_interpreter_prints_what_is_read(program: str) -> None:
    printed, truth = RECORD.run_program(sys.executable, program)
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


@pytest.mark.parametrize("unit", ["a.", " ", "~^", "[", "a: ", '"', "File ", "| ", "+-", "\\n", "x hit an exception ", "<locals>."])
@pytest.mark.parametrize("head", ["", "Traceback (most recent call last):", '  File "', "Exception in thread ", '{"msg": "'])
def test_a_hostile_line_costs_no_more_than_its_length(head: str, unit: str) -> None:
    start = time.process_time()
    text = head + unit * (60_000 // len(unit))
    events_of(open_block, "\n".join([text, "Traceback (most recent call last):", '  File "a", line 1, in f', text, "ValueError: x", text, text]))
    # 0.02 s of CPU at most when written; a quadratic pattern would take minutes.
    assert time.process_time() - start < 2
