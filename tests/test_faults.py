"""One fault has one fingerprint, wherever and whenever it strikes; different faults have different ones."""

from __future__ import annotations

import string
from typing import Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logtriage.faults import fingerprint, same_fault, skeleton
from logtriage.model import Event, ExceptionLink, Process, Rank
from tests.telling import (
    dumped,
    exited,
    frames,
    kernel,
    logged,
    native,
    raised,
    rank,
    stuck,
    systemd,
    waited,
    xid,
)

OUT_OF_MEMORY: Final = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {size:.2f} GiB. GPU {gpu} has a total"
)
NUMBERS: Final = st.integers(0, 99_999)
WORDS: Final = st.text(string.ascii_lowercase, min_size=1, max_size=8)
PATHS: Final = st.lists(WORDS, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
ADDRESSES: Final = st.tuples(*[st.integers(0, 255)] * 4).map(lambda parts: ".".join(map(str, parts)))


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.floats(0, 999))
def test_ranks_pids_lines_and_sizes_do_not_count(
    first: int, second: int, pid: int, line: int, size: float
) -> None:
    one = raised(1, OUT_OF_MEMORY.format(size=3.5, gpu=0), rank(first, 1))
    other = raised(line + 1, OUT_OF_MEMORY.format(size=size, gpu=second % 16), rank(second, pid))
    assert fingerprint(one) == fingerprint(other)
    assert same_fault(one, other)


@given(PATHS, PATHS)
def test_where_files_lie_does_not_count(one: str, other: str) -> None:
    def missing(prefix: str) -> Event:
        said = f"FileNotFoundError: [Errno 2] No such file or directory: '{prefix}/models/config.json'"
        stack = tuple(
            attrs.evolve(frame, filename=prefix + frame.filename) for frame in frames("sglang/srt/a.py:load")
        )
        return raised(1, said, 0, stack=stack)

    assert fingerprint(missing(one)) == fingerprint(missing(other))


@given(ADDRESSES, ADDRESSES, st.integers(1024, 65535), st.integers(1024, 65535))
def test_addresses_and_ports_do_not_count(one: str, other: str, port: int, other_port: int) -> None:
    said = "[Errno 98] error while attempting to bind on address ('{}', {}): address already in use"
    assert skeleton(said.format(one, port)) == skeleton(said.format(other, other_port))
    assert skeleton(f"cannot reach tcp://{one}:{port}") == skeleton(
        f"cannot reach tcp://{other}:{other_port}"
    )


@given(
    st.from_regex(r"[a-z]{2,8}-[a-z0-9]{1,6}", fullmatch=True),
    st.from_regex(r"[a-z]{2,8}[0-9]{1,4}", fullmatch=True),
)
def test_hosts_do_not_count(one: str, other: str) -> None:
    def death(host: str) -> Event:
        victim = Process("worker", "rank3", Rank(world=3), host=host)
        return exited(1, victim, 1, f"srun: error: {host}: task 3: Exited with exit code 1")

    assert fingerprint(death(one)) == fingerprint(death(other))
    assert skeleton(f"connect to {one}:20000 failed") == skeleton(f"connect to {other}:30001 failed")


@given(
    st.permutations(["triton", "trtllm_mha", "fa4", "flashinfer"]), st.sampled_from(["{{'{}'}}", "{{{}}}"])
)
def test_the_order_of_a_set_does_not_count(names: list[str], form: str) -> None:
    said = "AssertionError: Only {} backends are supported on this GPU. Got prefill=fa3."
    asked = [
        said.format(form.format("', '".join(order) if "'" in form else ", ".join(order)))
        for order in (names, sorted(names))
    ]
    assert fingerprint(raised(1, asked[0], 0)) == fingerprint(raised(1, asked[1], 5))


