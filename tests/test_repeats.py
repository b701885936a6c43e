"""A crash loop is one entry, which still tells where and on whom each crash began."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

import logtriage
from benchmarks.generate import FORMS, generate
from logtriage.model import Occurrence, Span, Unread
from logtriage.repeats import MAX_OCCURRENCES, fold, occurrence
from tests.renderers import reports

FOUNDING: Final = Path(__file__).parent.parent / "fixtures" / "founding"
TRUTH: Final[dict[str, Any]] = json.loads((FOUNDING / "case.json").read_text())

CRASH: Final = """\
[2026-03-09 12:0{minute}:00] server_args=ServerArgs(model_path='/m/q', tp_size=4)
[2026-03-09 12:0{minute}:07 TP{rank}] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/venv/lib/python3.12/site-packages/sglang/srt/managers/scheduler.py", line 2881, in run_scheduler_process
    scheduler = Scheduler(server_args, port_args)
RuntimeError: an odd thing happened

[2026-03-09 12:0{minute}:08] Received sigquit from a child process. It usually means the child failed.
"""


def of_ranks(*ranks: int) -> logtriage.Diagnosis:
    """The diagnosis of crashes that began on these ranks."""
    raw = "".join(CRASH.format(minute=at % 10, rank=rank) for at, rank in enumerate(ranks))
    (found,) = logtriage.triage([raw.encode()]).diagnoses
    return found


def began(found: logtriage.Diagnosis) -> list[str]:
    """The line of the text that says on whom the crashes began."""
    lines = logtriage.render(reports.report(found), "text", verbose=True).splitlines()
    return [line[12:] for line in lines if line.startswith("Began ")]


def test_each_crash_is_told_with_its_lines_its_process_and_its_time() -> None:
    ranks = (3, 0, 3, 1)
    found = of_ranks(*ranks)
    size = len(CRASH.splitlines())
    assert found.repeats == len(ranks)
    assert [each.process for each in found.occurrences] == [f"TP{rank}" for rank in ranks]
    assert [each.span.first for each in found.occurrences] == [at * size + 2 for at in range(len(ranks))]
    assert [each.time and each.time[-8:] for each in found.occurrences] == [f"12:0{at}:07" for at in range(4)]


@pytest.mark.parametrize("form", ["journal.short.txt", "journal.json", "journal.export"])
def test_the_founding_loop_began_on_whoever_printed_first_with_systemds_counter(form: str) -> None:
    report = logtriage.triage(FOUNDING / form)
    assert report.headline is not None
    found = report.diagnoses[report.headline]
    assert [each.process for each in found.occurrences] == [printed[0] for printed in TRUTH["printed"]]
    assert [each.restarts or 0 for each in found.occurrences] == list(range(TRUTH["restarts"] + 1))


@pytest.mark.parametrize("form", FORMS)
def test_planted_crashes_are_told_one_by_one(form: str) -> None:
    stream = io.BytesIO()
    planted = generate(stream, size=400_000, form=form, crashes=4, seed=3)
    told = [each for found in logtriage.triage([stream.getvalue()]).diagnoses for each in found.occurrences]
    told.sort(key=lambda each: each.span.first)
    assert [(each.process, each.span.first) for each in told] == [(each.process, each.first) for each in planted]


def test_of_very_many_crashes_the_first_and_the_last_are_told() -> None:
    one = reports.recognised(repeats=1)
    found = attrs.evolve(one, occurrences=(Occurrence(Span(1, 1)),))
    for at in range(2, 1_001):
        found = fold(found, attrs.evolve(one, occurrences=(Occurrence(Span(at, at)),)))
    half = MAX_OCCURRENCES // 2
    assert found.repeats == 1_000
    assert [each.span.first for each in found.occurrences] == [*range(1, half + 1), *range(1_001 - half, 1_001)]


def test_a_crash_without_a_root_is_told_with_all_its_lines() -> None:
    incident = reports.recognised().incident
    assert occurrence(incident, None) == Occurrence(incident.span, restarts=5)


def test_a_better_known_crash_lends_its_match_and_the_first_keeps_its_incident() -> None:
    before, after = reports.diagnosis(next_steps=("a",)), reports.diagnosis(match=reports.MATCH, next_steps=("b",))
    found = fold(before, after)
    assert (found.match, found.repeats, found.next_steps) == (reports.MATCH, 2, ("a", "b"))
    assert found.incident.events == before.incident.events
    assert found.unread == Unread()


# --- on whom they began -----------------------------------------------------------------------------


def test_a_fault_that_wanders_is_told_with_its_ranks() -> None:
    assert began(of_ranks(2, 1, 2, 2, 1)) == ["on TP2 (3 times), TP1 (2 times)"]
    assert began(of_ranks(2, 1, 0)) == ["on TP2, TP1, TP0 (once each)"]


def test_a_fault_that_stays_on_one_rank_points_to_its_gpu() -> None:
    assert began(of_ranks(2, 2, 2)) == ["on TP2 each time and on no other rank: its GPU or its node may be at fault"]


@pytest.mark.parametrize("ranks", [(2,), (2, 2)])
def test_one_or_two_crashes_on_one_rank_say_nothing(ranks: tuple[int, ...]) -> None:
    assert began(of_ranks(*ranks)) == []


def test_a_fault_that_other_ranks_report_too_is_not_of_one_gpu() -> None:
    each = tuple(Occurrence(Span(at, at), "TP3") for at in (1, 2, 3))
    assert reports.diagnosis().verdict.findings[0].role == "observer"
    assert began(reports.diagnosis(repeats=3, occurrences=each)) == []


def test_a_setting_is_not_of_one_gpu() -> None:
    alone = of_ranks(2, 2, 2)
    assert began(attrs.evolve(alone, match=reports.MATCH)) == []
    failing = attrs.evolve(reports.SIGNATURE, category="hw.gpu")
    assert len(began(attrs.evolve(alone, match=attrs.evolve(reports.MATCH, signature=failing)))) == 1


def test_crashes_that_are_left_out_are_not_counted_in_silence() -> None:
    each = tuple(Occurrence(Span(at, at), f"TP{at % 2}") for at in range(1, 201))
    assert began(reports.diagnosis(repeats=300, occurrences=each)) == [
        "on TP1 (100 times), TP0 (100 times); 100 crashes in between not counted"
    ]
