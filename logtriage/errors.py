"""Every exception logtriage raises on purpose.

A damaged or unknown *log* never raises: logs are evidence, and evidence is
allowed to be torn.  Only things a person wrote and can mend -- a signature
file, a patch target, an argument -- raise, and then they say where.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs

__all__ = ["DatabaseError", "Location", "LogtriageError", "PatchError", "SignatureError", "SourceError"]


class LogtriageError(Exception):
    """Base of all exceptions that logtriage raises on purpose."""


@attrs.frozen
class Location:
    """A place in a file a person can open.

    Attributes:
        path: The file.
        key: A JSONPath (``$.match.exception``) or a line (``line 12``) in it.
    """

    path: Path
    key: str = "$"

    def __str__(self) -> str:
        return f"{self.path}: {self.key}"


class SignatureError(LogtriageError):
    """One defect of a signature file."""

    def __init__(self, reason: str, *, location: Location) -> None:
        super().__init__(reason, location)
        self.reason = reason
        self.location = location

    def __str__(self) -> str:
        return f"{self.location}: {self.reason}"


class DatabaseError(LogtriageError):
    """A set of signature files cannot be used; holds every defect found.

    Attributes:
        defects: One :class:`SignatureError` for each defect, in the order of files.
    """

    def __init__(self, defects: Sequence[SignatureError]) -> None:
        super().__init__(*defects)
        self.defects = tuple(defects)

    def __str__(self) -> str:
        return "\n".join(str(defect) for defect in self.defects)


class PatchError(LogtriageError):
    """A change cannot be made safely in this file.

    Attributes:
        reason: Why, in one sentence.
        location: The file and the line that stands in the way.
    """

    def __init__(self, reason: str, *, location: Location | None = None) -> None:
        super().__init__(reason, location)
        self.reason = reason
        self.location = location

    def __str__(self) -> str:
        return f"{self.location}: {self.reason}" if self.location else self.reason


class SourceError(LogtriageError):
    """An input cannot be opened or read; says which, and what to do."""
