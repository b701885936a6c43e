"""Real processes that fail at once: what each of them told is what the library reads out of the stream they share.

How their writes fall into each other is up to the kernel, so the figures are shares of many tracebacks, and each
test runs more than once, with other stacks.
"""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from benchmarks.interleaving import Tally, compare, held_by, main, unclear
from tests.lab.crashing import Link, Plan, Recording, Told, read_back, record, why_no_journal

pytestmark = pytest.mark.lab

GROUPS: Final = sys.version_info >= (3, 11)
NO_JOURNAL: Final = why_no_journal()
needs_journal = pytest.mark.skipif(NO_JOURNAL is not None, reason=str(NO_JOURNAL))


def run(folder: Path, rounds: int = 1, **changes: Any) -> Tally:
    """The tally of some runs that differ in their seed."""
    whole = Tally()
    for seed in range(1, rounds + 1):
        place = folder / str(seed)
        place.mkdir()
        whole += compare(record(Plan(seed=seed, **changes), place))
    return whole


def assert_all(tally: Tally) -> None:
    assert (tally.exact, tally.told, tally.read, tally.unclear) == (tally.written, tally.written, tally.written, 0)


# --- the lab itself: nothing of it is read by the library ---------------------------------------------


@pytest.mark.parametrize("way", ["logging", "excepthook", "multiprocessing"])
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_what_a_process_told_is_what_it_wrote(tmp_path: Path, way: str, start: str) -> None:
    alone = record(Plan(1, way, "mixed", "file", start=start), tmp_path)
    assert alone.log.decode() == alone.told[0].text


@pytest.mark.parametrize("way", ["logging", "excepthook", "multiprocessing"])
def test_together_they_write_every_line_that_they_told_and_no_other(tmp_path: Path, way: str) -> None:
    told = record(Plan(4, way, "plain", "file", 2_000), tmp_path)
    lines = [line for each in told.told for line in each.text.splitlines()]
    assert sorted(told.log.decode().splitlines()) == sorted(lines)


def test_the_stack_that_is_told_is_the_one_in_the_text(tmp_path: Path) -> None:
    for each in record(Plan(6, "multiprocessing", "mixed"), tmp_path).told:
        frames = [frame for link in each.chain for frame in link.frames]
        place = 0
        for filename, lineno, function, line in frames:
            place = each.text.index(f'  File "{filename}", line {lineno}, in {function}\n    {line}\n', place) + 1
        assert each.text.count('  File "') == len(frames)
        assert f"{each.chain[-1].type}: {each.chain[-1].message}".rstrip(": ") in each.text
        assert each.text.startswith(f"Process {each.name}:\nTraceback")


# --- where the collector or one write keeps them apart --------------------------------------------------


@needs_journal
@pytest.mark.parametrize("way", ["logging", "excepthook", "multiprocessing"])
def test_a_journal_tells_them_apart_by_pid(tmp_path: Path, way: str) -> None:
    assert_all(run(tmp_path, 2, way=way, shape="mixed", stream="journald", size=4_000))


@needs_journal
@pytest.mark.parametrize("way", ["logging", "excepthook", "multiprocessing"])
def test_so_it_does_where_it_takes_a_record_in_many_pieces(tmp_path: Path, way: str) -> None:
    tally = run(tmp_path, 2, way=way, shape="mixed", stream="journald", size=85_000)
    assert tally.told >= 0.9 * tally.written
    assert tally.exact >= 0.75 * tally.written  # what it drops beside a cut is gone


@needs_journal
@pytest.mark.parametrize("way", ["logging", "multiprocessing"])
def test_so_it_does_where_each_process_writes_without_a_buffer(tmp_path: Path, way: str) -> None:
    assert_all(run(tmp_path, 2, way=way, shape="mixed", stream="journald", size=4_000, unbuffered=True))


@needs_journal
def test_of_words_that_are_written_one_by_one_a_journal_keeps_nearly_all(tmp_path: Path) -> None:
    tally = run(tmp_path, 3, way="excepthook", stream="journald", size=4_000, unbuffered=True)
    assert tally.told >= 0.75 * tally.written
    assert tally.exact >= 0.6 * tally.written


