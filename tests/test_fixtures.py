"""Every log in fixtures/, end to end, held against its truth and against what we said last time.

``case.json`` is the truth: the fault was injected, or the process kept its own account; no switch rewrites it.
``answer.txt`` is what people were told last time; ``--update-golden`` accepts a change, which the commit then shows.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from logtriage import Report, load_database, render, triage
from logtriage.model import Diagnosis, ExceptionLink, Traceback
from tests.conftest import GoldenCheck

FIXTURES: Final = Path(__file__).parent.parent / "fixtures"
CASES: Final = sorted(path.parent for path in FIXTURES.glob("*/case.json") if (path.parent / "log.txt").exists())
JOURNALS: Final = sorted((FIXTURES / "journald-tp8-numa-assert").glob("journal.*"))
DATABASE: Final = load_database()


def truth_of(case: Path) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads((case / "case.json").read_text())
    return truth


def report_of(log: Path) -> Report:
    with log.open("rb") as stream:
        return triage(stream, database=DATABASE)


def headline(report: Report) -> Diagnosis:
    assert report.headline is not None
    return report.diagnoses[report.headline]


def folded(text: str) -> str:
    return re.sub(r"\W+", " ", text).strip().lower()


def options(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def named(case: Path) -> str:
    return case.name


HEALTHY: Final = [case for case in CASES if truth_of(case)["category"] == "healthy"]
CRASHES: Final = [case for case in CASES if case not in HEALTHY]


@pytest.mark.parametrize("case", HEALTHY, ids=named)
def test_a_healthy_life_is_silent(case: Path) -> None:
    assert report_of(case / "log.txt").diagnoses == ()


def told(found: Diagnosis) -> str:
    """What the root event says, the exceptions of its chain included."""
    root = found.verdict.root
    assert root is not None
    chain: tuple[ExceptionLink, ...] = root.chain if isinstance(root, Traceback) else ()
    return folded(" ".join([root.message, *(f"{link.type} {link.message}" for link in chain)]))


def assert_true(found: Diagnosis, truth: dict[str, Any]) -> None:
    root = found.verdict.root
    assert root is not None
    wanted = truth["root"].get("message_contains") or truth["root"]["type"]
    assert any(folded(text) in told(found) for text in options(wanted))
    if truth["root"].get("process"):
        assert root.process.label in options(truth["root"]["process"])
    categories = options(truth["category"])
    if "unknown" not in categories:
        assert found.match is not None
        assert found.match.signature.category in categories


@pytest.mark.parametrize("case", CRASHES, ids=named)
def test_the_injected_fault_is_found(case: Path) -> None:
    assert_true(headline(report_of(case / "log.txt")), truth_of(case))


@pytest.mark.parametrize("journal", JOURNALS, ids=named)
def test_the_injected_fault_is_found_in_every_form_of_the_journal(journal: Path) -> None:
    assert_true(headline(report_of(journal)), truth_of(journal.parent))


@pytest.mark.parametrize("case", CASES, ids=named)
def test_people_are_told_what_they_were_told_before(case: Path, check_golden: GoldenCheck) -> None:
    said = render(attrs.evolve(report_of(case / "log.txt"), database_version="golden"), "text")
    assert len(said.splitlines()) <= 40
    check_golden(said, case / "answer.txt")
