"""Each generation of each engine says who writes; and what only looks as if it did."""

# ruff: noqa: E501 - lines of logs are as long as they are
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logtriage.demux import split_prefix
from logtriage.model import Rank

TIME = "2026-11-15 10:00:00"
SGLANG = [
    # 0.3.6 to 0.4.6: TP is always there
    (f"[{TIME} TP0] Load weight begin.", "TP0", Rank(tp=0), TIME),
    (f"[{TIME} DP1 TP3] Decode batch.", "DP1 TP3", Rank(dp=1, tp=3), TIME),
    # 0.4.6.post5 to 0.4.9: TP before PP
    (f"[{TIME} TP1 PP2] x", "PP2 TP1", Rank(pp=2, tp=1), TIME),
    (f"[{TIME} DP0] x", "DP0", Rank(dp=0), TIME),
    # 0.4.10 to 0.5.5: DP, TP, EP, PP
    (f"[{TIME} DP0 TP7 EP7 PP1] x", "DP0 PP1 TP7 EP7", Rank(dp=0, pp=1, tp=7, ep=7), TIME),
    # 0.5.6 to 0.5.8: DP, PP, TP, EP
    (f"[{TIME} DP2 PP0 TP1 EP1] x", "DP2 PP0 TP1 EP1", Rank(dp=2, pp=0, tp=1, ep=1), TIME),
    # 0.5.9 and later
    (
        f"[{TIME} DP0 PP1 ATTN_CP2 MOE_DP3 TP4 EP5] x",
        "DP0 PP1 ATTN_CP2 MOE_DP3 TP4 EP5",
        Rank(dp=0, pp=1, attn_cp=2, moe_dp=3, tp=4, ep=5),
        TIME,
    ),
    # SGLANG_LOG_MS
    (f"[{TIME}.123 TP0] x", "TP0", Rank(tp=0), f"{TIME}.123"),
    (f"[{TIME}.123] x", "main", Rank(), f"{TIME}.123"),
    # one GPU, the tokenizer, the HTTP server
    (f"[{TIME}] Scheduler hit an exception: x", "main", Rank(), TIME),
    (f'[{TIME}] INFO:     127.0.0.1:50 - "GET /health HTTP/1.1" 200 OK', "main", Rank(), TIME),
    # the earliest releases, without the year or the date
    ("[12-13 18:00:32] x", "main", Rank(), "12-13 18:00:32"),
    ("[18:00:32 TP5] x", "TP5", Rank(tp=5), "18:00:32"),
    # the message is empty
    (f"[{TIME} TP0]", "TP0", Rank(tp=0), TIME),
    # the head is lost
    ("10:00:00 TP7] Scheduler hit an exception", "TP7", Rank(tp=7), None),
    ("0 DP1 TP3] Scheduler hit an exception", "DP1 TP3", Rank(dp=1, tp=3), None),
    ("TP7] Scheduler hit an exception", "TP7", Rank(tp=7), None),
]


@pytest.mark.parametrize(("text", "label", "rank", "time"), SGLANG)
def test_sglang_says_its_rank(text: str, label: str, rank: Rank, time: str | None) -> None:
    prefix = split_prefix(text)
    assert prefix
    assert (prefix.engine, prefix.process.label, prefix.process.rank, prefix.time) == ("sglang", label, rank, time)
    assert prefix.starts
    assert text.endswith(prefix.rest)
    assert prefix.rest == text.partition("]")[2].lstrip()
    assert prefix.process.role == ("scheduler" if rank else "launcher")


