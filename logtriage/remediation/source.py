"""The text of a file goes in; views of it come out that know where each character stands in the file.

A command line may be wrapped in quotes inside a unit file, or continued over
several lines.  Each layer is read as a plain string of its own, the *view*;
what is to be written is encoded by each layer on its way back to the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs

__all__ = ["Edit", "View", "apply_edits", "line_of", "new_line_of"]


@attrs.frozen
class Edit:
    """A replacement of ``text[start:end]`` of a file.

    Attributes:
        start: First character replaced.
        end: The character after the last one replaced.
        text: What takes their place.
    """

    start: int
    end: int
    text: str


@attrs.frozen(eq=False, repr=False)
class View:
    """A string, each character of which comes from a place in the file.

    Attributes:
        text: The string.
        starts: Where each character begins in the file.
        ends: Where it ends there.
        origin: Where the string begins in the file, also if it is empty.
        encode: Turns new text for this string, and the index it is put at, into text for the file.
    """

    text: str
    starts: Sequence[int]
    ends: Sequence[int]
    origin: int
    encode: Callable[[str, int], str]

    @classmethod
    def of_file(cls, text: str) -> View:
        """View a whole file; a line break is one character even where it is CRLF."""
        new_line = new_line_of(text)

        def encode(new: str, _at: int) -> str:
            return new.replace("\n", new_line)

        if "\r\n" not in text:
            return cls(text, range(len(text)), range(1, len(text) + 1), 0, encode)
        starts = [at for at in range(len(text)) if not text.startswith("\r\n", at)]
        # The break starts at its carriage return, so that nothing is ever put between the two.
        begins = [at - 1 if text[at] == "\n" and at and text[at - 1] == "\r" else at for at in starts]
        return cls("".join(text[at] for at in starts), begins, [at + 1 for at in starts], 0, encode)

    def before(self, at: int) -> int:
        """The place in the file just before the character *at*."""
        return self.starts[at] if at < len(self.text) else self.after(at)

    def after(self, at: int) -> int:
        """The place in the file just after the character before *at*."""
        return self.ends[at - 1] if at else self.origin

    def pieces(self, start: int, end: int) -> list[tuple[int, int]]:
        """The stretches of the file that ``text[start:end]`` comes from, without the quotes between them."""
        found: list[tuple[int, int]] = []
        for at in range(start, end):
            if found and found[-1][1] == self.starts[at]:
                found[-1] = (found[-1][0], self.ends[at])
            else:
                found.append((self.starts[at], self.ends[at]))
        return found

    def replace(self, start: int, end: int, new: str) -> list[Edit]:
        """The edits that put *new* in the place of ``text[start:end]``, quotes around it left alone."""
        if start == end:
            return [Edit(self.after(start), self.after(start), self.encode(new, max(start - 1, 0)))]
        (first, last), *rest = self.pieces(start, end)
        return [Edit(first, last, self.encode(new, start)), *(Edit(*piece, "") for piece in rest)]

    def part(self, start: int, end: int) -> View:
        """View ``text[start:end]`` only, in the same quotes."""

        def encode(new: str, at: int) -> str:
            return self.encode(new, start + at)

        origin = self.before(start)
        return View(self.text[start:end], self.starts[start:end], self.ends[start:end], origin, encode)


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Make all *edits* of *text*; they must not overlap, and equal ones count once."""
    for edit in sorted(set(edits), key=lambda edit: (edit.start, edit.end), reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def line_of(text: str, at: int) -> int:
    """The number of the line, from 1, that the character *at* stands in."""
    return text.count("\n", 0, at) + 1


def new_line_of(text: str) -> str:
    """The line break of a file: CRLF if its first line ends with it."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"
