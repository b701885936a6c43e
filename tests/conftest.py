"""What all tests share: goldens that one switch rewrites."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

GoldenCheck = Callable[[str, Path], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="accept what the program says now; look at the diff")


@pytest.fixture
def check_golden(request: pytest.FixtureRequest) -> GoldenCheck:
    """Compare a text with the file that holds what was said last time."""

    def check(said: str, golden: Path) -> None:
        if request.config.getoption("--update-golden"):
            golden.write_text(said)
        assert said == golden.read_text()

    return check


# Tests hold laws, not times: on a busy machine any example may take long.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
