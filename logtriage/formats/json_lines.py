"""JSON objects, one a line, in; message and sender out: ``journalctl -o json`` and docker's json-file.

Source: systemd 247-257, ``output_json`` in ``src/shared/logs-show.c``: every value is a string; one that is
not printable is an array of bytes; one of 4096 bytes and more with its name is null unless ``--all``.
Docker: ``jsonfilelog`` writes ``log``, ``stream`` and ``time``; ``log`` lacks its line break if it goes on.
"""

from __future__ import annotations

import datetime
import json
from typing import Final

from logtriage.formats.envelope import Format, Peeled

__all__ = ["DOCKER_JSON", "JOURNAL_JSON", "journal_fields"]

_KEPT: Final = (
    "UNIT", "USER_UNIT", "EXIT_CODE", "EXIT_STATUS", "N_RESTARTS", "UNIT_RESULT", "JOB_RESULT", "JOB_TYPE", "CODE_FUNC",
    "COREDUMP_SIGNAL_NAME", "COREDUMP_PID", "COREDUMP_COMM", "N_DROPPED", "PRIORITY", "_LINE_BREAK",
)  # fmt: skip
"""Fields that parsers of events ask for besides those with an attribute of their own."""


_UNITS: Final = ("UNIT", "OBJECT_SYSTEMD_UNIT", "_SYSTEMD_UNIT", "USER_UNIT", "_SYSTEMD_USER_UNIT")
# What any process may write into its own entries; of systemd alone it is to be believed.
_CLAIMS: Final = frozenset({"UNIT", "USER_UNIT", "INVOCATION_ID", "USER_INVOCATION_ID", "MESSAGE_ID"})
_MANAGER: Final = ("systemd", "(")  # a child of systemd that is not yet the service is called (python3)


def journal_fields(entry: dict[str, object]) -> dict[str, object]:
    """What a journal entry says of its message, as attributes of a record.

    Args:
        entry: The fields of the entry, values as text; others are ignored.

    Returns:
        Attributes of :class:`logtriage.model.Record`, without ``text`` and ``line``.
    """
    believed = _is_manager(entry)

    def said(name: str) -> str | None:
        value = entry.get(name) if believed or name not in _CLAIMS else None
        return value if isinstance(value, str) and value else None

    pid = said("_PID") or said("SYSLOG_PID")
    return {
        "time": _iso(said("_SOURCE_REALTIME_TIMESTAMP") or said("__REALTIME_TIMESTAMP")),
        "host": said("_HOSTNAME"),
        # what systemd writes about a unit comes from its own init.scope
        "unit": next((unit for name in _UNITS if (unit := said(name))), None),
        # systemd's own lines are of its own invocation, but about that of the unit
        "invocation_id": said("INVOCATION_ID") or said("USER_INVOCATION_ID") or said("_SYSTEMD_INVOCATION_ID"),
        "boot_id": said("_BOOT_ID"),
        "pid": int(pid) if pid and pid.isdecimal() and len(pid) < 12 else None,
        "ident": _ident(entry, believed) or said("CONTAINER_NAME") or said("_COMM"),
        "transport": said("_TRANSPORT") or "",
        "message_id": said("MESSAGE_ID") or "",
        "fields": tuple((name, value) for name in _KEPT if (value := said(name)) is not None),
    }


def _is_manager(entry: dict[str, object]) -> bool:
    """Whether systemd may have written the entry: what journald itself says of the sender does not rule it out."""
    command = entry.get("_COMM")
    return not isinstance(command, str) or command.startswith(_MANAGER) or entry.get("_PID") == "1"


def _ident(entry: dict[str, object], believed: bool) -> str | None:
    """The name that the sender gave itself, unless it is a name that journald's own fields show not to be its."""
    ident = entry.get("SYSLOG_IDENTIFIER")
    if not isinstance(ident, str) or not ident:
        return None
    posing = ident == "kernel" and entry.get("_TRANSPORT", "kernel") != "kernel"
    posing = posing or (ident.startswith("systemd") and not believed)
    posing = posing or (ident == "earlyoom" and entry.get("_COMM", ident) != ident)
    return f"{entry.get('_COMM', '')} as {ident}" if posing else ident


def _iso(micros: str | None) -> str | None:
    """Microseconds since 1970 as ISO 8601 in UTC."""
    if micros is None or not micros.isdecimal() or len(micros) > 17:
        return None
    moment = datetime.datetime.fromtimestamp(int(micros) // 1_000_000, datetime.timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{int(micros) % 1_000_000:06d}Z"


def _object(text: str) -> dict[str, object] | None:
    if not text.startswith("{") or not text.rstrip().endswith("}"):
        return None
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _peel_journal(text: str) -> Peeled | None:
    entry = _object(text)
    if entry is None or not ("__REALTIME_TIMESTAMP" in entry or "__CURSOR" in entry):
        return None
    message = entry.get("MESSAGE", "")
    gap = ""
    if isinstance(message, list) and message and isinstance(message[0], list):
        message = message[0]  # the field was given more than once
    if isinstance(message, list):
        message = bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256).decode(
            "utf-8", "replace"
        )
    if message is None:
        message, gap = "", "null-message"
    return Peeled(str(message), journal_fields(entry), gap=gap)


def _peel_docker(text: str) -> Peeled | None:
    entry = _object(text)
    if entry is None or not isinstance(entry.get("log"), str) or "stream" not in entry:
        return None
    log = str(entry["log"])
    time = entry.get("time")
    fields = {"time": time if isinstance(time, str) else None}
    return Peeled(log.rstrip("\r\n"), fields, partial=not log.endswith("\n"))


JOURNAL_JSON: Final = Format(
    "journal-json",
    _peel_journal,
    samples=(
        ('{"__REALTIME_TIMESTAMP":"1773057601000001","_PID":"7","MESSAGE":"hello"}', "hello"),
        ('{"MESSAGE":[27,91,49,109,120],"__CURSOR":"s=1"}', "\x1b[1mx"),
        ('{"MESSAGE":null,"__CURSOR":"s=1"}', ""),
    ),
)
DOCKER_JSON: Final = Format(
    "docker-json",
    _peel_docker,
    samples=(('{"log":"hello\\n","stream":"stderr","time":"2026-03-09T12:00:01.000000001Z"}', "hello"),),
)
