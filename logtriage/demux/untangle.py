"""Mixed lines of several writers in, whose each one is out: the best joint assignment that a bounded search finds.

A line alone hardly tells whose it is; all of them together do.  Each writer's traceback must follow the grammar
from its header to its exception, a line of source calls the function that the next frame is in, ranks run the same
program and so print the same stacks, and nobody is cut off for no reason.

The law: the texts that come out are those that went in, but for lines that were put together again; the result
depends on the lines alone.

How it is done: a beam of hypotheses goes through the lines; each holds how far every writer has come.  Writers that
have come equally far are one candidate, so that sixty-four ranks cost hardly more than two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from logtriage.demux.grammar import FOLLOWS, Kind, Progress, child_name, classify, goes_on, may_name
from logtriage.demux.mending import Held, Item, mend
from logtriage.demux.prefix import Prefix
from logtriage.demux.vocabulary import Evidence, Place, Vocabulary
from logtriage.model import Basis

__all__ = ["NOBODY", "Owned", "untangle"]

NOBODY: Final = "?"
"""Name of the writer of lines that no traceback goes on in."""

_BEAM: Final = 24
_MARGIN: Final = 12
_MAX_TAKERS: Final = 6
_ODD: Final = 4
_UNENDED: Final = 8
_STAYS: Final = 3
_STAYS_BELOW: Final = 5
_CARET_MARGIN: Final = 10


class Owned(NamedTuple):
    """A line with its owner.

    Attributes:
        line: Which of the held lines it is of.
        text: The whole line, or the part of it that is this owner's, without the prefix.
        name: The owner.
        basis: How that is known.
        prefix: The engine's prefix that stood in front.
    """

    line: int
    text: str
    name: str
    basis: Basis
    prefix: Prefix | None = None


class _Step(NamedTuple):
    """A line that a hypothesis gave to a writer."""

    before: _Step | None
    item: int
    text: str
    name: str
    basis: Basis
    prefix: Prefix | None
    rivals: tuple[str, ...]


class _Hypothesis(NamedTuple):
    """One way to tell the lines so far apart."""

    score: int
    states: Mapping[str, Progress]
    key: int
    current: str
    last: _Step | None
    hope: int = 0
    torn: tuple[tuple[int, str], ...] = ()


def untangle(
    held: Sequence[Held],
    writers: Mapping[str, Progress],
    current: str,
    vocabulary: Vocabulary,
) -> tuple[list[Owned], dict[str, Progress], str]:
    """Tell the lines of several writers apart.

    Args:
        held: The lines, in the order of the stream.
        writers: The writers known before, the one that began first in front, and how far each has come.
        current: Who wrote the line before the first; ``""`` if nobody did.
        vocabulary: What the stream carried before; what is found out is added to it.

    Returns:
        The lines with their owners, in the order of the stream; a line that was taken apart is told where it
        began.  How far each writer has come, and the name of the last one.  Writers that no prefix names get
        names of their own, which begin with ``?``.
    """
    texts = [(each.prefix.rest if each.prefix else each.text, each.kind) for each in held]
    items = mend(held, Evidence(vocabulary, texts), writers.get(current, Progress()).source)
    lines = [(item.held.prefix.rest if item.held.prefix else item.held.text, item.held.kind) for item in items]
    first = _Search(items, Evidence(vocabulary, lines)).run(writers, current)
    places = _places(first, writers, len(items))
    best = _Search(items, Evidence(vocabulary, lines, places)).run(writers, current)
    owned = _told(best, items, [*writers])
    _learn(owned, vocabulary, writers)
    return owned, dict(best.states), best.current


class _Search:
    """The beam search over one stretch of mixed lines."""

    def __init__(self, items: Sequence[Item], evidence: Evidence) -> None:
        self._items = items
        self._evidence = evidence
        self._memo: dict[tuple[Progress, int, str], tuple[int, Progress] | None] = {}
        self._count = sum(item.held.kind == "header" for item in items)
        frames = [item.held.text for item in items if item.held.kind == "frame"]
        alone = sum(self._evidence.often[text] == 1 for text in frames)
        self._mostly_alike = alone * 3 < len(frames)
        self._given: dict[tuple[str, int], str] = {}
        self._order: dict[str, int] = {}

    def run(self, writers: Mapping[str, Progress], current: str) -> _Hypothesis:
        """Go through all lines; return the best hypothesis."""
        for name in writers:
            self._order[name] = len(self._order)
        key = 0
        for name, progress in writers.items():
            key ^= hash((name, progress))
        beam = [_Hypothesis(0, dict(writers), key, current, None)]
        for index in range(len(self._items)):
            grown: dict[tuple[int, str, object], _Hypothesis] = {}
            for hypothesis in beam:
                for each in self._grow(hypothesis, index):
                    known = grown.get((each.key, each.current, each.torn))
                    if known is None or each.score > known.score:
                        grown[each.key, each.current, each.torn] = each
            beam = sorted(grown.values(), key=_promise, reverse=True)[:_BEAM]
            floor = _promise(beam[0]) - _MARGIN
            beam = [each for each in beam if _promise(each) >= floor]
        return max(beam, key=lambda each: each.score - _UNENDED * sum(state.is_open for state in each.states.values()))

    # --- one line -------------------------------------------------------------------------------

    def _grow(self, before: _Hypothesis, index: int) -> Iterator[_Hypothesis]:
        """The hypotheses that *before* becomes with the next line."""
        item = self._items[index]
        if item.resumes is not None:  # the writer of a torn line goes on
            name = next((name for at, name in before.torn if at == id(item.resumes)), before.current)
            torn = before.torn
            if not item.torn:  # it has come to its end
                torn = tuple(each for each in torn if each[0] != id(item.resumes))
            yield before._replace(current=name, torn=torn, hope=0)
            return
        for each in self._assigned(before, index, item):
            yield each._replace(torn=(*before.torn, (id(item), each.current))) if item.torn else each

    def _assigned(self, before: _Hypothesis, index: int, item: Item) -> Iterator[_Hypothesis]:
        """The hypotheses that give the line to one of the writers."""
        text, kind, prefix, label = item.held
        if prefix is not None:
            yield self._prefixed(before, index, prefix, label, kind)
            return
        if item.lost:  # taken for a line of a message it would spoil that
            is_open = before.states.get(before.current, Progress()).is_open
            name = before.current if is_open and not item.turned else NOBODY
            yield self._put(before, name, None, 0, index, text, "guess")._replace(current=before.current)
            return
        if kind == "blank":
            yield self._put(before, before.current or NOBODY, None, 0, index, text, "continuation")
            return
        if kind in ("native", "child"):
            name = "?native" if kind == "native" else self._name(f"?{child_name(text)}", index)
            state = Progress("child") if kind == "child" else None
            basis: Basis = "guess" if kind == "native" else "continuation"
            yield self._put(before, name, state, 0, index, text, basis)
            return
        found = False
        for each in self._takers(before, index, text, kind, beside=not item.turned):
            found = True
            yield each
        if kind == "header":
            name = self._name("?main", index)
            yield self._put(before, name, Progress("header"), -3, index, text, "guess")
        elif kind == "other" or not found:
            yield self._stray(before, index, text, kind)

    def _prefixed(
        self, before: _Hypothesis, index: int, prefix: Prefix, label: str, kind: Kind
    ) -> _Hypothesis:
        """The line names its writer."""
        state = before.states.get(label, Progress())
        self._order.setdefault(label, len(self._order))
        score = 0
        if not prefix.starts:
            after = state.after(prefix.rest, kind)
        elif kind == "header":
            score = -8 if state.is_open else 0
            after = Progress("header")
        elif state.is_open:
            score, after = -1, state
        else:
            after = Progress("other")
        return self._put(before, label, after, score, index, prefix.rest, "prefix", prefix)

    def _takers(
        self, before: _Hypothesis, index: int, text: str, kind: Kind, *, beside: bool
    ) -> Iterator[_Hypothesis]:
        """The line goes on in the traceback of one of the writers."""
        options: list[tuple[int, str, Progress, tuple[str, ...]]] = []
        for state, names in self._classes(before).items():
            found = self._step(state, index, text, kind)
            if found is None:
                continue
            score, after = found
            if state.last == "exception" and kind != "chain":
                if before.current not in names or not beside:
                    continue  # the lines of a message are one write
                names = (before.current,)
            if before.current in names and beside:
                if state.last == "header" or kind == "other":
                    score += _STAYS_BELOW
                elif state.last != "exception" or kind == "chain":
                    score += _STAYS if kind in ("frame", "exception", "chain") else _STAYS_BELOW
                options.append((score, before.current, after, names))
                continue
            if not beside and before.current in names:  # another one's piece stands in front
                names = tuple(name for name in names if name != before.current)
            if names:
                options.append((score, names[0], after, names))
        options.sort(key=lambda option: option[0], reverse=True)
        margin = options[0][0] - options[1][0] if len(options) > 1 else _MARGIN
        most = 1 if kind == "caret" else _MAX_TAKERS  # carets tell nothing: it is not worth while to doubt
        for rank, (score, name, after, names) in enumerate(options[:most]):
            if score < options[0][0] - _MARGIN:
                break
            basis: Basis = "continuation"
            if name != before.current or not beside:
                basis = "only-candidate" if rank == 0 and margin >= 3 else "guess"
            put = self._put(before, name, after, score, index, text, basis, rivals=names)
            yield put._replace(hope=self._hope(after, index)) if kind == "source" else put

    def _hope(self, state: Progress, index: int) -> int:
        """How well the next line, if it is this writer's, goes on below its frame: that tells whose this one is."""
        for ahead in range(index + 1, min(index + 3, len(self._items))):
            held = self._items[ahead].held
            if held.prefix is not None or self._items[ahead].turned or self._items[ahead].resumes:
                break
            if held.kind in ("frame", "exception"):
                return self._evidence.weigh(state.place, held.text.strip(), held.kind, ahead)
            if held.kind != "caret":
                break
        return 0

    def _classes(self, before: _Hypothesis) -> dict[Progress, tuple[str, ...]]:
        """The writers in the middle of something, those that have come equally far together, first begun first."""
        found: dict[Progress, tuple[str, ...]] = {}
        torn = {name for _, name in before.torn}
        for name, state in before.states.items():
            if state.last != "other" and name not in torn:
                found[state] = (*found.get(state, ()), name)
        return found

    def _step(self, state: Progress, index: int, text: str, kind: Kind) -> tuple[int, Progress] | None:
        """What it is worth that *text* goes on from *state*, and how far the writer has come then."""
        key = (state, index, text)
        if key not in self._memo:
            self._memo[key] = self._judged(state, index, text, kind)
        return self._memo[key]

    def _judged(self, state: Progress, index: int, text: str, kind: Kind) -> tuple[int, Progress] | None:
        if state.last == "exception" and kind in ("other", "source", "caret", "margin"):
            if self._evidence.ends(text):
                return None  # the rest of a torn line
            return (0 if kind == "other" else -1, state)  # a message of several lines
        penalty = 0
        due = state.last in ("source", "caret", "frame") and may_name(text) and not self._evidence.ends(text)
        if kind == "other" and due:
            kind, penalty = "exception", -2  # an exception that is not named like one
        if kind == "header":
            worth = {"chain": 4, "child": 4}.get(state.last)
            return None if worth is None else (worth, Progress("header"))
        if kind not in FOLLOWS.get(state.last, ()):
            return None
        stripped = text.strip()
        after = state.after(text, kind)
        score = 2 * goes_on(state.last, state.source, text, kind) + penalty
        if state.last == "header" and kind == "exception":
            score -= 6  # without a single frame
        if kind in ("frame", "source", "exception", "caret"):
            score += self._evidence.weigh(state.place, stripped, kind, index)
            if kind == "frame" and self._mostly_alike:
                often = self._evidence.often[text]
                if often == 1:  # there is one stack of its own among equal ones as a rule, and it is one writer's
                    score += _ODD if state.odd else -_ODD
                    after = after._replace(odd=True)
                elif state.odd and 2 < often < self._count:
                    score -= _ODD
            if kind == "caret":
                after = state
            if kind == "caret" and len(text.rstrip()) > len(state.source) + _CARET_MARGIN:
                score -= 3  # it marks more than the line above it holds
        if kind == "source" and state.last != "frame":  # CPython 3.13 shows several lines of one call
            score -= 9 if stripped == state.source else 4
        return score, after

    def _stray(self, before: _Hypothesis, index: int, text: str, kind: Kind) -> _Hypothesis:
        """A line that goes on in no traceback: the words of whoever wrote before, or a piece of a torn line."""
        state = before.states.get(before.current, Progress())
        if kind == "other" and not state.is_open and not self._evidence.ends(text):
            cost = 0 if state.last == "exception" else -2
            return self._put(before, before.current or NOBODY, None, cost, index, text, "continuation")
        # Among the lines of a traceback it would be taken for the end of it.
        put = self._put(before, NOBODY, None, -16 if kind == "exception" else -9, index, text, "guess")
        return put._replace(current=before.current)

    # --- growing --------------------------------------------------------------------------------

    def _put(
        self,
        before: _Hypothesis,
        name: str,
        after: Progress | None,
        score: int,
        index: int,
        text: str,
        basis: Basis,
        prefix: Prefix | None = None,
        rivals: tuple[str, ...] = (),
    ) -> _Hypothesis:
        """The hypothesis with one more line given to *name*; ``None``: it has come no further."""
        step = _Step(before.last, index, text, name, basis, prefix, rivals)
        if after is None:
            return _Hypothesis(before.score + score, before.states, before.key, name, step, 0, before.torn)
        states = dict(before.states)
        old = states.pop(name, None) if after.last == "header" else states.get(name)
        states[name] = after  # behind all others if it begins now
        key = before.key ^ hash((name, after))
        if old is not None:
            key ^= hash((name, old))
        return _Hypothesis(before.score + score, states, key, name, step, 0, before.torn)

    def _name(self, wish: str, index: int) -> str:
        """The name of a writer that begins on a line; nobody else has it."""
        name = self._given.get((wish, index), "")
        number = 1
        while not name or (name in self._order and (wish, index) not in self._given):
            name = wish if number == 1 else f"{wish}-{number}"
            number += 1
        self._given[wish, index] = name
        self._order.setdefault(name, len(self._order))
        return name


