"""Binary journals through a stand-in for systemd-python's low-level reader.

The stand-in answers as version 235 does: ``_get_all`` gives bytes, and a list of them for a field that the
entry has several times; ``_get_realtime`` gives microseconds; a file that is no journal raises ``OSError``.
"""

from __future__ import annotations

import errno
import gzip
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from logtriage.errors import SourceError
from logtriage.model import Record
from logtriage.sources import STDIN, open_source

MAGIC = b"LPKSHHRH"
BOOT = "0f" * 16
SERVER = {
    "MESSAGE": b"[2026-03-09 12:00:01 TP3] Scheduler hit an exception: Traceback\n  File x",
    "_PID": b"4242",
    "_HOSTNAME": b"node7",
    "_BOOT_ID": BOOT.encode(),
    "_SYSTEMD_UNIT": b"sglang.service",
    "_SYSTEMD_INVOCATION_ID": b"ab" * 16,
    "SYSLOG_IDENTIFIER": b"python3",
    "_TRANSPORT": b"stdout",
    "PRIORITY": b"6",
    "_LINE_BREAK": b"pid-change",
}
SYSTEMD = {
    "MESSAGE": b"sglang.service: Main process exited, code=killed, status=9/KILL",
    "_PID": b"1",
    "_SYSTEMD_UNIT": b"init.scope",
    "UNIT": b"sglang.service",
    "INVOCATION_ID": b"cd" * 16,
    "MESSAGE_ID": b"98e322203f7a4ed290d09fe03c09fe15",
    "EXIT_CODE": b"killed",
    "EXIT_STATUS": b"9",
}
NOISE: dict[str, bytes | list[bytes]] = {"MESSAGE": b"caf\xe9 \x1b[31mred", "SYSLOG_PID": [b"77", b"78"]}
EMPTY = {"_PID": b"odd"}
ENTRIES: tuple[Mapping[str, bytes | list[bytes]], ...] = (SERVER, SYSTEMD, NOISE, EMPTY)
START = 1_772_971_200_000_000  # 2026-03-08T12:00:00Z in microseconds


class Reader:
    """What ``systemd._reader._Reader`` does, over ENTRIES."""

    opened: Sequence[str] = ()
    contents: bytes = b""
    closed = 0
    fails_at: int | None = None

    def __init__(self, flags: int, path: str | None, files: Sequence[str]) -> None:
        assert (flags, path) == (0, None)
        Reader.opened = list(files)
        Reader.contents = Path(files[0]).read_bytes()
        if b"damaged" in Reader.contents:
            raise OSError(errno.EBADMSG, "Bad message")
        self._at = -1

    def _next(self) -> bool:
        self._at += 1
        if self._at == Reader.fails_at:
            raise OSError(errno.EBADMSG, "Bad message")
        return self._at < len(ENTRIES)

    def _get_all(self) -> dict[str, bytes | list[bytes]]:
        return {**ENTRIES[self._at], "_UNKNOWN": [b"a", b"b"]}

    def _get_realtime(self) -> int:
        return START + self._at

    def close(self) -> None:
        Reader.closed += 1


@pytest.fixture
def systemd(monkeypatch: pytest.MonkeyPatch) -> type[Reader]:
    module = ModuleType("systemd._reader")
    module._Reader = Reader  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "systemd", ModuleType("systemd"))
    monkeypatch.setitem(sys.modules, "systemd._reader", module)
    monkeypatch.setattr(Reader, "fails_at", None)
    monkeypatch.setattr(Reader, "closed", 0)
    return Reader


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "system.journal"
    path.write_bytes(MAGIC + bytes(200))
    return path


def records(name: Path | str) -> list[Record]:
    items = list(open_source(str(name)))
    found = [item for item in items if isinstance(item, Record)]
    assert len(found) == len(items)
    return found


