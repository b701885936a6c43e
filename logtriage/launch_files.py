"""A report and the names of launch files go in; the report with a patch for each of them comes out.

Nothing is written to a file; a file that gets no patch gets a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from logtriage.errors import PatchError, SourceError
from logtriage.model import Patch, Remediation, Report

__all__ = ["Patched", "patch_files", "read_launch_file"]

# A launch file is written by a person; something larger was named by mistake.
_MAX_SIZE: Final = 4 * 1024 * 1024


@attrs.frozen
class Patched:
    """What became of the launch files.

    Attributes:
        report: The report; the headline's remediations hold their patches and what to do after applying them.
        told: The same without the patches, to be shown beside them.
        diff: All diffs, one after the other.
        reasons: Why a file got no patch, one sentence for each.
        unreadable: Some file could not be read.
    """

    report: Report
    told: Report
    diff: str = ""
    reasons: tuple[str, ...] = ()
    unreadable: bool = False


def patch_files(
    report: Report, paths: Sequence[str], *, drop_in: bool = False, target: str | None = None
) -> Patched:
    """Make a patch of each file for the headline of a report.

    Args:
        report: What triage found.
        paths: Files that launch the server, as the diff should name them.
        drop_in: Patch a unit by a drop-in beside it.
        target: What sort of file they are; ``None``: found out from their text.

    Returns:
        The patches, or the reasons why there are none.
    """
    if report.headline is None:
        return Patched(report, report, reasons=("no patch: nothing crashed",))
    remediations = list(report.diagnoses[report.headline].remediations)
    patches: dict[int, list[str]] = {}
    reasons: list[str] = []
    unreadable = False
    for path in paths:
        try:
            index, patch = _first_patch(remediations, read_launch_file(path), path, drop_in, target)
        except SourceError as error:  # noqa: PERF203  a handful of files
            unreadable = True
            reasons.append(str(error))
        except PatchError as error:
            reasons.append(f"no patch for {path}: {error.reason}")
        else:
            patches.setdefault(index, []).append(patch.diff())
            steps = dict.fromkeys((*remediations[index].steps, *patch.steps))
            remediations[index] = attrs.evolve(remediations[index], steps=tuple(steps))
    told = _with_remediations(report, report.headline, remediations)
    for index, diffs in patches.items():
        remediations[index] = attrs.evolve(remediations[index], patch="".join(diffs))
    patched = _with_remediations(report, report.headline, remediations)
    diff = "".join(diff for diffs in patches.values() for diff in diffs)
    return Patched(patched, told, diff, tuple(reasons), unreadable)


def _with_remediations(report: Report, index: int, remediations: Sequence[Remediation]) -> Report:
    diagnoses = list(report.diagnoses)
    diagnoses[index] = attrs.evolve(diagnoses[index], remediations=tuple(remediations))
    return attrs.evolve(report, diagnoses=tuple(diagnoses))


def _first_patch(
    remediations: Sequence[Remediation], text: str, path: str, as_drop_in: bool, target: str | None
) -> tuple[int, Patch]:
    """The patch of the first remediation, best first, that can be made in this file."""
    from logtriage.remediation import drop_in, propose_patch

    reasons: list[str] = []
    for index, remediation in enumerate(remediations):
        # Advice that a person must decide on is not turned into an edit.
        if remediation.applicability == "display-only" or not remediation.changes:
            continue
        try:
            if as_drop_in:
                patch = drop_in(remediation, text, path)
            else:
                patch = propose_patch(remediation, text, path, target=target)
        except PatchError as error:
            place = f"{error.location.key}: " if error.location and error.location.key != "$" else ""
            reasons.append(f"{place}{error.reason}")
            continue
        if patch.before == patch.after:
            # Going on to the next best would undo what the person already did.
            raise PatchError(f"it already says what is proposed ({remediation.title})")
        return index, patch
    raise PatchError("; ".join(dict.fromkeys(reasons)) or "no edit of a launch file is known to mend this")


def read_launch_file(path: str) -> str:
    """Read a launch file; its line ends and bytes that are no UTF-8 survive the way back.

    Args:
        path: The file.

    Returns:
        Its text; undecodable bytes are lone surrogates.

    Raises:
        SourceError: It cannot be read, or is no launch file by its size.
    """
    try:
        with Path(path).open("rb") as stream:
            content = stream.read(_MAX_SIZE + 1)
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) > _MAX_SIZE:
        raise SourceError(f"cannot read {path}: it is too large for a launch file")
    return content.decode("utf-8", "surrogateescape")
