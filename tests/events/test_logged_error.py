"""Errors without a traceback: who says so in which shape, and what is none."""

# ruff: noqa: E501 - lines of logs are as long as they are
from __future__ import annotations

import pytest

from logtriage.events.logged_error import open_block
from logtriage.model import LoggedError, Process, Span
from tests.events.feeding import events_of, lines_of, one

USAGE = """
usage: sglang serve [-h] --model-path MODEL_PATH
                    [--tokenizer-path TOKENIZER_PATH]
                    [--load-format {auto,pt,safetensors}]

options:
"""


def test_the_last_line_of_a_usage_text_is_the_error() -> None:
    error = (
        "sglang serve: error: argument --attention-backend: invalid choice: 'triton2' (choose from 'triton')"
    )
    text = USAGE.replace("\noptions:\n", error)
    event = one(open_block, text, LoggedError)
    assert (event.origin, event.message, event.span) == ("argparse", error, Span(1, 4))


@pytest.mark.parametrize(
    "error",
    [
        "launch_server.py: error: unrecognized arguments: --attention-bakend triton",
        "sglang serve: error: argument --max-running-requests: invalid int value: 'many'",
        "api_server.py: error: the following arguments are required: --model",
        "vllm serve: error: argument --dtype: invalid choice: 'fp16' (choose from auto, half)",
        "launch_server.py: error: ambiguous option: --mem could match --mem-fraction-static, --mem-x",
    ],
)
def test_the_error_of_argparse_is_known_without_the_usage_above_it(error: str) -> None:
    event = one(open_block, error, LoggedError)
    assert (event.origin, event.message) == ("argparse", error)


def test_a_usage_text_that_somebody_asked_for_is_no_error() -> None:
    assert events_of(open_block, USAGE) == []


@pytest.mark.parametrize(
    ("text", "origin", "message"),
    [
        (
            "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30481): address already in use",
            "bind",
            "[Errno 98] error while attempting to bind on address ('127.0.0.1', 30481): address already in use",
        ),
        ("ERROR:    Application startup failed. Exiting.", "engine", "Application startup failed. Exiting."),
        (
            "» Ignore import error when loading sglang.srt.models.glm4_moe: No module named 'cutlass'",
            "import-ignored",
            "Ignore import error when loading sglang.srt.models.glm4_moe: No module named 'cutlass'",
        ),
        (
            "[2026-12-01 02:43:51] vm:21317:21317 [0] init.cc:904 NCCL WARN Duplicate GPU detected : rank 7 and rank 0",
            "nccl",
            "Duplicate GPU detected : rank 7 and rank 0",
        ),
        (
            "vm:21317:21399 [5] init.cc:904 (ncclInit) NCCL WARN Cuda failure 2 'out of memory'",
            "nccl",
            "Cuda failure 2 'out of memory'",
        ),
        (
            "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:34023",
            "gloo",
            "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:34023",
        ),
        (
            "E1016 08:00:09.917734  1555 rdma_endpoint.cpp:366] Failed to modify QP to RTR: Connection timed out [110]",
            "engine",
            "Failed to modify QP to RTR: Connection timed out [110]",
        ),
        (
            "[W1201 02:46:21.2 TCPStore.cpp:138] [c10d] recvValueWithTimeout failed on SocketImpl(fd=9): Failed to recv",
            "nccl",
            "recvValueWithTimeout failed on SocketImpl(fd=9): Failed to recv",
        ),
        (
            "[12/05/2025-06:23:18] [TRT-LLM] [RANK 7] [E] Error in event loop: vector::_M_default_append",
            "engine",
            "Error in event loop: vector::_M_default_append",
        ),
        (
            "[TensorRT-LLM][ERROR] Encountered error for requestId 7: x",
            "engine",
            "Encountered error for requestId 7: x",
        ),
        ("» Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: 0.1", "advice", None),
        ("bash: line 1: sglang: command not found", "engine", None),
        ("/usr/bin/python3: No module named sglang", "engine", None),
        ("Job for llm.service failed because a timeout was exceeded.", "engine", None),
        ("docker: Error response from daemon: could not select device driver", "engine", None),
    ],
)
def test_each_library_has_its_shape(text: str, origin: str, message: str | None) -> None:
    event = one(open_block, text, LoggedError)
    assert (event.origin, event.message) == (origin, message or text.removeprefix("» "))


