"""Lines of an engine's own watchdog in, one event out for each time it saw no progress.

Source:
    SGLang: ``srt/managers/scheduler.py`` up to 0.5.6, ``srt/utils/watchdog.py`` from 0.5.7;
    vLLM: ``shm_broadcast.py``; TensorRT-LLM: ``hang_detector.py``.
"""

from __future__ import annotations

import re
from typing import Final

from logtriage.events.block import Block, Whole
from logtriage.events.collect import HEAD, Gathering
from logtriage.model import Line, WatchdogTimeout

__all__ = ["open_block"]

_PATTERNS: Final = (
    re.compile(
        r"(?:\w+(?: \w+){0,3} )?[Ww]atchdog timeout \(self\.watchdog_timeout=(?P<seconds>[\d.]+)"
        r"(?:, self\.soft=(?P<soft>True|False))?\)\s*$"
    ),
    re.compile(
        r"Health check failed\. Server couldn't get a response from detokenizer for last (?P<seconds>[\d.]+)"
    ),
    re.compile(r"(?P<soft>No available shared memory broadcast block found) in (?P<seconds>[\d.]+) second"),
    re.compile(r"Hang detected on rank \d+ in PyExecutor"),
)


def open_block(line: Line) -> Block | None:
    """Read the line on which a watchdog reports.

    >>> from logtriage.model import Process
    >>> line = Line("Watchdog timeout (self.watchdog_timeout=300)", 7, Process())
    >>> [event] = open_block(line).close()
    >>> event.seconds, event.soft
    (300.0, False)
    """
    text = line.text
    if not (
        "atchdog timeout" in text
        or text.startswith(("Health check failed", "No available sh", "Hang detected"))
    ):
        return None
    for pattern in _PATTERNS:
        if found := pattern.match(text[:HEAD]):
            said = found.groupdict()
            seconds = said.get("seconds")
            return Whole(
                WatchdogTimeout(
                    message=text.rstrip(),
                    seconds=_number(seconds),
                    soft=said.get("soft") not in (None, "False"),
                    **Gathering(line).origin(),
                )
            )
    return None


def _number(text: str | None) -> float | None:
    """A number as a log writes it; a sentence may end right behind it."""
    try:
        return float(text.rstrip(".")) if text else None
    except ValueError:
        return None
