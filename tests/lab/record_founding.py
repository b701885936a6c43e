"""Record the founding crash loop under a real systemd: ``record_founding.py --out FOLDER``.

The previous model's unit serves and is stopped; the new one crashes until systemd counts
``--restarts`` of them.  Out come the journal in four forms, what systemctl said meanwhile, the
unit files, and ``case.json``: the truth, taken from side files that the processes wrote apart
from the log, and checked against the journal.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

if __package__ is None:  # started as a script
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.lab.machine import Machine, why_not

HERE: Final = Path(__file__).parent
BEFORE: Final = "sglang-qwen3.service"
BROKEN: Final = "sglang-qwen35.service"
LEDGER: Final = "var/lib/ledger"
SHOWN: Final = ["-p", "NRestarts,ActiveState,SubState,Result"]
FORMS: Final = {
    "journal.short.txt": ["-o", "short"],
    "journal.json": ["-o", "json", "--all"],
    "journal.export": ["-o", "export"],
}
Notes = list[dict[str, Any]]


def lay_out(root: Path) -> Machine:
    """Return a machine, not yet booted, with the server and both units installed."""
    files = {"opt/sglang/launch_server.py": (HERE / "sglang_stand_in.py").read_text()}
    for unit in (BEFORE, BROKEN):
        files[f"etc/systemd/system/{unit}"] = (HERE / "units" / unit).read_text()
    setting = f'DefaultEnvironment="SGLANG_STAND_IN_LEDGER=/{LEDGER}"'
    files["etc/systemd/system.conf"] = f"[Manager]\n{setting}\n"
    (root / LEDGER).mkdir(parents=True)
    return Machine(root, files)


def ticks(seconds: float) -> Iterator[None]:
    """Yield ten times a second; raise TimeoutError when *seconds* have gone by."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.1)
        yield
    raise TimeoutError(f"nothing came of {seconds} seconds of waiting")


def serve_well(host: Machine, batches: int) -> None:
    """Let the previous unit decode *batches* times, then stop it as an operator would."""
    host.run("systemctl", "start", BEFORE)
    for _ in ticks(30 + batches):
        if host.run("journalctl", "-u", BEFORE, "-o", "cat").count("Decode batch") >= batches:
            break
    host.run("systemctl", "stop", BEFORE)


def crash_loop(host: Machine, restarts: int) -> str:
    """Start the broken unit, wait for the crash after restart number *restarts*.

    Returns:
        What systemctl said meanwhile, each change of it once, as a terminal shows it.
    """
    host.run("systemctl", "start", BROKEN)
    said, last = [], ""
    for _ in ticks(30 + 15 * restarts):
        active = host.run("systemctl", "is-active", BROKEN)
        shown = host.run("systemctl", "show", BROKEN, *SHOWN)
        if shown != last and f"ActiveState={active}" in shown:
            last, moment = shown, time.strftime("%H:%M:%S", time.gmtime())
            said.append(f"[{moment}] $ systemctl is-active {BROKEN}\n{active}")
            said.append(f"[{moment}] $ systemctl show {BROKEN} {' '.join(SHOWN)}\n{shown}")
            if f"NRestarts={restarts}\n" in last and "SubState=auto-restart\n" in last:
                break
    status = host.run("systemctl", "status", "--full", "--no-pager", "-n", "0", BROKEN)
    version = host.run("systemctl", "--version").splitlines()[0]
    head = f"$ systemctl --version | head -n 1\n{version}\n"
    return "\n".join([head, *said, f"$ systemctl status --full -n 0 {BROKEN}\n{status}"])


def read_ledger(folder: Path) -> list[list[Notes]]:
    """Return the notes of each start of the broken unit, in order: one list for each rank."""
    starts: list[list[Notes]] = []
    while (parent := folder / f"start-{len(starts) + 1}.parent").exists():
        workers = parent.parent.glob(f"{parent.stem}.TP*")
        starts.append([[*map(json.loads, path.read_text().splitlines())] for path in workers])
    return starts[1:]  # the first start is that of the previous unit


