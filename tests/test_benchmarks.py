"""The measurements measure what they say: on small inputs, by counts, never by time."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from benchmarks import accuracy, hostile, speed
from benchmarks.generate import FORMS, Crash, generate, main

CRASHES: Final = 4
SIZE: Final = 600_000


def journal(form: str, seed: int = 1) -> tuple[list[str], tuple[Crash, ...]]:
    stream = io.BytesIO()
    crashes = generate(stream, size=SIZE, form=form, crashes=CRASHES, seed=seed)
    return stream.getvalue().decode().splitlines(), crashes


@pytest.mark.parametrize("form", FORMS)
def test_the_truth_names_the_lines_and_the_rank_of_each_crash(form: str) -> None:
    lines, crashes = journal(form)
    assert len(crashes) == CRASHES
    headers = [number for number, line in enumerate(lines, 1) if "Scheduler hit an exception" in line]
    for crash in crashes:
        assert f" {crash.process}] Scheduler hit an exception: Traceback" in lines[crash.first - 1]
        assert min(number for number in headers if number >= crash.first) == crash.first
        assert "kill_process_tree called" in lines[crash.last - 1]
    assert all(any(crash.first <= number <= crash.last for crash in crashes) for number in headers)


@pytest.mark.parametrize("form", FORMS)
def test_a_journal_has_the_size_that_was_asked_for_and_depends_on_the_seed_alone(form: str) -> None:
    lines, _ = journal(form)
    assert SIZE <= sum(len(line) + 1 for line in lines) < SIZE + 1_000
    assert lines == journal(form)[0]
    assert lines != journal(form, seed=2)[0]


def test_a_journal_holds_what_systemd_says_and_a_plain_log_does_not() -> None:
    told = {form: sum("Scheduled restart job" in line for line in journal(form)[0]) for form in FORMS}
    assert told == {"raw": 0, "short": CRASHES, "json": CRASHES}
    assert all(json.loads(line)["__REALTIME_TIMESTAMP"] for line in journal("json")[0])


def test_the_generator_writes_the_truth_beside_the_journal(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    truth = tmp_path / "truth.json"
    assert main(["--size", "0.2", "--form", "raw", "--crashes", "2", "--truth", str(truth)]) == 0
    lines = capfdbinary.readouterr().out.decode().splitlines()
    planted = json.loads(truth.read_text())
    assert len(planted) == 2
    assert all(" hit an exception" in lines[crash["first"] - 1] for crash in planted)


@pytest.mark.parametrize("form", FORMS)
def test_speed_compares_with_its_peers_and_finds_every_planted_crash(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert speed.main(["--size", "0.6", "--form", form, "--crashes", str(CRASHES), "--rounds", "1"]) == 0
    said = capsys.readouterr().out
    assert f"logtriage found {CRASHES} of {CRASHES} planted crashes" in said
    rows = [line.split("|")[1].strip() for line in said.splitlines() if line.startswith("| ")]
    assert {"program", "grep -c Traceback", "python loop, one regex", "logtriage"} <= set(rows)
    assert len({line.count("|") for line in said.splitlines() if line.startswith("|")}) == 1


def test_speed_counts_neither_a_wrong_rank_nor_a_wrong_place(tmp_path: Path) -> None:
    def root(label: str, line: int) -> dict[str, object]:
        return {"root": {"event": {"span": [line, line], "process": {"label": label}}}}

    report = tmp_path / "report.json"
    report.write_text(
        json.dumps({"diagnoses": [root("TP1", 12), root("TP2", 40), root("TP3", 99), {"root": None}]})
    )
    planted = [Crash("TP1", "key", 10, 20), Crash("TP5", "key", 38, 50), Crash("TP3", "key", 60, 70)]
    assert speed.count_found(planted, report) == 1


def test_speed_does_not_measure_a_program_that_failed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="grep ended with exit status 2"):
        speed.measure(["grep", "x", str(tmp_path / "missing")], tmp_path / "output")


CASE: Final = {
    "category": "memory.gpu",
    "root": {"type": "ValueError", "message_contains": "no room for", "process": ["TP3", "main"]},
}


def case(**changes: object) -> accuracy.Case:
    return accuracy.Case("x", Path("log.txt"), {**CASE, **changes})


def test_an_answer_is_held_against_each_question_that_the_truth_answers() -> None:
    right = accuracy.Answer(True, "ValueError: No room\nfor it", frozenset({"TP3"}), "memory.gpu")
    assert accuracy.judge(case(), right) == dict.fromkeys(accuracy.QUESTIONS, True)
    wrong = accuracy.Answer(True, "KeyError", frozenset({"TP0"}), "unknown")
    assert accuracy.judge(case(), wrong) == {**dict.fromkeys(accuracy.QUESTIONS, False), "found": True}
    unsaid = case(category="unknown", root={"type": None, "message_contains": None, "process": None})
    assert accuracy.judge(unsaid, right) == {"found": True}
    assert accuracy.judge(case(category="healthy"), right) == {"found": False}
    assert accuracy.judge(case(category="healthy"), accuracy.Answer(False)) == {"found": True}


def test_short_cuts_see_what_they_show_and_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    filler = [f"[2026-03-09 12:00:01 TP5] step {number} of the shutdown" for number in range(50)]
    begin = "[2026-03-09 12:00:00 TP3] Scheduler hit an exception: ValueError: no room for the weights"
    (folder / "log.txt").write_text(
        "\n".join([begin, *filler, "RuntimeError: Connection closed by peer", ""])
    )
    (folder / "case.json").write_text(json.dumps(CASE))
    assert accuracy.main(["--only", str(tmp_path)]) == 0
    rows = {
        cells[1].strip(): [cell.split(" ")[0] for cell in map(str.strip, cells[2:6])]
        for cells in (line.split("|") for line in capsys.readouterr().out.splitlines())
        if len(cells) > 5
    }
    assert rows["first error line"] == ["1/1", "1/1", "1/1", "-"]
    assert rows["last error line"] == ["1/1", "0/1", "0/1", "-"]
    assert rows["tail -40"] == ["1/1", "0/1", "0/1", "-"]


def test_the_cases_are_those_of_the_fixtures() -> None:
    names = Counter(each.name for each in accuracy.read_cases(accuracy.FIXTURES))
    assert names["founding"] == 1
    assert names["h200-bad-flag"] == 1
    assert sum(names.values()) == len(list(accuracy.FIXTURES.glob("*/case.json")))


def test_a_folder_without_cases_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        accuracy.main(["--only", str(tmp_path)])
    assert leaving.value.code == 2
    assert "case.json" in capsys.readouterr().err


# --- growth with hostile text -------------------------------------------------------------------------


@pytest.mark.parametrize(("power", "ratios"), [(1, (1.0, 2.0, 4.0)), (2, (1.0, 4.0, 16.0))])
def test_the_growth_of_a_room_is_told_from_its_clock(power: int, ratios: tuple[float, ...]) -> None:
    clock = [0.0]

    def call(text: str) -> None:
        clock[0] += len(text) ** power

    room = hostile.Room("made up", call, ("a", "bb"))
    found = hostile.measure(room, 10, clock=lambda: clock[0])
    assert [growth.ratios for growth in found] == [ratios, ratios]
    assert {growth.unit for growth in found} == {"a", "bb"}


def test_times_too_short_to_tell_count_as_linear() -> None:
    assert hostile.Growth("made up", "a", (0.0, 0.0, 1e-5)).ratios == (1, 2, 4)


def test_every_room_takes_its_hostile_texts(capsys: pytest.CaptureFixture[str]) -> None:
    assert hostile.main(["--size", "300", "--rounds", "1", "--most", "1e9"]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row[:16].strip() for row in rows] == [room.name for room in hostile.ROOMS]


def test_a_room_that_grows_too_much_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert hostile.main(["--size", "300", "--rounds", "1", "--room", "clean", "--most", "0"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 2
