"""The cut of the chunks never shows, on every log there is."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from logtriage import Triage, load_database, render

TREE: Final = Path(__file__).parent.parent
FIXTURES: Final = sorted([*TREE.glob("fixtures/*/log.txt"), *TREE.glob("fixtures/*/journal.*")])
MATCHES: Final = sorted(TREE.glob("signatures/**/match.*.log"))
DATABASE: Final = load_database()


def rendered(raw: bytes, size: int) -> str:
    triage = Triage(DATABASE)
    for at in range(0, len(raw), size):
        triage.feed(raw[at : at + size])
    triage.close()
    return render(triage.report(), "json")


def named(log: Path) -> str:
    return str(log.relative_to(TREE))


@pytest.mark.parametrize("log", FIXTURES, ids=named)
def test_the_report_is_the_same_for_chunks_of_1_7_and_4096_bytes(log: Path) -> None:
    raw = log.read_bytes()
    whole = rendered(raw, max(len(raw), 1))
    for size in (1, 7, 4096):
        assert rendered(raw, size) == whole


@pytest.mark.parametrize("log", MATCHES, ids=named)
def test_the_report_is_the_same_byte_by_byte(log: Path) -> None:
    raw = log.read_bytes()
    assert rendered(raw, 1) == rendered(raw, len(raw))
