"""An event in, yes or no out: is it a known consequence of somebody else's death, or of no death at all?

Sources: SGLang 0.3.6 to 0.5.23 (``entrypoints/engine.py``, ``model_runner.py``), torch 2.1 to 2.14 (gloo,
TCPStore, ProcessGroupNCCL), vLLM 0.8 to 0.33 (``v1/engine``), Ray 2, CPython's multiprocessing, NVIDIA's
catalog of Xids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import regex

from logtriage.model import (
    CollectiveTimeout,
    Event,
    FatalError,
    KernelReport,
    Lifecycle,
    LoggedError,
    NativeAbort,
    ProcessExit,
    Traceback,
    WatchdogTimeout,
)

__all__ = [
    "ECHO_XIDS",
    "HANDLED_XIDS",
    "heads_traceback",
    "is_at_work",
    "is_cuda_fault",
    "is_echo_of_child",
    "is_foreign",
    "is_health_failure",
    "is_interrupt",
    "is_of_server",
    "is_peer_loss",
    "is_request_error",
    "is_self_trapped",
    "is_settled",
    "is_stop",
    "is_story",
    "is_trouble",
    "is_waiting_rank",
    "is_wrapper",
    "proves_nothing",
    "recovers",
]

ECHO_XIDS: Final = frozenset({45, 154, 174})
"""What the driver prints of a process that is gone, or of another Xid."""

HANDLED_XIDS: Final = frozenset({37, 63, 66, 92, 93, 106, 107, 121, 141, 156, 160, 162, 163, 164, 165, 176, 177})
"""What the hardware noted and dealt with: healthy servers run on after it."""

_APPLICATION_XIDS: Final = frozenset({13, 31, 32, 43, 45, 68, 69})
"""What the program that is named has done itself."""

_SERVER: Final = frozenset({"server-args", "phase", "ready"})
_STORY: Final = _SERVER | {"started", "starting", "stopping", "stopped", "version", "sigterm", "boot"}
_CLEAN: Final = ("TERM", "INT", "HUP", "PIPE")

_PEER: Final = regex.compile(
    r"Connection (?:closed|reset) by peer|gloo/transport|[Ff]ailed to recv, got 0 bytes|recvValue failed"
    r"|remote process exited|ncclRemoteError|Broken pipe|Socket Timeout|Connection was likely closed"
    r"|Failed to check the \"should dump\" flag|sendBytes failed|communicator was aborted"
)
_CHILD: Final = regex.compile(
    r"scheduler died during initialization|Initialization failed\. Please see|scheduler is dead"
    r"|Engine core initialization failed|EngineCore encountered an issue|EngineDeadError"
    r"|Engine process (?:\(pid \d+\) |failed to start|died)|process failed during engine core initialization"
    r"|Worker failed to initialize|WorkerProc initialization failed|worker died|WorkerCrashedError"
    r"|ActorDiedError|RayTaskError|cancelled: died|TpModelWorkerClient"
    r"|Server process (?:terminated|exited)|Server failed to start"
)
# Handlers of one request each; what they raise or log is the answer to a client.
_HANDLERS: Final = regex.compile(r"entrypoints/openai/(?:\w+/)?serving\w*\.py$")
_STARTERS: Final = frozenset(
    {"startup", "lifespan", "launch_server", "run_server", "init_app_state", "__init__", "<module>"}
)
_CUDA: Final = regex.compile(
    r"CUDA error: (?!out of memory|invalid device ordinal|no kernel image|CUDA-capable|invalid argument"
    r"|system not)|illegal memory access|device-side assert|CUDA_ERROR_(?:ILLEGAL|ASSERT|LAUNCH)"
    r"|unspecified launch failure|misaligned address"
)
_WRAPPER: Final = regex.compile(r"Capture (?:cuda|CUDA) graph failed|Worker failed with error")
# Names by which the kernel knows the processes of an inference server and the compilers that it starts; some
# reports name the thread instead, hence those of the libraries.
_OURS: Final = regex.compile(
    r"python|\bpt_|sglang|vllm|\bray|\btrt|triton|text-gen|lmdeploy|dynamo|worker|engine|scheduler|\bmpi|\borted"
    r"|cuda|\bzmq|nccl|ptxas|cicc|nvcc|cc1plus|ninja|\bld\b|uvicorn|gunicorn|torchrun|MainThread|asyncio",
    regex.IGNORECASE,
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
    if isinstance(event, (ProcessExit, KernelReport, FatalError, Lifecycle)):
        return False
    if isinstance(event, NativeAbort) and event.origin not in ("c10", "terminate", "nccl"):
        return False
    text = _text(event)
    if isinstance(event, NativeAbort) and _CUDA.search(text):
        return False
    if "Unable to find" in text:  # gloo's own interface, before there is any peer
        return False
    return bool(_PEER.search(text)) and "Got completion" not in text and "NCCL WARN" not in text


def is_waiting_rank(event: Event) -> bool:
    """Whether a rank says that it is done and others are not."""
    text = _text(event)
    return "there are other ranks that" in text or "Received a dump signal" in text


def is_echo_of_child(event: Event) -> bool:
    """Whether a parent only reports that a child died."""
    if not isinstance(event, (Traceback, LoggedError)):
        return False
    if _CHILD.search(_text(event)):
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
    if any(frame.function in _STARTERS for frame in frames):
        return False
    return any(
        "starlette/" in frame.filename or "uvicorn/protocols" in frame.filename or _HANDLERS.search(frame.filename)
        for frame in frames
    )


def is_health_failure(event: Event) -> bool:
    """Whether a health check got no answer, which a busy server recovers from."""
    return isinstance(event, WatchdogTimeout) and event.message.startswith("Health check failed")


def is_at_work(event: Event) -> bool:
    """Whether the engine says that it serves."""
    return isinstance(event, Lifecycle) and (
        event.action == "ready" or (event.action == "phase" and event.detail == "serve")
    )


def recovers(event: Event, events: Sequence[Event]) -> bool:
    """Whether a health check failed and the engine was at work again later.

    Args:
        event: The event.
        events: All events of the incident.
    """
    return is_health_failure(event) and any(
        is_at_work(other) and other.span.first > event.span.first for other in events
    )


def heads_traceback(event: Event, events: Sequence[Event]) -> bool:
    """Whether it is the sentence that a process prints on the line above a traceback.

    Args:
        event: The event.
        events: All events of the incident.
    """
    return any(
        isinstance(other, Traceback)
        and other.process.label == event.process.label
        and other.span.first == event.span.last + 1
        for other in events
    )


def is_settled(event: Event) -> bool:
    """Whether it is known to be harmless, or a step, whatever its words remind of."""
    if isinstance(event, LoggedError):
        return event.origin in ("import-ignored", "advice")
    if isinstance(event, WatchdogTimeout):
        return event.soft
    if isinstance(event, Traceback):
        return event.ignored or is_request_error(event)
    # "SIGTERM received while health check failed" tells more than the step.
    return isinstance(event, Lifecycle) and event.action != "sigterm"


def is_self_trapped(event: Event, events: Sequence[Event]) -> bool:
    """Whether a kernel ended itself because a peer never answered it; CUDA calls that a launch failure.

    Args:
        event: The event.
        events: All events of the incident.
    """
    return "unspecified launch failure" in _text(event) and any(
        isinstance(other, CollectiveTimeout)
        and other.operation.startswith("DeepEP")
        and other.span.first < event.span.first
        for other in events
    )


def is_wrapper(event: Event) -> bool:
    """Whether the exception only repeats the text of another one."""
    return bool(_WRAPPER.search(_text(event)))


def is_cuda_fault(event: Event) -> bool:
    """Whether it is a sticky CUDA fault, after which every call of the process fails."""
    if isinstance(event, (KernelReport, CollectiveTimeout, Lifecycle)):
        return False
    if isinstance(event, Traceback):
        return any(_CUDA.search(f"{link.type}: {link.message}"[:4000]) for link in event.chain)
    return bool(_CUDA.search(event.message[:4000])) or (
        isinstance(event, NativeAbort) and event.origin == "cuda-assert"
    )


def is_stop(event: Event) -> bool:
    """Whether somebody asks the service to stop.

    A web server says that it shuts down also when its engine died, so that alone is no request.
    """
    return isinstance(event, Lifecycle) and (
        event.action == "stopping" or (event.action == "sigterm" and event.detail != "shutdown")
    )


def is_trouble(event: Event) -> bool:
    """Whether it tells by itself that something went wrong with the server, not only with a request."""
    if isinstance(event, Traceback):
        return not event.ignored and not is_request_error(event) and not is_interrupt(event)
    if isinstance(event, KernelReport):
        return event.code not in HANDLED_XIDS and event.code not in ECHO_XIDS
    if isinstance(event, WatchdogTimeout):
        return not event.soft
    if isinstance(event, ProcessExit):
        return event.exit_code != 0
    if isinstance(event, LoggedError):
        return event.origin in ("argparse", "bind", "engine-fatal")
    if isinstance(event, Lifecycle):
        return event.action in ("sigquit", "exec-failed", "oom-killed") and "skipping:" not in event.message
    return True


def is_foreign(report: KernelReport, events: Sequence[Event]) -> bool:
    """Whether the kernel reports a deed or a death of a program that is no part of the server.

    Args:
        report: What the kernel says; a fault of the hardware is nobody's own.
        events: All events of the incident; a process that one of them comes from is part of it.
    """
    own = report.report in ("oom", "segfault") or report.code in _APPLICATION_XIDS
    if not own or not report.comm or _OURS.search(report.comm):
        return False
    known = {event.process.pid for event in events if not isinstance(event, (KernelReport, Lifecycle))}
    known |= {event.victim.pid for event in events if isinstance(event, ProcessExit)}
    return report.pid not in known


def is_of_server(event: Event) -> bool:
    """Whether an inference server, not just any service, says how far it has come."""
    return isinstance(event, Lifecycle) and event.action in _SERVER


def is_story(event: Event) -> bool:
    """Whether it is a step that every life of a service has."""
    return isinstance(event, Lifecycle) and (event.action in _STORY or event.action == "restart-scheduled")


def proves_nothing(event: Event, events: Sequence[Event]) -> bool:
    """Whether a healthy service prints it too: it tells of a crash only beside others.

    Args:
        event: The event.
        events: All events of the incident.
    """
    if isinstance(event, Lifecycle):
        return event.action == "main-exited" and (event.number == 0 or event.detail in _CLEAN)
    if isinstance(event, LoggedError):
        return event.origin not in ("argparse", "bind", "nccl", "engine-fatal", "excerpt")
    if isinstance(event, KernelReport):
        return event.code in ECHO_XIDS | HANDLED_XIDS or is_foreign(event, events)
    return is_request_error(event)
