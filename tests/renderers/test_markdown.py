"""Markdown for tickets: the same content, and nothing from the log that a forge would act on."""

from __future__ import annotations

import re

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logtriage.model import Gap, Occurrence, Span, Unread, UnreadLine, Verdict
from logtriage.renderers import render
from logtriage.renderers.markdown import block, code, prose
from tests.renderers import reports


def without_code(markdown: str) -> str:
    """What a Markdown parser sees as text: fenced blocks and inline code taken out.

    Source: CommonMark 0.31, sections 4.5 (a fence ends at a line of at least as many backticks) and
    6.1 (a code span ends at a run of exactly as many).
    """
    kept: list[str] = []
    fence = ""
    for line in markdown.split("\n"):
        run = re.match(r" {0,3}(`{3,})[^`]*$", line)
        if fence:
            fence = "" if run and len(run[1]) >= len(fence) and line.strip() == run[1] else fence
        elif run:
            fence = run[1]
        else:
            kept.append(_without_spans(line))
    assert not fence
    return "\n".join(kept)


def _without_spans(line: str) -> str:
    kept, position = "", 0
    while run := re.compile(r"(\\*)(`+)").search(line, position):
        if len(run[1]) % 2:  # the first backtick is escaped
            kept += line[position : run.start(2) + 1]
            position = run.start(2) + 1
            continue
        kept += line[position : run.start(2)]
        end = next((m for m in re.finditer("`+", line[run.end() :]) if len(m[0]) == len(run[2])), None)
        assert end is not None
        position = run.end() + end.end()
    return kept + line[position:]


ATTACKS = (
    "@maintainer please look",
    "fixes #123 and GH-7",
    "![beacon](https://evil.example/x.png)",
    "<img src=https://evil.example/x>",
    "<script>alert(1)</script>",
    "[click](javascript:alert)",
    "see https://evil.example and www.evil.example",
    "```\n# owned\n@team",
    "``````\nout\n``````",
    "`a` ``b`` ```c```",
    "</details>\n## Fix\nrm -rf /",
    "| a | b |\n|---|---|",
    "* not a list\n1. nor this\n> nor that",
    "a\n---\nb",
    "&lt;b&gt; &#64;team",
    "user@example.com 0123456789abcdef0123456789abcdef01234567",
    "$\\alpha$ ~~x~~ :tada: \\",
    "!12 %3 ~label",
)
ACTIVE = re.compile(
    r"@\w|(?<![\\&])#\d|GH-\d|://|www\.|(?<!\\)<(?!https://docs\.example\.org)|(?<!\\)\]\(|[0-9a-f]{40}",
    re.IGNORECASE,
)


