"""Records from lines: nesting, continuation, gaps."""

from __future__ import annotations

import json

from logtriage.formats import FORMATS, JournalExport, Unwrapper
from logtriage.model import Record
from logtriage.redaction import clean


def records(*lines: str) -> list[Record]:
    unwrapper = Unwrapper(FORMATS, clean)
    return [*unwrapper.feed((i + 1, line.encode()) for i, line in enumerate(lines)), *unwrapper.close()]


def test_envelopes_nest_and_the_outer_one_is_believed() -> None:
    (record,) = records("Mar 09 12:00:01 gpu01 dockerd[900]: sglang-1  | [2026-03-09 12:00:01 TP0] hello")
    assert (record.text, record.host, record.ident, record.pid) == (
        "[2026-03-09 12:00:01 TP0] hello",
        "gpu01",
        "dockerd",
        900,
    )


def test_text_of_a_service_cannot_pose_as_the_kernel() -> None:
    (record,) = records("Mar 09 12:00:01 gpu01 python3[812]: kernel: NVRM: Xid (PCI:0000:01:00): 79, pid=1")
    assert (record.ident, record.transport) == ("python3", "")


def test_indented_lines_go_on_with_the_message_before() -> None:
    lines = records(
        "Mar 09 12:00:01 gpu01 python3[812]: first",
        " " * 36 + "  second",
        "Mar 09 12:00:02 gpu01 python3[812]: third",
    )
    assert [(r.text, r.pid, r.continued, r.line) for r in lines] == [
        ("first", 812, False, 1),
        ("  second", 812, True, 2),
        ("third", 812, False, 3),
    ]


def test_a_json_message_of_bytes_and_several_lines_is_read() -> None:
    entry = {"__CURSOR": "s=1", "_PID": "7", "MESSAGE": list(b"a\xff\nb")}
    assert [(r.text, r.pid) for r in records(json.dumps(entry))] == [("a\ufffd", 7), ("b", 7)]


def test_a_message_that_journalctl_left_out_is_a_gap_that_tells_the_way_round() -> None:
    unwrapper = Unwrapper(FORMATS, clean)
    line = json.dumps({"__CURSOR": "s=1", "_PID": "7", "MESSAGE": None}).encode()
    unwrapper.feed([(4, line), (9, line)])
    (gap,) = unwrapper.gaps
    assert (gap.kind, gap.count, gap.span.first, gap.span.last) == ("null-message", 2, 4, 9)
    assert "--all" in gap.note


def test_a_cri_message_in_parts_is_joined() -> None:
    lines = records(
        "2026-03-09T12:00:01.000000001Z stderr P one ", "2026-03-09T12:00:01.000000002Z stderr F two"
    )
    assert [(r.text, r.line) for r in lines] == [("one two", 1)]


def test_a_progress_bar_gives_way_to_the_text_behind_it() -> None:
    assert [r.text for r in records("10%|#\r 20%|##\r[2026-03-09 12:00:01] hello\r")] == [
        "10%|#",
        " 20%|##",
        "[2026-03-09 12:00:01] hello",
    ]


EXPORT = (
    b"__CURSOR=s=1\n__REALTIME_TIMESTAMP=1773057601000001\n_PID=7\nMESSAGE\n"
    + (12).to_bytes(8, "little")
    + b"line\nanother\n\n"
)
EXPORT += b"__CURSOR=s=2\n_PID=8\nMESSAGE=plain\n\n"


def test_an_export_reads_alike_however_it_is_cut() -> None:
    for size in (1, 2, 3, 7, 50, len(EXPORT)):
        reader = JournalExport()
        out = [r for at in range(0, len(EXPORT), size) for r in reader.feed(EXPORT[at : at + size])]
        out += reader.close()
        assert [(r.text, r.pid) for r in out] == [("line\nanother", 7), ("plain", 8)]
        assert out[0].time == "2026-03-09T12:00:01.000001Z"
        assert reader.gaps == []


def test_a_torn_export_says_so() -> None:
    reader = JournalExport()
    out = [*reader.feed(EXPORT[:-4]), *reader.close()]
    assert [r.pid for r in out] == [7, 8]
    assert out[1].text == "pla"
    assert [gap.kind for gap in reader.gaps] == ["truncated-line"]
