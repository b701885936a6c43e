"""The scanner hands on only lines near an anchor, so every line that opens a crash must hold one."""


from __future__ import annotations

import pytest

from logtriage.events import PARSERS
from logtriage.scan import ANCHORS
from tests.events.feeding import KERNEL, events_of, lines_of

OPENINGS = [
    "Fatal Python error: Segmentation fault",
    "terminate called after throwing an instance of 'c10::Error'",
    "[rank5]:[E321 02:11:40.3 ProcessGroupNCCL.cpp:1984] [PG ID 2 PG GUID 3 Rank 5] Process group watchdog thread "
    "terminated with exception: NCCL error: x",
    "[E321 02:11:40.3 ProcessGroupNCCL.cpp:632] [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(x)",
    "[W1201 02:46:21.2 TCPStore.cpp:138] [c10d] recvValue failed on SocketImpl(fd=9): failed to recv",
    "/x.cu:1: f: block: [0,0,0], thread: [0,0,0] Assertion `x` failed.",
    "CUDA error (/build/flash_fwd_launch_template.h:190): invalid argument",
    "Failed: Cuda error /ws/csrc/custom_all_reduce.cuh:455 'an illegal memory access was encountered'",
    "[TensorRT-LLM][ERROR] Encountered an error in forwardAsync function: CUDA runtime error in x",
    "free(): invalid pointer",
    "double free or corruption (!prev)",
    "corrupted size vs. prev_size",
    "*** stack smashing detected ***: terminated",
    "[gpu7:431  :0:477] Caught signal 11 (Segmentation fault: address not mapped)",
    "*** SIGSEGV (@0x0) received by PID 17 (TID 0x7f) from PID 0; stack trace: ***",
    "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD",
    "ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'",
    "x.cu:5:10: fatal error: y.h: No such file or directory",
    "Killed",
    "./serve.sh: line 31: 20417 Killed                  python -m sglang.launch_server --tp 2",
    "Segmentation fault (core dumped)",
    "Rank 0 scheduler is dead. Please check if there are relevant logs.",
    "Subprocess scheduler_3 (pid=9198) crashed with exit code -9. Triggering SIGQUIT",
    "Child process unexpectedly failed with exitcode=256. pid=26754",
    "Scheduler or DataParallelController 2211 terminated with -3",
    "Worker proc VllmWorker-3 died unexpectedly, shutting down executor.",
    "srun: error: o0616: task 0: Out Of Memory",
    "sglang serve: error: argument --x: invalid choice: 'y'",  # the usage text above it says nothing
    "launch_server.py: error: unrecognized arguments: --x",
    "Scheduler watchdog timeout (self.watchdog_timeout=12.0, self.soft=False)",
    "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.",
    "vm:1:1 [0] init.cc:904 NCCL WARN x",
    "[/x/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:34023",
    "E1016 08:00:09.917734  1555 rdma_endpoint.cpp:366] Failed to modify QP to RTR",
    "Prefill out of memory. Try to lower your batch size.",
]
KERNEL_OPENINGS = [
    "NVRM: Xid (PCI:0000:70:00): 31, pid=1, name=x, y",
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    "python3 invoked oom-killer: order=0",
    "Memory cgroup out of memory: Killed process 431 (python3) total-vm:1kB",
    "python3[478]: segfault at 0 ip 00007f93 sp 00007fff error 4 in libc.so.6",
    "traps: python3[525] general protection fault ip:5600 sp:7ffe error:0 in libcuda.so",
]


def opens_an_event(text: str, *, kernel: bool) -> bool:
    lines = lines_of(text, record=KERNEL if kernel else None)
    return any(events_of(opener, lines) for opener in PARSERS)


@pytest.mark.parametrize("text", OPENINGS + KERNEL_OPENINGS)
def test_the_scanner_sees_the_first_line_of_every_crash(text: str) -> None:
    assert opens_an_event(text, kernel=text in KERNEL_OPENINGS)
    first = text.partition("\n")[0].encode()
    assert any(anchor in first for anchor in ANCHORS)
