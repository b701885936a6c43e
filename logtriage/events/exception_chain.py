"""Frames, exception lines and turns of one traceback in, its exceptions in order out.

Law: an exception stands after all that led to it: its cause or context, the parts of a group, and the
exception of another process that its message quotes.

Source: CPython 3.8 to 3.14, ``Lib/traceback.py``.
"""

from __future__ import annotations

from typing import Final, Literal

import attrs
import regex

from logtriage.model import ExceptionLink, Frame

__all__ = ["MAX_MESSAGE", "Chain", "Draft", "Relation", "group_rule", "title_of"]

Relation = Literal["cause", "context", "remote", ""]

MAX_MESSAGE: Final = 16_384
"""Characters of a message that are kept."""

_MAX_FRAMES: Final = 300
_MAX_LINKS: Final = 200
_MAX_PLACE: Final = 1_000
"""Characters of a file name, of a function and of a line of source that are kept."""

_RULE: Final = regex.compile(r"(?P<indent> *)\+(?P<open>-\+)?-{3,}(?: (?P<number>\d+|\.\.\.) -{3,})?\s*$")


@attrs.frozen
class GroupRule:
    """A line that draws the tree of an exception group.

    Attributes:
        column: Where the text of the parts begins.
        closes: The last part ends here; else the next part begins.
        opens: The first part begins here.
    """

    column: int
    closes: bool
    opens: bool


def group_rule(text: str) -> GroupRule | None:
    """Read a rule between the parts of a group.

    >>> group_rule("  +-+---------------- 1 ----------------").column
    4
    """
    match = _RULE.match(text[:200])
    if match is None:
        return None
    opens = match["open"] is not None
    return GroupRule(len(match["indent"]) + 2 * opens, match["number"] is None and not opens, opens)


@attrs.define
class Draft:
    """One exception, as far as it was read.

    Attributes:
        type: Its class; ``None`` before its line.
        frames: Its frames.
        message: The lines of its message.
        size: Characters of the message.
        blanks: Blank lines since the last line of the message.
    """

    type: str | None = None
    frames: list[Frame] = attrs.field(factory=list)
    message: list[str] = attrs.field(factory=list)
    size: int = 0
    blanks: int = 0

    def __bool__(self) -> bool:
        return self.type is not None or bool(self.frames)

    def say(self, text: str) -> None:
        """Add a line to the message, and the blank lines before it."""
        room = MAX_MESSAGE - self.size
        if room >= 0:
            self.message += [""] * min(self.blanks, 20)
            self.message.append(text[: room + 1])
        self.size += len(text) + self.blanks + 1
        self.blanks = 0

    def last_words(self) -> str:
        """The last line of the message, or ``""``."""
        return self.message[-1].rstrip() if self.message else ""

    def is_begun_by(self, text: str) -> bool:
        """Whether *text* is the line of this exception once more, and more of it than was read."""
        return len(self.message) == 1 and self.message[0] != "" and text.startswith(f"{self.type}: {self.message[0]}")

    def link(self, relation: Relation) -> ExceptionLink:
        """The finished exception."""
        message = "\n".join(self.message).rstrip()[:MAX_MESSAGE]
        return ExceptionLink(self.type or "", message, tuple(self.frames), relation)


def title_of(link: ExceptionLink) -> str:
    """An exception as CPython's last line says it, or where it was raised if that line is missing."""
    if link.type or not link.frames:
        return f"{link.type}: {link.message}" if link.message else link.type
    return f"{link.frames[-1].filename}:{link.frames[-1].lineno} {link.frames[-1].line}"


@attrs.define
class _Outer:
    """An exception that waits for the end of those inside it.

    Attributes:
        draft: The exception.
        kind: What stands inside: parts of a group, a quoted traceback, or a note that repeats its own.
        column: Where the parts stand.
        start: Number of links before those inside.
    """

    draft: Draft
    kind: Literal["group", "quote", "note"]
    column: int
    start: int


