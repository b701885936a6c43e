"""What all blocks share: counting every line, keeping few, and the weakest basis."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logtriage.events.collect import (
    MAX_LINES,
    MAX_TEXT,
    Gathering,
    after_bar,
    in_app,
    joined,
    of_rank,
    opens,
)
from logtriage.model import Basis, Line, Process, Rank, Span

BASES: list[Basis] = ["prefix", "pid", "continuation", "only-candidate", "guess"]


@given(st.lists(st.text(max_size=300), min_size=1, max_size=60), st.integers(1, 10**6))
def test_every_line_counts_and_few_are_kept(texts: list[str], first: int) -> None:
    lines = [Line(text, first + index, Process()) for index, text in enumerate(texts)]
    block = Gathering(lines[0])
    for line in lines[1:]:
        block.take(line)
    assert block.origin()["span"] == Span(first, first + len(texts) - 1)
    assert len(block.texts) <= MAX_LINES
    assert sum(map(len, block.texts)) <= MAX_TEXT
    assert all(kept == text[: len(kept)] for kept, text in zip(block.texts, texts, strict=False))


def test_a_flood_of_lines_is_counted_and_not_kept() -> None:
    block = Gathering(Line("x", 1, Process()))
    for number in range(2, 5000):
        block.take(Line("x" * 100, number, Process()))
    assert block.origin()["span"] == Span(1, 4999)
    assert sum(map(len, block.texts)) <= MAX_TEXT


@given(st.lists(st.sampled_from(BASES), min_size=1, max_size=6))
def test_an_event_is_as_sure_as_its_least_sure_line(bases: list[Basis]) -> None:
    lines = [attrs.evolve(Line("x", index, Process()), basis=basis) for index, basis in enumerate(bases, 1)]
    block = Gathering(lines[0])
    for line in lines[1:]:
        block.take(line)
    assert block.origin()["basis"] == max(bases, key=BASES.index)


def test_a_prefix_or_another_place_starts_a_new_message() -> None:
    block = Gathering(Line("x", 1, Process(), place="core.py:710"))
    assert not block.anew(Line("y", 2, Process(), place="core.py:710"))
    assert block.anew(Line("y", 2, Process(), place="core.py:708"))
    assert block.anew(Line("y", 2, Process(), place="core.py:710", prefixed=True))


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("no bar at all", "no bar at all"),
        ("  2%|#| 1/58 [00:00<00:01, 4.1it/s]Killed", "Killed"),
        ("  2%|#| 1/58 [00:00<00:01, 4.1s/it]  3%|#| 2/58 [00:00<00:01, 4.1it/s]x", "x"),
        ("  2%|#| 1/58 [00:00<00:01, 4.1it/s]", ""),
    ],
)
def test_text_behind_a_bar(text: str, rest: str) -> None:
    assert after_bar(text) == rest


@pytest.mark.parametrize(
    ("filename", "ours"),
    [
        ("/opt/site/sglang/srt/managers/scheduler.py", True),
        (r"C:\venv\Lib\site-packages\vllm\v1\engine\core.py", True),
        ("/usr/lib/python3.12/multiprocessing/process.py", False),
        ("/opt/venv/lib/python3.12/site-packages/torch/_ops.py", False),
        ("<string>", False),
    ],
)
def test_which_files_are_an_engines(filename: str, ours: bool) -> None:
    assert in_app(filename) is ours


def test_torchs_rank_never_hides_the_engines() -> None:
    named = Process("scheduler", "TP3", Rank(tp=3))
    assert of_rank(named, 11) == named
    assert of_rank(Process(), None) == Process()
    assert of_rank(Process(pid=7), 11) == Process("worker", "rank11", Rank(world=11), 7)


def test_a_message_has_no_empty_lines_around() -> None:
    assert joined(["", "a  ", "", "b", "", ""]) == "a\n\nb"


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):",
        "Fatal Python error: Aborted",
        "/usr/lib/python3.12/x.py:254: UserWarning: resource_tracker: There appear to be 1 leaked",
        "Current thread 0x00007f6e79c4a140 (most recent call first):",
    ],
)
def test_what_starts_something_new(text: str) -> None:
    assert opens(text)
    assert not opens(f"  {text[:20]}")
