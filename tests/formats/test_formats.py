"""Every format takes its samples, and the samples take no other path."""

from __future__ import annotations

import pytest

from logtriage.formats import FORMATS, Format

SAMPLES = [(form, line, message) for form in FORMATS for line, message in form.samples]


@pytest.mark.parametrize(("form", "line", "message"), SAMPLES, ids=lambda value: str(value)[:40])
def test_a_sample_leaves_its_message(form: Format, line: str, message: str) -> None:
    peeled = form.peel(line)
    assert peeled is not None
    assert peeled.rest == message


@pytest.mark.parametrize(("form", "line", "message"), SAMPLES, ids=lambda value: str(value)[:40])
def test_the_first_format_that_takes_a_sample_is_its_own(form: Format, line: str, message: str) -> None:
    first = next(other for other in FORMATS if other.peel(line) is not None)
    assert (first.name, message) == (form.name, message)


@pytest.mark.parametrize(
    "line",
    [
        "[2026-03-09 12:00:01 TP0] Decode batch, #running-req: 3",
        "Traceback (most recent call last):",
        '  File "/x/y.py", line 3, in f',
        "    return self.op(*args)",
        "RuntimeError: CUDA error: out of memory",
        "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
        "(EngineCore_DP0 pid=494) ERROR 11-03 23:14:05 [core.py:710] x",
        "[rank5]:[E407 02:11:40.353336382 ProcessGroupNCCL.cpp:1984] [PG ID 2] x",
        "INFO 05-12 19:01:18 [async_llm.py:324] Request failed",
        "Loading safetensors checkpoint shards: 100% Completed | 30/30 [00:01<00:00, 29.1it/s]",
        "",
    ],
)
def test_raw_server_output_is_in_no_envelope(line: str) -> None:
    assert [form.name for form in FORMATS if form.peel(line) is not None] == []
