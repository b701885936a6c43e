"""Sentences that tell of a consequence, and sentences that only look like one."""

from __future__ import annotations

import pytest

from logtriage.consequences import (
    heads_traceback,
    is_at_work,
    is_cuda_fault,
    is_echo_of_child,
    is_foreign,
    is_health_failure,
    is_interrupt,
    is_of_server,
    is_peer_loss,
    is_request_error,
    is_self_trapped,
    is_settled,
    is_stop,
    is_story,
    is_trouble,
    is_waiting_rank,
    is_wrapper,
    proves_nothing,
    recovers,
)
from logtriage.model import Event, KernelReport
from tests.telling import (
    dumped,
    engine,
    exited,
    frames,
    kernel,
    logged,
    native,
    raised,
    rank,
    stuck,
    systemd,
    unanswered,
    waited,
    xid,
)


@pytest.mark.parametrize(
    "said",
    [
        "RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:42",
        "RuntimeError: [enforce fail at pair.cc] Connection reset by peer",
        "torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
        "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
        "RuntimeError: NCCL communicator was aborted on rank 3.",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "torch.distributed.DistStoreError: Socket Timeout",
    ],
)
def test_a_lost_peer(said: str) -> None:
    assert is_peer_loss(raised(1, said, 0))


@pytest.mark.parametrize(
    "event",
    [
        raised(1, "ValueError: connection_timeout must be positive", 0),
        raised(1, "RuntimeError: [/gloo/transport/tcp/device.cc:84] Unable to find address for: eth9", 0),
        raised(1, "ibv_error: Got completion with error 12: Connection reset by peer", 0),
        logged(1, "NCCL WARN NET/IB: Connection closed by peer 10.0.0.1", 0, "nccl"),
        native(
            1, "CUDA error: an illegal memory access was encountered. Connection closed by peer", 0, "c10"
        ),
        native(1, "free(): invalid pointer; Connection closed by peer", 0, "glibc"),
        exited(1, 3, -9, "Connection closed by peer"),
        kernel(1, "oom", 1, "Broken pipe"),
        systemd(1, "failed", message="Broken pipe"),
    ],
)
def test_no_lost_peer(event: Event) -> None:
    assert not is_peer_loss(event)


def test_a_rank_that_waits_for_others() -> None:
    said = "ValueError: TP rank 1 could finish the model loading, but there are other ranks that didn't."
    assert is_waiting_rank(raised(1, said, 1))
    assert not is_waiting_rank(raised(1, "ValueError: rank 1 could not finish loading", 1))


@pytest.mark.parametrize(
    "said",
    [
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9",
        "RuntimeError: Initialization failed. Please see the error messages above.",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        "Exception: WorkerProc initialization failed due to an exception in a background process.",
        "RuntimeError: Engine process (pid 71) died.",
        "ray.exceptions.ActorDiedError: The actor died unexpectedly",
    ],
)
def test_a_parent_that_echoes_its_child(said: str) -> None:
    assert is_echo_of_child(raised(1, said))
    assert is_echo_of_child(logged(1, said))


def test_the_end_of_a_pipe_is_an_echo_only_where_a_child_was_listened_to() -> None:
    assert is_echo_of_child(raised(1, "EOFError: ", stack=frames("multiprocessing/connection.py:_recv")))
    assert not is_echo_of_child(raised(1, "EOFError: ", stack=frames("pickle.py:load")))
    assert not is_echo_of_child(exited(1, 0, -9, "Rank 0 scheduler is dead."))


@pytest.mark.parametrize("name", ["KeyboardInterrupt", "SystemExit", "asyncio.exceptions.CancelledError"])
def test_exceptions_of_a_shutdown(name: str) -> None:
    assert is_interrupt(raised(1, f"{name}: "))
    assert not is_interrupt(raised(1, f"ValueError: {name}"))
    assert not is_interrupt(logged(1, name))


def test_a_destructor_that_meets_a_dead_context_is_part_of_the_shutdown() -> None:
    said = "cupy_backends.cuda.api.driver.CUDADriverError: CUDA_ERROR_ASSERT"
    assert is_interrupt(raised(1, said, stack=frames("cupy/cuda/function.pyx:__dealloc__")))
    assert not is_interrupt(raised(1, said, stack=frames("cupy/cuda/function.pyx:launch")))


