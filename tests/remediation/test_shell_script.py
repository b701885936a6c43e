"""Shell scripts, edited in place and run."""

import shlex

import pytest

from logtriage.errors import PatchError
from logtriage.model import Change, Remediation
from logtriage.remediation import propose_patch
from tests.remediation.tools import TRITON, patched, remediation, run_script, set_flag

SERVER = ["-m", "sglang.launch_server"]


def script(*lines: str) -> str:
    return "\n".join(["#!/usr/bin/env bash", "set -euo pipefail", *lines, ""])


def both(wanted: Remediation, text: str, *arguments: str) -> tuple[list[str], list[str]]:
    """What the server is started with before and after the patch."""
    after = patched(wanted, text, "run.sh")
    (before_call,), (after_call,) = run_script(text, *arguments), run_script(after, *arguments)
    return before_call, after_call


CONTINUED = script(
    "exec python3 -m sglang.launch_server \\",
    "    --model-path /m/next \\",
    "    --attention-backend flashinfer \\",
    "    --tp 8",
)
ARRAY = script(
    "ARGS=(",
    "  --model-path '/m/my model'  # don't ask",
    "  --attention-backend flashinfer",
    "  --tp 8",
    ")",
    'if [[ -n "${PORT:-}" ]]; then',
    '  ARGS+=(--port "$PORT")',
    "fi",
    'exec python3 -m sglang.launch_server "${ARGS[@]}"',
)


