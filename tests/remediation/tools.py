"""The real programs that patches are tried on: git, patch, bash and systemd's own parser."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from logtriage.model import Applicability, Change, Patch, Remediation
from logtriage.remediation import propose_patch
from logtriage.remediation.diff import unified_diff

SYSTEMD = Path("/lib/systemd/systemd")
STUB = """#!/bin/sh
printf '%s\\0' "$@" "A=$A" >> "$ARGV_FILE"
printf '\\n' >> "$ARGV_FILE"
"""


def remediation(
    *changes: Change, title: str = "Mend it", applicability: Applicability = "safe"
) -> Remediation:
    return Remediation(title=title, applicability=applicability, changes=changes)


def set_flag(name: str, value: str | None = None, *, old: str | None = None) -> Remediation:
    return remediation(Change("set-flag", name, value, old=old))


TRITON = set_flag("--attention-backend", "triton", old="flashinfer")


def patched(wanted: Remediation, text: str, path: str = "deploy/llm.service") -> str:
    """Propose a patch, hold it to the laws that every patch obeys, and return the new text."""
    patch = propose_patch(wanted, text, path)
    assert (patch.before, patch.path, patch.creates) == (text, path, False)
    again = propose_patch(wanted, patch.after, path)
    assert again.before == again.after == patch.after
    assert unified_diff(again) == ""
    return patch.after


def applied(patch: Patch, tool: str) -> str:
    """Apply the diff of a patch with *tool* (``git`` or ``patch``) in an empty folder; return the file."""
    relative = os.path.normpath(patch.path).lstrip("/")
    command = {"git": ["git", "apply", "-"], "patch": ["patch", "-p1", "--binary", "--quiet"]}[tool]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, relative)
        if not patch.creates:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(patch.before.encode())
        diff = unified_diff(patch).encode()
        environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(Path(folder).parent)}
        done = subprocess.run(
            command, cwd=folder, input=diff, capture_output=True, check=False, env=environment
        )
        assert done.returncode == 0, (done.stdout + done.stderr).decode() + diff.decode()
        assert [p for p in Path(folder).rglob("*") if p.is_file()] == [file]
        return file.read_bytes().decode()


def run_script(
    text: str, *arguments: str, programs: tuple[str, ...] = ("python3", "python")
) -> list[list[str]]:
    """Run a script with stubs for *programs*; return the arguments of each call of one."""
    return [call[:-1] for call in calls_of(text, *arguments, programs=programs)]


def calls_of(
    text: str, *arguments: str, programs: tuple[str, ...] = ("python3", "python")
) -> list[list[str]]:
    """Like :func:`run_script`, with the variable ``A`` as the server sees it behind the arguments."""
    with tempfile.TemporaryDirectory() as folder:
        for program in programs:
            stub = Path(folder, program)
            stub.write_text(STUB)
            stub.chmod(0o755)
        script = Path(folder, "run.sh")
        script.write_bytes(text.encode())
        calls = Path(folder, "calls")
        calls.touch()
        environment = {"PATH": f"{folder}:/usr/bin:/bin", "ARGV_FILE": str(calls)}
        checked = subprocess.run(["bash", "-n", str(script)], capture_output=True, check=False)
        assert checked.returncode == 0, checked.stderr.decode()
        done = subprocess.run(
            ["bash", str(script), *arguments], cwd=folder, env=environment, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return [call.split("\0")[:-1] for call in calls.read_bytes().decode().split("\n")[:-1]]


def systemd_commands(*units: tuple[str, str]) -> list[list[str]] | None:
    """The command lines systemd itself reads from ``(file name, text)``; ``None`` where it is not installed.

    The first is the unit.  ``--test`` dumps what was loaded and starts nothing.
    """
    if not SYSTEMD.exists() or shutil.which("systemd-analyze") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)  # noqa: PTH101  # read by another user below
        for name, text in units:
            Path(folder, name).parent.mkdir(exist_ok=True, mode=0o755)
            Path(folder, name).write_bytes(text.encode())
        environment = {
            "SYSTEMD_UNIT_PATH": f"{folder}:/usr/lib/systemd/user",
            "XDG_RUNTIME_DIR": folder,
            "HOME": folder,
            "PATH": "/usr/bin:/bin",
        }
        # A user's instance refuses to run as root.
        identity = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
        command = [str(SYSTEMD), "--test", "--user", f"--unit={units[0][0]}", "--no-pager"]
        done = subprocess.run(
            command, env=environment, user=identity, capture_output=True, check=False, timeout=60
        )
    # One section for each unit loaded.
    sections = done.stdout.decode().split("-> Unit ")
    lines = next(section for section in sections if section.startswith(units[0][0])).splitlines()
    # Doubled dollars are only read when the command is run.
    shown = [line.split("Command Line: ", 1)[1] for line in lines if "Command Line: " in line]
    words = [shlex.split(line.replace("\\$", "$")) for line in shown]
    return [[word.replace("$$", "$") for word in line] for line in words]
