"""The text for people: the answer last, a screen at most, nothing that poses as ours."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logtriage.model import (
    Alternative,
    Change,
    Diagnosis,
    ExceptionLink,
    FatalError,
    Finding,
    FindingRole,
    Frame,
    Gap,
    Invocation,
    LoggedError,
    Match,
    Process,
    Remediation,
    Report,
    Span,
    Unread,
    UnreadLine,
    Verdict,
)
from logtriage.renderers import render
from logtriage.renderers.story import counted, lines_of
from logtriage.renderers.text import MAX_LINES
from tests.renderers import reports

LABELS = (
    "Read", "Gaps", "Before", "Service", "Began", "Root", "Evidence", "Why", "Same fault", "Followed", "Unread",
    "Cause", "Fix", "Because", "Steps", "Cost", "Or", "Nearly", "Confidence", "Next", "Redacted", "Patch",
)  # fmt: skip


def labels(text: str) -> list[str]:
    """The words in the first column, in order."""
    return [line[:12].strip() for line in text.splitlines() if line and not line.startswith(" ")]


def test_a_recognised_crash_reads_from_input_to_fix() -> None:
    assert (
        render(reports.report(reports.recognised()))
        == """\
Read        1,234 lines (98,765 bytes) from server.log: journal-short, sglang

Service     sglang-qwen.service (sglang 0.5.9) on node7 crashed 6 times in the same way
            while loading the model
            systemd: activating, result exit-code, restart counter at 5; last sign of life
            2026-03-09T12:00:03
Root        TP3 (scheduler, pid 4242), lines 120-161, 2026-03-09T12:00:01
            AssertionError: triton and trtllm_mha are the only supported backends on
            Blackwell GPUs
            came from KeyError: 'flashinfer'
            at srt/layers/attention/attention_registry.py:187 in attn_backend_wrapper
Why         it is the first exception of the incident
Same fault  on 3 more: TP0, TP1, TP2
Followed    main: the launcher was told that a child failed

Cause       Hybrid GDN model on Blackwell with an unsupported attention backend
            [config.attention-backend, sglang.attention.hybrid-gdn-on-blackwell]
            The backend flashinfer does not serve this model on this GPU.
Fix         Use the triton attention backend (safe)
              --attention-backend: flashinfer -> triton
Because     The message names the backends that work.
Steps       1. systemctl daemon-reload
            2. systemctl restart sglang-qwen.service
