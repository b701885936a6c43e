"""Measures how fast logtriage reads a large journal, as ratios to other programs that read the same file.

The journal is synthetic and its crashes are known (:mod:`benchmarks.generate`), so each run also says how
many of them were found with the rank they began on.  The peers:

- ``grep``: ``grep -c Traceback``, the floor: it only looks for one word;
- ``ripgrep``: ``rg -c Traceback``, if it is installed;
- ``python loop``: the plain way to write such a tool, one compiled regular expression on every line.

Each program runs as often as ``--rounds`` says, in turn, and its fastest round counts.  The numbers of one
table are from one machine at one time; only the ratios can be compared with those of another run.

    python -m benchmarks.speed --size 100 --form short
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from benchmarks.generate import FORMS, Crash, generate

__all__ = ["Measurement", "count_found", "main", "measure"]

TREE: Final = Path(__file__).parent.parent
LOOP: Final = """\
import re, sys
pattern = re.compile(rb"Traceback|Error|Exception")
with open(sys.argv[1], "rb") as stream:
    print(sum(1 for line in stream if pattern.search(line)))
"""
_FAILED: Final = frozenset({2, 126, 127})
"""What the peers and logtriage exit with when they could not read the file."""


@attrs.frozen
class Measurement:
    """What one program took for one pass over the file.

    Attributes:
        seconds: By the clock on the wall.
        processor: Seconds of CPU, user and system.
        memory: Peak resident memory in bytes.
    """

    seconds: float
    processor: float
    memory: int


def measure(command: Sequence[str], output: Path) -> Measurement:
    """Run a program once.

    Args:
        command: The program and its arguments.
        output: The file its standard output goes to.

    Returns:
        What it took.

    Raises:
        RuntimeError: The program failed.
    """
    environment = {**os.environ, "LC_ALL": "C", "PYTHONPATH": str(TREE)}
    with output.open("wb") as stream:
        begin = time.perf_counter()
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.DEVNULL, env=environment
        )
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begin
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode < 0 or child.returncode in _FAILED:
        raise RuntimeError(f"{command[0]} ended with exit status {child.returncode}")
    return Measurement(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def count_found(crashes: Sequence[Crash], report: Path) -> int:
    """Count the planted crashes that a JSON report names, at their line and on their rank."""
    roots = [
        diagnosis["root"]["event"]
        for diagnosis in json.loads(report.read_bytes())["diagnoses"]
        if diagnosis["root"]
    ]
    return sum(
        any(
            crash.first <= root["span"][0] <= crash.last and root["process"]["label"] == crash.process
            for root in roots
        )
        for crash in crashes
    )


def _programs(log: str) -> dict[str, list[str]]:
    programs = {"grep -c Traceback": ["grep", "-c", "Traceback", log]}
    if shutil.which("rg"):
        programs["rg -c Traceback"] = ["rg", "-c", "Traceback", log]
    programs["python loop, one regex"] = [sys.executable, "-c", LOOP, log]
    programs["logtriage"] = [sys.executable, "-m", "logtriage", log, "--format", "json"]
    return programs


def _table(best: dict[str, Measurement], size: int) -> str:
    floor, loop = best["grep -c Traceback"], best["python loop, one regex"]
    lines = [
        "| program | MB/s | CPU s | peak MiB | time / grep | time / python loop | CPU / python loop |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, took in best.items():
        lines.append(
            f"| {name} | {size / took.seconds / 1e6:.0f} | {took.processor:.2f} | {took.memory / 2**20:.0f} "
            f"| {took.seconds / floor.seconds:.1f} | {took.seconds / loop.seconds:.2f} "
            f"| {took.processor / max(loop.processor, 0.001):.2f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--size", type=float, default=100.0, metavar="MB", help="size of the journal (default: 100)"
    )
    parser.add_argument(
        "--form", choices=list(FORMS), default="short", help="how it was collected (default: short)"
    )
    parser.add_argument("--crashes", type=int, default=20, help="how many crashes it holds (default: 20)")
    parser.add_argument(
        "--seed", type=int, default=1, help="makes another journal of the same kind (default: 1)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each program runs (default: 3)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="logtriage-speed-") as folder:
        log, output = Path(folder, "journal.log"), Path(folder, "output")
        with log.open("wb") as stream:
            size = int(options.size * 1e6)
            crashes = generate(
                stream, size=size, form=options.form, crashes=options.crashes, seed=options.seed
            )
        # The first reader would pay for what is not in memory yet, and the first run for the signatures.
        for command in _programs(str(log)).values():
            measure(command, output)
        rounds = [
            {name: measure(command, output) for name, command in _programs(str(log)).items()}
            for _ in range(options.rounds)
        ]
        found = count_found(crashes, output)  # logtriage runs last
        size = log.stat().st_size
    best = {name: min((each[name] for each in rounds), key=lambda took: took.seconds) for name in rounds[0]}
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{size / 1e6:.0f} MB, form {options.form}, {len(crashes)} crashes, best of {options.rounds}\n")
    print(_table(best, size))
    print(f"\nlogtriage found {found} of {len(crashes)} planted crashes on the rank they began on.")
    print(
        f"Peaks below {own:.0f} MiB cannot be told apart: a child begins as a copy of the measuring process."
    )
    return 0 if found == len(crashes) else 1


if __name__ == "__main__":
    sys.exit(main())