@pytest.mark.parametrize(
    "text",
    [
        CONTINUED,
        ARRAY,
        script("python3 -m sglang.launch_server --attention-backend=flashinfer --tp 8"),
        script('python3 -m sglang.launch_server "--attention-backend=flashinfer"'),
        script("python3 -m sglang.launch_server --attention-backend 'flashinfer' # 'quoted'"),
        script("python3 -m sglang.launch_server --attention-backend \"flash\"'infer'"),
        script("python3 -m sglang.launch_server --attention_backend flashinfer"),
        script("if ! python3 -m sglang.launch_server --attention-backend flashinfer; then exit 1; fi"),
        script("cd / && \\", "  nohup python3 -m sglang.launch_server --attention-backend flashinfer"),
        script("start() {", "  python3 -m sglang.launch_server --attention-backend flashinfer", "}", "start"),
        script("BACKEND=flashinfer", 'python3 -m sglang.launch_server --attention-backend "$BACKEND"'),
        script("B=flashinfer", "A=$B", "python3 -m sglang.launch_server --attention-backend=${A} --tp 8"),
        script('export B="flashinfer"', "python3 -m sglang.launch_server --attention-backend ${B:-fa3}"),
        script("python3 -m sglang.launch_server --attention-backend ${BACKEND:-flashinfer}"),
        script('B="${B:-flashinfer}"', 'python3 -m sglang.launch_server --attention-backend "${B}"'),
        script('EXTRA="--attention-backend flashinfer --tp 8"', "python3 -m sglang.launch_server $EXTRA"),
        script("E='--tp 8'", 'E="$E --attention-backend flashinfer"', "python3 -m sglang.launch_server $E"),
        script('CMD="python3 -m sglang.launch_server --attention-backend flashinfer"', "$CMD"),
        script("CMD=(python3 -m sglang.launch_server --attention-backend flashinfer)", '"${CMD[@]}"'),
        script('bash -c "exec python3 -m sglang.launch_server --attention-backend flashinfer"'),
        script("bash -c 'cd /; python3 -m sglang.launch_server \\", "  --attention-backend flashinfer'"),
        script("env A=1 python3 -m sglang.launch_server --attention-backend flashinfer >/dev/null 2>&1"),
        script("python3 -m sglang.launch_server 2>/dev/null --attention-backend flashinfer | cat"),
        script(
            "cat <<EOF >/dev/null", "--attention-backend flashinfer 'and", "EOF", *CONTINUED.split("\n")[2:]
        ),
        script(
            'echo "starting sglang.launch_server --attention-backend flashinfer"', *CONTINUED.split("\n")[2:]
        ),
        script("((1 << 2))", "case x in", "  x)", *CONTINUED.split("\n")[2:5], "    --x;;", "esac"),
    ],
)
def test_the_server_gets_the_new_value_and_everything_else_as_before(text: str) -> None:
    before, after = both(TRITON, text)
    swapped = [word.replace("flashinfer", "triton") for word in before]
    assert "flashinfer" in " ".join(before)
    assert after == swapped


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CONTINUED, CONTINUED.replace("    --tp 8\n", "    --tp 8 \\\n    --disable-radix-cache\n")),
        (
            script("python3 -m sglang.launch_server --tp 8 > log 2>&1 &", "wait"),
            script("python3 -m sglang.launch_server --tp 8 --disable-radix-cache > log 2>&1 &", "wait"),
        ),
        (
            script("python3 -m sglang.launch_server --tp 8  # eight"),
            script("python3 -m sglang.launch_server --tp 8 --disable-radix-cache  # eight"),
        ),
        (
            script('python3 -m sglang.launch_server "$@"'),
            script('python3 -m sglang.launch_server "$@" --disable-radix-cache'),
        ),
        (
            script("python3 -m sglang.launch_server \\", "  --tp 8 \\", "", "echo done"),
            script(
                "python3 -m sglang.launch_server \\",
                "  --tp 8 \\",
                "  --disable-radix-cache \\",
                "",
                "echo done",
            ),
        ),
        (
            script("bash -c 'python3 -m sglang.launch_server --tp 8' &", "wait"),
            script("bash -c 'python3 -m sglang.launch_server --tp 8 --disable-radix-cache' &", "wait"),
        ),
    ],
)
def test_a_new_flag_goes_to_the_end_of_the_arguments(text: str, expected: str) -> None:
    wanted = set_flag("--disable-radix-cache")
    assert patched(wanted, text, "run.sh") == expected
    before, after = both(wanted, text)
    assert after == [*before, "--disable-radix-cache"]


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        (CONTINUED, "    --attention-backend flashinfer \\\n"),
        (ARRAY, "\n  --attention-backend flashinfer"),
        (
            script("python3 -m sglang.launch_server --attention-backend=flashinfer --x"),
            " --attention-backend=flashinfer",
        ),
        (
            script('E="--attention-backend flashinfer --x"', "python3 -m sglang.launch_server $E"),
            "--attention-backend flashinfer ",
        ),
        (
            script("python3 -m sglang.launch_server --x \\", "  --attention-backend flashinfer"),
            " \\\n  --attention-backend flashinfer",
        ),
    ],
)
def test_a_flag_is_taken_out_with_its_value(text: str, gone: str) -> None:
    wanted = remediation(Change("remove-flag", "--attention-backend"))
    assert patched(wanted, text, "run.sh") == text.replace(gone, "")
    before, after = both(wanted, text)
    assert after == [w for w in before if "attention" not in w and w != "flashinfer"]


def test_another_spelling_is_replaced_by_the_right_one() -> None:
    wanted = remediation(
        Change("set-flag", "--reasoning-parser", "qwen3"), Change("remove-flag", "--reasoning_parser")
    )
    before, after = both(wanted, script("python3 -m sglang.launch_server --reasoning_parser qwen3 --tp 8"))
    assert before == [*SERVER, "--reasoning_parser", "qwen3", "--tp", "8"]
    assert after == [*SERVER, "--tp", "8", "--reasoning-parser", "qwen3"]


def test_line_breaks_of_windows_and_a_missing_last_one_are_kept() -> None:
    text = CONTINUED.rstrip("\n").replace("\n", "\r\n")
    wanted = remediation(*TRITON.changes, Change("set-flag", "--port", "1"), Change("set-env", "A", "b c"))
    after = patched(wanted, text, "run.sh")
    plain = CONTINUED.rstrip("\n").replace("flashinfer", "triton") + " \\\n    --port 1"
    plain = plain.replace("exec python3", "export A='b c'\nexec python3")
    assert after == plain.replace("\n", "\r\n")


