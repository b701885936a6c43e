"""Command line of an SGLang server in, its log on stderr out: real processes, no GPU.

One parent and one worker process per tensor-parallel rank start, log and die as SGLang's do.
The fault is the founding one: a hybrid-GDN model with ``--attention-backend flashinfer`` on
Blackwell.  Law: nothing about the crash is played back.  The exception is raised, the
traceback formatted by CPython, and the race of the ranks against SIGKILL is run every time.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import linecache
import logging
import multiprocessing
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Barrier, Event

# The folder of the side files in which every process notes what it did; unset: no notes.
LEDGER_VARIABLE: Final = "SGLANG_STAND_IN_LEDGER"
# Seconds over which the ranks reach the attention backend, and the least and most seconds the
# parent walks /proc for its children: tuned so that three to eight ranks print a traceback.
SPREAD: Final = 0.024
WALK: Final = (0.004, 0.016)
HYBRID_GDN: Final = ("Qwen3.5", "Qwen3-Next")
SOURCE_ROOT: Final = "/opt/sglang/python/sglang/srt/"
DECOYS: Final = ("deepseek_ocr", "glm4_moe_lite", "kimi_linear", "nemotron_h")
SHARDS: Final = 8
TOKENS: Final = 3_874_048
# What the server_args line says after the flags; its two keys are made up.
DEFAULTS: Final = """load_format='auto', trust_remote_code=False, context_length=None, dtype='auto',
kv_cache_dtype='auto', max_running_requests=None, chunked_prefill_size=16384, page_size=1,
max_prefill_tokens=16384, schedule_policy='fcfs', schedule_conservativeness=1.0, device='cuda',
pp_size=1, random_seed=481516234, watchdog_timeout=300, log_level='info', decode_log_interval=40,
enable_metrics=False, api_key='sk-founding-0123456789abcdef',
admin_api_key='sk-founding-admin-0123456789abcdef', file_storage_path='sglang_storage',
reasoning_parser=None, tool_call_parser=None, dp_size=1, nnodes=1, node_rank=0,
decode_attention_backend=None, prefill_attention_backend=None, sampling_backend='flashinfer',
grammar_backend='xgrammar', fp4_gemm_runner_backend='auto', mamba_backend='triton', ep_size=1,
speculative_algorithm=None, moe_a2a_backend='none', moe_runner_backend='auto',
max_mamba_cache_size=None, mamba_full_memory_ratio=0.9, disable_radix_cache=False,
cuda_graph_max_bs=512, disable_cuda_graph=False, disable_overlap_schedule=False"""

# The way from scheduler to attention backend, worded by us, at the lines (before the bar) of a
# source build between 0.5.9 and 0.5.10.
CALL_PATH: Final = {
    "layers/attention/attention_registry.py": """
  24|GDN_ON_BLACKWELL = ("triton", "trtllm_mha", "fa4")
 186|def attn_backend_wrapper(runner, full_attn_backend):
 205|    if runner.worker.hybrid_gdn:
 206|        assert full_attn_backend in GDN_ON_BLACKWELL, (
 207|            "triton or trtllm_mha or fa4 backend are the only supported backends on Blackwell"
 208|            " GPUs for hybrid GDN models, use --attention-backend triton or"
 209|            " --attention-backend trtllm_mha to specify the backend.")
""",
    "model_executor/model_runner.py": """
 284|class ModelRunner:
 286|    def __init__(self, worker):
 413|        self.initialize(worker)
 531|    def initialize(self, worker):
 532|        self.worker = worker
 569|        worker.load_model()
 596|        self.init_attention_backend()
1928|    def init_attention_backend(self):
1931|        self.attn_backend = self._get_attention_backend()
1957|    def _get_attention_backend(self):
1973|        return self._get_attention_backend_from_str(
1974|            self.worker.attention_backend)
1989|    def _get_attention_backend_from_str(self, full_attention_backend):
1994|        return attn_backend_wrapper(self, full_attention_backend)
""",
    "managers/tp_worker.py": """
 206|class TpModelWorker:
 208|    def __init__(self, worker):
 251|        self._init_model_runner(worker)
 329|    def _init_model_runner(self, worker):
 334|        self._model_runner = ModelRunner(
 335|            worker)
""",
    "managers/scheduler.py": """
 268|class Scheduler:
 272|    def __init__(self, worker):
 274|        self.worker = worker
 379|        self.init_model_worker()
 538|    def init_tp_model_worker(self):
 541|        self.tp_worker = TpModelWorker(
 542|            self.worker)
 582|    def init_model_worker(self):
 583|        self.init_tp_model_worker()
