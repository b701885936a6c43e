"""A report goes in; Markdown for a ticket comes out, the answer first.

Text from the log is hostile here: it may hold fences, HTML, images that phone home, ``@mentions``
and ``#123``.  It stands in code, whose fence is longer than any run of backticks inside, or with
every mark of Markdown escaped; a word that a forge would turn into a link stands in code as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from logtriage.model import Diagnosis, Event, Report, Traceback
from logtriage.renderers.fence import Fence
from logtriage.renderers.story import Cure, Story, gap_line, nothing_crashed, read_line, summary, tell

__all__ = ["block", "code", "prose", "render"]

# Marks that work anywhere, and those that begin a list, a heading or a rule at the start of a line.
_MARKS: Final = re.compile(r"([\\`*_\[\]<>|~&$])")
_LEADING: Final = re.compile(r"(\d{0,9})[-+#=.)]")
# What GitHub and GitLab turn into links: mentions, numbers of issues, URLs, addresses, commit ids.
_LINKED: Final = re.compile(r"@|[#!$%&~^]\w|://|www\.|\bGH-\d|\b[0-9a-fA-F]{7,64}\b", re.IGNORECASE)
_BACKTICKS: Final = re.compile("`+")
_OWN_LINK: Final = re.compile(r"https://[A-Za-z0-9.-]+(?:/[\w./#?=&%+~,-]*)?")
_MAX_FRAMES: Final = 20


def render(report: Report, *, color: bool = False, verbose: bool = False) -> str:  # noqa: ARG001  as every renderer
    """The report for a ticket."""
    if report.headline is None:
        return prose(nothing_crashed(report.source)) + "\n"
    headline = report.diagnoses[report.headline]
    paragraphs = [
        *_answer(tell(headline)),
        *_evidence(headline),
        *_unread(tell(headline), verbose=verbose),
        *_others(report),
        *_source(report),
    ]
    return "\n\n".join(paragraphs) + "\n"


# --- making text harmless -------------------------------------------------------------------------


def prose(text: str) -> str:
    r"""One line of text that Markdown shows as it is.

    >>> prose("see #12, *not* <b>")
    'see `#12,` \\*not\\* \\<b\\>'
    """
    words = [code(word) if _LINKED.search(word) else _MARKS.sub(r"\\\1", word) for word in text.split()]
    if words and (leading := _LEADING.match(words[0])):
        words[0] = f"{leading[1]}\\{words[0][leading.end(1) :]}"
    return " ".join(words)


def code(text: str) -> str:
    """One line as inline code, whatever backticks it holds.

    >>> code("a `b` c")
    '`` a `b` c ``'
    """
    line = " ".join(text.split())
    longest = max((len(run) for run in _BACKTICKS.findall(line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest or not line else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def block(text: str, language: str = "text") -> str:
    """Lines as a fenced block, whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


# --- the parts ------------------------------------------------------------------------------------


def _answer(story: Story) -> Iterator[str]:
    yield f"## {prose(story.service)}"
    identity = f" ({code(story.identity)})" if story.known else ""
    yield f"**Cause:** {prose(story.title)}{identity}"
    if story.cause:
        yield prose(story.cause)
    if story.known:
        yield f"**Confidence:** {story.confidence}{'. ' if story.constraint else ''}{prose(story.constraint)}"
    for number, cure in enumerate(story.cures):
        yield from _cure("Fix" if number == 0 else "Or", cure)
    if story.next_steps:
        yield "**Next steps:**\n\n" + _list(map(prose, story.next_steps))
    if story.alternatives:
        yield "**Also considered:**\n\n" + _list(map(prose, story.alternatives))
    if story.redacted:
        yield f"**Redacted:** {prose(story.redacted)}"


def _cure(label: str, cure: Cure) -> Iterator[str]:
    yield f"**{label}:** {prose(cure.title)} ({cure.applicability})"
    if cure.changes:
        yield _list(map(code, cure.changes))
    if cure.rationale:
        yield prose(cure.rationale)
    if cure.steps:
        yield "\n".join(f"{number}. {code(step)}" for number, step in enumerate(cure.steps, 1))
    if cure.side_effects:
        yield f"**Side effects:** {prose(cure.side_effects)}"
    if cure.references:
        yield "**References:**\n\n" + _list(map(_reference, cure.references))
    if cure.patch:
        yield block(cure.patch, "diff")


def _reference(text: str) -> str:
    return f"<{text}>" if _OWN_LINK.fullmatch(text) else prose(text)


def _list(rows: Iterable[str]) -> str:
    return "\n".join(f"- {row}" for row in rows)


def _evidence(diagnosis: Diagnosis) -> Iterator[str]:
    story = tell(diagnosis)
    yield "### Evidence"
    if story.systemd:
        yield prose(story.systemd)
    if story.began:
        yield f"**Began:** {prose(story.began)}"
    root = story.root
    if root is None:
        yield "No event could be read."
        return
    label = "Earliest evidence, not the cause" if root.evidence else "Root event"
    yield f"**{label}:** {prose(root.who)}, {prose(root.where)}"
    yield block(root.message)
    if root.reason:
        yield f"**Why this one:** {prose(root.reason)}"
    if diagnosis.verdict.root is not None and (stack := _stack(diagnosis.verdict.root)):
        yield block(stack)
    if story.observers:
        yield f"**Same fault on:** {prose(', '.join(story.observers))}"
    if story.followers:
        yield "**What followed:**\n\n" + _list(
            f"{prose(who)}: {prose(reason)}" for who, reason in story.followers[:20]
        )


def _unread(story: Story, *, verbose: bool) -> Iterator[str]:
    if verbose and story.unread:
        head, *rows = story.unread
        yield f"### Unread\n\n{prose(head)}"
        yield block("\n".join(rows))
    elif story.lost:
        yield f"**Unread:** {prose(story.lost)}"


def _stack(event: Event) -> str:
    """The exceptions of a chain with their innermost frames, as CPython orders them."""
    if not isinstance(event, Traceback):
        return ""
    fence = Fence()
    lines: list[str] = []
    for link in event.chain:
        for frame in link.frames[-_MAX_FRAMES:]:
            number = "" if frame.lineno is None else f", line {frame.lineno}"
            lines.append(fence.text(f'  File "{frame.filename}"{number}, in {frame.function}'))
            if frame.line:
                lines.append(fence.text(f"    {frame.line}"))
        lines.append(fence.text(f"{link.type}: {link.message}" if link.message else link.type))
    return "\n".join(lines) if any(link.frames for link in event.chain) or len(event.chain) > 1 else ""


def _others(report: Report) -> Iterator[str]:
    others = [each for index, each in enumerate(report.diagnoses) if index != report.headline]
    if others:
        yield "### Other diagnoses\n\n" + _list(prose(summary(each)) for each in others[-20:])


def _source(report: Report) -> Iterator[str]:
    rows = [
        prose(f"read {read_line(report.source)}"),
        *(prose(gap_line(gap)) for gap in report.source.gaps[:20]),
    ]
    yield "### Input\n\n" + _list(rows)
