"""Text in, what one parser of events makes of it out; for the tests of this folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from logtriage.events.block import Opener
from logtriage.model import Event, Line, Process, Record

__all__ = ["KERNEL", "PREFIXED", "SYSTEMD", "events_of", "lines_of", "one"]

PREFIXED = "» "
"""Stands in these tests for an engine's prefix, which the stage before has taken off."""

KERNEL = Record("", 1, ident="kernel", transport="kernel", host="gpu7")
SYSTEMD = Record("", 1, ident="systemd", pid=1, host="gpu7")

Kind = TypeVar("Kind", bound=Event)


def lines_of(
    text: str, *, process: Process | None = None, record: Record | None = None, level: str = ""
) -> list[Line]:
    """The lines of *text*, numbered from 1."""
    return [
        Line(
            one_line.removeprefix(PREFIXED),
            number,
            process or Process(),
            prefixed=one_line.startswith(PREFIXED),
            level=level,
            record=record or Record("", number),
        )
        for number, one_line in enumerate(text.removeprefix("\n").split("\n"), 1)
    ]


def events_of(open_block: Opener, lines: str | Sequence[Line]) -> list[Event]:
    """Events of one parser: a line goes to the open block, and to the opener if that refuses it."""
    out: list[Event] = []
    block = None
    for line in lines_of(lines) if isinstance(lines, str) else lines:
        if block is not None:
            if block.offer(line):
                continue
            out += block.close()
        block = open_block(line)
    if block is not None:
        out += block.close()
    return out


def one(open_block: Opener, lines: str | Sequence[Line], kind: type[Kind]) -> Kind:
    """The only event of *lines*."""
    [event] = events_of(open_block, lines)
    assert isinstance(event, kind)
    return event