class Chain:
    """The exceptions of one traceback.

    Attributes:
        links: The finished ones.
        draft: The one being read.
        notes: Chains that stood as notes below an exception and are not that exception again.
    """

    def __init__(self) -> None:
        self.links: list[ExceptionLink] = []
        self.draft = Draft()
        self.notes: list[list[ExceptionLink]] = []
        self._outer: list[_Outer] = []

    def __bool__(self) -> bool:
        return bool(self.draft or self.links or self._outer)

    @property
    def inside(self) -> str:
        """What the exception being read stands in: ``group``, ``quote``, ``note`` or ``""``."""
        return self._outer[-1].kind if self._outer else ""

    @property
    def column(self) -> int:
        """Where the parts of the innermost group stand, or 0."""
        return next((outer.column for outer in reversed(self._outer) if outer.kind == "group"), 0)

    def add_frame(self, frame: Frame) -> None:
        """Add a call; of endless stacks the middle is left out."""
        self.draft.frames.append(_shortened(frame))
        if len(self.draft.frames) > _MAX_FRAMES:
            del self.draft.frames[_MAX_FRAMES // 2]

    def mend_frame(self, **changes: object) -> None:
        """Change the last frame."""
        self.draft.frames[-1] = _shortened(attrs.evolve(self.draft.frames[-1], **changes))  # type: ignore[arg-type]

    def name(self, name: str, message: str) -> None:
        """Take the class of the exception and the first line of its message."""
        self.draft.type = name
        self.draft.message = []
        self.draft.size = self.draft.blanks = 0
        self.draft.say(message.rstrip())

    def end(self, relation: Relation) -> None:
        """End the exception being read; if none is, say how the one before leads on."""
        if self.draft:
            self.links.append(self.draft.link(relation))
            if len(self.links) > _MAX_LINKS:
                del self.links[_MAX_LINKS // 2]
        elif self.links:
            self.links[-1] = attrs.evolve(self.links[-1], relation=relation)
        self.draft = Draft()

    def enter(self, kind: Literal["group", "quote", "note"], column: int = 0) -> None:
        """Go on inside the exception being read."""
        if kind == "quote" and self.draft.last_words() == '"""':
            self.draft.message.pop()
        self._outer.append(_Outer(self.draft, kind, column, len(self.links)))
        self.draft = Draft()

    def turn(self, rule: GroupRule) -> None:
        """Follow a rule of the tree of a group: the part above it ends."""
        if rule.opens:
            self.enter("group", rule.column)
            return
        self.end("context")
        # The deepest rule may stand for those around it, which are then left out.
        self.unwind(rule.column - rule.closes)

    def unwind(self, column: int) -> None:
        """End the groups whose parts stand to the right of *column*."""
        while self._outer and self._outer[-1].kind == "group" and self._outer[-1].column > column:
            self.end("context")
            self._leave("context")

    def leave_quote(self) -> bool:
        """End a quotation; the exception that quotes goes on.

        Returns:
            False if there is none to end.
        """
        if self.inside != "quote":
            return False
        self.end("remote")
        self.draft = self._outer.pop().draft
        return True

    def close_quotation(self) -> None:
        """Drop the quotation mark below a message: where its beginning was cut off, nobody opened it."""
        if self.inside != "quote" and self.draft.last_words() == '"""':
            self.draft.message.pop()

    def _leave(self, relation: Relation) -> None:
        """End what stands inside the innermost exception, and that exception itself."""
        outer = self._outer.pop()
        if outer.kind == "note":
            inner = self.links[outer.start :]
            del self.links[outer.start :]
            if inner and inner[-1].type != outer.draft.type:
                self.notes.append(inner)
        self.draft = outer.draft
        self.end(relation)

    def finish(self) -> list[ExceptionLink]:
        """End everything; return the links in order."""
        while self._outer:
            self.end("remote" if self.inside == "quote" else "context")
            self._leave("")
        if self.draft:
            self.end("")
        if self.links:
            self.links[-1] = attrs.evolve(self.links[-1], relation="")
        return self.links


def _shortened(frame: Frame) -> Frame:
    """A frame whose texts are of a bearable length; nearly every one is."""
    if max(len(frame.filename), len(frame.function), len(frame.line)) <= _MAX_PLACE:
        return frame
    return attrs.evolve(
        frame,
        filename=frame.filename[-_MAX_PLACE:],
        function=frame.function[:_MAX_PLACE],
        line=frame.line[:_MAX_PLACE],
    )
