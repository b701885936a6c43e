"""Who it happened to, where the line itself does not say."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from logtriage.model import Event, Process, Rank
from logtriage.victims import silent_rank, with_victim
from tests.telling import (
    dumped,
    exited,
    frames,
    incident,
    kernel,
    logged,
    native,
    raised,
    rank,
    stuck,
    waited,
    xid,
)

ASSERTED = "TensorCompare.cu:109: Assertion `p >= 0` failed."


def victim(root: Event, *others: Event, **invocation: Any) -> tuple[str, str]:
    events = sorted([root, *others], key=lambda event: event.span.first)
    found = with_victim(root, incident(*events, **invocation))
    return found.process.label, found.basis


def test_a_launcher_names_the_dead() -> None:
    assert victim(exited(1, 3, -9))[0] == "TP3"


def test_a_launcher_that_asks_in_order_names_only_whom_it_asked() -> None:
    assert victim(exited(1, 0, -9, "Rank 0 scheduler is dead. Please check"))[0] == "main"


def test_a_dump_without_a_rank_is_of_the_only_process_that_died_of_that_signal() -> None:
    dump = dumped(1, "Segmentation fault")
    assert victim(dump, exited(5, 5, -11), exited(6, 2, -6)) == ("TP5", "only-candidate")
    assert victim(dump, exited(5, 5, -11), exited(6, 2, -11)) == ("", "prefix")
    assert victim(dump, exited(5, 5, -9)) == ("", "prefix")


def test_an_unnamed_reason_may_be_any_signal() -> None:
    assert victim(native(1, "free(): invalid pointer"), exited(5, 5, -6)) == ("TP5", "only-candidate")
    assert victim(native(1, "free(): invalid pointer"), exited(5, 5, 1))[0] == ""


def test_a_process_that_is_known_stays() -> None:
    assert victim(dumped(1, "Segmentation fault", 2), exited(5, 5, -11)) == ("TP2", "prefix")


def test_a_device_assertion_is_of_the_rank_that_raises_a_cuda_fault_next() -> None:
    fault = raised(4, "RuntimeError: CUDA error: device-side assert triggered", 6)
    other = raised(2, "ValueError: x", 1)
    assert victim(native(1, ASSERTED, origin="cuda-assert"), other, fault) == ("TP6", "guess")
    assert victim(native(5, ASSERTED, origin="cuda-assert"), fault)[0] == ""


def test_a_warning_of_nccl_is_of_the_rank_that_raises_it() -> None:
    fault = raised(4, "torch.distributed.DistBackendError: NCCL error: invalid usage", 2)
    assert (
        victim(
            logged(1, "NCCL WARN Duplicate GPU detected", origin="nccl"), raised(2, "ValueError: x", 7), fault
        )[0]
        == "TP2"
    )
    assert victim(logged(1, "something else"), fault)[0] == ""


def lost(line: int, number: int) -> Event:
    return raised(line, "RuntimeError: gloo: Connection closed by peer", number)


def test_the_dead_is_the_one_rank_that_does_not_miss_a_peer() -> None:
    losses = [lost(line, number) for line, number in enumerate((0, 1, 3), 2)]
    dump = dumped(1, "Segmentation fault")
    assert victim(dump, *losses, server_args={"tp_size": 4}) == ("TP2", "guess")
    assert victim(dump, *losses, server_args={"tp_size": 8})[0] == ""
    assert victim(dump, *losses)[0] == ""
    assert victim(dump, lost(2, 1), server_args={"tp_size": 2})[0] == ""


def test_the_kernel_names_a_pid_that_others_name_better() -> None:
    assert victim(xid(1, 31, 4242, "python3"), raised(2, "ValueError: x", rank(5, 4242))) == ("TP5", "pid")
    assert victim(kernel(1, "oom", 4343, "python3"), exited(2, rank(3, 4343), -9)) == ("TP3", "pid")
    assert victim(xid(1, 31, 99, "python3"), raised(2, "ValueError: x", rank(5, 4242)))[0] == "kernel"


def test_in_a_container_the_only_process_that_was_killed_is_the_oom_killers() -> None:
    report = kernel(1, "oom", 900_000, "sglang::schedul")
    assert victim(report, exited(2, rank(3, 77), -9)) == ("TP3", "only-candidate")
    assert victim(report, exited(2, rank(3, 77), -9), exited(3, rank(4, 78), -9))[0] == "kernel"
    assert victim(report, exited(2, rank(3, 77), 1))[0] == "kernel"
    assert victim(xid(1, 31, 900_000), exited(2, rank(3, 77), -9))[0] == "kernel"


def test_an_uncaught_exception_of_the_program_is_of_main() -> None:
    assert (
        victim(raised(1, "ValueError: x", stack=frames("launch_server.py:<module>", "sglang/a.py:run")))[0]
        == "main"
    )
    child = frames("<string>:<module>", "multiprocessing/spawn.py:spawn_main", "sglang/a.py:run")
    assert victim(raised(1, "ValueError: x", stack=child))[0] == ""
    assert victim(raised(1, "ValueError: x", stack=frames("threading.py:run")))[0] == ""


def test_a_refused_argument_is_of_main() -> None:
    assert victim(logged(1, "x: error: y", origin="argparse"))[0] == "main"


@pytest.mark.parametrize("complain", [waited, stuck])
def test_the_suspect_of_a_hang_is_the_rank_that_does_not_complain(complain: Any) -> None:
    complaints = [complain(line, number) for line, number in enumerate((0, 1, 3), 1)]
    args = {"tp_size": 4}
    found = silent_rank(complaints[0], incident(*complaints, server_args=args))
    assert found is not None
    assert (found.label, found.rank) == ("TP2", Rank(tp=2))
    assert silent_rank(complaints[0], incident(*complaints, complain(9, 2), server_args=args)) is None
    assert silent_rank(complaints[0], incident(*complaints[:2], server_args=args)) is None
    assert silent_rank(raised(1, "ValueError: x", 0), incident(*complaints, server_args=args)) is None


def test_ranks_that_only_torch_numbers_are_counted_too() -> None:
    complaints = [waited(n + 1, Process("worker", f"rank{n}", Rank(world=n))) for n in (0, 2)]
    found = silent_rank(complaints[0], incident(*complaints, server_args={"tp_size": 3}))
    assert found is not None
    assert found.label == "rank1"


def test_nothing_but_the_process_and_its_basis_changes() -> None:
    dump = dumped(1, "Segmentation fault")
    found = with_victim(dump, incident(dump, exited(5, 5, -11)))
    assert attrs.evolve(found, process=dump.process, basis=dump.basis) == dump


@pytest.mark.parametrize("complain", [waited, stuck])
def test_a_hang_is_of_the_rank_that_does_not_complain(complain: Any) -> None:
    first, *others = (complain(line, number) for line, number in enumerate((0, 1, 3), 1))
    assert victim(first, *others, server_args={"tp_size": 4}) == ("TP2", "guess")
    assert victim(first, *others) == ("TP0", "prefix")
