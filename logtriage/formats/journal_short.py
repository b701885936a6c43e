"""Lines of ``journalctl -o short…`` and of syslog files in, message and sender out.

Source: systemd 247-257, ``output_short`` in ``src/shared/logs-show.c``: a time in one of six forms, the
host unless ``--no-hostname``, the syslog identifier (or the unit with ``with-unit``), ``[pid]``, a colon.
Further lines of a message are indented by the width of all that.  RFC 3164 files look like ``short``.
"""

from __future__ import annotations

from typing import Final

import regex

from logtriage.formats.envelope import Format, Peeled

__all__ = ["JOURNAL_SHORT"]

_LINE: Final = regex.compile(
    r"""
    (?P<time>
        [A-Z][a-z]{2} [ ][ \d]\d [ ] \d\d:\d\d:\d\d (?:\.\d{6})?                              # short, short-precise
      | \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d (?:[.,]\d{6})? (?:Z|[+-]\d\d:?\d\d)                     # short-iso, -precise
      | [A-Z][a-z]{2} [ ] \d{4}-\d\d-\d\d [ ] \d\d:\d\d:\d\d (?:\.\d{6})? [ ] [A-Z0-9+:-]{1,9} # short-full, with-unit
      | \d{9,11}\.\d{6}                                                                        # short-unix
      | \[ [ ]* \d+\.\d{6} \]                                                                  # short-monotonic
    )
    (?: [ ] (?P<host> [\w.-]+ ) )??
    [ ] (?P<ident> [^\s\[\]:{}"']{1,64} | \( [^)]{1,32} \) )
    (?: \[ (?P<pid> \d+ ) \] )?
    : (?: [ ] (?P<rest> .* ) | $ )
    """,
    regex.VERBOSE | regex.DOTALL,
)
_BLOB: Final = regex.compile(r"\[\d+(?:\.\d+)?[KMG]?B? ?blob data\]$")
_UNIT_ENDINGS: Final = (".service", ".scope", ".socket", ".timer", ".mount", ".slice", ".target")


def _peel(text: str) -> Peeled | None:
    match = _LINE.match(text)
    if match is None or (text[0] == "[" and not (match["host"] or match["pid"])):
        return None  # without host and pid it is the kernel's own ring buffer
    rest = match["rest"] or ""
    ident = match["ident"]
    fields: dict[str, object] = {
        "time": match["time"],
        "host": match["host"],
        "ident": ident,
        "pid": int(match["pid"]) if match["pid"] else None,
    }
    if ident.endswith(_UNIT_ENDINGS):
        fields["unit"] = ident
        if ident == "init.scope":  # with-unit names the manager by its unit
            fields["ident"] = "systemd"
    if ident == "kernel":
        # A program may call itself so (``logger -t kernel``), but then it has a pid.
        fields |= {"transport": "kernel"} if match["pid"] is None else {"ident": f"kernel[{match['pid']}]"}
    width = match.start("rest") if match["rest"] is not None else len(text) + 1
    return Peeled(rest, fields, width=width, gap="blob" if _BLOB.match(rest) else "")


JOURNAL_SHORT: Final = Format(
    "journal-short",
    _peel,
    samples=(
        ("Mar 09 12:00:01 gpu01 python3[812]: hello", "hello"),
        ("Mar  9 12:00:01.123456 gpu01 systemd[1]: Started x.service.", "Started x.service."),
        ("2026-03-09T12:00:01+0000 gpu01 python3[812]:   two blanks", "  two blanks"),
        ("2026-03-09T12:00:01.000001+00:00 gpu01 kernel: NVRM: x", "NVRM: x"),
        ("Mon 2026-03-09 12:00:01 UTC gpu01 sglang.service[812]: text: more", "text: more"),
        ("1773057601.000001 gpu01 (ash)[1201]: x", "x"),
        ("[    1.000001] gpu01 systemd[1]: x", "x"),
        ("Mar 09 12:00:01 python3[812]: no host", "no host"),
        ("Mar 09 12:00:01 gpu01 python3[812]:", ""),
    ),
)