def _promise(hypothesis: _Hypothesis) -> int:
    return hypothesis.score + hypothesis.hope


def _places(best: _Hypothesis, writers: Mapping[str, Progress], count: int) -> list[Place | None]:
    """Where the owner of each line was before it, by a hypothesis."""
    steps = []
    step = best.last
    while step is not None:
        steps.append(step)
        step = step.before
    places: list[Place | None] = [None] * count
    states = dict(writers)
    for step in reversed(steps):
        state = states.get(step.name, Progress())
        kind = classify(step.text)
        if state.is_open and step.prefix is None:
            places[step.item] = state.place
        states[step.name] = state.after(step.text, kind)
    return places


def _told(best: _Hypothesis, items: Sequence[Item], writers: Sequence[str]) -> list[Owned]:
    """The lines of a hypothesis in the order of the stream."""
    steps: list[_Step] = []
    step = best.last
    while step is not None:
        steps.append(step)
        step = step.before
    steps.reverse()
    steps = _settled(steps, writers)
    ends = _ends(steps)
    owned: list[Owned] = []
    for step in steps:
        basis = step.basis
        if basis in ("only-candidate", "guess") and len(step.rivals) > 1:
            # Writers that had come equally far: whose line it was matters only if they end in different ways.
            same = len({ends.get(name) for name in step.rivals}) == 1
            basis = "only-candidate" if same else "guess"
        owned.append(Owned(items[step.item].index, step.text, step.name, basis, step.prefix))
    return owned


