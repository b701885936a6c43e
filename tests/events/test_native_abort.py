"""Native code that gives up: the words that tell why, and what belongs to them."""

# ruff: noqa: E501 - lines of logs are as long as they are
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from logtriage.events import EventReader
from logtriage.events.native_abort import open_block
from logtriage.model import CollectiveTimeout, NativeAbort, Process, Rank, Span
from tests.events.feeding import events_of, lines_of, one

HEAD = "[E321 16:10:05.451846984 ProcessGroupNCCL.cpp:2068] [PG ID 2 PG GUID 3 Rank 7]"
CUDA = "CUDA error: an illegal memory access was encountered"
WATCHDOG = f"Process group watchdog thread terminated with exception: {CUDA}"
ADVICE = """CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace may be wrong.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."""
STACK = """Exception raised from c10_cuda_check_implementation at /pytorch/CUDAException.cpp:44 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x80 (0x7f3a3d9a4403 in /libc10.so)
frame #1: <unknown function> + 0x11fb7 (0x7f3a875ab6a6 in /libc10_cuda.so)
"""


def test_a_watchdogs_abort_is_told_once_though_it_is_printed_twice() -> None:
    text = f"""
{HEAD} {WATCHDOG}
{ADVICE}

{STACK}
terminate called after throwing an instance of 'c10::AcceleratorError'
  what():  [PG ID 2 PG GUID 3 Rank 7] {WATCHDOG}
{ADVICE}

{STACK}
Fatal Python error: Aborted
"""
    event = one(open_block, text, NativeAbort)
    assert (event.origin, event.exception) == ("c10", "c10::AcceleratorError")
    assert event.message == f"{WATCHDOG}\n{ADVICE}"
    assert event.process == Process("worker", "rank7", Rank(world=7))
    assert event.span == Span(1, 19)


def test_a_watchdog_throws_torchs_own_class_even_where_the_abort_was_cut_off() -> None:
    text = f"{HEAD} {WATCHDOG}\n{STACK}terminate called after throwing an instance of 'c10::DistBackendError'"
    assert one(open_block, text, NativeAbort).exception == "c10::DistBackendError"
    assert one(open_block, f"{HEAD} {WATCHDOG}", NativeAbort).exception == "c10::DistBackendError"


def test_the_text_after_last_error_belongs_to_the_message() -> None:
    text = f"""
{HEAD} Process group watchdog thread terminated with exception: NCCL error: remote process exited
ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
Last error:
NET/IB : Got completion from peer 172.21.17.89<38536> with error 5, opcode 48, len 32710, vendor err 249
{STACK}"""
    message = one(open_block, text, NativeAbort).message
    assert message.endswith("with error 5, opcode 48, len 32710, vendor err 249")
    assert "frame #" not in message


def test_a_copy_of_the_watchdogs_line_is_taken_and_another_ranks_is_not() -> None:
    text = f"{HEAD} {WATCHDOG}\n{HEAD} {WATCHDOG}\n{HEAD.replace('Rank 7', 'Rank 6')} {WATCHDOG}"
    assert [(event.process.label, event.span) for event in events_of(open_block, text)] == [
        ("rank7", Span(1, 2)),
        ("rank6", Span(3, 3)),
    ]


def test_another_exception_than_the_watchdogs_is_told_too() -> None:
    text = f"""
{HEAD} {WATCHDOG}
terminate called after throwing an instance of 'std::bad_alloc'
  what():  std::bad_alloc
"""
    assert [event.message for event in events_of(open_block, text)] == [WATCHDOG, "std::bad_alloc"]


def test_an_uncaught_exception_says_what_over_several_lines() -> None:
    text = """
terminate called after throwing an instance of 'c10::Error'
  what():  boom from a C++ thread
second line of it
Exception raised from operator() at /src/main.cpp:5 (most recent call first):
frame #2: boom() + 0 (0x7f12 in /mboom.so)

"""
    event = one(open_block, text, NativeAbort)
    assert (event.origin, event.exception) == ("c10", "c10::Error")
    assert event.message == "boom from a C++ thread\nsecond line of it"


