"""Torn lines of one stream in, whole lines out: where a writer cut in on another one in the middle of a line.

A record larger than the free space of a pipe is written in several pieces, and another process may get in between:
a line ends in the middle, with the other's text glued to it, and goes on later, alone or glued to a third one.

Law: two pieces are put together only if that makes a line that was seen in whole elsewhere, or one that the
grammar of a traceback and the line above it ask for; every other text comes out as it came in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import attrs
import regex

from logtriage.demux.grammar import (
    HEADER,
    Kind,
    announcement_reach,
    called,
    classify,
    function_of,
    is_frame,
    may_name,
    path_of,
)
from logtriage.demux.prefix import Prefix, split_prefix
from logtriage.demux.vocabulary import Evidence

__all__ = ["MAX_CUTS", "Held", "Item", "mend"]

_LONGEST: Final = 2_000
_SHORTEST: Final = 2
MAX_CUTS: Final = 256
"""Torn lines that wait for their rest at a time."""

_PREFIX: Final = regex.compile(
    r"\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:\.\d+)?(?: [A-Z_]{2,7}\d{1,6}){0,6}\] (?=\S)"
)
_TIME_TORN: Final = regex.compile(r"\[\d[\d: .-]{0,24}(?: ?[A-Z_]{1,7}\d{0,6}){0,6}\]?")
_RANK_TORN: Final = regex.compile(r"[\d: .-]{0,24}(?: ?(?:DP|PP|TP|EP)\d{1,6}){1,6}\] \w+ hit an exception: Traceback ")
# A frame, a line of source, or marks begin behind something else.
_INNER: Final = regex.compile(r"""(?<=\S)[ ]*?(?P<at>)(?:  File "|    [^\s~^])|(?<=[^\s,(])(?P<at>)[ ]{4,}[~^]""")
_STRING: Final = regex.compile(r"""'[^'\n]*+'|"[^"\n]*+\"""")
_MARKS: Final = regex.compile(r" {4,}[~^]+")
_NAMED: Final = regex.compile(
    r"(?:[A-Za-z_]\w{0,60}\.){0,8}(?:[A-Z]\w{0,80})?(?:Error|Exception|Interrupt|Exit)(?:: |$)"
)


class Held(NamedTuple):
    """A line that waits to be assigned.

    Attributes:
        text: The line, envelope removed.
        kind: What it is in the grammar of a traceback, below its prefix.
        prefix: What an engine put in front of it, if it did.
        label: Name of the writer that the prefix names, else ``""``.
    """

    text: str
    kind: Kind = "other"
    prefix: Prefix | None = None
    label: str = ""


@attrs.define(eq=False)
class Item:
    """A line, put together if it was torn, or the place where a torn one went on.

    Attributes:
        index: Which of the held lines it stands on.
        held: The line.
        turned: Another writer's piece stands in front of it on the same line.
        torn: It goes on further below.
        lost: It would go on, but its rest was not found.
        resumes: The line that goes on here; this is then no line of its own.
    """

    index: int
    held: Held
    turned: bool = False
    torn: bool = False
    lost: bool = False
    resumes: Item | None = None


def _is_statement(source: str) -> bool:
    """Whether a line of source closes what it opens, or goes on in the next line."""
    plain = _STRING.sub("", source)
    if plain.rstrip().endswith(("(", ",", "[", "{", "\\")):
        return True
    return all(plain.count(opening) == plain.count(closing) for opening, closing in ("()", "[]", "{}"))


class _Cut(NamedTuple):
    """A line that another writer cut in on, and the source line above it."""

    item: Item
    source: str


def mend(held: Sequence[Held], evidence: Evidence, source: str = "") -> list[Item]:
    """Put torn lines together.

    Args:
        held: The lines as they came.
        evidence: What is known of whole lines.
        source: The line of source right above the first line, if there is one.

    Returns:
        The lines in the order of their beginnings, and the places where torn ones went on.
    """
    mending = _Mending(evidence, source)
    for index, each in enumerate(held):
        mending.take(index, each)
    mending.give_up()
    return mending.items