VLLM = [
    # 0.6: no process, no opening bracket
    ("INFO 03-04 10:31:59 llm_engine.py:174] x", "main", Rank(), None, "INFO", "llm_engine.py:174"),
    # 0.6 to 0.10.2: V0's workers have no rank
    ("(VllmWorkerProcess pid=225) ERROR 03-04 10:31:59 w.py:1] x", "VllmWorkerProcess", Rank(), 225, "ERROR", "w.py:1"),
    # 0.6.6 to 0.10.0
    ("(VllmWorker rank=2 pid=225) ERROR 03-04 10:31:59 [w.py:1] x", "VllmWorker rank=2", Rank(world=2), 225, "ERROR", "w.py:1"),
    ("(EngineCore_0 pid=12) ERROR 03-04 10:31:59 [core.py:710] x", "EngineCore_0", Rank(), 12, "ERROR", "core.py:710"),
    ("(ApiServer_1 pid=12) INFO 03-04 10:31:59 [a.py:1] x", "main", Rank(), 12, "INFO", "a.py:1"),
    # 0.10.1
    ("(VllmWorker TP0 pid=7) INFO 03-04 10:31:59 [a.py:1] x", "TP0", Rank(tp=0), 7, "INFO", "a.py:1"),
    ("(VllmWorker PP1_TP0 pid=7) INFO 03-04 10:31:59 [a.py:1] x", "PP1 TP0", Rank(pp=1, tp=0), 7, "INFO", "a.py:1"),
    ("(VllmWorker pid=7) INFO 03-04 10:31:59 [a.py:1] x", "VllmWorker", Rank(), 7, "INFO", "a.py:1"),
    # 0.10.2 and later
    ("(EngineCore_DP0 pid=9) ERROR 03-04 10:31:59 [core.py:1] x", "EngineCore_DP0", Rank(dp=0), 9, "ERROR", "core.py:1"),
    ("(APIServer pid=5) INFO 03-04 10:31:59 [v1/worker/a.py:1] x", "main", Rank(), 5, "INFO", "v1/worker/a.py:1"),
    ("(Worker_DP1_PP0_TP3_EP11 pid=5) x", "DP1 PP0 TP3 EP11", Rank(dp=1, pp=0, tp=3, ep=11), 5, "", ""),
    ("(EngineCore pid=5) Process EngineCore:", "EngineCore", Rank(), 5, "", ""),
    # its own name and torch's; its parent's name and its own
    ("(Worker_TP1 pid=5) [rank1]: Traceback (most recent call last):", "TP1", Rank(tp=1), 5, "", ""),
    ("(EngineCore_DP0 pid=1) (Worker_TP0 pid=2) ERROR 03-04 10:31:59 [a.py:1] x", "TP0", Rank(tp=0), 2, "ERROR", "a.py:1"),
]


@pytest.mark.parametrize(("text", "label", "rank", "pid", "level", "place"), VLLM)
def test_vllm_says_its_process(text: str, label: str, rank: Rank, pid: int | None, level: str, place: str) -> None:
    prefix = split_prefix(text)
    assert prefix
    assert (prefix.engine, prefix.process.label, prefix.process.rank) == ("vllm", label, rank)
    assert (prefix.process.pid, prefix.level, prefix.place) == (pid, level, place)
    assert not prefix.starts
    assert prefix.rest in ("x", "Process EngineCore:", "Traceback (most recent call last):")


def test_each_line_of_the_log_of_torch_starts_a_message() -> None:
    prefix = split_prefix("[rank5]:[E321 02:11:40.3 ProcessGroupNCCL.cpp:1984] x")
    assert prefix
    assert (prefix.process.label, prefix.rest, prefix.starts) == ("rank5", "[E321 02:11:40.3 ProcessGroupNCCL.cpp:1984] x", True)


def test_a_vllm_prefix_keeps_the_indentation_of_the_text() -> None:
    prefix = split_prefix('(Worker_TP1 pid=712) ERROR 03-04 10:31:59 [multiproc_executor.py:824]   File "a.py", line 819, in f')
    assert prefix
    assert prefix.rest == '  File "a.py", line 819, in f'


