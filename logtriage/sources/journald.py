"""The path of a binary ``.journal`` goes in; one ``Record`` for each of its entries comes out.

systemd-python is imported late: it has no wheels and most runs read text.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol, cast

from logtriage.errors import SourceError
from logtriage.formats import journal_fields
from logtriage.model import Record

__all__ = ["read_journal"]

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
    given: dict[str, object] = {name: _text(value) for name, value in reader._get_all().items()}
    given["__REALTIME_TIMESTAMP"] = str(reader._get_realtime())
    return Record(str(given.get("MESSAGE", "")), entry, **journal_fields(given))  # type: ignore[arg-type]


def _text(value: bytes | list[bytes]) -> str:
    """The text of a field, of its first value if it has several.

    Bytes that are no UTF-8 become U+FFFD, as in every other input.
    """
    first = value[0] if isinstance(value, list) else value
    return first.decode("utf-8", "replace")