Cost        Triton may be slower on long prompts.
Or          Use trtllm_mha (review it first): add --attention-backend trtllm_mha
Confidence  certain. It does not prove that triton is the fastest choice.
Redacted    1 api-key
"""
    )


def test_an_unknown_crash_says_so_and_where_to_look() -> None:
    diagnosis = reports.unrecognised(alternatives=(Alternative("torch.memory.oom", "another exception"),))
    text = render(reports.report(diagnosis))
    assert text.splitlines()[-3:] == [
        "Cause       Unknown: no signature fits the event above.",
        "Nearly      torch.memory.oom: another exception",
        "Next        Run it again with --log-level debug.",
    ]
    assert "Root        main (launcher, pid 4200), lines 7-9\n            something odd happened\n" in text


def test_a_fatal_error_names_the_newest_frame_of_the_engine() -> None:
    frames = (Frame("/usr/lib/python3.12/x.py", 1, "poll"), *reversed(reports.FRAMES[:2]))
    event = FatalError(
        process=reports.TP3,
        span=Span(1, 9),
        message="Fatal Python error: Aborted",
        reason="Aborted",
        frames=frames,
    )
    text = render(reports.report(reports.diagnosis(event)))
    assert "            at srt/layers/attention/attention_registry.py:187 in attn_backend_wrapper\n" in text


def test_long_steps_are_wrapped_not_cut() -> None:
    step = "raise MemoryMax= of the unit, or the limit of the container, and leave room for the page cache"
    remediation = attrs.evolve(reports.REMEDIATION, steps=(step,))
    lines = render(reports.report(reports.recognised(remediations=(remediation,)))).splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("Steps"))
    assert " ".join(line[12:] for line in lines[start : start + 2]) == step


def test_nothing_crashed_is_one_line() -> None:
    gap = Gap("rotated", Span(1, 1), "the start was rotated away")
    assert render(reports.report(gaps=(gap, gap))) == (
        "Nothing crashed in 1,234 lines (98,765 bytes) from server.log: journal-short, sglang; "
        "2 gaps: line 1: rotated: the start was rotated away\n"
    )


def test_evidence_is_not_called_the_root() -> None:
    verdict = attrs.evolve(reports.unrecognised().verdict, root_role="earliest-evidence")
    text = render(reports.report(reports.unrecognised(verdict=verdict)))
    assert "Evidence" in labels(text)
    assert "Root" not in labels(text)


UNREAD = Unread(
    1_205,
    2,
    (
        UnreadLine(Span(130, 130), "TP3", piece=True, text="    ^^^^^^^^"),
        UnreadLine(Span(140, 141), "", piece=False, text="a note\tby hand\x1b[31m " + "x" * 150),
        UnreadLine(Span(150, 150), "TP0", piece=True, text="    return connect(api_key='s3cr3t-9')"),
    ),
)


def test_lines_of_the_crash_that_could_not_be_read_are_told_in_one_line() -> None:
    report = reports.report(reports.recognised(unread=UNREAD))
    lines = render(report).splitlines()
    assert "Unread      2 lines of the crash could not be read (--verbose shows them)" in lines
    assert len(lines) == len(render(reports.report(reports.recognised())).splitlines()) + 1
    one = reports.report(reports.recognised(unread=attrs.evolve(UNREAD, pieces=1)))
    assert "Unread      1 line of the crash could not be read (--verbose shows them)\n" in render(one)


def test_other_unread_lines_alone_are_not_worth_a_line() -> None:
    calm = reports.recognised(unread=attrs.evolve(UNREAD, pieces=0, lines=UNREAD.lines[:2]))
    assert render(reports.report(calm)) == render(reports.report(reports.recognised()))


def test_on_demand_they_are_listed_between_the_story_and_the_answer() -> None:
    text = render(reports.report(reports.recognised(unread=UNREAD)), verbose=True)
    start = text.index("Unread ")
    assert text.index("Followed ") < start < text.index("Cause ")
    assert text[start : text.index("\n\nCause ")] == (
        "Unread      1,205 lines inside the crash belong to no event; 2 of them (marked !) could not\n"
        "            be read; 3 of them are shown\n"
        "            ! line 130, TP3:     ^^^^^^^^\n"
        "              lines 140-141, a process: a note  by hand " + "x" * 150 + "\n"
        "            ! line 150, TP0:     return connect(api_key='[redacted:api-key]')"
    )
    calm = render(reports.report(reports.recognised()), verbose=True)
    assert calm == render(reports.report(reports.recognised()))


def test_on_demand_the_answer_may_be_longer_than_a_screen() -> None:
    lines = tuple(UnreadLine(Span(n, n), "TP3", piece=True, text=f"    call_{n}()") for n in range(1, 201))
    report = reports.report(reports.recognised(unread=Unread(200, 200, lines)))
    assert len(render(report).splitlines()) <= MAX_LINES
    shown = render(report, verbose=True)
    assert all(f"! line {n}, TP3:     call_{n}()\n" in shown for n in range(1, 201))
    assert shown.splitlines()[-1].startswith("Redacted ")


def test_a_crash_without_an_event_still_has_an_answer() -> None:
    verdict = Verdict(None, "earliest-evidence", "nothing could be read")
    text = render(reports.report(reports.unrecognised(verdict=verdict)))
    assert "Root        no event could be read\n" in text


def test_gaps_and_earlier_diagnoses_come_first_one_line_each() -> None:
    gap = Gap("suppressed", Span(5, 9), "journald dropped 1200 messages", 3)
    text = render(reports.report(reports.unrecognised(), reports.recognised(), gaps=(gap,)))
    assert text.splitlines()[:4] == [
        "Read        1,234 lines (98,765 bytes) from server.log: journal-short, sglang",
        "Gaps        lines 5-9: suppressed (3 times): journald dropped 1200 messages",
        "Before      lines 100-241: main: something odd happened",
        "",
    ]


def test_many_earlier_diagnoses_are_counted() -> None:
    many = [reports.unrecognised(f"fault {number}") for number in range(50)]
    text = render(reports.report(*many, reports.recognised()))
    assert "44 more diagnoses" in text
    assert "fault 49" in text
    assert "fault 3\n" not in text


def test_a_provisional_diagnosis_says_that_it_is_one() -> None:
    assert "(provisional: the log has not ended)" in render(reports.report(reports.recognised(final=False)))


def test_a_service_that_nobody_names_is_the_server() -> None:
    incident = attrs.evolve(reports.unrecognised().incident, invocation=Invocation(), phase="unknown")
    text = render(reports.report(reports.unrecognised(incident=incident)))
    assert "\nService     The server crashed\n" in text
    assert "systemd:" not in text


PATCH = "--- a/x.service\n+++ b/x.service\n@@ -1 +1 @@\n-A=1\n+A=2\n"


def test_a_short_patch_stands_at_the_very_end() -> None:
    remediation = attrs.evolve(reports.REMEDIATION, patch=PATCH)
    text = render(reports.report(reports.recognised(remediations=(remediation,))))
    assert text.endswith("Patch\n" + PATCH)
    assert text.count("\n") <= MAX_LINES


def test_a_long_patch_is_named_instead() -> None:
    long = PATCH + "".join(f"+line {number}\n" for number in range(40))
    remediation = attrs.evolve(reports.REMEDIATION, patch=long)
    text = render(reports.report(reports.recognised(remediations=(remediation,))))
    assert text.splitlines()[-1] == "Patch       45 lines; `--patch FILE` prints it"
    assert text.count("\n") <= MAX_LINES


def test_a_patch_of_another_remediation_says_whose_it_is() -> None:
    remediation = attrs.evolve(reports.REVIEW, patch=PATCH)
    text = render(reports.report(reports.recognised(remediations=(reports.REMEDIATION, remediation))))
    assert f"Patch       for: Use trtllm_mha\n{PATCH}" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Change("set-flag", "--tp", "4", old="8"), "--tp: 8 -> 4"),
        (Change("set-flag", "--tp", "4"), "add --tp 4"),
        (Change("set-flag", "--trust-remote-code"), "add --trust-remote-code"),
        (Change("remove-flag", "--tp", old="8"), "remove --tp (now 8)"),
        (Change("remove-flag", "--tp"), "remove --tp"),
        (Change("set-env", "NCCL_DEBUG", "INFO"), "set NCCL_DEBUG=INFO"),
        (Change("set-env", "A", "2", old="1"), "A: 1 -> 2"),
        (Change("unset-env", "A"), "remove A"),
        (Change("require-version", "sglang", ">=0.5.13", old="0.5.9"), "use sglang >=0.5.13 (now 0.5.9)"),
        (Change("install", "ninja-build"), "install ninja-build"),
        (Change("start-service", "nvidia-fabricmanager"), "start nvidia-fabricmanager"),
        (Change("other", "GPU 3", "replace"), "GPU 3 replace"),
    ],
)
def test_changes_are_put_into_words(change: Change, words: str) -> None:
    remediation = Remediation("Do it", "review", (change,))
    lines = render(reports.report(reports.recognised(remediations=(remediation,)))).splitlines()
    assert lines[lines.index("Fix         Do it (review it first)") + 1] == f"              {words}"


def test_colours_only_on_request_and_only_on_labels() -> None:
    report = reports.report(reports.recognised())
    plain, coloured = render(report), render(report, color=True)
    assert "\x1b" not in plain
    assert "\x1b[1;32mFix         \x1b[0mUse" in coloured
    assert (
        coloured.replace("\x1b[1m", "")
        .replace("\x1b[1;31m", "")
        .replace("\x1b[1;32m", "")
        .replace("\x1b[0m", "")
        == plain
    )


def test_labels_are_listed_once_and_counted() -> None:
    assert (
        counted([f"TP{rank}" for rank in range(10)]) == "TP0, TP1, TP2, TP3, TP4, TP5, TP6, TP7 (and 2 more)"
    )
    assert counted(["main", "main"]) == "main (2 events)"
    assert lines_of(Span(4, 4)) == "line 4"


# --- hostile input --------------------------------------------------------------------------------

WORDS = st.text(st.characters(codec=None), max_size=40)
TEXTS = st.one_of(
    WORDS, st.lists(WORDS, max_size=60).map("\n".join), st.integers(1, 9000).map(lambda n: "word " * n)
)


@st.composite
def hostile(draw: st.DrawFn) -> Report:
    """A report in which everything that can come from a log is as unkind as possible."""

    def process() -> Process:
        return Process("unknown", draw(WORDS), pid=draw(st.integers(0, 9)), host=draw(WORDS))

    def error() -> LoggedError:
        return LoggedError(process=process(), span=Span(1, 2), message=draw(TEXTS), time=draw(WORDS))

    root = attrs.evolve(
        reports.raised(draw(TEXTS), draw(WORDS)),
        process=process(),
        chain=(ExceptionLink(draw(WORDS), draw(TEXTS), (), "cause"), ExceptionLink(draw(WORDS), draw(TEXTS))),
    )
    roles: tuple[FindingRole, ...] = ("observer", "cascade", "teardown", "noise", "unknown")
    findings = tuple(
        Finding(error(), draw(st.sampled_from(roles)), draw(WORDS)) for _ in range(draw(st.integers(0, 12)))
    )
    change = Change("set-flag", draw(WORDS), draw(WORDS), old=draw(WORDS))
    remediation = Remediation(
        draw(TEXTS), "review", (change,) * draw(st.integers(0, 9)), (draw(TEXTS),) * draw(st.integers(0, 9)),
        draw(TEXTS), draw(TEXTS), (draw(WORDS),), patch=draw(st.one_of(st.none(), TEXTS)),
    )  # fmt: skip
    invocation = Invocation(
        unit=draw(WORDS), host=draw(WORDS), state=draw(WORDS), result=draw(WORDS), argv=(draw(WORDS),)
    )
    diagnosis = reports.diagnosis(
        root,
        Match(reports.SIGNATURE, "x", (("got", draw(TEXTS)),)) if draw(st.booleans()) else None,
        verdict=Verdict(root, "initiating", draw(TEXTS), findings),
        remediations=(remediation,) * draw(st.integers(0, 3)),
        next_steps=(draw(TEXTS),) * draw(st.integers(0, 9)),
        alternatives=(Alternative("a.b", draw(TEXTS)),) * draw(st.integers(0, 4)),
    )
    diagnosis = attrs.evolve(diagnosis, incident=attrs.evolve(diagnosis.incident, invocation=invocation))
    gaps = (Gap("blob", Span(1, 2), draw(TEXTS)),) * draw(st.integers(0, 6))
    return reports.report(*(diagnosis,) * draw(st.integers(1, 9)), gaps=gaps)


@settings(max_examples=150, deadline=None)
@given(hostile())
def test_one_answer_fits_on_a_screen(report: Report) -> None:
    lines = render(report).split("\n")
    assert len(lines) - 1 <= MAX_LINES
    patch = next((index for index, line in enumerate(lines) if line.startswith("Patch")), len(lines))
    assert max(len(line) for line in lines[:patch]) <= 92
    assert {line[:12].strip() for line in lines[:patch] if line and not line.startswith(" ")} <= set(LABELS)


@settings(max_examples=100, deadline=None)
@given(hostile(), st.sampled_from(["text", "json", "jsonl", "markdown"]))
def test_no_format_carries_control_characters(report: Report, format_name: str) -> None:
    report = attrs.evolve(report, diagnoses=tuple(_without_patch(each) for each in report.diagnoses))
    shown = render(report, format_name)
    shown.encode("utf-8")
    assert not [
        c
        for c in shown
        if c not in "\n\t" and (c < " " or "\x7f" <= c <= "\x9f" or c in "\u202e\u2066\u200b\u2028")
    ]
    assert render(report, format_name) == shown


def _without_patch(diagnosis: Diagnosis) -> Diagnosis:
    # A patch is the user's own file, whose tabs stay.
    remediations = tuple(attrs.evolve(each, patch=None) for each in diagnosis.remediations)
    return attrs.evolve(diagnosis, remediations=remediations)
