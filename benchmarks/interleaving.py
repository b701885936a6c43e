"""Measures how many tracebacks of processes that die at once, with one stream between them, are rebuilt exactly.

Real processes fail with known exceptions (``tests/lab/crashing.py``) and keep their own account of it; what the
stream carried is read by the library's own stages, and each traceback is held against that account:

- *exact*: all exceptions of the chain with class, message and relation, all frames in order with file, line,
  function and source line, and the owner;
- *told*: class and message of the last exception, and the owner;
- *count*: runs in which as many tracebacks were read as were written, none torn in two and none invented.

The owner is the rank that the lines name, and the pid that a journal has stamped on them.  Where neither is there,
nobody can know whose an anonymous stack is: tracebacks are then compared as a heap, without owners, and the
column *child* says apart, in brackets, for how many the name of the child process above it was that of the
writer.  Before Python 3.13 ``sys.excepthook`` writes line by line, so two processes can both stand between a frame
and its source line, or between the same ``raise`` and their exceptions: what comes next then fits both.  Such
tracebacks are counted in the column *unclear* alone, with the number of those that were rebuilt all the same.
Stacks of ``shared`` and ``identical`` processes without a rank can often not be told apart either, but there a
wrong choice is counted as wrong where it shows.

    python -m benchmarks.interleaving --way logging multiprocessing --stream pipe slow-pipe --processes 8 --rounds 5

Each run depends on the kernel and on chance, so figures differ by a few percent from run to run.  ``--keep``
writes each run into a folder, and ``--recorded`` reads such folders once more, which gives the same figures always.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from logtriage.demux import Demux
from logtriage.events import EventReader
from logtriage.formats import FORMATS, JournalExport, Unwrapper
from logtriage.model import Event, FatalError, Line, Record, Traceback
from logtriage.redaction import clean, redact
from logtriage.scan import Scanner
from tests.lab.crashing import SHAPES, STREAMS, WAYS, Plan, Recording, Told, read_back, record, why_no_journal

__all__ = ["Tally", "compare", "held_by", "main", "missed", "read_events", "unclear"]

_EXPORT: Final = b"__CURSOR="
_CHUNK: Final = 1 << 17
_COLUMNS: Final = ("way", "stream", "shape", "start", "processes", "size")

Rebuilt = tuple[str, str, tuple[tuple[str, "int | None", str, str], ...], str]
Owner = tuple[str, "int | None"]


@attrs.frozen
class Tally:
    """How many tracebacks were right.

    Attributes:
        written: Tracebacks that the processes wrote.
        read: Tracebacks that the library read.
        exact: Those rebuilt exactly, the unclear ones left out.
        told: Those with the right class and message.
        child: Those with the right child process, where only its name above them says so; ``None`` where
            the owner is known anyway, and then it has to be right for *exact* and *told*.
        runs: Runs.
        counts: Runs in which as many were read as written.
        size: Bytes of the tracebacks as the processes told them; 0 of dumps.
        lost: Tracebacks that a journal does not hold as they were written; they count nowhere else.
        unclear: Tracebacks of which nobody can be sure.
        guessed: Those of them that were rebuilt exactly.
    """

    written: int = 0
    read: int = 0
    exact: int = 0
    told: int = 0
    child: int | None = None
    runs: int = 0
    counts: int = 0
    size: int = 0
    lost: int = 0
    unclear: int = 0
    guessed: int = 0

    @property
    def clear(self) -> int:
        """Tracebacks that can be rebuilt."""
        return self.written - self.unclear

    def __add__(self, other: Tally) -> Tally:
        summed = {name: getattr(self, name) + getattr(other, name) for name in attrs.asdict(self) if name != "child"}
        children = [each.child for each in (self, other) if each.child is not None]
        return Tally(**summed, child=sum(children) if children else None)


def read_events(log: bytes, chunk: int = _CHUNK) -> list[Event]:
    """All events of a log, as the library reads them.

    Args:
        log: The log.
        chunk: Bytes that are fed at a time.
    """
    demux, reader = Demux(lambda text: redact(clean(text))[0]), EventReader()
    events: list[Event] = []

    def take(lines: Iterable[Line]) -> None:
        for line in lines:
            events.extend(reader.feed(line))

    for each in _records(log, chunk):
        take(demux.feed(each))
    take(demux.close())
    events.extend(reader.close())
    return events


def _records(log: bytes, chunk: int) -> Iterable[Record]:
    pieces = [log[start : start + chunk] for start in range(0, len(log), chunk)]
    if log.startswith(_EXPORT):
        export = JournalExport()
        entries = [entry for piece in pieces for entry in export.feed(piece)] + [*export.close()]
        for entry in entries:
            for index, text in enumerate(entry.text.split("\n")):
                yield attrs.evolve(entry, text=text, continued=index > 0)
        return
    scanner, unwrapper = Scanner(), Unwrapper(FORMATS, clean)
    for piece in pieces:
        yield from unwrapper.feed(scanner.feed(piece))
    yield from unwrapper.feed(scanner.close())
    yield from unwrapper.close()


def compare(recording: Recording, events: Iterable[Event] | None = None) -> Tally:
    """Hold what was read against what the processes told.

    Args:
        recording: The run.
        events: What was read; the library's own answer if ``None``.

    Returns:
        The tally of one run.
    """
    plan, held = recording.plan, held_by(recording)
    kind = FatalError if plan.way == "faulthandler" else Traceback
    lost = {each.pid for each in recording.told} - {each.pid for each in held}
    events = read_events(recording.log) if events is None else events
    found = [event for event in events if isinstance(event, kind) and event.process.pid not in lost]
    has_owner = plan.way == "logging" or plan.stream == "journald"
    truth = [(_owner_told(plan, each), _chain_told(plan, each)) for each in held]
    read = [(_owner_read(plan, each), _chain_read(each)) for each in found]
    right = Counter(truth) & Counter(read)
    doubtful = unclear(recording)
    guessed = _common(right.elements(), (key for key, each in zip(truth, held, strict=True) if each.rank in doubtful))
    exact = right.total() - guessed
    told = _common(*([(owner, chain[-1][:2]) for owner, chain in each] for each in (truth, read)))
    child = None
    if not has_owner and plan.way == "multiprocessing":
        child = _common(
            ((each.name, chain[-1][1]) for each, (_, chain) in zip(held, truth, strict=True)),
            ((each.process.label, chain[-1][1]) for each, (_, chain) in zip(found, read, strict=True)),
        )
    size = sum(len(each.text.encode()) for each in held)
    return Tally(
        written=len(held),
        read=len(found),
        exact=exact,
        told=told,
        child=child,
        runs=1,
        counts=int(len(found) == len(held)),
        size=size,
        lost=len(lost),
        unclear=len(doubtful),
        guessed=guessed,
    )


def unclear(recording: Recording) -> set[int]:
    """The ranks whose stacks nobody can be sure of, by what lies between the lines that they wrote.

    Two processes whose stacks say no owner were both in the middle of a frame, so the next source line fits
    both; or both had written the same last line of source, so the next exception does.
    """
    if recording.plan.way in ("logging", "faulthandler") or recording.plan.stream == "journald":
        return set()
    places: dict[str, list[int]] = {}
    for number, line in enumerate(recording.log.decode("utf-8", "replace").replace("\r", "").split("\n")):
        places.setdefault(line, []).append(number)
    frames, ends = [], []  # of whom, from where, to where, what has to be the same
    for each in recording.told:
        lines = [line for line in each.text.split("\n") if line.strip(" ~^")]
        for line, after in itertools.pairwise(lines):
            if line.startswith("  File ") and len(places.get(line, ())) == len(places.get(after, ())) == 1:
                frames.append((each.rank, places[line][0], places[after][0], ""))
        raised = f"    {each.chain[-1].frames[-1][3]}"
        if raised not in lines[2:-1]:
            continue
        at = len(lines) - 1 - lines[::-1].index(raised)
        named = places.get(lines[at + 1], [])
        end = named[0] if len(named) == 1 else 0
        begin = max((place for place in places.get(raised, ()) if place < end), default=0)
        if begin:
            ends.append((each.rank, begin, end, raised))
        if begin and len(places[raised]) > len(places.get(lines[at - 1], ())) == 1:
            frames.append((each.rank, places[lines[at - 1]][0], begin, ""))
    return _crossing(frames) | _crossing(ends)


def _crossing(spans: Sequence[tuple[int, int, int, str]]) -> set[int]:
    """Those of different ranks that overlap."""
    found: set[int] = set()
    running: list[tuple[int, int, int, str]] = []
    for span in sorted(spans, key=lambda span: span[1]):
        running = [other for other in running if other[2] > span[1]]
        for other in running:
            if other[0] != span[0] and other[3] == span[3]:
                found |= {other[0], span[0]}
        running.append(span)
    return found


def held_by(recording: Recording) -> list[Told]:
    """What was told and has come as far as the log: all of it but for what a journal has lost.

    Where another process cuts in on a line, journald drops the blanks at the end of the first piece, and nothing
    tells that there were any.  It also drops a line break that comes alone; that much the grammar can tell.
    Only the JSON form is looked into.
    """
    if recording.plan.stream != "journald" or recording.plan.form != "json":
        return list(recording.told)
    texts: dict[int, str] = {}
    for line in recording.log.splitlines():
        entry = json.loads(line)
        said = entry["MESSAGE"] if isinstance(entry["MESSAGE"], str) else bytes(entry["MESSAGE"]).decode()
        texts[int(entry["_PID"])] = texts.get(int(entry["_PID"]), "") + said
    return [each for each in recording.told if each.text.replace("\n", "") in ("", texts.get(each.pid))]


def missed(recording: Recording) -> list[str]:
    """Where each traceback that was not rebuilt exactly differs from the truth first."""
    plan, held = recording.plan, held_by(recording)
    read = Counter(
        (_owner_read(plan, each), _chain_read(each))
        for each in read_events(recording.log)
        if isinstance(each, FatalError if plan.way == "faulthandler" else Traceback)
    )
    wrong = []
    for each in held:
        key = (_owner_told(plan, each), _chain_told(plan, each))
        if read[key]:
            read[key] -= 1
        else:
            wrong.append(each)
    left = list(read.elements())
    said = []
    for each in wrong:
        chain = _chain_told(plan, each)
        near = max(left, key=lambda other: _nearness(other[1], chain), default=None)
        said.append(f"{each.name} {each.label}: {_difference(chain, near[1]) if near else 'nothing is left'}")
    return said


def _nearness(one: Sequence[Rebuilt], other: Sequence[Rebuilt]) -> int:
    frames = [Counter(frame for link in chain for frame in link[2]) for chain in (one, other)]
    return sum((frames[0] & frames[1]).values()) + 50 * (one[-1][:2] == other[-1][:2])


def _difference(truth: Sequence[Rebuilt], read: Sequence[Rebuilt]) -> str:
    if len(truth) != len(read):
        return f"{len(truth)} exceptions, read {len(read)}"
    for wanted, got in zip(truth, read, strict=True):
        for name, at in (("type", 0), ("message", 1), ("relation", 3)):
            if wanted[at] != got[at]:
                return f"{name} {wanted[at]!r:.200}, read {got[at]!r:.200}"
        for number, (frame, instead) in enumerate(itertools.zip_longest(wanted[2], got[2])):
            if frame != instead:
                counted = f"frame {number} of {len(wanted[2])} (read {len(got[2])})"
                return f"{counted} is {_place(frame)}, read {_place(instead)}"
    return "only the owner"


def _place(frame: Any) -> str:
    return f"{Path(frame[0]).name}:{frame[1]} {frame[2]} | {frame[3]:.60}" if frame else "none"


def _common(one: Iterable[object], other: Iterable[object]) -> int:
    return sum((Counter(one) & Counter(other)).values())


def _owner_told(plan: Plan, told: Told) -> Owner:
    return told.label, told.pid if plan.stream == "journald" else None


def _owner_read(plan: Plan, event: Event) -> Owner:
    pid = event.process.pid if plan.stream == "journald" else None
    return event.process.label if plan.way == "logging" else "", pid


def _chain_told(plan: Plan, told: Told) -> tuple[Rebuilt, ...]:
    chain = tuple((link.type, link.message, link.frames, link.relation) for link in told.chain)
    if plan.stream != "journald":
        return chain
    # journald keeps no empty lines, so nobody can read them
    return tuple((kind, re.sub(r"\n{2,}", "\n", said), frames, relation) for kind, said, frames, relation in chain)


def _chain_read(event: Event) -> tuple[Rebuilt, ...]:
    if isinstance(event, FatalError):
        return ((event.reason, "", _frames_read(event.frames), ""),)
    assert isinstance(event, Traceback)
    return tuple((link.type, link.message, _frames_read(link.frames), link.relation) for link in event.chain)


def _frames_read(frames: Iterable[Any]) -> tuple[tuple[str, int | None, str, str], ...]:
    return tuple((frame.filename, frame.lineno, frame.function, frame.line) for frame in frames)


def _row(names: Sequence[object], tally: Tally) -> str:
    child = "" if tally.child is None else f"({tally.child / max(tally.written, 1):.0%})"
    written = max(tally.written, 1)
    exact = f"{tally.exact}/{tally.clear} ({tally.exact / max(tally.clear, 1):.1%})"
    told = f"{tally.told}/{tally.written} ({tally.told / written:.1%})"
    doubt = f"({tally.guessed}/{tally.unclear})" if tally.unclear else ""
    size = f"{tally.size / written / 1000:.1f} KB" if tally.size else ""
    cells = [*names, size, exact, told, f"{tally.counts}/{tally.runs}", child, doubt]
    return f"| {' | '.join(map(str, cells))} |"


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def _plans(options: argparse.Namespace) -> list[Plan]:
    combined = itertools.product(
        options.way, options.stream, options.shape, options.start, options.processes, options.size
    )
    return [
        Plan(processes, way, shape, stream, size, start, form=options.form, unbuffered=options.unbuffered)
        for way, stream, shape, start, processes, size in combined
        if way != "faulthandler" or shape in ("plain", "shared", "identical")
    ]


def _run(plan: Plan, options: argparse.Namespace) -> Tally:
    """All rounds of one plan."""
    whole = Tally()
    for turn in range(options.rounds):
        each = attrs.evolve(plan, seed=options.seed + turn)
        with tempfile.TemporaryDirectory(prefix="crash") as folder:
            recording = record(each, Path(folder))
        if options.keep:
            name = "-".join(str(getattr(each, part)) for part in (*_COLUMNS, "seed"))
            recording.keep(options.keep / name)
        if options.verbose:
            _say(missed(recording))
        whole += compare(recording)
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.interleaving",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--processes", type=int, nargs="+", default=[8], metavar="N", help="how many die at once (default: 8)")
    add("--way", nargs="+", choices=WAYS, default=["logging", "excepthook", "multiprocessing"], help="how they write")
    add("--stream", nargs="+", choices=STREAMS, default=["pipe"], help="what they write into (default: pipe)")
    add("--shape", nargs="+", choices=SHAPES, default=["plain"], help="what they fail with (default: plain)")
    add("--size", type=int, nargs="+", default=[4_000], metavar="BYTES", help="about, of a traceback (default: 4000)")
    add("--start", nargs="+", choices=("fork", "spawn"), default=["fork"], help="how they start (default: fork)")
    add("--form", choices=("json", "short", "export"), default="json", help="how a journal is printed (default: json)")
    add("--unbuffered", action="store_true", help="run them with PYTHONUNBUFFERED: a write for each piece of a line")
    add("--rounds", type=int, default=3, metavar="N", help="runs of each kind (default: 3)")
    add("--seed", type=int, default=1, metavar="N", help="the first run's; the next ones count up (default: 1)")
    add("--keep", type=Path, metavar="FOLDER", help="write each run into a folder below this one")
    add("--recorded", type=Path, nargs="+", metavar="FOLDER", help="read kept runs instead: their folders")
    add("--verbose", action="store_true", help="say of each traceback that is not exact where it differs first")
    options = parser.parse_args(arguments)
    if "journald" in options.stream and not options.recorded and (reason := why_no_journal()):
        parser.error(reason)
    columns = " | ".join([*_COLUMNS, "exact", "told", "count", "child", "unclear"])
    print(f"| {columns} |\n|{'---|' * len(_COLUMNS)}---:|---:|---:|---:|---:|")
    whole = Tally()
    if options.recorded:
        for folder in options.recorded:
            recording = read_back(folder)
            tally = compare(recording)
            whole += tally
            print(_row([getattr(recording.plan, name) for name in _COLUMNS[:-1]], tally), flush=True)
            if options.verbose:
                _say(missed(recording))
    else:
        for plan in _plans(options):
            tally = _run(plan, options)
            whole += tally
            print(_row([getattr(plan, name) for name in _COLUMNS[:-1]], tally), flush=True)
    print(f"\n{whole.exact} of {whole.clear} tracebacks rebuilt exactly")
    print(f"{whole.written} were written, {whole.read} were read")
    if whole.unclear:
        print(f"{whole.guessed} of {whole.unclear} more were rebuilt although their lines can be read in two ways")
    if whole.lost:
        print(f"{whole.lost} more are not in the journal as they were written: it drops blanks before a cut")
    return 0


if __name__ == "__main__":
    sys.exit(main())
