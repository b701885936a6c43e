"""From a verdict to an answer: how sure it is, what mends it, and which of several answers counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
import pytest

from logtriage.diagnosis import diagnose, headline
from logtriage.matching import Index
from logtriage.model import (
    Change,
    Condition,
    Diagnosis,
    Event,
    Incident,
    Phase,
    Remediation,
    Signature,
    Variant,
)
from logtriage.rootcause import judge
from tests.telling import engine, exited, frames, incident, logged, raised, systemd, xid

PLAIN: Final = Signature(
    id="sglang.x.fault",
    revision=1,
    title="A fault",
    status="stable",
    level="fatal",
    category="bug.engine",
    owner="sglang",
    role="initiating",
    variants=(Variant("v", ("does not fit",), r"backend (?P<backend>\w+) does not fit"),),
    next_steps=("Ask {backend}.",),
)
FAULT: Final = "ValueError: backend fa3 does not fit"


def answer(
    *events: Event, signature: Signature | None = PLAIN, phase: Phase = "serve", **invocation: Any
) -> Diagnosis:
    told = incident(*events, phase=phase, **invocation)
    verdict = judge(told)
    assert verdict is not None
    return diagnose(
        told, verdict, Index([signature] if signature else []), {"token": 2, "password": 0, "api-key": 1}
    )


def offering(*changes: Change, category: str = "bug.engine", **more: Any) -> Signature:
    remediation = Remediation("Use {backend}", "review", changes, **more)
    return attrs.evolve(PLAIN, remediations=(remediation,), category=category)


def offered(
    *changes: Change, args: Mapping[str, object] | None = None, **more: Any
) -> list[tuple[str, str, str | None, str | None]]:
    """The changes that a signature asking for *changes* offers a server started with *args*."""
    category = more.pop("category", "bug.engine")
    found = answer(
        raised(1, FAULT, 0), signature=offering(*changes, category=category), server_args=args or {}, **more
    )
    return [(c.op, c.name, c.old, c.value) for r in found.remediations for c in r.changes]


# Confidence


def test_a_signature_may_claim_what_it_states() -> None:
    for confidence in ("certain", "likely", "possible"):
        assert (
            answer(raised(1, FAULT, 0), signature=attrs.evolve(PLAIN, confidence=confidence)).confidence
            == confidence
        )


@pytest.mark.parametrize(
    ("event", "signature"),
    [
        (raised(1, FAULT, 0), attrs.evolve(PLAIN, status="experimental")),
        (raised(1, FAULT, 0), attrs.evolve(PLAIN, role="cascade")),
        (raised(1, FAULT, 0, complete=False), PLAIN),
        (raised(1, FAULT, 0, basis="guess"), PLAIN),
    ],
)
def test_doubt_about_signature_root_or_rank_lowers_it(event: Event, signature: Signature) -> None:
    assert answer(event, signature=signature).confidence == "likely"
    assert answer(event, signature=attrs.evolve(signature, confidence="possible")).confidence == "possible"


@pytest.mark.parametrize("basis", ["prefix", "pid", "continuation", "only-candidate"])
def test_a_line_that_is_surely_its_processes_lowers_nothing(basis: str) -> None:
    assert answer(raised(1, FAULT, 0, basis=basis)).confidence == "certain"


def test_evidence_and_the_unknown_are_only_possible() -> None:
    known = attrs.evolve(PLAIN, variants=(Variant("v", ("crashed with exit code -9",)),))
    evidence = answer(exited(1, 3, -9), signature=known)
    assert (evidence.match is not None, evidence.confidence) == (True, "possible")
    unknown = answer(raised(1, FAULT, 0), signature=None)
    assert (unknown.match, unknown.confidence) == (None, "possible")


# What is matched


def test_the_same_fault_on_another_rank_may_have_its_text_whole() -> None:
    stack = frames("sglang/srt/a.py:run")
    torn = raised(1, "", 0, stack=stack, complete=False)
    found = answer(torn, raised(2, FAULT, 1, stack=stack))
    assert found.match is not None
    assert found.verdict.root is not None


def test_where_the_cause_is_missing_a_consequence_may_be_known() -> None:
    limit = attrs.evolve(PLAIN, variants=(Variant("v", ("Start request repeated",)),))
    ending = [
        systemd(1, "main-exited", "FAILURE", 1),
        systemd(2, "start-limit", message="Start request repeated"),
    ]
    found = answer(*ending, signature=limit)
    assert found.match is not None
    assert found.verdict.root is ending[0]
    assert found.confidence == "possible"


def test_a_consequence_does_not_explain_a_root_that_is_a_cause() -> None:
    limit = attrs.evolve(PLAIN, variants=(Variant("v", ("Start request repeated",)),))
    ending = systemd(2, "start-limit", message="Start request repeated")
    assert answer(raised(1, "KeyError: 'x'", 0), ending, signature=limit).match is None


# Steps


def test_steps_are_those_of_the_signature_with_its_captures() -> None:
    assert answer(raised(1, FAULT, 0)).next_steps == ("Ask fa3.",)


def test_a_log_without_the_cause_says_where_to_look() -> None:
    steps = answer(exited(1, 3, -9), signature=None).next_steps
    assert any("dmesg" in step for step in steps)
    assert any("every rank" in step for step in steps)
    assert any("issue tracker" in step for step in steps)


def test_a_unit_that_systemd_gave_up_has_to_be_reset() -> None:
    (step,) = answer(raised(1, "KeyError: 'x'", 0), systemd(2, "start-limit"), unit="llm.service").next_steps[
        -1:
    ]
    assert "systemctl reset-failed llm.service" in step


def test_a_unit_in_a_loop_has_to_be_stopped() -> None:
    loop = answer(raised(1, FAULT, 0), unit="llm.service", state="activating", restarts=1347)
    assert (
        loop.next_steps[-1]
        == "systemd goes on restarting it; until it is repaired: systemctl stop llm.service."
    )
    assert answer(raised(1, FAULT, 0), state="activating", restarts=1).next_steps == ("Ask fa3.",)


def test_a_hostile_unit_name_gets_into_no_command() -> None:
    steps = answer(raised(1, FAULT, 0), unit="x; rm -rf /", state="activating", restarts=3).next_steps
    assert steps[-1].endswith("systemctl stop UNIT.")


def test_what_was_redacted_is_counted_by_kind() -> None:
    assert [(kind.kind, kind.count) for kind in answer(raised(1, FAULT, 0)).redacted] == [
        ("api-key", 1),
        ("token", 2),
    ]


# Phase


@pytest.mark.parametrize(
    ("function", "phase"),
    [
        ("event_loop_overlap", "serve"),
        ("capture_one_batch_size", "capture"),
        ("load_weights", "load"),
        ("init_memory_pool", "init"),
        ("prepare_server_args", "args"),
        ("somewhere", "unknown"),
    ],
)
def test_frames_tell_the_phase(function: str, phase: str) -> None:
    event = raised(1, FAULT, stack=frames(f"sglang/srt/a.py:{function}", "torch/x.py:call"))
    assert answer(event, phase="unknown").incident.phase == phase


def test_the_deepest_phase_of_the_frames_wins_and_no_frames_keep_what_was_announced() -> None:
    capturing = raised(
        1, FAULT, 0, stack=frames("sglang/a.py:initialize", "sglang/b.py:load_model", "sglang/c.py:capture")
    )
    assert answer(capturing, phase="load").incident.phase == "capture"
    assert answer(raised(1, FAULT, 0, stack=frames("a.py:f")), phase="load").incident.phase == "load"


def test_a_rank_has_its_arguments() -> None:
    reading = frames("sglang/srt/configs/model_config.py:from_server_args")
    assert answer(raised(1, FAULT, stack=reading)).incident.phase == "args"
    assert answer(raised(1, FAULT, 0, stack=reading)).incident.phase == "init"
    spawned = frames(
        "multiprocessing/process.py:_bootstrap", "sglang/srt/managers/scheduler.py:run_scheduler_process"
    )
    assert answer(raised(1, FAULT, stack=spawned), phase="args").incident.phase == "init"
    assert answer(raised(1, FAULT, 0), phase="load").incident.phase == "load"


def test_refused_arguments_are_of_the_phase_of_arguments() -> None:
    assert answer(logged(1, "x: error: y", origin="argparse"), phase="unknown").incident.phase == "args"
    assert (
        answer(raised(1, FAULT, stack=frames("lib/argparse.py:error")), phase="unknown").incident.phase
        == "args"
    )


def test_a_server_that_lacks_its_port_never_served() -> None:
    assert answer(logged(1, "address already in use", origin="bind"), phase="serve").incident.phase == "init"


# Remediations


def test_captures_fill_every_text_of_a_remediation() -> None:
    change = Change("set-flag", "--attention-backend", "{backend}")
    signature = offering(
        change, steps=("Stop {backend}",), rationale="{backend}?", side_effects="no {backend}"
    )
    (found,) = answer(raised(1, FAULT, 0), signature=signature).remediations
    assert (found.title, found.steps, found.rationale, found.side_effects) == (
        "Use fa3",
        ("Stop fa3",),
        "fa3?",
        "no fa3",
    )
    assert found.changes[0].value == "fa3"


def test_the_failing_value_is_the_one_in_force() -> None:
    change = Change("set-flag", "--attention-backend", "triton")
    assert offered(change, args={"attention_backend": "fa3"}) == [
        ("set-flag", "--attention-backend", "fa3", "triton")
    ]
    assert offered(change) == [("set-flag", "--attention-backend", None, "triton")]


@pytest.mark.parametrize("flag", ["--tp", "--tensor-parallel-size", "--tp-size", "--tp_size"])
def test_every_name_of_a_flag_finds_its_argument(flag: str) -> None:
    assert offered(Change("set-flag", flag, "4"), args={"tp_size": 8}) == [("set-flag", flag, "8", "4")]


@pytest.mark.parametrize(
    ("flag", "old", "step", "value"),
    [
        ("--mem-fraction-static", 0.85, -0.05, "0.8"),
        ("--mem-fraction-static", 0.9, 0.05, "0.95"),
        ("--mem-fraction-static", 0.96, 0.05, "0.98"),
        ("--mem-fraction-static", 0.06, -0.05, "0.05"),
        ("--schedule-conservativeness", 1.0, 0.3, "1.3"),
        ("--max-loras-per-batch", 8, 1, "9"),
        ("--max-loras-per-batch", 1, -1, "lower"),
        ("--max-loras-per-batch", None, 1, "lower"),
        ("--max-loras-per-batch", True, 1, "lower"),
        ("--max-loras-per-batch", "many", 1, "lower"),
    ],
)
def test_a_number_is_moved_from_the_value_in_force(flag: str, old: object, step: float, value: str) -> None:
    change = Change("set-flag", flag, "lower", adjust=step)
    field = flag[2:].replace("-", "_")
    assert [each[3] for each in offered(change, args={field: old, "tp_size": 1})] == [value]


@pytest.mark.parametrize("old", [False, None])
def test_a_switch_that_is_off_is_not_taken_away(old: object) -> None:
    off = Change("remove-flag", "--enable-torch-compile")
    assert offered(off, args={"enable_torch_compile": old}) == []
    assert offered(off, args={"tp_size": 8}) == []
    assert offered(off, args={"enable_torch_compile": True}) == [
        ("remove-flag", "--enable-torch-compile", "True", None)
    ]
    assert offered(off) == [("remove-flag", "--enable-torch-compile", None, None)]


def test_a_flag_that_the_table_lacks_may_be_taken_away() -> None:
    assert len(offered(Change("remove-flag", "--brand-new-switch"), args={"tp_size": 8})) == 1


@pytest.mark.parametrize(
    ("flag", "value", "args"),
    [
        ("--attention-backend", "triton", {"attention_backend": "triton"}),
        ("--tp", "8", {"tp_size": 8}),
        ("--mem-fraction-static", "0.80", {"mem_fraction_static": 0.8}),
        ("--disable-cuda-graph", None, {"disable_cuda_graph": True}),
    ],
)
def test_what_is_in_force_already_is_not_offered(
    flag: str, value: str | None, args: dict[str, object]
) -> None:
    assert offered(Change("set-flag", flag, value), args=args) == []
    other = {
        name: False if old is True else 1 if not isinstance(old, str) else "fa3" for name, old in args.items()
    }
    assert len(offered(Change("set-flag", flag, value), args=other)) == 1


def test_an_idle_change_is_left_out_of_a_remediation_that_has_others() -> None:
    changes = (Change("set-flag", "--attention-backend", "triton"), Change("set-flag", "--page-size", "64"))
    assert offered(*changes, args={"attention_backend": "triton", "page_size": 1}) == [
        ("set-flag", "--page-size", "1", "64")
    ]


def test_what_is_to_save_memory_does_not_take_more() -> None:
    change = Change("set-flag", "--cuda-graph-max-bs", "16")
    assert offered(change, args={"cuda_graph_max_bs": 8}, category="oom.gpu.capture") == []
    assert len(offered(change, args={"cuda_graph_max_bs": 160}, category="oom.gpu.capture")) == 1
    assert len(offered(change, args={"cuda_graph_max_bs": 8})) == 1
    tp = Change("set-flag", "--tp-size", "8")
    assert len(offered(tp, args={"tp_size": 4}, category="oom.gpu.weights")) == 1


def test_advice_without_changes_stays() -> None:
    signature = attrs.evolve(PLAIN, remediations=(Remediation("Stop the other process", "display-only"),))
    assert len(answer(raised(1, FAULT, 0), signature=signature, server_args={"tp_size": 1}).remediations) == 1


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (Condition(), 1),
        (Condition(server_args=(("attention_backend", ("fa3",)),)), 1),
        (Condition(server_args=(("attention_backend", ("triton",)),)), 0),
        (Condition(server_args=(("page_size", ("1",)),)), 1),  # not known, so not false
        (Condition(release=">=0.5.10"), 0),
        (Condition(release="<0.5.10"), 1),
        (Condition(phases=("load",)), 0),
        (Condition(context=("nowhere in the log",)), 0),
    ],
)
def test_a_remediation_is_offered_where_its_condition_is_not_false(when: Condition, expected: int) -> None:
    signature = offering(Change("set-env", "X", "1"), when=when)
    args: dict[str, object] = {"attention_backend": "fa3"}
    found = answer(raised(1, FAULT, 0), signature=signature, server_args=args, engine_version="0.5.9")
    assert len(found.remediations) == expected


def test_what_the_release_does_not_know_gives_way_to_what_it_knows() -> None:
    new = Remediation("new", "review", (Change("set-flag", "--attention-backend", "fa4"),))
    old = Remediation("old", "review", (Change("set-flag", "--attention-backend", "triton"),))
    signature = attrs.evolve(PLAIN, remediations=(new, old))

    def titles(release: str | None, offers: Signature = signature) -> list[str]:
        return [
            r.title
            for r in answer(raised(1, FAULT, 0), signature=offers, engine_version=release).remediations
        ]

    assert titles("0.5.2") == ["old"]
    assert titles("0.5.3") == titles(None) == ["new", "old"]
    assert titles("0.5.2", attrs.evolve(PLAIN, remediations=(new,))) == ["new"]  # better than none


# Arguments that were refused

REFUSED: Final = attrs.evolve(
    PLAIN,
    category="config.args",
    variants=(
        Variant("flag", ("unrecognized arguments",), r"arguments: (?P<flag>-[\w-]+)(?: (?P<value>\w+))?"),
        Variant(
            "choice",
            ("invalid choice",),
            r"argument (?P<flag>\S+): invalid choice: '(?P<value>\w+)' \(choose from (?P<choices>.*)\)",
        ),
    ),
)


def suggested(said: str, **invocation: Any) -> list[tuple[str, str, str | None]]:
    found = answer(logged(1, said, origin="argparse"), signature=REFUSED, **invocation)
    return [(c.op, c.name, c.value) for r in found.remediations for c in r.changes]


def test_a_flag_with_underscores_is_written_with_dashes() -> None:
    assert suggested("launch_server.py: error: unrecognized arguments: --attention_backend triton") == [
        ("remove-flag", "--attention_backend", None),
        ("set-flag", "--attention-backend", "triton"),
    ]


def test_a_typing_error_is_mended() -> None:
    assert suggested("launch_server.py: error: unrecognized arguments: --atention-backend triton")[1] == (
        "set-flag",
        "--attention-backend",
        "triton",
    )


def test_a_flag_that_was_renamed_is_named_anew() -> None:
    said = "launch_server.py: error: unrecognized arguments: --nsa-prefill-backend tilelang"
    assert suggested(said, engine_version="0.5.23")[1][:2] == ("set-flag", "--dsa-prefill-backend")


@pytest.mark.parametrize(
    "said",
    [
        "launch_server.py: error: unrecognized arguments: --wholly-made-up-thing x",
        "vllm serve: error: unrecognized arguments: --attention_backend triton",
        "launch_server.py: error: unrecognized arguments: stray",
        "launch_server.py: error: argument --dtype: invalid choice: 'x' (choose from 'float16', 'bfloat16')",
    ],
)
def test_nothing_is_suggested_where_nothing_is_close(said: str) -> None:
    known = attrs.evolve(REFUSED, variants=(*REFUSED.variants, Variant("any", ("error",))))
    assert answer(logged(1, said, origin="argparse"), signature=known).remediations == ()


def test_flags_of_another_engine_are_not_looked_up_in_the_table_of_sglang() -> None:
    said = "api_server.py: error: unrecognized arguments: --attention_backend x"
    assert suggested(said, engine="vllm") == []
    assert len(suggested(said, engine="sglang")) == 2


def test_a_refused_choice_becomes_the_one_that_is_spelt_alike() -> None:
    said = (
        "launch_server.py: error: argument --attention-backend: invalid choice: 'flash_infer'"
        " (choose from 'triton', 'flashinfer')"
    )
    assert suggested(said) == [("set-flag", "--attention-backend", "flashinfer")]
    assert (
        suggested(said.replace("--attention-backend", "-a/--attention-backend"))[0][1]
        == "--attention-backend"
    )


# Which answer counts


def crash(*events: Event, signature: Signature | None = None, **invocation: Any) -> Diagnosis:
    return answer(*events, signature=signature, **invocation)


def test_nothing_has_no_headline() -> None:
    assert headline([]) is None


def test_the_last_known_cause_is_the_headline() -> None:
    known = crash(raised(1, FAULT, 0), signature=PLAIN)
    unknown = crash(raised(1, "KeyError: 'x'", 0))
    evidence = crash(exited(1, 3, -9))
    assert headline([known, unknown, evidence]) == 0
    assert headline([unknown, known, known]) == 2
    assert headline([evidence, unknown, evidence]) == 1
    assert headline([evidence, evidence]) == 1


def test_a_unit_that_only_systemd_speaks_of_gives_way_to_the_server() -> None:
    server = crash(exited(1, 3, -9), unit="llm.service")
    bystander = crash(systemd(1, "exec-failed", "EXEC"), unit="fwupd.service")
    assert headline([server, bystander]) == 0
    assert headline([bystander]) == 0
    broken = crash(systemd(1, "exec-failed", "EXEC"), unit="llm.service")
    assert headline([server, broken, bystander]) == 1


def test_the_kernel_alone_is_an_answer() -> None:
    assert headline([crash(xid(1, 79))]) == 0


def test_an_incident_that_may_go_on_is_not_final() -> None:
    told: Incident = attrs.evolve(incident(raised(1, FAULT, 0), engine(2, "sigquit")), final=False)
    verdict = judge(told)
    assert verdict is not None
    assert diagnose(told, verdict, Index([PLAIN]), {}).final is False
