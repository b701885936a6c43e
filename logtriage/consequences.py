"""An event in, yes or no out: is it a known consequence of somebody else's death?

Sources: SGLang 0.3.6 to 0.5.23 (``entrypoints/engine.py``, ``model_runner.py``), torch 2.1 to 2.14 (gloo, TCPStore,
ProcessGroupNCCL), vLLM 0.8 to 0.11 (``v1/engine``), Ray 2, CPython's multiprocessing.
"""

from __future__ import annotations

from typing import Final

import regex

from logtriage.model import (
    CollectiveTimeout,
    Event,
    FatalError,
    KernelReport,
    LoggedError,
    NativeAbort,
    ProcessExit,
    Traceback,
)

__all__ = [
    "is_cuda_fault",
    "is_echo_of_child",
    "is_interrupt",
    "is_peer_loss",
    "is_request_error",
    "is_waiting_rank",
    "is_wrapper",
]

_PEER: Final = regex.compile(
    r"Connection (?:closed|reset) by peer|gloo/transport|failed to recv, got 0 bytes|Failed to recv, got 0 bytes|recvValue failed"
    r"|remote process exited|ncclRemoteError|Broken pipe|Socket Timeout|Connection was likely closed|Connection reset by peer"
    r"|Failed to check the \"should dump\" flag|sendBytes failed|heartbeat"
)
_CHILD: Final = regex.compile(
    r"scheduler died during initialization|Initialization failed\. Please see|Engine core initialization failed"
    r"|EngineCore encountered an issue|EngineDeadError|Server process (?:terminated|exited)|ActorDiedError|WorkerCrashedError"
    r"|Worker failed to initialize|worker died|cancelled: died|scheduler is dead|TpModelWorkerClient|RayTaskError|Server failed to start"
)
_CUDA: Final = regex.compile(
    r"CUDA error: (?!out of memory|invalid device ordinal|no kernel image|CUDA-capable|invalid argument|system not)"
    r"|illegal memory access|device-side assert|CUDA_ERROR_(?:ILLEGAL|ASSERT|LAUNCH)|unspecified launch failure|misaligned address"
)


def _text(event: Event) -> str:
    if isinstance(event, Traceback):
        last = event.chain[-1]
        return f"{last.type}: {last.message}"[:4000]
    return event.message[:4000]


def is_peer_loss(event: Event) -> bool:
    """Whether it says that a connection to another rank broke.

    The exit of a process, or a fault that only mentions a connection deeper in its chain, is none.
    """
    if isinstance(event, (ProcessExit, KernelReport, FatalError)):
        return False
    if isinstance(event, NativeAbort) and event.origin not in ("c10", "terminate", "nccl"):
        return False
    text = _text(event)
    if isinstance(event, NativeAbort) and _CUDA.search(text):
        return False
    return bool(_PEER.search(text)) and "Got completion" not in text and "NCCL WARN" not in text


def is_waiting_rank(event: Event) -> bool:
    """Whether a rank says that it is done and others are not."""
    return "there are other ranks that" in _text(event) or "Received a dump signal" in _text(event)


def is_echo_of_child(event: Event) -> bool:
    """Whether a parent only reports that a child died."""
    if not isinstance(event, (Traceback, LoggedError)):
        return False
    text = _text(event)
    if _CHILD.search(text):
        return True
    if not isinstance(event, Traceback):
        return False
    last = event.chain[-1]
    # the pipe to a child ends when the child does
    pipe = any(
        frame.function in ("recv", "_recv", "_recv_bytes", "wait_for_ready", "_wait_for_scheduler_ready")
        for frame in last.frames
    )
    return last.type in ("EOFError", "ConnectionResetError", "BrokenPipeError") and (pipe or not last.frames)


def is_interrupt(event: Event) -> bool:
    """Whether it is an exception that a shutdown raises."""
    if not isinstance(event, Traceback):
        return False
    name = event.chain[-1].type.rpartition(".")[2]
    if name in ("KeyboardInterrupt", "SystemExit", "CancelledError", "GeneratorExit"):
        return True
    return name == "CUDADriverError" and "__dealloc__" in str(event.chain[-1].frames)


def is_request_error(event: Event) -> bool:
    """Whether one request failed inside the web server, which survives that."""
    if not isinstance(event, Traceback) or "hit an exception" in event.header:
        return False
    if "ASGI" in event.header:
        return True
    frames = [frame for link in event.chain for frame in link.frames]
    return any("starlette/" in f.filename or "uvicorn/protocols" in f.filename for f in frames) and not any(
        f.function in ("startup", "lifespan", "launch_server", "<module>") for f in frames
    )


def is_wrapper(event: Event) -> bool:
    """Whether the exception only repeats the text of another one."""
    text = _text(event)
    return (
        "Capture cuda graph failed" in text
        or "Capture CUDA graph failed" in text
        or "Worker failed with error" in text
    )


def is_cuda_fault(event: Event) -> bool:
    """Whether it is a sticky CUDA fault, after which every call of the process fails."""
    if isinstance(event, KernelReport):
        return False
    if isinstance(event, CollectiveTimeout):
        return False
    if isinstance(event, Traceback):
        return any(_CUDA.search(f"{link.type}: {link.message}"[:4000]) for link in event.chain)
    return bool(_CUDA.search(event.message[:4000])) or (
        isinstance(event, NativeAbort) and event.origin == "cuda-assert"
    )
