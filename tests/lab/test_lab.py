"""The lab itself: one crash and one restart under a real systemd, recorded and true."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from tests.lab.machine import why_not

RECORD = Path(__file__).with_name("record_founding.py")


@pytest.mark.lab
def test_what_the_ranks_noted_is_what_the_journal_holds(tmp_path: Path) -> None:
    """Every rank that says it printed appears, whole and under a pid of its own."""
    if reason := why_not():
        pytest.skip(reason)
    arguments = ["--out", str(tmp_path), "--restarts", "1", "--batches", "4"]
    subprocess.run([sys.executable, str(RECORD), *arguments], check=True)

    case = json.loads((tmp_path / "case.json").read_text())
    assert (case["repeats"], case["restarts"], case["state"]) == (2, 1, "activating")
    ranks: dict[str, str] = {}
    raised, deaths = set(), 0
    for line in (tmp_path / "journal.json").read_text().splitlines():
        entry = json.loads(line)
        text, pid = str(entry.get("MESSAGE")), entry["_PID"]
        if match := re.match(r"\[.* (TP\d)\] Scheduler hit an exception", text):
            assert ranks.setdefault(pid, match[1]) == match[1]
        if text.startswith("AssertionError: "):
            raised.add(pid)
        deaths += "qwen35.service: Main process exited, code=killed, status=9/KILL" in text
    assert [rank for pid, rank in ranks.items() if pid in raised] == [*chain(*case["printed"])]
    assert deaths == 2