@pytest.mark.parametrize(
    "value",
    ["a b", 'say "hi"', "it's", "$HOME", "`id`", "back\\slash", "a;b", "*", "", '{"a": [1]}', "größe", "!x"],
)
@pytest.mark.parametrize(
    "line",
    [
        "python3 -m sglang.launch_server --json old --tp 8",
        "python3 -m sglang.launch_server --json 'old' --tp 8",
        'python3 -m sglang.launch_server --json "old" --tp 8',
        "python3 -m sglang.launch_server --json=old --tp 8",
        "bash -c 'python3 -m sglang.launch_server --json old --tp 8'",
        'bash -c "python3 -m sglang.launch_server --json old --tp 8"',
        'J=old; python3 -m sglang.launch_server --json "$J" --tp 8',
        'A=(--json old); python3 -m sglang.launch_server "${A[@]}" --tp 8',
    ],
)
def test_any_value_arrives_as_it_is(value: str, line: str) -> None:
    before, after = both(set_flag("--json", value), script(line))
    assert after == [word.replace("old", value) for word in before]


def test_several_values_of_one_flag_are_changed_together() -> None:
    text = script("python3 -m sglang.launch_server --cuda-graph-bs 1 2 4 --tp 8")
    before, after = both(set_flag("--cuda-graph-bs", "1 8"), text)
    assert before == [*SERVER, "--cuda-graph-bs", "1", "2", "4", "--tp", "8"]
    assert after == [*SERVER, "--cuda-graph-bs", "1", "8", "--tp", "8"]


@pytest.mark.parametrize(
    ("present", "old", "adjust", "after"),
    [
        ("--mem-fraction-static 0.9", "0.9", -0.05, "--mem-fraction-static 0.85"),
        ("--mem-fraction-static 0.90", None, -0.05, "--mem-fraction-static 0.85"),
        ("--mem-fraction-static=0.7", "0.9", 0.1, "--mem-fraction-static=0.8"),
        ("--mem-fraction-static 0.1234567", None, -0.1, "--mem-fraction-static 0.0235"),
        # It was lowered already.
        ("--mem-fraction-static 0.85", "0.9", -0.05, "--mem-fraction-static 0.85"),
        ("--tp 8", "0.9", -0.05, "--tp 8 --mem-fraction-static 0.85"),
    ],
)
def test_a_number_is_adjusted_from_the_value_in_force(
    present: str, old: str | None, adjust: float, after: str
) -> None:
    wanted = remediation(Change("set-flag", "--mem-fraction-static", "lower", old=old, adjust=adjust))
    text = script(f"python3 -m sglang.launch_server {present}")
    assert propose_patch(wanted, text, "run.sh").after == script(f"python3 -m sglang.launch_server {after}")


def test_whole_numbers_stay_whole() -> None:
    wanted = remediation(Change("set-flag", "--chunked-prefill-size", "lower", adjust=-4096.0))
    text = script("python3 -m sglang.launch_server --chunked-prefill-size 8192")
    assert propose_patch(wanted, text, "run.sh").after == text.replace("8192", "4096")