3204|def run_scheduler_process(worker):
3238|    try:
3239|        scheduler = Scheduler(
3240|            worker)
3251|        scheduler.worker.serve()
3263|    except Exception:
3264|        worker.hit_an_exception()
""",
}


def plant(path: str, text: str, scope: dict[str, object]) -> None:
    """Compile *text* as the file *path*, so that tracebacks show its lines as source."""
    lines: list[str] = []
    for number, line in (line.split("|") for line in text.strip().splitlines()):
        lines += ["\n"] * (int(number) - 1 - len(lines)) + [line + "\n"]
    # No modification time: linecache then never looks for the file on disk.
    linecache.cache[path] = (sum(map(len, lines)), None, lines, path)
    exec(compile("".join(lines), path, "exec"), scope)


def side_file(name: str) -> TextIO:
    """Open a side file of the ledger for lines of truth; the null device without a ledger."""
    folder = os.environ.get(LEDGER_VARIABLE)
    return Path(f"{folder}/{name}" if folder else os.devnull).open("a", buffering=1)


def log_as(prefix: str) -> None:
    """Make log records look like SGLang's: ``[time PREFIX] message``."""
    form = f"[%(asctime)s{prefix}] %(message)s"
    logging.basicConfig(level=logging.INFO, format=form, datefmt="%Y-%m-%d %H:%M:%S", force=True)


def say(text: str) -> None:
    """Log one record, which is one write, however many its lines."""
    logging.getLogger().info("%s", text)


def take_title(title: bytes) -> None:
    """Show *title* in ``ps``, as setproctitle does: command name and argument vector."""
    ctypes.CDLL(None).prctl(15, title[:15], 0, 0, 0)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, title, min(len(title), end - start - 1))


class Worker:
    """One tensor-parallel rank: what the scheduler process of SGLang does, told in its log."""

    def __init__(self, rank: int, server: Server, met: Barrier, serving: Event) -> None:
        """Describe rank *rank*: at *met* the ranks meet, *serving* lets them decode."""
        self.rank, self.start, self.met, self.serving = rank, server.start, met, serving
        self.attention_backend: str = server.options.attention_backend
        self.hybrid_gdn = any(name in server.options.model_path for name in HYBRID_GDN)

    def run(self, ready: Connection) -> None:
        """Live as the worker process; *ready* is the pipe on which the parent waits."""
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # die with the parent
        random.seed()
        take_title(b"sglang::scheduler_TP%d" % self.rank)
        log_as(f" TP{self.rank}")
        self.ready, self.notes = ready, side_file(f"start-{self.start}.TP{self.rank}")
        scope: dict[str, Any] = {}
        for name, text in CALL_PATH.items():
            plant(SOURCE_ROOT + name, text, scope)
        scope["run_scheduler_process"](self)

    def load_model(self) -> None:
        """Tell of set-up, weights and memory pool; then meet the others and part a little."""
        say("Init torch distributed begin.")
        time.sleep(random.uniform(0.1, 0.3))
        say("Init torch distributed ends. elapsed=0.31 s, mem usage=1.31 GB")
        for name in DECOYS:
            module = f"sglang.srt.models.{name}"
            say(f"Ignore import error when loading {module}: No module named 'cutlass'")
        kind, used = ("Qwen3MoeForCausalLM", 16.7)
        if self.hybrid_gdn:
            kind, used = ("Qwen3_5MoeForConditionalGeneration", 28.1)
        free = 177.4 - random.uniform(0, 0.4)
        say(f"Load weight begin. avail mem={free:.2f} GB")
        for shard in range(SHARDS + 1):
            if self.rank == 0:
                done = f"{shard * 100 // SHARDS:3d}% Completed | {shard}/{SHARDS}"
                bar = f"{done} [00:00<00:00, {shard * 1.7 + 0.1:5.2f}it/s]"
                sys.stderr.write(f"\rLoading safetensors checkpoint shards: {bar}\n")
            time.sleep(random.uniform(0.05, 0.1))
        memory = f"avail mem={free - used:.2f} GB, mem usage={used:.2f} GB."
        say(f"Load weight end. elapsed=0.67 s, type={kind}, dtype=torch.bfloat16, {memory}")
        self.met.wait()
        if self.hybrid_gdn:
            sizes = "conv_state size: 0.58GB, ssm_state size: 27.74GB "
            say(f"Mamba Cache is allocated. max_mamba_cache_size: 1212, {sizes}")
        say(f"KV Cache is allocated. #tokens: {TOKENS}, K size: 44.34 GB, V size: 44.34 GB")
        say(f"Memory pool end. avail mem={random.uniform(25, 26):.2f} GB")
        self.met.wait()
        time.sleep(random.uniform(0, SPREAD))

    def hit_an_exception(self) -> None:
        """Log the exception at hand in one write and give the parent the alarm."""
        text = traceback.format_exc()
        self.note("began")
        say(f"Scheduler hit an exception: {text}")
        self.note("printed")
        os.kill(os.getppid(), signal.SIGQUIT)

    def note(self, event: str) -> None:
        """Write *event* and its moment into the side file."""
        facts = {"start": self.start, "rank": self.rank, "pid": os.getpid(), "event": event}
        self.notes.write(json.dumps(facts | {"monotonic_ns": time.monotonic_ns()}) + "\n")

    def serve(self) -> None:
        """Report ready, then decode until a signal ends the process."""
        self.ready.send("ready")
        self.serving.wait()
        tokens, queue = 412, "#queue-req: 0"
        while True:
            time.sleep(0.25)
            if self.rank == 0:  # SGLang logs batches on the first rank only
                tokens += 160
                speed = f"gen throughput (token/s): {random.uniform(590, 640):.2f}"
                used = f"#token: {tokens}, token usage: {tokens / TOKENS:.2f}, cuda graph: True"
                say(f"Decode batch, #running-req: 4, {used}, {speed}, {queue}")


