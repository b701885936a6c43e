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
from logtriage.model import Event, Lifecycle, Line, Record

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

_MAX_OPEN: Final = 4_096
# A step of the service's life ends whatever its processes were saying.
_BARRIERS: Final = frozenset({"started", "starting", "main-exited", "restart-scheduled", "boot", "server-args"})


class EventReader:
    """Read events out of the lines of each stream.

    Memory is bounded: one open block a stream, :data:`_MAX_OPEN` streams, each block with its own limit.
    """

    def __init__(self, parsers: Sequence[Opener] = PARSERS) -> None:
        self._parsers = parsers
        self._open: OrderedDict[str, tuple[Block, Record]] = OrderedDict()

    def feed(self, line: Line) -> Sequence[Event]:
        """Take a line; return the events that it completes."""
        out: list[Event] = []
        held = self._open.get(line.stream)
        if held is not None:
            if held[0].offer(line):
                return out
            del self._open[line.stream]
            out += _close(*held)
        for opener in self._parsers:
            block = opener(line)
            if block is not None:
                self._begin(block, line, out)
                break
        return out

    def close(self) -> Sequence[Event]:
        """End the stream; return what every open block tells."""
        out: list[Event] = []
        while self._open:
            _, held = self._open.popitem(last=False)
            out += _close(*held)
        return out

    def _begin(self, block: Block, line: Line, out: list[Event]) -> None:
        if not isinstance(block, Whole):
            self._open[line.stream] = (block, line.record)
            if len(self._open) > _MAX_OPEN:
                _, oldest = self._open.popitem(last=False)
                out += _close(*oldest)
            return
        events = _close(block, line.record)
        if any(isinstance(event, Lifecycle) and event.action in _BARRIERS for event in events):
            out += self.close()
        out += events


def _close(block: Block, record: Record) -> list[Event]:
    """End a block; its events learn what the collector said of their first line."""
    return [
        attrs.evolve(event, unit=event.unit or record.unit, invocation_id=event.invocation_id or record.invocation_id)
        for event in block.close()
    ]
