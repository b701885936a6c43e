"""Conditions: what is true, what is false, and what the log does not say."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from logtriage.conditions import Fact, condition_facts, facts_hold, release_holds
from logtriage.model import Condition, Incident, Invocation, Phase, Span


def incident(
    phase: Phase = "init",
    *,
    release: str | None = None,
    argv: tuple[str, ...] | None = None,
    arguments: dict[str, object] | None = None,
) -> Incident:
    invocation = Invocation(engine_version=release, argv=argv, server_args=arguments or {})
    return Incident(invocation, (), phase, Span(1, 1))


def nowhere(_: str) -> bool:
    return False


def only(condition: Condition, case: Incident) -> Fact:
    (fact,) = condition_facts(condition, case, nowhere)
    return fact


ARGUMENTS: dict[str, object] = {
    "attention_backend": "flashinfer",
    "quantization": None,
    "tp_size": 8,
    "mem_fraction_static": 0.85,
    "enable_dp_attention": True,
    "disable_radix_cache": False,
    "cuda_graph_bs": [1, 2, 4],
}


@pytest.mark.parametrize(
    ("name", "wanted", "holds"),
    [
        ("attention_backend", ("flashinfer",), True),
        ("attention_backend", ("fa3", "flashinfer"), True),
        ("attention_backend", ("fa3",), False),
        ("attention_backend", ("*",), True),
        ("attention_backend", ("Flashinfer",), False),
        ("quantization", ("*",), False),
        ("quantization", ("fp8",), False),
        ("quantization", ("None",), True),
        ("tp_size", ("8",), True),
        ("tp_size", ("4",), False),
        ("mem_fraction_static", ("0.85",), True),
        ("enable_dp_attention", ("True",), True),
        ("enable_dp_attention", ("true",), True),
        ("disable_radix_cache", ("True",), False),
        ("disable_radix_cache", ("*",), True),
        ("cuda_graph_bs", ("2",), True),
        ("cuda_graph_bs", ("3",), False),
        ("page_size", ("1",), None),
        ("page_size", ("*",), None),
    ],
)
def test_an_argument_is_compared_as_text(name: str, wanted: tuple[str, ...], holds: bool | None) -> None:
    fact = only(Condition(server_args=((name, wanted),)), incident(arguments=ARGUMENTS))
    assert fact.holds is holds


def test_an_argument_says_what_was_wanted_and_what_is() -> None:
    fact = only(
        Condition(server_args=(("attention_backend", ("fa3", "triton")),)), incident(arguments=ARGUMENTS)
    )
    assert fact.needed == "needs attention_backend to be fa3 or triton, but it is flashinfer"
    assert fact.excluded == "attention_backend is flashinfer"


def test_a_long_value_is_cut_in_the_sentence() -> None:
    case = incident(arguments={"chat_template": "a\nb" + "x" * 500})
    fact = only(Condition(server_args=(("chat_template", ("y",)),)), case)
    assert fact.excluded == "chat_template is a b" + "x" * 56 + "…"


@pytest.mark.parametrize(
    ("argv", "flag", "holds"),
    [
        (("serve", "--trust-remote-code"), "--trust-remote-code", True),
        (("serve", "--trust_remote_code"), "--trust-remote-code", True),
        (("serve", "--tp=8"), "--tp", True),
        (("serve", "--tp-size", "8"), "--tp", False),
        (("serve", "x--tp"), "--tp", False),
        (None, "--tp", None),
    ],
)
def test_a_flag_stands_in_the_command_line(
    argv: tuple[str, ...] | None, flag: str, holds: bool | None
) -> None:
    assert only(Condition(flags=(flag,)), incident(argv=argv)).holds is holds


@pytest.mark.parametrize(
    ("flag", "holds"),
    [
        ("--enable-dp-attention", True),
        ("--disable-radix-cache", False),
        ("--quantization", False),
        ("--attention-backend", None),
        ("--page-size", None),
    ],
)
def test_without_a_command_line_a_switch_is_told_from_the_arguments(flag: str, holds: bool | None) -> None:
    assert only(Condition(flags=(flag,)), incident(arguments=ARGUMENTS)).holds is holds


@pytest.mark.parametrize(("phase", "holds"), [("init", True), ("serve", False), ("unknown", None)])
def test_an_unknown_phase_contradicts_nothing(phase: Phase, holds: bool | None) -> None:
    assert only(Condition(phases=("init", "capture")), incident(phase)).holds is holds


def test_context_is_looked_for_elsewhere_and_is_never_unknown() -> None:
    facts = condition_facts(Condition(context=("here", "there")), incident(), lambda text: text == "here")
    assert [fact.holds for fact in facts] == [True, False]
    assert facts[1].needed == "needs 'there' elsewhere in the log"


def test_an_empty_condition_has_no_facts_and_holds() -> None:
    assert condition_facts(Condition(), incident(), nowhere) == []
    assert facts_hold([]) is True


@given(st.lists(st.sampled_from([True, False, None])))
def test_one_false_fact_decides_and_else_one_unknown_fact_does(answers: list[bool | None]) -> None:
    joined = facts_hold([Fact(answer, "", "") for answer in answers])
    if False in answers:
        assert joined is False
    else:
        assert joined is (None if None in answers else True)


@pytest.mark.parametrize(
    ("release", "specifier", "holds"),
    [
        ("0.5.9", ">=0.5.9,<0.5.10", True),
        ("0.5.10", "<0.5.10", False),
        ("0.5.10", "<0.5.9", False),
        ("0.5.9", "<0.5.10", True),
        ("0.5.9.post2", ">=0.5.9", True),
        ("0.5.9.post2", ">0.5.9", False),
        ("0.5.10rc0", "<0.5.10", False),
        ("0.5.10rc0", ">=0.5.10", False),
        ("0.5.10+cu129", "==0.5.10", True),
        ("v0.5.10", "==0.5.10", True),
        ("0.5", "==0.5.0", True),
        ("0.5.3", "==0.5.*", True),
        ("0.6.0", "==0.5.*", False),
        ("0.5.3", "!=0.5.*", False),
        ("0.5.3", "~=0.5.1", True),
        ("0.6.0", "~=0.5.1", False),
        ("0.11.1rc7.dev12+gabc", ">=0.11.0", True),
        (None, ">=0.5", None),
        ("", ">=0.5", None),
        ("unknown", ">=0.5", None),
        ("0.0.0.dev1+gabc", "<0.5", None),
        ("0.1.dev1+gabc", "<0.5", None),
        ("0.5.3", "newest", None),
        ("0.5.3", "", None),
        ("9" * 5000, ">=0.5", True),
    ],
)
def test_a_release_is_held_against_a_specifier(
    release: str | None, specifier: str, holds: bool | None
) -> None:
    assert release_holds(release, specifier) is holds


NUMBERS = st.lists(st.integers(0, 12), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
ENDINGS = st.sampled_from(
    ["", "a1", "b2", "rc1", "rc2", ".post1", ".post2", ".dev3", "rc1.post1", "rc1.dev2"]
)
VERSIONS = st.builds(lambda number, ending: number + ending, NUMBERS, ENDINGS)


@given(VERSIONS, st.sampled_from(["<", "<=", "==", "!=", ">=", ">"]), VERSIONS)
def test_comparisons_are_those_of_packaging(release: str, operator: str, bound: str) -> None:
    # Releases of packaging differ on what is next to a bound that is itself a pre- or post-release.
    assume(operator not in "<>" or bound == Version(bound).base_version)
    known = release_holds(release, operator + bound)
    if known is None:
        # A build without tags (0.0.0, 0.1.dev1) is no release at all.
        assert set(Version(release).base_version) <= set("0.") or Version(release).is_devrelease
    else:
        assert known is SpecifierSet(operator + bound).contains(release, prereleases=True)


@given(st.text(max_size=90), st.text(max_size=40))
def test_no_text_makes_the_comparison_fail(release: str, specifier: str) -> None:
    assert release_holds(release, specifier) in (True, False, None)