@needs_journal
def test_an_exported_journal_tells_them_apart_as_well(tmp_path: Path) -> None:
    assert_all(run(tmp_path, way="excepthook", shape="mixed", stream="journald", form="export"))


@needs_journal
def test_so_does_the_short_form_where_nothing_was_cut(tmp_path: Path) -> None:
    # A note behind a message is a write of its own; in text it cannot be told from the rest of a torn message.
    assert_all(run(tmp_path, way="multiprocessing", stream="journald", form="short"))


@pytest.mark.parametrize("stream", ["pipe", "file", "pty"])
def test_records_that_are_written_whole_are_rebuilt_exactly(tmp_path: Path, stream: str) -> None:
    assert_all(run(tmp_path, 2, shape="mixed", stream=stream))


@pytest.mark.parametrize("shape", ["shared", "identical", "lines", *(["group"] if GROUPS else [])])
def test_a_rank_in_front_of_whole_records_tells_even_equal_stacks_apart(tmp_path: Path, shape: str) -> None:
    assert_all(run(tmp_path, shape=shape, stream="file", start="spawn"))


def test_one_write_to_a_file_is_whole_however_large(tmp_path: Path) -> None:
    assert_all(run(tmp_path, 2, stream="file", size=85_000))


def test_many_ranks_are_told_apart_like_few(tmp_path: Path) -> None:
    assert_all(run(tmp_path, processes=64, stream="file", size=2_000))


# --- where only the stacks tell ------------------------------------------------------------------------


def test_nearly_all_distinct_stacks_of_children_without_a_rank_are_rebuilt_out_of_a_pipe(tmp_path: Path) -> None:
    tally = run(tmp_path, 6, way="multiprocessing", stream="pipe")
    assert (tally.told, tally.read) == (tally.written, tally.written)
    assert tally.exact >= 0.95 * tally.clear


def test_most_stacks_that_are_printed_line_by_line_are_rebuilt_out_of_a_pipe(tmp_path: Path) -> None:
    tally = run(tmp_path, 6, way="excepthook", stream="pipe")
    # Most of them can be read in two ways: how many are clear is up to the machine, and few may be.
    assert tally.told >= 0.75 * tally.written
    assert tally.exact + tally.unclear >= 0.75 * tally.written


# --- the comparison -------------------------------------------------------------------------------------


def told(rank: int, **changes: Any) -> Told:
    frames = ((f"/srt/{rank}.py", 7, "load", "raise ValueError(rank)"),)
    link = Link("ValueError", f"rank {rank}", frames, "")
    return attrs.evolve(Told(rank, f"TP{rank}", f"Process-{rank}", 40 + rank, (link,), ""), **changes)


def log_of(each: Told, label: str) -> str:
    (link,) = each.chain
    ((filename, lineno, function, line),) = link.frames
    head = f"[2026-03-09 12:00:01 {label}] Scheduler hit an exception: " if label else ""
    return (
        f"{head}Traceback (most recent call last):\n"
        f'  File "{filename}", line {lineno}, in {function}\n    {line}\n{link.type}: {link.message}\n'
    )


def test_the_comparison_counts_what_is_right() -> None:
    truth = (told(0), told(1), told(2))
    right = "".join(log_of(each, each.label) for each in truth)
    assert compare(Recording(Plan(3), right.encode(), truth)) == Tally(3, 3, 3, 3, None, 1, 1)


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ("line 7, in load", "line 8, in load", (0, 3)),
        ("    raise ValueError(rank)\n", "", (0, 3)),
        ("ValueError: rank 1", "KeyError: rank 1", (2, 2)),
        ("ValueError: rank 1", "ValueError: rank 9", (2, 2)),
        ("TP1]", "TP5]", (2, 2)),
        ("/srt/1.py", "/srt/9.py", (2, 3)),
    ],
)
def test_the_comparison_lets_nothing_wrong_pass(before: str, after: str, wanted: tuple[int, int]) -> None:
    truth = (told(0), told(1), told(2))
    log = "".join(log_of(each, each.label) for each in truth)
    assert before in log
    tally = compare(Recording(Plan(3), log.replace(before, after).encode(), truth))
    assert (tally.exact, tally.told) == wanted


