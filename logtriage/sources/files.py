"""A path or ``-`` goes in; blocks of its decompressed bytes, or the records of a binary journal, come out.

What a file is, its first bytes say, not its name: rotated logs are called ``server.log.3``.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, cast

from logtriage.errors import SourceError
from logtriage.model import Record

__all__ = ["BLOCK", "STDIN", "open_source"]

BLOCK: Final = 128 * 1024
STDIN: Final = "-"

_JOURNAL: Final = b"LPKSHHRH"
_PEEK: Final = 8
_OPENERS: Final[tuple[tuple[bytes, Callable[[BinaryIO], BinaryIO]], ...]] = (
    (b"\x1f\x8b", lambda stream: cast(BinaryIO, gzip.GzipFile(fileobj=stream))),
    (b"\xfd7zXZ\x00", lambda stream: cast(BinaryIO, lzma.LZMAFile(stream))),  # noqa: SIM115  read to its end
    (b"BZh", lambda stream: cast(BinaryIO, bz2.BZ2File(stream))),
)
# Known, but not readable with the standard library of every Python we run on.
_FOREIGN: Final = (
    (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"),
    (b"\x04\x22\x4d\x18", "lz4", "lz4cat"),
    (b"PK\x03\x04", "zip", "unzip -p"),
)


def open_source(name: str, *, first_entry: int = 1) -> Iterator[bytes | Record]:
    """Read one input.

    Args:
        name: A path, or ``-`` for standard input.
        first_entry: Number of the first record, if it is a binary journal.

    Yields:
        Blocks of bytes of at most :data:`BLOCK`, or the records of a binary journal.

    Raises:
        SourceError: It cannot be opened, or not read to its end.  What came before was yielded.
    """
    try:
        if name == STDIN:
            if sys.stdin is None:  # closed by whoever started us
                raise SourceError("cannot read standard input: it is closed")
            yield from _read(sys.stdin.buffer, name, first_entry)
        else:
            with Path(name).open("rb") as stream:
                yield from _read(stream, name, first_entry)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise SourceError(f"cannot read {_shown(name)}: {_reason(error)}") from error


def _shown(name: str) -> str:
    return "standard input" if name == STDIN else name


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _read(stream: BinaryIO, name: str, first_entry: int) -> Iterator[bytes | Record]:
    head = _fill(stream, _PEEK)
    for magic, program, command in _FOREIGN:
        if head.startswith(magic):
            way_round = f"use `{command} FILE | python -m logtriage`"
            raise SourceError(f"cannot read {_shown(name)}: it is {program}; {way_round}")
    packed = next((opener for magic, opener in _OPENERS if head.startswith(magic)), None)
    if packed:
        stream = packed(cast(BinaryIO, _Joined(head, stream)))
        head = _fill(stream, _PEEK)
    if not head.startswith(_JOURNAL):
        yield from _blocks(head, stream)
    elif packed or name == STDIN or not Path(name).is_file():
        yield from _copied_journal(head, stream, _shown(name), first_entry)
    else:
        from logtriage.sources.journald import read_journal

        yield from read_journal(Path(name), first_entry=first_entry)


def _blocks(head: bytes, stream: BinaryIO) -> Iterator[bytes]:
    # read1 hands on what a pipe holds now, where read would wait for a whole block.
    read = getattr(stream, "read1", stream.read)
    if head:
        yield head
    while block := read(BLOCK):
        yield block


def _fill(stream: BinaryIO, size: int) -> bytes:
    """The first *size* bytes, fewer only at the end: a pipe may hand them out one by one."""
    head = b""
    while len(head) < size and (more := stream.read(size - len(head))):
        head += more
    return head


def _copied_journal(head: bytes, stream: BinaryIO, shown: str, first_entry: int) -> Iterator[Record]:
    """Read a journal that comes through a pipe: libsystemd maps a file into memory, so make it one."""
    from logtriage.sources.journald import read_journal

    with tempfile.NamedTemporaryFile(prefix="logtriage-", suffix=".journal") as copy:
        copy.write(head)
        while block := stream.read(BLOCK):
            copy.write(block)
        copy.flush()
        yield from read_journal(Path(copy.name), first_entry=first_entry, shown=shown)


class _Joined:
    """A stream whose first bytes were already taken; a pipe cannot seek back to them."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def read(self, size: int = -1) -> bytes:
        """Read up to *size* bytes."""
        if not self._head:
            return self._rest.read(size)
        if size < 0:
            taken, self._head = self._head, b""
            return taken + self._rest.read()
        taken, self._head = self._head[:size], self._head[size:]
        return taken

    def seekable(self) -> bool:
        """Whether one can go back; never."""
        return False

    def readable(self) -> bool:
        """Whether one can read; always."""
        return True

    def close(self) -> None:
        """Leave the underlying stream to whoever opened it."""