def test_a_request_that_fails_in_the_web_server() -> None:
    handler = frames("uvicorn/protocols/http/httptools_impl.py:run_asgi", "starlette/routing.py:app")
    assert is_request_error(raised(1, "ValueError: x", header="ERROR: Exception in ASGI application"))
    assert is_request_error(raised(1, "ValueError: x", stack=handler))
    assert not is_request_error(
        raised(1, "ValueError: x", stack=[*handler, *frames("starlette/x.py:lifespan")])
    )
    assert not is_request_error(
        raised(1, "ValueError: x", 0, stack=handler, header="Scheduler hit an exception")
    )
    assert not is_request_error(raised(1, "ValueError: x", 0))
    assert not is_request_error(logged(1, "Exception in ASGI application"))


def test_wrappers() -> None:
    assert is_wrapper(raised(1, "Exception: Capture cuda graph failed: CUDA out of memory", 0))
    assert is_wrapper(
        raised(1, "RuntimeError: Worker failed with error 'x', please check the stack trace", 0)
    )
    assert not is_wrapper(raised(1, "RuntimeError: cuda graph failed", 0))


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (raised(1, "torch.AcceleratorError: CUDA error: device-side assert triggered", 0), True),
        (raised(1, "RuntimeError: CUDA error: an illegal memory access was encountered", 0), True),
        (raised(1, "RuntimeError: CUDA error: out of memory", 0), False),
        (
            raised(
                1, "RuntimeError: CUDA error: no kernel image is available for execution on the device", 0
            ),
            False,
        ),
        (raised(1, "RuntimeError: CUDA error: invalid device ordinal", 0), False),
        (native(1, "Assertion `a < b` failed.", 0, "cuda-assert"), True),
        (logged(1, "CUDA error: unspecified launch failure", 0), True),
        (xid(1, 31), False),
        (waited(1, 0), False),
    ],
)
def test_sticky_cuda_faults(event: Event, expected: bool) -> None:
    assert is_cuda_fault(event) is expected


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (systemd(1, "stopping", "stop"), True),
        (engine(1, "sigterm", "signal"), True),
        (engine(1, "sigterm", "drained"), True),
        (engine(1, "sigterm", "shutdown"), False),
        (systemd(1, "stopped", "stop"), False),
        (engine(1, "sigquit"), False),
        (raised(1, "KeyboardInterrupt: "), False),
    ],
)
def test_who_asks_for_a_stop(event: Event, expected: bool) -> None:
    assert is_stop(event) is expected


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (raised(1, "ValueError: x", 0), True),
        (raised(1, "ValueError: x", 0, ignored=True), False),
        (raised(1, "KeyboardInterrupt: "), False),
        (raised(1, "ValueError: x", header="Exception in ASGI application"), False),
        (logged(1, "usage error", origin="argparse"), True),
        (logged(1, "something failed"), False),
        (exited(1, 0, -9), True),
        (exited(1, 0, 0), False),
        (stuck(1, 0), True),
        (stuck(1, 0, soft=True), False),
        (xid(1, 79), True),
        (xid(1, 63), False),
        (xid(1, 45), False),
        (dumped(1, "Aborted"), True),
        (engine(1, "sigquit"), True),
        (engine(1, "phase", "load"), False),
        (
            systemd(
                1,
                "exec-failed",
                message="modprobe@x.service: Executable /sbin/modprobe missing, skipping: No",
            ),
            False,
        ),
        (systemd(1, "exec-failed", "EXEC"), True),
    ],
)
def test_what_is_trouble(event: Event, expected: bool) -> None:
    assert is_trouble(event) is expected


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (kernel(1, "oom", 7, "mysqld"), True),
        (kernel(1, "oom", 7, "sglang::schedul"), False),
        (kernel(1, "oom", 7, "pt_main_thread"), False),
        (kernel(1, "oom", 7, "cicc"), False),
        (kernel(1, "oom", 4242, "my-wrapper"), False),
        (kernel(1, "oom", 4343, "my-wrapper"), False),
        (kernel(1, "oom", 7, ""), False),
        (xid(1, 31, 7, "Xorg"), True),
        (xid(1, 79, 7, "nvidia-smi"), False),
        (kernel(1, "hardware", 7, "mysqld"), False),
    ],
)
def test_programs_that_are_no_part_of_the_server(report: KernelReport, expected: bool) -> None:
    events = [report, raised(2, "ValueError: x", rank(0, 4242)), exited(3, rank(1, 4343), -9)]
    assert is_foreign(report, events) is expected


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (systemd(1, "main-exited", "TERM", 15), True),
        (systemd(1, "main-exited", "SUCCESS", 0), True),
        (systemd(1, "main-exited", "FAILURE", 1), False),
        (logged(1, "something failed"), True),
        (logged(1, "bind", origin="bind"), False),
        (xid(1, 63), True),
        (xid(1, 48), False),
        (raised(1, "ValueError: x", header="Exception in ASGI application"), True),
        (raised(1, "ValueError: x", 0), False),
        (exited(1, 0, -9), False),
    ],
)
def test_what_a_healthy_service_prints_too(event: Event, expected: bool) -> None:
    assert proves_nothing(event, [event]) is expected


