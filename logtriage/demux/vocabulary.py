"""Whole lines of tracebacks in, what is known of them out: which lines there are, and which came below which frame.

Ranks run the same program, so what one of them printed in one piece tells how the torn and mixed lines of the
others belong together.

Law: at most :data:`MAX_LINES` lines and :data:`MAX_STEPS` steps are remembered, the latest ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

import regex

from logtriage.demux.grammar import Kind, called, function_of, is_frame, path_of

__all__ = ["MAX_LINES", "MAX_STEPS", "Evidence", "Place", "Vocabulary"]

MAX_LINES: Final = 4_096
"""Whole lines that are remembered."""

MAX_STEPS: Final = 8_192
"""Pairs of a frame and the line below it that are remembered."""

_MAX_TEXT: Final = 500
_STRANGE: Final = -3
Place = tuple[str, str]
"""The last two frame lines of a traceback, the innermost one last; ``""`` stands for its header."""

_BELOW: Final = frozenset({"frame", "source", "caret", "exception"})
_NAMED: Final = regex.compile(r"(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*)?(?:Error|Exception|Interrupt|Exit|Warning)\b")


class Vocabulary:
    """The lines of tracebacks that one stream carried in whole, and what came below which frame."""

    def __init__(self) -> None:
        self.lines: OrderedDict[str, None] = OrderedDict()
        self.steps: OrderedDict[tuple[Place, Kind, str], int] = OrderedDict()

    def remember(self, text: str) -> None:
        """Note a whole line of a traceback."""
        if len(text) <= _MAX_TEXT:
            self.lines[text] = None
            if len(self.lines) > MAX_LINES:
                self.lines.popitem(last=False)

    def learn(self, place: Place, text: str, kind: Kind) -> None:
        """Note that *text*, of that kind, came next at a place."""
        step = (place, _level(kind), text.strip()[:_MAX_TEXT])
        self.steps[step] = self.steps.get(step, 0) + 1
        if len(self.steps) > MAX_STEPS:
            self.steps.popitem(last=False)


class Evidence:
    """What a vocabulary and the mixed lines themselves tell of whole lines and of what follows what.

    Args:
        vocabulary: What the stream carried before.
        lines: The mixed lines in their order, each with its place in the grammar; without prefixes.
        places: For each line, where its owner was before it, as far as an earlier search found out; of lines of
            which that is not known the ones right above them tell it.

    Attributes:
        whole: Lines that are certainly no piece of one and no two glued together.
        often: How often each of the mixed lines is there.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        lines: Iterable[tuple[str, Kind]],
        places: Sequence[Place | None] | None = None,
    ) -> None:
        lines = list(lines)
        self.often = often = Counter(text for text, _ in lines)
        self.whole = {line for line in vocabulary.lines if line.strip(" ~^")}
        self.whole.update(text for text, kind in lines if is_frame(text) or (often[text] > 1 and _has_form(text, kind)))
        self._sorted = sorted(self.whole)
        self._ended = sorted(line[::-1] for line in self.whole)
        self.paths = {path for line in self.whole if (path := path_of(line))}
        self.functions = {name for line in self.whole if (name := function_of(line))}
        self._steps: dict[tuple[Place | str, Kind], Counter[str]] = {}
        self._sums: Counter[tuple[Place | str, Kind]] = Counter()
        self._above: dict[str, Counter[str]] = {}
        for (place, level, text), count in vocabulary.steps.items():
            self._count(place, level, text, count)
        self._places: Sequence[Place | str | None] = _places_above(lines) if places is None else places
        for (text, kind), known in zip(lines, self._places, strict=True):
            if known is not None and kind in _BELOW:
                self._count(known, _level(kind), text.strip(), 1)

    def _count(self, place: Place | str, level: Kind, text: str, count: int) -> None:
        frame = place if isinstance(place, str) else place[1]
        for key in {place, frame}:
            self._steps.setdefault((key, level), Counter())[text] += count
            self._sums[key, level] += count
        if level == "frame":
            self._above.setdefault(text, Counter())[frame] += count

    def weigh(self, place: Place, text: str, kind: Kind, index: int | None = None) -> int:
        """How well *text* goes on at a place, by what was seen elsewhere: from -5 (never) to 5 (always).

        Args:
            place: The last two frames.
            text: The line, stripped.
            kind: What the line is.
            index: Which of the mixed lines it is; what is known from itself is no evidence for it.
        """
        level = _level(kind)
        known = self._places[index] if index is not None else None
        own = known is not None and (known if isinstance(known, str) else known[1]) == place[1]
        total = self._sums.get((place, level), 0) - (known == place)
        if total > 1:
            count = self._steps[place, level].get(text, 0) - (known == place)
            return -5 if count <= 0 else 5 if count / total >= 0.3 else 2
        if level == "frame" and not self._may_stand(place[1], text, own=own):
            return _STRANGE
        total = self._sums.get((place[1], level), 0) - own
        if total <= 0:
            return 0
        count = self._steps[place[1], level].get(text, 0) - own
        if count <= 0:
            return 0 if total < 3 else _STRANGE  # one that stands beside by chance is no evidence
        if count == 1:
            return 1 if total < 3 else 0
        share = count / total
        return 5 if share >= 0.4 and count > 2 else 3 if share >= 0.15 or count > 2 else 0

    def _may_stand(self, frame: str, text: str, *, own: bool) -> bool:
        """Whether nothing speaks against *text* below *frame*: often seen, it always stood below others."""
        above = self._above.get(text)
        if above is None or above[frame] > own:
            return True
        return sum(above.values()) - own < 3

    def begins(self, piece: str) -> bool:
        """Whether a known line begins with *piece* and goes on."""
        at = bisect_left(self._sorted, piece)
        return any(line.startswith(piece) and line != piece for line in self._sorted[at : at + 2])

    def ends(self, piece: str) -> bool:
        """Whether a known line ends with *piece* and has something before it."""
        ended = piece[::-1]
        at = bisect_left(self._ended, ended)
        return any(line.startswith(ended) and line != ended for line in self._ended[at : at + 2])

    def reach(self, text: str) -> int:
        """The length of the longest beginning of *text* that a known line begins with."""
        at = bisect_left(self._sorted, text)
        return max((_common(text, line) for line in self._sorted[max(at - 1, 0) : at + 1]), default=0)

    def is_familiar(self, line: str) -> bool:
        """Whether a line names a file that some frame is in, or calls a function that one is in."""
        return path_of(line) in self.paths or self.calls_known(line)

    def calls_known(self, source: str) -> bool:
        """Whether a source line calls a function that some frame is in."""
        return not self.functions.isdisjoint(called(source))


def _places_above(lines: Sequence[tuple[str, Kind]]) -> list[str | None]:
    """For each line the frame that the lines right above it name, if they are one writer's; ``None`` if none."""
    places: list[str | None] = []
    above: str | None = None
    before: Kind = "other"
    for text, kind in lines:
        places.append(above)
        if kind == "header":
            above = ""
        elif kind == "frame":
            above = text.strip()
        elif kind not in ("source", "caret") or (kind == "caret" and before == "caret"):
            above = None
        before = kind
    return places


def _level(kind: Kind) -> Kind:
    """What competes for the same place: after a source line comes the next frame or the exception."""
    return "frame" if kind == "exception" else kind


def _has_form(text: str, kind: Kind) -> bool:
    """Whether *text* has the form of a whole line of a traceback; a piece of one hardly has."""
    if kind == "source":
        return text[:4] == "    " and len(text) < _MAX_TEXT
    return kind == "exception" and len(text) < _MAX_TEXT and _NAMED.match(text) is not None


def _common(one: str, other: str) -> int:
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    low, high = 0, length
    while high - low > 1:
        middle = (low + high) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle
    return low
