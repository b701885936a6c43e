"""A remediation and the text of a file go in; the patch that makes its changes there comes out.

Law: the patched text, read again, differs from the original in exactly the
options and variables that were meant, or there is no patch.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
import regex

from logtriage.errors import Location, PatchError
from logtriage.model import Change, Patch, Remediation
from logtriage.remediation.changes import apply_change, notes_on
from logtriage.remediation.diff import unified_diff
from logtriage.remediation.source import View
from logtriage.remediation.targets import TARGETS, Target, systemd_unit
from logtriage.remediation.unit import Setting, read_settings

__all__ = ["drop_in", "propose_patch"]

# Removals come first: what is set last must not be taken out again under another spelling.
_PATCHABLE: Final = ("remove-flag", "unset-env", "set-flag", "set-env")
# A launch file is written by hand; the largest unit seen has 40 lines.
_MAX_LENGTH: Final = 64_000
# ``systemctl cat`` prints the name of each file before its text.
_HEADER: Final = regex.compile(r"^# (/\S++)\r?\n", regex.M)
_DROP_IN_NAME: Final = "50-logtriage.conf"
_VENDOR_FOLDERS: Final = ("/usr/lib/systemd/", "/lib/systemd/", "/usr/local/lib/systemd/")


def propose_patch(remediation: Remediation, text: str, path: str, *, target: str | None = None) -> Patch:
    """Make the changes of a remediation in a file that starts the server.

    Args:
        remediation: What to change.  Changes that no file can hold (installing
            something, requiring a release) are left to the person.
        text: The file's text, line breaks as they are.
        path: Its name, as the diff should give it.
        target: The sort of file; ``None``: found out from the text.
            ``systemd-drop-in`` makes a new file beside the unit.

    Returns:
        The patch.  If the file already says what the remediation asks for,
        its text before and after are the same.

    Raises:
        PatchError: The changes cannot be made safely here; says why, and on which line.
    """
    changes = _patchable(remediation, path)
    if target == "systemd-drop-in":
        return drop_in(remediation, text, path)
    chosen = _choose(text, path, target)
    after = _apply_all(chosen, changes, text, path)
    steps = (*_notes(chosen, changes, after, path), *chosen.steps(path))
    if chosen.kind == "systemd-unit" and _HEADER.match(text):
        return _one_fragment(text, after, path, changes)
    return _made(Patch(path=path, before=text, after=after, kind=chosen.kind, steps=steps))


def drop_in(remediation: Remediation, text: str, path: str) -> Patch:
    """Make the changes in a new file beside a unit, which stays as it is.

    A second ``ExecStart=`` is refused by systemd unless an empty one comes
    before it, and then it has to be the complete command.

    Args:
        remediation: What to change.
        text: The unit, or what ``systemctl cat`` prints.
        path: Its name.

    Returns:
        A patch that creates the drop-in.

    Raises:
        PatchError: The changes cannot be made safely; says why.
    """
    changes = _patchable(remediation, path)
    target = systemd_unit.TARGET
    if not target.detect(text, path):
        raise PatchError("only a systemd unit can have a drop-in", location=Location(Path(path)))
    after = _apply_all(target, changes, text, path)
    lines = [*_command_lines(text, after), *_environment_lines(text, after, path)]
    body = "\n".join(["[Service]", *lines, ""]) if lines else ""
    steps = (*_notes(target, changes, after, path), *target.steps(path))
    name = _drop_in_path(text, path)
    return _made(Patch(path=name, before="", after=body, kind="systemd-drop-in", steps=steps, creates=True))


def _patchable(remediation: Remediation, path: str) -> list[Change]:
    changes = [change for change in remediation.changes if change.op in _PATCHABLE]
    if not changes:
        reason = f"no file can hold what this remediation asks for: {remediation.title}"
        raise PatchError(reason, location=Location(Path(path)))
    return sorted(changes, key=lambda change: _PATCHABLE.index(change.op))


def _choose(text: str, path: str, name: str | None) -> Target:
    location = Location(Path(path))
    if len(text) > _MAX_LENGTH:
        raise PatchError("the file is too long to be a launch file", location=location)
    if "\0" in text:
        raise PatchError("the file is not text", location=location)
    for target in TARGETS:
        if target.kind == name if name else target.detect(text, path):
            return target
    kinds = ", ".join([*(target.kind for target in TARGETS), "systemd-drop-in"])
    if name:
        raise PatchError(f"there is no sort of file called {name!r}, only {kinds}", location=location)
    raise PatchError(f"this is no file of a known sort ({kinds}) that starts a server", location=location)


def _apply_all(target: Target, changes: Sequence[Change], text: str, path: str) -> str:
    for change in changes:
        text = apply_change(target, change, text, path, [other for other in changes if other is not change])
    return text


def _notes(target: Target, changes: Sequence[Change], text: str, path: str) -> list[str]:
    program = target.read(text, path)
    return [note for change in changes for note in notes_on(program, change)]


def _one_fragment(text: str, after: str, path: str, changes: Sequence[Change]) -> Patch:
    """Cut the patch of what ``systemctl cat`` printed down to the one file of it that changes."""
    before, changed = _fragments(text), _fragments(after)
    names = [name for name, part in before.items() if changed.get(name) != part]
    if len(names) > 1 or list(before) != list(changed):
        reason = f"the changes fall into several files ({', '.join(names)}); make a drop-in instead"
        raise PatchError(reason, location=Location(Path(path)))
    name = names[0] if names else list(before)[-1]
    target = systemd_unit.TARGET
    steps = (*_notes(target, changes, after, path), *target.steps(name))
    return _made(Patch(path=name, before=before[name], after=changed[name], kind="systemd-unit", steps=steps))


def _fragments(text: str) -> dict[str, str]:
    """The files in what ``systemctl cat`` printed, which puts an empty line between two."""
    headers = list(_HEADER.finditer(text))
    ends = [header.start() for header in headers[1:]]
    parts = {}
    for header, end in zip(headers, [*ends, len(text)], strict=True):
        part = text[header.end() : end]
        parts[header[1]] = part.removesuffix("\n") if end < len(text) and part.endswith("\n\n") else part
    return parts


def _command_lines(text: str, after: str) -> list[str]:
    """The complete new command, if it is another than before."""
    old, new = _commands(text), _commands(after)
    return ["ExecStart=", *new] if old != new else []


def _commands(text: str) -> list[str]:
    settings = systemd_unit.effective_commands(read_settings(View.of_file(text)))
    return [_plain_lines(text, setting) for setting in settings]


def _plain_lines(text: str, setting: Setting) -> str:
    return text[setting.start : setting.end].replace("\r\n", "\n").rstrip("\n")


def _environment_lines(text: str, after: str, path: str) -> list[str]:
    """The variables that are set otherwise than before, and those that are no more."""
    old, new = _environment(text, path), _environment(after, path)
    added = [line for name, line in new.items() if old.get(name) != line]
    return [*added, *(f"UnsetEnvironment={name}" for name in old if name not in new)]


def _environment(text: str, path: str) -> dict[str, str]:
    program = systemd_unit.TARGET.read(text, path)
    settings = [s for s in read_settings(View.of_file(text)) if s.key == "Environment"]
    lines: dict[str, str] = {}
    for name, found in program.variables.items():
        for variable in found:
            word = variable.words[-1]
            if any(setting.start <= word.file_start < setting.end for setting in settings):
                lines[name] = f"Environment={text[word.file_start : word.file_end]}"
    return lines


def _drop_in_path(text: str, path: str) -> str:
    """Where the drop-in belongs; vendors' folders are not for administrators."""
    headers = [header[1] for header in _HEADER.finditer(text)] if _HEADER.match(text) else []
    unit = headers[0] if headers else path
    folder, name = posixpath.split(unit)
    if name.endswith(".conf") and folder.endswith(".d"):
        unit = folder.removesuffix(".d")
    for vendor in _VENDOR_FOLDERS:
        if unit.startswith(vendor):
            unit = f"/etc/systemd/{unit.removeprefix(vendor)}"
    later = any(posixpath.basename(header) > _DROP_IN_NAME for header in headers[1:])
    return f"{unit}.d/{'zz-logtriage.conf' if later else _DROP_IN_NAME}"


def _made(patch: Patch) -> Patch:
    """The patch with its diff."""
    return attrs.evolve(patch, unified=unified_diff(patch))
