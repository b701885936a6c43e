"""Cost without a clock: the steps of a backtracking search, and the lines of Python that a call executes.

Both are counts: the same on every machine, however busy it is.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

__all__ = ["executed_lines", "search_steps"]

_PARSER: Final[Any] = getattr(re, "_parser", None) or importlib.import_module("sre_parse")
_CATEGORIES: Final[dict[str, Callable[[str], bool]]] = {
    "CATEGORY_DIGIT": str.isdecimal,
    "CATEGORY_NOT_DIGIT": lambda c: not c.isdecimal(),
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_NOT_SPACE": lambda c: not c.isspace(),
    "CATEGORY_WORD": lambda c: c.isalnum() or c == "_",
    "CATEGORY_NOT_WORD": lambda c: not (c.isalnum() or c == "_"),
}


class _Search:
    """A backtracking search as CPython's engine does it, without any of its short cuts; counts what it tries."""

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self.steps = 0
        self._folds = bool(pattern.flags & re.IGNORECASE)
        self._text = text.lower() if self._folds else text
        self._tree = list(_PARSER.parse(pattern.pattern, pattern.flags & ~re.UNICODE))

    def run(self) -> int:
        at = 0
        while at <= len(self._text):
            end = next(self._sequence(self._tree, 0, at), None)
            at = end if end is not None and end > at else at + 1
        return self.steps

    def _sequence(self, nodes: list[Any], index: int, at: int) -> Iterator[int]:
        if index == len(nodes):
            yield at
            return
        for end in self._node(nodes[index], at):
            yield from self._sequence(nodes, index + 1, end)

    def _node(self, node: Any, at: int) -> Iterator[int]:
        self.steps += 1
        name, given = str(node[0]), node[1]
        if name in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            if at < len(self._text) and self._is_one(name, given, self._text[at]):
                yield at + 1
        elif name == "BRANCH":
            for branch in given[1]:
                yield from self._sequence(list(branch), 0, at)
        elif name == "SUBPATTERN":
            yield from self._sequence(list(given[-1]), 0, at)
        elif name == "ATOMIC_GROUP":
            yield from _first(self._sequence(list(given), 0, at))
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            ends = self._repeated(given, at)
            yield from _first(ends) if name == "POSSESSIVE_REPEAT" else ends
        elif name in ("ASSERT", "ASSERT_NOT"):
            if self._holds(given, at) is (name == "ASSERT"):
                yield at
        elif name == "AT":
            if self._is_at(str(given), at):
                yield at
        else:
            raise NotImplementedError(name)

    def _repeated(self, given: Any, at: int) -> Iterator[int]:
        least, most, inner = int(given[0]), int(given[1]), list(given[2])
        single = str(inner[0][0]) if len(inner) == 1 else ""
        if single in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            count, room = 0, min(most, len(self._text) - at)
            while count < room and self._is_one(single, inner[0][1], self._text[at + count]):
                count += 1
                self.steps += 1
            for kept in range(count, least - 1, -1):
                self.steps += 1
                yield at + kept
            return
        yield from self._again(inner, least, most, at)

    def _again(self, inner: list[Any], least: int, most: int, at: int) -> Iterator[int]:
        if most > 0:
            for end in self._sequence(inner, 0, at):
                if end > at:
                    yield from self._again(inner, max(least - 1, 0), most - 1, end)
        if least <= 0:
            yield at

    def _holds(self, given: Any, at: int) -> bool:
        direction, inner = given
        start = at if direction > 0 else at - int(inner.getwidth()[0])
        return start >= 0 and next(self._sequence(list(inner), 0, start), None) is not None

    def _is_one(self, name: str, given: Any, character: str) -> bool:
        if name == "ANY":
            return character != "\n"
        if name != "IN":
            return (ord(character) == self._code(given)) is (name == "LITERAL")
        negated = str(given[0][0]) == "NEGATE"
        return any(self._is_in(str(kind), value, character) for kind, value in given[negated:]) is not negated

    def _is_in(self, kind: str, value: Any, character: str) -> bool:
        if kind == "LITERAL":
            return ord(character) == self._code(value)
        if kind == "RANGE":
            forms = {character, character.upper()} if self._folds else {character}
            return any(value[0] <= ord(form) <= value[1] for form in forms if len(form) == 1)
        return _CATEGORIES[str(value)](character)

    def _code(self, value: int) -> int:
        folded = chr(value).lower() if self._folds else chr(value)
        return ord(folded) if len(folded) == 1 else value

    def _is_at(self, what: str, at: int) -> bool:
        before, after = self._text[at - 1 : at] if at else "", self._text[at : at + 1]
        if what in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
            return at == 0
        if what in ("AT_END", "AT_END_STRING"):
            return at == len(self._text) or (what == "AT_END" and self._text[at:] == "\n")
        edge = bool(re.fullmatch(r"\w", before)) is not bool(re.fullmatch(r"\w", after))
        return edge is (what == "AT_BOUNDARY")


def _first(ends: Iterator[int]) -> Iterator[int]:
    end = next(ends, None)
    if end is not None:
        yield end


def search_steps(pattern: re.Pattern[str], text: str) -> int:
    """How much a plain backtracking engine tries to find all matches of a pattern.

    Args:
        pattern: Without references to groups, and without multi-line anchors.
        text: The text, at most a few thousand characters.

    Returns:
        Characters and nodes of the pattern that were tried, over all places a match may begin at.
    """
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 20_000))
    try:
        return _Search(pattern, text).run()
    finally:
        sys.setrecursionlimit(limit)


def executed_lines(call: Callable[[], object]) -> int:
    """How many lines of Python a call executes, all that it calls included."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:  # noqa: ARG001  the signature of tracers
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