@pytest.mark.parametrize(
    "following", ["Fatal Python error: Aborted", "Aborted (core dumped)", "» Load weight end."]
)
def test_an_exception_without_a_stack_ends_at_what_is_not_its_own(following: str) -> None:
    text = (
        "terminate called after throwing an instance of 'std::out_of_range'\n"
        f"  what():  vector::_M_range_check: __n (which is 9) >= this->size() (which is 3)\n{following}"
    )
    event = one(open_block, text, NativeAbort)
    assert event.origin == "terminate"
    assert event.message == "vector::_M_range_check: __n (which is 9) >= this->size() (which is 3)"
    assert event.span == Span(1, 2)


@pytest.mark.parametrize(
    "line", ["terminate called without an active exception", "terminate called recursively"]
)
def test_a_termination_may_say_nothing_more(line: str) -> None:
    event = one(open_block, f"{line}\nsomething else", NativeAbort)
    assert (event.message, event.exception, event.span) == (line, "", Span(1, 1))


def test_an_exception_that_quotes_a_timeout_is_one() -> None:
    text = """
terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [PG ID 3 PG GUID 4 Rank 2] Process group watchdog thread terminated with exception: [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600093 milliseconds before timing out.
"""
    event = one(open_block, text, CollectiveTimeout)
    assert (event.operation, event.sequence, event.process.label) == ("ALLREDUCE", 81, "rank2")
    assert event.message.startswith("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=81")


def test_the_assertions_of_all_threads_are_one_event() -> None:
    kernel = "/pytorch/aten/src/ATen/native/cuda/ScatterGatherKernel.cu:409: operator()"
    condition = 'Assertion `idx_dim >= 0 && idx_dim < index_size && "index out of bounds"` failed.'
    flood = "\n".join(f"{kernel}: block: [0,0,0], thread: [{n},0,0] {condition}" for n in range(512))
    event = one(open_block, flood, NativeAbort)
    assert (event.origin, event.repeats, event.span) == ("cuda-assert", 512, Span(1, 512))
    assert event.message == f"{kernel}: block: [0,0,0], thread: [0,0,0] {condition}"


def test_an_assertion_may_hold_backticks() -> None:
    text = (
        "/pytorch/aten/src/ATen/native/cuda/TensorCompare.cu:109: _assert_async_cuda_kernel: block: [0,0,0], "
        "thread: [0,0,0] Assertion `probability tensor contains either `inf`, `nan` or element < 0` failed."
    )
    assert one(open_block, text, NativeAbort).message == text


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("CUDA error (/build/hopper/flash_fwd_launch_template.h:190): invalid argument", "cuda"),
        (
            "Failed: Cuda error /ws/csrc/custom_all_reduce.cuh:455 'an illegal memory access was encountered'",
            "cuda",
        ),
        ("CUDA error: unspecified launch failure", "cuda"),
        (
            "[TensorRT-LLM][ERROR] Encountered an error in forwardAsync function: [TensorRT-LLM][ERROR] CUDA "
            "runtime error in ::cudaEventSynchronize(get()): an illegal memory access was encountered",
            "cuda",
        ),
        ("Memory access fault by GPU node-2 (Agent handle: 0x55) on address 0x7f. Reason: Unknown.", "cuda"),
        ("Assertion failed: /deep_gemm/impls/sm100.cuh:99, condition: kNumStages > 1", "cuda-assert"),
        ("free(): invalid pointer", "glibc"),
        ("malloc(): unsorted double linked list corrupted", "glibc"),
        ("double free or corruption (!prev)", "glibc"),
        ("corrupted size vs. prev_size while consolidating", "glibc"),
        ("*** stack smashing detected ***: terminated", "glibc"),
        ("Fatal glibc error: malloc assertion failure in sysmalloc: (old_top == initial_top (av))", "glibc"),
        ("python3: symbol lookup error: /x/common_ops.so: undefined symbol: _ZN3c10", "glibc"),
        ('prog: file.cc:15: int main(int, char**): Assertion `1==2 && "msg"\' failed.', "glibc"),
        ("python: /llvm/lib/IR/Value.cpp:99: void f(): Assertion `x' failed.", "glibc"),
        ("F20261201 02:46:24.914910  4242 file.cc:12] Check failed: x == y (1 vs. 2) msg", "terminate"),
        (
            "[TensorRT-LLM][ERROR] Assertion failed: mNextBlocks.empty() (/src/kvCacheManager.cpp:610)",
            "terminate",
        ),
        ("!!!!!!! Segfault encountered !!!!!!!", "signal"),
        ("*** SIGSEGV (@0x0) received by PID 17 (TID 0x7f) from PID 0; stack trace: ***", "signal"),
        (
            "[gpu7:431  :0:477] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)",
            "signal",
        ),
        ("==431==ERROR: AddressSanitizer: heap-use-after-free on address 0x60 at pc 0x55", "glibc"),
    ],
)
def test_one_line_is_enough_for_many_ends(text: str, origin: str) -> None:
    event = one(open_block, text, NativeAbort)
    assert (event.origin, event.message) == (origin, text)


