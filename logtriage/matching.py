"""An event, its incident and the signatures enter; those that fit leave, best first, and why others do not.

Law: what is matched is log text, hence hostile.  Texts are capped, patterns run under a time limit, and
nothing here raises because of what a log holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

import attrs
import regex

from logtriage.conditions import condition_facts, facts_hold
from logtriage.model import Alternative, Condition, Event, FramePattern, Incident, Match, Signature, Variant
from logtriage.texts import Surroundings, Text, event_texts, fold, pattern_text

__all__ = ["Index", "condition_holds", "match", "render_template"]

_CAPTURE_LIMIT: Final = 256
_TIMEOUT: Final = 0.2
# A text that defeats one pattern may defeat all of them; 0.6 s is what one event may cost.
_TIMEOUTS: Final = 3

# What had to hold makes a match specific.  Literals weigh by length, up to about four full lines' worth of
# words, so that a long sentence beats a generic one ("CUDA out of memory") whatever else is known.
_LITERAL_CHARACTERS: Final = 160
_CHARACTERS_A_POINT: Final = 40
# Structure weighs more than text: a place in the code tells two faults with the same words apart, while most
# patterns only pick figures out of a text that the literals have recognised.
_PATTERN_POINTS: Final = 0.5
_EXCEPTION_POINTS: Final = 1.0
_FRAME_POINTS: Final = 0.75
_KIND_POINTS: Final = 0.25
_FACT_POINTS: Final = 0.75
_FACTS: Final = 3
_STATUS_POINTS: Final = {"stable": 0.25, "test": 0.1, "experimental": 0.0, "deprecated": -0.5}
# A consequence or an advice is not the answer while the same text also shows a cause, whatever else is known.
_ROLE_POINTS: Final = {"initiating": 0.0, "advice": -6.0, "cascade": -6.0, "teardown": -7.0}
# What claims so little catches whatever nobody knows better.
_CONFIDENCE_POINTS: Final = {"certain": 0.0, "likely": 0.0, "possible": -2.0}

# "${NAME}" is a variable of the shell or of systemd, not ours.
_TEMPLATE: Final = regex.compile(r"\$?\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}")


def render_template(text: str, captures: Mapping[str, str] | Iterable[tuple[str, str]]) -> str:
    """Put captures where a text names them.

    Args:
        text: May hold ``{name}``; a name that was not captured stays as it is.
        captures: Names and texts.  Braces in them are not read again.

    >>> render_template("Got {prefill}, {other} and ${HOME}", {"prefill": "fa3", "HOME": "x"})
    'Got fa3, {other} and ${HOME}'
    """
    known = dict(captures)
    return _TEMPLATE.sub(
        lambda found: found[0] if found[0].startswith("$") else known.get(found["name"], found[0]), text
    )


class _Patience:
    """Counts patterns that ran out of time, so that one event cannot cost many times the limit."""

    def __init__(self) -> None:
        self.left = _TIMEOUTS

    def search(self, pattern: regex.Pattern[str], text: str) -> regex.Match[str] | None:
        """Search within the time limit.

        Raises:
            TimeoutError: It took too long, or the event's patience was gone before.
        """
        if self.left <= 0:
            raise TimeoutError
        try:
            return pattern.search(text, timeout=_TIMEOUT)
        except TimeoutError:
            self.left -= 1
            raise


class _Wording:
    """A variant made ready: literals folded at once, the pattern compiled when first needed."""

    def __init__(self, variant: Variant, signature: Signature) -> None:
        self.variant = variant
        self.literals = tuple(fold(literal) for literal in variant.literals)
        self.source_line = fold(variant.source_line) if variant.source_line else ""
        self.exceptions = variant.exceptions or signature.exceptions
        self.frame = signature.frame
        self.points = _points(self, signature)

    @cached_property
    def pattern(self) -> regex.Pattern[str] | None:
        # ASCII classes are those of RE2, with which the patterns are proven.
        return regex.compile(self.variant.pattern, regex.ASCII) if self.variant.pattern else None

    def fits(self, text: Text) -> bool:
        """Whether all but the pattern holds; the cheapest test comes first."""
        return (
            all(literal in text.folded for literal in self.literals)
            and (not self.exceptions or _is_one_of(text.type, self.exceptions, cut_off=bool(self.literals)))
            and (self.frame is None or _has_frame(text, self.frame))
            and (not self.source_line or self.source_line in _innermost_line(text))
        )

    def captures(self, text: Text, patience: _Patience) -> tuple[tuple[str, str], ...] | None:
        """What the pattern captures in *text*; ``None`` if it does not match.

        Raises:
            TimeoutError: The pattern ran out of time.
        """
        if self.pattern is None:
            return ()
        found = patience.search(self.pattern, text.raw)
        if found is None:
            # The text may be hard-wrapped inside the words the pattern asks for.
            found = patience.search(self.pattern, pattern_text(text.folded))
        if found is None:
            return None
        return tuple(
            (name, value[:_CAPTURE_LIMIT]) for name, value in found.groupdict().items() if value is not None
        )


class Index:
    """Signatures made ready for matching; build one for each database and keep it.

    Args:
        signatures: In any order; the order of the answers does not depend on it.
    """

    def __init__(self, signatures: Iterable[Signature]) -> None:
        self.entries: tuple[tuple[Signature, tuple[_Wording, ...]], ...] = tuple(
            (signature, tuple(_Wording(variant, signature) for variant in signature.variants))
            for signature in signatures
        )
        # The longest literal of each wording: no more than one look at a text for most of them.
        self._keys = tuple(
            (max(wording.literals, key=len, default=""), position)
            for position, (_, wordings) in enumerate(self.entries)
            for wording in wordings
        )

    def candidates(self, texts: Sequence[Text]) -> list[tuple[Signature, tuple[_Wording, ...]]]:
        """The signatures that may fit one of *texts*; no other one does."""
        whole = "\n".join(text.folded for text in texts)
        wanted = {position for literal, position in self._keys if literal in whole}
        return [self.entries[position] for position in sorted(wanted)]


def match(
    event: Event, incident: Incident, signatures: Sequence[Signature] | Index
) -> tuple[list[Match], list[Alternative]]:
    """Find the signatures that fit *event*.

    Args:
        event: The event to explain, usually the root of *incident*.
        incident: Its incident: the facts that ``requires`` and ``excludes`` ask for.
        signatures: The known faults; an :class:`Index` where more than one event is matched.

    Returns:
        The matches, most specific first (equal ones by id), and the alternatives, nearest first: signatures
        whose text fits but which a fact rules out, those whose pattern ran out of time, and all matches
        but the best.
    """
    index = signatures if isinstance(signatures, Index) else Index(signatures)
    texts = event_texts(event)
    surroundings, patience = Surroundings(event, incident), _Patience()
    matches: list[Match] = []
    passed: list[tuple[float, Alternative]] = []
    for signature, wordings in index.candidates(texts):
        if signature.kinds and event.kind not in signature.kinds:
            continue
        best, trouble = _best(signature, wordings, texts, patience)
        if best is not None:
            best, trouble = _judge(best, incident, surroundings)
        if trouble:
            passed.append((best.specificity if best else 0.0, Alternative(signature.id, trouble)))
        elif best is not None:
            matches.append(best)
    matches.sort(key=lambda found: (-found.specificity, found.signature.id))
    for found in matches[1:]:
        why_not = f"less specific than {matches[0].signature.id}"
        passed.append((found.specificity, Alternative(found.signature.id, why_not)))
    passed.sort(key=lambda pair: (-pair[0], pair[1].signature))
    return matches, [alternative for _, alternative in passed]


def condition_holds(condition: Condition, event: Event, incident: Incident) -> bool | None:
    """Whether a condition (``when`` of a remediation) holds for an event of an incident.

    Returns:
        ``None`` if the log does not say enough; an empty condition holds.
    """
    return facts_hold(condition_facts(condition, incident, Surroundings(event, incident).hold))


def _best(
    signature: Signature, wordings: Sequence[_Wording], texts: Sequence[Text], patience: _Patience
) -> tuple[Match | None, str]:
    """The most specific way in which *signature* fits one of the texts, or what kept it from being tried."""
    best: Match | None = None
    trouble = ""
    for wording in wordings:
        for text in texts:
            if not wording.fits(text):
                continue
            try:
                captures = wording.captures(text, patience)
            except TimeoutError:
                trouble = f"pattern of {wording.variant.name!r} ran out of time"
                continue
            except regex.error:
                # Only a signature that was never checked gets here; it must not cost the diagnosis.
                trouble = f"pattern of {wording.variant.name!r} is not a regular expression"
                continue
            if captures is None:
                continue
            known_type = bool(wording.exceptions and text.type)
            points = round(wording.points + text.bonus + known_type * _EXCEPTION_POINTS, 4)
            if best is None or points > best.specificity:
                best = Match(signature, wording.variant.name, captures, points, text.link)
    return best, trouble


def _judge(found: Match, incident: Incident, surroundings: Surroundings) -> tuple[Match, str]:
    """Hold the facts against a match whose text fits; why they rule it out, or ``""`` if they do not."""
    required = condition_facts(found.signature.requires, incident, surroundings.hold)
    excluded = condition_facts(found.signature.excludes, incident, surroundings.hold)
    missing = [fact.needed for fact in required if fact.holds is False]
    present = [f"ruled out because {fact.excluded}" for fact in excluded if fact.holds is True]
    known = min(_FACTS, sum(fact.holds is True for fact in required))
    points = round(found.specificity + known * _FACT_POINTS, 4)
    return attrs.evolve(found, specificity=points), next(iter([*missing, *present]), "")


def _points(wording: _Wording, signature: Signature) -> float:
    """The part of the specificity that is the same for every text."""
    literals = min(sum(len(literal) for literal in wording.literals), _LITERAL_CHARACTERS)
    source_line = min(len(wording.source_line), _LITERAL_CHARACTERS // 2)
    points = (literals + source_line) / _CHARACTERS_A_POINT
    if wording.variant.pattern:
        points += _PATTERN_POINTS
    if signature.frame is not None:
        frame = signature.frame
        points += _FRAME_POINTS * (bool(frame.file) + bool(frame.function) + frame.innermost)
    if signature.kinds:
        points += _KIND_POINTS
    points += _STATUS_POINTS.get(signature.status, 0.0) + _ROLE_POINTS.get(signature.role, 0.0)
    return points + _CONFIDENCE_POINTS[signature.confidence]


def _is_one_of(given: str | None, classes: Iterable[str], *, cut_off: bool) -> bool:
    """Whether *given*, as printed, is one of *classes*, each named by its last part or whole.

    A class that was cut off is not known; it contradicts nothing where *cut_off* allows it, that is where
    words of the message speak for themselves.  A text without any is no exception.
    """
    if not given:
        return given is not None and cut_off
    return any(name in (given, _last_part(given)) for name in classes)


def _last_part(name: str) -> str:
    """``torch.OutOfMemoryError`` and ``c10::OutOfMemoryError`` are ``OutOfMemoryError``."""
    return name.replace("::", ".").rpartition(".")[2]


def _has_frame(text: Text, wanted: FramePattern) -> bool:
    frames = text.frames[-1:] if wanted.innermost else text.frames
    return any(
        (not wanted.file or ("/" + frame.filename.replace("\\", "/")).endswith("/" + wanted.file.lstrip("/")))
        and wanted.function in ("", frame.function)
        for frame in frames
    )


def _innermost_line(text: Text) -> str:
    return fold(text.frames[-1].line) if text.frames else ""
