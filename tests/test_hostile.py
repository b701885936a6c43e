"""Whatever a log holds: no exception, a valid report, bounded time and memory, no secret, and nobody is fooled."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logtriage import Triage, load_database, render
from logtriage.cli import main
from logtriage.events import PARSERS, EventReader
from logtriage.events.block import Block
from logtriage.model import Line, Record
from logtriage.redaction import clean
from logtriage.scan import Scanner
from logtriage.schema.report import report_schema
from tests.steps import executed_lines

TREE: Final = Path(__file__).parent.parent
DATABASE: Final = load_database()
SCHEMA: Final = report_schema()
REPORT: Final = jsonschema.Draft202012Validator(SCHEMA)
DIAGNOSIS: Final = jsonschema.Draft202012Validator({**SCHEMA["$defs"]["diagnosis"], "$defs": SCHEMA["$defs"]})
FORMATS: Final = ("text", "json", "jsonl", "markdown")
LOGS: Final = sorted([*TREE.glob("fixtures/*/log.txt"), *TREE.glob("signatures/**/match.*.log")])
JOURNALS: Final = sorted([*TREE.glob("fixtures/founding/journal.*"), *TREE.glob("fixtures/systemd/*/journal.*")])
CHUNKS: Final = (1, 7, 4096)
MOST: Final = 24_000
"""Bytes taken of a log, so that reading it byte by byte is quick."""


def read(raw: bytes, size: int | None = None) -> Triage:
    triage = Triage(DATABASE)
    step = size or max(len(raw), 1)
    for at in range(0, len(raw), step):
        triage.feed(raw[at : at + step])
    triage.close()
    return triage


def answer(raw: bytes | str) -> dict[str, Any]:
    shown = render(read(raw.encode() if isinstance(raw, str) else raw).report(), "json")
    report: dict[str, Any] = json.loads(shown)
    return report


def headline(raw: bytes | str) -> dict[str, Any] | None:
    report = answer(raw)
    found: dict[str, Any] | None = None if report["headline"] is None else report["diagnoses"][report["headline"]]
    return found


def values(node: object, key: str = "") -> Iterator[tuple[str, object]]:
    """Every value of a report that holds no other one, and every span, with its key."""
    if key == "span" or not isinstance(node, (dict, list)):
        yield key, node
    elif isinstance(node, dict):
        for name, value in node.items():
            yield "key", name
            yield from values(value, name)
    else:
        for value in node:
            yield from values(value)


def hold_laws(raw: bytes, chunk: int, secrets: Sequence[str] = ()) -> None:
    report = read(raw).report()
    shown = {name: render(report, name) for name in FORMATS}
    whole = json.loads(shown["json"])
    REPORT.validate(whole)
    for line in shown["jsonl"].splitlines():
        DIAGNOSIS.validate(json.loads(line))
    for key, value in values(whole):
        if key == "span":
            assert isinstance(value, list)
            assert 1 <= value[0] <= value[1] <= max(whole["source"]["lines"], 1)
        elif isinstance(value, str):
            assert clean(value) == value
    for text in shown.values():
        assert clean(text) == text
        assert not [secret for secret in secrets if secret in text]
    assert len(shown["text"].splitlines()) <= 40
    assert render(read(raw, chunk).report(), "json") == shown["json"]


# --- mutations ------------------------------------------------------------------------------------

ODD: Final = (
    b"\x1b[31m", b"\x1b]0;title\x07", b"\x1b[?25l", b"\x00", b"\r", b"\x0b", b"\x0c", b"\x85", b"\x1c", b"\xff",
    "\u202e".encode(), "\u2028".encode(), "\x9b31m".encode(), "\x85".encode(), b'"', b"'", b"\\", b"{", b"]",
)  # fmt: skip
SECRETS: Final = ("sup3rs3cr3tvalue77", "hf_QWERTYuiop1234567890asdfgh", "sk-abcdEFGH1234567890zyxw", "p4ssw0rdInUrl9")
TOLD: Final = (
    b"api_key='sup3rs3cr3tvalue77'",
    b"--api-key sup3rs3cr3tvalue77",
    b'"admin_api_key": "sup3rs3cr3tvalue77"',
    b"HF_TOKEN=hf_QWERTYuiop1234567890asdfgh",
    b"Authorization: Bearer sk-abcdEFGH1234567890zyxw",
    b"http://user:p4ssw0rdInUrl9@host:80/",
)
ENVELOPES: Final = (
    b"Mar 09 12:00:01 gpu01 python3[77]: ", b"(Actor pid=77) ", b"sglang-1  | ", b"[   77.000001] ", b"77: ",
    b"2026-03-09T12:00:01.000000001Z stderr P ", b"2026-03-09T12:00:01.000000001Z stderr F ",
)  # fmt: skip


def taken(source: random.Random) -> bytes:
    """A piece of a real log."""
    raw = source.choice(JOURNALS if source.random() < 0.2 else LOGS).read_bytes()
    at = source.randrange(max(1, len(raw) - MOST))
    return raw[at : at + MOST]


def flipped(source: random.Random, raw: bytes) -> bytes:
    changed = bytearray(raw)
    for _ in range(source.randint(1, 200)):
        if changed:
            changed[source.randrange(len(changed))] = source.randrange(256)
    return bytes(changed)


def sprinkled(source: random.Random, raw: bytes) -> bytes:
    for _ in range(source.randint(1, 40)):
        at = source.randrange(len(raw) + 1)
        raw = raw[:at] + source.choice(ODD) + raw[at:]
    return raw


def shuffled(source: random.Random, raw: bytes) -> bytes:
    lines = raw.split(b"\n")
    source.shuffle(lines)
    return b"\n".join(lines)


def torn(source: random.Random, raw: bytes) -> bytes:
    for _ in range(source.randint(1, 6)):
        at = source.randrange(len(raw) + 1)
        raw = raw[:at] + raw[at + source.randint(1, 500) :]
    return raw[source.randrange(len(raw) // 4 + 1) : len(raw) - source.randrange(len(raw) // 4 + 1)]


def repeated(source: random.Random, raw: bytes) -> bytes:
    return b"\n".join(line for line in raw.split(b"\n") for _ in range(source.choice((0, 1, 1, 1, 2))))


def mixed(source: random.Random, raw: bytes) -> bytes:
    mine, other = raw.split(b"\n"), taken(source)[: MOST // 2].split(b"\n")
    out: list[bytes] = []
    while mine or other:
        lines = mine if mine and (not other or source.random() < 0.5) else other
        count = source.randint(1, 5)
        out += lines[:count]
        del lines[:count]
    return b"\n".join(out)


def enveloped(source: random.Random, raw: bytes) -> bytes:
    envelope = source.choice(ENVELOPES)
    return b"\n".join(envelope + line for line in raw.split(b"\n"))


MUTATIONS: Final = (flipped, sprinkled, shuffled, torn, repeated, mixed, enveloped)


@pytest.mark.parametrize("seed", range(24))
def test_no_mutation_of_a_log_breaks_a_law(seed: int) -> None:
    source = random.Random(seed)
    for turn in range(5):
        raw = taken(source)
        for _ in range(source.randint(1, 3)):
            raw = source.choice(MUTATIONS)(source, raw)
        hold_laws(raw[: 2 * MOST], CHUNKS[turn % 3])


@pytest.mark.parametrize("seed", range(12))
def test_no_format_shows_a_secret_wherever_it_stands(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(4):
        lines = taken(source).split(b"\n")
        for at in source.sample(range(len(lines)), min(len(lines), 12)):
            if not lines[at].startswith(b"{"):
                before, blank, after = lines[at].rpartition(b" ")
                lines[at] = before + blank + source.choice(TOLD) + b" " + after
        hold_laws(b"\n".join(lines), 4096, SECRETS)


PIECES: Final = st.sampled_from(
    [
        "Traceback (most recent call last):\n", '  File "/a/sglang/b.py", line 3, in f\n', "    x()\n",
        "ValueError: x\n", "[2026-03-09 12:00:01 TP3] ", "Fatal Python error: Aborted\n", "\r", "\x1b[31m", "\n",
        "Mar 09 12:00:01 gpu01 systemd[1]: ", "llm.service: Main process exited, code=exited, status=1/FAILURE\n",
        '{"__CURSOR":"x","_PID":"7","MESSAGE":', '{"log":"Error","stream":"stderr"}', "}\n", "[27,10,300]", "null",
        "__CURSOR=x\nMESSAGE=", "MESSAGE\n\x03\x00\x00\x00\x00\x00\x00\x00ab\n\n",
        "During handling of the above exception, another exception occurred:\n", "usage: x\n", "x: error: argument y\n",
        "NVRM: Xid (PCI:0000:1a:00): 31, pid=7, name=x\n", "server_args=ServerArgs(a={'b': [", "CUDA error: y\n",
    ]
)  # fmt: skip


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    st.lists(st.one_of(PIECES, st.text(max_size=40), st.binary(max_size=20)), max_size=30),
    st.sampled_from(CHUNKS),
)
def test_no_text_at_all_breaks_a_law(pieces: list[str | bytes], chunk: int) -> None:
    parts = [piece.encode("utf-8", "replace") if isinstance(piece, str) else piece for piece in pieces]
    hold_laws(b"".join(parts), chunk)


# --- floods ---------------------------------------------------------------------------------------

STARTED: Final = "Mar 09 12:00:01 gpu01 systemd[1]: Started {unit}.service.\n"
EXITED: Final = "Mar 09 12:00:01 gpu01 systemd[1]: {unit}.service: Main process exited, code=exited, status=1/FAILURE\n"
AGAIN: Final = (
    "Mar 09 12:00:01 gpu01 systemd[1]: {unit}.service: Scheduled restart job, restart counter is at {count}.\n"
)


def unit_life(count: int, unit: str) -> str:
    said = f"Mar 09 12:00:01 gpu01 python3[{count + 1}]: ValueError: hello\n"
    return STARTED.format(unit=unit) + said + EXITED.format(unit=unit) + AGAIN.format(unit=unit, count=count)


FLOODS: Final[dict[str, Callable[[int], str]]] = {
    "pids": lambda n: f"Mar 09 12:00:01 gpu01 python3[{n + 1}]: ValueError: {n}\n",
    "tracebacks": lambda n: f'Traceback (most recent call last):\n  File "/a.py", line {n}, in f\nValueError: {n}\n',
    "units": lambda n: unit_life(n, f"llm-{n}"),
    "restarts": lambda n: unit_life(n, "llm"),
    "ranks": lambda n: f"[2026-03-09 12:00:01 TP{n}] ValueError: hello {n}\n",
    "hosts": lambda n: f"Mar 09 12:00:01 gpu{n} python3[1]: ValueError: {n}\n",
    "imports": lambda n: f"Ignore import error when loading sglang.srt.models.m{n}: No module named 'x'\n",
    "kernel": lambda n: f"Mar 09 12:00:01 gpu01 kernel: NVRM: Xid (PCI:0000:1a:00): 31, pid={n}, name=python3, C\n",
    "chain": lambda n: (
        f'Traceback (most recent call last):\n  File "/a.py", line {n}, in f\nValueError: {n}\n\n'
        "During handling of the above exception, another exception occurred:\n\n"
    ),
    "frames": lambda n: f'  File "/a.py", line {n}, in f\n    g{n}()\n',
    "parts": lambda n: f"[pod-{n}/x] 2026-03-09T12:00:01.000000001Z stderr P Error\n",
}


def cost(raw: bytes) -> int:
    return executed_lines(lambda: read(raw, 1 << 17).report())


@pytest.mark.parametrize("kind", FLOODS)
def test_four_times_the_flood_costs_about_four_times_as_much(kind: str) -> None:
    small, large = ("".join(map(FLOODS[kind], range(count))).encode() for count in (100, 400))
    cost(small)  # patterns are compiled when first needed
    assert cost(large) < 6 * cost(small)  # a square would make it 16


HOSTILE_LINES: Final = (
    "a", " ", "x.", "(a)", "(aa.", "[", "{", "'", '"', "a=", "a: ", "7", "7,", "/", "a/", "<", "://a", "key ", "eyJa.",
    "Error", "DeepEP a", "^ ", "~", "| ", "> ", "\\n", "\x1b[", "\x1b]", "srun: error: a: tasks 7", "at 0x",
)  # fmt: skip
SETTINGS: Final = ("", "Error ", "(a", "RuntimeError: ", "srun: error: a: tasks ", "[2026-03-09 12:00:01 TP0] ", "{")


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_long_line_costs_no_more_than_its_length(setting: str) -> None:
    for unit in HOSTILE_LINES:
        few, many = (cost((setting + unit * (size // len(unit)) + "!\n").encode()) for size in (2_000, 8_000))
        assert many < 5 * few + 1_000, unit  # a square would make it 16


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_very_long_line_is_answered(setting: str) -> None:
    for unit in HOSTILE_LINES:
        answer(setting + unit * (64_000 // len(unit)) + "!\n")


def deepest(kind: str) -> bytes:
    if kind == "json":
        return b'{"__CURSOR":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    if kind == "arguments":
        return b"[2026-03-09 12:00:01] server_args=ServerArgs(a=" + b"[" * 500_000 + b")\n"
    return b'{"__CURSOR":"x","MESSAGE":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001 + b"\n"


@pytest.mark.parametrize("kind", ["json", "arguments", "message"])
def test_depth_is_no_danger(kind: str) -> None:
    hold_laws(deepest(kind), 1 << 16)


RUN: Final = """
import sys
from logtriage.cli import main
status = main(sys.argv[1:])
# ru_maxrss would begin with what the parent had when it forked; this one begins with the program.
(peak,) = [line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')]
sys.stderr.write(f"{status} {peak}")
"""


def peak(arguments: Sequence[str], pieces: Iterator[bytes]) -> tuple[int, float, bytes]:
    """Exit status, peak of memory in MB and output of a run that reads *pieces* from a pipe."""
    with subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=TREE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        for piece in pieces:
            process.stdin.write(piece)
        out, err = process.communicate(timeout=60)
    status, kilobytes = err.split()[-2:]
    return int(status), int(kilobytes) / 1024, out


def longest_line(start: bytes) -> Iterator[bytes]:
    yield start
    yield from (b"y" * 1_000_000 for _ in range(100))


def many_faults() -> Iterator[bytes]:
    """Forty services with thirty long errors each."""
    for count in range(30):
        for unit in range(40):
            said = {"__CURSOR": "x", "_PID": str(unit + 1), "_SYSTEMD_UNIT": f"s{unit}.service"}
            yield json.dumps({**said, "MESSAGE": f"Abc{count}Error: {'x ' * 500}"}).encode() + b"\n"


@pytest.mark.parametrize(("start", "status"), [(b"", 0), (b"RuntimeError: ", 3), (b"__CURSOR=x\nMESSAGE=", 0)])
def test_a_line_of_100_megabytes_needs_little_memory(start: bytes, status: int) -> None:
    found, megabytes, _ = peak(["--format", "json"], longest_line(start))
    assert found == status
    assert megabytes < 200


def test_an_unfinished_line_that_grows_by_bytes_costs_its_length() -> None:
    scanner = Scanner()
    scanner.feed(b"0123456789")
    grown = scanner._tail
    for _ in range(60_000):
        scanner.feed(b"0123456789")
    assert scanner._tail is grown  # in place: copying it each time would be 18 GB
    assert len(grown) == 600_010


@pytest.mark.parametrize(("open_room", "kept_room"), [(1 << 18, 1 << 30), (1 << 30, 1 << 18)])
def test_many_faults_of_many_services_need_little_memory(
    open_room: int, kept_room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logtriage.incidents._MAX_WEIGHT", open_room)
    monkeypatch.setattr(sys.modules["logtriage.triage"], "_WEIGHT", kept_room)
    triage = Triage(DATABASE)
    for piece in many_faults():
        triage.feed(piece)
    triage.close()
    report = triage.report()
    held = sum(len(event.message) for found in report.diagnoses for event in found.incident.events)
    assert held < 900_000  # of 1.2 MB
    assert len(report.diagnoses) == 40
    assert [gap.kind for gap in report.source.gaps] == ["overflow"]


# --- damaged input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "gaps"),
    [
        (b"", ["empty"]),
        (b"\n" * 1_000_000, []),
        (b"\r\n" * 1000, []),
        (bytes(range(256)) * 64, ["binary"]),
        (b"\x00" * 5000, ["binary"]),
    ],
)  # fmt: skip
def test_what_holds_no_text_holds_no_crash(raw: bytes, gaps: list[str]) -> None:
    report = answer(raw)
    assert report["headline"] is None
    assert [gap["kind"] for gap in report["source"]["gaps"]] == gaps


def whole_export() -> bytes:
    fields = (b"__CURSOR=x", b"_PID=7", b"_SYSTEMD_UNIT=llm.service", b"MESSAGE=ValueError: real")
    return b"\n".join(fields) + b"\n\n"


@pytest.mark.parametrize("rest", [b"__CURSOR=y\nMESS", b"MESSAGE\n\xff\xff", b"MESSAGE\n" + b"\xff" * 8, b"M\n\x05"])
def test_a_torn_export_keeps_what_came_before(rest: bytes) -> None:
    raw = whole_export() + b"__CURSOR=y\n" + rest
    found = headline(raw)
    assert found is not None
    assert found["root"]["event"]["message"] == "ValueError: real"
    hold_laws(raw, 1)


def test_a_torn_compressed_file_keeps_what_came_before(tmp_path: Path, capsysbinary: Any) -> None:
    noise = "".join(f"[2026-03-09 12:00:01] {source:x}\n" for source in random.Random(1).sample(range(1 << 60), 9000))
    packed = gzip.compress(b"ValueError: real\n" + noise.encode())
    path = tmp_path / "log.gz"
    path.write_bytes(packed[: len(packed) // 2])
    assert main([str(path), "--format", "json"]) == 2
    out, err = capsysbinary.readouterr()
    assert json.loads(out)["diagnoses"][0]["root"]["event"]["message"] == "ValueError: real"
    assert err.startswith(f"logtriage: cannot read {path}: ".encode())


@pytest.mark.parametrize("name", [".", "gone.log", "/proc/self/mem"])
def test_what_cannot_be_read_is_named(name: str, capsysbinary: Any) -> None:
    assert main([name]) == 2
    out, err = capsysbinary.readouterr()
    assert out == b""
    assert err.startswith(f"logtriage: cannot read {name}: ".encode())
    assert b"Traceback" not in err


def test_spans_count_lines_as_the_source_does() -> None:
    """A carriage return ends a line for a reader, but lines are counted by line breaks."""
    report = answer("one\rtwo\rthree\x0cfour\nllama_init failed: RuntimeError and CUDA out of memory. Tried\r\n")
    spans = [value for key, value in values(report) if key == "span"]
    assert report["source"]["lines"] == 2
    assert all(isinstance(span, list) and span[1] <= 2 for span in spans)


# --- our own defects ------------------------------------------------------------------------------


def break_parsers(monkeypatch: pytest.MonkeyPatch, parser: Callable[[Line], Block | None]) -> None:
    monkeypatch.setattr(EventReader.__init__, "__defaults__", ((parser, *PARSERS),))


def test_a_broken_parser_costs_only_its_own_event(
    tmp_path: Path, capsysbinary: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(line: Line) -> Block | None:
        if "poison" in line.text:
            raise KeyError(line.text)
        return None

    break_parsers(monkeypatch, broken)
    log = tmp_path / "a.log"
    log.write_text("poison error one\nValueError: real\n\n[2026-03-09 12:00:01] poison error two\n")
    assert main([str(log), "--format", "json"]) == 2
    out, err = capsysbinary.readouterr()
    report = json.loads(out)
    REPORT.validate(report)
    assert report["diagnoses"][0]["root"]["event"]["message"].startswith("ValueError: real")
    [gap] = report["source"]["gaps"]
    assert (gap["kind"], gap["span"], gap["count"]) == ("internal-error", [1, 4], 2)
    assert err == b"logtriage: internal error: KeyError; the answer may lack a part\n"


class _Breaks:
    """A block that breaks on its second line, or at its end."""

    def __init__(self, at_end: bool) -> None:
        self._at_end = at_end

    def offer(self, line: Line) -> bool:  # noqa: ARG002  the interface of every block
        if not self._at_end:
            raise ZeroDivisionError
        return False

    def close(self) -> Sequence[Any]:
        if self._at_end:
            raise ZeroDivisionError
        return []


@pytest.mark.parametrize("at_end", [True, False])
def test_a_block_that_breaks_costs_only_its_own_event(at_end: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    break_parsers(monkeypatch, lambda line: _Breaks(at_end) if "poison" in line.text else None)
    report = answer("Error: poison\nValueError: real\n")
    assert report["diagnoses"][0]["root"]["event"]["message"] == "ValueError: real"
    assert [gap["kind"] for gap in report["source"]["gaps"]] == ["internal-error"]


def test_a_complaint_that_nobody_hears_does_not_cost_the_answer(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("ValueError: real\n")
    command = f'"{sys.executable}" -m logtriage gone.log "{log}" --format jsonl 2>&1 >"{tmp_path}/out" | true'
    subprocess.run(["bash", "-c", command], cwd=TREE, check=True)
    assert json.loads((tmp_path / "out").read_text())["root"]["event"]["message"] == "ValueError: real"


# --- who says it ----------------------------------------------------------------------------------

REAL: Final = """\
[2026-03-09 12:10:00 TP1] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/sglang/srt/managers/scheduler.py", line 2000, in run_scheduler_process
    scheduler.event_loop_overlap()
  File "/opt/sglang/srt/managers/scheduler.py", line 700, in event_loop_overlap
    raise KeyError("real")
KeyError: 'real'

[2026-03-09 12:10:01] Received sigquit from a child process. It usually means the child failed.
"""
QUOTED: Final = (
    "Traceback (most recent call last):\n"
    '  File "/opt/sglang/srt/managers/scheduler.py", line 10, in f\n'
    "    x()\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity",
    "[2026-03-09 12:00:01 TP3] Scheduler hit an exception: Traceback (most recent call last):",
    "NVRM: Xid (PCI:0000:1a:00): 79, pid=4242, name=python3, GPU has fallen off the bus.",
    "Out of memory: Killed process 4242 (python3) total-vm:1kB, anon-rss:1kB",
    "sglang.service: Main process exited, code=killed, status=9/KILL",
    "Fatal Python error: Segmentation fault",
    "terminate called after throwing an instance of 'c10::Error'",
    "Received sigquit from a child process. It usually means the child failed.",
    "Subprocess scheduler_3 (pid=77) crashed with exit code -9. Triggering SIGQUIT",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "Root        TP3 (scheduler), lines 2-3",
)


def requests(said: str) -> Iterator[str]:
    """Lines on which servers repeat what a user said."""
    yield f"[2026-03-09 12:00:01 TP0] Receive: obj=GenerateReqInput(rid='a1', text={said!r}, sampling_params={{}})"
    yield f"[2026-03-09 12:00:02] Finish: obj=GenerateReqInput(rid='a1', text={said!r}), out={{'text': {said!r}}}"
    yield f"INFO 03-09 12:00:01 [logger.py:40] Received request cmpl-1: prompt: {said!r}, params: SamplingParams(n=1)."
    yield f'INFO:     10.0.0.1:5555 - "GET /v1/x?prompt={urllib.parse.quote(said)} HTTP/1.1" 400 Bad Request'
    yield f"[2026-03-09 12:00:01] Request body: {json.dumps(said)}"


@pytest.mark.parametrize("said", QUOTED)
def test_what_a_user_said_is_no_crash(said: str) -> None:
    for line in requests(said):
        assert headline(f"{line}\n") is None, line
        assert headline(f"Mar 09 12:00:01 gpu01 python3[812]: {line}\n") is None, line


@pytest.mark.parametrize("said", QUOTED)
def test_what_a_user_said_is_no_part_of_a_real_crash(said: str) -> None:
    for line in requests(said):
        [found] = answer(f"{line}\n{line}\n{REAL}")["diagnoses"]
        assert found["root"]["event"]["span"] == [3, 9]
        assert all(finding["event"]["span"][0] >= 3 for finding in found["findings"])


@pytest.mark.parametrize("said", QUOTED[2:5])
def test_neither_the_kernel_nor_systemd_speaks_with_a_servers_name(said: str) -> None:
    for ident in ("python3[4242]", "sglang[4242]", "kernel[4242]"):
        assert headline(f"Mar 09 12:00:01 gpu01 {ident}: {said}\n") is None


def entry(message: str, **fields: str) -> str:
    """A journal entry of a program that is not the server, with fields as it chose them."""
    own = {
        "__REALTIME_TIMESTAMP": "1773057601000001", "_PID": "4242", "_COMM": "evil", "_SYSTEMD_UNIT": "evil.service",
        "SYSLOG_IDENTIFIER": "evil", "_TRANSPORT": "journal",
    }  # fmt: skip
    return json.dumps({**own, **fields, "MESSAGE": message}) + "\n"


FORGED: Final = {
    "the kernel by syslog": entry(QUOTED[2], SYSLOG_IDENTIFIER="kernel", _TRANSPORT="syslog"),
    "the kernel by stdout": entry(QUOTED[3], SYSLOG_IDENTIFIER="kernel", _TRANSPORT="stdout"),
    "systemd by syslog": entry(QUOTED[4], SYSLOG_IDENTIFIER="systemd", _TRANSPORT="syslog"),
    "earlyoom": entry('sending SIGKILL to process 812 uid 0 "python3"', SYSLOG_IDENTIFIER="earlyoom"),
    "an exit by its id": entry(
        "x", MESSAGE_ID="98e322203f7a4ed290d09fe03c09fe15", UNIT="llm.service", EXIT_CODE="killed", EXIT_STATUS="9"
    ),
    "an oom kill by its id": entry("x", MESSAGE_ID="fe6faa94e7774663a0da52717891d8ef", UNIT="llm.service"),
    "a core dump by its id": entry(
        "Process 812 (python3) of user 0 dumped core.", MESSAGE_ID="fc2e22bc6ee647b6b90729ab34a250b1"
    ),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_journald_says_who_it_was_not(forged: str) -> None:
    assert headline(forged) is None
    server = {"_PID": "812", "_COMM": "python3", "_SYSTEMD_UNIT": "llm.service", "SYSLOG_IDENTIFIER": "python3"}
    found = headline(forged + "".join(entry(line, **server) for line in REAL.splitlines()))
    assert found is not None
    assert found["root"]["event"]["message"] == "KeyError: 'real'"
    assert found["invocation"]["unit"] == "llm.service"


def test_a_unit_is_not_what_a_program_says_it_is_of() -> None:
    text = entry("ValueError: fake", UNIT="llm.service", INVOCATION_ID="0" * 32)
    found = headline(text)
    assert found is not None
    assert found["invocation"]["unit"] == "evil.service"
    assert found["invocation"]["id"] is None


def test_the_manager_itself_is_believed() -> None:
    manager = {"_PID": "1", "_COMM": "init", "_SYSTEMD_UNIT": "init.scope", "SYSLOG_IDENTIFIER": "systemd"}
    found = headline(entry(QUOTED[4], **manager, UNIT="sglang.service"))
    assert found is not None
    assert found["invocation"]["unit"] == "sglang.service"


@pytest.mark.parametrize("name", ["text", "json", "jsonl"])
def test_our_own_report_is_no_crash(name: str) -> None:
    assert headline(render(read(REAL.encode()).report(), name)) is None


def test_records_from_elsewhere_are_held_to_the_same_laws() -> None:
    triage = Triage(DATABASE)
    for number in range(1, 300):
        triage.feed_record(Record("ValueError: x\ny\x1b[31m", number, pid=number, ident="p\x1b[31m", host="h\u202e"))
    triage.close()
    report = json.loads(render(triage.report(), "json"))
    REPORT.validate(report)
    assert all(clean(value) == value for _, value in values(report) if isinstance(value, str))
