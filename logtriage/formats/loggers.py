"""Lines of logging set-ups and the kernel ring buffer in, message out.

Sources: Python ``logging`` with common formats (``time - name - LEVEL - text``), loguru's ``time | LEVEL | name |``,
Jenkins' ``[timestamp]``, exports of Loki (a line with the time, then the message), ``dmesg`` with and without ``-T``.
"""

from __future__ import annotations

from typing import Final

import regex

from logtriage.formats.envelope import Format, Peeled

__all__ = ["DMESG", "WRAPPED"]

_LEVEL: Final = r"(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)"
_DAY: Final = r"\d{4}-\d\d-\d\d"
_CLOCK: Final = r"\d\d:\d\d:\d\d"
_ISO: Final = rf"{_DAY}T{_CLOCK} (?:\.\d+)? (?:Z|[+-]\d\d:?\d\d)"
_WRAPPED: Final = regex.compile(
    rf"""
      (?P<time> {_DAY} [ ] {_CLOCK} [,.] \d{{3}} ) [ ]-[ ] [\w.<>-]+ [ ]-[ ] {_LEVEL} [ ]- (?:[ ]|$) (?P<rest> .*)
    | (?P<time> {_DAY} [ ] {_CLOCK} (?:[,.]\d+)? ) [ ]\|[ ] {_LEVEL} \s* \|[ ] [\w.:<>-]+ [ ]\| (?:[ ]|$) (?P<rest> .*)
    | (?P<time> {_DAY} [ ] {_CLOCK} ,\d{{3}} ) [ ] [\w.]+ [ ] \d+ [ ] {_LEVEL} \s+ (?P<rest> .*)
    | \[ (?P<time> {_ISO} ) \] (?: [ ] [\w.-]{{1,80}} [ ]>> )? (?:[ ]|$) (?P<rest> .*)
    | (?P<time> \d\d-\d\d [ ] {_CLOCK} \.\d{{3}} ) (?:[ ]|$) (?P<rest> .*)
    | \t? (?P<time> {_DAY} [ ] {_CLOCK} \.\d{{3}} ) \t (?P<rest> .*)
    """,
    regex.VERBOSE | regex.DOTALL,
)
_RING: Final = (
    rf"\[ [ ]* \d{{1,9}}\.\d{{6}} \] | \[ [A-Z][a-z]{{2}} [ ] [A-Z][a-z]{{2}} [ ]+ \d+ [ ] {_CLOCK} [ ] \d{{4}} \]"
)
_DMESG: Final = regex.compile(
    rf"""
      (?P<time> {_RING} ) [ ]+ (?P<rest> .* )
    | (?: (?P<time> {_CLOCK} (?:\.\d+)? ) [ ]+ )? (?:kernel:[ ]+)? (?P<rest> NVRM:[ ] .* )
    | kernel: [ ] (?P<rest> .* )
    """,
    regex.VERBOSE | regex.DOTALL,
)


def _peel_wrapped(text: str) -> Peeled | None:
    match = _WRAPPED.match(text)
    return Peeled(match["rest"] or "", {"time": match["time"]}) if match else None


def _peel_dmesg(text: str) -> Peeled | None:
    match = _DMESG.match(text)
    if match is None:
        return None
    time = match["time"]
    return Peeled(match["rest"], {"time": time.strip("[] ") if time else None, "ident": "kernel"})


WRAPPED: Final = Format(
    "logger",
    _peel_wrapped,
    samples=(
        ("2026-03-10 02:49:37,693 - __main__ - INFO - hello", "hello"),
        ("2026-07-04 19:15:18 | ERROR | stderr | hello", "hello"),
        ("2026-05-22 03:30:42,994 xinference.core.worker 155 ERROR    hello", "hello"),
        ("[2026-12-17T22:47:43+08:00] job-7 >> hello", "hello"),
        ("[2026-11-08T05:25:38.702Z]   File", "  File"),
        ("04-20 13:32:25.784  File", " File"),
        ("\t2026-12-04 22:23:18.855\t", ""),
    ),
)
DMESG: Final = Format(
    "dmesg",
    _peel_dmesg,
    samples=(
        ("[  123.456789] NVRM: x", "NVRM: x"),
        ("[Wed Jun 24 15:44:42 2026] NVRM: x", "NVRM: x"),
        ("19:14:43  NVRM: Xid", "NVRM: Xid"),
        ("kernel: NVRM: x", "NVRM: x"),
        ("kernel: python3[7]: segfault", "python3[7]: segfault"),
    ),
)