@pytest.mark.parametrize("verbose", [False, True], ids=["short", "verbose"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_from_the_log_becomes_active(attack: str, *, verbose: bool) -> None:
    event = attrs.evolve(
        reports.raised(attack), process=attrs.evolve(reports.TP3, label=attack, host=attack), time=attack
    )
    invocation = attrs.evolve(reports.INVOCATION, unit=attack, host=attack, ended=attack)
    diagnosis = reports.recognised(
        verdict=Verdict(event, "initiating", attack, (attrs.evolve(reports.SIGQUIT, reason=attack),)),
        incident=attrs.evolve(reports.recognised().incident, invocation=invocation),
        next_steps=(attack,),
        remediations=(
            attrs.evolve(reports.REMEDIATION, title=attack, rationale=attack, steps=(attack,), patch=attack),
        ),
        match=attrs.evolve(reports.MATCH, captures=(("got", attack),)),
        occurrences=(Occurrence(Span(1, 1), attack), Occurrence(Span(2, 2), "TP0")),
        unread=Unread(9, 1, (UnreadLine(Span(1, 1), attack, piece=True, text=attack),)),
    )
    report = reports.report(reports.unrecognised(attack), diagnosis, gaps=(Gap("blob", Span(1, 1), attack),))
    shown = render(report, "markdown", verbose=verbose)
    seen = without_code(shown).replace("<https://docs.example.org/attention>", "")
    assert not ACTIVE.search(seen)
    # Only our own headings and rules: no line of the log begins one.
    headings = [line for line in seen.split("\n") if re.match(r"\s{0,3}(#{1,6} |---|===)", line)]
    assert [line for line in headings if not re.match(r"#{2,3} ", line)] == []
    assert len(headings) == 4 + verbose


def test_the_answer_comes_first() -> None:
    lines = render(reports.report(reports.recognised()), "markdown").splitlines()
    assert lines[0].startswith("## sglang-qwen.service (sglang 0.5.9) on node7 crashed 6 times")
    assert lines[2] == (
        "**Cause:** Hybrid GDN model on Blackwell with an unsupported attention backend "
        "(`config.attention-backend, sglang.attention.hybrid-gdn-on-blackwell`)"
    )
    assert "- `--attention-backend: flashinfer -> triton`" in lines
    assert "- <https://docs.example.org/attention>" in lines


def test_the_evidence_is_quoted_in_blocks() -> None:
    text = render(reports.report(reports.recognised()), "markdown")
    assert f"```text\nAssertionError: {reports.WORDS}\n```" in text
    assert (
        'attention_registry.py", line 187, in attn_backend_wrapper\n    assert full_attn_backend in ALLOWED'
        in text
    )
    assert "**Same fault on:** TP0, TP1, TP2" in text
    assert "- main: the launcher was told that a child failed" in text


def test_unread_lines_are_counted_and_on_demand_listed() -> None:
    lines = (UnreadLine(Span(130, 130), "TP3", piece=True, text="    ^^^^^"),)
    report = reports.report(reports.recognised(unread=Unread(3, 1, lines)))
    told = "**Unread:** 1 line of the crash could not be read (--verbose shows them)"
    assert told in render(report, "markdown").split("\n")
    shown = render(report, "markdown", verbose=True)
    assert told not in shown
    assert (
        "### Unread\n\n3 lines inside the crash belong to no event; 1 of them (marked !) could not be read; "
        "1 of them is shown\n\n```text\n! line 130, TP3:     ^^^^^\n```\n"
    ) in shown
    assert "Unread" not in render(reports.report(reports.recognised()), "markdown", verbose=True)


def test_a_loop_names_the_processes_it_began_on() -> None:
    each = (Occurrence(Span(1, 1), "TP4"), Occurrence(Span(2, 2), "TP1"), Occurrence(Span(3, 3), "TP4"))
    text = render(reports.report(reports.recognised(repeats=3, occurrences=each)), "markdown")
    assert "**Began:** on TP4 (2 times), TP1 (1 time)" in text.split("\n")


def test_a_patch_is_a_diff_block() -> None:
    remediation = attrs.evolve(reports.REMEDIATION, patch="--- a/x\n+++ b/x\n@@ -1 +1 @@\n-A\n+B\n")
    text = render(reports.report(reports.recognised(remediations=(remediation,))), "markdown")
    assert "```diff\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-A\n+B\n```" in text


def test_an_unknown_crash_names_next_steps_and_the_input() -> None:
    text = render(reports.report(reports.unrecognised()), "markdown")
    assert "**Cause:** Unknown: no signature fits the event above." in text
    assert "- Run it again with --log-level debug." in text
    assert text.endswith("- read 1,234 lines (98,765 bytes) from server.log: journal-short, sglang\n")


def test_a_log_without_events_or_crashes_is_told_in_words() -> None:
    verdict = Verdict(None, "earliest-evidence", "")
    assert "No event could be read." in render(
        reports.report(reports.unrecognised(verdict=verdict)), "markdown"
    )
    assert render(reports.report(), "markdown").startswith("Nothing crashed in 1,234 lines ")


@settings(deadline=None)
@given(st.text(st.sampled_from("`\\ ab\n*"), max_size=30))
def test_code_shows_its_text(text: str) -> None:
    shown = code(text)
    fence = re.match("`+", shown)
    assert fence is not None
    inner = shown[len(fence[0]) : -len(fence[0])]
    assert fence[0] not in re.findall("`+", inner)
    assert " ".join(inner.split()) == " ".join(text.split())


@settings(deadline=None)
@given(st.text(st.sampled_from("`\\ ab\n*"), max_size=40))
def test_a_block_cannot_be_left(text: str) -> None:
    assert without_code(f"before\n{block(text)}\nafter") == "before\nafter"


@settings(deadline=None)
@given(st.text(max_size=40))
def test_prose_is_one_line_without_active_marks(text: str) -> None:
    shown = prose(text)
    assert "\n" not in shown
    assert not ACTIVE.search(_without_spans(shown))
