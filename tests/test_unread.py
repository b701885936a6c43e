"""Nothing inside a crash is dropped in silence: what no event took is counted, and shown on demand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import attrs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import logtriage
from logtriage import unread
from logtriage.model import Incident, Invocation, Lifecycle, Line, Process, Record, Span, Unread, UnreadLine
from logtriage.unread import MAX_OTHERS, MAX_PIECES, MAX_PLACES, MAX_TEXT, UnreadLines, join
from tests.steps import search_steps

TREE: Final = Path(__file__).parent.parent
WHOLE: Final = sorted(TREE.glob("fixtures/*/log.txt"))
TP0: Final = Process("scheduler", "TP0")
FRAME: Final = '  File "/opt/engine/loader.py", line 31, in load'

HEAD: Final = """\
[2026-03-09 12:00:00] server_args=ServerArgs(model_path='/m/q', tp_size=2)
[2026-03-09 12:00:07 TP1] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/venv/lib/python3.12/site-packages/sglang/srt/managers/scheduler.py", line 2881, in run_scheduler_process
    scheduler = Scheduler(server_args, port_args)
AssertionError: no such backend

[2026-03-09 12:00:07 TP0] Load weight begin. avail mem=3 GB
""".splitlines()
LAST: Final = "[2026-03-09 12:00:08] Received sigquit from a child process. It usually means the child failed."

PIECES: Final = (
    "    ^^^^^^^^^^",
    "    return self.attend(query)",
    "ine 212, in load_model",
    '  File "/opt/engine/runner.py", li',
    "frame #3: torch::abort() + 0x1f (0x7f11 in libtorch.so)",
)
OTHERS: Final = ("the disk is nearly full, please look", "    a note that somebody indented")


def read(lines: list[str]) -> logtriage.Report:
    return logtriage.triage([("\n".join(lines) + "\n").encode()])


def the_unread(lines: list[str]) -> Unread:
    (found,) = read(lines).diagnoses
    return found.unread


# --- planted lines ----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", PIECES)
def test_a_planted_piece_of_a_stack_is_counted_and_shown_where_it_stands(text: str) -> None:
    number = len(HEAD) + 1
    assert the_unread([*HEAD, text, LAST]) == Unread(
        1, 1, (UnreadLine(Span(number, number), "TP0", piece=True, text=text),)
    )


@pytest.mark.parametrize("text", OTHERS)
def test_other_text_inside_the_crash_is_counted_apart(text: str) -> None:
    unread = the_unread([*HEAD, text, LAST])
    assert (unread.count, unread.pieces, [line.text for line in unread.lines]) == (1, 0, [text])


def test_blank_lines_and_lines_outside_the_crash_do_not_count() -> None:
    assert the_unread(["a line before everything", *HEAD, "", LAST, "a line after everything"]) == Unread()


def test_source_code_is_a_piece_below_another_piece_and_a_bar_is_none() -> None:
    planted = ["    ^^^^^^^", "    call(query)", " 10%|#         | 1/10 [00:00<00:01]", "    call(query)"]
    unread = the_unread([*HEAD, *planted, LAST])
    assert [line.piece for line in unread.lines] == [True, True, False, False]


@pytest.mark.parametrize("log", WHOLE, ids=lambda log: log.parent.name)
def test_of_a_whole_log_no_piece_is_lost(log: Path) -> None:
    assert all(found.unread.pieces == 0 for found in logtriage.triage(log).diagnoses)


def test_a_secret_in_an_unread_line_is_not_shown() -> None:
    unread = the_unread([*HEAD, "    return connect(api_key='s3cr3t-9')", LAST])
    assert unread.pieces == 1
    assert "s3cr3t-9" not in repr(unread)


def test_a_long_line_is_cut() -> None:
    assert [len(line.text) for line in the_unread([*HEAD, "x" * 5_000, LAST]).lines] == [MAX_TEXT]


def test_the_cut_of_the_chunks_does_not_show_and_two_runs_are_equal() -> None:
    raw = "\n".join([*HEAD, *PIECES, *OTHERS, LAST, ""]).encode()
    whole = logtriage.render(logtriage.triage([raw]), "json")
    assert '"pieces": 5' in whole
    for size in (1, 7, 4096):
        chunks = [raw[at : at + size] for at in range(0, len(raw), size)]
        assert logtriage.render(logtriage.triage(chunks), "json") == whole


def test_a_flood_is_counted_to_the_last_line_and_few_lines_of_it_are_kept() -> None:
    flood = [f"frame #{number}: c10::fail()" for number in range(5_000)]
    first = len(HEAD) + 1
    unread = the_unread([*HEAD, *flood, LAST])
    assert (unread.count, unread.pieces, len(unread.lines)) == (5_000, 5_000, MAX_PIECES)
    assert (unread.lines[0].span.first, unread.lines[-1].span.first) == (first, first + 4_999)


def test_of_equal_crashes_all_lines_count() -> None:
    crash = [*HEAD, PIECES[-1], OTHERS[0], LAST]
    report = read([*crash, *crash, *crash])
    (found,) = report.diagnoses
    assert (found.repeats, found.unread.count, found.unread.pieces) == (3, 6, 3)
    assert [line.span.first for line in found.unread.lines] == [
        start * len(crash) + len(HEAD) + at for start in range(3) for at in (1, 2)
    ]


def test_a_pasted_sentence_that_is_the_answer_is_not_unread() -> None:
    for path in sorted(TREE.glob("signatures/**/match.*.log"))[:40]:
        last = path.read_text().strip().splitlines()[-1]
        for found in read([last]).diagnoses:
            assert found.unread.count == 0, path


def test_the_kernel_systemd_and_other_units_do_not_count() -> None:
    def entry(unit: str | None, ident: str, message: str) -> str:
        fields = {"MESSAGE": message, "SYSLOG_IDENTIFIER": ident, "_HOSTNAME": "node7", "_PID": "41"}
        if unit:
            fields["_SYSTEMD_UNIT"] = unit
        return json.dumps({**fields, "__REALTIME_TIMESTAMP": "1773057600000000"})

    ours = [entry("llm.service", "python3", text) for text in HEAD]
    unread = the_unread(
        [
            *ours,
            entry("llm.service", "python3", PIECES[0]),
            entry("other.service", "python3", PIECES[1]),
            entry("other.service", "python3", OTHERS[0]),
            entry(None, "kernel", "usb 1-1: reset failed, trying again"),
            entry("init.scope", "systemd", "a sentence that no release of systemd says, failed"),
            entry(None, "sshd", "error: kex_exchange_identification"),
            entry("llm.service", "python3", LAST),
        ]
    )
    assert [line.text for line in unread.lines if line.piece] == [PIECES[0]]
    assert all("usb" not in line.text and "systemd" not in line.text for line in unread.lines)
    assert unread.pieces == 1


UNITS: Final = (
    "a", " ", "A", "a.", "File ", 'File "', 'File "a', 'File "a", l', "line 7, in ", "7, in a", "^", "~ ",
    "aError", "Thread ", "9",
)  # fmt: skip


@pytest.mark.parametrize("pattern", [each for each in vars(unread).values() if isinstance(each, re.Pattern)])
def test_the_steps_of_a_pattern_are_bounded_for_each_character(pattern: re.Pattern[str]) -> None:
    for unit in UNITS:
        text = (unit * 2_000)[:1_000] + "!"
        assert search_steps(pattern, text) < 300 * len(text), unit


# --- the law, against a slow twin ---------------------------------------------------------------------


def line(number: int, text: str, unit: str | None = None, label: str = "TP0") -> Line:
    return Line(text, number, attrs.evolve(TP0, label=label), record=Record("", number, unit=unit), stream=unit or "")


def incident(first: int, last: int, unit: str | None = None) -> Incident:
    ends = (first, last)
    events = tuple(Lifecycle(process=TP0, span=Span(n, n), message="", action="phase") for n in ends)
    return Incident(Invocation(unit=unit), events, "load", Span(first, last))


STEPS: Final = st.lists(
    st.tuples(st.sampled_from(("taken", "piece", "other", "blank", "kernel")), st.sampled_from((None, "a", "b"))),
    min_size=2, max_size=60,
)  # fmt: skip
TEXTS: Final = {"taken": "taken", "piece": FRAME, "other": "free text", "blank": "  ", "kernel": "a report"}


@given(STEPS, st.data())
def test_the_counts_are_those_of_a_plain_loop(steps: list[tuple[str, str | None]], data: st.DataObject) -> None:
    unread = UnreadLines()
    for number, (kind, unit) in enumerate(steps, 1):
        each = line(number, TEXTS[kind], unit, "kernel" if kind == "kernel" else "TP0")
        (unread.read if kind in ("taken", "kernel") else unread.lose)(each)
    ends = [n for n, (kind, unit) in enumerate(steps, 1) if kind == "taken" and unit in (None, "a")]
    assume(ends)
    first, last = sorted((data.draw(st.sampled_from(ends)), data.draw(st.sampled_from(ends))))
    for unit in (None, "a"):
        ours = (None, "a", "b") if unit is None else (None, "a")  # who does not say its unit may be of any
        inside = [(kind, who) for n, (kind, who) in enumerate(steps, 1) if first <= n <= last and who in ours]
        heard = {who for kind, who in inside if kind == "taken"}
        shown = {who for n, (kind, who) in enumerate(steps, 1) if kind == "taken"}
        found = unread.within(incident(first, last, unit))
        assert found.pieces == sum(kind == "piece" for kind, _ in inside)
        if heard == shown & set(ours):  # nobody is heard on both sides of the incident and not in it
            assert found.count == sum(kind == "piece" or (kind == "other" and who in heard) for kind, who in inside)
            assert len(found.lines) == found.count
        assert all(first <= kept.span.first <= last and kept.text == kept.text.rstrip() for kept in found.lines)


def test_what_has_been_told_is_forgotten_and_what_follows_is_kept() -> None:
    unread = UnreadLines()
    unread.read(line(1, "taken"))
    unread.lose(line(2, FRAME))
    unread.read(line(3, "taken"))
    unread.lose(line(4, FRAME))
    first = incident(1, 3)
    assert unread.within(first).pieces == 1
    unread.forget(first)
    assert unread.within(first) == Unread()
    unread.read(line(5, "taken"))
    assert [kept.span.first for kept in unread.within(incident(4, 5)).lines] == [4]


def test_memory_is_bounded_by_the_number_of_senders_and_of_lines() -> None:
    unread = UnreadLines()
    for number in range(1, 4 * MAX_PLACES):
        unread.lose(line(number, FRAME, f"unit-{number}"))
    kept = [name for name in range(1, 4 * MAX_PLACES) if unread.within(incident(1, 9_999, f"unit-{name}")).pieces]
    assert kept == list(range(3 * MAX_PLACES, 4 * MAX_PLACES))


def test_a_stream_of_years_is_counted_though_its_runs_are_joined() -> None:
    unread = UnreadLines()
    for number in range(1, 20_001):
        (unread.lose if number % 2 else unread.read)(line(number, "free text"))
    found = unread.within(incident(1, 20_000))
    assert (found.count, found.pieces, len(found.lines)) == (10_000, 0, MAX_OTHERS)


def test_two_crashes_keep_as_many_lines_as_one() -> None:
    lines = tuple(UnreadLine(Span(n, n), "TP0", piece=n % 2 == 0, text="x") for n in range(1, 301))
    both = join(Unread(300, 150, lines), Unread(7, 7, ()))
    assert (both.count, both.pieces) == (307, 157)
    later = tuple(attrs.evolve(each, span=Span(each.span.first + 300, each.span.first + 300)) for each in lines)
    both = join(Unread(300, 150, lines), Unread(300, 150, later))
    assert sum(each.piece for each in both.lines) == MAX_PIECES
    assert sum(not each.piece for each in both.lines) == MAX_OTHERS
    assert [each.span.first for each in both.lines] == sorted(each.span.first for each in both.lines)
