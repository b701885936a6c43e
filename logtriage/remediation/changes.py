"""A change and a file go in; the changed text comes out, once it is proved to differ as meant."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

import attrs
import regex

from logtriage.errors import PatchError
from logtriage.launch import same_flag
from logtriage.model import Change
from logtriage.remediation.argv import edits_to_remove, edits_to_set, uses_of
from logtriage.remediation.program import Launch, Program
from logtriage.remediation.source import Edit, apply_edits
from logtriage.remediation.targets import Target

__all__ = ["apply_change", "concrete", "notes_on"]

_FLAG_NAME: Final = regex.compile(r"-{1,2}[A-Za-z][\w.-]*+", regex.ASCII)
_VARIABLE_NAME: Final = regex.compile(r"[A-Za-z_]\w*+", regex.ASCII)
_UNFILLED: Final = regex.compile(r"\{\w++\}")
# Two options, or two variables, that follow each other share what stands between them.
_ONE_BY_ONE: Final = frozenset({"remove-flag", "unset-env"})
_MOST_LAUNCHES: Final = 32
_MOST_REPEATS: Final = 20
_DIRECTIONS: Final = frozenset({None, "", "lower", "raise"})
# The second beats the first where both are given.
_OVERRIDES: Final = {
    "--attention-backend": ("--prefill-attention-backend", "--decode-attention-backend"),
    "--linear-attn-backend": ("--linear-attn-prefill-backend", "--linear-attn-decode-backend"),
}


def apply_change(target: Target, change: Change, text: str, path: str, others: Sequence[Change] = ()) -> str:
    """Make one change of a file.

    Args:
        target: The sort of file.
        change: What to change.
        text: The file.
        path: Its name.
        others: What is changed together with it.

    Returns:
        The new text; *text* itself if the file already says so.

    Raises:
        PatchError: It cannot be done in this file without changing anything else.
    """
    program = target.read(text, path)
    _check_names(program, change)
    if change.op in {"set-flag", "remove-flag"} and not program.launches:
        raise program.refuse("no command in this file starts a server")
    if len(program.launches) > _MOST_LAUNCHES:
        raise program.refuse(f"{len(program.launches)} commands in this file start a server")
    change = concrete(program, change)
    if change.op == "set-flag":
        _refuse_overridden(program, change, others)
    after, changed = text, program
    for _ in range(_MOST_REPEATS if change.op in _ONE_BY_ONE else 1):
        edits = _edits(target, changed, change)
        if not edits:
            break
        after = apply_edits(after, edits)
        try:
            changed = target.read(after, path)
        except PatchError as error:
            reason = f"the edit for {change.name} would leave a file that cannot be read"
            raise program.refuse(reason, _place(program, change)) from error
    _verify(program, changed, change)
    return after


def _check_names(program: Program, change: Change) -> None:
    """Refuse what is no option, variable or value: it may have come from a log."""
    pattern = _FLAG_NAME if change.op in {"set-flag", "remove-flag"} else _VARIABLE_NAME
    if not pattern.fullmatch(change.name):
        raise program.refuse(f"{change.name!r} is not the name of an option or variable")
    value = change.value or ""
    if any(ord(character) < 32 or ord(character) == 127 for character in value):
        raise program.refuse(f"the value for {change.name} holds control characters")
    if _UNFILLED.search(value):
        raise program.refuse(f"the log does not say which value {change.name} needs")


def _edits(target: Target, program: Program, change: Change) -> list[Edit]:
    if change.op == "set-flag":
        return edits_to_set(program, change.name, change.value, change.old)
    if change.op == "remove-flag":
        return edits_to_remove(program, change.name)
    known = [item for item in program.variables.get(change.name, ()) if item.exported]
    if change.op == "unset-env":
        return [target.drop_variable(program, item) for item in known[-1:]]
    value = change.value or ""
    if not known:
        return target.add_variable(program, change.name, value)
    for item in known:
        if any(expansion.default is None for expansion in item.value.expansions):
            reason = f"{change.name} is put together from {item.value.text}"
            raise program.refuse(reason, item.words[0].file_start)
    return [edit for item in known if item.value.text != value for edit in item.value.replace(value)]


def concrete(program: Program, change: Change) -> Change:
    """Work out the value of a change that only says ``lower`` or ``raise`` by how much.

    Raises:
        PatchError: The value in force is not known, or is no number.
    """
    if change.op != "set-flag" or change.adjust is None or change.value not in _DIRECTIONS:
        if change.value in {"lower", "raise"}:
            raise program.refuse(f"it is not known how far to {change.value} {change.name}")
        return change
    present = {value for flag in uses_of(program, change.name) for value in program.values_of(flag)}
    values = present or {change.old}
    if len(values) != 1:
        reason = f"{change.name} has several values: {', '.join(sorted(map(str, values)))}"
        raise program.refuse(reason, _place(program, change))
    current = values.pop()
    if current != change.old and change.old is not None:
        wanted = _adjusted(program, change, change.old)
        if current is not None and _same_number(current, wanted):
            # The change was made already; making it again would go too far.
            return attrs.evolve(change, value=current)
    return attrs.evolve(change, value=_adjusted(program, change, current))


def _adjusted(program: Program, change: Change, value: str | None) -> str:
    try:
        number = float(value or "")
    except ValueError:
        number = math.nan
    result = number + (change.adjust or 0.0)
    if not math.isfinite(result):
        now = "not given in this file" if value is None else f"{value}, which is no number"
        raise program.refuse(f"{change.name} is {now}, so it cannot be adjusted", _place(program, change))
    if result <= 0:
        reason = f"{change.name} is {value} and cannot be lowered by {-(change.adjust or 0):g}"
        raise program.refuse(reason, _place(program, change))
    if value is not None and value.lstrip("+-").isdigit():
        return str(round(result))
    return str(round(result, 4))


def _same_number(first: str, second: str) -> bool:
    try:
        return math.isclose(float(first), float(second), abs_tol=1e-9)
    except ValueError:
        return False


def _refuse_overridden(program: Program, change: Change, others: Sequence[Change]) -> None:
    """Refuse if another option with the failing value would still win."""
    failing = change.old
    if failing is None:
        values = {value for flag in uses_of(program, change.name) for value in program.values_of(flag)}
        values -= {change.value}
        failing = values.pop() if len(values) == 1 else None
    for sibling in _OVERRIDES.get(change.name, ()):
        if any(same_flag(other.name, sibling) for other in others):
            continue
        for flag in uses_of(program, sibling):
            if failing is not None and failing in program.values_of(flag):
                reason = f"{flag.name} is {failing} too and beats {change.name}; it has to be changed first"
                raise program.refuse(reason, flag.words[0].file_start)


def notes_on(program: Program, change: Change) -> list[str]:
    """What a person should know about a change besides the diff."""
    if change.op == "set-env":
        return [
            f"check that {name} does not set {change.name}, which would win" for name in program.elsewhere
        ]
    if change.op != "set-flag":
        return []
    notes: list[str] = []
    for sibling in _OVERRIDES.get(change.name, ()):
        notes += [
            f"note that {flag.name} {program.value_of(flag)} stays and beats {change.name} for its phase"
            for flag in uses_of(program, sibling)
            if program.values_of(flag) != {change.value}
        ]
    notes += [
        f"check that nothing else sets {flag.value.text}, which gives {flag.name} its value"
        for flag in uses_of(program, change.name)
        if flag.value is not None and flag.value.expansions
    ]
    notes += [
        f"check that {launch.words[0].text} hands {change.name} on to the server"
        for launch in program.launches
        if not launch.known and launch.words
    ]
    lists = [arguments for launch in program.launches for arguments in launch.arguments]
    if any(word.text in {"$@", "$*", "${@}"} for arguments in lists for word in arguments.words):
        notes.append(f"check that the caller does not pass {change.name}: its arguments may win")
    return notes


_Pairs = Counter[tuple[int, str, frozenset[str | None]]]


def _pairs(program: Program, launches: Sequence[Launch]) -> _Pairs:
    return Counter(
        (index, flag.name, program.values_of(flag))
        for index, launch in enumerate(launches)
        for flag in launch.flags()
    )


def _rest(program: Program) -> list[str]:
    """The arguments that are no options."""
    rest: list[str] = []
    for launch in program.launches:
        taken = {word.file_start for flag in launch.flags() for word in flag.words}
        rest += [
            word.text
            for arguments in launch.arguments
            for word in arguments.words
            if word.file_start not in taken
        ]
    return rest


def _environment(program: Program) -> Counter[tuple[str, str]]:
    return Counter(
        (name, program.resolve(item.value))
        for name, items in program.variables.items()
        for item in items
        if item.exported
    )


def _verify(before: Program, after: Program, change: Change) -> None:
    """Hold the edited program against the original: only what was meant may differ.

    Raises:
        PatchError: Something else differs, or the change is not there.
    """
    is_flag = change.op in {"set-flag", "remove-flag"}
    old, new = _pairs(before, before.launches), _pairs(after, after.launches)
    settings, new_settings = _environment(before), _environment(after)
    names = {flag.name for flag in uses_of(before, change.name)} | {change.name} if is_flag else set()
    beside = {name for _, name, _ in (old - new) + (new - old)} - names
    mine = {pair for pair in new if pair[1] in names}
    if not is_flag:
        beside |= {name for name, _ in (settings - new_settings) + (new_settings - settings)} - {change.name}
    if beside or _rest(before) != _rest(after):
        what = ", ".join(sorted(beside)) or "an argument that is no option"
        raise before.refuse(
            f"{change.name} cannot be changed here without changing {what}", _place(before, change)
        )
    settings_now = {value for name, value in new_settings if name == change.name}
    done = {
        "set-flag": any(
            change.value in values and change.old not in values - {change.value} for _, _, values in mine
        )
        and all(change.value in pair[2] or pair in old for pair in mine),
        "remove-flag": not mine,
        "set-env": settings_now == {change.value or ""},
        "unset-env": not settings_now,
    }
    if not done[change.op]:
        raise before.refuse(
            f"{change.name} cannot be changed in the way it is written here", _place(before, change)
        )


def _place(program: Program, change: Change) -> int | None:
    """The line to name: where the option stands, or else the command."""
    uses = uses_of(program, change.name)
    if uses:
        return uses[0].words[0].file_start
    return program.launches[0].at if program.launches else None
