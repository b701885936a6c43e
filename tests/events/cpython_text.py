"""Exceptions as values in, the text that CPython prints of them out; and CPython's text in, its normal form out.

The law that is tested with both: a printed traceback, read and printed again, is itself.

Not part of a value, hence taken out of a text by :func:`normal` and never printed by :func:`printed`:

- caret lines, and all but the first line of a statement that stands on several (3.13 prints some of them);
- ``[Previous line repeated N more times]`` and ``...<N lines>...``;
- the colon behind a class whose message is empty or begins with an empty line (notes stand below without one);
- blanks around a line of source and at the end of every line, blank lines at the end of a message;
- announcements (``Exception in thread …:``, a logger's own words), what stands between them and the traceback
  (``future: <…>``, the calls that made it), and the stack of a logging call that failed;
- the tree of an exception group: its parts are a list, each before its group, and say nothing of those left out.

Source: CPython 3.8 to 3.14, ``Lib/traceback.py`` and ``Python/pythonrun.c``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from logtriage.model import ExceptionLink

__all__ = ["HEADER", "SENTENCES", "normal", "parts_of", "printed", "printed_alone"]

HEADER: Final = "Traceback (most recent call last):"
SENTENCES: Final = {
    "cause": "The above exception was the direct cause of the following exception:",
    "context": "During handling of the above exception, another exception occurred:",
}
_FRAME: Final = re.compile(r'  File "[^"]*", line \d+')
_ANNOUNCES: Final = re.compile(
    r"Exception in thread |Process \S+:$|(?:Task|Future) exception was never|Exception in callback |Exception ignored "
    r"|Error in (?:sys|atexit)\.\w+:$|Original exception was:|--- Logging error ---|future: <|handle: <"
    r"|Scheduler hit an exception:$|server failed$"
)
_SILENT: Final = re.compile(r"^([\w.<>]+):$")
_RULE: Final = re.compile(r"( *)\+(-\+)?-{3,}(?: (?:\d+|\.\.\.) -{3,})?$")
_MARGIN: Final = re.compile(r"( +)[|+] ?")
_LEFT_OUT: Final = re.compile(r"and \d+ more exceptions?$|\.\.\. \(max_group_depth is \d+\)$")


def printed_alone(link: ExceptionLink) -> str:
    """One exception: header, frames, class and message."""
    lines = [HEADER] if any(frame.function for frame in link.frames) else []
    for frame in link.frames:
        function = f", in {frame.function}" if frame.function else ""
        lines.append(f'  File "{frame.filename}", line {frame.lineno}{function}')
        if frame.line:
            lines.append(f"    {frame.line}")
    first, *rest = link.message.split("\n")
    lines += [f"{link.type}: {first}" if first else link.type, *rest]
    return "\n".join(line.rstrip() for line in lines)


def printed(chain: Sequence[ExceptionLink]) -> str:
    """A chain, with the sentences between its exceptions; one without a group."""
    text, quoted = "", False
    for link in chain:
        own = printed_alone(link)
        if quoted and link.type.endswith("RemoteTraceback"):
            text = f'{own}\n"""\n{text}\n"""'
        elif quoted:
            text = f"{own}\n{text}" if link.message else f"{own}: {text}"
        else:
            text += own
        quoted = link.relation == "remote"
        if link.relation in SENTENCES:
            text += f"\n\n{SENTENCES[link.relation]}\n\n"
    return text


def normal(text: str) -> str:
    """The text without what is no part of a value."""
    out: list[str] = []
    place = "exception"
    for line in (each.rstrip() for each in text.split("\n")):
        if line == "Call stack:" or place == "call":
            place = "message" if line.startswith("Arguments: ") else "call"
            continue
        if line.startswith("source_traceback: ") or (place == "origin" and line != HEADER):
            place = "origin"
            continue
        if line.endswith(HEADER) or _FRAME.match(line):
            place = "frame"
        elif place in ("frame", "source"):
            if line.startswith(("    ", "  [Previous line repeated")):
                if place == "frame" and line.strip(" ~^"):
                    out.append(f"    {line.strip()}")
                place = "source"
                continue
            place = "exception"
        elif _ANNOUNCES.match(line):
            place = "exception"
            continue
        if place == "exception" and line:
            line, place = _SILENT.sub(r"\1", line), "message"
        if line in SENTENCES.values():
            place = "exception"
            out[:] = [*_trimmed(out), ""]
        elif line == HEADER:
            out[:] = _trimmed(out)
            out += [""] * (out[-1:] != [] and out[-1] in SENTENCES.values())
        out.append(line)
    return "\n".join(out).rstrip()


def _trimmed(lines: list[str]) -> list[str]:
    """Without blank lines at the end: they stand below a message or around a sentence."""
    while lines and not lines[-1]:
        lines.pop()
    return lines


def parts_of(text: str) -> list[str]:
    """The exceptions of a text that may hold groups, each in normal form, each after all that led to it."""
    done: list[str] = []
    open_ones: list[tuple[int, list[str]]] = [(0, [])]

    def end_down_to(column: int) -> None:
        while open_ones and open_ones[-1][0] > column:
            _end(open_ones.pop()[1], done)

    for line in text.split("\n"):
        if rule := _RULE.match(line):
            column = len(rule[1]) + 2 * bool(rule[2])
            if not rule[2]:
                end_down_to(column - 1)
            if line.rstrip("-")[-1:] != "+" or rule[2]:
                open_ones.append((column, []))
            continue
        margin = _MARGIN.match(line)
        column = len(margin[1]) if margin else 0
        # The outermost group alone has a plus sign before its header.
        end_down_to(-1 if line.startswith("  + Exception Group ") else column)
        if not open_ones or open_ones[-1][0] < column:
            open_ones.append((column, []))
        content = line[margin.end() :] if margin else line
        if content in SENTENCES.values():
            _end(open_ones.pop()[1], done)
            open_ones.append((column, []))
        elif not _LEFT_OUT.match(content):
            open_ones[-1][1].append(content.replace("Exception Group " + HEADER, HEADER))
    end_down_to(-1)
    return done


def _end(lines: list[str], done: list[str]) -> None:
    text = normal("\n".join(lines)).strip("\n")
    if text:
        done.append(text)
