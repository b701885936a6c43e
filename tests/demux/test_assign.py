"""Whose line is it: with pids exactly, without them as well as the text allows."""

# ruff: noqa: E501 - lines of logs are as long as they are
from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logtriage.demux import Demux
from logtriage.demux.writers import MAX_SOURCES, MAX_WRITERS
from logtriage.model import Line, Record
from tests.demux.stories import Story, events_of, interleave, lines_of, outcome, story

HEADER = "[2026-11-15 10:00:00 TP3] Scheduler hit an exception: Traceback (most recent call last):"


def told(stories: Sequence[Story]) -> set[tuple[str, str, str, tuple[tuple[str, int], ...]]]:
    return {(each.label, each.type, each.message, tuple(each.frames)) for each in stories}


def raw(*texts: str, pid: int | None = None, ident: str | None = None) -> list[Record]:
    return [Record(text, number, pid=pid, ident=ident) for number, text in enumerate(texts, 1)]


def labels(lines: Sequence[Line]) -> list[str]:
    return [line.process.label for line in lines]


@given(st.integers(2, 8), st.randoms(use_true_random=False))
def test_with_pids_any_interleaving_gives_the_same_events(count: int, chance: random.Random) -> None:
    stories = story(count, chance)
    records = [
        Record(text, number, pid=each.pid, host="gpu7") for number, (each, text) in enumerate(interleave(stories, chance), 1)
    ]
    assert outcome(events_of(records)) == told(stories)


@pytest.mark.parametrize(("by_write", "share"), [(True, 0.95), (False, 0.15)])
def test_without_pids_as_many_ranks_as_the_text_allows_keep_their_exception(by_write: bool, share: float) -> None:
    chance = random.Random(7)
    right = total = 0
    for _ in range(150):
        stories = story(5, chance)
        mixed = interleave(stories, chance, by_write=by_write)
        found = outcome(events_of(Record(text, number) for number, (_, text) in enumerate(mixed, 1)))
        assert len(found) == len(stories)
        exceptions = {(label, kind) for label, kind, _, _ in found}
        right += sum((each.label, each.type) in exceptions for each in stories)
        total += len(stories)
    # Where a header and its first frame are not one write, nothing says which header the frame is below.
    assert right / total > share


@settings(deadline=None)
@given(st.integers(2, 8), st.randoms(use_true_random=False))
def test_whole_tracebacks_are_exact_without_pids(count: int, chance: random.Random) -> None:
    stories = story(count, chance)
    chance.shuffle(stories)
    texts = [text for each in stories for text in [*each.lines, ""]]
    assert outcome(events_of(raw(*texts))) == told(stories)


@settings(deadline=None)
@given(st.integers(2, 6), st.randoms(use_true_random=False))
def test_every_line_comes_out_once_and_none_before_it_came_in(count: int, chance: random.Random) -> None:
    texts = [text for _, text in interleave(story(count, chance), chance)]
    demux = Demux(str)
    out: list[Line] = []
    for number, text in enumerate(texts, 1):
        known = demux.feed(Record(text, number))
        assert all(line.line <= number for line in known)
        out += known
    out += demux.close()
    assert [line.line for line in out] == [*range(1, len(texts) + 1)]
    assert all(text.endswith(line.text) for line, text in zip(out, texts, strict=True))


@given(st.lists(st.text(max_size=120), max_size=30))
def test_no_text_is_lost_or_made_up(texts: list[str]) -> None:
    lines = lines_of(raw(*texts))
    assert len(lines) >= len(texts)
    assert [line.line for line in lines] == sorted(line.line for line in lines)
    for number, text in enumerate(texts, 1):
        pieces = [line.text for line in lines if line.line == number]
        assert text.endswith(pieces[-1]) or len(pieces) > 1


def test_native_lines_of_a_pid_are_of_the_rank_that_its_lines_named() -> None:
    lines = lines_of(
        raw(
            "[2026-11-15 10:00:00 TP3] Decode batch. #running-req: 1",
            "Fatal Python error: Segmentation fault",
            "Current thread 0x00007f0000000000 (most recent call first):",
            '  File "/x.py", line 3 in f',
            pid=77,
        )
    )
    assert labels(lines) == ["TP3"] * 4
    assert {line.stream for line in lines} == {lines[0].stream}
    assert [line.basis for line in lines] == ["prefix", "pid", "pid", "pid"]


def test_torch_speaks_for_the_rank_of_its_pid() -> None:
    lines = lines_of(
        raw(
            "[2026-11-15 10:00:00 DP1 TP3] Decode batch. #running-req: 1",
            "[rank7]:[E321 02:11:40.3 ProcessGroupNCCL.cpp:1984] x",
            "terminate called after throwing an instance of 'c10::DistBackendError'",
            pid=77,
        )
    )
    assert labels(lines) == ["DP1 TP3"] * 3


