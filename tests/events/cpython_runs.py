"""What CPython prints of the programs in ``fixtures/cpython``: recorded, and by the interpreters of this machine."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

__all__ = ["DUMPS", "FIXTURES", "INTERPRETERS", "RECORDED", "VERSIONS", "programs_of", "run_program"]

FIXTURES: Final = Path(__file__).resolve().parents[2] / "fixtures" / "cpython"
VERSIONS: Final = sorted(path.name for path in FIXTURES.glob("3.*"))
RECORDED: Final = sorted(str(path.relative_to(FIXTURES))[:-4] for path in FIXTURES.glob("3.*/*.txt"))


def _recorder() -> Any:
    """The script that recorded the fixtures."""
    spec = importlib.util.spec_from_file_location("record", FIXTURES / "record.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_RECORD: Final = _recorder()
DUMPS: Final[str] = _RECORD.DUMPS


def _version_of(python: str) -> str:
    """``3.12``, or nothing for a name on the path behind which there is no interpreter."""
    done = subprocess.run(
        [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _interpreters() -> dict[str, str]:
    """The interpreters that this machine has, the running one first."""
    found = {"{}.{}".format(*sys.version_info): sys.executable}
    managed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for name in VERSIONS:
        places = [shutil.which(f"python{name}"), *sorted(map(str, managed.glob(f"{name}.*/bin/python")), reverse=True)]
        for place in places:
            if place and name not in found and _version_of(place) == name:
                found[name] = place
    return found


INTERPRETERS: Final = _interpreters()
"""Versions such as ``3.12``, each with the path of its interpreter."""


def programs_of(version: str) -> list[str]:
    """The programs that a version can run, but for the one that dies."""
    old = tuple(map(int, version.split("."))) < (3, 11)
    return [name for name in _RECORD.PROGRAMS if not (old and name in _RECORD.NEEDS_311)]


@functools.cache
def run_program(version: str, program: str) -> tuple[str, str]:
    """What a program prints under an interpreter of this machine, and what is true of it."""
    printed, truth = _RECORD.run_program(INTERPRETERS[version], program)
    return printed, truth
