"""A condition and what is known of an incident enter; facts leave that hold, do not hold, or are unknown.

Law: a fact the log does not show is unknown, and unknown is neither true nor false.  Only ``context`` is
never unknown: it asks what the log holds, and the log is at hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

import attrs
import regex

from logtriage.model import Condition, Incident

__all__ = ["Fact", "condition_facts", "facts_hold", "release_holds"]

# Longer than any version of a released engine; int() of a hostile digit string is then cheap too.
_VERSION_LIMIT: Final = 64
_SHOWN_LIMIT: Final = 60

_VERSION: Final = regex.compile(
    r"""
    v? (?P<release> \d+ (?: \. \d+ )* )
    (?: [-_.]? (?P<pre> alpha | a | beta | b | preview | pre | rc | c ) [-_.]? (?P<pre_number> \d* ) )?
    (?: [-_.]? (?P<post> post | rev | r ) [-_.]? (?P<post_number> \d* ) )?
    (?: [-_.]? (?P<dev> dev ) [-_.]? (?P<dev_number> \d* ) )?
    (?: \+ [a-z0-9._-]* )?          # the local part (+cu129) names a build, not a release
    """,
    regex.VERBOSE | regex.IGNORECASE,
)
_CLAUSE: Final = regex.compile(r"\s*(?P<operator>[<>=!~]=|[<>])\s*(?P<version>[^\s*]+?)(?P<wild>\.\*)?\s*")
_STAGE: Final = {"a": 0, "b": 1, "p": 2, "r": 2, "c": 2}


@attrs.frozen
class Fact:
    """One part of a condition, held against an incident.

    Attributes:
        holds: Whether it does; ``None`` if the log does not say.
        needed: Why a signature that requires it is ruled out, where it does not hold.
        excluded: Why a signature that excludes it is ruled out, where it holds.
    """

    holds: bool | None
    needed: str
    excluded: str


@attrs.frozen
class _Version:
    """A release in the order of PEP 440; trailing zeros do not count."""

    release: tuple[int, ...]
    pre: tuple[int, int]
    post: int
    dev: float

    @property
    def key(self) -> tuple[tuple[int, ...], tuple[int, int], int, float]:
        """What orders two versions."""
        return (self.release, self.pre, self.post, self.dev)

    @property
    def is_pre(self) -> bool:
        """It comes before the final release of its number."""
        return self.pre < (3, 0) or (self.post < 0 and self.dev < math.inf)


def condition_facts(condition: Condition, incident: Incident, elsewhere: Callable[[str], bool]) -> list[Fact]:
    """Hold every part of *condition* against *incident*.

    Args:
        condition: ``requires``, ``excludes`` or ``when`` of a signature file.
        incident: The incident the event belongs to.
        elsewhere: Says whether a literal stands in another event of the incident.

    Returns:
        One fact for each argument, flag, list of phases, release and context literal of the condition.
    """
    return [
        *_argument_facts(condition, incident),
        *_flag_facts(condition, incident),
        *_phase_facts(condition, incident),
        *_release_facts(condition, incident),
        *(
            Fact(
                elsewhere(literal),
                f"needs {literal!r} elsewhere in the log",
                f"{literal!r} stands in the log",
            )
            for literal in condition.context
        ),
    ]


def facts_hold(facts: list[Fact]) -> bool | None:
    """Join facts: false if one is false, else unknown if one is unknown, else true.

    >>> facts_hold([Fact(True, "", ""), Fact(None, "", "")]) is None
    True
    """
    answers = [fact.holds for fact in facts]
    if False in answers:
        return False
    return None if None in answers else True


def _argument_facts(condition: Condition, incident: Incident) -> Iterator[Fact]:
    """What the engine printed of its resolved arguments."""
    known = incident.invocation.server_args
    for name, wanted in condition.server_args:
        choices = " or ".join("set" if value == "*" else value for value in wanted)
        if name not in known:
            yield Fact(None, f"needs {name} to be {choices}", f"{name} is {choices}")
            continue
        value = known[name]
        shown = _shown(value)
        yield Fact(
            any(_equal(choice, value) for choice in wanted),
            f"needs {name} to be {choices}, but it is {shown}",
            f"{name} is {shown}",
        )


def _equal(choice: str, value: object) -> bool:
    """Whether *value*, as the engine printed it, is the *choice* of a signature file."""
    if choice == "*":
        return value is not None
    if isinstance(value, list | tuple):
        return choice == str(value) or any(_equal(choice, item) for item in value)
    if value is None or isinstance(value, bool):
        # TOML writes true, Python prints True, JSON null is None: all of them are meant.
        return choice.lower() == str(value).lower()
    return choice == str(value)


def _flag_facts(condition: Condition, incident: Incident) -> Iterator[Fact]:
    """Flags of the command line."""
    argv = incident.invocation.argv
    # vLLM takes a flag with either stroke, and one token may hold its value too.
    given = None if argv is None else {_flag(token) for token in argv if token.startswith("-")}
    for flag in condition.flags:
        holds = _flag_by_argument(flag, incident) if given is None else _flag(flag) in given
        yield Fact(holds, f"needs {flag} on the command line", f"{flag} is on the command line")


def _flag(token: str) -> str:
    return token.partition("=")[0].replace("_", "-")


def _flag_by_argument(flag: str, incident: Incident) -> bool | None:
    """Tell a switch from the argument it sets; any other value may be a default, so it says nothing."""
    value = incident.invocation.server_args.get(flag.lstrip("-").replace("-", "_"), "")
    if isinstance(value, bool):
        return value
    return False if value is None else None


def _phase_facts(condition: Condition, incident: Incident) -> Iterator[Fact]:
    """How far the server had come."""
    if not condition.phases:
        return
    phase = incident.phase
    holds = None if phase == "unknown" else phase in condition.phases
    wanted = " or ".join(condition.phases)
    yield Fact(
        holds, f"needs the phase {wanted}, but the server was in {phase}", f"the server was in {phase}"
    )


def _release_facts(condition: Condition, incident: Incident) -> Iterator[Fact]:
    """The engine's release."""
    if not condition.release:
        return
    version = incident.invocation.engine_version
    shown = _shown(version)
    yield Fact(
        release_holds(version, condition.release),
        f"needs a release {condition.release}, but this is {shown}",
        f"the release {shown} is {condition.release}",
    )


