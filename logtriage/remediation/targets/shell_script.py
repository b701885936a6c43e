"""Shell scripts, and the files of assignments that scripts and units read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import regex

from logtriage.remediation.launches import (
    arguments_from_variables,
    launches_of,
    likeliest_launch,
    runs_program,
    variables_of,
    words_between_blanks,
)
from logtriage.remediation.program import ArgumentList, Launch, Program, Variable, is_flag, refusal
from logtriage.remediation.shell import Script, ShellError, read_script
from logtriage.remediation.source import Edit, View, new_line_of
from logtriage.remediation.targets.target import Target
from logtriage.remediation.words import quote

__all__ = ["TARGET"]

_SHEBANG: Final = regex.compile(r"#![ \t]*+\S*+(?:[ \t]+\S++)?")
_SHELL_NAME: Final = regex.compile(r"(?:.*[/ \t])?(?:ba|da|z|k)?sh", regex.DOTALL)
# A key at the margin (YAML), an object (JSON), an instruction (Dockerfile), a section (INI).
_OTHER_FORMAT: Final = regex.compile(
    r"^(?:[\w.-]++:(?:[ \t]|\r?$)|\{|FROM[ \t]|\[[\w.-]++\]|import[ \t])", regex.MULTILINE
)
_CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl"})
_ONLY_BLANKS: Final = regex.compile(r"[ \t]*+\r?(?:\n|$)")
_GAP: Final = regex.compile(r"(?:[ \t]|\\\r?\n)*+")


def detect(text: str, path: str) -> bool:
    """Whether it is a shell script: by its first line, its name, or a command in it that starts a server."""
    shebang = _SHEBANG.match(text)
    if shebang is not None:
        return _SHELL_NAME.fullmatch(shebang[0].strip()) is not None
    if path.endswith((".sh", ".bash", ".env")):
        return True
    if _OTHER_FORMAT.search(text):
        return False
    try:
        script = read_script(View.of_file(text))
    except ShellError:
        return False
    if _only_assigns(script):
        return True
    # Prose, or what systemctl status prints, may name a server too.
    places = {launch.at for launch in launches_of(script)}
    commands = [command for command in script.commands if command.words[0].file_start in places]
    return bool(commands) and all(map(runs_program, commands))


def read(text: str, path: str) -> Program:
    """Read a script.

    Raises:
        PatchError: It cannot be read, or a command ends where its author meant it to go on.
    """
    try:
        script = read_script(View.of_file(text))
    except ShellError as error:
        raise refusal(error.reason, text, path, error.place) from error
    # Whoever reads a file of assignments puts all of them into the environment.
    exports_all = _only_assigns(script)
    grouped: dict[str, list[Variable]] = defaultdict(list)
    for variable in variables_of(script):
        exported = variable.exported or exports_all
        grouped[variable.name].append(attrs.evolve(variable, exported=exported))
    variables = {name: tuple(found) for name, found in grouped.items()}
    launches = launches_of(script) or likeliest_launch(script)
    for launch in launches:
        if launch.cut is not None:
            reason = "the command is cut off by a comment, or by a blank after a backslash"
            raise refusal(reason, text, path, launch.cut)
    followed = [_follow(launch, variables, script) for launch in launches]
    if not followed and exports_all:
        followed = _held_in_variables(variables)
    return Program(text, path, tuple(followed), variables)


def _follow(launch: Launch, variables: Mapping[str, Sequence[Variable]], script: Script) -> Launch:
    """Add the arguments that come from variables."""
    more = arguments_from_variables(launch.arguments[0], variables, script.arrays)
    return attrs.evolve(launch, arguments=(*launch.arguments, *more))


def _only_assigns(script: Script) -> bool:
    """Whether it is a file of assignments, as ``EnvironmentFile=`` names."""
    words = [word for command in script.commands for word in command.words if word.text != "export"]
    return bool(words) and all(regex.match(r"[A-Za-z_]\w*+=", word.text) for word in words)


def _held_in_variables(variables: Mapping[str, Sequence[Variable]]) -> list[Launch]:
    """The variables that hold options, each taken for the command line of one server."""
    held = [words_between_blanks(variable.value) for found in variables.values() for variable in found]
    return [
        Launch((ArgumentList(words),), words, words[0].file_start)
        for words in held
        if any(is_flag(word) for word in words)
    ]


def add_variable(program: Program, name: str, value: str) -> list[Edit]:
    """Export a variable before each command that starts a server.

    Raises:
        PatchError: No command does.
    """
    line = f"{name}={quote(value, 'shell')}"
    own = [launch for launch in program.launches if launch.arguments[0].before is not None]
    if not own:
        if program.text.strip() and not program.variables:
            raise program.refuse("no command in this file starts a server")
        end = len(program.text)
        break_first = "" if not program.text or program.text.endswith("\n") else new_line_of(program.text)
        return [Edit(end, end, f"{break_first}{line}{new_line_of(program.text)}")]
    return list({edit.start: edit for edit in (_give(program, launch, line) for launch in own)}.values())


def _give(program: Program, launch: Launch, line: str) -> Edit:
    words = [word.text for word in launch.words]
    if _CONTAINERS & {word.rsplit("/", 1)[-1] for word in words} and "run" in words:
        # The variables of the host do not reach the container.
        at = launch.words[words.index("run")].file_end
        return Edit(at, at, f" -e {line}")
    if not launch.leads_line:
        return Edit(launch.at, launch.at, f"env {line} " if launch.in_array else f"{line} ")
    margin = program.text[program.text.rfind("\n", 0, launch.at) + 1 : launch.at]
    return Edit(launch.at, launch.at, f"export {line}{new_line_of(program.text)}{margin}")


def drop_variable(program: Program, variable: Variable) -> Edit:
    """Take an assignment out, with its line if nothing else stands there."""
    first, last = variable.words[0], variable.words[-1]
    if not variable.alone:
        if variable.before is not None:
            return Edit(variable.before.file_end, last.file_end, "")
        gap = _GAP.match(program.text, last.file_end)
        return Edit(first.file_start, gap.end() if gap else last.file_end, "")
    start = (variable.before or first).file_start
    line = program.text.rfind("\n", 0, start) + 1
    rest = _ONLY_BLANKS.match(program.text, last.file_end)
    if rest and not program.text[line:start].strip():
        return Edit(line, rest.end(), "")
    return Edit(start, last.file_end, f"unset {variable.name}")


def steps(path: str) -> tuple[str, ...]:
    """What to do after the script was changed."""
    return (
        f"start {path} again, or whatever reads it",
        "watch its output for the line that says the server is ready, and for the same failure",
    )


TARGET: Final = Target("shell-script", detect, read, add_variable, drop_variable, steps)