def test_a_cuda_error_keeps_its_advice_and_counts_its_copies() -> None:
    line = "Failed: Cuda error /ws/csrc/custom_all_reduce.cuh:455 'an illegal memory access was encountered'"
    event = one(open_block, "\n".join([line] * 4), NativeAbort)
    assert (event.repeats, event.message) == (4, line)
    event = one(open_block, f"{CUDA}\n{ADVICE}\nother text", NativeAbort)
    assert (event.message, event.span) == (f"{CUDA}\n{ADVICE}", Span(1, 4))


def test_the_stack_of_a_signal_handler_belongs_to_it() -> None:
    text = """
[gpu7:431  :0:477] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)
==== backtrace (tid:    477) ====
 0 0x0000000000042520 __sigaction()  ???:0
 1  /usr/lib/libuct.so(uct_cuda_base_iface_event_fd_arm+0x1) [0x7f]
=================================
» Received sigquit from a child process.
"""
    event = one(open_block, text, NativeAbort)
    assert event.message.startswith("[gpu7:431  :0:477] Caught signal 11")
    assert event.span == Span(1, 5)


def test_glog_names_the_signal_on_its_third_line() -> None:
    text = """
*** Aborted at 1733012345 (unix time) try "date -d @1733012345" if you are using GNU date ***
PC: @                0x0 (unknown)
*** SIGSEGV (@0x0) received by PID 17 (TID 0x7f) from PID 0; stack trace: ***
    @     0x7f12ab34 (unknown)
"""
    event = one(open_block, text, NativeAbort)
    assert event.message == "*** SIGSEGV (@0x0) received by PID 17 (TID 0x7f) from PID 0; stack trace: ***"
    assert event.span == Span(1, 4)


def test_the_frames_of_tvms_handler_are_no_traceback() -> None:
    text = """
!!!!!!! Segfault encountered !!!!!!!
  File "<unknown>", line 0, in gsignal
  File "<unknown>", line 0, in cuEventQuery
  File "/real.py", line 7, in f
"""
    assert one(open_block, text, NativeAbort).span == Span(1, 3)


def test_mpi_names_the_rank_that_asked_to_abort() -> None:
    text = """
MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD
with errorcode 1.

NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.
You may or may not see output from other processes, depending on
exactly when Open MPI kills them.
--------------------------------------------------------------------------
"""
    event = one(open_block, text, NativeAbort)
    assert (event.origin, event.process.label) == ("mpi", "rank3")
    assert (
        event.message == "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\nwith errorcode 1."
    )
    assert event.span.last >= 7


def test_frames_below_a_warning_of_torch_are_taken_without_an_event() -> None:
    text = f"[W1201 02:46:21.2 Context.cpp:12] Warning: something\n{STACK}free(): invalid pointer"
    event = one(open_block, text, NativeAbort)
    assert event.span == Span(5, 5)