class Server:
    """The parent: starts the ranks, serves, and kills its whole tree in the end."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Take the command line and a number for this start, the first free one."""
        self.options, self.draining, self.walked = options, False, 0.0
        folder = Path(os.environ.get(LEDGER_VARIABLE, os.devnull))
        self.start = 1 + len(list(folder.glob("*.parent")))
        side_file(f"start-{self.start}.parent").write(options.model_path + "\n")

    def run(self) -> None:
        """Start the workers and serve; only a signal ends this."""
        log_as("")
        signal.signal(signal.SIGQUIT, self.on_sigquit)
        signal.signal(signal.SIGTERM, self.on_sigterm)
        flags = "".join(f"{name}={value!r}, " for name, value in vars(self.options).items())
        say(f"server_args=ServerArgs({flags}{' '.join(DEFAULTS.split())})")
        context, readers = multiprocessing.get_context("fork"), []
        met, serving = context.Barrier(self.options.tp_size), context.Event()
        for rank in range(self.options.tp_size):
            reader, writer = context.Pipe(duplex=False)
            worker = Worker(rank, self, met, serving)
            context.Process(target=worker.run, args=(writer,)).start()
            readers.append(reader)
        for reader in readers:
            reader.recv()
        address = f"http://{self.options.host}:{self.options.port}"
        say(f"INFO:     Started server process [{os.getpid()}]")
        say("INFO:     Application startup complete.")
        say(f"INFO:     Uvicorn running on {address} (Press CTRL+C to quit)")
        say('INFO:     127.0.0.1:41230 - "GET /model_info HTTP/1.1" 200 OK')
        say("The server is fired up and ready to roll!")
        serving.set()
        while not self.draining:
            time.sleep(random.uniform(0.4, 1.2))
            client = f"10.0.4.17:{random.randrange(32768, 60999)}"
            say(f'INFO:     {client} - "POST /v1/chat/completions HTTP/1.1" 200 OK')
        time.sleep(1)
        rest = "Remaining number of requests 0. Remaining requests remaining_rids=[]."
        say(f"Gracefully exiting... {rest}")
        self.kill_process_tree()

    def on_sigquit(self, *_: object) -> None:
        """A worker failed: say so and end everything at once."""
        say("Received sigquit from a child process. It usually means the child failed.")
        self.kill_process_tree()

    def on_sigterm(self, *_: object) -> None:
        """Stop taking requests; the loop of :meth:`run` does the rest."""
        # None twice: SGLang's handler is called by the event loop, without arguments.
        say("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        self.draining = True

    def kill_process_tree(self) -> None:
        """SIGKILL the workers and this process: after SIGTERM, too, SGLang ends so."""
        pid = os.getpid()
        say(f"kill_process_tree called: parent_pid={pid}, include_parent=True, pid={pid}")
        # A second alarm interrupts the first one's walk, and does not make it longer.
        self.walked = self.walked or time.monotonic() + random.uniform(*WALK)
        time.sleep(max(0.0, self.walked - time.monotonic()))
        for worker in multiprocessing.active_children():
            worker.kill()
        os.kill(pid, signal.SIGKILL)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the few flags of SGLang that the founding units carry."""
    parser = argparse.ArgumentParser(prog="launch_server.py")
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--quantization")
    parser.add_argument("--attention-backend")
    parser.add_argument("--mem-fraction-static", type=float)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--tp-size", type=int, default=1)  # --tp is its abbreviation
    parser.add_argument("--port", type=int, default=30000)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    Server(parse(sys.argv[1:])).run()
