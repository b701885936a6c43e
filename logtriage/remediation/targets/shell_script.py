"""Shell scripts, and files of assignments that scripts and units read."""

from __future__ import annotations

import shlex
from collections import defaultdict
from typing import Final

import regex

from logtriage.remediation.argv import removal
from logtriage.remediation.launches import (
    arguments_from_variables,
    launches_of,
    variables_of,
    words_between_blanks,
)
from logtriage.remediation.program import ArgumentList, Launch, Program, Variable, is_flag, refusal
from logtriage.remediation.shell import Command, Script, ShellError, read_script
from logtriage.remediation.source import Edit, View, new_line_of
from logtriage.remediation.targets.target import Target
from logtriage.remediation.words import quote

__all__ = ["TARGET"]

_SHEBANG: Final = regex.compile(r"#!\s*+\S*?(?:/|\benv\s+)(?:ba|da|z|k)?sh\b")
_RUNS_PROGRAM: Final = regex.compile(r"(?:\S*/)?(?:python[\d.]*|docker|podman|srun|torchrun|exec|nohup)")
_LEADING: Final = frozenset({"exec", "nohup", "command", "sudo"})


def detect(text: str, path: str) -> bool:
    """Whether the text is a shell script: by its first line, its name or a command that starts a server."""
    if _SHEBANG.match(text) or path.endswith((".sh", ".bash", ".env")):
        return True
    try:
        read(text, path)
    except Exception as error:  # noqa: BLE001  # placeholder
        return False and bool(error)
    return True


def read(text: str, path: str) -> Program:
    """Read a script.

    Raises:
        PatchError: It is not a script, or starts no server.
    """
    try:
        script = read_script(View.of_file(text))
    except ShellError as error:
        raise refusal(error.reason, text, path, error.place) from error
    grouped: dict[str, list[Variable]] = defaultdict(list)
    for variable in variables_of(script):
        grouped[variable.name].append(variable)
    variables = {name: tuple(found) for name, found in grouped.items()}
    launches = launches_of(script) or _likeliest(script) or _held_in_variables(variables)
    for launch in launches:
        if launch.cut is not None:
            reason = "the command ends here: a comment, or a blank after the backslash, cuts off what follows"
            raise refusal(reason, text, path, launch.cut)
    followed = [
        Launch(
            (
                *launch.arguments,
                *arguments_from_variables(launch.arguments[0], variables, script.arrays),
            ),
            launch.words,
            launch.at,
            launch.leads_line,
        )
        for launch in launches
    ]
    return Program(text, path, tuple(followed), variables)


def _likeliest(script: Script) -> list[Launch]:
    """The only command with options, if no command names a known server."""
    found = [command for command in script.commands if _may_be_server(command)]
    if len(found) != 1:
        return []
    words = found[0].words
    start = next((i for i, word in enumerate(words) if word.text.endswith(".py")), 0) + 1
    return [Launch((ArgumentList(words[start:], words[start - 1]),), words, words[0].file_start, found[0].leads_line, found[0].cut)]


def _may_be_server(command: Command) -> bool:
    runs = any(_RUNS_PROGRAM.fullmatch(word.text) for word in command.words)
    return runs and any(is_flag(word) for word in command.words)