@pytest.mark.parametrize(
    "text",
    [
        "  what():  alone",
        "    free(): invalid pointer",
        "text='free(): invalid pointer'",
        "The prompt says: terminate called after throwing an instance of 'x'",
        "AssertionError: Assertion `x` failed",
        "If you see CUDA error: out of memory, lower the fraction",
        "Using MPI_ABORT was invoked on rank",
        "",
    ],
)
def test_words_in_the_middle_of_a_line_are_none_of_ours(text: str) -> None:
    assert events_of(open_block, text) == []


def test_a_process_with_a_rank_of_the_engine_keeps_it() -> None:
    process = Process("scheduler", "DP1 TP3", Rank(dp=1, tp=3))
    assert one(open_block, lines_of(f"{HEAD} {WATCHDOG}", process=process), NativeAbort).process == process


def test_a_crash_may_stand_behind_a_progress_bar() -> None:
    bar = "Capturing batches (bs=1 avail_mem=2.00 GB):   0%|          | 0/3 [00:00<?, ?it/s]"
    reader = EventReader()
    text = f"{bar}\n{bar}terminate called after throwing an instance of 'c10::Error'\n  what():  boom"
    found = [*(event for line in lines_of(text) for event in reader.feed(line)), *reader.close()]
    assert [(event.kind, event.message) for event in found][1:] == [("native-abort", "boom")]


def test_the_lines_of_abseils_handler_may_stand_in_rays_log() -> None:
    head = "[2026-12-01 10:00:00,123 E 4242 4300] logging.cc:440: "
    text = f"""
{head}*** SIGSEGV received at time=1733012345 on cpu 3 ***
{head}PC: @     0x7f2a31  (unknown)  uct_fn
{head}    @     0x7f2a31  (unknown)  (unknown)
{head}    @ ... and at least 3 more frames
something else
"""
    event = one(open_block, text, NativeAbort)
    assert (event.origin, event.span) == ("signal", Span(1, 4))


def compiled(folder: Path, source: str) -> Path:
    """A program of C++."""
    program = folder / "program"
    (folder / "program.cpp").write_text(source, encoding="utf-8")
    subprocess.run(["g++", "-pthread", "-o", program, folder / "program.cpp"], check=True, capture_output=True)
    return program


def test_what_libstdcpp_and_glibc_print_of_a_dying_program_is_read(tmp_path: Path) -> None:
    program = compiled(tmp_path, ENDS_OF_PROGRAMS)
    found = []
    for way in range(6):
        done = subprocess.run([program, str(way)], capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == -6
        found += events_of(open_block, done.stderr)
    assert [(event.origin, event.exception) for event in found if isinstance(event, NativeAbort)] == [
        ("terminate", "std::runtime_error"),
        ("terminate", "char const*"),
        ("terminate", ""),
        ("glibc", ""),
        ("glibc", ""),
        ("terminate", "std::out_of_range"),
    ]
    messages = [event.message for event in found]
    assert messages[0] == "line 1\nline 2"
    assert messages[2] == "terminate called without an active exception"
    assert "Assertion `1 == 2 && \"told\"' failed." in messages[3]
    assert messages[4].startswith(("free(): ", "double free or corruption"))
    assert messages[5].startswith("vector::_M_range_check: __n (which is 9)")


ENDS_OF_PROGRAMS = """
#include <cassert>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <sys/resource.h>
#include <thread>
#include <vector>

int main(int, char** arguments) {
  rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  switch (std::atoi(arguments[1])) {
    case 0: { std::thread thread([] { throw std::runtime_error("line 1\\nline 2"); }); thread.join(); break; }
    case 1: throw "a text";
    case 2: std::terminate();
    case 3: assert(1 == 2 && "told"); break;
    case 4: { volatile void* block = std::malloc(64); std::free((void*)block); std::free((void*)block); break; }
    case 5: { std::vector<int> three(3); three.at(9); }
  }
}
"""
