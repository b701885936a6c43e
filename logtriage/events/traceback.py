"""Lines of one process in, Python tracebacks with their whole chain out: where one begins.

The law: nothing is a traceback because it mentions one.  A header must end its line, a frame must be a
``File`` line, and an exception line counts alone only if it opens its line.

Source: CPython 3.8 to 3.14, ``Lib/traceback.py`` and ``Python/traceback.c``.
"""

from __future__ import annotations

import html

import attrs

from logtriage.events.block import Block
from logtriage.events.collect import HEAD
from logtriage.events.escaped import unescape
from logtriage.events.pasted import Pasted
from logtriage.events.traceback_block import TracebackBlock
from logtriage.events.traceback_text import (
    ANNOUNCES,
    CHAINS,
    FRAME,
    GROUP_MARGIN,
    HEADER,
    IGNORED,
    ORIGIN,
    before_header,
    named_exception,
)
from logtriage.model import Line

__all__ = ["open_block"]


def open_block(line: Line) -> Block | None:
    """Start a traceback on a header, an announcement of one, a stray frame or a bare exception line.

    >>> from logtriage.model import Process
    >>> block = open_block(Line("Scheduler hit an exception: Traceback (most recent call last):", 1, Process()))
    >>> block.offer(Line('  File "a.py", line 3, in f', 2, Process())), block.offer(Line("KeyError: 1", 3, Process()))
    (True, True)
    >>> block.close()[0].message
    'KeyError: 1'
    """
    text = line.text
    if text.rstrip().endswith(HEADER):
        return _headed(line)
    if HEADER in text:
        return _unescaped(line) or _bare_exception(line)
    if text.startswith(IGNORED):  # the object that follows may be of any length
        return TracebackBlock(line, text[:HEAD].strip(), expect="header")
    if text.startswith(ORIGIN):
        return TracebackBlock(line, expect="origin")
    announced = ANNOUNCES.match(text) if len(text) < 500 else None
    if announced:
        return TracebackBlock(line, announced["text"].strip(), expect="header")
    if text.strip().startswith(tuple(CHAINS)):
        return TracebackBlock(line, torn=True, expect="header")
    if "File " in text[:80]:
        return _torn(line)
    return _bare_exception(line)


def _torn(line: Line) -> Block | None:
    """A frame whose header was cut off; it may stand in a group."""
    text = Pasted().mend(line.text)
    margin = GROUP_MARGIN.match(text)
    grouped = margin is not None and text[margin.end() : margin.end() + 2] == "  "
    if margin and grouped:
        text = text[margin.end() :]
    if not FRAME.match(text[:HEAD]) or not ("in " in text or text.startswith("  File")):
        return _bare_exception(line)
    block = TracebackBlock(line, torn=", in " in text, grouped=grouped)
    return block if block.take(line) else None


def _headed(line: Line) -> Block | None:
    """A header ends the line: what stands before it says who writes, is a margin, or quotes it."""
    entities = line.text.startswith("&gt;")
    found = before_header(html.unescape(line.text) if entities else line.text)
    if found is None:
        return None
    before, margin, grouped = found
    named = named_exception(before) if before and not grouped else None
    block = TracebackBlock(line, "" if named else before, grouped=grouped, margin=margin, torn=named is not None)
    block.pasted.entities = entities
    if named:  # the message of an exception is a traceback
        block.chain.name(named["type"], named["message"] or "")
        block.chain.enter("quote")
    return block


def _bare_exception(line: Line) -> Block | None:
    """``Type: text`` without a traceback, where it opens its line and its type is named like an exception."""
    match = named_exception(line.text)
    if match is None or (line.prefixed and line.level not in ("", "ERROR", "CRITICAL")):
        return None
    alone = match["message"] is None and ":" not in line.text
    if alone and match["type"] not in ("AssertionError", "NotImplementedError"):
        return None
    block = TracebackBlock(line, torn=True, expect="message")
    block.bare = True
    block.chain.name(match["type"], match["message"] or "")
    return block


def _unescaped(line: Line) -> Block | None:
    """A traceback in one line, its line breaks escaped."""
    if line.process.label.startswith("?"):
        return None
    block: Block | None = None
    for text in unescape(line.text):
        one = attrs.evolve(line, text=text, prefixed=False)
        if block is None:
            block = open_block(one)
            if block is None:
                return None
        elif not block.offer(one):
            break
    if isinstance(block, TracebackBlock):
        block.seal()
    return block
