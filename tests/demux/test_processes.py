"""Eight real processes that die at once, with one pipe between them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from logtriage.model import Event, Traceback
from tests.demux.stories import events_of, records_of

PROGRAM = Path(__file__).with_name("eight_ranks.py")
RANKS = range(8)


def run(mode: str, seed: int, folder: Path, *, slowly: bool = False) -> tuple[bytes, dict[int, Any]]:
    """What the processes wrote, in the order the pipe gave it, and what is true of them."""
    folder.mkdir()
    command = [sys.executable, "-B", str(PROGRAM), mode, str(seed), str(folder)]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert child.stderr
    out = b""
    while chunk := os.read(child.stderr.fileno(), 4096 if slowly else 65536):
        out += chunk
        if slowly:  # a full pipe is what tears lines
            time.sleep(0.001)
    child.stderr.close()
    assert child.wait(30) == 0
    return out, {rank: json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in RANKS}


def tracebacks(log: bytes) -> list[Traceback]:
    return [event for event in events_of(records_of(log)) if isinstance(event, Traceback)]


def stack(event: Event) -> list[list[object]]:
    assert isinstance(event, Traceback)
    return [[frame.function, frame.lineno] for frame in event.chain[-1].frames]


def test_records_written_at_once_are_assigned_exactly(tmp_path: Path) -> None:
    for seed in range(2):
        log, truth = run("whole", seed, tmp_path / str(seed))
        found = {event.process.label: event for event in tracebacks(log)}
        assert sorted(found) == [f"TP{rank}" for rank in RANKS]
        for rank, said in truth.items():
            event = found[f"TP{rank}"]
            assert (event.chain[-1].type, event.chain[-1].message) == (said["type"], said["message"])
            assert stack(event) == said["frames"]
            assert event.complete


def test_torn_records_still_tell_nearly_every_exception(tmp_path: Path) -> None:
    log, truth = run("huge", 0, tmp_path / "0", slowly=True)
    found = tracebacks(log)
    said = {event.chain[-1].message.partition("\n")[0] for event in found}
    # Where the kernel tears is up to the machine, and it may be in a header or in a message.
    assert len(said & {told["message"] for told in truth.values()}) >= 6
    assert len({event.process.label for event in found} & {f"TP{rank}" for rank in RANKS}) >= 6
    assert len(found) <= 32  # not a heap of pieces


def test_every_uncaught_child_is_told(tmp_path: Path) -> None:
    # The ways through the same functions part after each call, so whose the next frame is shows nowhere.
    for seed in range(3):
        log, truth = run("uncaught", seed, tmp_path / str(seed))
        found = [(event.chain[-1].type, event.chain[-1].message) for event in tracebacks(log)]
        assert sorted(found) == sorted((told["type"], told["message"]) for told in truth.values())
