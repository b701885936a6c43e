"""Two lines of one process in, the whole line out, if another process cut in on the first.

journald ends a line where another process begins to write into the same stream, and says so only in the entry's
``_LINE_BREAK=pid-change`` (systemd 247 to 257, ``journald-stream.c``); in text the process's next line goes on in
the middle of a word.

Law: no two lines of a message are put together unless another process wrote between them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import regex

from logtriage.demux.grammar import HEADER, Kind, announcement_reach, classify, is_frame, may_name
from logtriage.demux.prefix import Prefix
from logtriage.demux.writers import Source
from logtriage.model import Record

__all__ = ["Waiting", "joined", "may_be_announcement", "was_cut"]

_FARTHEST: Final = 2_000
_STARTS_ANEW: Final = ("Exception ignored ", "terminate called", "/", "Killed", "usage: ", "[", "Fatal Python error")
_NAME_REST: Final = regex.compile(r"[\w<>.]{1,100}\s*$")
_CLASS: Final = regex.compile(r"(?:\w{1,60}\.){0,8}\w{0,80}(?:Error|Exception|Interrupt)(?:: |$)")
_MARKS_REST: Final = regex.compile(r"[~^]+[~^ ]*$")


class Waiting(NamedTuple):
    """The last line of a process, which may go on.

    Attributes:
        source: The stream of the process.
        record: What the collector said of the line, of its beginning if it came in pieces.
        last: What it said of its last piece.
        text: The line.
        prefix: The engine's prefix on it.
        kind: What it is in the grammar of a traceback.
    """

    source: Source
    record: Record
    last: Record
    text: str
    prefix: Prefix | None
    kind: Kind


def was_cut(record: Record) -> bool:
    """Whether the journal says that another process cut in on a line."""
    return ("_LINE_BREAK", "pid-change") in record.fields


def _begins_anew(before: str, text: str, kind: Kind) -> bool:
    """Whether *text* can be no rest of *before*: journald says pid-change also where only the line break was late."""
    if kind in ("frame", "chain", "child") or text.startswith(HEADER):
        return True
    if kind == "exception":
        return may_name(text) and not before.endswith(".")  # of a module
    if not text.strip(" ~^"):
        return bool(before.strip(" ~^"))
    return is_frame(before) and text.startswith("    ")


def may_be_announcement(prefix: Prefix | None) -> bool:
    """Whether a line may be the beginning of ``Scheduler hit an exception: Traceback …``."""
    return prefix is not None and prefix.starts and announcement_reach(prefix.rest) == len(prefix.rest) > 0


def joined(
    first: Record,
    before: str,
    before_prefix: Prefix | None,
    record: Record,
    text: str,
    prefix: Prefix | None,
    kind: Kind,
) -> str | None:
    """The whole line, if *text* is the rest of *before*.

    Args:
        first: The record of the line before.
        before: That line.
        before_prefix: The engine's prefix on it.
        record: The record of the next line of the same process.
        text: That line.
        prefix: The engine's prefix on it.
        kind: What it is in the grammar of a traceback.
    """
    if not text.strip() or not 0 < record.line - first.line <= _FARTHEST:
        return None
    if first.transport == "stdout":  # the journal's own fields tell
        anew = prefix is not None and text[0] in "[("  # and not the rest of a prefix
        return before + text if was_cut(first) and not anew and not _begins_anew(before, text, kind) else None
    if prefix is not None:
        return None
    if before_prefix is not None:
        whole = before_prefix.rest + text
        ends = classify(before_prefix.rest) != "header" and whole.endswith(HEADER)
        return before + text if ends and announcement_reach(before_prefix.rest) else None
    if kind in ("header", "frame", "chain", "native", "child") or text.startswith(_STARTS_ANEW):
        return None
    was = classify(before)
    if before.startswith("  File") or was == "frame":
        goes_on = is_frame(before + text) and (not is_frame(before) or _NAME_REST.match(text) is not None)
        return before + text if goes_on else None
    if was == "source":
        torn = kind == "other" and not may_name(text)
        return before + text if torn or _MARKS_REST.match(text) else None
    if was == "caret":
        return before + text if _MARKS_REST.match(text) else None
    if ":" not in before and ": " in text and _CLASS.match(before + text) and not _CLASS.match(before):
        return before + text  # the name of the exception itself was torn
    # A message may have several lines; but they are written at once, and nobody gets in between.
    interrupted = record.line - first.line > 1
    return before + text if interrupted and was in ("exception", "other") and kind != "exception" else None
