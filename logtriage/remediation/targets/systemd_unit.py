"""Units of systemd: service files, drop-ins, and what ``systemctl cat`` prints."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs
import regex

from logtriage.remediation.launches import (
    arguments_from_variables,
    likeliest_launch,
    nested_launches,
    program_of,
    script_in,
    start_of_arguments,
    variables_before,
    variables_of,
)
from logtriage.remediation.program import ArgumentList, Launch, Program, Variable, refusal
from logtriage.remediation.shell import Array
from logtriage.remediation.source import Edit, View, new_line_of
from logtriage.remediation.targets.target import Target
from logtriage.remediation.unit import Setting, UnitError, read_commands, read_settings, read_words
from logtriage.remediation.words import Part, Word, quote

__all__ = ["TARGET", "effective_commands", "unit_name"]

_SERVICE: Final = regex.compile(r"^[ \t]*+\[Service\][ \t]*+\r?$|^[ \t]*+ExecStart=", regex.MULTILINE)
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_GAP: Final = regex.compile(r"(?:[ \t]|\\\r?\n)*+")


def detect(text: str, _path: str) -> bool:
    """Whether it is a unit: it has a section ``[Service]``, or a line ``ExecStart=``."""
    return _SERVICE.search(text) is not None


def read(text: str, path: str) -> Program:
    """Read a unit.

    Raises:
        PatchError: It cannot be read, or its command ends where its author meant it to go on.
    """
    settings = read_settings(View.of_file(text))
    try:
        commands = [
            (setting, words)
            for setting in effective_commands(settings)
            for words in read_commands(setting.value)
        ]
        variables = _variables(settings, commands)
    except UnitError as error:
        raise refusal(error.reason, text, path, error.place) from error
    arrays = [array for _, words in commands for array in _arrays(words)]
    launches = [launch for setting, words in commands for launch in _launches(setting, words)]
    if not launches and len(commands) == 1:
        # What else could it be that this service starts.
        launches = _only_launch(*commands[0])
    for launch in launches:
        if launch.cut is not None:
            reason = "a blank follows the backslash, so systemd ends the command here"
            raise refusal(reason, text, path, launch.cut)
    files = (setting.value.text.lstrip("-") for setting in settings if setting.key == "EnvironmentFile")
    elsewhere = tuple(name for name in files if name)
    followed = tuple(_follow(launch, variables, arrays) for launch in launches)
    return Program(text, path, followed, variables, elsewhere)


def effective_commands(settings: Sequence[Setting]) -> list[Setting]:
    """The ``ExecStart=`` that count: an empty one takes back all before it."""
    found: list[Setting] = []
    for setting in settings:
        if setting.section == "Service" and setting.key == "ExecStart":
            found = [*found, setting] if setting.value.text else []
    return found


def _launches(setting: Setting, words: tuple[Word, ...]) -> list[Launch]:
    nested = [launch for word in words for launch in nested_launches(word)]
    if nested:
        return [
            Launch(inner.arguments, words, setting.start, cut=setting.cut or inner.cut) for inner in nested
        ]
    start = start_of_arguments(words)
    if start is None:
        return []
    return [Launch((ArgumentList(words[start:], words[start - 1]),), words, setting.start, cut=setting.cut)]


def _only_launch(setting: Setting, words: tuple[Word, ...]) -> list[Launch]:
    """Take the only command for the server, or the likeliest one in what it tells a shell to do."""
    own = ArgumentList(words[1:], words[0])
    if program_of(words) in _SHELLS and "-" in words[min(1, len(words) - 1)].text[:1]:
        script = script_in(words[-1], known=False)
        found = likeliest_launch(script) if script else []
        return [
            Launch(inner.arguments, words, setting.start, cut=setting.cut or inner.cut, known=False)
            for inner in found
        ]
    return [Launch((own,), words, setting.start, cut=setting.cut, known=False)]


def _follow(launch: Launch, variables: Mapping[str, Sequence[Variable]], arrays: Sequence[Array]) -> Launch:
    more = arguments_from_variables(launch.arguments[0], variables, arrays)
    return attrs.evolve(launch, arguments=(*launch.arguments, *more))


def _arrays(words: Sequence[Word]) -> Iterator[Array]:
    for word in words:
        script = script_in(word)
        if script:
            yield from script.arrays


def _variables(
    settings: Sequence[Setting], commands: Sequence[tuple[Setting, tuple[Word, ...]]]
) -> Mapping[str, tuple[Variable, ...]]:
    """The variables of ``Environment=`` and those that the commands set themselves."""
    grouped: dict[str, list[Variable]] = defaultdict(list)
    for setting in settings:
        if setting.section == "Service" and setting.key == "Environment":
            if not setting.value.text:
                grouped.clear()
            for variable in _environment(setting):
                grouped[variable.name].append(variable)
    for _, words in commands:
        inner = [script for word in words if (script := script_in(word))]
        for variable in [*variables_before(words), *(v for script in inner for v in variables_of(script))]:
            grouped[variable.name].append(variable)
    return {name: tuple(found) for name, found in grouped.items()}


def _environment(setting: Setting) -> Iterator[Variable]:
    words = read_words(setting.value, "environment")
    for index, word in enumerate(words):
        name, equals, _ = word.text.partition("=")
        if equals:
            value = Part(word, len(name) + 1, len(word.text))
            before = words[index - 1] if index else None
            yield Variable(name, value, (word,), before, exported=True, alone=len(words) == 1)


def add_variable(program: Program, name: str, value: str) -> list[Edit]:
    """Put an ``Environment=`` behind those there are, or before the command.

    Raises:
        PatchError: The file has no ``[Service]``.
    """
    settings = [s for s in read_settings(View.of_file(program.text)) if s.section == "Service"]
    new_line = new_line_of(program.text)
    line = f"Environment={quote(f'{name}={value}', 'environment')}"
    present = [setting for setting in settings if setting.key == "Environment"]
    if present:
        at = present[-1].end
        if program.text[at - 1] != "\n":
            return [Edit(at, at, new_line + line)]
        return [Edit(at, at, line + new_line)]
    commands = effective_commands(settings)
    if commands:
        at = commands[0].start
        return [Edit(at, at, line + new_line)]
    header = regex.search(r"^[ \t]*+\[Service\][ \t]*+(?:\r?\n|$)", program.text, regex.MULTILINE)
    if header is None:
        raise program.refuse("there is no section [Service]")
    return [Edit(header.end(), header.end(), line + new_line)]


def drop_variable(program: Program, variable: Variable) -> Edit:
    """Take an assignment out, with its ``Environment=`` if that holds nothing else."""
    first, last = variable.words[0], variable.words[-1]
    if variable.alone:
        for setting in read_settings(View.of_file(program.text)):
            if setting.start <= first.file_start < setting.end:
                return Edit(setting.start, setting.end, "")
    if variable.before is not None:
        return Edit(variable.before.file_end, last.file_end, "")
    gap = _GAP.match(program.text, last.file_end)
    return Edit(first.file_start, gap.end() if gap else last.file_end, "")


def unit_name(path: str) -> str:
    """The unit that a file belongs to.

    >>> unit_name("/etc/systemd/system/llm.service.d/override.conf"), unit_name("deploy/llm@.service")
    ('llm.service', 'llm@INSTANCE.service')
    """
    folder, name = posixpath.split(path)
    if name.endswith(".conf") and folder.endswith(".d"):
        name = posixpath.basename(folder)[: -len(".d")]
    if not name.endswith(".service"):
        return "UNIT"
    return name.replace("@.service", "@INSTANCE.service")


def steps(path: str) -> tuple[str, ...]:
    """What to do after the unit was changed."""
    unit = unit_name(path)
    user = " --user" if "/user/" in path else ""
    return (
        f"systemctl{user} daemon-reload",
        f"systemctl{user} reset-failed {unit}",
        f"systemctl{user} restart {unit}",
        f"journalctl{user} -fu {unit}  # until the server says that it is ready",
    )


TARGET: Final = Target("systemd-unit", detect, read, add_variable, drop_variable, steps)
