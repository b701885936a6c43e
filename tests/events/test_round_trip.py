"""The law of tracebacks: what CPython prints, read and printed again, is what CPython printed.

What is no part of a value, and hence is taken out first, is listed in :mod:`tests.events.cpython_text`.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logtriage.events.traceback import open_block
from logtriage.model import Event, ExceptionLink, Line, Traceback
from tests.events.cpython_runs import FIXTURES, INTERPRETERS, RECORDED, programs_of, run_program
from tests.events.cpython_text import HEADER, SENTENCES, normal, parts_of, printed, printed_alone
from tests.events.feeding import events_of, lines_of

PREFIX = "[2026-12-01 10:00:00 TP0] "


def plain(text: str) -> list[Line]:
    """The lines as they reach the parser; a log's prefix is taken off by the stage before."""
    return [
        attrs.evolve(line, text=line.text.removeprefix(PREFIX), prefixed=line.text.startswith(PREFIX))
        for line in lines_of(text)
    ]


def chains_of(events: Sequence[Event]) -> list[Sequence[ExceptionLink]]:
    return [event.chain for event in events if isinstance(event, Traceback)]


def check(text: str) -> None:
    """Hold the law for the whole text."""
    chains = chains_of(events_of(open_block, plain(text)))
    if "Exception Group" in text:
        assert [printed_alone(link) for chain in chains for link in chain] == parts_of(text)
    else:
        assert "\n".join(map(printed, chains)) == normal(text.replace(PREFIX, ""))


@pytest.mark.parametrize("name", RECORDED)
def test_what_was_recorded_is_read_and_printed_again(name: str) -> None:
    check((FIXTURES / f"{name}.txt").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("version", "program"), [(version, program) for version in INTERPRETERS for program in programs_of(version)]
)
def test_what_an_interpreter_of_this_machine_prints_is_read_and_printed_again(version: str, program: str) -> None:
    check(run_program(version, program)[0])


def test_the_normal_form_takes_out_what_is_no_part_of_a_value_and_nothing_else() -> None:
    text = f"""\
Exception in thread forward:
{HEADER}
  File "/a.py", line 3, in f
    call(x,
    ~~~~^^^
    ...<3 lines>...
         y)
         ^^
  File "/a.py", line 3, in g
    g()
    ~^^
  [Previous line repeated 9 more times]
ValueError: one\x20\x20

    ^^^ two



{SENTENCES["context"]}

{HEADER}
  File "<string>", line 1, in <module>
KeyError: 1

"""
    assert normal(text) == f"""\
{HEADER}
  File "/a.py", line 3, in f
    call(x,
  File "/a.py", line 3, in g
    g()
ValueError: one

    ^^^ two

{SENTENCES["context"]}

{HEADER}
  File "<string>", line 1, in <module>
KeyError: 1"""


# --- exceptions that were never thought of ---------------------------------------------------------------------------


class Outer:
    """Holds an exception."""

    class InnerError(Exception):
        """An exception whose class is nested."""


class SilentError(Exception):
    """An exception that cannot be printed."""

    def __str__(self) -> str:
        raise ValueError


CLASSES: list[Callable[[str], BaseException]] = [
    ValueError,
    RuntimeError,
    AssertionError,
    KeyboardInterrupt,
    SystemError,
    ConnectionResetError,
    KeyError,  # prints the repr of its message
    Outer.InnerError,
    SilentError,
    lambda text: FileNotFoundError(2, text, "/srv/model"),
    lambda text: SyntaxError(text.split("\n")[0].strip() or "bad", ("/srv/model.py", 3, 5, "def f(:\n", 3, 6)),
    lambda text: ModuleNotFoundError(text, name="x"),
]
# A paragraph below a blank line that begins like a line of a log is not taken for one of the message, so the pieces
# are words, and punctuation that no log begins a line with.
PIECES = [
    *("the", "rank", "größe", "of 8", "λ", "cannot be", "x.y", "it's", "a-b", ",", "."),
    *(" ", "  ", "\n", "\n\n", "\n    "),
]
WORDS = st.lists(st.sampled_from(PIECES), max_size=16).map("".join)
MESSAGES = st.one_of(st.just(""), WORDS, st.lists(WORDS, min_size=2, max_size=5).map("\n".join))
LINKS = st.tuples(
    st.sampled_from(CLASSES),
    MESSAGES,
    st.integers(0, 6),  # calls between the handler and the fault
    st.sampled_from(["cause", "context", "suppressed"]),
    st.lists(WORDS, max_size=2),  # notes
)


def fault(error: BaseException, depth: int) -> None:
    """Raise an exception, some calls further down."""
    if depth:
        fault(error, depth - 1)
    else:
        raise error


def caught(links: Sequence[tuple[Callable[[str], BaseException], str, int, str, list[str]]]) -> BaseException:
    """Raise exceptions, each while the one before is handled; return the last."""
    made, message, depth, relation, notes = links[-1]
    error = made(message)
    for note in notes if sys.version_info >= (3, 11) else ():
        error.add_note(note)  # type: ignore[attr-defined,unused-ignore]
    before = caught(links[:-1]) if len(links) > 1 else None
    try:
        try:
            if before is not None:
                raise before
        except BaseException as inner:  # noqa: BLE001 - the chain goes on in it
            if relation == "cause":
                error.__cause__ = inner
            elif relation == "suppressed":
                error.__suppress_context__ = True
            fault(error, depth)
        fault(error, depth)
    except BaseException as last:  # noqa: BLE001 - what is printed is the test
        return last
    raise AssertionError


def text_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


@given(st.lists(LINKS, min_size=1, max_size=4))
def test_any_chain_is_read_and_printed_again(links: list[Any]) -> None:
    check(text_of(caught(links)))


if sys.version_info >= (3, 11):

    def group(tree: tuple[str, list[BaseException], int]) -> BaseException:
        """A group that was raised some calls further down."""
        name, parts, depth = tree
        return caught([(lambda text: BaseExceptionGroup(text, parts), name, depth, "context", [])])  # noqa: F821

    TREES = st.recursive(
        st.lists(LINKS, min_size=1, max_size=2).map(caught),
        lambda parts: st.tuples(
            st.text("abc ", min_size=1), st.lists(parts, min_size=1, max_size=17), st.integers(0, 4)
        ).map(group),
        max_leaves=12,
    )

    @settings(max_examples=50)
    @given(TREES)
    def test_any_tree_of_groups_is_read_and_printed_again(error: BaseException) -> None:
        check(text_of(error))
