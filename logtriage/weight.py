"""Events in, about how much memory they take out; and a list of them kept below a limit.

Law: what goes is the middle of a story, which tells least, and never its last few events.
"""

from __future__ import annotations

from typing import Final

from logtriage.model import Event, FatalError, Lifecycle, Traceback

__all__ = ["thin", "weigh"]

_BARE: Final = 1_000
_FRAME: Final = 300
_FEWEST: Final = 8
"""Events that stay whatever they weigh: a parser bounds each of them."""


def weigh(event: Event) -> int:
    """About how many bytes an event takes."""
    weight = _BARE + len(event.message)
    if isinstance(event, Traceback):
        return weight + sum(len(link.message) + _FRAME * len(link.frames) for link in event.chain)
    if isinstance(event, FatalError):
        return weight + _FRAME * len(event.frames)
    return weight + len(event.detail) if isinstance(event, Lifecycle) else weight


def thin(events: list[Event], weight: int, *, room: int, most: int) -> int:
    """Drop events from the middle of a list until it is small enough.

    Args:
        events: The list; it is changed.
        weight: What it weighs.
        room: What it may weigh.
        most: How many may be in it.

    Returns:
        What it weighs now.
    """
    while len(events) > most or (weight > room and len(events) > _FEWEST):
        weight -= weigh(events.pop(len(events) // 2))
    return weight
