"""An event enters; the texts that signatures are held against leave, capped and with white space folded.

Law: however long a message is, what leaves is short, and hard-wrapped text equals unwrapped text.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import attrs

from logtriage.model import Event, FatalError, Frame, Incident, LoggedError, NativeAbort, Traceback

__all__ = ["Surroundings", "Text", "cap", "event_texts", "fold", "pattern_text"]

# Literals are looked for with ``in``, which is linear and fast; patterns backtrack.
_LITERAL_LIMIT: Final = 64 * 1024
_PATTERN_LIMIT: Final = 8 * 1024
_LINK_POINTS: Final = 0.5


def fold(text: str) -> str:
    r"""Make every run of white space one blank, so that hard-wrapped text equals unwrapped text.

    >>> fold("only supported\n    backends")
    'only supported backends'
    """
    return " ".join(text.split())


def cap(text: str, limit: int) -> str:
    """Head and tail of a text that is too long: what went wrong stands at either end."""
    return text if len(text) <= limit else f"{text[: limit // 2]}\n{text[-(limit // 2) :]}"


@attrs.frozen
class Text:
    """One text of an event: what it says, and the exception it belongs to.

    Attributes:
        raw: As printed, capped for patterns.
        folded: White space folded, capped for literals.
        type: The exception class; ``None`` if the text is not of an exception, ``""`` if it was cut off.
        frames: Oldest call first.
        link: Index in the chain.
        bonus: Points for its place in the chain.
    """

    raw: str
    folded: str
    type: str | None = None
    frames: tuple[Frame, ...] = ()
    link: int | None = None
    bonus: float = 0.0


def _text(
    raw: str,
    kind: str | None = None,
    frames: tuple[Frame, ...] = (),
    link: int | None = None,
    bonus: float = 0.0,
) -> Text:
    return Text(cap(raw, _PATTERN_LIMIT), fold(cap(raw, _LITERAL_LIMIT)), kind, frames, link, bonus)


def pattern_text(text: str) -> str:
    """As much of *text* as patterns are searched in."""
    return cap(text, _PATTERN_LIMIT)


def event_texts(event: Event) -> list[Text]:
    """The texts of an event.

    Args:
        event: Any event.

    Returns:
        For a traceback one text for each exception of its chain, in that order, and its message if that says
        more; for any other event one text.
    """
    if isinstance(event, Traceback):
        texts = list(_chain_texts(event))
        message = _text(event.message, texts[-1].type if texts else None)
        held = any(message.folded in text.folded for text in texts)
        return texts if held else [*texts, message]
    if isinstance(event, FatalError):
        return [_fatal_text(event)]
    if isinstance(event, NativeAbort):
        return [_text(event.message, event.exception or None)]
    if isinstance(event, LoggedError):
        bare = event.type and not event.message.startswith(event.type)
        return [_text(f"{event.type}: {event.message}" if bare else event.message, event.type or None)]
    return [_text(event.message)]


def _chain_texts(event: Traceback) -> Iterator[Text]:
    """Each exception as CPython prints its last line, with the header of the whole traceback below it.

    The place in the chain breaks ties only.  "The direct cause of" and a quotation from another process
    say that the last exception merely wraps an earlier one, which then is the better answer; "during
    handling of" says that the last one is a failure of its own, and usually the more telling one.
    """
    last = len(event.chain) - 1
    wrapped = last > 0 and event.chain[last - 1].relation in ("cause", "remote")
    for position, link in enumerate(event.chain):
        # The cap comes first: joining a message of many megabytes would copy it once more.
        message = cap(link.message, _LITERAL_LIMIT)
        line = f"{link.type}: {message}" if link.type and message else link.type or message
        raw = f"{line}\n{event.header}" if event.header else line
        bonus = _LINK_POINTS if (position == last) is not wrapped else 0.0
        yield _text(raw, link.type, link.frames, position, bonus)


def _fatal_text(event: FatalError) -> Text:
    """The reason and the crashing thread's frames as faulthandler prints them, newest first."""
    reason = f"Fatal Python error: {event.reason}"
    head = event.message if reason in event.message else f"{reason}\n{event.message}"
    lines = (f'File "{frame.filename}", line {frame.lineno} in {frame.function}' for frame in event.frames)
    return _text("\n".join([head, *lines]), frames=event.frames[::-1])


class Surroundings:
    """The texts of the incident's other events, read when a condition first asks for them.

    Args:
        event: The event that is being explained; its own text does not count.
        incident: Its incident.
    """

    def __init__(self, event: Event, incident: Incident) -> None:
        self._event = event
        self._incident = incident

    @cached_property
    def _folded(self) -> tuple[str, ...]:
        others = [other for other in self._incident.events if other != self._event]
        return tuple(text.folded for other in others for text in event_texts(other))

    def hold(self, literal: str) -> bool:
        """Whether *literal* stands in one of them."""
        wanted = fold(literal)
        return any(wanted in text for text in self._folded)
