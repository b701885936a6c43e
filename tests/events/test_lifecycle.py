"""The steps an engine tells of: phases, readiness, signals, and the end."""

# ruff: noqa: E501 - lines of logs are as long as they are
from __future__ import annotations

import pytest

from logtriage.events.lifecycle import open_block
from logtriage.model import Lifecycle, Record, Span
from tests.events.feeding import SYSTEMD, events_of, lines_of, one


@pytest.mark.parametrize(
    ("text", "action", "detail"),
    [
        ("» Init torch distributed begin.", "phase", "init"),
        ("» Load weight begin. avail mem=138.45 GB", "phase", "load"),
        ("» Load weight end. elapsed=0.13 s, type=Qwen3ForCausalLM, avail mem=138.35 GB", "phase", "init"),
        ("» KV Cache is allocated. dtype: torch.bfloat16, #tokens: 16384", "phase", "init"),
        ("» Memory pool end. avail mem=137.98 GB", "phase", "init"),
        (
            "» Capture cuda graph begin. This can take up to several minutes. avail mem=9.30 GB",
            "phase",
            "capture",
        ),
        (
            "» Capture target prefill CUDA graph begin. backend=breakable, num_tokens=[4, 8]",
            "phase",
            "capture",
        ),
        ("» Capture target decode CUDA graph end. elapsed=0.87 s, mem usage=1.59 GB", "phase", "init"),
        ("» Capture draft cuda graph begin. This can take up to several minutes.", "phase", "capture"),
        ("» The server is fired up and ready to roll!", "ready", "serve"),
        ("» Decode batch, #running-req: 4, #token: 157, token usage: 0.01", "phase", "serve"),
        ("» Prefill batch. #new-seq: 1, #new-token: 18", "phase", "serve"),
        ("» INFO:     Application startup complete.", "phase", "serve"),
        ("INFO:     Uvicorn running on http://127.0.0.1:30111 (Press CTRL+C to quit)", "phase", "serve"),
        ("» Received sigquit from a child proces. It usually means the child failed.", "sigquit", ""),
        ("» Received sigquit from a child process. It usually means the child failed.", "sigquit", ""),
        ("» SIGQUIT received. signum=None, frame=None. It usually means one child failed.", "sigquit", ""),
        (
            "» SIGTERM received. signum=None frame=None. Draining requests and shutting down...",
            "sigterm",
            "signal",
        ),
        ("» Gracefully exiting... Remaining number of requests 0.", "sigterm", "drained"),
        ("INFO:     Shutting down", "sigterm", "shutdown"),
        ("INFO:     Finished server process [17918]", "sigterm", "shutdown"),
        ("» kill_process_tree called: parent_pid=4690, include_parent=True, pid=4690", "teardown", ""),
        ("» Waiting 60.0 seconds for CUDA coredumps before exiting.", "teardown", ""),
        (
            "W1201 02:48:40.898000 29115 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 4243 "
            "closing signal SIGTERM",
            "teardown",
            "",
        ),
        ("Loading model weights took 13.20 GB", "phase", "init"),
        ("Starting to load model /models/x...", "phase", "load"),
        (
            "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03,  1.1s/it]",
            "phase",
            "load",
        ),
        (
            "Capturing CUDA graphs (decode, FULL):  53%|#####3    | 27/51 [00:06<00:05,  4.14it/s]",
            "phase",
            "capture",
        ),
        ("Graph capturing finished in 21 secs, took 2.10 GiB", "phase", "init"),
        ("vLLM API server version 0.11.0", "version", "0.11.0"),
        ("[TensorRT-LLM] TensorRT-LLM version: 1.2.0", "version", "1.2.0"),
        ("-- Reboot --", "boot", ""),
        ("-- Boot cb6d230ec4c549e5aae83357738aeec9 --", "boot", "cb6d230ec4c549e5aae83357738aeec9"),
    ],
)
def test_a_sentence_is_a_step(text: str, action: str, detail: str) -> None:
    event = one(open_block, text, Lifecycle)
    assert (event.action, event.detail) == (action, detail)
    assert event.message == text.removeprefix("» ")


def test_the_arguments_line_is_kept_whole() -> None:
    text = f"server_args=ServerArgs(model_path='/m', lora_paths=[{'1, ' * 4000}])"
    event = one(open_block, f"» {text}", Lifecycle)
    assert (event.action, event.detail) == ("server-args", text)
    assert len(event.message) <= 4096


def test_an_engine_line_of_vllm_tells_release_and_phase() -> None:
    text = "Initializing a V1 LLM engine (v0.11.0) with config: model='/m', tensor_parallel_size=8"
    version, phase = events_of(open_block, text)
    assert isinstance(version, Lifecycle)
    assert isinstance(phase, Lifecycle)
    assert (version.action, version.detail) == ("version", "0.11.0")
    assert (phase.action, phase.detail) == ("phase", "init")


