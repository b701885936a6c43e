"""Inputs by their first bytes: plain, compressed, torn, foreign, and standard input."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from logtriage.errors import SourceError
from logtriage.sources import BLOCK, STDIN, open_source

TEXT = b"".join(b"line %d of a log that is longer than one block\n" % number for number in range(20_000))


def content(name: Path | str) -> bytes:
    pieces = list(open_source(str(name)))
    assert all(isinstance(piece, bytes) and 0 < len(piece) <= BLOCK for piece in pieces)
    return b"".join(piece for piece in pieces if isinstance(piece, bytes))


def drain(path: Path, into: list[bytes]) -> None:
    for piece in open_source(str(path)):
        assert isinstance(piece, bytes)
        into.append(piece)


class Stdin:
    """Standard input that holds some bytes."""

    def __init__(self, held: bytes) -> None:
        self.buffer = io.BufferedReader(io.BytesIO(held))


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
}


@pytest.mark.parametrize("compress", COMPRESS.values(), ids=COMPRESS)
def test_compression_is_known_by_its_first_bytes(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "server.log.3"  # rotated logs often lose their ending
    path.write_bytes(compress(TEXT))
    assert content(path) == TEXT


@pytest.mark.parametrize("compress", COMPRESS.values(), ids=COMPRESS)
def test_standard_input_may_be_compressed_too(
    compress: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Stdin(compress(TEXT)))
    assert content(STDIN) == TEXT


@pytest.mark.parametrize("text", [b"", b"\n", b"BZ", b"\x1f", b"abcdefg", b"abcdefgh", b"LPKSHHR"])
def test_short_inputs_are_read_whole(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "short.log"
    path.write_bytes(text)
    assert content(path) == text


def test_members_of_a_rotated_gzip_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "joined.gz"
    path.write_bytes(gzip.compress(b"first\n") + gzip.compress(b"second\n"))
    assert content(path) == b"first\nsecond\n"


def test_what_came_before_the_damage_is_handed_on(tmp_path: Path) -> None:
    noise = random.Random(7).randbytes(3 * BLOCK)  # does not shrink, so half the file is half the text
    whole = gzip.compress(noise)
    path = tmp_path / "torn.gz"
    path.write_bytes(whole[: len(whole) // 2])
    pieces: list[bytes] = []
    with pytest.raises(SourceError, match=f"cannot read {path}: "):
        drain(path, pieces)
    read = b"".join(pieces)
    assert noise.startswith(read)
    assert len(read) > BLOCK


@pytest.mark.parametrize(
    ("magic", "advice"),
    [
        (b"\x28\xb5\x2f\xfd", "it is zstd; use `zstdcat FILE | python -m logtriage`"),
        (b"\x04\x22\x4d\x18", "it is lz4; use `lz4cat FILE | python -m logtriage`"),
        (b"PK\x03\x04", "it is zip; use `unzip -p FILE | python -m logtriage`"),
    ],
)
def test_a_foreign_compression_names_the_way_round(magic: bytes, advice: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(magic + bytes(20))
    with pytest.raises(SourceError) as caught:
        content(path)
    assert str(caught.value) == f"cannot read {path}: {advice}"


@pytest.mark.parametrize("magic", [b"\x1f\x8b\x08\x00", b"\xfd7zXZ\x00", b"BZh"])
def test_damaged_compression_is_an_error_with_a_name(magic: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(magic + b" only the magic number is right")
    with pytest.raises(SourceError, match=f"cannot read {path}: "):
        content(path)


def test_a_missing_file_and_a_folder_say_why(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as missing:
        content(tmp_path / "gone.log")
    assert str(missing.value) == f"cannot read {tmp_path}/gone.log: No such file or directory"
    with pytest.raises(SourceError) as folder:
        content(tmp_path)
    assert str(folder.value) == f"cannot read {tmp_path}: Is a directory"


def test_a_pipe_that_gives_a_byte_at_a_time_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    compressed = gzip.compress(b"slow but whole\n")

    def write() -> None:
        with path.open("wb", buffering=0) as stream:
            for byte in compressed:
                stream.write(bytes([byte]))

    writer = threading.Thread(target=write)
    writer.start()
    assert content(path) == b"slow but whole\n"
    writer.join()
