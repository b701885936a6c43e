"""Watchdogs of the engines: the limit, and whether they only warn."""

from __future__ import annotations

import pytest

from logtriage.events.watchdog import open_block
from logtriage.model import WatchdogTimeout
from tests.events.feeding import events_of, one


@pytest.mark.parametrize(
    ("text", "seconds", "soft"),
    [
        ("» Watchdog timeout (self.watchdog_timeout=300)", 300.0, False),
        ("» Scheduler watchdog timeout (self.watchdog_timeout=12.0, self.soft=False)", 12.0, False),
        ("» TokenizerManager watchdog timeout (self.watchdog_timeout=6, self.soft=True)", 6.0, True),
        (
            "» Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
            "tic start time: 14:02:11. last_heartbeat time: 14:01:40",
            20.0,
            False,
        ),
        (
            "No available shared memory broadcast block found in 60 seconds. This typically happens "
            "when some processes are hanging",
            60.0,
            True,
        ),
        ("No available shared memory broadcast block found in 60 second.", 60.0, True),
        ("Hang detected on rank 3 in PyExecutor.", None, False),
    ],
)
def test_every_wording_tells_its_limit(text: str, seconds: float | None, soft: bool) -> None:
    event = one(open_block, text, WatchdogTimeout)
    assert (event.seconds, event.soft) == (seconds, soft)
    assert event.message == text.removeprefix("» ")


@pytest.mark.parametrize(
    "text",
    [
        "server_args=ServerArgs(watchdog_timeout=300, soft_watchdog_timeout=None)",
        "Receive: text='Watchdog timeout (self.watchdog_timeout=300)'",
        "The watchdog timeout (self.watchdog_timeout=300) can be raised with a flag",
        "Health check passed",
    ],
)
def test_talk_about_a_watchdog_is_no_timeout(text: str) -> None:
    assert events_of(open_block, text) == []