@pytest.mark.parametrize(
    ("line", "change", "reason"),
    [
        (
            "--tp 8",
            Change("set-flag", "--mem-fraction-static", "lower", adjust=-0.1),
            "not given in this file",
        ),
        (
            "--mem-fraction-static auto",
            Change("set-flag", "--mem-fraction-static", "lower", adjust=-0.1),
            "is no number",
        ),
        (
            "--mem-fraction-static 0.1",
            Change("set-flag", "--mem-fraction-static", "lower", adjust=-0.1),
            "cannot be lowered",
        ),
        ("--mem-fraction-static 0.9", Change("set-flag", "--mem-fraction-static", "lower"), "how far"),
        ("--tp 8", Change("set-flag", "--attention-backend", "{backend}"), "does not say which value"),
        ("--tp 8", Change("set-flag", "--attention-backend", "a\nb"), "control characters"),
        ("--tp 8", Change("set-flag", "; rm -rf /", "x"), "not the name"),
        ("--tp 8", Change("set-env", "A B", "x"), "not the name"),
        (
            '--attention-backend "$1"',
            Change("set-flag", "--attention-backend", "triton"),
            "set outside this file",
        ),
        (
            "--attention-backend $(cat b)",
            Change("set-flag", "--attention-backend", "triton"),
            "set outside this file",
        ),
        (
            "--attention-backend ${B:-fa3}",
            Change("set-flag", "--attention-backend", "triton", old="fa4"),
            "not the default",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(line: str, change: Change, reason: str) -> None:
    with pytest.raises(PatchError, match=reason):
        propose_patch(remediation(change), script(f"python3 -m sglang.launch_server {line}"), "run.sh")


@pytest.mark.parametrize(
    ("lines", "reason", "line"),
    [
        (["python3 -m sglang.launch_server \\", "  # off", "  --attention-backend flashinfer"], "cut off", 5),
        (["python3 -m sglang.launch_server \\ ", "  --attention-backend flashinfer"], "cut off", 3),
        (["python3 -m sglang.launch_server 'x"], "not closed", 3),
        (["echo nothing here"], "no command in this file starts a server", None),
        (
            ["if a; then B=fa3; else B=fa4; fi", "python3 -m sglang.launch_server --attention-backend $B"],
            "assigned on lines 3, 3",
            4,
        ),
        (
            ["python3 -m sglang.launch_server --port 1 &", "python3 -m sglang.launch_server --port 2"],
            "several commands start a server",
            None,
        ),
        (
            [f"python3 -m sglang.launch_server --attention-backend {name} &" for name in ("fa3", "fa4")],
            "--attention-backend is flashinfer in none of them",
            3,
        ),
        (["CMD=(python3 -m sglang.launch_server", "# x", "'"], "not closed", 5),
    ],
)
def test_scripts_that_do_not_do_what_they_seem_to_are_refused(
    lines: list[str], reason: str, line: int | None
) -> None:
    with pytest.raises(PatchError) as refused:
        propose_patch(TRITON, script(*lines), "run.sh")
    assert reason in refused.value.reason
    assert refused.value.location is not None
    assert refused.value.location.key == (f"line {line}" if line else "$")


def test_of_two_branches_the_one_with_the_failing_value_is_changed() -> None:
    text = script(
        "if [ -e /x ]; then B=fa3; else B=flashinfer; fi",
        "python3 -m sglang.launch_server --attention-backend $B",
    )
    assert patched(TRITON, text, "run.sh") == text.replace("flashinfer", "triton")


def test_of_two_servers_the_one_with_the_failing_value_is_changed() -> None:
    text = script(
        "python3 -m sglang.launch_server --attention-backend fa3 --port 1 &",
        "python3 -m sglang.launch_server --attention-backend flashinfer --port 2",
    )
    assert patched(TRITON, text, "run.sh") == text.replace("flashinfer", "triton")


def test_the_caller_may_still_pass_the_flag() -> None:
    text = script('python3 -m sglang.launch_server --attention-backend flashinfer "$@"')
    patch = propose_patch(TRITON, text, "run.sh")
    assert any("the caller" in step for step in patch.steps)
    assert run_script(patch.after, "--tp", "8")[0][2:] == ["--attention-backend", "triton", "--tp", "8"]


def test_a_default_that_is_changed_is_pointed_out() -> None:
    text = script("python3 -m sglang.launch_server --attention-backend ${BACKEND:-flashinfer}")
    patch = propose_patch(TRITON, text, "run.sh")
    assert patch.steps[0].startswith("check that nothing else sets ${BACKEND:-triton}")


def test_quotes_inside_quotes_survive_a_removal() -> None:
    inner = "python3 -m sglang.launch_server --model-path '/m/a b' --attention-backend 'x' --tp 8"
    text = script(f"bash -c {shlex.quote(inner)}")
    before, after = both(remediation(Change("remove-flag", "--attention-backend")), text)
    assert before == [*SERVER, "--model-path", "/m/a b", "--attention-backend", "x", "--tp", "8"]
    assert after == [*SERVER, "--model-path", "/m/a b", "--tp", "8"]
