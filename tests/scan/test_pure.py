"""The scanner: which lines come out depends on the lines alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logtriage.scan import AFTER, ANCHORS, BEFORE, MARKS, RawLine, Scanner
from logtriage.scan.pure import MAX_LINE


def scanned(data: bytes, *cuts: int) -> list[RawLine]:
    """Feed *data* cut at *cuts*."""
    scanner = Scanner()
    out: list[RawLine] = []
    for start, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        out += scanner.feed(data[start:end])
    out += scanner.close()
    return out


def wanted(lines: list[bytes]) -> list[RawLine]:
    """What the law in the module's docstring says, one line at a time."""
    hot = [any(anchor in line for anchor in ANCHORS) for line in lines]
    near = [any(hot[max(0, i - AFTER) : i + BEFORE + 1]) for i in range(len(lines))]
    out = []
    marked = False
    for index, line in enumerate(lines):
        marked = marked and not near[index]
        mark = not near[index] and not marked and any(mark in line for mark in MARKS)
        marked = marked or mark
        if near[index] or mark:
            out.append((index + 1, line))
    return out


LINE = st.one_of(
    st.sampled_from([b"quiet", b"", b"Decode batch 1", b"ValueError: x", b"NVRM: Xid", b"x" * 50]),
    st.binary(max_size=6).map(lambda raw: raw.replace(b"\n", b"")),
)
STRETCH = st.one_of(
    st.lists(LINE, max_size=5), st.integers(1, 140).map(lambda n: [b"Prefill batch %d" % i for i in range(n)])
)


@given(st.lists(STRETCH, max_size=8), st.data())
def test_lines_are_those_of_the_law_however_the_chunks_are_cut(
    stretches: list[list[bytes]], data: st.DataObject
) -> None:
    lines = [line for stretch in stretches for line in stretch]
    raw = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    assert scanned(raw, *cuts) == wanted(lines)


def test_the_last_line_needs_no_line_break() -> None:
    scanner = Scanner()
    assert list(scanner.feed(b"a\nKeyError: 'x'")) == []
    assert list(scanner.close()) == [(1, b"a"), (2, b"KeyError: 'x'")]
    assert (scanner.lines, scanner.bytes) == (2, 15)


def test_an_overlong_line_keeps_head_and_tail_and_is_counted_alike_in_one_piece_or_many() -> None:
    line = b"Error " + b"x" * (3 * MAX_LINE) + b" the end"
    raw = b"before\n" + line + b"\nafter\n"
    whole = Scanner()
    out = [*whole.feed(raw), *whole.close()]
    pieces = Scanner()
    out_of_pieces = [item for at in range(0, len(raw), 70_001) for item in pieces.feed(raw[at : at + 70_001])]
    out_of_pieces += pieces.close()
    assert out == out_of_pieces
    assert whole.cut_lines == pieces.cut_lines == [2]
    number, kept = out[1]
    assert number == 2
    assert len(kept) < MAX_LINE + 100
    assert kept.startswith(b"Error x")
    assert kept.endswith(b" the end")


def test_memory_is_bounded_by_a_line_that_never_ends() -> None:
    scanner = Scanner()
    for _ in range(40):
        assert list(scanner.feed(b"y" * MAX_LINE)) == []
        assert sum(len(part) for part in (scanner._tail, scanner._overlong or b"")) < 3 * MAX_LINE
    assert len(scanner.close()) == 0  # no anchor in it
    assert scanner.lines == 1