def test_a_pid_under_many_ranks_is_that_of_a_container() -> None:
    lines = lines_of(
        raw(
            "[2026-11-15 10:00:00 TP0] Load weight begin.",
            "[2026-11-15 10:00:00 TP1] Load weight begin.",
            "Fatal Python error: Segmentation fault",
            HEADER,
            '  File "/x.py", line 3, in run_scheduler_process',
            pid=77,
            ident="a1b2c3",
        )
    )
    assert labels(lines) == ["TP0", "TP1", "", "TP3", "TP3"]


def test_a_pid_of_the_server_and_of_a_rank_is_that_of_a_container() -> None:
    lines = lines_of(
        raw(
            "[2026-11-15 10:00:00] server started",
            HEADER,
            '  File "/x.py", line 3, in run_scheduler_process',
            "ValueError: x",
            "",
            "[2026-11-15 10:00:01] Received sigquit from a child process.",
            "Fatal Python error: Aborted",
            pid=77,
        )
    )
    assert labels(lines) == ["main", "TP3", "TP3", "TP3", "TP3", "main", ""]


def test_a_process_that_spoke_as_its_parent_does_keeps_its_pid() -> None:
    lines = lines_of(
        raw(
            "INFO 03-04 10:31:59 [a.py:1] x",
            "(EngineCore_DP0 pid=9) ERROR 03-04 10:31:59 [core.py:1] x",
            "Fatal Python error: Aborted",
            pid=9,
        )
    )
    assert labels(lines) == ["main", "EngineCore_DP0", "EngineCore_DP0"]


def test_what_torch_throws_below_its_own_lines_is_of_the_same_rank() -> None:
    lines = lines_of(
        raw(
            "[rank5]:[E1016 23:51:15.02 ProcessGroupNCCL.cpp:1896] [Rank 5] Process group watchdog thread terminated with exception: x",
            "Exception raised from checkTimeout at /p/ProcessGroupNCCL.cpp:632 (most recent call first):",
            "frame #0: clone + 0x44 (0x7f in /usr/lib/libc.so.6)",
            "",
            "terminate called after throwing an instance of 'c10::DistBackendError'",
            "  what():  [Rank 5] x",
            "Fatal Python error: Aborted",
            "[rank2]:[E1016 23:51:12.45 ProcessGroupNCCL.cpp:632] [Rank 2] x",
            "terminate called after throwing an instance of 'c10::DistBackendError'",
        )
    )
    assert labels(lines) == ["rank5"] * 7 + ["rank2"] * 2


def test_native_lines_below_an_engine_line_are_not_of_that_rank() -> None:
    lines = lines_of(
        raw(
            "[2026-11-15 10:00:00 TP0] Decode batch. #running-req: 1",
            "[2026-11-15 10:00:00 TP1] Decode batch. #running-req: 1",
            "Fatal Python error: Segmentation fault",
        )
    )
    assert labels(lines)[-1] == ""
    assert lines[-1].stream not in (lines[0].stream, lines[1].stream)


@pytest.mark.parametrize(
    "before",
    [
        "  0%|          | 0/58 [00:00<?, ?it/s]",
        "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:04,  1.46s/it]",
    ],
)
def test_a_record_behind_a_progress_bar_is_a_line_of_its_own(before: str) -> None:
    lines = lines_of(raw(before + HEADER, '  File "/x.py", line 3, in f'))
    assert [line.text for line in lines] == [
        before,
        "Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/x.py", line 3, in f',
    ]
    assert labels(lines)[1:] == ["TP3", "TP3"]


def test_a_bare_header_behind_a_progress_bar_is_a_line_of_its_own() -> None:
    header = "Traceback (most recent call last):"
    lines = lines_of(raw("  0%|          | 0/58 [00:00<?, ?it/s]" + header, '  File "/x.py", line 3, in f', "ValueError: x"))
    assert [line.text for line in lines][1] == header
    assert len({line.stream for line in lines[1:]}) == 1


@pytest.mark.parametrize(
    ("before", "label"),
    [
        ("[2026-11-15 10:00:00 TP3] Failed to load the grammar", "TP3"),
        ("[2026-11-15 10:00:00 TP3] Task exception was never retrieved", "TP3"),
        ("[2026-11-15 10:00:00 TP3] Decode batch. #running-req: 1", "main"),
        ("[2026-11-15 10:00:00 TP3] Ignore import error when loading x: No module named 'y'", "main"),
    ],
)
def test_a_bare_header_is_of_the_writer_whose_words_lead_to_it(before: str, label: str) -> None:
    assert labels(lines_of(raw(before, "Traceback (most recent call last):")))[-1] == label