def _ends(steps: Sequence[_Step]) -> dict[str, str]:
    """The exception that each writer comes to."""
    return {step.name: step.text for step in steps if classify(step.text) == "exception"}


def _settled(steps: list[_Step], writers: Sequence[str]) -> list[_Step]:
    """The steps, where the text left open who had come to an end that nobody else came to.

    Writers that had come equally far may have changed places there.  The one whose end is its own failed first as
    a rule, and who fails first begins to print first.
    """
    ends = _ends(steps)
    often = Counter(ends.values())
    began = list(writers)
    for step in steps:
        if step.name not in began:
            began.append(step.name)
    if not often or often.most_common(1)[0][1] < 2:
        return steps
    for name in [name for name, end in ends.items() if often[end] == 1]:
        way = _way_back(steps, name, began)
        if way:
            return _exchanged(steps, way)
    return steps


def _way_back(steps: Sequence[_Step], name: str, began: Sequence[str]) -> list[tuple[int, str, str]]:
    """Where the writer that came to *name*'s end may have been another one: the exchanges from the earliest one on."""
    following: dict[str, tuple[int, str]] = {name: (len(steps), "")}
    for at in range(len(steps) - 1, -1, -1):
        rivals = steps[at].rivals
        if len(rivals) < 2 or steps[at].basis == "continuation":
            continue
        reached = next((rival for rival in rivals if rival in following), None)
        if reached is not None:
            for rival in rivals:
                following.setdefault(rival, (at, reached))
    first = min(following, key=began.index)
    way = []
    while first != name:
        at, after = following[first]
        way.append((at, first, after))
        first = after
    return way


def _exchanged(steps: Sequence[_Step], way: Sequence[tuple[int, str, str]]) -> list[_Step]:
    """The steps after the exchanges: from each on, what one writer did the other one does."""
    names: dict[str, str] = {}
    pending = list(way)
    settled = []
    for at, step in enumerate(steps):
        while pending and pending[0][0] == at:
            _, one, other = pending.pop(0)
            names[one], names[other] = names.get(other, other), names.get(one, one)
        name = names.get(step.name, step.name) if step.prefix is None else step.name
        settled.append(step._replace(name=name))
    return settled


def _learn(owned: Sequence[Owned], vocabulary: Vocabulary, writers: Mapping[str, Progress]) -> None:
    """Add what was found out to the vocabulary."""
    states = dict(writers)
    for each in owned:
        kind = classify(each.text)
        state = states.get(each.name, Progress())
        if kind in ("frame", "source", "caret", "exception") and state.is_open:
            vocabulary.learn(state.place, each.text, kind)
        if kind in ("frame", "source", "caret"):
            vocabulary.remember(each.text)
        states[each.name] = state.after(each.text, kind)


