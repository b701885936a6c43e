"""Lines of systemd and of the engines in, one event out for each step in the life of the server.

Source:
    systemd: see :mod:`logtriage.events.systemd`; engines: see :mod:`logtriage.events.wording`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from logtriage.events.block import Block, Whole
from logtriage.events.collect import HEAD, Gathering, Origin, after_bar, opens
from logtriage.events.cpp import read_cpp
from logtriage.events.systemd import read_systemd
from logtriage.events.wording import (
    PHASES,
    READY,
    SIGQUIT,
    SIGTERM,
    SILENT_DUMPS,
    TEARDOWN,
    TEARDOWN_DUMPS,
)
from logtriage.model import Event, Lifecycle, Line, Phase

__all__ = ["open_block"]

_LEVEL: Final = re.compile(
    r"(?:INFO|WARNING|ERROR|CRITICAL|DEBUG): +|[IWE]\d{4} [\d:.]{8,20} \d+ torch/[\w./]{1,200}:\d+\] "
)
_STARTS: Final = tuple(
    text
    for text in (
        *(start for start, _ in PHASES),
        *READY,
        *SIGQUIT,
        *(start for start, _ in SIGTERM),
        *TEARDOWN,
        *TEARDOWN_DUMPS,
        *SILENT_DUMPS,
        "Capture ",
        "server_args=",
        "non-default args: ",
        "args: Namespace(",
        "vLLM API server version",
        "vLLM server version",
        "sglang==",
        "SGLang version",
        "TensorRT-LLM version",
        "[TensorRT-LLM] TensorRT-LLM version",
        "-- Boot ",
        "-- Reboot --",
    )
)
_CAPTURE: Final = re.compile(r"Capture (?:[\w-]+ ){0,4}(?:cuda|CUDA) ?graphs? (?P<end>begin|end)")
_BAR: Final = re.compile(
    r"(?:\s*\d{1,3}%\|[^|]{0,200}\|.{0,400})?Capturing (?:batches|num tokens|CUDA graph|cudagraph)"
)
_LOADING_BAR: Final = re.compile(r"\s*(?:Loading|Multi-thread loading) [\w ]{1,40}shards: +\d+%")
_VERSION: Final = re.compile(
    r"(?:\[TensorRT-LLM\] )?(?:vLLM (?:API )?server version|sglang==|SGLang version:?|TensorRT-LLM version:"
    r"|Initializing an? (?:V\d )?LLM engine \(v) ?v?(?P<version>\d[\w.+!-]*)"
)
_BOOT: Final = re.compile(r"-- (?:Boot (?P<id>[0-9a-f]{32})|Reboot) --\s*$")
_LEAKED: Final = "resource_tracker: There appear to be "


def open_block(line: Line) -> Block | None:
    """Start a block on a line that tells a step.

    >>> from logtriage.model import Process
    >>> [event] = open_block(Line("Load weight begin. avail mem=138.45 GB", 1, Process())).close()
    >>> event.action, event.detail
    ('phase', 'load')
    """
    record = line.record
    if record.message_id or (record.ident and record.ident[0] in "s("):
        event = read_systemd(line)
        if event is not None:
            return Whole(event)
        if (record.ident or "").startswith("systemd"):
            return None
    text = line.text
    if _hides_crash(text):
        return None
    if text[:1] in "IWEDC" and (level := _LEVEL.match(text[:HEAD])):
        text = text[level.end() :]
    if text.startswith(_STARTS):
        return _open_known(line, text)
    if phase := _bar(text):
        return _Bar(line, phase)
    if _LEAKED in text[:HEAD] and text[0] != " ":
        return _Teardown(line)
    if "has NOT been" in text or "was not called" in text:
        log = read_cpp(text)
        if log is not None and log.kind == "teardown":
            return _Teardown(line)
    return None


def _hides_crash(text: str) -> bool:
    """Whether a crash stands behind a progress bar, on the same line."""
    behind = after_bar(text)
    if len(behind) == len(text) or "Warning: " in behind[:300]:
        return False
    return opens(behind) or behind.rstrip().endswith("(most recent call last):")


def _bar(text: str) -> Phase | None:
    """The phase that a progress bar tells, if *text* is one."""
    if text[:1] not in " 0123456789CLM":
        return None
    if _BAR.match(text[:HEAD]):
        return "capture"
    return "load" if _LOADING_BAR.match(text[:HEAD]) else None


def _open_known(line: Line, text: str) -> Block | None:
    """A line that starts with one of the known sentences."""
    if text.startswith(("server_args=", "non-default args: ", "args: Namespace(")):
        return _whole(line, "server-args", text.rstrip())
    if phase := _bar(text):
        return _Bar(line, phase)
    if text.startswith((*TEARDOWN_DUMPS, *TEARDOWN)):
        return _Teardown(line)
    if text.startswith(SILENT_DUMPS):
        return _Silent(line)
    if text.startswith(READY):
        return _whole(line, "ready", "serve")
    if text.startswith(SIGQUIT):
        return _whole(line, "sigquit")
    for start, detail in SIGTERM:
        if text.startswith(start):
            return _whole(line, "sigterm", detail)
    if text.startswith("-- "):
        boot = None if line.prefixed or line.record.ident else _BOOT.match(text)
        return _whole(line, "boot", boot["id"] or "") if boot else None
    return _open_progress(line, text)


def _open_progress(line: Line, text: str) -> Block | None:
    """A line that tells the release, the phase, or both."""
    events: list[Event] = []
    if version := _VERSION.match(text[:HEAD]):
        events.append(_step(line, "version", version["version"].rstrip(".")))
    if capture := _CAPTURE.match(text[:HEAD]):
        events.append(_step(line, "phase", "capture" if capture["end"] == "begin" else "init"))
    else:
        phase = next((phase for start, phase in PHASES if text.startswith(start)), None)
        if phase:
            events.append(_step(line, "phase", phase))
    return Whole(*events) if events else None


def _step(line: Line, action: str, detail: str = "", origin: Origin | None = None) -> Lifecycle:
    return Lifecycle(
        message=line.text[:HEAD].rstrip(),
        action=action,
        detail=detail,
        unit=line.record.unit,
        **(origin or Gathering(line, keep=False).origin()),
    )


def _whole(line: Line, action: str, detail: str = "") -> Block:
    return Whole(_step(line, action, detail))


class _Bar(Gathering):
    """The states of one progress bar, each of which is a line to a reader."""

    def __init__(self, first: Line, phase: Phase) -> None:
        super().__init__(first)
        self._phase = phase

    def offer(self, line: Line) -> bool:
        """Take further states of it."""
        if self.anew(line) or _hides_crash(line.text):
            return False
        return _bar(line.text) == self._phase and self.take(line, keep=False)

    def close(self) -> Sequence[Event]:
        """One step."""
        return [_step(self.first, "phase", self._phase, self.origin())]


class _Teardown(Gathering):
    """Notices of a server that gives up, the stacks it asks for on the way, and more notices."""

    def __init__(self, first: Line) -> None:
        super().__init__(first)
        self._dumping = first.text.startswith(TEARDOWN_DUMPS)

    def offer(self, line: Line) -> bool:
        """Take further notices, and below the head of a dump all that is no crash of its own."""
        text = line.text
        if text.startswith((*TEARDOWN, *TEARDOWN_DUMPS)):
            self._dumping = text.startswith(TEARDOWN_DUMPS)
            return self.take(line, keep=False)
        if self.anew(line):
            return False
        if not text.strip() or text.lstrip().startswith("warnings.warn("):
            return self.take(line, keep=False)
        # py-spy's threads have a number where faulthandler's have an address.
        return self._dumping and not opens(text) and self.take(line, keep=False)

    def close(self) -> Sequence[Event]:
        """One notice for all of them."""
        return [_step(self.first, "teardown", "", self.origin())]


class _Silent(Gathering):
    """Request data that an engine prints when it hangs; nothing in it is an event."""

    def offer(self, line: Line) -> bool:
        """Take everything up to the next message, or to a crash that tells of itself."""
        return not self.anew(line) and not opens(line.text) and self.take(line, keep=False)

    def close(self) -> Sequence[Event]:
        """No event."""
        return []
