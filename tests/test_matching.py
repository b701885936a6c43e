"""Which signatures fit an event, in which order, and why the others do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from logtriage.matching import Index, condition_holds, match, render_template
from logtriage.model import (
    Alternative,
    Condition,
    Event,
    ExceptionLink,
    FatalError,
    Frame,
    FramePattern,
    Incident,
    Invocation,
    KernelReport,
    LoggedError,
    Match,
    NativeAbort,
    Phase,
    Process,
    ProcessExit,
    Signature,
    Span,
    Traceback,
    Variant,
)
from logtriage.schema.signature import build_signature, parse_content
from tests.signature_files import WHOLE

HERE = Process("scheduler", "TP0")
AT = Span(3, 9)
BACKENDS = (
    "triton and trtllm_mha are the only supported backends on this GPU for hybrid models. Got flashinfer"
)
FRAMES = (
    Frame("/opt/sglang/srt/model_runner.py", 40, "initialize", "self.backend = choose(name)"),
    Frame("/opt/sglang/srt/layers/registry.py", 12, "choose", "assert name in known"),
)


def signature(name: str = "sglang.a.b", *variants: Variant, **fields: Any) -> Signature:
    """A signature of which a test says only what it is about."""
    plain = Signature(
        name,
        1,
        "T",
        "stable",
        "fatal",
        "bug.engine",
        "sglang",
        "initiating",
        variants or (literal(BACKENDS),),
    )
    return attrs.evolve(plain, **fields)


def literal(*texts: str, name: str = "v", pattern: str | None = None) -> Variant:
    return Variant(name, texts, pattern)


def raised(
    message: str = BACKENDS, kind: str = "AssertionError", frames: tuple[Frame, ...] = FRAMES
) -> Traceback:
    return Traceback(process=HERE, span=AT, message="", chain=(ExceptionLink(kind, message, frames),))


def chained(*links: ExceptionLink) -> Traceback:
    return Traceback(process=HERE, span=AT, message="", chain=links)


def incident(*events: Event, phase: Phase = "init", **invocation: Any) -> Incident:
    return Incident(attrs.evolve(Invocation(), **invocation), events, phase, AT)


def matches(event: Event, *signatures: Signature, case: Incident | None = None) -> list[Match]:
    return match(event, case or incident(event), signatures)[0]


def alternatives(event: Event, *signatures: Signature, case: Incident | None = None) -> list[Alternative]:
    return match(event, case or incident(event), signatures)[1]


def ids(found: list[Match]) -> list[str]:
    return [each.signature.id for each in found]


def test_a_signature_file_matches_and_captures() -> None:
    content, _ = parse_content(WHOLE.encode())
    known = build_signature(content)
    event = raised("fa9 is not among the supported backends. Got fa9")
    (found,) = matches(event, known)
    assert (found.signature, found.variant, found.captures, found.link) == (
        known,
        "one-name",
        (("backend", "fa9"),),
        0,
    )


@pytest.mark.parametrize(
    ("message", "fits"),
    [
        (BACKENDS, True),
        (BACKENDS.replace(" ", "\n"), True),
        (BACKENDS.replace("the only", "the \r\n      only"), True),
        (BACKENDS.replace(" ", ""), False),
        (BACKENDS.upper(), False),
        ("prefix " + BACKENDS + " suffix", True),
        (BACKENDS[:-1], False),
        ("", False),
    ],
)
def test_literals_are_found_whatever_the_line_wraps(message: str, fits: bool) -> None:
    assert bool(matches(raised(message), signature())) is fits


def test_names_in_any_order_match_around_the_names() -> None:
    known = signature(
        "s.a.b",
        literal("backends are supported on this GPU. Got", pattern=r"Got prefill=(?P<prefill>\w+)"),
    )
    for names in ("{'triton', 'fa3'}", "{'fa3', 'triton'}"):
        event = raised(f"Only {names} backends are\nsupported on this GPU. Got\n  prefill=flashinfer")
        (found,) = matches(event, known)
        assert found.captures == (("prefill", "flashinfer"),)


def test_all_literals_must_stand_in_the_same_text() -> None:
    known = signature("s.a.b", literal("first half", "second half"))
    both = chained(ExceptionLink("ValueError", "first half ... second half"))
    apart = chained(
        ExceptionLink("ValueError", "first half", relation="context"),
        ExceptionLink("ValueError", "second half"),
    )
    assert ids(matches(both, known)) == ["s.a.b"]
    assert matches(apart, known) == []


@pytest.mark.parametrize(
    ("given_type", "wanted", "fits"),
    [
        ("torch.OutOfMemoryError", "OutOfMemoryError", True),
        ("torch.cuda.OutOfMemoryError", "OutOfMemoryError", True),
        ("torch.OutOfMemoryError", "torch.OutOfMemoryError", True),
        ("torch.cuda.OutOfMemoryError", "torch.OutOfMemoryError", False),
        ("OutOfMemoryError", "torch.OutOfMemoryError", False),
        ("MyOutOfMemoryError", "OutOfMemoryError", False),
        ("c10::OutOfMemoryError", "OutOfMemoryError", True),
        ("", "OutOfMemoryError", True),
    ],
)
def test_a_class_is_named_by_its_last_part_or_whole(given_type: str, wanted: str, fits: bool) -> None:
    known = signature(exceptions=(wanted,))
    assert bool(matches(raised(kind=given_type), known)) is fits


def test_a_class_that_was_cut_off_makes_the_match_less_specific() -> None:
    known = signature(exceptions=("AssertionError",))
    (sure,) = matches(raised(), known)
    (unsure,) = matches(raised(kind=""), known)
    assert sure.specificity > unsure.specificity


def test_a_wording_can_have_classes_of_its_own() -> None:
    wording = attrs.evolve(literal(BACKENDS), exceptions=("ValueError",))
    known = signature("s.a.b", wording, exceptions=("AssertionError",))
    assert matches(raised(kind="AssertionError"), known) == []
    assert ids(matches(raised(kind="ValueError"), known)) == ["s.a.b"]


def test_events_without_exception_match_a_class_only_if_they_name_it() -> None:
    known = signature(exceptions=("DistBackendError",))
    silent: list[Event] = [
        KernelReport(process=HERE, span=AT, message=BACKENDS, report="xid"),
        ProcessExit(process=HERE, span=AT, message=BACKENDS, victim=HERE),
        LoggedError(process=HERE, span=AT, message=BACKENDS),
        NativeAbort(process=HERE, span=AT, message=BACKENDS, origin="terminate"),
    ]
    naming: list[Event] = [
        LoggedError(process=HERE, span=AT, message=BACKENDS, type="torch.distributed.DistBackendError"),
        NativeAbort(
            process=HERE, span=AT, message=BACKENDS, origin="terminate", exception="c10::DistBackendError"
        ),
    ]
    assert [ids(matches(event, known)) for event in silent] == [[]] * 4
    assert [ids(matches(event, known)) for event in naming] == [["sglang.a.b"]] * 2
    assert [len(matches(event, signature())) for event in silent] == [1] * 4


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (FramePattern("layers/registry.py", "choose"), True),
        (FramePattern("/opt/sglang/srt/layers/registry.py"), True),
        (FramePattern("registry.py"), True),
        (FramePattern("gistry.py"), False),
        (FramePattern(function="initialize"), True),
        (FramePattern(function="initialize", innermost=True), False),
        (FramePattern("registry.py", innermost=True), True),
        (FramePattern("model_runner.py", "choose"), False),
    ],
)
def test_a_frame_is_one_file_and_one_function(wanted: FramePattern, fits: bool) -> None:
    assert bool(matches(raised(), signature(frame=wanted))) is fits


def test_a_frame_that_was_lost_loses_the_match() -> None:
    assert matches(raised(frames=()), signature(frame=FramePattern("registry.py"))) == []


def test_the_innermost_frame_of_a_fatal_error_is_the_first_printed() -> None:
    event = FatalError(process=HERE, span=AT, message="", reason="Segmentation fault", frames=FRAMES[::-1])
    known = signature(
        "s.a.b", literal("Segmentation fault"), frame=FramePattern("registry.py", innermost=True)
    )
    assert ids(matches(event, known)) == ["s.a.b"]


def test_an_assertion_without_message_is_known_by_its_source_line() -> None:
    known = signature(
        "s.a.b", Variant("v", source_line="assert name in known"), exceptions=("AssertionError",)
    )
    assert ids(matches(raised(""), known)) == ["s.a.b"]
    assert matches(raised("", frames=FRAMES[:1]), known) == []
    assert matches(raised("", frames=()), known) == []


def test_kinds_of_event_are_held_to() -> None:
    known = signature(kinds=("traceback",))
    line = LoggedError(process=HERE, span=AT, message=BACKENDS, type="AssertionError", origin="engine")
    assert ids(matches(raised(), known)) == ["sglang.a.b"]
    assert matches(line, known) == []


def test_a_pattern_must_match_besides_the_literals() -> None:
    known = signature(
        "s.a.b", literal("supported backends", pattern=r"Got (?P<got>fa\d)?(?P<other>nothing)?$")
    )
    assert matches(raised("supported backends. Got x"), known) == []
    (found,) = matches(raised("supported backends. Got fa3"), known)
    assert found.captures == (("got", "fa3"),)


def test_a_capture_is_cut() -> None:
    known = signature("s.a.b", literal(pattern=r"Got (?P<got>\w+)"))
    (found,) = matches(raised("Got " + "x" * 4000), known)
    assert found.captures == (("got", "x" * 256),)


def test_the_wording_that_says_more_is_named() -> None:
    short, long = literal("supported backends", name="short"), literal(BACKENDS, name="long")
    assert matches(raised(), signature("s.a.b", short, long))[0].variant == "long"
    assert matches(raised(), signature("s.a.b", long, short))[0].variant == "long"


def test_longer_wordings_come_first_and_the_rest_are_alternatives() -> None:
    generic = signature("s.a.generic", literal("supported"))
    better = signature("s.a.better", literal("supported backends on this GPU"))
    found, others = match(raised(), incident(), [generic, better, signature("s.a.best")])
    assert ids(found) == ["s.a.best", "s.a.better", "s.a.generic"]
    assert others == [
        Alternative("s.a.better", "less specific than s.a.best"),
        Alternative("s.a.generic", "less specific than s.a.best"),
    ]


@given(st.permutations(["s.a.b", "s.a.c", "s.a.d", "s.b.a"]))
def test_equal_matches_come_in_the_order_of_ids(names: list[str]) -> None:
    assert ids(matches(raised(), *map(signature, names))) == ["s.a.b", "s.a.c", "s.a.d", "s.b.a"]


@pytest.mark.parametrize("role", ["advice", "cascade", "teardown"])
def test_a_cause_comes_before_a_consequence_however_short(role: str) -> None:
    cause = signature("z.a.cause", literal("Got flashinfer"), status="experimental")
    consequence = signature(
        "a.a.x", literal(BACKENDS, pattern="Got"), role=role, exceptions=("AssertionError",)
    )
    assert ids(matches(raised(), consequence, cause)) == ["z.a.cause", "a.a.x"]


@pytest.mark.parametrize(
    "more",
    [
        {"exceptions": ("AssertionError",)},
        {"frame": FramePattern("registry.py")},
        {"kinds": ("traceback",)},
        {"variants": (literal(BACKENDS, pattern="Got"),)},
        {"requires": Condition(phases=("init",))},
        {"requires": Condition(server_args=(("tp_size", ("8",)),))},
    ],
)
def test_whatever_more_had_to_hold_makes_a_match_more_specific(more: dict[str, object]) -> None:
    plain, special = signature("a.a.plain"), signature("z.a.special", **more)
    case = incident(server_args={"tp_size": 8})
    assert ids(matches(raised(), plain, special, case=case)) == ["z.a.special", "a.a.plain"]


def test_a_catch_all_comes_after_what_is_known_better() -> None:
    sure = signature("z.a.sure", literal("supported backends on this GPU"))
    vague = signature("a.a.vague", confidence="possible")
    assert ids(matches(raised(), vague, sure)) == ["z.a.sure", "a.a.vague"]


def test_a_place_in_the_code_says_more_than_figures_picked_out_of_the_text() -> None:
    figures = signature("a.a.figures", literal(BACKENDS, pattern=r"Got (?P<backend>\w+)"))
    place = signature("z.a.place", frame=FramePattern("registry.py"))
    assert ids(matches(raised(), figures, place)) == ["z.a.place", "a.a.figures"]


def test_stable_signatures_come_before_those_on_trial() -> None:
    trial, old = signature("a.a.trial", status="experimental"), signature("a.a.old", status="deprecated")
    assert ids(matches(raised(), old, trial, signature("z.a.stable"))) == [
        "z.a.stable",
        "a.a.trial",
        "a.a.old",
    ]


def test_the_exception_that_was_wrapped_is_preferred_to_its_wrapper() -> None:
    inner = signature("z.a.inner", literal("out of memory now"))
    outer = signature("a.a.outer", literal("capture has failed"))
    first = ExceptionLink("OutOfMemoryError", "out of memory now", relation="cause")
    last = ExceptionLink("Exception", "capture has failed")
    found = matches(chained(first, last), outer, inner)
    assert [(each.signature.id, each.link) for each in found] == [("z.a.inner", 0), ("a.a.outer", 1)]
    # What happens while another exception is handled is no wrapper: there the last one tells more.
    handled = chained(attrs.evolve(first, relation="context"), last)
    assert ids(matches(handled, outer, inner)) == ["a.a.outer", "z.a.inner"]


RULED_OUT: list[tuple[dict[str, Condition], str]] = [
    ({"requires": Condition(phases=("serve",))}, "needs the phase serve, but the server was in init"),
    (
        {"requires": Condition(server_args=(("attention_backend", ("fa3",)),))},
        "needs attention_backend to be fa3, but it is triton",
    ),
    ({"requires": Condition(release=">=0.5.10")}, "needs a release >=0.5.10, but this is 0.5.9"),
    ({"requires": Condition(flags=("--enable-lora",))}, "needs --enable-lora on the command line"),
    ({"requires": Condition(context=("NCCL WARN",))}, "needs 'NCCL WARN' elsewhere in the log"),
    ({"excludes": Condition(phases=("init",))}, "ruled out because the server was in init"),
    (
        {"excludes": Condition(server_args=(("page_size", ("1",)), ("attention_backend", ("triton",))))},
        "ruled out because attention_backend is triton",
    ),
    ({"excludes": Condition(release="<0.5.10")}, "ruled out because the release 0.5.9 is <0.5.10"),
    ({"excludes": Condition(flags=("--tp",))}, "ruled out because --tp is on the command line"),
    ({"excludes": Condition(context=("Killed",))}, "ruled out because 'Killed' stands in the log"),
]
OTHER = LoggedError(process=HERE, span=Span(20, 20), message="Killed")


@pytest.mark.parametrize(("conditions", "why_not"), RULED_OUT)
def test_a_known_fact_rules_a_signature_out_and_is_told(
    conditions: dict[str, Condition], why_not: str
) -> None:
    event = raised()
    case = incident(
        event,
        OTHER,
        engine_version="0.5.9",
        argv=("serve", "--tp", "8"),
        server_args={"attention_backend": "triton"},
    )
    known = signature("s.a.b", **conditions)
    assert match(event, case, [known]) == ([], [Alternative("s.a.b", why_not)])


@pytest.mark.parametrize("conditions", [each for each, why in RULED_OUT if "NCCL" not in why])
def test_an_unknown_fact_rules_nothing_out(conditions: dict[str, Condition]) -> None:
    event = raised()
    assert ids(
        matches(event, signature("sglang.a.b", **conditions), case=incident(event, phase="unknown"))
    ) == ["sglang.a.b"]


def test_context_must_stand_in_another_event() -> None:
    event = raised()
    known = signature(requires=Condition(context=("supported backends",)))
    assert matches(event, known, case=incident(event, OTHER)) == []
    elsewhere = attrs.evolve(OTHER, message="no supported\nbackends")
    assert ids(matches(event, known, case=incident(event, elsewhere))) == ["sglang.a.b"]


def test_text_that_does_not_fit_makes_no_alternative() -> None:
    known = signature(requires=Condition(phases=("serve",)))
    assert match(raised("something else"), incident(), [known]) == ([], [])


def test_an_index_answers_as_the_signatures_do() -> None:
    known = [signature("s.a.b"), signature("s.a.c", literal("supported", pattern=r"Got (?P<x>\w+)"))]
    index = Index(known)
    event = raised()
    assert match(event, incident(), index) == match(event, incident(), known)
    assert match(event, incident(), index) == match(event, incident(), index)


# Exponential in the length of the word, and all characters it asks for do stand in the text.
SLOW = literal(pattern=r"(?:\w+\w+)+:;", name="bad")
LONG = "a" * 4000 + " :;"


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float]]:
    """The length of the text and the limit in seconds of each search for a pattern."""
    made: list[tuple[int, float]] = []
    honest = regex.compile

    class Counted:
        def __init__(self, pattern: str, flags: int = 0) -> None:
            self.pattern = honest(pattern, flags)

        def search(self, text: str, *, timeout: float) -> regex.Match[str] | None:
            made.append((len(text), timeout))
            return self.pattern.search(text, timeout=timeout)

    monkeypatch.setattr("logtriage.matching.regex.compile", Counted)
    return made


def test_a_pattern_that_runs_out_of_time_is_an_alternative() -> None:
    slow = signature("s.a.slow", SLOW)
    found, others = match(raised(LONG), incident(), [slow, signature("s.a.good", literal("aaaa"))])
    assert ids(found) == ["s.a.good"]
    assert others == [Alternative("s.a.slow", "pattern of 'bad' ran out of time")]


def test_many_slow_patterns_cost_no_more_than_a_few(searches: list[tuple[int, float]]) -> None:
    known = [signature(f"s.a.n{number}", SLOW) for number in range(40)]
    found, others = match(raised(LONG), incident(), known)
    assert (found, len(others)) == ([], 40)
    assert 1 <= len(searches) <= 3  # and each of them has a limit
    assert all(0 < limit <= 0.25 for _, limit in searches)


def test_a_pattern_that_was_never_checked_does_not_cost_the_diagnosis() -> None:
    broken = signature("s.a.broken", literal("supported", pattern="(", name="bad"))
    found, others = match(raised(), incident(), [broken, signature("s.a.good")])
    assert ids(found) == ["s.a.good"]
    assert others == [Alternative("s.a.broken", "pattern of 'bad' is not a regular expression")]


def test_a_huge_message_is_matched_at_its_ends(searches: list[tuple[int, float]]) -> None:
    huge = raised("first words " + "filling " * 1_300_000 + "last words 42")
    ends = signature("s.a.ends", literal("first words", "last words", pattern=r"last words (?P<n>\d+)"))
    (found,) = matches(huge, ends)
    assert [length <= 8 * 1024 + 1 for length, _ in searches] == [True]
    assert found.captures == (("n", "42"),)


@given(st.text(), st.text(max_size=20))
def test_no_log_text_makes_matching_fail(message: str, kind: str) -> None:
    known = signature(
        "s.a.b", literal("a", pattern=r"(?P<x>.)b"), exceptions=("E",), frame=FramePattern("f.py")
    )
    other = signature("s.a.c", literal(pattern=r"(?P<y>\S+) \d"))
    found, others = match(raised(message, kind), incident(), [known, other])
    assert all(isinstance(each.specificity, float) for each in found)
    assert len(found) + len(others) <= 2 + 1


def test_a_condition_of_a_remediation_is_true_false_or_unknown() -> None:
    event = raised()
    case = incident(event, engine_version="0.5.9")
    assert condition_holds(Condition(), event, case) is True
    assert condition_holds(Condition(release="<0.5.10"), event, case) is True
    assert condition_holds(Condition(release="<0.5"), event, case) is False
    assert condition_holds(Condition(server_args=(("tp_size", ("8",)),)), event, case) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Use {best}", "Use triton"),
        ("{best}{best}", "tritontriton"),
        ("{unknown} stays", "{unknown} stays"),
        ("${best} is the shell's", "${best} is the shell's"),
        ("{braces} are not read again", "{best} are not read again"),
        ("{ best } {best", "{ best } {best"),
        ("", ""),
    ],
)
def test_templates_take_captures(text: str, expected: str) -> None:
    assert render_template(text, (("best", "triton"), ("braces", "{best}"))) == expected


def test_matching_writes_and_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("matching is pure")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("builtins.open", forbidden)
    monkeypatch.setattr("os.open", forbidden)
    assert ids(matches(raised(), signature())) == ["sglang.a.b"]
