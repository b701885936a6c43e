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

_WANTED: Final = frozenset({
    *_FURTHER, "MESSAGE", "MESSAGE_ID", "_PID", "SYSLOG_PID", "SYSLOG_IDENTIFIER", "_HOSTNAME", "_TRANSPORT",
    "_BOOT_ID", "_SYSTEMD_INVOCATION_ID",
})  # fmt: skip

_MISSING: Final = """\
cannot read {shown}: it is a binary journal, and the Python package systemd-python is not installed.
  Install it:      pip install 'logtriage[journal]'
                   (it is built from source; on Debian and Ubuntu that needs
                   apt install libsystemd-dev pkg-config gcc python3-dev)
  Or do without:   journalctl --file {file} -o export | python -m logtriage"""


class _Reader(Protocol):
    """The part of systemd-python's low-level reader that is used here."""

    def _next(self, skip: int = ...) -> bool: ...

    def _get_all(self) -> dict[str, bytes | list[bytes]]: ...

    def _get_realtime(self) -> int: ...

    def close(self) -> None: ...


def read_journal(path: Path, *, first_entry: int = 1, shown: str | None = None) -> Iterator[Record]:
    """Read every entry of a journal file, in its order.

    Args:
        path: The file.
        first_entry: Number of the first entry; a journal has no lines, so entries are counted.
        shown: What messages call it, if *path* is only a copy.

    Yields:
        One record for each entry that holds a message.

    Raises:
        SourceError: systemd-python is missing, or the file is no journal.
    """
    reader = _open(path, shown)
    entry = first_entry
    try:
        while reader._next():
            yield _record(reader, entry)
            entry += 1
    except OSError as error:
        raise SourceError(
            f"cannot read {shown or path} beyond entry {entry}: {error.strerror or error}"
        ) from error
    finally:
        reader.close()


def _open(path: Path, shown: str | None) -> _Reader:
    try:
        module = import_module("systemd._reader")
    except ImportError as error:
        raise SourceError(_MISSING.format(shown=shown or path, file="FILE" if shown else path)) from error
    try:
        return cast(_Reader, module._Reader(0, None, [str(path)]))
    except OSError as error:
        raise SourceError(f"cannot read {shown or path}: {error.strerror or error}") from error


def _record(reader: _Reader, entry: int) -> Record:
    # One call for all fields: asking for thirty one by one is five times slower.
    given = {name: _text(value) for name, value in reader._get_all().items() if name in _WANTED}
    pid = given.get("_PID") or given.get("SYSLOG_PID", "")
    return Record(
        text=given.get("MESSAGE", ""),
        line=entry,
        time=_time(reader),
        host=given.get("_HOSTNAME"),
        unit=_unit(given),
        invocation_id=given.get("INVOCATION_ID") or given.get("_SYSTEMD_INVOCATION_ID"),
        boot_id=given.get("_BOOT_ID"),
        pid=int(pid) if pid.isdecimal() and len(pid) < 20 else None,
        ident=given.get("SYSLOG_IDENTIFIER") or given.get("CONTAINER_NAME"),
        transport=given.get("_TRANSPORT", ""),
        message_id=given.get("MESSAGE_ID", ""),
        fields=tuple((name, given[name]) for name in _FURTHER if name in given),
    )


def _text(value: bytes | list[bytes]) -> str:
    """The text of a field, of its first value if it has several.

    Bytes that are no UTF-8 become U+FFFD, as in every other input.
    """
    first = value[0] if isinstance(value, list) else value
    return first.decode("utf-8", "replace")


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
