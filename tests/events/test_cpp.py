"""torch's C++ log: what kind of line it is, in the words of every release."""


from __future__ import annotations

import pytest

from logtriage.events.cpp import CppLine, is_cpp_frame, read_cpp


@pytest.mark.parametrize(
    ("text", "kind", "rank"),
    [
        # torch 2.1: neither rank nor time
        (
            "[E ProcessGroupNCCL.cpp:475] [Rank 0] Watchdog caught collective operation timeout: W",
            "timeout",
            0,
        ),
        # 2.2 and 2.3
        (
            "[rank1]:[E ProcessGroupNCCL.cpp:523] [Rank 1] Watchdog caught collective operation timeout: W",
            "timeout",
            1,
        ),
        (
            "[E ProcessGroupNCCL.cpp:577] [PG 1 Rank 1] Timeout at NCCL work: 7, last enqueued NCCL work: 8, "
            "last completed NCCL work: 6.",
            "status",
            1,
        ),
        # 2.4 and later: month without zero, day, time
        (
            "[rank5]:[E321 02:11:40.353336382 ProcessGroupNCCL.cpp:1984] [PG ID 2 PG GUID 3 Rank 5] "
            "Process group watchdog thread terminated with exception: CUDA error: x",
            "abort",
            5,
        ),
        (
            "[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:2268] [PG ID 3 PG GUID 4(tp) Rank 5]  failure "
            "detected by watchdog at work sequence id: 9141 PG status: last enqueued work: 9144",
            "status",
            5,
        ),
        (
            "[rank3]:[E1206 18:44:12.7 ProcessGroupNCCL.cpp:684] [Rank 3] To avoid data inconsistency, we are",
            "afterword",
            3,
        ),
        (
            "[rank0]:[W1201 02:31:27.4 ProcessGroupNCCL.cpp:1575] Warning: WARNING: destroy_process_group() was not "
            "called before program exit",
            "teardown",
            0,
        ),
        (
            "[W1201 02:46:21.2 TCPStore.cpp:138] [c10d] recvValueWithTimeout failed on SocketImpl(fd=9)",
            "store",
            None,
        ),
        (
            "[E1201 02:46:21.2 socket.cpp:1028] [c10d] The client socket has timed out after 3000ms",
            "store",
            None,
        ),
        ("[W1201 02:46:21.2 Context.cpp:12] Warning: something else", "noise", None),
        ("[E1201 02:46:21.2 Module.cpp:12] something else", "error", None),
    ],
)
def test_the_words_tell_the_kind(text: str, kind: str, rank: int | None) -> None:
    line = read_cpp(text)
    assert line is not None
    assert (line.kind, line.rank) == (kind, rank)


def test_the_message_has_no_tags_of_group_and_rank() -> None:
    text = "[rank5]:[E1206 18:44:12.7 ProcessGroupNCCL.cpp:1984] [PG ID 2 PG GUID 3 Rank 5] Process group x  "
    line = read_cpp(text)
    assert isinstance(line, CppLine)
    assert line.message == "Process group x"


def test_a_line_may_stand_behind_a_progress_bar() -> None:
    bar = "Capturing batches:  12%|#1        | 1/8 [00:01<00:07,  1.02s/it]"
    line = read_cpp(
        f"{bar}[rank1]:[E1206 18:44:12.7 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective"
    )
    assert line is not None
    assert line.rank == 1


@pytest.mark.parametrize(
    "text",
    [
        "[2026-12-01 02:30:11 TP0] Decode batch",
        "[Gloo] Rank 0 is connected to 7 peer ranks.",
        "[E] nothing of torch's",
        "a [rank1]:[E1206 18:44:12.7 ProcessGroupNCCL.cpp:632] quoted in the middle",
        "",
    ],
)
def test_other_brackets_are_not_of_torch(text: str) -> None:
    assert read_cpp(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f3afafdadd4 in /libc10.so)",
        "frame #2: boom() + 0 (0x7f12 in /mboom.so)",
        "Exception raised from checkTimeout at /pytorch/ProcessGroupNCCL.cpp:632 (most recent call first):",
        "    @     0x7f12ab34 (unknown)",
        "#4 c10::Error::Error from ??:0",
    ],
)
def test_frames_of_c(text: str) -> None:
    assert is_cpp_frame(text)


def test_a_frame_of_python_is_none_of_c() -> None:
    assert not is_cpp_frame('  File "/x.py", line 3, in f')