def test_steps_of_every_life_and_of_a_server() -> None:
    assert [is_story(systemd(1, action)) for action in ("started", "restart-scheduled", "failed")] == [
        True,
        True,
        False,
    ]
    assert [
        is_of_server(event) for event in (engine(1, "ready"), systemd(1, "started"), raised(1, "x: y"))
    ] == [
        True,
        False,
        False,
    ]


HANDLER = frames("vllm/entrypoints/openai/serving_chat.py:create_chat_completion", "vllm/utils.py:check")


def test_what_a_handler_raises_is_the_answer_to_one_client() -> None:
    assert is_request_error(raised(1, "ValueError: maximum context length is 32768", stack=HANDLER))
    nested = frames("vllm/entrypoints/openai/chat_completion/serving.py:render")
    assert is_request_error(raised(1, "ValueError: x", stack=nested))


def test_a_handler_that_cannot_be_made_ends_the_start() -> None:
    made = frames("vllm/entrypoints/openai/api_server.py:init_app_state", "vllm/entrypoints/openai/serving_chat.py:f")
    assert not is_request_error(raised(1, "ValueError: x", stack=made))
    built = frames("sglang/srt/entrypoints/openai/serving_chat.py:__init__")
    assert not is_request_error(raised(1, "ValueError: x", stack=built))


def test_the_time_of_a_heartbeat_is_no_lost_peer() -> None:
    assert is_health_failure(unanswered(1))
    assert not is_peer_loss(unanswered(1))
    assert not is_health_failure(stuck(1, 0))


def test_a_health_check_recovers_when_the_engine_works_later() -> None:
    work = engine(2, "phase", "serve")
    assert is_at_work(work)
    assert is_at_work(engine(2, "ready", "serve"))
    assert not is_at_work(engine(2, "phase", "load"))
    assert recovers(unanswered(1), [unanswered(1), work])
    assert not recovers(unanswered(3), [work, unanswered(3)])
    assert not recovers(stuck(1, 0), [stuck(1, 0), work])


def test_the_headline_stands_right_above_its_traceback() -> None:
    said = logged(1, "Error in chat completion stream generator.")
    assert heads_traceback(said, [said, raised(2, "EngineDeadError: x")])
    assert not heads_traceback(said, [said, raised(3, "EngineDeadError: x")])
    assert not heads_traceback(said, [said, raised(2, "EngineDeadError: x", 1)])


def test_a_kernel_that_waited_in_vain_ends_itself() -> None:
    failed = raised(5, "RuntimeError: CUDA error: unspecified launch failure", 1)
    assert is_self_trapped(failed, [waited(1, 1, "DeepEP dispatch"), failed])
    assert not is_self_trapped(failed, [waited(1, 1), failed])
    assert not is_self_trapped(failed, [failed, waited(9, 1, "DeepEP dispatch")])
    other = raised(5, "RuntimeError: CUDA error: an illegal memory access was encountered", 1)
    assert not is_self_trapped(other, [waited(1, 1, "DeepEP dispatch"), other])


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (logged(1, "Ignore import error when loading x", origin="import-ignored"), True),
        (logged(1, "something failed"), False),
        (stuck(1, 0, soft=True), True),
        (stuck(1, 0), False),
        (raised(1, "ValueError: x", stack=HANDLER), True),
        (raised(1, "ValueError: x", 0), False),
        (systemd(1, "main-exited", "KILL", 9), True),
        (engine(1, "sigterm", "signal"), False),
        (exited(1, 0, -9), False),
    ],
)
def test_what_its_words_must_not_be_read_into(event: Event, expected: bool) -> None:
    assert is_settled(event) is expected
