"""Every rule of the judgement, with what it decides and what it leaves alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logtriage.model import Event, ExceptionLink, KernelReport, Lifecycle, Process, Verdict
from logtriage.rootcause import judge
from tests.telling import (
    dumped,
    engine,
    exited,
    frames,
    incident,
    kernel,
    logged,
    native,
    raised,
    rank,
    stuck,
    systemd,
    unanswered,
    waited,
    xid,
)

LOST: Final = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer"
CUDA: Final = "RuntimeError: CUDA error: an illegal memory access was encountered"
FAULT: Final = "AssertionError: wrong backend"


def verdict(*events: Event, **invocation: Any) -> Verdict:
    found = judge(incident(*sorted(events, key=lambda event: event.span.first), **invocation))
    assert found is not None
    assert found.root is not None
    return found


def root(*events: Event, **invocation: Any) -> int:
    """The input line of the root."""
    found = verdict(*events, **invocation).root
    assert found is not None
    return found.span.first


def roles(found: Verdict) -> dict[int, str]:
    return {finding.event.span.first: finding.role for finding in found.findings}


def is_healthy(*events: Event) -> bool:
    return judge(incident(*events)) is None


# Same fault on many ranks


def test_one_fault_on_eight_ranks_is_one_root_and_seven_observers() -> None:
    events = [raised(line, FAULT, number) for line, number in enumerate((4, 6, 7, 0, 1, 5, 2, 3), 1)]
    found = verdict(*events, engine(9, "sigquit"), systemd(10, "main-exited", "KILL", 9))
    assert found.root is events[0]
    assert found.root_role == "initiating"
    assert [finding.role for finding in found.findings] == ["observer"] * 7 + ["teardown", "cascade"]
    assert found.findings[0].reason == "the same fault as on TP4, later in the log"


def test_the_same_rank_that_says_it_twice_is_no_observer() -> None:
    found = verdict(raised(1, FAULT, 0), raised(2, FAULT, 0))
    assert [(finding.role, finding.reason) for finding in found.findings] == [
        ("cascade", "the same fault again")
    ]


def test_of_two_faults_the_first_is_the_root_and_the_other_says_so() -> None:
    found = verdict(raised(1, FAULT, 0), raised(2, "KeyError: 'bias'", 5))
    assert roles(found) == {2: "cascade"}
    assert found.findings[0].reason.startswith("after the root, or less telling: ")


# The cascade never is the root while anything better exists

CASCADE: Final[Sequence[Event]] = (
    raised(2, LOST, 1),
    raised(3, "torch.distributed.DistStoreError: Socket Timeout", 2),
    raised(
        4, "ValueError: TP rank 2 could finish the model loading, but there are other ranks that did not", 2
    ),
    raised(
        5,
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: 1).",
        Process("launcher", "main"),
    ),
    raised(6, "EOFError: ", stack=frames("multiprocessing/connection.py:_recv")),
    raised(7, "KeyboardInterrupt: "),
    raised(8, "ValueError: x", header="Exception in ASGI application"),
    raised(9, "ValueError: x", 3, ignored=True),
    engine(10, "sigquit"),
    engine(11, "teardown"),
    engine(12, "sigterm", "shutdown"),
    systemd(13, "main-exited", "KILL", 9),
    systemd(14, "failed", "signal"),
    systemd(15, "restart-scheduled", number=1),
    systemd(16, "start-limit"),
    exited(17, 1, -9),
    exited(18, Process(), None, "Killed"),
    logged(19, "ERROR something went wrong", 0),
    logged(20, "Ignore import error when loading x", 0, "import-ignored"),
    stuck(21, 0, soft=True),
    xid(22, 45),
    xid(23, 154),
    xid(24, 63),
)
CAUSES: Final[Sequence[Event]] = (
    raised(50, FAULT, 0),
    raised(50, "", 0, complete=False),
    raised(50, CUDA, 0),
    raised(50, "Exception: Capture cuda graph failed: x", 0),
    native(50, "TensorCompare.cu:109: Assertion `p >= 0` failed.", origin="cuda-assert"),
    native(50, "free(): invalid pointer", origin="glibc"),
    dumped(50, "Segmentation fault"),
    dumped(50, "Aborted"),
    logged(50, "serve: error: unrecognized arguments: --x", origin="argparse"),
    logged(50, "[Errno 98] address already in use", origin="bind"),
    waited(50, 0),
    stuck(50, 0),
    xid(50, 79),
    xid(50, 31, 7, "python3"),
    kernel(50, "oom", 7, "python3"),
)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda event: event.message[:30])
def test_a_cause_is_the_root_though_the_whole_cascade_stands_before_it(cause: Event) -> None:
    found = verdict(*CASCADE, cause)
    assert found.root is not None
    assert (found.root.span.first, found.root_role) == (50, "initiating")
    assert {finding.role for finding in found.findings} <= {"cascade", "teardown", "noise", "unknown"}


@given(st.sampled_from(CAUSES), st.randoms(use_true_random=False), st.integers(0, len(CASCADE)))
def test_whatever_part_of_the_cascade_the_log_holds(cause: Event, shuffle: random.Random, size: int) -> None:
    assert root(cause, *shuffle.sample(list(CASCADE), size)) == 50


@given(st.randoms(use_true_random=False), st.integers(1, len(CASCADE)))
def test_a_log_of_consequences_names_evidence_and_calls_it_so(shuffle: random.Random, size: int) -> None:
    events = sorted(shuffle.sample(list(CASCADE), size), key=lambda event: event.span.first)
    found = judge(incident(*events))
    if found is None:
        return
    assert found.root_role == "earliest-evidence"
    assert found.reason.startswith("the earliest evidence that the log holds, not the cause: ")


@pytest.mark.parametrize(
    ("events", "first"),
    [
        ([raised(1, LOST, 0), exited(2, 3, -9)], 2),  # who died says more than who missed him
        ([raised(1, LOST, 0), raised(2, LOST, 1)], 1),
        ([engine(1, "sigquit"), systemd(2, "main-exited", "KILL", 9)], 2),
        (
            [
                systemd(1, "main-exited", "FAILURE", 1),
                systemd(2, "failed", "exit-code"),
                systemd(3, "start-limit"),
            ],
            1,
        ),
        ([systemd(1, "start-limit")], 1),
        ([logged(1, "ERROR x", 0), engine(2, "sigquit")], 1),
        ([exited(1, Process(), None, "Killed"), systemd(2, "failed", "signal")], 1),
        ([systemd(1, "control-exited", "NOTIMPLEMENTED", 3), systemd(2, "failed", "exit-code")], 1),
        (
            [
                systemd(1, "main-exited", "FAILURE", 1),
                systemd(2, "control-exited", "x", 5),
                systemd(3, "failed", "exit-code"),
            ],
            1,
        ),
        ([systemd(1, "failed", "dependency")], 1),
        ([systemd(1, "failed", "protocol")], 1),
    ],
)
def test_the_best_evidence(events: list[Event], first: int) -> None:
    found = verdict(*events)
    assert found.root is not None
    assert (found.root.span.first, found.root_role) == (first, "earliest-evidence")


# Healthy lives


@pytest.mark.parametrize(
    "events",
    [
        [engine(1, "ready", "serve")],
        [
            systemd(1, "started"),
            systemd(2, "stopping", "stop"),
            raised(3, "ValueError: x", 0),
            systemd(4, "failed", "signal"),
        ],
        [
            engine(1, "ready"),
            engine(2, "sigterm", "signal"),
            raised(3, "asyncio.CancelledError: "),
            exited(4, 0, -9),
        ],
        [
            engine(1, "ready"),
            engine(2, "sigterm", "drained"),
            systemd(3, "main-exited", "KILL", 9),
            systemd(4, "failed", "signal"),
        ],
        [engine(1, "ready"), raised(2, "ValueError: x", header="Exception in ASGI application")],
        [
            raised(1, "ValueError: x", header="Exception in ASGI application"),
            systemd(2, "stopping"),
            systemd(3, "failed", "signal"),
        ],
        [stuck(1, 0, soft=True)],
        [raised(1, "ValueError: x", 0, ignored=True)],
        [logged(1, "Ignore import error", 0, "import-ignored"), logged(2, "ERROR x", 0)],
        [systemd(1, "main-exited", "TERM", 15), systemd(2, "stopped", "success")],
        [systemd(1, "control-exited", "FAILURE", 1)],
        [
            systemd(
                1,
                "exec-failed",
                message="modprobe@x.service: Executable /sbin/modprobe missing, skipping: No such file",
            )
        ],
        [systemd(1, "started"), systemd(2, "stopped", "success"), systemd(3, "restart-scheduled", number=1)],
        [engine(1, "ready"), xid(2, 63), xid(3, 92)],
        [engine(1, "ready"), xid(2, 45, 9, "python3")],
        [engine(1, "ready"), kernel(2, "oom", 77, "mysqld")],
        [exited(1, 0, 0)],
    ],
)
def test_a_healthy_life_is_no_crash(events: list[Event]) -> None:
    assert is_healthy(*events)


def test_a_health_check_that_recovers_is_no_crash() -> None:
    assert is_healthy(engine(1, "ready"), unanswered(2), engine(3, "phase", "serve"))
    assert root(engine(1, "ready"), unanswered(2)) == 2


def test_a_health_check_fails_because_of_the_trouble_before_it() -> None:
    found = verdict(exited(1, 3, -9), unanswered(2))
    assert found.root is not None
    assert found.root.span.first == 1
    assert found.root_role == "earliest-evidence"


def test_the_headline_of_a_consequence_is_not_the_evidence() -> None:
    said = logged(1, "Error in chat completion stream generator.")
    assert root(said, raised(2, "EngineDeadError: EngineCore encountered an issue")) == 2


def test_a_launch_failure_after_a_vain_wait_is_the_end_of_the_wait() -> None:
    failed = raised(5, "RuntimeError: CUDA error: unspecified launch failure", 1)
    assert root(waited(1, 1, "DeepEP dispatch"), failed) == 1
    assert root(waited(1, 1), failed) == 5


# Stops


def test_a_stop_explains_only_what_comes_after_it() -> None:
    stop = systemd(5, "stopping", "stop")
    assert root(raised(1, FAULT, 0), stop) == 1
    assert is_healthy(stop, raised(6, FAULT, 0))
    found = verdict(raised(1, FAULT, 0), stop, raised(6, "KeyError: 'x'", 1))
    assert roles(found)[6] == "cascade"  # who stops a broken server is not why it breaks


def test_a_web_server_that_shuts_down_was_not_asked_to() -> None:
    assert root(engine(1, "sigterm", "shutdown"), raised(2, FAULT, 0)) == 2


def test_what_precedes_a_stop_harmlessly_does_not_hide_it() -> None:
    before = [
        raised(1, "ValueError: x", header="Exception in ASGI application"),
        stuck(2, 0, soft=True),
        xid(3, 63),
    ]
    assert is_healthy(*before, engine(4, "sigterm", "signal"), raised(5, FAULT, 0))


# systemd


@pytest.mark.parametrize(
    "event",
    [
        systemd(1, "exec-failed", "EXEC"),
        systemd(1, "oom-killed", "systemd-oomd"),
        systemd(1, "timeout", "start"),
        systemd(1, "timeout", "watchdog"),
        systemd(1, "timeout", "runtime"),
        systemd(1, "failed", "oom-kill"),
        systemd(1, "failed", "watchdog"),
    ],
)
def test_what_systemd_itself_says_is_a_cause(event: Lifecycle) -> None:
    found = verdict(event, systemd(2, "main-exited", "KILL", 9), systemd(3, "failed", "exit-code"))
    assert found.root is event
    assert found.root_role == "initiating"


def test_a_time_limit_is_a_consequence_of_trouble_before_it() -> None:
    assert root(raised(1, FAULT, 0), systemd(2, "timeout", "start")) == 1
    assert root(exited(1, 3, -9), systemd(2, "timeout", "start"), systemd(3, "failed", "timeout")) == 1
    assert root(systemd(1, "timeout", "start"), raised(2, "KeyboardInterrupt: ")) == 1


def test_the_rest_of_a_service_that_will_not_end_is_no_cause() -> None:
    assert root(systemd(1, "timeout", "stop-sigterm"), systemd(2, "main-exited", "KILL", 9)) == 2
    assert roles(verdict(systemd(1, "timeout", "start"), systemd(2, "timeout", "stop-sigterm"))) == {
        2: "cascade"
    }
    assert root(systemd(1, "timeout", "stop-sigterm"), raised(2, FAULT, 0)) == 2


def test_a_stop_that_takes_too_long_is_told() -> None:
    found = verdict(
        systemd(1, "stopping", "stop"), systemd(2, "timeout", "stop-sigterm"), systemd(3, "failed", "timeout")
    )
    assert found.root is not None
    assert (found.root.span.first, found.root_role) == (2, "initiating")


def test_a_server_that_ends_by_itself_though_cleanly_is_evidence() -> None:
    ending = [systemd(2, "stopped", "success"), systemd(3, "restart-scheduled", number=1)]
    assert root(engine(1, "ready"), *ending) == 3
    assert is_healthy(systemd(1, "started"), *ending)  # a login prompt does that all day
    assert is_healthy(engine(1, "sigterm", "signal"), *ending)


# The kernel


@pytest.mark.parametrize("code", [13, 31, 48, 62, 64, 74, 79, 94, 95, 109, 119, 140, 144, 149, 167, 171, 999])
def test_an_xid_goes_before_everything_that_follows_from_it(code: int) -> None:
    assert root(raised(1, CUDA, 0), raised(2, LOST, 1), xid(9, code)) == 9


@pytest.mark.parametrize("code", [37, 43, 45, 63, 66, 92, 93, 106, 107, 121, 154, 160])
def test_an_xid_that_echoes_or_records_gives_way(code: int) -> None:
    assert root(xid(1, code), raised(2, CUDA, 0)) == 2
    assert root(xid(1, code), xid(2, 94)) == 2


@pytest.mark.parametrize(
    ("code", "role"), [(43, "initiating"), (45, "earliest-evidence"), (154, "earliest-evidence")]
)
def test_an_echo_beside_nothing_better_is_what_there_is(code: int, role: str) -> None:
    found = verdict(xid(1, code), engine(2, "sigquit"))
    assert found.root is not None
    assert (found.root.span.first, found.root_role) == (1, role)


def test_who_died_says_more_than_the_driver_that_cleans_up_after_him() -> None:
    assert root(xid(1, 45, 7, "python3"), exited(2, 3, -9)) == 2


def test_the_oom_killer_is_joined_to_the_rank_it_killed() -> None:
    found = verdict(
        raised(1, LOST, 0), exited(2, rank(3, 4242), -9), kernel(3, "oom", 4242, "sglang::schedul")
    )
    assert found.root is not None
    assert (found.root.kind, found.root.process.label) == ("kernel", "TP3")


def test_the_oom_killer_of_another_program_is_noise() -> None:
    found = verdict(kernel(1, "oom", 77, "mysqld"), raised(2, FAULT, 0))
    assert (found.root and found.root.span.first, roles(found)) == (2, {1: "noise"})


def test_words_of_the_kernel_from_another_channel_are_believed_less_than_its_own() -> None:
    assert root(xid(1, 31, trusted=False), xid(2, 79)) == 2
    assert root(raised(1, CUDA, 0), xid(2, 31, trusted=False)) == 2


def test_an_xid_in_the_text_of_a_process_is_no_report() -> None:
    said = logged(1, "request: NVRM: Xid (PCI:0000:1a:00): 79, GPU has fallen off the bus.", 0)
    found = verdict(said, raised(2, FAULT, 0))
    assert not any(isinstance(finding.event, KernelReport) for finding in found.findings)
    assert found.root is not None
    assert found.root.span.first == 2


def test_a_segfault_in_the_kernels_log_gives_way_to_the_exception_and_the_dump() -> None:
    assert root(kernel(1, "segfault", 7, "python3"), dumped(2, "Segmentation fault")) == 2
    assert root(kernel(1, "segfault", 7, "python3"), exited(2, 3, -11)) == 1


# Native code and CUDA


def test_a_device_assertion_is_the_cause_of_the_cuda_errors_after_it() -> None:
    asserted = native(1, "Indexing.cu:1515: Assertion `a < b` failed.", origin="cuda-assert")
    found = verdict(asserted, raised(2, "RuntimeError: CUDA error: device-side assert triggered", 6))
    assert found.root is not None
    assert (found.root.span.first, found.root.process.label) == (1, "TP6")


def test_a_cuda_fault_is_repeated_by_its_own_process_and_shared_by_others() -> None:
    found = verdict(
        raised(1, CUDA, 3),
        raised(2, "RuntimeError: CUDA error: unspecified launch failure", 3),
        raised(3, CUDA, 4),
    )
    assert roles(found) == {2: "cascade", 3: "observer"}
    assert "may be innocent" in found.reason


def test_another_fault_of_the_process_is_no_repetition() -> None:
    found = verdict(raised(1, CUDA, 3), raised(2, "KeyError: 'x'", 3))
    assert found.findings[0].reason.startswith("after the root")


def test_a_dump_of_an_abort_gives_way_to_what_made_it_abort() -> None:
    assert root(dumped(1, "Aborted"), native(2, "terminate called: what(): x", origin="terminate")) == 2
    assert root(dumped(1, "Aborted"), waited(2, 0)) == 2
    assert root(dumped(1, "Segmentation fault"), waited(2, 0)) == 1


# Exceptions


def test_an_exception_says_more_than_its_wrapper() -> None:
    wrapper = raised(1, "Exception: Capture cuda graph failed: CUDA out of memory", 0)
    assert root(wrapper, raised(2, "torch.OutOfMemoryError: CUDA out of memory", 1)) == 2
    assert "wraps the text" in verdict(wrapper).reason


def test_a_whole_traceback_says_more_than_a_torn_one() -> None:
    torn = raised(1, "", 0, complete=False)
    assert root(torn, raised(2, FAULT, 1)) == 2
    assert "ends before its exception" in verdict(torn).reason


def test_an_exception_without_its_frames_says_less() -> None:
    link = ExceptionLink("ValueError", "x", (), "")
    bare = raised(1, "ValueError: x", 0)
    bare = type(bare)(
        **{**{a: getattr(bare, a) for a in ("process", "span", "message", "stream")}, "chain": (link,)}
    )
    assert root(bare, raised(2, FAULT, 1)) == 2
    assert "whose traceback the log does not hold" in verdict(bare).reason


def test_a_late_root_is_found_behind_its_own_cascade() -> None:
    losses = [raised(line, LOST, line) for line in range(1, 8)]
    assert root(*losses, raised(20, FAULT, 0)) == 20


def test_an_error_line_that_an_exception_repeats_is_the_first_word_on_it() -> None:
    said = logged(1, "ERROR failed: the model needs 8 heads but has 6", 0)
    assert root(said, raised(2, "ValueError: the model needs 8 heads but has 6", 0)) == 1
    assert root(said, raised(2, "ValueError: another story altogether", 0)) == 2
    assert (
        root(logged(3, said.message, 0), raised(2, "ValueError: the model needs 8 heads but has 6", 0)) == 2
    )


def test_what_nccl_warns_of_is_the_cause_of_its_exception() -> None:
    warned = logged(1, "NCCL WARN Duplicate GPU detected : rank 7 and rank 0", 0, "nccl")
    assert root(warned, raised(2, "torch.distributed.DistBackendError: NCCL error: invalid usage", 0)) == 1
    assert root(warned, raised(2, FAULT, 0)) == 2


def test_what_a_parent_raises_after_a_death_is_about_the_death() -> None:
    parent = raised(2, "RuntimeError: no answer", Process("launcher", "main"))
    assert root(exited(1, 3, -9), parent) == 1
    assert root(exited(3, 3, -9), parent) == 2
    assert root(exited(1, 3, -9), raised(2, FAULT, 5)) == 2
    assert root(exited(1, 3, -9), raised(2, "torch.distributed.DistBackendError: NCCL error", 5)) == 1


# Hangs


def test_a_collective_that_timed_out_names_the_rank_that_did_not_complain() -> None:
    complaints = [waited(line, number) for line, number in enumerate((0, 1, 3), 1)]
    found = verdict(*complaints, server_args={"tp_size": 4})
    assert found.reason.endswith("the suspect, not the one that waited; TP2 alone does not complain")
    assert roles(found) == {2: "observer", 3: "observer"}
    assert "alone" not in verdict(*complaints).reason


def test_a_fault_on_another_rank_is_why_a_collective_timed_out() -> None:
    assert root(waited(1, 0), waited(2, 1), raised(3, FAULT, 2)) == 3
    assert root(stuck(1, 0), waited(2, 1)) == 2


# The whole


def test_every_finding_and_every_root_has_a_sentence() -> None:
    for cause in CAUSES:
        found = verdict(*CASCADE, cause)
        for reason in [found.reason, *(finding.reason for finding in found.findings)]:
            assert len(reason.split()) >= 3
            assert reason == reason.strip()


def test_steps_of_a_healthy_life_are_no_findings() -> None:
    found = verdict(
        systemd(1, "started"), engine(2, "server-args"), engine(3, "phase", "load"), raised(4, FAULT, 0)
    )
    assert found.findings == ()


def test_a_flood_of_advice_is_one_finding() -> None:
    advice = [logged(line, f"Ignore import error {line}", 0, "import-ignored") for line in range(2, 300)]
    (finding,) = verdict(raised(1, FAULT, 0), *advice).findings
    assert finding.role == "noise"
    assert getattr(finding.event, "repeats", 0) == 298


def test_an_event_that_no_rule_knows_is_no_suspect() -> None:
    strange = Event(message="?", process=Process(), span=raised(1, FAULT).span)
    assert judge(incident(strange)) is None
    assert roles(verdict(strange, raised(2, FAULT, 0))) == {1: "unknown"}