def test_an_entry_of_the_server_becomes_a_record(systemd: type[Reader], journal: Path) -> None:
    record = records(journal)[0]
    assert record.text == "[2026-03-09 12:00:01 TP3] Scheduler hit an exception: Traceback\n  File x"
    assert (record.line, record.pid, record.host, record.ident) == (1, 4242, "node7", "python3")
    assert (record.unit, record.invocation_id, record.boot_id) == ("sglang.service", "ab" * 16, BOOT)
    assert (record.transport, record.message_id) == ("stdout", "")
    assert record.time == "2026-03-08T12:00:00.000000Z"
    assert ("_LINE_BREAK", "pid-change") in record.fields
    assert systemd.opened == [str(journal)]
    assert systemd.closed == 1


def test_what_systemd_says_about_a_unit_belongs_to_that_unit(systemd: type[Reader], journal: Path) -> None:
    record = records(journal)[1]
    assert (record.line, record.unit, record.invocation_id) == (2, "sglang.service", "cd" * 16)
    assert record.message_id == "98e322203f7a4ed290d09fe03c09fe15"
    assert {("EXIT_CODE", "killed"), ("EXIT_STATUS", "9")} <= set(record.fields)
    assert systemd.closed == 1


def test_bytes_that_are_no_text_and_absent_fields_are_no_error(systemd: type[Reader], journal: Path) -> None:
    noise, empty = records(journal)[2:]
    assert (noise.text, noise.pid, noise.ident, noise.unit) == ("caf\ufffd \x1b[31mred", 77, None, None)
    assert (empty.text, empty.pid, empty.line) == ("", None, 4)
    assert empty.time == "2026-03-08T12:00:00.000003Z"
    assert systemd.closed == 1


def test_a_journal_from_a_pipe_is_copied_to_a_file_first(
    systemd: type[Reader], journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stdin:
        buffer = io.BytesIO(journal.read_bytes())

    monkeypatch.setattr("sys.stdin", Stdin())
    assert len(records(STDIN)) == len(ENTRIES)
    assert systemd.contents == journal.read_bytes()
    assert not Path(systemd.opened[0]).exists()


def test_a_compressed_journal_is_unpacked_first(systemd: type[Reader], journal: Path, tmp_path: Path) -> None:
    packed = tmp_path / "system.journal.gz"
    packed.write_bytes(gzip.compress(journal.read_bytes()))
    assert len(records(packed)) == len(ENTRIES)
    assert systemd.contents == journal.read_bytes()


def test_entries_of_a_second_journal_go_on_counting(systemd: type[Reader], journal: Path) -> None:
    found = [item for item in open_source(str(journal), first_entry=5) if isinstance(item, Record)]
    assert [record.line for record in found] == [5, 6, 7, 8]
    assert systemd.closed == 1


def test_damage_in_the_middle_costs_only_the_rest(
    systemd: type[Reader], journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemd, "fails_at", 2)
    found: list[object] = []
    source = open_source(str(journal))
    found += [next(source), next(source)]
    with pytest.raises(SourceError, match="beyond entry 3: Bad message"):
        next(source)
    assert len(found) == 2
    assert systemd.closed == 1


def test_a_file_that_only_begins_like_a_journal_is_refused(systemd: type[Reader], journal: Path) -> None:
    journal.write_bytes(MAGIC + b"damaged")
    with pytest.raises(SourceError, match=f"cannot read {journal}: Bad message"):
        records(journal)
    assert systemd.closed == 0


def test_a_missing_systemd_python_names_what_to_install_and_the_way_round(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "systemd", None)
    monkeypatch.setitem(sys.modules, "systemd._reader", None)
    with pytest.raises(SourceError) as caught:
        records(journal)
    message = str(caught.value)
    assert message.startswith(f"cannot read {journal}: ")
    for part in (
        "logtriage[journal]",
        "libsystemd-dev pkg-config gcc python3-dev",
        f"journalctl --file {journal} -o export | python -m logtriage",
    ):
        assert part in message


def test_a_piped_journal_is_not_called_by_the_name_of_its_copy(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stdin:
        buffer = io.BytesIO(journal.read_bytes())

    monkeypatch.setattr("sys.stdin", Stdin())
    monkeypatch.setitem(sys.modules, "systemd._reader", None)
    with pytest.raises(SourceError) as caught:
        records(STDIN)
    assert str(caught.value).startswith("cannot read standard input: ")
    assert "journalctl --file FILE -o export" in str(caught.value)
