"""The text of a shell script goes in; its simple commands come out, word by word, with their places.

Enough of the POSIX grammar, and of bash arrays, to tell which words reach a
program.  What stands in ``$(…)``, here-documents and functions' callers is
not followed.
"""

from __future__ import annotations

from typing import Final

import attrs
import regex

from logtriage.remediation.source import View
from logtriage.remediation.words import Expansion, Word

__all__ = ["Array", "Command", "Script", "ShellError", "read_script"]

_ENDS_WORD: Final = frozenset(" \t\n;&|<>()")
_REDIRECTION: Final = regex.compile(r"\d*(?:&>>|&>|<<<|<<-|<<|<&|>&|<>|>>|>\||<|>)")
_OPERATOR: Final = regex.compile(r"&&|\|\||\|&|;;&|;;|;&|[;&|()]")
_ASSIGNS_ARRAY: Final = regex.compile(r"([A-Za-z_]\w*+)(\+?)=")
_BRACED: Final = regex.compile(r"([A-Za-z_]\w*+)(\[[@*]\])?+(?::?-(.*))?", regex.DOTALL)
_NAME: Final = regex.compile(r"[A-Za-z_]\w*+")
_CUT: Final = regex.compile(r"\\[ \t]++\n")
_RESERVED: Final = frozenset({"if", "then", "elif", "else", "do", "while", "until", "{", "!", "time"})


class ShellError(Exception):
    """The script cannot be read; ``place`` is where in the file it stops making sense."""

    def __init__(self, reason: str, place: int) -> None:
        super().__init__(reason, place)
        self.reason = reason
        self.place = place


@attrs.frozen(eq=False)
class Command:
    """A simple command.

    Attributes:
        words: Its words, assignments before it included, redirections not.
        leads_line: Nothing but blanks stands before it on its line, and the line begins a command.
        cut: Where a backslash meant to continue it has a blank after it, in the file.
        after: The characters that follow it start here, in the view.
    """

    words: tuple[Word, ...]
    leads_line: bool
    cut: int | None
    after: int


@attrs.frozen(eq=False)
class Array:
    """An assignment ``NAME=( … )`` or ``NAME+=( … )``."""

    name: str
    words: tuple[Word, ...]


@attrs.frozen(eq=False)
class Script:
    """What a script consists of.

    Attributes:
        view: The text it was read from.
        commands: Its simple commands, in order.
        arrays: Its array assignments, in order.
    """

    view: View
    commands: tuple[Command, ...]
    arrays: tuple[Array, ...]


def read_script(view: View) -> Script:
    """Read a script.

    Raises:
        ShellError: A quote, brace or parenthesis is not closed.
    """
    return _ScriptReader(view).read()


