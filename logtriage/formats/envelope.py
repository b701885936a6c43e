"""The interface of a format: one line of text in, its message and what the envelope said out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

__all__ = ["Format", "Peeled"]


@attrs.frozen
class Peeled:
    """A line with one envelope taken off.

    Attributes:
        rest: The message; may stand in a further envelope.
        fields: Attributes of :class:`logtriage.model.Record` that the envelope told.
        width: Columns that the envelope takes before the message, where further lines are indented by them.
        gap: Kind of gap if the message is lost, else ``""``.
        partial: The message goes on in the next line of the same source.
    """

    rest: str
    fields: Mapping[str, object] = attrs.field(factory=dict)
    width: int = 0
    gap: str = ""
    partial: bool = False


@attrs.frozen
class Format:
    """An envelope that collectors put around lines.

    Attributes:
        name: Its name in reports.
        peel: Takes the envelope off one line; ``None`` if the line is not in it.
        samples: Lines it must take, each with the message that must be left.
    """

    name: str
    peel: Callable[[str], Peeled | None]
    samples: tuple[tuple[str, str], ...]
