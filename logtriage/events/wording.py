"""The sentences by which engines tell how far they have come, each with what it means: data, no code.

Law: a sentence counts only at the start of a line, so that a prompt that quotes one cannot move a phase.

Source:
    SGLang 0.3.6 to 0.5.23, vLLM 0.6 to 0.33, TensorRT-LLM, uvicorn.
"""

from __future__ import annotations

from typing import Final

from logtriage.model import Phase

__all__ = ["PHASES", "READY", "SIGQUIT", "SIGTERM", "SILENT_DUMPS", "TEARDOWN", "TEARDOWN_DUMPS"]

PHASES: Final[tuple[tuple[str, Phase], ...]] = (
    # SGLang
    ("Init torch distributed begin", "init"),
    ("Init torch distributed ends", "init"),
    ("Load weight begin", "load"),
    ("Load weight end", "init"),
    ("KV Cache is allocated", "init"),
    ("Mamba Cache is allocated", "init"),
    ("Memory pool end", "init"),
    ("Capture draft", "capture"),
    ("Decode batch", "serve"),
    ("Prefill batch", "serve"),
    # vLLM
    ("Initializing a V1 LLM engine", "init"),
    ("Initializing a V0 LLM engine", "init"),
    ("Initializing an LLM engine", "init"),
    ("Starting to load model", "load"),
    ("Loading safetensors checkpoint shards", "load"),
    ("Loading pt checkpoint shards", "load"),
    ("Multi-thread loading shards", "load"),
    ("Loading model weights took", "init"),
    ("Loading weights took", "init"),
    ("Model loading took", "init"),
    ("Available KV cache memory", "init"),
    ("GPU KV cache size", "init"),
    ("Capturing CUDA graph", "capture"),
    ("Capturing cudagraphs", "capture"),
    ("Capturing batches", "capture"),
    ("Capturing num tokens", "capture"),
    ("Graph capturing finished", "init"),
    ("Starting vLLM API server", "init"),
    ("Starting vLLM server", "init"),
    # uvicorn, which all of them serve with
    ("Application startup complete", "serve"),
    ("Uvicorn running on", "serve"),
)
"""Start of a line and the phase that begins with it."""

READY: Final = ("The server is fired up and ready to roll!",)

SIGQUIT: Final = (
    "Received sigquit from a child proces",  # one s up to 0.4.2
    "SIGQUIT received. signum=",
)

SIGTERM: Final[tuple[tuple[str, str], ...]] = (
    ("SIGTERM received", "signal"),
    ("Signal SIGTERM received", "signal"),
    ("Received SIGTERM", "signal"),
    ("Received signal 15", "signal"),
    ("SIGINT received", "signal"),
    ("Received SIGINT", "signal"),
    ("KeyboardInterrupt received", "signal"),
    ("Gracefully stopping...", "signal"),
    ("^CGracefully stopping...", "signal"),
    ("Gracefully exiting", "drained"),
    ("Shutting down", "shutdown"),
    ("Finished server process", "shutdown"),
    ("Waiting for application shutdown", "shutdown"),
)
"""Start of a line and what it says: a signal came, the requests are drained, the HTTP server closes.

uvicorn closes for other reasons too (vLLM ends so when its engine died), hence the difference.
"""

TEARDOWN: Final = (
    "kill_process_tree",
    "Sleeping 5 seconds before crash diagnostics",
    "Sleeping 5 seconds before",
    "Waiting 60.0 seconds for CUDA coredumps",
    "No live scheduler processes found",
    "All pyspy dump attempts failed",
    "CUDA coredump pipe not found",
    "CUDA user-triggered coredump is not enabled",
    "Dumping requests before crash",
    "Using custom SIGQUIT handler",
    "Parent process exited, terminating worker",
    "Killing local vLLM worker processes",
    "[shutdown] ",
    "Sending process ",
    "Initiating Dynamo Runtime shutdown",
    "Shutting down shards",
    "srun: Terminating StepId=",
    "srun: Job step aborted",
    "slurmstepd: error: *** STEP",
    "slurmstepd: error: *** JOB",
)

TEARDOWN_DUMPS: Final = ("Pyspy dump for PID", "Pyspy failed", "Pyspy dump failed")
"""Start of a line below which a dump of stacks follows that no engine died of."""

SILENT_DUMPS: Final = ("Scheduler debug info:",)
"""Start of a line below which request data follows: taken, and never an event."""
