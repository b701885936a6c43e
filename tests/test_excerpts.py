"""A few pasted lines without an event: which of them are an answer, and which only remind of one."""

from __future__ import annotations

import pytest

from logtriage import triage
from logtriage.model import Report

WORK = "[2026-02-11 11:42:10 TP0] Decode batch. #running-req: 3, #token: 912, token usage: 0.01, #queue-req: 0"
QUOTED = (
    "[2026-02-11 11:42:09] Receive: obj=GenerateReqInput(text='why this?\\n[TP3] Scheduler hit an exception:"
    " torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.')"
)


def read(*lines: str) -> Report:
    return triage([("\n".join(lines) + "\n").encode()])


def category(report: Report) -> str | None:
    if report.headline is None:
        return None
    match = report.diagnoses[report.headline].match
    return match.signature.category if match else None


def test_one_sentence_is_enough() -> None:
    assert category(read("Bfloat16 is only supported on GPUs with compute capability of at least 8.0.")) is not None


@pytest.mark.parametrize(
    "lines",
    [
        (QUOTED, WORK),
        (
            "[2026-02-11 11:42:09] Ignore import error when loading sglang.srt.models.x: cannot import name"
            " 'Thinker' from 'transformers' (/opt/transformers/__init__.py)",
        ),
        (
            "Feb 11 11:42:09 node-7 systemd[1]: Stopping sglang.service - SGLang...",
            "Feb 11 11:42:12 node-7 systemd[1]: sglang.service: Main process exited, code=killed, status=9/KILL",
            "Feb 11 11:42:12 node-7 systemd[1]: sglang.service: Failed with result 'signal'.",
            "Feb 11 11:42:12 node-7 systemd[1]: Stopped sglang.service - SGLang.",
        ),
        ("sglang-1  | x", "^CGracefully stopping... (press Ctrl+C again to force)", "sglang-1 exited with code 137"),
    ],
    ids=["quoted", "import-ignored", "stopped", "interrupted"],
)
def test_lines_that_only_remind_of_a_fault_are_no_crash(lines: tuple[str, ...]) -> None:
    assert read(*lines).diagnoses == ()


def test_a_cause_among_the_lines_is_preferred_to_a_consequence() -> None:
    described = ("State: Waiting", "  Reason: CrashLoopBackOff", "Last State: Terminated", "  Reason: OOMKilled")
    assert category(read(*described)) == "oom.host"
    assert category(read(*described[:2])) == "systemd.start-limit"