def _shown(value: object) -> str:
    """A value from the log, short and on one line, for a sentence."""
    text = " ".join(str(value).split())
    return text if len(text) <= _SHOWN_LIMIT else text[: _SHOWN_LIMIT - 1] + "…"


def release_holds(version: str | None, specifier: str) -> bool | None:
    """Hold a release against a version specifier.

    Args:
        version: The release as the log names it, or ``None``.
        specifier: A comma-separated list of PEP 440 clauses (``>=0.5.3,<0.6``).

    Returns:
        Whether all clauses hold; ``None`` if the release is not known, or either text is not a version.

    Source:
        PEP 440: a final bound takes no pre-release below it and no post-release above it.

    >>> release_holds("0.5.9.post2", ">=0.5.9,<0.5.10")
    True
    >>> release_holds("0.5.10rc0", "<0.5.10")
    False
    >>> release_holds(None, ">=0.5") is None
    True
    """
    release = _version(version or "")
    # Built from a checkout without tags, SGLang calls itself 0.0.0.dev1 and vLLM 0.1.dev1: that says nothing.
    if release is None or not release.release or (release.release == (0, 1) and release.dev < math.inf):
        return None
    answers = [_clause_holds(release, clause) for clause in specifier.split(",")]
    return None if None in answers else all(answers)


def _version(text: str) -> _Version | None:
    """Read a version; ``None`` if *text* is none."""
    found = _VERSION.fullmatch(text.strip()[:_VERSION_LIMIT])
    if found is None:
        return None
    release = [int(part) for part in found["release"].split(".")]
    while release and release[-1] == 0:
        release.pop()
    post = int(found["post_number"] or 0) if found["post"] else -1
    dev = int(found["dev_number"] or 0) if found["dev"] else math.inf
    if found["pre"]:
        pre = (_STAGE[found["pre"][0].lower()], int(found["pre_number"] or 0))
    else:
        pre = (-1, 0) if post < 0 and dev < math.inf else (3, 0)
    return _Version(tuple(release), pre, post, dev)


def _clause_holds(version: _Version, clause: str) -> bool | None:
    """Hold one clause; ``None`` if it cannot be read."""
    found = _CLAUSE.fullmatch(clause)
    bound = _version(found["version"]) if found else None
    if found is None or bound is None:
        return None
    operator = found["operator"]
    if found["wild"]:
        same = _starts_with(version, found["version"].count(".") + 1, bound)
        return {"==": same, "!=": not same}.get(operator)
    if operator == "~=":
        return version.key >= bound.key and _starts_with(version, found["version"].count("."), bound)
    return _compare(version, operator, bound)


def _compare(version: _Version, operator: str, bound: _Version) -> bool:
    """Compare as PEP 440 does: ``<1.0`` takes no 1.0rc1, ``>1.0`` takes no 1.0.post1."""
    same_number = version.release == bound.release
    if operator == "<":
        return version.key < bound.key and not (same_number and version.is_pre and not bound.is_pre)
    if operator == ">":
        return version.key > bound.key and not (same_number and version.post >= 0 and bound.post < 0)
    return {
        "<=": version.key <= bound.key,
        ">=": version.key >= bound.key,
        "==": version.key == bound.key,
        "!=": version.key != bound.key,
    }[operator]


def _starts_with(version: _Version, parts: int, bound: _Version) -> bool:
    """Whether the first *parts* numbers are those of *bound*; numbers not written are 0."""
    wanted, given = ((*side.release, *[0] * parts)[:parts] for side in (bound, version))
    return wanted == given
