"""A report goes in; one line of JSON for each diagnosis comes out, in the order of time."""

from __future__ import annotations

from logtriage.model import Report
from logtriage.renderers.json import diagnosis_to_dict, dumps

__all__ = ["render"]


def render(report: Report, *, color: bool = False, verbose: bool = False) -> str:  # noqa: ARG001  as every renderer
    """Each diagnosis as one line; nothing at all when nothing crashed."""
    return "".join(f"{dumps(diagnosis_to_dict(diagnosis))}\n" for diagnosis in report.diagnoses)
