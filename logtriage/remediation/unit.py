"""The text of a systemd unit goes in; its settings, and the words of a command line in it, come out.

Source: systemd.syntax(7), systemd.service(5) "COMMAND LINES", and systemd's
``config_parse`` and ``extract_first_word`` as of release 252.
"""

from __future__ import annotations

from typing import Final

import attrs
import regex

from logtriage.remediation.source import View
from logtriage.remediation.words import Expansion, Quoting, Word

__all__ = ["Setting", "UnitError", "read_commands", "read_settings", "read_words"]

_BLANKS: Final = " \t\n\r"
_SECTION: Final = regex.compile(r"\[([^\]\n]*+)\]")
_BRACED: Final = regex.compile(r"\$\{([A-Za-z_]\w*+)\}")
_NAME: Final = regex.compile(r"\$([A-Za-z_]\w*+)")
# "-", "@", ":", "+", "!" and "!!" before the path, in any order; "|" came with release 258.
_PREFIX: Final = regex.compile(r"[-@:+!|]*+")
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}


class UnitError(Exception):
    """A setting cannot be read; ``place`` is where in the file it stops making sense."""

    def __init__(self, reason: str, place: int) -> None:
        super().__init__(reason, place)
        self.reason = reason
        self.place = place


@attrs.frozen(eq=False)
class Setting:
    """One ``key=value`` of a unit.

    Attributes:
        section: The section it stands in.
        key: The key.
        value: The value, continued lines joined by a blank and comments between them left out.
        start: Where its first line starts in the file.
        end: Where the line after its last one starts.
        cut: Where a backslash meant to continue it has a blank after it; ``None`` if nowhere.
    """

    section: str
    key: str
    value: View
    start: int
    end: int
    cut: int | None


def read_settings(view: View) -> list[Setting]:
    """Read the settings of a unit, in order.

    Lines that are no setting are skipped, as systemd does.
    """
    settings: list[Setting] = []
    section, lines = "", _Lines(view)
    while (logical := lines.read()) is not None:
        text = logical.view.text
        if header := _SECTION.match(text.strip()):
            section = header[1]
            continue
        key, equals, value = text.partition("=")
        if equals:
            start = len(key) + 1 + len(value) - len(value.lstrip())
            end = max(start, len(text.rstrip()))
            inner = logical.view.part(start, end)
            settings.append(Setting(section, key.strip(), inner, logical.start, logical.end, logical.cut))
    return settings


@attrs.frozen(eq=False)
class _Logical:
    view: View
    start: int
    end: int
    cut: int | None