class _Mending:
    """The lines so far, and those that wait for their rest."""

    def __init__(self, evidence: Evidence, source: str) -> None:
        self.items: list[Item] = []
        self._evidence = evidence
        self._cuts: list[_Cut] = []
        self._source = source  # the last line of source, for as long as nobody else wrote
        self._splits: dict[str, list[int]] = {}

    def take(self, index: int, held: Held) -> None:
        """Take the next line."""
        if held.prefix is not None:
            self._take_prefixed(index, held)
            return
        self._take_bare(index, held, turned=False)

    def give_up(self) -> None:
        """Note which torn lines never went on."""
        for cut in self._cuts:
            cut.item.lost = cut.item.torn and cut.item.held.prefix is None
            cut.item.torn = False

    def _take_prefixed(self, index: int, held: Held) -> None:
        """A line that names its writer; the announcement of a traceback may be torn."""
        prefix = held.prefix
        reach = announcement_reach(prefix.rest) if prefix and prefix.starts and held.kind == "other" else 0
        if prefix is None or reach < _SHORTEST:
            self._put(index, held)
            return
        rest = prefix.rest[reach:]
        if rest and not self._fits(rest):
            self._put(index, held)
            return
        self._cut(index, held._replace(text=held.text[: len(held.text) - len(rest)]))
        if rest:
            self._take_bare(index, Held(rest, classify(rest)), turned=True)

    def _take_bare(self, index: int, held: Held, *, turned: bool) -> None:
        text, kind = held.text, held.kind
        if self._is_whole(text, kind) or len(text) > _LONGEST:
            self._put(index, held, turned=turned)
            return
        cut = self._resumed(text, certain=True)
        if cut is not None:
            self._join(index, cut, text)
            return
        at = self._seam(text)
        if at:
            piece = text[:at]
            if not (_TIME_TORN.fullmatch(piece) and piece[0] == "["):  # else it does not say yet whose it is
                self._cut_off(index, piece, turned=turned)
            rest = text[at:]
            prefix = split_prefix(rest)
            if prefix is not None:
                label = prefix.process.label or "main"
                self._put(index, Held(rest, classify(prefix.rest), prefix, label), turned=True)
            else:
                self._take_bare(index, Held(rest, classify(rest)), turned=True)
            return
        cut = self._resumed(text, certain=False)
        if cut is not None:
            self._join(index, cut, text)
            return
        source = self._source
        self._put(index, held, turned=turned)
        if self._evidence.begins(text):  # its end may stand on a line of its own
            self._cuts.append(_Cut(self.items[-1], source))

    # --- what there is to decide ----------------------------------------------------------------

    def _is_whole(self, text: str, kind: Kind) -> bool:
        """Whether a line is certainly neither a piece nor two of them."""
        if text in self._evidence.whole or kind in ("blank", "native", "child", "chain", "margin"):
            return True
        if kind == "header":
            return text.startswith(HEADER)
        if kind == "caret":
            return text[:4] == "    " and " " not in text.strip()
        return kind == "frame" and is_frame(text)

    def _makes_whole(self, cut: _Cut, rest: str) -> bool:
        """Whether a torn line and *rest* make one that was seen in whole, or that its writer had to print."""
        whole = cut.item.held.text + rest
        if cut.item.held.prefix is not None:
            return announcement_reach(cut.item.held.prefix.rest + rest) > 0 and whole.endswith(HEADER)
        if whole in self._evidence.whole:
            return True
        if _MARKS.fullmatch(whole):
            return True
        if is_frame(whole):
            return function_of(whole) in called(cut.source) or (
                path_of(whole) in self._evidence.paths and function_of(whole) in self._evidence.functions
            )
        return False

    def _may_make(self, cut: _Cut, rest: str) -> bool:
        """Whether *rest* may well be that of a torn line that nobody else printed."""
        piece = cut.item.held.text
        whole = piece + rest
        if not cut.item.torn:
            return False
        if piece[:2] == "  " and piece.lstrip()[:1] in "^~":
            return not rest.strip(" ~^")
        if self._evidence.begins(piece) and called(whole).isdisjoint(self._evidence.functions - called(piece)):
            return False  # it would have been seen in whole
        if piece.startswith("  File"):
            return is_frame(whole)
        if piece[:4] == "    ":
            return _is_statement(whole) and (self._evidence.calls_known(whole) or not may_name(rest))
        return cut.item.held.prefix is None

    def _resumed(self, text: str, *, certain: bool) -> _Cut | None:
        """The torn line that goes on in *text*."""
        if certain:
            return next((cut for cut in self._cuts if self._makes_whole(cut, text)), None)
        if classify(text) not in ("other", "caret", "exception"):
            return None
        if classify(text) == "exception" and _NAMED.match(text):
            return None
        fitting = [cut for cut in self._cuts if self._may_make(cut, text)]
        likely = [cut for cut in fitting if self._evidence.is_familiar(cut.item.held.text + text)]
        return next(iter(likely or fitting), None)

    def _fits(self, text: str) -> bool:
        """Whether *text*, the end of a line, is a line of its own or the rest of a torn one."""
        if text in self._evidence.whole or is_frame(text) or _PREFIX.match(text):
            return True
        return self._resumed(text, certain=True) is not None

    def _seam(self, text: str) -> int:
        """Where another writer's text begins in a line; 0 if nowhere."""
        known = self._splits.get(text)
        if known is None:
            known = self._splits[text] = self._seams_of_lines(text)
        found = known[:1] if known else []
        for cut in self._cuts:
            piece = cut.item.held.text
            if _MARKS.fullmatch(piece):
                at = len(text.rstrip("^~"))
                found += [at] if 0 < at < len(text) and text[at - 1] not in " ^~" else []
                continue
            for at in range(len(text) - 1, 0, -1):
                if text[:at].strip() and self._makes_whole(cut, text[at:]):
                    begun = self._evidence.begins(text[:at]) or self._is_begun(text[:at])
                    if begun or len(text) - at > len(piece) // 4:
                        found.append(at)
                        break
        # The longest beginning that a known line begins with, else the longest rest.
        reach = self._evidence.reach(text)
        within = [at for at in found if at <= reach]
        return max(within) if within else min(found, default=0)

    def _is_in_path(self, piece: str) -> bool:
        """Whether *piece* is the beginning of a frame line of a known file."""
        return piece.startswith('  File "') and any(path.startswith(piece[8:]) for path in self._evidence.paths)

    @staticmethod
    def _is_begun(piece: str) -> bool:
        """Whether *piece* has the form of the beginning of a line of a traceback."""
        return piece.startswith(("  File", "    ")) or _NAMED.match(piece) is not None

    def _seams_of_lines(self, text: str) -> list[int]:
        """Where, by the text alone, a second line begins in it, the best place first."""
        begun = len(text) - len(text.lstrip()) + 1
        found = []
        for at in range(begun, len(text) - _SHORTEST):
            rest = text[at:]
            if rest in self._evidence.whole:
                found.append(at)
                break
            if (rest[0] == "[" and _PREFIX.match(rest)) or (rest[0] in " 0123456789" and _RANK_TORN.match(rest)):
                found.append(at)
                break
        inner = _INNER.search(text, max(begun - 1, 0))
        if inner and (not found or inner.start("at") < found[0]):
            found = [inner.start("at")]
        reach = self._evidence.reach(text)
        if not found and text.startswith('  File "') and not is_frame(text) and 8 < reach < len(text) - 1:
            found.append(reach)  # so far it is a frame of a known file
        if not found and classify(text) not in ("exception",):
            for match in _NAMED.finditer(text, begun, overlapped=True):
                if match.start() == reach or not (text[match.start() - 1].isalnum() or text[match.start() - 1] == "."):
                    found.append(match.start())
                    break
        return found

    def _cut_off(self, index: int, piece: str, *, turned: bool) -> None:
        """The beginning of a line, or of two that were cut off one behind the other, or more of a torn one."""
        inner = _INNER.search(piece)
        if inner and not self._evidence.begins(piece):
            self._cut_off(index, piece[: inner.start("at")], turned=turned)
            self._cut(index, self._piece(piece[inner.start("at") :]), turned=True)
            return
        if not self._is_begun(piece) and not self._evidence.begins(piece):
            longer = [cut for cut in self._cuts if self._evidence.begins(cut.item.held.text + piece)]
            longer = longer or [cut for cut in self._cuts if self._is_in_path(cut.item.held.text + piece)]
            if longer:
                item = longer[0].item
                item.held = item.held._replace(text=item.held.text + piece)
                self.items.append(Item(index, Held("", "blank"), resumes=item, torn=True))
                return
        self._cut(index, self._piece(piece), turned=turned)

    # --- what comes of it -----------------------------------------------------------------------

    def _piece(self, text: str) -> Held:
        prefix = split_prefix(text)
        return Held(text, "other", prefix, (prefix.process.label or "main") if prefix else "")

    def _put(self, index: int, held: Held, *, turned: bool = False) -> None:
        self.items.append(Item(index, held, turned))
        if held.kind == "source" and held.prefix is None:
            self._source = held.text
        elif held.kind not in ("caret", "blank"):
            self._source = ""

    def _cut(self, index: int, held: Held, *, turned: bool = False) -> None:
        """Note that a line was torn."""
        item = Item(index, held, turned, torn=True)
        self.items.append(item)
        self._cuts.append(_Cut(item, self._source))
        if len(self._cuts) > MAX_CUTS:
            del self._cuts[0]
        self._source = ""

    def _join(self, index: int, cut: _Cut, rest: str) -> None:
        """Put a torn line together."""
        self._cuts.remove(cut)
        item = cut.item
        text = item.held.text + rest
        prefix = split_prefix(text) if item.held.prefix else None
        item.held = Held(text, classify(prefix.rest if prefix else text), prefix, item.held.label)
        self.items.append(Item(index, Held("", "blank"), resumes=item))
        self._source = text if item.held.kind == "source" else ""
