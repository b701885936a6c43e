"""A report goes in; at most 40 lines for a person come out, unless all is asked for, with the answer at the end.

People look at the tail: first what was read, then what happened, last the cause and the fix.
Text from the log stands in an indented column, so it cannot pose as a line of ours.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from typing import Final

import attrs

from logtriage.model import Report
from logtriage.renderers.story import (
    Cure,
    Story,
    gap_line,
    nothing_crashed,
    read_line,
    summary,
    tell,
)

__all__ = ["MAX_LINES", "render"]

MAX_LINES: Final = 40
_WIDTH: Final = 92
_INDENT: Final = 12
_BOLD, _RED, _GREEN, _PLAIN = "\x1b[1m", "\x1b[1;31m", "\x1b[1;32m", "\x1b[0m"
_COLORS: Final = {"Root": _RED, "Evidence": _RED, "Cause": _BOLD, "Fix": _GREEN}


@attrs.frozen
class _Block:
    """A label and the lines beside it.

    Attributes:
        label: The word in the first column.
        lines: The lines, at least one.
        keep: How many lines must stay when room is short; 0: the block may go.
        gap: A blank line stands before it.
    """

    label: str
    lines: tuple[str, ...]
    keep: int = 0
    gap: bool = False

    @property
    def height(self) -> int:
        return len(self.lines) + self.gap


# Which block gives way first when an answer would be longer than a screen.
_SHRINK: Final = (
    "Before", "Gaps", "Or", "Nearly", "Followed", "Unread", "Because", "Why", "Steps", "Cost", "Message", "Next",
    "Cause", "Same fault", "Fix", "Confidence", "Service",
)  # fmt: skip


def render(report: Report, *, color: bool = False, verbose: bool = False) -> str:
    """The report for a person.

    Args:
        report: What triage found.
        color: Mark labels with ANSI colours.
        verbose: However long it gets; lines inside the crash that belong to no event are listed.

    Returns:
        The text; one line if nothing crashed.
    """
    if report.headline is None:
        return nothing_crashed(report.source) + "\n"
    story = tell(report.diagnoses[report.headline])
    patched = any(cure.patch for cure in story.cures)
    room = sys.maxsize if verbose else MAX_LINES
    blocks = [*_before(report), *_event(story), *_unread(story, verbose=verbose), *_answer(story)]
    lines = _laid_out(_fit(blocks, room - patched), color=color)
    return "\n".join((*lines, *_patch(story.cures, room - len(lines)))) + "\n"


# --- the blocks -----------------------------------------------------------------------------------


def _wrapped(text: str, most: int = 100) -> tuple[str, ...]:
    """Lines of the second column; those that are cut off are announced."""
    width = _WIDTH - _INDENT
    lines: list[str] = []
    for line in text.splitlines():
        lines += textwrap.wrap(line.expandtabs(4), width, break_on_hyphens=False) or [""]
    if len(lines) > most:
        lines = [*lines[: most - 1], lines[most - 1][: width - 2] + " …"]
    return tuple(line.rstrip() for line in lines) or ("",)


def _one(text: str) -> str:
    """*text* on one line of the second column."""
    width = _WIDTH - _INDENT
    return text if len(text) <= width else text[: width - 2].rstrip() + " …"


def _before(report: Report) -> list[_Block]:
    blocks = [_Block("Read", _wrapped(read_line(report.source), 2), keep=1)]
    gaps = [_one(gap_line(gap)) for gap in report.source.gaps]
    if gaps:
        blocks.append(_Block("Gaps", tuple(_listed(gaps, 4, "gaps")), keep=1))
    others = [each for index, each in enumerate(report.diagnoses) if index != report.headline]
    if others:
        # The latest are the nearest to the answer.
        rows = [_one(summary(each)) for each in others[-6:]]
        if len(others) > 6:
            rows.insert(0, f"{len(others) - 6} more diagnoses (--format json shows them)")
        blocks.append(_Block("Before", tuple(rows), keep=1))
    return blocks


def _listed(rows: Sequence[str], most: int, noun: str) -> list[str]:
    if len(rows) <= most:
        return list(rows)
    return [*rows[: most - 1], f"and {len(rows) - most + 1} more {noun} (--format json shows them)"]


def _event(story: Story) -> list[_Block]:
    service = (*_wrapped(story.service, 2), *(_wrapped(story.systemd, 2) if story.systemd else ()))
    blocks = [_Block("Service", service, keep=1, gap=True)]
    if story.began:
        blocks.append(_Block("Began", _wrapped(story.began, 2), keep=1))
    root = story.root
    if root is None:
        return [*blocks, _Block("Root", ("no event could be read",), keep=1)]
    blocks.append(
        _Block("Evidence" if root.evidence else "Root", (_one(f"{root.who}, {root.where}"),), keep=1)
    )
    message = [*_wrapped(root.message, 6)]
    if root.origin:
        message.append(_one(f"came from {root.origin}"))
    if root.frame:
        message.append(_one(f"at {root.frame}"))
    blocks.append(_Block("Message", tuple(message), keep=2))
    blocks.append(_Block("Why", _wrapped(root.reason, 2)))
    if story.observers:
        others = f"on {len(story.observers)} more: {', '.join(story.observers)}"
        blocks.append(_Block("Same fault", _wrapped(others, 2), keep=1))
    if story.followers:
        rows = [_one(f"{who}: {reason}") for who, reason in story.followers]
        blocks.append(_Block("Followed", tuple(_listed(rows, 5, "kinds of event")), keep=1))
    return blocks


def _unread(story: Story, *, verbose: bool) -> list[_Block]:
    if verbose and story.unread:
        head, *rows = story.unread
        return [_Block("Unread", (*_wrapped(head), *rows))]
    return [_Block("Unread", (_one(story.lost),), keep=1)] if story.lost else []


def _answer(story: Story) -> list[_Block]:
    title = f"{story.title} [{story.identity}]" if story.known else story.title
    cause = (*_wrapped(title, 3), *(_wrapped(story.cause, 6) if story.cause else ()))
    blocks = [_Block("Cause", cause, keep=2, gap=True)]
    if story.cures:
        blocks += _fix(story.cures[0])
    others = [
        f"{cure.title} ({cure.applicability}){': ' if cure.changes else ''}{'; '.join(cure.changes)}"
        for cure in story.cures[1:]
    ]
    if others:
        rows = _listed(others, 3, "remediations")
        blocks.append(_Block("Or", tuple(line for each in rows for line in _wrapped(each, 2))))
    if story.alternatives and not story.known:
        blocks.append(_Block("Nearly", tuple(_one(each) for each in story.alternatives[:3])))
    if story.known:
        sure = f"{story.confidence}. {story.constraint}" if story.constraint else story.confidence
        blocks.append(_Block("Confidence", _wrapped(sure, 3), keep=1))
    if story.next_steps:
        steps = [line for each in _numbered(story.next_steps[:5]) for line in _wrapped(each, 2)]
        blocks.append(_Block("Next", tuple(steps), keep=2))
    if story.redacted:
        blocks.append(_Block("Redacted", (_one(story.redacted),), keep=1))
    return blocks


def _fix(cure: Cure) -> list[_Block]:
    changes = tuple(_one(f"  {change}") for change in _listed(cure.changes, 6, "changes"))
    blocks = [
        _Block("Fix", (*_wrapped(f"{cure.title} ({cure.applicability})", 2), *changes), keep=1 + len(changes))
    ]
    if cure.rationale:
        blocks.append(_Block("Because", _wrapped(cure.rationale, 2)))
    if cure.steps:
        steps = _listed(_numbered(cure.steps), 6, "steps")
        blocks.append(_Block("Steps", tuple(line for each in steps for line in _wrapped(each, 2)), keep=1))
    if cure.side_effects:
        blocks.append(_Block("Cost", _wrapped(cure.side_effects, 2), keep=1))
    return blocks


def _numbered(steps: Sequence[str]) -> list[str]:
    return [f"{number}. {step}" for number, step in enumerate(steps, 1)] if len(steps) > 1 else list(steps)


# --- the layout -----------------------------------------------------------------------------------


def _fit(blocks: Sequence[_Block], height: int) -> list[_Block]:
    """Shorten blocks, the least important first, until all fit into *height* lines."""
    fitted = list(blocks)
    for label in _SHRINK:
        for index, block in enumerate(fitted):
            excess = sum(each.height for each in fitted) - height
            if excess > 0 and block.label == label and len(block.lines) > block.keep:
                fitted[index] = _cut(block, max(block.keep, len(block.lines) - excess))
    return [block for block in fitted if block.lines]


def _cut(block: _Block, height: int) -> _Block:
    lines = block.lines[:height]
    if lines and not lines[-1].endswith("…"):
        lines = (*lines[:-1], lines[-1][: _WIDTH - _INDENT - 2] + " …")
    return attrs.evolve(block, lines=lines, gap=block.gap and bool(lines))


def _laid_out(blocks: Sequence[_Block], *, color: bool) -> list[str]:
    lines: list[str] = []
    for block in blocks:
        if block.gap:
            lines.append("")
        shown = "" if block.label == "Message" else block.label
        label = f"{shown:{_INDENT}}"
        if color and block.label in _COLORS:
            label = f"{_COLORS[block.label]}{label}{_PLAIN}"
        lines.append(f"{label}{block.lines[0]}".rstrip())
        lines += [f"{'':{_INDENT}}{line}".rstrip() for line in block.lines[1:]]
    return lines


def _patch(cures: Sequence[Cure], room: int) -> list[str]:
    """The diff of the first remediation that has one, if there is room for it."""
    lines = next((cure.patch.splitlines() for cure in cures if cure.patch), [])
    if not lines:
        return []
    label = f"{'Patch':{_INDENT}}"
    owner = next(cure for cure in cures if cure.patch)
    if owner is not cures[0]:
        label += f"for: {_one(owner.title)}; "
    if len(lines) + 1 > room:
        return [f"{label}{len(lines)} lines; `--patch FILE` prints it"]
    return [label.rstrip("; "), *lines]