def test_the_states_of_a_progress_bar_are_one_step() -> None:
    text = "\n".join(
        f"Capturing batches (bs=4 avail_mem=134.37 GB):  {n}%|          | {n}/58 [00:00<?, ?it/s]"
        for n in range(58)
    )
    event = one(open_block, text, Lifecycle)
    assert (event.detail, event.span) == ("capture", Span(1, 58))


def test_notices_of_an_end_are_one_event_with_the_stacks_they_ask_for() -> None:
    text = """
» Sleeping 5 seconds before crash diagnostics to let GPU activity settle.
» Pyspy dump for PID 611 (py-spy dump --native --pid 611):
Process 611: sglang::scheduler_TP0
Python v3.12.3 (/usr/bin/python3.12)

Thread 611 (active): "MainThread"
    pthread_cond_wait (libc.so.6)
    evict (mem_cache/unified_radix_cache.py:1002)

» Pyspy failed (py-spy dump  --pid 7473). Error: /bin/sh: 1: py-spy: not found

» All pyspy dump attempts failed for PID 7473.
» CUDA coredump pipe not found for PID 7473: /var/tmp/corepipe.cuda.vm.7473.
» kill_process_tree called: parent_pid=7140, include_parent=True, pid=7140
"""
    event = one(open_block, text, Lifecycle)
    assert event.action == "teardown"
    assert event.message.startswith("Sleeping 5 seconds")
    assert event.span == Span(1, 15)


def test_a_crash_within_a_dump_of_stacks_ends_it() -> None:
    text = "» Pyspy dump for PID 611:\nProcess 611: x\nFatal Python error: Aborted"
    assert one(open_block, text, Lifecycle).span == Span(1, 2)


def test_request_data_is_taken_without_an_event() -> None:
    text = """
» Scheduler debug info:
scheduler.cur_batch.reqs=[Req(rid=fda1, text='» Load weight begin')]
Load weight begin. this stood in a prompt
[full] total=16384, available=16346
» Load weight end. elapsed=1 s"""
    event = one(open_block, text, Lifecycle)
    assert (event.detail, event.span) == ("init", Span(5, 5))


def test_a_leaked_semaphore_is_a_notice_with_its_source_line() -> None:
    text = """
/usr/lib/python3.12/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1 leaked semaphore objects to clean up at shutdown
  warnings.warn('resource_tracker: There appear to be %d '
"""
    event = one(open_block, text, Lifecycle)
    assert (event.action, event.span) == ("teardown", Span(1, 3))


def test_torchs_notice_of_a_group_that_was_not_destroyed_is_a_teardown() -> None:
    text = (
        "[W1201 02:31:27.452212390 ProcessGroupNCCL.cpp:1575] Warning: WARNING: destroy_process_group() was not "
        "called before program exit, which can leak resources."
    )
    assert one(open_block, text, Lifecycle).action == "teardown"


@pytest.mark.parametrize(
    "text",
    [
        "Receive: obj=GenerateReqInput(text='The server is fired up and ready to roll!')",
        "a user wrote server_args=ServerArgs()",
        "» Reloading -- Boot cb6d230ec4c549e5aae83357738aeec9 --",
        "-- Boot order changed --",
        "» -- Reboot --",
        'INFO:     127.0.0.1:42750 - "GET /model_info HTTP/1.1" 200 OK',
        "» max_total_num_tokens=16384, chunked_prefill_size=8192",
        "» Capture the flag",
        "",
    ],
)
def test_talk_about_steps_is_none(text: str) -> None:
    assert events_of(open_block, text) == []


def test_systemds_lines_are_never_read_as_an_engines() -> None:
    assert events_of(open_block, lines_of("Uvicorn running on http://x", record=SYSTEMD)) == []


def test_a_step_names_the_unit_that_the_journal_names() -> None:
    record = Record("", 1, ident="python3", unit="llm.service")
    assert one(open_block, lines_of("» Load weight begin.", record=record), Lifecycle).unit == "llm.service"


@pytest.mark.parametrize(
    "behind",
    [
        "Traceback (most recent call last):",
        "[2026-12-01 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        "Fatal Python error: Aborted",
        "terminate called after throwing an instance of 'c10::Error'",
    ],
)
def test_a_crash_behind_a_progress_bar_is_left_to_who_reads_it(behind: str) -> None:
    bar = "Capturing batches (bs=1 avail_mem=2.00 GB):   0%|          | 0/3 [00:00<?, ?it/s]"
    assert events_of(open_block, bar + behind) == []
    [step] = events_of(open_block, f"{bar}\n{bar}{behind}")
    assert step.span == Span(1, 1)


def test_a_warning_behind_a_progress_bar_hides_no_step() -> None:
    bar = "Capturing batches (bs=1 avail_mem=2.00 GB):   0%|          | 0/3 [00:00<?, ?it/s]"
    step = one(open_block, f"{bar}/usr/lib/python3.12/x.py:254: UserWarning: leaked", Lifecycle)
    assert (step.action, step.detail) == ("phase", "capture")
