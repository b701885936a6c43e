"""Collectives that timed out: one event for each rank and collective, however often it is told."""

# ruff: noqa: E501 - lines of logs are as long as they are
from __future__ import annotations

import attrs
import pytest

from logtriage.events.collective import open_block
from logtriage.model import CollectiveTimeout, NativeAbort, Process, Rank, Span
from tests.events.feeding import events_of, lines_of, one

WORK = "WorkNCCL(SeqNum=9141, OpType=_ALLGATHER_BASE, NumelIn=19008, NumelOut=152064, Timeout(ms)=600000)"
CAUGHT = (
    f"Watchdog caught collective operation timeout: {WORK} ran for 600022 milliseconds before timing out."
)
HEAD = "[E1016 23:51:15.025390566 ProcessGroupNCCL.cpp:632]"
STORY = f"""
{HEAD} [Rank 5] {CAUGHT}
{HEAD} [PG ID 3 PG GUID 4 Rank 5]  failure detected by watchdog at work sequence id: 9141 PG status: last enqueued work: 9144, last completed work: 9140
{HEAD} Stack trace of the failed collective not found, potentially because FlightRecorder is disabled.
{HEAD} [Rank 5] Some NCCL operations have failed or timed out. Due to the asynchronous nature
{HEAD} [Rank 5] To avoid data inconsistency, we are taking the entire process down.
{HEAD} [PG ID 3 PG GUID 4 Rank 5] Process group watchdog thread terminated with exception: [Rank 5] {CAUGHT}
Exception raised from checkTimeout at /pytorch/ProcessGroupNCCL.cpp:632 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f3afafdadd4 in /libc10.so)
frame #1: <unknown function> + 0xdc253 (0x7f3a47bd2f39 in /usr/lib/libstdc++.so.6)

terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [PG ID 3 PG GUID 4 Rank 5] Process group watchdog thread terminated with exception: [Rank 5] {CAUGHT}
Exception raised from checkTimeout at /pytorch/ProcessGroupNCCL.cpp:632 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f3afafdadd4 in /libc10.so)

Fatal Python error: Aborted
"""


def test_a_rank_tells_one_timeout_from_its_first_word_to_its_abort() -> None:
    event = one(open_block, STORY, CollectiveTimeout)
    assert (event.operation, event.sequence, event.completed) == ("_ALLGATHER_BASE", 9141, 9140)
    assert event.message.splitlines()[0] == CAUGHT
    assert event.message.splitlines()[1].startswith("failure detected by watchdog at work sequence id: 9141")
    assert event.span == Span(1, 15)
    assert event.process == Process("worker", "rank5", Rank(world=5))


def test_a_rank_that_the_engine_named_keeps_its_name() -> None:
    process = Process("scheduler", "TP5", Rank(tp=5))
    event = one(open_block, lines_of(STORY, process=process), CollectiveTimeout)
    assert event.process == process


def test_lines_with_torchs_prefix_still_on_them_read_the_same() -> None:
    text = STORY.replace(HEAD, f"[rank5]:{HEAD}")
    assert one(open_block, text, CollectiveTimeout) == one(open_block, STORY, CollectiveTimeout)


def test_two_ranks_in_one_stream_are_two_events() -> None:
    other = STORY.replace("Rank 5", "Rank 2").replace(
        "last completed work: 9140", "last completed work: 9139"
    )
    events = events_of(open_block, STORY.strip("\n") + "\n" + other.strip("\n"))
    assert [(event.process.label, getattr(event, "completed", None)) for event in events] == [
        ("rank5", 9140),
        ("rank2", 9139),
    ]


def test_what_another_part_of_torch_says_is_not_of_the_collective() -> None:
    text = (
        f"{HEAD} [Rank 5] {CAUGHT}\n[W1201 02:46:21.2 TCPStore.cpp:138] [c10d] recvValue failed on SocketImpl"
    )
    assert one(open_block, text, CollectiveTimeout).span == Span(1, 1)


def test_another_collective_of_the_same_rank_is_another_event() -> None:
    text = f"{HEAD} [Rank 5] {CAUGHT}\n{HEAD} [Rank 5] {CAUGHT.replace('9141', '9142')}"
    assert [getattr(event, "sequence", None) for event in events_of(open_block, text)] == [9141, 9142]


