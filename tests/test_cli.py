"""The command line: what goes to which stream, and the exit statuses."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from logtriage.cli import main
from logtriage.triage import Triage
from tests.signature_files import write_signature

LOG = """\
[2026-03-09 12:00:00] server_args=ServerArgs(model_path='/m/q', api_key='s3cr3t-9', tp_size=2, attention_backend='flashinfer')
[2026-03-09 12:00:07 TP1] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/venv/lib/python3.12/site-packages/sglang/srt/managers/scheduler.py", line 2881, in run_scheduler_process
    scheduler = Scheduler(server_args, port_args)
  File "/opt/venv/lib/python3.12/site-packages/sglang/srt/layers/registry.py", line 40, in choose
    raise AssertionError(message)
AssertionError: flashinfer2 is not among the supported backends. Got flashinfer2

[2026-03-09 12:00:08] Received sigquit from a child process. It usually means the child failed.
"""  # noqa: E501
HEALTHY = "[2026-03-09 12:00:09] The server is fired up and ready to roll!\n"
SIGNATURE = """\
id = "sglang.attention.made-up-backend"
revision = 1
title = "The backend {backend} is made up"
status = "stable"
level = "fatal"
category = "config.attention-backend"
owner = "sglang"
role = "initiating"
cause = "No engine knows {backend}."
[match]
exceptions = ["AssertionError"]
[[match.variant]]
name = "one-name"
literals = ["flashinfer2 is not among the supported backends"]
pattern = '''Got (?P<backend>\\w+)'''
proof = "source"
[[remediation]]
title = "Use triton"
applicability = "safe"
changes = [{ op = "set-flag", name = "--attention-backend", value = "triton" }]
"""
UNIT = """\
[Service]
Environment=HF_TOKEN=t0k3n-9
ExecStart=/opt/venv/bin/python -m sglang.launch_server --model-path /m/q --attention-backend flashinfer2 --api-key s3cr3t-9
"""  # noqa: E501


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_text(LOG)
    return path


@pytest.fixture
def signatures(tmp_path: Path) -> Path:
    root = tmp_path / "known"
    write_signature(root, SIGNATURE, "sglang.attention.made-up-backend")
    return root


@pytest.fixture
def unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "sglang.service"
    path.write_text(UNIT)
    monkeypatch.chdir(tmp_path)
    return path


Capture = pytest.CaptureFixture[bytes]


def as_json(capture: Capture) -> dict[str, Any]:
    report = json.loads(capture.readouterr().out)
    assert isinstance(report, dict)
    return report


# --- exit statuses --------------------------------------------------------------------------------


def test_a_log_without_a_crash_gives_zero(tmp_path: Path, capsysbinary: Capture) -> None:
    path = tmp_path / "healthy.log"
    path.write_text(HEALTHY)
    assert main([str(path)]) == 0
    out, err = capsysbinary.readouterr()
    assert out.startswith(b"Nothing crashed in 1 line ")
    assert out.count(b"\n") == 1
    assert err == b""


def test_a_crash_that_is_known_gives_one(log: Path, signatures: Path, capsysbinary: Capture) -> None:
    assert main([str(log), "--signatures", str(signatures), "--format", "json"]) == 1
    report = as_json(capsysbinary)
    match = report["diagnoses"][report["headline"]]["match"]
    assert match["signature"] == "sglang.attention.made-up-backend"
    assert match["title"] == "The backend flashinfer2 is made up"


def test_a_crash_that_is_unknown_gives_three(tmp_path: Path, capsysbinary: Capture) -> None:
    path = tmp_path / "odd.log"
    path.write_text(
        'Traceback (most recent call last):\n  File "/x/y.py", line 3, in f\n    g()\nOddError: zyx\n'
    )
    assert main([str(path)]) == 3
    assert b"OddError: zyx" in capsysbinary.readouterr().out


def test_an_empty_input_gives_zero_and_a_note(tmp_path: Path, capsysbinary: Capture) -> None:
    path = tmp_path / "empty.log"
    path.touch()
    assert main([str(path), "--format", "json"]) == 0
    out, err = capsysbinary.readouterr()
    assert [gap["kind"] for gap in json.loads(out)["source"]["gaps"]] == ["empty"]
    assert err.startswith(b"logtriage: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--no-such-flag"],
        ["--format", "xml"],
        ["--form", "json"],
        ["--drop-in"],
        ["--target", "systemd-unit"],
        ["-", "-"],
        ["--patch"],
        ["signatures"],
        ["signatures", "burn"],
    ],
)
def test_wrong_use_gives_two_and_a_message(arguments: list[str], capsysbinary: Capture) -> None:
    assert main(arguments) == 2
    out, err = capsysbinary.readouterr()
    assert out == b""
    assert b"error: " in err
    assert b"Traceback" not in err


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_asking_about_the_program_gives_zero(flag: str, capsysbinary: Capture) -> None:
    assert main([flag]) == 0
    assert b"logtriage" in capsysbinary.readouterr().out


def test_an_unreadable_file_does_not_cost_the_answer_from_the_others(
    log: Path, capsysbinary: Capture
) -> None:
    missing = str(log.with_name("gone.log"))
    assert main([missing, str(log), "--format", "json"]) == 2
    out, err = capsysbinary.readouterr()
    assert json.loads(out)["headline"] == 0
    assert err.decode() == f"logtriage: cannot read {missing}: No such file or directory\n"


def test_nothing_is_said_about_crashes_when_nothing_was_read(tmp_path: Path, capsysbinary: Capture) -> None:
    assert main([str(tmp_path / "gone.log")]) == 2
    assert main([str(tmp_path)]) == 2
    out, err = capsysbinary.readouterr()
    assert out == b""
    assert err.count(b"cannot read") == 2


def test_a_broken_parser_does_not_cost_the_rest(
    log: Path, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Triage.feed

    def breaks(self: Triage, chunk: bytes) -> object:
        feed(self, chunk)
        if len(chunk) > 100:
            raise RecursionError("deep")
        return ()

    monkeypatch.setattr(Triage, "feed", breaks)
    assert main([str(log), "--format", "json"]) == 2
    out, err = capsysbinary.readouterr()
    assert json.loads(out)["headline"] == 0
    assert err == b"logtriage: internal error: RecursionError; the answer may lack a part\n"


def test_an_internal_error_shows_no_traceback(
    log: Path, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(_self: Triage) -> object:
        raise KeyError("x")

    monkeypatch.setattr(Triage, "report", breaks)
    assert main([str(log)]) == 2
    assert capsysbinary.readouterr() == (b"", b"logtriage: internal error: KeyError\n")


def test_an_interruption_between_two_files_keeps_the_first(
    log: Path, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Triage.feed

    def interrupted(self: Triage, chunk: bytes) -> object:
        if chunk.startswith(b"second"):
            raise KeyboardInterrupt
        return feed(self, chunk)

    second = log.with_name("second.log")
    second.write_text("second file\n")
    monkeypatch.setattr(Triage, "feed", interrupted)
    assert main([str(log), str(second), "--format", "json"]) == 130
    assert as_json(capsysbinary)["headline"] == 0


def test_an_interruption_of_the_answer_ends_it(
    log: Path, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_self: Triage) -> object:
        os.kill(os.getpid(), signal.SIGTERM)
        return None

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(Triage, "report", interrupted)
    assert main([str(log)]) == 143
    assert capsysbinary.readouterr() == (b"", b"")
    assert signal.getsignal(signal.SIGTERM) == before


# --- input ----------------------------------------------------------------------------------------


def test_several_files_are_one_stream(log: Path, capsysbinary: Capture) -> None:
    text = log.read_bytes()
    whole = log.with_name("whole.log")
    parts = [log.with_name(name) for name in ("part.1", "part.2.gz")]
    whole.write_bytes(text)
    parts[0].write_bytes(text[:500])
    parts[1].write_bytes(gzip.compress(text[500:]))
    assert main([str(whole), "--format", "json"]) == 3
    expected = as_json(capsysbinary)
    assert main([*map(str, parts), "--format", "json"]) == 3
    report = as_json(capsysbinary)
    assert report["source"].pop("name") == f"{parts[0]}, {parts[1]}"
    expected["source"].pop("name")
    assert report == expected


def test_json_lines_hold_one_diagnosis_each(log: Path, capsysbinary: Capture) -> None:
    assert main([str(log), "--format", "jsonl"]) == 3
    [line] = capsysbinary.readouterr().out.splitlines()
    assert json.loads(line)["root"]["event"]["process"]["label"] == "TP1"


@pytest.mark.parametrize("format_name", ["text", "markdown"])
def test_verbose_lists_what_could_not_be_read(format_name: str, tmp_path: Path, capsysbinary: Capture) -> None:
    lines = LOG.splitlines()
    loads = "[2026-03-09 12:00:07 TP0] Load weight begin. avail mem=3 GB"
    torn = [*lines[:-1], loads, "ine 212, in load_model", lines[-1]]
    path = tmp_path / "torn.log"
    path.write_text("\n".join([*torn, ""]))
    number = len(torn) - 1
    assert main([str(path), "--format", format_name]) == 3
    short = capsysbinary.readouterr().out.decode()
    assert "1 line of the crash could not be read (--verbose shows them)" in short
    assert "load_model" not in short
    assert main([str(path), "--format", format_name, "--verbose"]) == 3
    shown = capsysbinary.readouterr().out.decode()
    assert f"! line {number}, TP0: ine 212, in load_model\n" in shown
    assert "--verbose" not in shown


@pytest.mark.parametrize("format_name", ["json", "jsonl"])
def test_verbose_changes_nothing_for_tools(format_name: str, log: Path, capsysbinary: Capture) -> None:
    main([str(log), "--format", format_name])
    plain = capsysbinary.readouterr().out
    main([str(log), "--format", format_name, "--verbose"])
    assert capsysbinary.readouterr().out == plain


def test_two_runs_print_the_same_bytes(log: Path, capsysbinary: Capture) -> None:
    outputs = set()
    for _ in range(2):
        assert main([str(log), "--format", "json"]) == 3
        outputs.add(capsysbinary.readouterr().out)
    assert len(outputs) == 1


@pytest.mark.parametrize("format_name", ["text", "json", "jsonl", "markdown"])
def test_no_format_shows_a_secret(
    format_name: str, log: Path, signatures: Path, unit: Path, capsysbinary: Capture
) -> None:
    arguments = [str(log), "--signatures", str(signatures), "--format", format_name]
    if format_name != "text":  # there the diff is the user's own file
        arguments += ["--patch", unit.name]
    assert main(arguments) == 1
    out, err = capsysbinary.readouterr()
    assert b"flashinfer2" in out
    assert b"s3cr3t-9" not in out + err
    assert b"t0k3n-9" not in out + err


# --- patches --------------------------------------------------------------------------------------


def test_text_with_a_patch_prints_only_the_diff(
    log: Path, signatures: Path, unit: Path, capsysbinary: Capture
) -> None:
    assert main([str(log), "--signatures", str(signatures), "--patch", unit.name]) == 1
    out, err = capsysbinary.readouterr()
    assert out.startswith(b"--- a/sglang.service\n+++ b/sglang.service\n@@ ")
    assert b"The backend flashinfer2 is made up" in err
    assert unit.read_text() == UNIT


def test_git_applies_the_patch(log: Path, signatures: Path, unit: Path, capsysbinary: Capture) -> None:
    main([str(log), "--signatures", str(signatures), "--patch", unit.name])
    out, _ = capsysbinary.readouterr()
    subprocess.run(["git", "apply", "-"], input=out, cwd=unit.parent, check=True)
    assert unit.read_text() == UNIT.replace("--attention-backend flashinfer2", "--attention-backend triton")


def test_line_ends_and_odd_bytes_survive(
    log: Path, signatures: Path, unit: Path, capsysbinary: Capture
) -> None:
    before = b"# caf\xe9\r\n" + UNIT.replace("\n", "\r\n").encode()
    unit.write_bytes(before)
    main([str(log), "--signatures", str(signatures), "--patch", unit.name])
    out, _ = capsysbinary.readouterr()
    subprocess.run(["git", "apply", "-"], input=out, cwd=unit.parent, check=True)
    assert unit.read_bytes() == before.replace(b"backend flashinfer2", b"backend triton")


def test_json_holds_the_patch_and_what_to_do_next(
    log: Path, signatures: Path, unit: Path, capsysbinary: Capture
) -> None:
    unit.write_text(UNIT.replace("Environment=HF_TOKEN=t0k3n-9\n", "").replace(" --api-key s3cr3t-9", ""))
    assert main([str(log), "--signatures", str(signatures), "--patch", unit.name, "--format", "json"]) == 1
    out, err = capsysbinary.readouterr()
    [diagnosis] = json.loads(out)["diagnoses"]
    [remediation] = diagnosis["remediations"]
    assert remediation["patch_redacted"] is False
    assert "systemctl daemon-reload" in remediation["steps"]
    assert err == b""
    subprocess.run(["git", "apply", "-"], input=remediation["patch"].encode(), cwd=unit.parent, check=True)
    assert "--attention-backend triton" in unit.read_text()


def test_a_patch_with_a_secret_is_marked_in_json(
    log: Path, signatures: Path, unit: Path, capsysbinary: Capture
) -> None:
    assert main([str(log), "--signatures", str(signatures), "--patch", unit.name, "--format", "json"]) == 1
    [remediation] = as_json(capsysbinary)["diagnoses"][0]["remediations"]
    assert remediation["patch_redacted"] is True
    assert "--api-key [redacted:api-key]" in remediation["patch"]


def test_a_drop_in_is_a_new_file(log: Path, signatures: Path, unit: Path, capsysbinary: Capture) -> None:
    assert main([str(log), "--signatures", str(signatures), "--patch", unit.name, "--drop-in"]) == 1
    out, _ = capsysbinary.readouterr()
    assert out.startswith(b"--- /dev/null\n+++ b/sglang.service.d/")
    assert b"\n+ExecStart=\n+ExecStart=" in out


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("just prose\n", b"no patch for odd.service: "),
        (UNIT.replace("flashinfer2", "triton"), b"it already says what is proposed"),
    ],
)
def test_no_patch_leaves_the_status_and_an_empty_output(
    text: str, reason: bytes, log: Path, signatures: Path, unit: Path, capsysbinary: Capture
) -> None:
    unit.with_name("odd.service").write_text(text)
    assert main([str(log), "--signatures", str(signatures), "--patch", "odd.service"]) == 1
    out, err = capsysbinary.readouterr()
    assert out == b""
    assert reason in err.splitlines()[-1]


def test_a_missing_launch_file_gives_two_and_the_diagnosis(
    log: Path, signatures: Path, capsysbinary: Capture
) -> None:
    assert main([str(log), "--signatures", str(signatures), "--patch", "gone.service"]) == 2
    out, err = capsysbinary.readouterr()
    assert out == b""
    assert b"The backend flashinfer2 is made up" in err
    assert err.endswith(b"logtriage: cannot read gone.service: No such file or directory\n")


def test_a_huge_file_is_no_launch_file(
    log: Path, signatures: Path, unit: Path, capsysbinary: Capture
) -> None:
    unit.write_bytes(b"#" * (5 * 1024 * 1024))
    assert main([str(log), "--signatures", str(signatures), "--patch", unit.name]) == 2
    out, err = capsysbinary.readouterr()
    assert out == b""
    assert err.endswith(b"logtriage: cannot read sglang.service: it is too large for a launch file\n")


def test_a_healthy_log_needs_no_patch(tmp_path: Path, unit: Path, capsysbinary: Capture) -> None:
    (tmp_path / "healthy.log").write_text(HEALTHY)
    assert main(["healthy.log", "--patch", unit.name]) == 0
    out, err = capsysbinary.readouterr()
    assert out == b""
    assert err.endswith(b"logtriage: no patch: nothing crashed\n")


# --- signatures -----------------------------------------------------------------------------------


def test_signatures_are_listed_one_a_line(signatures: Path, capsysbinary: Capture) -> None:
    assert main(["signatures", "list", str(signatures)]) == 0
    rows = [row.split() for row in capsysbinary.readouterr().out.decode().splitlines()]
    ids = [row[0] for row in rows]
    assert "sglang.attention.made-up-backend" in ids
    assert ids == sorted(ids)


def test_a_defect_is_reported_with_its_place(tmp_path: Path, capsysbinary: Capture) -> None:
    path = write_signature(
        tmp_path / "mine", SIGNATURE.replace('"fatal"', '"fatl"'), "sglang.attention.made-up-backend"
    )
    assert main(["signatures", "check", str(tmp_path / "mine")]) == 2
    assert f"logtriage: {path}: $.level: ".encode() in capsysbinary.readouterr().err


def test_a_defect_ends_a_run_before_it_reads(log: Path, tmp_path: Path, capsysbinary: Capture) -> None:
    write_signature(tmp_path / "mine", "id = 3\n", "sglang.attention.made-up-backend")
    assert main([str(log), "--signatures", str(tmp_path / "mine")]) == 2
    out, err = capsysbinary.readouterr()
    assert out == b""
    assert b"signature.toml: " in err


def test_a_folder_that_is_none_is_refused(tmp_path: Path, capsysbinary: Capture) -> None:
    assert main(["signatures", "check", str(tmp_path / "gone")]) == 2
    assert b"not a folder" in capsysbinary.readouterr().err


# --- the process ----------------------------------------------------------------------------------

PROGRAM = (sys.executable, "-m", "logtriage")
ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_prints_what_it_found(number: int, status: int) -> None:
    with subprocess.Popen(
        [*PROGRAM, "--format", "json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        # A job in the background of a shell ignores Ctrl-C, and so would what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdin is not None
        process.stdin.write(LOG.encode())
        process.stdin.flush()
        # The pipe is empty once the program has read it; then it waits for more.
        deadline = time.monotonic() + 30
        while _unread(process.stdin.fileno()) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == status
    assert json.loads(out)["headline"] == 0
    assert b"Traceback" not in err


def _unread(descriptor: int) -> int:
    import array
    import fcntl
    import termios

    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


def test_a_closed_pipe_ends_it_quietly(log: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as out:
        done = subprocess.run([*PROGRAM, str(log)], stdout=out, stderr=subprocess.PIPE, cwd=ROOT, check=False)
    assert done.stderr == b""
    assert done.returncode == 3


def test_closed_standard_streams_end_in_a_status_not_a_traceback(log: Path) -> None:
    def status(redirections: str) -> tuple[int, bytes]:
        command = f'"{sys.executable}" -m logtriage {redirections}'
        done = subprocess.run(["sh", "-c", command], capture_output=True, cwd=ROOT, check=False)
        return done.returncode, done.stderr

    assert status("<&-") == (2, b"logtriage: cannot read standard input: it is closed\n")
    assert status(f"{log} >&-") == (3, b"")
    assert status(f"{log} {log}.gone 2>&-") == (2, b"")


def test_a_full_disk_is_named() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*PROGRAM], input=LOG.encode(), stdout=full, stderr=subprocess.PIPE, cwd=ROOT, check=False
        )
    assert done.returncode == 2
    assert done.stderr.startswith(b"logtriage: cannot go on: No space left on device\n")
    assert b"Traceback" not in done.stderr


def test_output_does_not_depend_on_the_locale(log: Path) -> None:
    log.write_text(LOG.replace("AssertionError: ", "AssertionError: \u6a21\u578b "))
    outputs = {
        subprocess.run(
            [*PROGRAM, str(log)], stdout=subprocess.PIPE, cwd=ROOT, env=_in_locale(locale), check=False
        ).stdout
        for locale in ("C", "C.UTF-8")
    }
    [out] = outputs
    assert "\u6a21\u578b".encode() in out


def test_standard_input_is_read_without_arguments() -> None:
    done = subprocess.run([*PROGRAM], input=LOG.encode(), capture_output=True, cwd=ROOT, check=False)
    assert done.returncode == 3
    assert done.stdout.splitlines()[0].endswith(b"from standard input: sglang")


def _in_locale(locale: str) -> dict[str, str]:
    return {**os.environ, "LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colours_only_on_a_terminal_that_wants_them(
    environment: dict[str, str], coloured: bool, log: Path
) -> None:
    terminal, end = pty.openpty()
    plain = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    subprocess.run(
        [*PROGRAM, str(log)], stdout=end, cwd=ROOT, env={**plain, "TERM": "xterm", **environment}, check=False
    )
    os.close(end)
    shown = b""
    with contextlib.suppress(OSError):  # Linux reports the closed other end as an error
        while piece := os.read(terminal, 4096):
            shown += piece
    os.close(terminal)
    assert b"Root " in shown
    assert (b"\x1b[1;31mRoot" in shown) is coloured
