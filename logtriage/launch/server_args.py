"""A line with the engine's ``server_args=`` record goes in; a dictionary of its values comes out.

The line is printed by the process under suspicion and may be cut anywhere.
Nothing in it is evaluated: names, numbers and strings are read by a small
grammar of their own, everything else stays the text it was.
"""

from __future__ import annotations

import ast
from typing import Final

import regex

__all__ = ["parse_server_args"]

# The longest genuine record seen is 25 kB (0.5.23); a megabyte leaves room for inlined JSON arguments.
_MAX_LENGTH: Final = 1_000_000
_MAX_DEPTH: Final = 40
# int() refuses more than 4300 digits; no argument of a server has a hundred.
_MAX_DIGITS: Final = 100

_START: Final = regex.compile(r"\bserver_args=(?:ServerArgs\(|\{)")
_BLANK: Final = regex.compile(r"\s*+")
_KEYWORD: Final = regex.compile(r"([A-Za-z_]\w*+)=")
_STRING: Final = regex.compile(r"[bB]?(?:'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\")", regex.DOTALL)
_NUMBER: Final = regex.compile(r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?")
_CONSTANTS: Final[dict[str, object]] = {"None": None, "True": True, "False": False}
_CONSTANT: Final = regex.compile(r"(?:None|True|False)\b")
_CLOSING: Final = {"(": ")", "[": "]", "{": "}", "<": ">"}
_MISSING: Final = object()


class _TornError(Exception):
    """The text ends, or stops making sense, before the value does."""


def parse_server_args(text: str) -> dict[str, object] | None:
    """Read the argument record of an SGLang server from one line of its log.

    Args:
        text: The line, prefixes allowed.

    Returns:
        Argument names and values, in the order of the line; ``None`` if the
        line holds no record.  Values that are not plain literals (an enum
        member, a path object) are their printed text.  Of a line that was cut
        off, what could be read whole: a number at the cut is left out, since
        more digits may have followed.

    Source:
        SGLang: ``ServerArgs(…)``, the ``repr`` of a dataclass, up to 0.5.18;
        the ``repr`` of a dictionary from 0.5.19.

    >>> parse_server_args("[08:00:00] server_args=ServerArgs(tp_size=8, quantization=None, host='127.0")
    {'tp_size': 8, 'quantization': None}
    """
    start = _START.search(text, 0, _MAX_LENGTH)
    if start is None:
        return None
    record: dict[str, object] = {}
    reader = _Reader(text[start.end() : start.end() + _MAX_LENGTH])
    try:
        if text[start.end() - 1] == "(":
            reader.keywords(record)
        else:
            reader.entries(record)
    except (_TornError, ValueError, RecursionError, MemoryError):
        # What was read before the fault is still evidence.
        pass
    return {name: value for name, value in record.items() if isinstance(name, str)}


class _Reader:
    """A cursor over the text after the opening bracket; each method reads one thing and moves on."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._open_quote = False

    def keywords(self, record: dict[str, object]) -> None:
        """Read ``name=value, …)`` into *record*."""
        while not self._take(")"):
            name = _KEYWORD.match(self._text, self._at)
            if name is None:
                raise _TornError
            self._at = name.end()
            record[name[1]] = self._value(0)
            self._take(",")

    def entries(self, record: dict[str, object]) -> None:
        """Read ``'name': value, …}`` into *record*."""
        while not self._take("}"):
            name = self._value(0, ",:)]}")
            if not self._take(":"):
                raise _TornError
            self._entry(record, name, 0)

    def _entry(self, record: dict[str, object], name: object, depth: int) -> None:
        """Read the value that belongs to *name*, and the comma after it."""
        record[name if isinstance(name, str) else repr(name)] = self._value(depth)
        self._take(",")

    def _take(self, character: str) -> bool:
        """Skip blanks, then *character* if it comes next; say whether it did."""
        blank = _BLANK.match(self._text, self._at)
        self._at = blank.end() if blank else self._at
        if self._at >= len(self._text):
            raise _TornError
        if self._text[self._at] != character:
            return False
        self._at += 1
        self._at = match.end() if (match := _BLANK.match(self._text, self._at)) else self._at
        return True

    def _value(self, depth: int, stops: str = ",)]}") -> object:
        """Read a value; what is no literal is taken as its text, up to one of *stops*."""
        if depth > _MAX_DEPTH:
            raise _TornError
        literal = self._scalar()
        if literal is not _MISSING:
            return literal
        if self._text.startswith("{", self._at):
            return self._braces(depth + 1)
        for opening, closing in (("[", "]"), ("(", ")")):
            if self._text.startswith(opening, self._at):
                self._at += 1
                items = self._items(closing, depth + 1)
                return items if opening == "[" else tuple(items)
        return self._verbatim(stops)

    def _scalar(self) -> object:
        """Read a string, number or constant that ends where a value can end, or nothing."""
        for pattern in (_STRING, _CONSTANT, _NUMBER):
            found = pattern.match(self._text, self._at)
            if found is None:
                continue
            rest = _BLANK.match(self._text, found.end())
            end = rest.end() if rest else found.end()
            if end == len(self._text) and pattern is _NUMBER:
                raise _TornError
            if end < len(self._text) and self._text[end] not in ",:)]}":
                return _MISSING
            value = _literal(found[0])
            self._at = found.end()
            return value
        return _MISSING

    def _braces(self, depth: int) -> object:
        """Read a dictionary, or a set as the list of its items in the order printed."""
        self._at += 1
        if self._take("}"):
            return {}
        first = self._value(depth, ",:)]}")
        if not self._take(":"):
            self._take(",")
            return [first, *self._items("}", depth)]
        record: dict[str, object] = {}
        self._entry(record, first, depth)
        while not self._take("}"):
            name = self._value(depth, ",:)]}")
            if not self._take(":"):
                raise _TornError
            self._entry(record, name, depth)
        return record

    def _items(self, closing: str, depth: int) -> list[object]:
        items: list[object] = []
        while not self._take(closing):
            items.append(self._value(depth))
            self._take(",")
        return items

    def _verbatim(self, stops: str) -> str:
        """Take text up to one of *stops*, but for those inside brackets and quotes."""
        start, expected = self._at, list[str]()
        while self._at < len(self._text):
            character = self._text[self._at]
            if character in "'\"" and self._skip_string():
                continue
            if expected and character == expected[-1]:
                expected.pop()
            elif character in _CLOSING:
                expected.append(_CLOSING[character])
            elif not expected and character in stops:
                if self._at == start:
                    raise _TornError
                return self._text[start : self._at].strip()
            self._at += 1
        raise _TornError

    def _skip_string(self) -> bool:
        """Move behind the string that starts here; an open one is looked for once, not at every quote."""
        string = None if self._open_quote else _STRING.match(self._text, self._at)
        self._open_quote = string is None
        self._at = string.end() if string else self._at
        return string is not None


def _literal(token: str) -> object:
    """Convert one token of the grammar above."""
    if token in _CONSTANTS:
        return _CONSTANTS[token]
    if token[0] not in "bB'\"" and len(token) > _MAX_DIGITS:
        return token
    try:
        # A token is one string or one number, so there is nothing to nest or to run.
        value: object = ast.literal_eval(token)
    except (SyntaxError, ValueError):
        # A zero-padded number, a NUL, or an escape that names no character.
        return token.strip("'\"")
    if isinstance(value, bytes):
        return value.decode("latin-1")
    # An escape may name half a surrogate pair, which no output could encode.
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
