"""The path of a binary ``.journal`` goes in; one ``Record`` for each of its entries comes out.

systemd-python is imported late: it has no wheels and most runs read text.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol, cast

from logtriage.errors import SourceError
from logtriage.model import Record

__all__ = ["read_journal"]

# Fields an event parser may need besides those that have a place of their own in a record.
_FURTHER: Final = (
    "PRIORITY", "_COMM", "_EXE", "_CMDLINE", "_SYSTEMD_UNIT", "UNIT", "OBJECT_SYSTEMD_UNIT", "UNIT_RESULT",
    "EXIT_CODE", "EXIT_STATUS", "N_RESTARTS", "N_DROPPED", "COMMAND", "EXECUTABLE", "ERRNO", "JOB_TYPE",
    "JOB_RESULT", "CONTAINER_NAME", "CONTAINER_ID_FULL", "_LINE_BREAK", "_SYSTEMD_USER_UNIT", "USER_UNIT",
    "INVOCATION_ID", "OBJECT_PID", "COREDUMP_SIGNAL", "COREDUMP_PID", "COREDUMP_COMM",
)  # fmt: skip

_MISSING: Final = """\
cannot read {path}: it is a binary journal, and the Python package systemd-python is not installed.
  Install it:      pip install 'logtriage[journal]'
                   (it is built from source; on Debian and Ubuntu that needs
                   apt install libsystemd-dev pkg-config gcc python3-dev)
  Or do without:   journalctl --file {path} -o export | python -m logtriage"""


class _Reader(Protocol):
    """The part of systemd-python's low-level reader that is used here."""

    def _next(self, skip: int = ...) -> bool: ...

    def _get(self, field: str) -> bytes: ...

    def _get_realtime(self) -> int: ...

    def close(self) -> None: ...


def read_journal(path: Path, *, first_entry: int = 1) -> Iterator[Record]:
    """Read every entry of a journal file, in its order.

    Args:
        path: The file.
        first_entry: Number of the first entry; a journal has no lines, so entries are counted.

    Yields:
        One record for each entry that holds a message.

    Raises:
        SourceError: systemd-python is missing, or the file is no journal.
    """
    reader = _open(path)
    entry = first_entry
    try:
        while reader._next():
            yield _record(reader, entry)
            entry += 1
    except OSError as error:
        raise SourceError(f"cannot read {path} beyond entry {entry}: {error.strerror or error}") from error
    finally:
        reader.close()


def _open(path: Path) -> _Reader:
    try:
        module = import_module("systemd._reader")
    except ImportError as error:
        raise SourceError(_MISSING.format(path=path)) from error
    try:
        return cast(_Reader, module._Reader(0, None, [str(path)]))
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror or error}") from error


def _text(reader: _Reader, field: str) -> str:
    """A field of the current entry, ``""`` if the entry has none.

    Bytes that are no UTF-8 become U+FFFD, as in every other input.
    """
    try:
        value = reader._get(field)
    except KeyError:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _record(reader: _Reader, entry: int) -> Record:
    pid = _text(reader, "_PID") or _text(reader, "SYSLOG_PID")
    fields = tuple((name, value) for name in _FURTHER if (value := _text(reader, name)))
    given = dict(fields)
    return Record(
        text=_text(reader, "MESSAGE"),
        line=entry,
        time=_time(reader),
        host=_text(reader, "_HOSTNAME") or None,
        unit=_unit(given),
        invocation_id=given.get("INVOCATION_ID") or _text(reader, "_SYSTEMD_INVOCATION_ID") or None,
        boot_id=_text(reader, "_BOOT_ID") or None,
        pid=int(pid) if pid.isdigit() else None,
        ident=_text(reader, "SYSLOG_IDENTIFIER") or given.get("CONTAINER_NAME") or None,
        transport=_text(reader, "_TRANSPORT"),
        message_id=_text(reader, "MESSAGE_ID"),
        fields=fields,
        continued=False,
    )


def _unit(given: dict[str, str]) -> str | None:
    """The unit the text is *about*: systemd writes about others, under its own ``init.scope``."""
    for name in ("UNIT", "OBJECT_SYSTEMD_UNIT", "_SYSTEMD_UNIT", "USER_UNIT", "_SYSTEMD_USER_UNIT"):
        if given.get(name):
            return given[name]
    return None


def _time(reader: _Reader) -> str:
    seconds, microseconds = divmod(reader._get_realtime(), 1_000_000)
    moment = datetime.fromtimestamp(seconds, tz=timezone.utc).replace(microsecond=microseconds)
    return moment.isoformat(timespec="microseconds")