class _ScriptReader:
    """Reads commands off a view, one after the other."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._text = view.text
        self._at = 0
        self._words: list[Word] = []
        self._cut: int | None = None
        self._fresh = True
        self._leads = False
        self._joined = False
        self._documents: list[tuple[str, bool]] = []
        self._commands: list[Command] = []
        self._arrays: list[Array] = []

    def read(self) -> Script:
        """Read to the end."""
        while self._at < len(self._text):
            self._step()
        self._end_command()
        return Script(self._view, tuple(self._commands), tuple(self._arrays))

    def _step(self) -> None:
        text, character = self._text, self._text[self._at]
        if character in " \t":
            self._at += 1
        elif text.startswith("\\\n", self._at):
            self._at += 2
        elif character == "#":
            end = text.find("\n", self._at)
            self._at = end if end >= 0 else len(text)
        elif character == "\n":
            self._end_line()
        elif text.startswith("((", self._at) and not self._words:
            end = text.find("))", self._at)
            self._at = end + 2 if end >= 0 else len(text)
        elif redirection := _REDIRECTION.match(text, self._at):
            self._redirect(redirection[0].lstrip("0123456789"), redirection.end())
        elif operator := _OPERATOR.match(text, self._at):
            self._end_command()
            self._fresh, self._joined = False, operator[0] in {"&&", "||", "|", "|&"}
            self._at = operator.end()
        else:
            self._word()

    def _end_line(self) -> None:
        self._end_command()
        self._fresh, self._joined = not self._joined, False
        self._at += 1
        for delimiter, strips in self._documents:
            self._skip_document(delimiter, strips)
        self._documents.clear()

    def _skip_document(self, delimiter: str, strips: bool) -> None:
        while self._at < len(self._text):
            end = self._text.find("\n", self._at)
            end = end if end >= 0 else len(self._text)
            line = self._text[self._at : end]
            self._at = end + 1
            if (line.lstrip("\t") if strips else line) == delimiter:
                return

    def _redirect(self, operator: str, at: int) -> None:
        """Skip a redirection and its target, neither of which the program sees."""
        while at < len(self._text) and (self._text[at] in " \t" or self._text.startswith("\\\n", at)):
            at += 2 if self._text[at] == "\\" else 1
        if self._text.startswith(("<(", ">("), at):
            self._at = _closing(self._view, at + 1)
            return
        if operator in "<>" and self._text.startswith("(", at):
            self._at = _closing(self._view, at)
            return
        target = _WordReader(self._view, at).read()
        self._at = target.end
        if operator in {"<<", "<<-"}:
            self._documents.append((target.text, operator == "<<-"))

    def _word(self) -> None:
        reader = _WordReader(self._view, self._at)
        word = reader.read()
        self._at = max(word.end, self._at + 1)
        array = _ASSIGNS_ARRAY.fullmatch(word.text)
        if array and self._text.startswith("(", word.end):
            self._array(array[1], word.end)
            return
        if reader.cut is not None:
            self._cut = self._view.before(reader.cut)
        if not self._words:
            self._leads = self._fresh
            if word.text in _RESERVED:
                self._fresh = False
                return
        self._words.append(word)
        self._fresh = False

    def _array(self, name: str, at: int) -> None:
        words: list[Word] = []
        position = at + 1
        while position < len(self._text) and self._text[position] != ")":
            if self._text[position] == "#":
                end = self._text.find("\n", position)
                position = end if end >= 0 else len(self._text)
            elif self._text.startswith("\\\n", position):
                position += 2
            elif self._text[position] in _ENDS_WORD:
                position += 1
            else:
                words.append(_WordReader(self._view, position).read())
                position = words[-1].end
        if position >= len(self._text):
            raise ShellError("the list that opens here is not closed", self._view.before(at))
        self._arrays.append(Array(name, tuple(words)))
        self._at = position + 1
        self._fresh = False

    def _end_command(self) -> None:
        if self._words:
            self._commands.append(Command(tuple(self._words), self._leads, self._cut, self._at))
        self._words = []
        self._cut = None


class _WordReader:
    """Reads one word off a view."""

    def __init__(self, view: View, at: int) -> None:
        self._view = view
        self._text = view.text
        self._start = self._at = at
        self._characters: list[str] = []
        self._spans: list[tuple[int, int]] = []
        self._quotes: list[str] = []
        self._expansions: list[Expansion] = []
        self.cut: int | None = None

    def read(self) -> Word:
        """Read up to the blank or operator that ends the word."""
        text = self._text
        while self._at < len(text) and text[self._at] not in _ENDS_WORD:
            character = text[self._at]
            if character == "'":
                self._single()
            elif character == '"':
                self._double()
            elif character == "\\":
                self._escape()
            elif character in "$`":
                self._expand("b")
            else:
                self._take(1, "b")
        return Word(
            self._view,
            self._start,
            self._at,
            "shell",
            "".join(self._characters),
            tuple(self._spans),
            "".join(self._quotes),
            tuple(self._expansions),
        )

    def _take(self, length: int, mark: str) -> None:
        """Take the last of the next *length* characters, which together stand for it."""
        self._characters.append(self._text[self._at + length - 1])
        self._spans.append((self._at, self._at + length))
        self._quotes.append(mark)
        self._at += length

    def _escape(self) -> None:
        if self._text.startswith("\\\n", self._at):
            self._at += 2
            return
        if _CUT.match(self._text, self._at):
            self.cut = self._at
        self._take(2 if self._at + 1 < len(self._text) else 1, "b")

    def _single(self) -> None:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise ShellError("the quote that opens here is not closed", self._view.before(self._at))
        self._at += 1
        while self._at < end:
            self._take(1, "s")
        self._at += 1

    def _double(self) -> None:
        opening, text = self._at, self._text
        self._at += 1
        while self._at < len(text) and text[self._at] != '"':
            following = text[self._at + 1 : self._at + 2]
            if text[self._at] == "\\" and following == "\n":
                self._at += 2
            elif text[self._at] == "\\" and following and following in '$`"\\':
                self._take(2, "d")
            elif text[self._at] in "$`":
                self._expand("d")
            else:
                self._take(1, "d")
        if self._at >= len(text):
            raise ShellError("the quote that opens here is not closed", self._view.before(opening))
        self._at += 1

    def _expand(self, mark: str) -> None:
        """Take an expansion, as written."""
        text, at = self._text, self._at
        following = text[at + 1 : at + 2]
        if text[at] == "`" or following == "(":
            end = _closing(self._view, at if text[at] == "`" else at + 1)
            self._take_expansion(end, mark, "")
        elif following == "{":
            self._braced(_closing(self._view, at + 1), mark)
        elif name := _NAME.match(text, at + 1):
            self._take_expansion(name.end(), mark, name[0])
        elif following and following in "0123456789@*#?!-":
            self._take_expansion(at + 2, mark, "")
        elif following and following in "'\"" and mark == "b":
            self._at += 1  # $'…' and $"…": the quotes that follow say how to read it
        else:
            self._take(1, mark)

    def _braced(self, end: int, mark: str) -> None:
        inner = _BRACED.fullmatch(self._text, self._at + 2, end - 1)
        shift = len(self._characters) - self._at
        if inner is None:
            self._take_expansion(end, mark, "")
            return
        default = (inner.start(3) + shift, inner.end(3) + shift) if inner[3] is not None else None
        self._take_expansion(end, mark, inner[1], default, array=inner[2] is not None)

    def _take_expansion(
        self, end: int, mark: str, name: str, default: tuple[int, int] | None = None, *, array: bool = False
    ) -> None:
        start = len(self._characters)
        while self._at < end:
            self._take(1, mark)
        self._expansions.append(Expansion(name, start, len(self._characters), default, array))


def _closing(view: View, at: int) -> int:
    """Find the end of what opens at *at* with a bracket or backquote."""
    text, opening = view.text, at
    expected: list[str] = []
    while at < len(text):
        character = text[at]
        if character == "\\":
            at += 1
        elif expected and character == expected[-1]:
            expected.pop()
            if not expected:
                return at + 1
        elif expected and expected[-1] in "'`":
            pass
        elif character in "\"'`" and not (character == "'" and expected and expected[-1] == '"'):
            expected.append(character)
        elif character in "({" and not (expected and expected[-1] == '"' and text[at - 1] != "$"):
            expected.append(")" if character == "(" else "}")
        at += 1
    raise ShellError("what opens here is not closed", view.before(opening))
