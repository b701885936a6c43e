"""Pieces of input: where a text stands, what one collector's record holds, what was lost."""

from __future__ import annotations

import attrs

__all__ = ["Gap", "Record", "Span"]


@attrs.frozen
class Span:
    """Lines of the input, 1-based, both ends included.

    Attributes:
        first: The first line.
        last: The last line; never before ``first``.
    """

    first: int
    last: int

    def join(self, other: Span) -> Span:
        """The smallest span that holds both."""
        return Span(min(self.first, other.first), max(self.last, other.last))


@attrs.frozen
class Record:
    """One unit of a collector: a journal entry, a container log line, a raw line.

    Attributes:
        text: The message without any envelope and without its line break.
        line: The input line it starts on, 1-based.
        time: As the collector wrote it, made ISO 8601 where it can be; ``None`` if it wrote none.
        host: Host name, if the collector wrote one.
        unit: The systemd unit the text is of, where the collector knows it.
        invocation_id: systemd's invocation id (32 hex digits), if known.
        boot_id: The boot (32 hex digits), if known.
        pid: The process that wrote the text, as the collector saw it.
        ident: The syslog identifier (``python3``, ``systemd``, ``kernel``), or the container's name.
        transport: journald's ``_TRANSPORT`` (``stdout``, ``kernel``, …) or ``""``.
        message_id: journald's ``MESSAGE_ID`` (32 hex digits) or ``""``.
        fields: Further journal fields that a parser of events needs, name and value.
        continued: The collector said that this text goes on from the record before it.
    """

    text: str
    line: int
    time: str | None = None
    host: str | None = None
    unit: str | None = None
    invocation_id: str | None = None
    boot_id: str | None = None
    pid: int | None = None
    ident: str | None = None
    transport: str = ""
    message_id: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    continued: bool = False


@attrs.frozen
class Gap:
    """A part of the input that could not be read, or that never arrived.

    Attributes:
        kind: ``null-message``, ``blob``, ``suppressed``, ``truncated-line``, ``truncated-start``,
            ``rotated``, ``overflow``, ``empty`` or ``binary``.
        span: The lines concerned.
        note: What is missing and how to get it, one sentence.
        count: How many times it happened; the span then covers them all.
    """

    kind: str
    span: Span
    note: str
    count: int = 1
