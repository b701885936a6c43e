"""A report goes in; text in one of the published formats comes out."""

from __future__ import annotations

from importlib import import_module
from typing import Final, Protocol, cast

from logtriage.model import Report

__all__ = ["RENDERERS", "Renderer", "render"]


class Renderer(Protocol):
    """What every renderer's ``render`` looks like."""

    def __call__(self, report: Report, *, color: bool = False, verbose: bool = False) -> str:
        """The report in this format, with a line break at its end."""
        ...


# Format -> module with a `render`.  Names, not functions: a run needs one of them and pays for one.
RENDERERS: Final = {
    "text": "logtriage.renderers.text",
    "json": "logtriage.renderers.json",
    "jsonl": "logtriage.renderers.jsonl",
    "markdown": "logtriage.renderers.markdown",
}


def render(
    report: Report,
    format: str = "text",  # noqa: A002  contract
    *,
    color: bool = False,
    verbose: bool = False,
) -> str:
    """Show a report.

    Args:
        report: What triage found.
        format: A key of :data:`RENDERERS`.
        color: Mark the important words with ANSI colours, where the format can.
        verbose: The formats for people list the lines inside the crash that belong to no event, however long
            that gets; the others always hold them.

    Returns:
        The text, with a line break at its end.

    Raises:
        ValueError: There is no such format.
    """
    if format not in RENDERERS:
        raise ValueError(f"unknown format {format!r}: choose from {', '.join(RENDERERS)}")
    renderer = cast(Renderer, import_module(RENDERERS[format]).render)
    return renderer(report, color=color, verbose=verbose)
