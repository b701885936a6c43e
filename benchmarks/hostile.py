"""Measures how the time of each room grows with hostile text: of one size, of twice and of four times that.

What takes linear time grows by 2 and by 4, the square by 4 and by 16.  Each room gets texts made of one unit,
over and over, that pattern matching is known to fear; the unit that grew most is printed.  The tests hold the
same laws by counts of steps; here the clock sees what no count does, such as the searches of a C library.

    python -m benchmarks.hostile --size 100000
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from logtriage import Triage, load_database
from logtriage.errors import PatchError
from logtriage.launch import parse_server_args
from logtriage.model import Change, ExceptionLink, LoggedError, Process, Remediation, Span, Traceback
from logtriage.redaction import clean, redact
from logtriage.remediation import propose_patch
from logtriage.texts import event_texts

__all__ = ["ROOMS", "Growth", "Room", "main", "measure"]

TIMES: Final = (1, 2, 4)
_LEAST: Final = 0.0005
"""Seconds below which a ratio says nothing."""

_WORDS: Final = (
    "a", " ", "x.", "(a)", "(aa.", "[", "{", "'", '"', "a=", "a: ", "7", "7,", "/", "a/", "<", "://a", "key ", "eyJa.",
    "Error", "DeepEP a", "^ ", "~", "| ", "> ", "\\n", "at 0x", "File \"a", ", line 7", "token=a ", "api_key='", "a\\",
    "--api-key ", "Bearer ", "sk-",
)  # fmt: skip
_ESCAPES: Final = ("\x1b", "\x1b[", "\x1b]", "\x1b[0", "\x1bP", "\x9d", "\x1b]\x1b")
_RECORDS: Final = (
    "ValueError: x\n",
    'Traceback (most recent call last):\n  File "/a.py", line 7, in f\nValueError: x\n',
    '  File "/a.py", line 7, in f\n    g()\n',
    "frame #7: c10::fail()\n",
    "[2026-03-09 12:00:01 TP7] ValueError: hello\n",
    "Mar 09 12:00:01 gpu01 python3[7]: ValueError: x\n",
    "Mar 09 12:00:01 gpu01 kernel: NVRM: Xid (PCI:0000:1a:00): 31, pid=7, name=python3, C\n",
    "During handling of the above exception, another exception occurred:\n\n",
)
_DATABASE: Final = load_database()
_REMEDIATION: Final = Remediation(
    "Use triton", "safe", (Change("set-flag", "--attention-backend", "triton", old="flashinfer"),)
)


@attrs.frozen
class Room:
    """A part of the program and the texts it fears.

    Attributes:
        name: What is measured.
        call: Does it to one text.
        units: What the texts are made of.
        share: Part of the size that it gets, where it is slower than others by nature.
    """

    name: str
    call: Callable[[str], object]
    units: Sequence[str]
    share: float = 1.0


@attrs.frozen
class Growth:
    """How the time of one room grew.

    Attributes:
        room: Its name.
        unit: What the text was made of.
        seconds: The time for each of :data:`TIMES`.
    """

    room: str
    unit: str
    seconds: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """Each time over the first; of times too short to tell, what linear growth would give."""
        first = max(self.seconds[0], _LEAST)
        return tuple(
            times if seconds < _LEAST * times else seconds / first
            for times, seconds in zip(TIMES, self.seconds, strict=True)
        )


def _read(text: str) -> None:
    triage = Triage(_DATABASE)
    triage.feed(text.encode())
    triage.close()
    triage.report()


def _patch(text: str) -> None:
    server = "python3 -m sglang.launch_server --attention-backend flashinfer\n"
    with contextlib.suppress(PatchError):  # some of the texts swallow the command
        propose_patch(_REMEDIATION, f"#!/bin/bash\n{text}{server}{text}", "run.sh").diff()


def _texts(text: str) -> None:
    at = Span(1, 1)
    event_texts(Traceback(process=Process(), span=at, message=text, chain=(ExceptionLink("RuntimeError", text),)))
    event_texts(LoggedError(process=Process(), span=at, message=text))


ROOMS: Final = (
    Room("redact", lambda text: redact(f"{text} token= a://b@c"), _WORDS),
    Room("clean", clean, _ESCAPES),
    Room("server_args", lambda text: parse_server_args(f"server_args=ServerArgs(a={text}"), _WORDS),
    Room("texts", _texts, _WORDS),
    Room("one line", lambda text: _read(f"{text}\n"), _WORDS, 0.1),
    Room("one error line", lambda text: _read(f"RuntimeError: {text}\n"), _WORDS, 0.1),
    Room("one traced line", lambda text: _read(f"[2026-03-09 12:00:01 TP0] Error {text}!\n"), _WORDS, 0.1),
    Room("many lines", _read, _RECORDS),
    Room("launch script", _patch, ("A=$A\n", "A=1\n", "# a\n", "a \\\n", "if a; then\n"), 0.1),
)


def measure(
    room: Room, size: int, *, rounds: int = 3, clock: Callable[[], float] = time.process_time
) -> list[Growth]:
    """Run one room over its texts.

    Args:
        room: The room.
        size: Characters of the smallest text.
        rounds: How often each text is tried; the fastest counts.
        clock: Seconds of CPU so far.

    Returns:
        The growth for each unit, the strongest first.
    """
    found = []
    for unit in room.units:
        taken = []
        for times in TIMES:
            text = unit * max(int(size * room.share) * times // len(unit), 1)
            spans = []
            for _ in range(rounds):
                start = clock()
                room.call(text)
                spans.append(clock() - start)
            taken.append(min(spans))
        found.append(Growth(room.name, unit, tuple(taken)))
    return sorted(found, key=lambda growth: -growth.ratios[-1])


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; return 0, or 1 if something grew by more than ``--most``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=str(__doc__).split("\n")[0])
    parser.add_argument("--size", type=int, default=100_000, help="characters of the smallest text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=float, default=8.0, help="growth for four times the text that is still good")
    parser.add_argument("--room", action="append", choices=[room.name for room in ROOMS], help="only this one")
    options = parser.parse_args(argv)
    print(f"{'room':16} {'worst unit':24} {'1x [ms]':>9} {'2x':>6} {'4x':>6}")
    bad = 0
    for room in ROOMS:
        if options.room and room.name not in options.room:
            continue
        worst = measure(room, options.size, rounds=options.rounds)[0]
        _, twice, fourfold = worst.ratios
        bad += fourfold > options.most
        row = f"{room.name:16} {worst.unit!r:24.24} {worst.seconds[0] * 1e3:9.2f} {twice:6.1f} {fourfold:6.1f}"
        print(row, flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