def printed_order(start: list[Notes], entries: Notes) -> list[str]:
    """Return the ranks of one start that printed a whole traceback, in the journal's order.

    Args:
        start: What the workers of this start noted.
        entries: The journal, decoded.

    Raises:
        ValueError: If journal and notes contradict each other.
    """
    noted = {str(notes[0]["pid"]): notes for notes in start if notes}
    order, whole = [], set()
    for entry in entries:
        text, notes = str(entry.get("MESSAGE")), noted.get(entry["_PID"])
        if notes and f"TP{notes[0]['rank']}] Scheduler hit an exception: " in text:
            order.append(notes)
        elif notes and text.startswith("AssertionError: "):
            whole.add(entry["_PID"])
    # A rank killed between its write and its second note stands in the journal alone.
    if not {pid for pid, notes in noted.items() if len(notes) == 2} <= whole or not whole:
        raise ValueError(f"noted: {noted}, in the journal: {whole}")
    order = [notes for notes in order if str(notes[0]["pid"]) in whole]
    for earlier, later in itertools.combinations(order, 2):
        # One note alone tells when a rank began, not when it had printed: it contradicts nothing.
        if len(later) == 2 and later[-1]["monotonic_ns"] < earlier[0]["monotonic_ns"]:
            raise ValueError(f"the journal has {earlier} before {later}")
    return [f"TP{notes[0]['rank']}" for notes in order]


def keep(out: Path, journal: Path, said: str, starts: list[list[Notes]]) -> None:
    """Write every file of the case into *out*."""
    for name, form in FORMS.items():
        command = ["journalctl", "--file", str(journal), "-u", BEFORE, "-u", BROKEN, *form]
        with (out / name).open("wb") as file:
            subprocess.run(command, stdout=file, env=os.environ | {"TZ": "UTC"}, check=True)
    # Always packed: an archived journal of systemd 252 is a multiple of 8 MiB.
    (out / "system.journal.xz").write_bytes(lzma.compress(journal.read_bytes(), preset=9))
    (out / "systemctl.txt").write_text(said)
    for unit in (BEFORE, BROKEN):
        shutil.copy(HERE / "units" / unit, out)
    entries = [*map(json.loads, (out / "journal.json").read_text().splitlines())]
    printed = [printed_order(start, entries) for start in starts]
    message = "are the only supported backends on Blackwell GPUs for hybrid GDN models"
    root = {"type": "AssertionError", "message_contains": message, "process": printed[0][0]}
    case = {
        "input_kind": "journal-short",
        "category": "config.attention-backend",
        "root": root | {"phase": "init"},
        "printed": printed,
        "repeats": len(starts),
        "restarts": int(re.findall(r"NRestarts=(\d+)", said)[-1]),
        "state": re.findall(r"is-active \S+\n(\S+)", said)[-1],
        "fix": {"changes": {"--attention-backend": "triton"}},
    }
    (out / "case.json").write_text(json.dumps(case, indent=1) + "\n")


def main() -> None:
    """Record; end with a sentence on stderr where that cannot be done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")
    parser.add_argument("--restarts", type=int, default=5, help="restarts to wait for (5)")
    parser.add_argument("--batches", type=int, default=36, help="decode lines before it (36)")
    options = parser.parse_args()
    if reason := why_not():
        sys.exit(f"cannot record: {reason}")
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="machine-") as folder:
        root = Path(folder)
        with lay_out(root) as host:
            serve_well(host, options.batches)
            said = crash_loop(host, options.restarts)
            host.run("journalctl", "--rotate")  # the file is complete and closed from here on
        (journal,) = root.glob("var/log/journal/*/system@*.journal")
        keep(options.out, journal, said, read_ledger(root / LEDGER))


if __name__ == "__main__":
    main()