class _Lines:
    """Joins continued lines."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._at = 0

    def _next(self) -> tuple[int, int] | None:
        """The next physical line without its break."""
        if self._at >= len(self._view.text):
            return None
        start = self._at
        end = self._view.text.find("\n", start)
        end = end if end >= 0 else len(self._view.text)
        self._at = end + 1
        return start, end

    def read(self) -> _Logical | None:
        """The next logical line that is not a comment; ``None`` at the end."""
        pieces: list[tuple[int, int]] = []
        start = self._at
        while (line := self._next()) is not None:
            text = self._view.text[line[0] : line[1]]
            if text.lstrip().startswith(("#", ";")):
                if not pieces:
                    start = self._at
                continue
            if _continues(text):
                pieces.append((line[0], line[1] - 1))
                continue
            pieces.append(line)
            break
        if not pieces:
            return None
        end = min(self._at, len(self._view.text))
        cut = self._view.text[pieces[-1][0] : pieces[-1][1]].rstrip(" \t")
        where = self._view.before(pieces[-1][0] + len(cut) - 1) if _continues(cut) else None
        return _Logical(self._join(pieces), self._view.before(start), self._view.before(end), where)

    def _join(self, pieces: list[tuple[int, int]]) -> View:
        """One view of all *pieces*; what stands between two of them counts as one blank."""
        base, texts = self._view, list[str]()
        starts: list[int] = []
        ends: list[int] = []
        for index, (start, end) in enumerate(pieces):
            if index:
                texts.append(" ")
                starts.append(base.after(pieces[index - 1][1]))
                ends.append(base.before(start))
            texts.append(base.text[start:end])
            starts += base.starts[start:end]
            ends += base.ends[start:end]
        return View("".join(texts), starts, ends, base.before(pieces[0][0]), base.encode)


def _continues(text: str) -> bool:
    """Whether an odd number of backslashes ends the line."""
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def read_commands(value: View) -> list[tuple[Word, ...]]:
    """Read the command lines of an ``ExecStart=``; ``;`` between blanks separates several.

    Raises:
        UnitError: A quote is not closed.
    """
    commands: list[tuple[Word, ...]] = []
    at = 0
    while at < len(value.text):
        prefix = _PREFIX.match(value.text, at)
        start = prefix.end() if prefix else at
        verbatim = prefix is not None and ":" in prefix[0]
        words = read_words(value, "exec-verbatim" if verbatim else "exec", start)
        stop = next((i for i, word in enumerate(words) if _separates(word)), len(words))
        if words[:stop]:
            commands.append(tuple(words[:stop]))
        if stop == len(words):
            break
        at = words[stop].end
        at += len(value.text[at:]) - len(value.text[at:].lstrip(_BLANKS))
    return commands


def _separates(word: Word) -> bool:
    return word.view.text[word.start : word.end] == ";"


def read_words(value: View, quoting: Quoting, at: int = 0) -> list[Word]:
    """Read words by the rules of systemd.

    Args:
        value: The value of a setting.
        quoting: ``exec``, ``exec-verbatim`` or ``environment``.
        at: Where to start.

    Raises:
        UnitError: A quote is not closed.
    """
    words: list[Word] = []
    while True:
        while at < len(value.text) and value.text[at] in _BLANKS:
            at += 1
        if at >= len(value.text):
            return words
        words.append(_WordReader(value, quoting, at).read())
        at = words[-1].end


class _WordReader:
    """Reads one word."""

    def __init__(self, view: View, quoting: Quoting, at: int) -> None:
        self._view = view
        self._text = view.text
        self._quoting = quoting
        self._start = self._at = at
        self._characters: list[str] = []
        self._spans: list[tuple[int, int]] = []
        self._marks: list[str] = []
        self._expansions: list[Expansion] = []
        self._literal_dollar = False

    def read(self) -> Word:
        """Read up to the blank that ends the word."""
        mark, opening = "b", self._at
        while self._at < len(self._text):
            character = self._text[self._at]
            if mark == "b" and character in _BLANKS:
                break
            if mark == "b" and character in "\"'":
                mark, opening = ("d" if character == '"' else "s"), self._at
                self._at += 1
            elif mark != "b" and character == ('"' if mark == "d" else "'"):
                mark = "b"
                self._at += 1
            else:
                self._character(mark)
        if mark != "b":
            raise UnitError("the quote that opens here is not closed", self._view.before(opening))
        return self._word()

    def _word(self) -> Word:
        text = "".join(self._characters)
        whole = _NAME.fullmatch(text)
        if whole and not self._literal_dollar and self._quoting == "exec":
            self._expansions.append(Expansion(whole[1], 0, len(text)))
        spans, marks = tuple(self._spans), "".join(self._marks)
        expansions = tuple(self._expansions)
        return Word(self._view, self._start, self._at, self._quoting, text, spans, marks, expansions)

    def _character(self, mark: str) -> None:
        text, at = self._text, self._at
        following = text[at + 1 : at + 2]
        if text[at] == "\\" and following:
            self._take(_ESCAPES.get(following, following), 2, mark)
        elif text[at] == "%" and following == "%":
            self._take("%", 2, mark)
        elif text[at] == "$" and following == "$" and self._quoting == "exec":
            self._literal_dollar = True
            self._take("$", 2, mark)
        elif self._quoting == "exec" and (braced := _BRACED.match(text, at)):
            start = len(self._characters)
            for character in braced[0]:
                self._take(character, 1, mark)
            self._expansions.append(Expansion(braced[1], start, len(self._characters)))
        else:
            self._take(text[at], 1, mark)

    def _take(self, character: str, length: int, mark: str) -> None:
        self._characters.append(character)
        self._spans.append((self._at, self._at + length))
        self._marks.append(mark)
        self._at += length
