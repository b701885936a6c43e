"""Compilers inside a server: the first error of the first failed command is the message."""

from __future__ import annotations

import pytest

from logtriage.events.native_abort import open_block
from logtriage.model import NativeAbort, Span
from tests.events.feeding import events_of, one


def test_the_compilers_error_is_the_message_of_a_failed_command() -> None:
    text = """
FAILED: [code=1] main.o\x20
g++ -MMD -MF main.o.d -c main.cpp -o main.o
/tmp/mbad/main.cpp:3:10: fatal error: nope.h: No such file or directory
    3 | #include <nope.h>
      |          ^~~~~~~~
compilation terminated.
ninja: build stopped: subcommand failed.
something else
"""
    event = one(open_block, text, NativeAbort)
    assert event.origin == "jit"
    assert event.message.splitlines()[0] == (
        "/tmp/mbad/main.cpp:3:10: fatal error: nope.h: No such file or directory"
    )
    assert event.message.splitlines()[1] == "    3 | #include <nope.h>"
    assert event.span == Span(1, 7)


def test_the_first_error_counts_not_the_last() -> None:
    text = """
FAILED: a.cuda.o
/x/a.cuh(120): error: identifier "__nv_fp4" is undefined
/x/a.cuh(121): error: expected a ";"
2 errors detected in the compilation of "a.cu".
ninja: build stopped: subcommand failed."""
    assert one(open_block, text, NativeAbort).message == (
        '/x/a.cuh(120): error: identifier "__nv_fp4" is undefined'
    )


def test_a_command_that_failed_silently_is_told_by_ninja() -> None:
    text = "FAILED: a.o \ng++ -c a.cpp\nninja: build stopped: subcommand failed."
    assert one(open_block, text, NativeAbort).message == "FAILED: a.o"


@pytest.mark.parametrize(
    "text",
    [
        "nvcc fatal   : Unsupported gpu architecture 'compute_120a'",
        "ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'",
        "ptxas /tmp/tmpx.ptx, line 5; error   : Feature '.bf16' requires .target sm_90 or higher",
        "x.cu:5:10: fatal error: cublasLt.h: No such file or directory",
        "c++: fatal error: Killed signal terminated program cc1plus",
        "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
        "LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.shfl.sync.bfly.i32",
        "/usr/bin/ld: cannot find -lcuda: No such file or directory",
        "/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found",
        'loc("/x/fused_moe.py":12:5): error: operation destroyed but still has uses',
        "NVCC compilation failed: nvcc fatal   : Unsupported gpu architecture 'compute_103a'",
    ],
)
def test_an_error_outside_of_ninja_is_told_as_it_stands(text: str) -> None:
    event = one(open_block, text, NativeAbort)
    assert (event.origin, event.message) == ("jit", text)


def test_further_errors_are_counted_and_not_kept() -> None:
    text = """
/x/a.cuh(120): error: identifier "__nv_fp4" is undefined
   120 |   __nv_fp4 value;
       |   ^~~~~~~~
/x/a.cuh(121): error: expected a ";"
2 errors detected in the compilation of "a.cu".
the next thing"""
    event = one(open_block, text, NativeAbort)
    assert event.message.splitlines()[0] == '/x/a.cuh(120): error: identifier "__nv_fp4" is undefined'
    assert "121" not in event.message
    assert event.span == Span(1, 5)


@pytest.mark.parametrize(
    "text",
    [
        "nvcc warning : The 'compute_70' architecture is deprecated",
        "x.cu(7): warning #177-D: variable was declared but never referenced",
        "[1/3] nvcc -c x.cu -o x.o",
        "FAILED to reach the hub, trying the cache",
        "prompt: nvcc fatal   : Unsupported gpu architecture",
    ],
)
def test_warnings_and_talk_are_no_errors(text: str) -> None:
    assert events_of(open_block, text) == []