def test_a_text_of_several_lines_is_one_error() -> None:
    text = """
» Prefill out of memory. Try to lower your batch size.
Try to allocate 8192 tokens.
Available tokens: 100

» Load weight end."""
    event = one(open_block, text, LoggedError)
    assert event.message == (
        "Prefill out of memory. Try to lower your batch size.\nTry to allocate 8192 tokens.\nAvailable tokens: 100"
    )
    assert event.span == Span(1, 4)


def test_the_stack_below_a_store_error_belongs_to_it() -> None:
    text = """
[W1201 02:46:21.2 TCPStore.cpp:138] [c10d] recvValue failed on SocketImpl(fd=9): failed to recv, got 0 bytes
Exception raised from recvBytes at /pytorch/Utils.hpp:678 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f3afafdadd4 in /libc10.so)
"""
    event = one(open_block, text, LoggedError)
    assert event.message == "recvValue failed on SocketImpl(fd=9): failed to recv, got 0 bytes"
    assert event.span == Span(1, 4)


def test_a_level_makes_an_error_of_any_text() -> None:
    event = one(open_block, lines_of("EngineCore encountered a fatal error.", level="ERROR"), LoggedError)
    assert (event.origin, event.message) == ("engine", "EngineCore encountered a fatal error.")
    assert events_of(open_block, lines_of("EngineCore is well.", level="INFO")) == []


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):",
        '  File "/x.py", line 819, in worker_busy_loop',
        "    output = func(*args, **kwargs)",
        "             ^^^^^^^^^^^^^^^^^^^^^",
        "During handling of the above exception, another exception occurred:",
        "",
    ],
)
def test_pieces_of_a_traceback_are_no_errors_of_their_own(text: str) -> None:
    assert events_of(open_block, lines_of(text, level="ERROR")) == []


def test_equal_lines_are_counted() -> None:
    line = "vm:21317:21399 [0] proxy.cc:11 NCCL WARN [Service thread] Could not receive type from localRank 3"
    event = one(open_block, "\n".join([line] * 3), LoggedError)
    assert (event.repeats, event.span) == (3, Span(1, 3))


def test_nccl_is_known_by_its_process_id_only() -> None:
    line = "gpu7:21317:21399 [5] init.cc:904 NCCL WARN Duplicate GPU detected"
    assert one(open_block, line, LoggedError).process == Process("worker", pid=21317)


@pytest.mark.parametrize(
    "text",
    [
        "Receive: obj=GenerateReqInput(text='launch_server.py: error: unrecognized arguments: --x')",
        'INFO:     127.0.0.1:42750 - "POST /generate HTTP/1.1" 500 Internal Server Error',
        "» server_args=ServerArgs(log_level_http=None, error='x')",
        "vm:21317:21317 [0] NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)",
        "» NCCL WARN is what you should look for",
        "slurm: error: x",
        "ERROR: setUpClass (__main__.TestQwen35WithHiCache)",
        "» usage: 93%",
        "I1016 08:00:09.917734  1555 rdma_endpoint.cpp:366] RDMA device: mlx5_0",
    ],
)
def test_what_only_looks_like_an_error_is_none(text: str) -> None:
    assert events_of(open_block, text) == []


def test_the_part_of_the_executor_that_did_not_fit_belongs_to_the_message() -> None:
    text = """
[07/08/2025-19:47:15] [TRT-LLM] [RANK 1] [E] Failed to initialize executor on rank 1: Executor creation failed due to insufficient GPU memory.

The following component could not be created: KV cache
Total GPU memory (GiB): 79.11
Free GPU memory before component creation attempt (GiB): 1.86
[07/08/2025-19:47:15] [TRT-LLM] [I] something else
"""
    event = one(open_block, text, LoggedError)
    assert event.message == (
        "Failed to initialize executor on rank 1: Executor creation failed due to insufficient GPU memory.\n"
        "The following component could not be created: KV cache\n"
        "Total GPU memory (GiB): 79.11\n"
        "Free GPU memory before component creation attempt (GiB): 1.86"
    )
    assert event.span == Span(1, 5)


def test_a_line_of_torchs_log_that_says_nothing_is_no_error() -> None:
    assert events_of(open_block, "[rank0]:[E000 0 0.0:0]") == []