def test_an_invented_traceback_spoils_the_count() -> None:
    truth = (told(0),)
    log = log_of(truth[0], "TP0") + log_of(told(3), "TP3")
    tally = compare(Recording(Plan(1), log.encode(), truth))
    assert (tally.exact, tally.read, tally.counts) == (1, 2, 0)


def test_nobody_is_asked_whose_a_stack_without_a_name_is() -> None:
    truth = (told(0, label=""), told(1, label=""))
    log = "".join(log_of(each, "") for each in reversed(truth))
    tally = compare(Recording(Plan(2, "excepthook"), log.encode(), truth))
    assert (tally.exact, tally.child) == (2, None)


def test_the_child_that_a_name_stands_for_is_counted_apart() -> None:
    truth = (told(0, label=""), told(1, label=""))
    log = "".join(f"Process {other.name}:\n{log_of(each, '')}" for each, other in zip(truth, truth[::-1], strict=True))
    tally = compare(Recording(Plan(2, "multiprocessing"), log.encode(), truth))
    assert (tally.exact, tally.child) == (2, 0)


def test_in_a_journal_the_pid_has_to_be_right() -> None:
    truth = (told(0),)
    lines = log_of(truth[0], "TP0").splitlines()

    def journal(pid: int) -> bytes:
        entries = ({"__REALTIME_TIMESTAMP": "1773057601000001", "_PID": str(pid), "MESSAGE": line} for line in lines)
        return "".join(json.dumps(entry) + "\n" for entry in entries).encode()

    plan = Plan(1, stream="journald")
    assert [compare(Recording(plan, journal(pid), truth)).exact for pid in (40, 41)] == [1, 0]


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ("0000011111", set()),
        ("0001100111", set()),
        ("0001111100", {0, 1}),  # the other one came and went between a frame and its source line
        ("0011010101", {0, 1}),
        ("0011001101", {0, 1}),
    ],
)
def test_two_that_stand_in_the_middle_of_a_frame_are_unclear(order: str, wanted: set[int]) -> None:
    truth = [told(rank, label="") for rank in range(2)]
    truth = [attrs.evolve(each, text=f"Traceback:\n{log_of(each, '')}") for each in truth]
    left = [iter(each.text.splitlines(keepends=True)) for each in truth]
    log = "".join(next(left[int(rank)]) for rank in order)
    assert unclear(Recording(Plan(2, "excepthook"), log.encode(), tuple(truth))) == wanted


def test_what_a_journal_has_lost_counts_nowhere() -> None:
    def journal(*pieces: str) -> bytes:
        entries = ({"__CURSOR": "s=1", "_PID": "40", "MESSAGE": piece} for piece in pieces)
        return "".join(json.dumps(entry) + "\n" for entry in entries).encode()

    one = told(0, text="KeyError: 1\nnote\n")
    plan = Plan(1, stream="journald")
    assert held_by(Recording(plan, journal("KeyErr", "or: 1", "note"), (one,))) == [one]
    assert held_by(Recording(plan, journal("KeyError:", "1", "note"), (one,))) == []


def test_what_was_kept_gives_the_same_figures(tmp_path: Path) -> None:
    first = record(Plan(3, "multiprocessing", size=2_000), tmp_path)
    first.keep(tmp_path / "kept")
    assert read_back(tmp_path / "kept") == first
    said = io.StringIO()
    with redirect_stdout(said):
        assert main(["--recorded", str(tmp_path / "kept")]) == 0
    tally = compare(first)
    assert f"{tally.exact} of {tally.clear} tracebacks rebuilt exactly\n3 were written" in said.getvalue()


def test_the_command_prints_a_row_for_each_kind_of_run() -> None:
    plan, said = ["--way", "logging", "--size", "2000", "--rounds", "1"], io.StringIO()
    with redirect_stdout(said):
        assert main([*plan, "--processes", "2", "4", "--stream", "file", "pipe"]) == 0
    lines = [line for line in said.getvalue().splitlines() if line.startswith("| logging")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert [(row[1], row[4]) for row in rows] == [("file", "2"), ("file", "4"), ("pipe", "2"), ("pipe", "4")]
    assert [row[6] for row in rows] == ["2/2 (100.0%)", "4/4 (100.0%)"] * 2
