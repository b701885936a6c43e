"""A flag as a person typed it and a release go in; what that release takes it for comes out.

The table beside this module was gathered from released sources: which names a
flag has had, since and until which release, whether it takes a value, and the
values it allows.  A release between two known ones is judged by the earlier.
"""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Final, Literal

import attrs
import regex

__all__ = [
    "did_you_mean",
    "flag_arity",
    "knows_flag",
    "knows_value",
    "replacement_of",
    "resolve_flag",
    "same_flag",
]

Arity = Literal["none", "one", "many", "maybe"]
_Release = tuple[int, ...]

_RELEASE: Final = regex.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:\.?post(\d{1,4}))?")


@attrs.frozen
class _Life:
    """The releases that have a name: the first, and the last or ``None``."""

    since: _Release
    until: _Release | None

    def holds(self, release: _Release | None) -> bool:
        """Whether *release* has the name; unknown releases have every name there ever was."""
        return release is None or (self.since <= release and (self.until is None or release <= self.until))


@attrs.frozen
class _Flag:
    """One flag of the table.

    Attributes:
        name: Its canonical name.
        names: Every name it has had, with the releases that have it.
        takes: Whether a value follows; ``None``: not known.
        instead: The flag that took its place.
        choices: Allowed values by the first release that has them; ``None``: any.
    """

    name: str
    names: Mapping[str, _Life]
    takes: Arity | None
    instead: str | None
    choices: tuple[tuple[_Release, frozenset[str] | None], ...]


def resolve_flag(name: str, release: str | None = None) -> str | None:
    """Find the flag that *name* stands for, as argparse would.

    Args:
        name: An option as typed: its name, another name of it, or a beginning
            that only one option has.
        release: The engine release; ``None`` for the newest known, then any.

    Returns:
        The canonical name; ``None`` if no option, or more than one, fits.

    >>> resolve_flag("--tp"), resolve_flag("--tensor-parallel-size"), resolve_flag("--enable")
    ('--tp-size', '--tp-size', None)
    """
    if not name.startswith("--") or len(name) < 3:
        return None
    if release is None:
        return _resolve(name, _newest()) or _resolve(name, None)
    return _resolve(name, _read_release(release))


def same_flag(first: str, second: str) -> bool:
    """Say whether two spellings mean one flag: other names, beginnings and underscores included.

    >>> same_flag("--tp", "--tensor-parallel-size"), same_flag("--attention_backend", "--attention-backend")
    (True, True)
    """
    if first == second:
        return True
    return _canonical(first) == _canonical(second)


def knows_flag(name: str, release: str | None = None) -> bool:
    """Say whether the release takes *name*; a beginning of an option counts, as in argparse."""
    return resolve_flag(name, release) is not None


def knows_value(name: str, value: str, release: str | None = None) -> bool | None:
    """Say whether the release lets the flag have *value*.

    Returns:
        ``None`` if that is not known: free text, or a flag the table lacks.

    >>> knows_value("--attention-backend", "fa4", "0.5.3"), knows_value("--attention-backend", "fa4", "0.5.2")
    (True, False)
    """
    flag = _table().get(resolve_flag(name, release) or "")
    if flag is None or not flag.choices:
        return None
    at = _newest() if release is None else _read_release(release)
    known = [allowed for since, allowed in flag.choices if at is not None and since <= at]
    return value in known[-1] if known and known[-1] is not None else None


def flag_arity(name: str, release: str | None = None) -> Arity | None:
    """Say what follows the flag: ``none``, ``one`` value, ``many``, ``maybe`` one; ``None`` if not known."""
    flag = _table().get(resolve_flag(name, release) or _canonical(name))
    if flag is None:
        return None
    return flag.takes


def replacement_of(name: str) -> str | None:
    """Name the flag that took the place of *name*, if one did.

    >>> replacement_of("--nsa-prefill-backend")
    '--dsa-prefill-backend'
    """
    flag = _table().get(_canonical(name))
    return flag.instead if flag else None