TENSORRT = [
    ("[07/08/2025-19:47:15] [TRT-LLM] [E] x", "main", Rank(), "ERROR"),
    ("[07/08/2025-19:47:15] [TRT-LLM] [RANK 1] [E] x", "RANK 1", Rank(world=1), "ERROR"),
    ("[07/08/2025-19:47:15] [TRT-LLM] [MPI_Rank 3] [W] x", "RANK 3", Rank(world=3), "WARNING"),
    ("[07/08/2025-19:47:15] [TRT-LLM] [E] [_torch][RANK 7] x", "RANK 7", Rank(world=7), "ERROR"),
    ("[07/08/2025-19:47:15] [TRT-LLM] [I] [executor] x", "main", Rank(), "INFO"),
]


@pytest.mark.parametrize(("text", "label", "rank", "level"), TENSORRT)
def test_tensorrt_llm_says_its_rank(text: str, label: str, rank: Rank, level: str) -> None:
    prefix = split_prefix(text)
    assert prefix
    assert (prefix.engine, prefix.process.label, prefix.process.rank) == ("tensorrt-llm", label, rank)
    assert (prefix.level, prefix.rest, prefix.time, prefix.starts) == (level, "x", "07/08/2025-19:47:15", True)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("[rank5]: Traceback (most recent call last):", "Traceback (most recent call last):"),
        ('[rank5]:   File "a.py", line 1, in f', '  File "a.py", line 1, in f'),
        ("[rank5]:[W ProcessGroupNCCL.cpp:1984] x", "[W ProcessGroupNCCL.cpp:1984] x"),
    ],
)
def test_torch_says_the_rank_in_the_whole_group(text: str, rest: str) -> None:
    prefix = split_prefix(text)
    assert prefix
    assert (prefix.engine, prefix.process.label, prefix.process.rank) == ("torch", "rank5", Rank(world=5))
    assert prefix.rest == rest
    assert not prefix.starts


def test_a_time_with_a_comma_is_no_engine_but_starts_a_message() -> None:
    prefix = split_prefix("[2024-05-01 12:00:00,123] torch.distributed.elastic: [ERROR] failed")
    assert prefix
    assert prefix.engine == "torch"
    assert prefix.starts
    assert prefix.rest == "torch.distributed.elastic: [ERROR] failed"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in f',
        "[2026-11-15T10:00:00Z] text",
        "[2026-11-15T10:00:00.123Z TP0] text",
        "[2026-11-15 10:00:00 TP] text",
        "[2026-11-15 10:00:00 XP3] text",
        "[2026-11-15 10:00:00 TP3 text",
        "[2026-11-15 10:00:00]text",
        "[2026-11-15] text",
        "(2026-11-15 10:00:00 TP0) text",
        "INFO:     Started server process [1]",
        'INFO:     127.0.0.1:50 - "GET /health HTTP/1.1" 200 OK',
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use",
        "INFO something else",
        "(SomeActor pid=12) hello",
        "a [2026-11-15 10:00:00 TP0] in the middle",
        "x = values[TP7]  # no prefix",
        "[rank]: x",
        "rank5: x",
        "[TRT-LLM] [E] x",
        "server_args=ServerArgs(model_path='x')",
    ],
)
def test_what_only_looks_like_a_prefix_is_none(text: str) -> None:
    assert split_prefix(text) is None


AXES = ("DP", "PP", "ATTN_CP", "MOE_DP", "TP", "EP")


@given(st.permutations(AXES), st.integers(1, 6), st.lists(st.integers(0, 999_999), min_size=6, max_size=6), st.text(max_size=40))
def test_axes_may_stand_in_any_order(axes: list[str], count: int, ranks: list[int], rest: str) -> None:
    said = list(zip(axes[:count], ranks, strict=False))
    prefix = split_prefix(f"[{TIME} {' '.join(f'{axis}{rank}' for axis, rank in said)}] {rest}")
    assert prefix
    assert prefix.process.rank.said() == sorted(
        ((axis.lower(), rank) for axis, rank in said), key=lambda pair: AXES.index(pair[0].upper())
    )
    assert prefix.rest == rest


@given(st.text(max_size=300))
def test_any_text_is_split_without_loss(text: str) -> None:
    prefix = split_prefix(text)
    assert prefix is None or text.endswith(prefix.rest)