def test_a_record_in_the_middle_of_a_torn_line_is_a_line_of_its_own() -> None:
    lines = lines_of(raw(HEADER.replace("TP3", "TP0"), '  File "/opt/sgl' + HEADER, '  File "/x.py", line 3, in f'))
    assert labels(lines) == ["TP0", "TP0", "TP3", "TP3"]


@pytest.mark.parametrize(
    "text",
    [
        f"[2026-11-15 10:00:00] Receive: obj=GenerateReqInput(text='{HEADER}",
        f'{{"prompt": "what does this mean: {HEADER}',
        f"the user's text=x {HEADER}",
    ],
)
def test_a_record_that_a_request_quotes_is_no_line_of_its_own(text: str) -> None:
    assert len(lines_of(raw(text))) == 1


def test_a_line_that_was_torn_is_whole_again_when_its_rest_comes() -> None:
    frame = '  File "/opt/sglang/scheduler.py", line 3239, in run_scheduler_process'
    lines = lines_of(
        raw(
            HEADER.replace("TP3", "TP0"),
            frame[:30] + HEADER,
            '  File "/x.py", line 3, in f',
            "    g(1)",
            "ValueError: x",
            "",
            frame[30:],
            "    scheduler = Scheduler(",
            "RuntimeError: y",
        )
    )
    assert [line.text for line in lines if line.process.label == "TP0"][1:] == [
        frame,
        "    scheduler = Scheduler(",
        "RuntimeError: y",
    ]
    assert [line.text for line in lines if line.process.label == "TP3"][1:] == [
        '  File "/x.py", line 3, in f',
        "    g(1)",
        "ValueError: x",
        "",
    ]


def test_children_that_announce_themselves_have_their_own_tracebacks() -> None:
    frame = '  File "/lib/python3.11/multiprocessing/process.py", line 314, in _bootstrap'
    events = events_of(
        raw(
            "Process SpawnProcess-1:",
            "Process SpawnProcess-2:",
            "Traceback (most recent call last):",
            "Traceback (most recent call last):",
            frame,
            "    self.run()",
            frame,
            "    self.run()",
            '  File "/a.py", line 1, in run',
            "    raise ValueError(1)",
            '  File "/a.py", line 9, in run',
            "    raise KeyError(2)",
            "KeyError: 2",
            "ValueError: 1",
        )
    )
    assert len(events) == 2
    assert {frames for _, _, _, frames in outcome(events)} == {
        (("_bootstrap", 314), ("run", 1)),
        (("_bootstrap", 314), ("run", 9)),
    }
    assert {(kind, frames[-1][1]) for _, kind, _, frames in outcome(events)} == {("ValueError", 1), ("KeyError", 9)}


def test_witnesses_are_no_process_of_the_server() -> None:
    records = [
        Record("NVRM: Xid (PCI:0000:70:00): 31", 1, ident="kernel", transport="kernel"),
        Record("llm.service: Main process exited", 2, ident="systemd", pid=1),
        Record("llm.service: Failed at step EXEC", 3, ident="(python3)", pid=9),
        Record(HEADER, 4, ident="kernel"),
    ]
    assert labels(lines_of(records)) == ["kernel", "systemd", "systemd", "kernel"]


@pytest.mark.parametrize("form", ["[2026-11-15 10:00:00 DP{n} TP{n}] x", "Process P-{n}:", "[rank{n}]: x"])
def test_a_hundred_thousand_names_are_bounded(form: str) -> None:
    demux = Demux(lambda text: text)
    for number in range(100_000):
        demux.feed(Record(form.format(n=number), number + 1))
    sources, writers = demux.size
    assert sources == 1
    assert 1 <= writers <= MAX_WRITERS


def test_a_hundred_thousand_pids_are_bounded() -> None:
    demux = Demux(lambda text: text)
    for number in range(100_000):
        demux.feed(Record("[2026-11-15 10:00:00 TP1] x", number + 1, pid=number))
    sources, writers = demux.size
    assert sources == MAX_SOURCES
    assert writers == MAX_SOURCES


def test_many_names_under_many_pids_are_bounded() -> None:
    demux = Demux(lambda text: text)
    for number in range(100_000):
        demux.feed(Record(f"[2026-11-15 10:00:00 TP{number}] x", number + 1, pid=number % 300))
    sources, writers = demux.size
    assert sources <= MAX_SOURCES
    assert writers <= MAX_WRITERS
