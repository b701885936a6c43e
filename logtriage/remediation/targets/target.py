"""What every sort of launch file has to offer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import attrs

from logtriage.remediation.program import Program, Variable
from logtriage.remediation.source import Edit

__all__ = ["Kind", "Target"]

Kind = Literal["systemd-unit", "systemd-drop-in", "shell-script"]


@attrs.frozen
class Target:
    """A sort of file.

    Attributes:
        kind: Its name.
        detect: Says by its text, and its name if that does not tell, whether a file is of this sort.
        read: Reads a file's text; the second argument is its path.
        add_variable: The edits that give the server a variable it does not have.
        drop_variable: The edit that takes one away.
        steps: What to do after the file was changed.
    """

    kind: Kind
    detect: Callable[[str, str], bool]
    read: Callable[[str, str], Program]
    add_variable: Callable[[Program, str, str], list[Edit]]
    drop_variable: Callable[[Program, Variable], Edit]
    steps: Callable[[str], tuple[str, ...]]
