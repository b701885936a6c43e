"""The sorts of file that start a server; each knows its own grammar and nothing of the others."""

from logtriage.remediation.targets import shell_script, systemd_unit
from logtriage.remediation.targets.target import Target

__all__ = ["TARGETS", "Target"]

#: In the order they are asked whether a file is theirs; the last takes what no other wants.
TARGETS: tuple[Target, ...] = (systemd_unit.TARGET, shell_script.TARGET)
