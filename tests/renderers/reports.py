"""Reports made by hand, for every renderer's tests."""

from __future__ import annotations

from typing import Any

from logtriage.model import (
    Alternative,
    Change,
    Diagnosis,
    Event,
    ExceptionLink,
    Finding,
    Frame,
    Gap,
    Incident,
    Invocation,
    Lifecycle,
    LoggedError,
    Match,
    Process,
    Rank,
    Redaction,
    Remediation,
    Report,
    Signature,
    Source,
    Span,
    Traceback,
    Variant,
    Verdict,
)

TP3 = Process("scheduler", "TP3", Rank(tp=3), pid=4242)
MAIN = Process("launcher", "main", pid=4200)

SITE = "/srv/venv/lib/python3.12/site-packages"
WORDS = "triton and trtllm_mha are the only supported backends on Blackwell GPUs"
FRAMES = (
    Frame(f"{SITE}/sglang/srt/managers/scheduler.py", 2311, "run_scheduler_process",
          "scheduler = Scheduler(server_args)", in_app=True),
    Frame(f"{SITE}/sglang/srt/layers/attention/attention_registry.py", 187, "attn_backend_wrapper",
          "assert full_attn_backend in ALLOWED", in_app=True),
    Frame("/usr/lib/python3.12/contextlib.py", 81, "inner", "return func(*args)"),
)  # fmt: skip

ROOT = Traceback(
    process=TP3,
    span=Span(120, 161),
    time="2026-03-09T12:00:01",
    message=f"AssertionError: {WORDS}",
    chain=(
        ExceptionLink("KeyError", "'flashinfer'", FRAMES[:1], "cause"),
        ExceptionLink("AssertionError", WORDS, FRAMES),
    ),
    header="Scheduler hit an exception",
)


def observer(rank: int) -> Finding:
    """The same fault on another rank."""
    process = Process("scheduler", f"TP{rank}", Rank(tp=rank), pid=4300 + rank)
    span = Span(200 + rank, 200 + rank)
    event = Traceback(process=process, span=span, message=ROOT.message, chain=ROOT.chain)
    return Finding(event, "observer", "the same exception at the same place, later")


SIGQUIT = Finding(
    Lifecycle(process=MAIN, span=Span(240, 240), message="SIGQUIT received. signum=None", action="sigquit"),
    "cascade",
    "the launcher was told that a child failed",
)

SIGNATURE = Signature(
    id="sglang.attention.hybrid-gdn-on-blackwell",
    revision=2,
    title="Hybrid GDN model on Blackwell with an unsupported attention backend",
    status="stable",
    level="fatal",
    category="config.attention-backend",
    owner="sglang",
    role="initiating",
    variants=(Variant("two-names", ("only supported backends",)),),
    cause="The backend {got} does not serve this model on this GPU.",
    constraint="It does not prove that triton is the fastest choice.",
)

MATCH = Match(SIGNATURE, "two-names", (("got", "flashinfer"),))

REMEDIATION = Remediation(
    title="Use the triton attention backend",
    applicability="safe",
    changes=(Change("set-flag", "--attention-backend", "triton", old="flashinfer"),),
    steps=("systemctl daemon-reload", "systemctl restart sglang-qwen.service"),
    rationale="The message names the backends that work.",
    side_effects="Triton may be slower on long prompts.",
    references=("https://docs.example.org/attention",),
)

REVIEW = Remediation("Use trtllm_mha", "review", (Change("set-flag", "--attention-backend", "trtllm_mha"),))

INVOCATION = Invocation(
    unit="sglang-qwen.service",
    host="node7",
    started="2026-03-09T11:58:00",
    ended="2026-03-09T12:00:03",
    state="activating",
    result="exit-code",
    restarts=5,
    engine="sglang",
    engine_version="0.5.9",
    argv=("python", "-m", "sglang.launch_server", "--tp", "4"),
    server_args={"tp_size": 4, "attention_backend": "flashinfer", "ratio": 0.85, "lora_paths": None},
)


def diagnosis(root: Event | None = ROOT, match: Match | None = None, **changes: Any) -> Diagnosis:
    """A diagnosis of *root*, with four ranks and the launcher."""
    findings = (observer(0), observer(1), observer(2), SIGQUIT)
    events = tuple(event for event in (root, *(each.event for each in findings)) if event is not None)
    values: dict[str, Any] = {
        "fingerprint": "lt1:0123456789abcdef",
        "incident": Incident(INVOCATION, events, "load", Span(100, 241)),
        "verdict": Verdict(root, "initiating", "it is the first exception of the incident", findings),
        "match": match,
        "confidence": "certain" if match else "possible",
    }
    return Diagnosis(**{**values, **changes})


def recognised(**changes: Any) -> Diagnosis:
    """A crash that a signature fits."""
    values: dict[str, Any] = {
        "remediations": (REMEDIATION, REVIEW),
        "alternatives": (Alternative("sglang.memory.oom", "no memory error in the log"),),
        "redacted": (Redaction("api-key", 1),),
        "repeats": 6,
        "match": MATCH,
    }
    return diagnosis(**{**values, **changes})


def unrecognised(message: str = "something odd happened", **changes: Any) -> Diagnosis:
    """A crash that no signature fits."""
    event = LoggedError(process=MAIN, span=Span(7, 9), message=message, type="RuntimeError")
    values: dict[str, Any] = {"next_steps": ("Run it again with --log-level debug.",)}
    return diagnosis(event, **{**values, **changes})


def raised(message: str, type_name: str = "ValueError", frames: tuple[Frame, ...] = FRAMES) -> Traceback:
    """A traceback of one exception."""
    chain = (ExceptionLink(type_name, message, frames),)
    return Traceback(process=TP3, span=Span(3, 8), message=f"{type_name}: {message}", chain=chain)


def report(*diagnoses: Diagnosis, gaps: tuple[Gap, ...] = ()) -> Report:
    """A report whose last diagnosis is the answer."""
    source = Source("server.log", ("journal-short", "sglang"), 1234, 98765, gaps)
    return Report(source, diagnoses, len(diagnoses) - 1 if diagnoses else None, "2026.12.1")
