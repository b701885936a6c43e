"""The laws of the database, held against every signature in it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import pytest
import re2  # type: ignore[import-untyped]

from logtriage import Report, load_database, triage
from logtriage.database import find_defects
from logtriage.model import Signature

ROOT: Final = Path(__file__).parent.parent / "signatures"
FIXTURES: Final = Path(__file__).parent.parent / "fixtures"
SIGNATURES: Final = {signature.id: signature for signature in load_database().signatures}
MATCHES: Final = sorted(ROOT.rglob("match.*.log"))
NEARS: Final = sorted(ROOT.rglob("near.*.log"))
HEALTHY: Final = sorted(FIXTURES.glob("healthy-*/log.txt"))


def owner(log: Path) -> str:
    return ".".join(log.parent.relative_to(ROOT).parts)


def named(log: Path) -> str:
    return str(log.relative_to(log.parents[3] if log.is_relative_to(ROOT) else log.parents[1]))


@cache
def report(log: Path) -> Report:
    return triage(log)


def answer(log: Path) -> str | None:
    found = report(log)
    if found.headline is None:
        return None
    match = found.diagnoses[found.headline].match
    return match.signature.id if match else None


def test_no_file_has_a_defect() -> None:
    assert [str(defect) for defect in find_defects(check_logs=True)] == []


def test_there_are_at_least_45_signatures() -> None:
    assert len(SIGNATURES) >= 45


@pytest.mark.parametrize("log", MATCHES, ids=named)
def test_a_signature_is_the_answer_to_its_own_log(log: Path) -> None:
    assert answer(log) == owner(log)


@pytest.mark.parametrize("log", NEARS, ids=named)
def test_a_log_that_only_looks_alike_has_another_answer(log: Path) -> None:
    assert answer(log) != owner(log)


@pytest.mark.parametrize("log", HEALTHY, ids=named)
def test_a_healthy_log_has_no_diagnosis(log: Path) -> None:
    assert report(log).diagnoses == ()


PATTERNS: Final = [
    (signature.id, variant.name, variant.pattern)
    for signature in SIGNATURES.values()
    for variant in signature.variants
    if variant.pattern
]


@pytest.mark.parametrize(("signature", "variant", "pattern"), PATTERNS, ids=lambda value: str(value)[:60])
def test_a_pattern_is_in_the_linear_subset(signature: str, variant: str, pattern: str) -> None:
    assert re2.compile(pattern) is not None, (signature, variant)


@pytest.mark.parametrize("signature", SIGNATURES.values(), ids=lambda signature: signature.id)
def test_a_signature_tells_what_to_do(signature: Signature) -> None:
    assert signature.cause
    assert signature.remediations or signature.next_steps
    assert all(remediation.rationale for remediation in signature.remediations)
