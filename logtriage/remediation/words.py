"""Words of a command line: what they say, how they are quoted, and how to write in their place."""

from __future__ import annotations

from typing import Final, Literal

import attrs
import regex

from logtriage.errors import PatchError
from logtriage.remediation.source import Edit, View

__all__ = ["Expansion", "Part", "Quoting", "Word", "quote"]

Quoting = Literal["shell", "exec", "exec-verbatim", "environment", "blanks"]

_SAFE_IN_SHELL: Final = regex.compile(r"[\w@%+=:,./{}^-]+", regex.ASCII)


@attrs.frozen
class Expansion:
    """A variable or command substitution inside a word.

    Attributes:
        name: The variable; ``""`` for anything else (``$1``, ``$(…)``).
        start: First character of it in the word.
        end: The character after its last.
        default: Where the text after ``:-`` stands in the word.
        array: It expands to all elements of an array.
    """

    name: str
    start: int
    end: int
    default: tuple[int, int] | None = None
    array: bool = False

    def shifted(self, by: int) -> Expansion:
        """The same expansion in a text that starts elsewhere."""
        default = (self.default[0] + by, self.default[1] + by) if self.default else None
        return attrs.evolve(self, start=self.start + by, end=self.end + by, default=default)


@attrs.frozen(eq=False, repr=False)
class Word:
    """One word.

    Attributes:
        view: The string it was read from.
        start: Where it starts there, quotes included.
        end: Where it ends there.
        quoting: The rules it was read by.
        text: What it says, quotes removed, expansions left as written.
        spans: For each character of the text, where it stands in the view.
        quotes: For each character, ``b`` bare, ``s`` in single or ``d`` in double quotes.
        expansions: The expansions in it.
    """

    view: View
    start: int
    end: int
    quoting: Quoting
    text: str
    spans: tuple[tuple[int, int], ...]
    quotes: str
    expansions: tuple[Expansion, ...] = ()

    @property
    def file_start(self) -> int:
        """Where the word starts in the file."""
        return self.view.before(self.start)

    @property
    def file_end(self) -> int:
        """Where it ends in the file."""
        return self.view.after(self.end)

    def variable(self) -> Expansion | None:
        """The expansion this word consists of, if it is nothing else."""
        expansion = Part.whole(self).variable()
        return expansion if expansion and expansion.name else None

    def inside(self, start: int, end: int) -> View:
        """View ``text[start:end]`` as a string of its own, to read another layer of words from it."""
        places = self.spans[start:end]
        if not places:
            at = self.spans[start - 1][1] if start else self.end
            return View("", (), (), self.view.after(at), lambda new, _at: self._encode(new, start))
        return View(
            self.text[start:end],
            [self.view.before(first) for first, _ in places],
            [self.view.after(last) for _, last in places],
            self.view.before(places[0][0]),
            lambda new, at: self._encode(new, start + at),
        )

    def _encode(self, new: str, at: int) -> str:
        at = min(at, len(self.text) - 1)
        mark = self.quotes[at] if at >= 0 else "b"
        where = self.spans[at][0] if at >= 0 else self.end
        return self.view.encode(quote(new, self.quoting, mark), where)


@attrs.frozen(eq=False, repr=False)
class Part:
    """Some characters of a word, for example the value behind ``--flag=``.

    Attributes:
        word: The word.
        start: First character in ``word.text``.
        end: The character after the last.
    """

    word: Word
    start: int
    end: int

    @classmethod
    def whole(cls, word: Word) -> Part:
        """All of a word."""
        return cls(word, 0, len(word.text))

    @property
    def text(self) -> str:
        """What it says."""
        return self.word.text[self.start : self.end]

    @property
    def expansions(self) -> tuple[Expansion, ...]:
        """The expansions that stand in it."""
        return tuple(e for e in self.word.expansions if e.start < self.end and e.end > self.start)

    def variable(self) -> Expansion | None:
        """The expansion it consists of, if it is nothing else."""
        inner = self.expansions
        if len(inner) == 1 and (inner[0].start, inner[0].end) == (self.start, self.end):
            return inner[0]
        return None

    def inside(self) -> View:
        """View it as a string of its own."""
        return self.word.inside(self.start, self.end)

    def replace(self, new: str) -> list[Edit]:
        """Write *new* in its place, in the quotes it stands in if these go all around it."""
        word = self.word
        start, end, mark = self._place()
        text = quote(new, word.quoting, mark)
        # systemd.service(5) lets quotes go around whole words only.
        opens_late = text.startswith('"') and word.quoting != "shell" and mark == "b" and self.start > 0
        if opens_late or self._straddles():
            rest = [e for e in word.expansions if e not in self.expansions]
            if not rest:
                start, end = word.start, word.end
                text = quote(word.text[: self.start] + new + word.text[self.end :], word.quoting)
        return word.view.replace(start, end, text)

    def _straddles(self) -> bool:
        """Whether it starts within quotes that end inside it."""
        marks = set(self.word.quotes[self.start : self.end])
        return len(marks) > 1 and self.start > 0 and self.word.quotes[self.start - 1] != "b"

    def _place(self) -> tuple[int, int, str]:
        """Where it stands in the view of its word, and in which quotes."""
        word = self.word
        marks = set(word.quotes[self.start : self.end])
        if len(marks) == 1:
            return word.spans[self.start][0], word.spans[self.end - 1][1], marks.pop()
        start = word.spans[self.start - 1][1] if self.start else word.start
        end = word.spans[self.end][0] if self.end < len(word.text) else word.end
        if not marks and self.start and word.quotes[self.start - 1] != "b" and end - start == 1:
            return start, start, word.quotes[self.start - 1]
        return start, end, "b"


def quote(text: str, quoting: Quoting, mark: str = "b") -> str:
    """Write *text* by the rules of *quoting* so that it is read back unchanged.

    Args:
        text: What it shall say.
        quoting: ``shell``; ``exec``: the command lines of systemd; ``exec-verbatim``: those of them
            that expand no variables; ``environment``: its assignments; ``blanks``: words
            separated by blanks and nothing else.
        mark: ``b`` outside of quotes, ``s`` or ``d`` inside them.

    Raises:
        PatchError: These rules have no way to say *text*.
    """
    if quoting == "shell":
        return _quote_shell(text, mark)
    if quoting == "blanks":
        if not text or any(character.isspace() for character in text):
            raise PatchError("a value with blanks cannot stand in a variable that is split at blanks")
        return text
    text = text.replace("\\", "\\\\").replace("%", "%%")
    if quoting == "exec":
        text = text.replace("$", "$$")
    if mark == "s":
        return text.replace("'", "\\'")
    escaped = text.replace('"', '\\"')
    if mark == "d":
        return escaped
    return escaped if text and not regex.search(r"[\s\"';]", text) else f'"{escaped}"'


def _quote_shell(text: str, mark: str) -> str:
    if mark == "d":
        return regex.sub(r'(["\\$`])', r"\\\1", text)
    escaped = text.replace("'", "'\\''")
    return escaped if mark == "s" or _SAFE_IN_SHELL.fullmatch(text) else f"'{escaped}'"