@given(st.datetimes().map(str), WORDS)
def test_times_units_and_the_text_before_the_traceback_do_not_count(time: str, unit: str) -> None:
    plain = raised(1, "ValueError: x", 0)
    carried = raised(
        900, "ValueError: x", 0, header="Scheduler hit an exception", time=time, unit=f"{unit}.service"
    )
    assert fingerprint(plain) == fingerprint(carried)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (raised(1, "ValueError: a", 0), raised(1, "ValueError: b", 0)),
        (raised(1, "ValueError: a", 0), raised(1, "TypeError: a", 0)),
        (raised(1, "ValueError: fp8 is not supported", 0), raised(1, "ValueError: fp4 is not supported", 0)),
        (
            raised(1, "AssertionError", 0, stack=frames("sglang/a.py:f", line="assert top_k <= 8")),
            raised(1, "AssertionError", 0, stack=frames("sglang/a.py:f", line="assert hidden % 16 == 0")),
        ),
        (exited(1, 3, -9), exited(1, 3, -11)),
        (xid(1, 31), xid(1, 79)),
        (kernel(1, "oom"), kernel(1, "segfault")),
        (dumped(1, "Aborted"), dumped(1, "Segmentation fault")),
        (waited(1, 0, "ALLREDUCE"), waited(1, 0, "BROADCAST")),
        (systemd(1, "main-exited", "KILL", 9), systemd(1, "main-exited", "ABRT", 6)),
        (
            native(1, "free(): invalid pointer", origin="glibc"),
            native(1, "double free or corruption", origin="glibc"),
        ),
        (logged(1, "a failed"), logged(1, "b failed")),
        (
            logged(1, "x: error: unrecognized arguments: --a", origin="argparse"),
            logged(1, "x: error: ambiguous option: --a", origin="argparse"),
        ),
    ],
)
def test_different_faults_differ(one: Event, other: Event) -> None:
    assert fingerprint(one) != fingerprint(other)
    assert not same_fault(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            raised(1, "ValueError: a", 0, stack=frames("sglang/a.py:load")),
            raised(1, "ValueError: a", 0, stack=frames("sglang/a.py:forward")),
        ),
        (
            raised(1, "ValueError: a", 0, before=ExceptionLink("KeyError", "'x'", (), "cause")),
            raised(1, "ValueError: a", 0, before=ExceptionLink("OSError", "gone", (), "cause")),
        ),
    ],
)
def test_another_way_to_the_same_exception_is_another_fault_but_the_same_for_a_bystander(
    one: Event, other: Event
) -> None:
    assert fingerprint(one) != fingerprint(other)
    assert same_fault(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            xid(1, 94, 1, "python3", device="0000:9b:00"),
            xid(9, 94, None, "", device="0000:1a:00", trusted=False),
        ),
        (kernel(1, "oom", 10, "python3"), kernel(1, "oom", 77, "sglang::schedul")),
        (exited(1, rank(3, 77), -9), exited(2, rank(5, 99_123), -9)),
        (waited(1, 0), waited(44, 7)),
        (stuck(1, 0), stuck(9, 4)),
        (
            logged(1, "launch_server.py: error: unrecognized arguments: --x", origin="argparse"),
            logged(1, "sglang serve: error: unrecognized arguments: --x", origin="argparse"),
        ),
        (
            native(
                1, "../aten/Indexing.cu:1515: f: block: [3,0,0], thread: [64,0,0] Assertion `a < b` failed."
            ),
            native(
                1, "../aten/Indexing.cu:1620: f: block: [412,0,0], thread: [0,0,0] Assertion `a < b` failed."
            ),
        ),
    ],
)
def test_one_fault_told_twice_is_one(one: Event, other: Event) -> None:
    assert fingerprint(one) == fingerprint(other)
    assert same_fault(one, other)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Tried to allocate 3.50 GiB on GPU 4", "Tried to allocate # GiB on #"),
        ("device UUID GPU-509665ad-b600-ac93-3616-d754b23d636d lost", "device UUID GPU-# lost"),
        ("frame at 0x7d58_a0000000 in /usr/lib/libcuda.so.1", "frame at # in #"),
        ("Xid (PCI:0000:9b:00): 31", "Xid (PCI:#): #"),
        ("[TP3] [rank3] scheduler_3 died", "[#] [#] # died"),
        ("mismatch at IndexKernel.cu:92 on gpu-07:30000", "mismatch at IndexKernel.cu:# on #"),
        ("Qwen3 needs sm90, not fp8_e4m3", "Qwen3 needs sm90, not fp8_e4m3"),
        ("Failed procs {'Engine_1': 2, 'a': 1}", "Failed procs {Engine_,a}"),
        ("  several   blanks\tand\nlines ", "several blanks and lines"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_skeleton_of_a_message(text: str, expected: str) -> None:
    assert skeleton(text) == expected


@given(st.text(max_size=600))
def test_a_skeleton_is_its_own_skeleton_in_length_at_most(text: str) -> None:
    """Whatever a log holds: no error, no growth, no line breaks."""
    short = skeleton(text)
    assert len(short) <= len(text)
    assert "\n" not in short


def test_hostile_text_takes_no_time() -> None:
    for piece in ("a-", "a.", "/a", "{", "[::", "DP1 ", "0x", "f" * 11 + " ", "http://"):
        assert len(skeleton(piece * 100_000)) <= 4_000


def test_a_torn_traceback_is_the_fault_whose_frames_it_begins() -> None:
    whole = raised(1, "ValueError: x", 0, stack=frames("sglang/a.py:run", "sglang/b.py:load"))
    torn = raised(2, "", 1, stack=frames("sglang/a.py:run"), complete=False)
    elsewhere = raised(3, "", 1, stack=frames("sglang/a.py:serve"), complete=False)
    empty = attrs.evolve(torn, chain=(ExceptionLink("", "", ()),))
    assert [same_fault(whole, other) for other in (torn, elsewhere, empty)] == [True, False, False]


def test_the_last_line_alone_is_the_same_fault() -> None:
    whole = raised(1, "torch.OutOfMemoryError: CUDA out of memory. Tried 3 GiB", 0)
    bare = logged(2, "torch.OutOfMemoryError: CUDA out of memory. Tried 5 GiB", 1, origin="exception")
    assert same_fault(whole, bare)
    assert same_fault(bare, whole)
    assert not same_fault(whole, logged(2, "torch.OutOfMemoryError", 1, origin="exception"))


def test_the_fingerprint_names_its_algorithm() -> None:
    assert fingerprint(None).startswith("lt1:")
    assert len(fingerprint(raised(1, "ValueError: x", 0))) == 20
