"""The interface of a parser of events: lines of one process in, events out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from logtriage.model import Event, Line, Span

__all__ = ["Block", "Opener", "Whole", "span_of"]


class Block(Protocol):
    """An event that is still being read.

    It gets the lines that follow its first one in the same stream, until it refuses one.
    """

    def offer(self, line: Line) -> bool:
        """Take *line* if it belongs to this event.

        Returns:
            True if the line was taken; False ends the block, and the line is offered to the openers.
        """

    def close(self) -> Sequence[Event]:
        """End the block; return what it tells, one event as a rule."""


Opener = Callable[[Line], "Block | None"]
"""Looks at a line that no block claimed; answers with a block that starts on it, or ``None``."""


class Whole:
    """A block of one line: the event is known at once."""

    def __init__(self, *events: Event) -> None:
        self._events = events

    def offer(self, line: Line) -> bool:  # noqa: ARG002 - the interface of every block
        """Refuse every further line."""
        return False

    def close(self) -> Sequence[Event]:
        """Return the event."""
        return self._events


def span_of(lines: Sequence[Line]) -> Span:
    """The input lines that *lines* stand on."""
    numbers = [line.line for line in lines]
    return Span(min(numbers), max(numbers))