def did_you_mean(word: str, candidates: Iterable[str] | None = None) -> str | None:
    """Find the candidate a person most likely meant by *word*.

    Args:
        word: An unknown option, or a value that is no choice.
        candidates: What was allowed; ``None``: the options of the newest known release.

    Returns:
        The closest candidate, or ``None`` if none is close.

    >>> did_you_mean("--attention_backend"), did_you_mean("flash_infer", ["flashinfer", "triton"])
    ('--attention-backend', 'flashinfer')
    """
    allowed = sorted(candidates) if candidates is not None else sorted(_names(_newest()))
    plain = {_plain(candidate): candidate for candidate in reversed(allowed)}
    if _plain(word) in plain:
        return plain[_plain(word)]
    # Comparing is quadratic in the length of the word, and the word may come from a log.
    close = difflib.get_close_matches(_plain(word[:100]), plain, n=1, cutoff=0.75)
    return plain[close[0]] if close else None


def _plain(word: str) -> str:
    return word.replace("_", "-").lower()


@functools.cache
def _canonical(name: str) -> str:
    """The canonical name if there is one, else the name with dashes."""
    dashed = name.replace("_", "-")
    return resolve_flag(dashed) or dashed


@functools.cache
def _resolve(name: str, release: _Release | None) -> str | None:
    names = _names(release)
    if name in names:
        return names[name]
    found = {canonical for other, canonical in names.items() if other.startswith(name)}
    return found.pop() if len(found) == 1 else None


@functools.cache
def _names(release: _Release | None) -> Mapping[str, str]:
    """Every name the release has, with the canonical one."""
    return {
        name: flag.name
        for flag in _table().values()
        for name, life in flag.names.items()
        if life.holds(release)
    }


@functools.cache
def _newest() -> _Release:
    return _read_release(_data()["last"]) or ()


@functools.cache
def _data() -> dict[str, str]:
    text = resources.files(__package__).joinpath("flags-sglang.json").read_text(encoding="utf-8")
    data: dict[str, str] = json.loads(text)
    return data


@functools.cache
def _table() -> Mapping[str, _Flag]:
    rows: object = _data()["flags"]
    assert isinstance(rows, dict)
    flags = {name: _read_flag(name, row) for name, row in rows.items()}
    for name, row in rows.items():
        if "negatable" in row:
            # argparse.BooleanOptionalAction: the release also takes the flag with "no-" before it.
            opposite = f"--no-{name[2:]}"
            life = _life(row["negatable"], row.get("until"))
            flags[opposite] = _Flag(opposite, {opposite: life}, "none", None, ())
    return flags


def _read_flag(name: str, row: Mapping[str, object]) -> _Flag:
    aliases = row.get("aliases", {})
    choices = row.get("choices", {})
    assert isinstance(aliases, dict)
    assert isinstance(choices, dict)
    names = {name: _life(row["since"], row.get("until"))}
    names |= {alias: _life(*span) for alias, span in aliases.items()}
    takes, instead = row.get("takes"), row.get("instead")
    return _Flag(
        name=name,
        names=names,
        takes=takes,  # type: ignore[arg-type]  # our own data file, held to the literal by a test
        instead=instead if isinstance(instead, str) else None,
        choices=_read_choices(choices),
    )


def _life(since: object, until: object = None) -> _Life:
    return _Life(_read_release(str(since)) or (), _read_release(str(until)) if until else None)


def _read_choices(rows: Mapping[str, str | None]) -> tuple[tuple[_Release, frozenset[str] | None], ...]:
    """Turn rows of values, or of ``+value`` and ``-value`` against the row before, into sets."""
    sets: list[tuple[_Release, frozenset[str] | None]] = []
    current: frozenset[str] = frozenset()
    for release, text in rows.items():
        words = text.split() if text is not None else []
        if words and words[0][0] in "+-":
            current |= {word[1:] for word in words if word[0] == "+"}
            current -= {word[1:] for word in words if word[0] == "-"}
        elif words:
            current = frozenset(words)
        sets.append((_read_release(release) or (), current if text is not None else None))
    return tuple(sets)


def _read_release(text: str) -> _Release | None:
    """Order a release: ``0.4.6.post5`` after ``0.4.6``; what follows (``.dev7``, ``+cu130``) is ignored."""
    found = _RELEASE.match(text.strip())
    return tuple(int(part or 0) for part in found.groups()) if found else None
