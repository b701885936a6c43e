"""Lines of many processes in, events out.

A new crash shape is one module with ``open_block``, a kind in ``model/event.py``, one line in :data:`PARSERS`
and an anchor in ``scan/anchors.py``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import attrs

from logtriage.events import (
    collective,
    faulthandler,
    kernel,
    lifecycle,
    logged_error,
    native_abort,
    process_exit,
    traceback,
    watchdog,
)
from logtriage.events.block import Block, Opener, Whole
from logtriage.model import Event, Lifecycle, Line, Record, Span

__all__ = ["PARSERS", "EventReader"]

# The order is that of precision: who knows a whole line by its words stands before who knows its shape.
PARSERS: Final[tuple[Opener, ...]] = (
    kernel.open_block,
    lifecycle.open_block,
    faulthandler.open_block,
    collective.open_block,
    watchdog.open_block,
    process_exit.open_block,
    native_abort.open_block,
    traceback.open_block,
    logged_error.open_block,
)

_MAX_OPEN: Final = 1_024
# A step of the service's life ends whatever its processes were saying.
_BARRIERS: Final = frozenset({"started", "starting", "main-exited", "restart-scheduled", "boot", "server-args"})


class EventReader:
    """Read events out of the lines of each stream.

    Memory is bounded: one open block a stream, :data:`_MAX_OPEN` streams, each block with its own limit.
    A parser that breaks costs its own event, never the others.

    Attributes:
        failures: How often a parser broke.
        failed_on: The lines on which parsers broke, the first to the last.
        failure: Name of the first exception of a parser, or ``""``.
        unread: The lines of which the last call found that they belong to no event.
    """

    def __init__(self, parsers: Sequence[Opener] = PARSERS) -> None:
        self._parsers = parsers
        self._open: OrderedDict[str, tuple[Block, Record]] = OrderedDict()
        self.failures = 0
        self.failed_on: Span | None = None
        self.failure = ""
        self.unread: tuple[Line, ...] = ()

    def feed(self, line: Line) -> Sequence[Event]:
        """Take a line; return the events that it completes."""
        out: list[Event] = []
        self.unread = ()
        held = self._open.get(line.stream)
        if held is not None:
            if self._offered(held[0], line):
                return out
            del self._open[line.stream]
            out += self._closed(*held)
        block = self._opened(line)
        if block is not None:
            self._begin(block, line, out)
        else:
            self.unread = (line,)
        return out

    def close(self) -> Sequence[Event]:
        """End the stream; return what every open block tells."""
        out: list[Event] = []
        while self._open:
            _, held = self._open.popitem(last=False)
            out += self._closed(*held)
        return out

    def _begin(self, block: Block, line: Line, out: list[Event]) -> None:
        if not isinstance(block, Whole):
            self._open[line.stream] = (block, line.record)
            if len(self._open) > _MAX_OPEN:
                _, oldest = self._open.popitem(last=False)
                out += self._closed(*oldest)
            return
        events = self._closed(block, line.record)
        if any(isinstance(event, Lifecycle) and event.action in _BARRIERS for event in events):
            out += self.close()
        out += events

    # --- every call of a parser -----------------------------------------------------------------

    def _opened(self, line: Line) -> Block | None:
        for opener in self._parsers:
            try:
                block = opener(line)
            except Exception as error:  # noqa: BLE001  a defect of one parser must not cost the diagnosis
                self._fail(line.line, error)
                continue
            if block is not None:
                return block
        return None

    def _offered(self, block: Block, line: Line) -> bool:
        try:
            return block.offer(line)
        except Exception as error:  # noqa: BLE001  likewise; what the block had read is still told
            self._fail(line.line, error)
            return False

    def _closed(self, block: Block, record: Record) -> list[Event]:
        try:
            return _close(block, record)
        except Exception as error:  # noqa: BLE001  likewise
            self._fail(record.line, error)
            return []

    def _fail(self, line: int, error: Exception) -> None:
        at = Span(line, line)
        self.failures += 1
        self.failed_on = self.failed_on.join(at) if self.failed_on else at
        self.failure = self.failure or type(error).__name__


def _close(block: Block, record: Record) -> list[Event]:
    """End a block; its events learn what the collector said of their first line."""
    return [
        attrs.evolve(event, unit=event.unit or record.unit, invocation_id=event.invocation_id or record.invocation_id)
        for event in block.close()
    ]