def test_a_status_alone_tells_where_the_rank_stood() -> None:
    text = f"{HEAD} [PG 1 Rank 1] Timeout at NCCL work: 7, last enqueued NCCL work: 8, last completed NCCL work: 6."
    event = one(open_block, text, CollectiveTimeout)
    assert (event.sequence, event.completed, event.process.label) == (7, 6, "rank1")


def test_a_status_before_the_sentence_belongs_to_it() -> None:
    status = f"{HEAD} [PG 1 Rank 1] Timeout at NCCL work: 9141, last enqueued NCCL work: 9144, last completed NCCL work: 9140."
    event = one(open_block, f"{status}\n{HEAD} [Rank 1] {CAUGHT}", CollectiveTimeout)
    assert event.message == f"{CAUGHT}\n{status.partition('] [PG 1 Rank 1] ')[2]}"
    assert (event.operation, event.completed) == ("_ALLGATHER_BASE", 9140)


def test_a_process_that_dies_of_something_else_tells_both() -> None:
    text = f"""
{HEAD} [Rank 5] {CAUGHT}
terminate called after throwing an instance of 'std::runtime_error'
  what():  out of file descriptors
"""
    timeout, abort = events_of(open_block, text)
    assert isinstance(timeout, CollectiveTimeout)
    assert isinstance(abort, NativeAbort)
    assert (abort.exception, abort.message) == ("std::runtime_error", "out of file descriptors")


def test_a_cuda_error_of_the_watchdog_is_no_timeout() -> None:
    text = f"{HEAD} [PG ID 2 PG GUID 3 Rank 7] Process group watchdog thread terminated with exception: CUDA error: x"
    assert events_of(open_block, text) == []


def test_a_prefixed_message_of_the_engine_ends_the_block() -> None:
    text = f"{HEAD} [Rank 5] {CAUGHT}\n» Subprocess scheduler_1 (pid=3127) crashed with exit code -6."
    assert one(open_block, text, CollectiveTimeout).span == Span(1, 1)


@pytest.mark.parametrize(
    "words",
    [
        "[Rank 0] Received a dump signal due to a collective timeout from rank 7 and we will try our best to dump",
        "[Rank 0] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress",
        "[Rank 0] Heartbeat monitor timed out! Process will be terminated after dumping debug info.",
    ],
)
def test_other_words_of_a_waiting_rank_are_timeouts_without_a_number(words: str) -> None:
    event = one(open_block, f"{HEAD} {words}", CollectiveTimeout)
    assert (event.sequence, event.process.rank) == (None, Rank(world=0))


def test_a_monitored_barrier_names_who_is_missing() -> None:
    text = "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 2000 ms\n Original exception: \n"
    event = one(open_block, text, CollectiveTimeout)
    assert (event.operation, event.process.label, event.span) == ("BARRIER", "rank0", Span(1, 2))
    assert "Rank 1 failed to pass" in event.message


def test_a_kernels_flood_is_one_event() -> None:
    flood = "\n".join(
        f"DeepEP dispatch forwarder timeout (RDMA meta), channel: {n}, RDMA: 1, nvl: 7" for n in range(300)
    )
    event = one(open_block, flood, CollectiveTimeout)
    assert (event.operation, event.span) == ("DeepEP dispatch", Span(1, 300))
    assert event.message.startswith("DeepEP dispatch forwarder timeout (RDMA meta), channel: 0,")


def test_the_weakest_basis_of_its_lines_is_that_of_the_event() -> None:
    lines = lines_of(f"{HEAD} [Rank 5] {CAUGHT}\n{HEAD} [Rank 5] To avoid data inconsistency, we are taking")
    lines[1] = attrs.evolve(lines[1], basis="guess")
    assert one(open_block, lines, CollectiveTimeout).basis == "guess"


def test_a_check_of_deepep_that_waited_in_vain_is_one_timeout() -> None:
    said = "DeepEP timeout check failed: rank = 2, thread = {}, src_rank = 6"
    event = one(open_block, "\n".join(said.format(thread) for thread in range(3)), CollectiveTimeout)
    assert event.operation == "DeepEP barrier"
    assert event.message == said.format(0)
