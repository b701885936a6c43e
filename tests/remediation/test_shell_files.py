"""Variables in shell scripts, and which files are taken for scripts."""

import pytest

from logtriage.errors import PatchError
from logtriage.model import Change
from logtriage.remediation import propose_patch
from logtriage.remediation.diff import unified_diff
from tests.remediation.test_shell_script import CONTINUED, SERVER, script
from tests.remediation.tools import TRITON, calls_of, patched, remediation, set_flag
from tests.steps import executed_lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            script("exec python3 -m \\", "  sglang.launch_server"),
            script("export A='1 2'", "exec python3 -m \\", "  sglang.launch_server"),
        ),
        (
            script("  export A=0", "python3 -m sglang.launch_server"),
            script("  export A='1 2'", "python3 -m sglang.launch_server"),
        ),
        (
            script("A=0", "export A", "python3 -m sglang.launch_server"),
            script("A='1 2'", "export A", "python3 -m sglang.launch_server"),
        ),
        (script('A="0" python3 -m sglang.launch_server'), script('A="1 2" python3 -m sglang.launch_server')),
        (
            script("if true; then python3 -m sglang.launch_server; fi"),
            script("if true; then A='1 2' python3 -m sglang.launch_server; fi"),
        ),
        (
            script("f() {", "    python3 -m sglang.launch_server", "}", "f"),
            script("f() {", "    export A='1 2'", "    python3 -m sglang.launch_server", "}", "f"),
        ),
        (
            script("cd / && \\", "  python3 -m sglang.launch_server"),
            script("cd / && \\", "  A='1 2' python3 -m sglang.launch_server"),
        ),
        (
            script("C=(python3 -m sglang.launch_server)", '"${C[@]}"'),
            script("C=(env A='1 2' python3 -m sglang.launch_server)", '"${C[@]}"'),
        ),
    ],
)
def test_a_variable_reaches_the_server(text: str, expected: str) -> None:
    assert patched(remediation(Change("set-env", "A", "1 2")), text, "run.sh") == expected
    assert calls_of(expected) == [[*SERVER, "A=1 2"]]


def test_a_variable_that_is_not_exported_is_not_the_servers() -> None:
    text = script("A=0", "python3 -m sglang.launch_server")
    expected = script("A=0", "export A=1", "python3 -m sglang.launch_server")
    assert patched(remediation(Change("set-env", "A", "1")), text, "run.sh") == expected


def test_a_container_gets_its_variables_by_option() -> None:
    text = script("docker run --gpus all -e A=1 lmsysorg/sglang python3 -m sglang.launch_server --tp 8")
    wanted = remediation(Change("set-env", "A", "2"), Change("set-env", "B", "x y"))
    expected = text.replace("run --gpus all -e A=1", "run -e B='x y' --gpus all -e A=2")
    assert patched(wanted, text, "run.sh") == expected
    assert patched(remediation(Change("unset-env", "A")), text, "run.sh") == text.replace(" -e A=1", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (script("export A=1  ", "sglang serve"), script("sglang serve")),
        (script("export A=1  # why", "sglang serve"), script("unset A  # why", "sglang serve")),
        (script("export A=1 B=2", "sglang serve"), script("export B=2", "sglang serve")),
        (script("A=1 sglang serve"), script("sglang serve")),
        (script("A=1 \\", "  sglang serve"), script("sglang serve")),
        (script("cd /; export A=1; sglang serve"), script("cd /; unset A; sglang serve")),
        (script("sglang serve"), script("sglang serve")),
    ],
)
def test_a_variable_is_taken_away(text: str, expected: str) -> None:
    assert patched(remediation(Change("unset-env", "A")), text, "run.sh") == expected


def test_a_path_that_is_put_together_is_not_overwritten() -> None:
    text = script("export LD_LIBRARY_PATH=/cuda:$LD_LIBRARY_PATH", "sglang serve")
    with pytest.raises(PatchError, match="put together"):
        propose_patch(remediation(Change("set-env", "LD_LIBRARY_PATH", "/x")), text, "run.sh")


def test_a_file_of_assignments_is_patched_too() -> None:
    text = 'MODEL=/m/x\nSGLANG_ARGS="--tp 8 --attention-backend flashinfer"\n'
    patch = propose_patch(TRITON, text, "/etc/default/sglang")
    assert (patch.kind, patch.after) == ("shell-script", text.replace("flashinfer", "triton"))
    wanted = set_flag("--port", "1")
    assert patched(wanted, text, "/etc/default/sglang") == text.replace('infer"', 'infer --port 1"')


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("compose.yaml", "services:\n  llm:\n    command: python3 -m sglang.launch_server --tp 8\n"),
        ("pod.json", '{"args": ["python3 -m sglang.launch_server --tp 8"]}\n'),
        ("Dockerfile", "FROM lmsysorg/sglang\nCMD python3 -m sglang.launch_server --tp 8\n"),
        (
            "start.py",
            "#!/usr/bin/env python3\nimport os\nos.system('python3 -m sglang.launch_server --tp 8')\n",
        ),
        ("notes", "Remember the milk.\n"),
        ("notes", "Then start python3 -m sglang.launch_server --tp 8 and wait.\n"),
        (
            "status",
            "  Process: 551 ExecStart=/usr/bin/python3 -m sglang.launch_server --tp 8 (code=killed)\n",
        ),
        ("torn", "sglang serve 'x\n"),
        ("empty", ""),
    ],
)
def test_files_of_other_sorts_are_not_taken_for_scripts(path: str, text: str) -> None:
    with pytest.raises(PatchError, match="no file of a known sort"):
        propose_patch(TRITON, text, path)


def test_a_remediation_that_no_file_can_hold_says_so() -> None:
    wanted = remediation(Change("install", "flashinfer-python"), title="Install flashinfer")
    with pytest.raises(PatchError, match=r"no file can hold .*: Install flashinfer"):
        propose_patch(wanted, CONTINUED, "run.sh")


def test_the_sort_of_file_can_be_named() -> None:
    assert propose_patch(TRITON, CONTINUED, "x", target="shell-script").after == patched(
        TRITON, CONTINUED, "x"
    )
    with pytest.raises(PatchError, match="no sort of file called 'perl'"):
        propose_patch(TRITON, CONTINUED, "x", target="perl")


@pytest.mark.parametrize("text", ["#!/bin/sh\nsglang serve \0\n", "#!/bin/sh\n" + "x\n" * 600_000])
def test_what_is_no_launch_file_at_all_is_refused(text: str) -> None:
    with pytest.raises(PatchError, match=r"not text|too long"):
        propose_patch(TRITON, text, "run.sh")


def test_a_script_is_known_by_its_command_alone() -> None:
    text = "export A=1\nnohup python3 -m sglang.launch_server --attention-backend flashinfer &\n"
    assert propose_patch(TRITON, text, "notes").after == text.replace("flashinfer", "triton")


def test_the_only_program_with_options_is_taken_for_the_server() -> None:
    text = script("echo hello --x", "python3 serve_llm.py --attention-backend flashinfer --tp 8")
    assert patched(TRITON, text, "run.sh") == text.replace("flashinfer", "triton")
    two = script("python3 prepare.py --x", "python3 serve_llm.py --tp 8")
    with pytest.raises(PatchError, match="no command in this file starts a server"):
        propose_patch(TRITON, two, "run.sh")


def test_a_variable_goes_to_the_end_of_a_file_of_assignments() -> None:
    wanted = remediation(Change("set-env", "B", "x y"))
    assert patched(wanted, "A=1", "llm.env") == "A=1\nB='x y'\n"
    assert patched(wanted, "A=1\n", "llm.env") == "A=1\nB='x y'\n"
    with pytest.raises(PatchError, match="no command in this file starts a server"):
        propose_patch(wanted, script("ls"), "run.sh")


def of_like_lines(count: int) -> str:
    server = "python3 -m sglang.launch_server --attention-backend flashinfer"
    return script(*["A=$A"] * count, server, *["A=1"] * count)


def test_long_files_of_like_lines_are_patched_and_compared() -> None:
    patch = propose_patch(TRITON, of_like_lines(5_000), "run.sh")
    assert len(unified_diff(patch).splitlines()) == 11


def test_the_cost_of_a_patch_grows_as_the_file_does() -> None:
    def cost(count: int) -> int:
        text = of_like_lines(count)
        return executed_lines(lambda: unified_diff(propose_patch(TRITON, text, "run.sh")))

    few, many = map(cost, (50, 200))
    assert many < 5 * few  # linear is 4, the square would be 16


def test_every_export_of_a_shell_counts() -> None:
    for line in ("set -a; A=0", "set -o allexport; A=0", "declare -x A=0", "A=0; export A", "export A=0"):
        text = script(line, "python3 -m sglang.launch_server")
        assert patched(remediation(Change("set-env", "A", "1")), text, "run.sh") == text.replace("A=0", "A=1")
        assert calls_of(text) == [[*SERVER, "A=0"]]
    text = script("docker run --env=A=0 lmsysorg/sglang python3 -m sglang.launch_server")
    assert patched(remediation(Change("set-env", "A", "1")), text, "run.sh") == text.replace("A=0", "A=1")


def test_other_servers_are_known_too() -> None:
    for server in (
        "vllm serve m",
        "trtllm-serve m",
        "/opt/x/bin/sglang serve",
        "python3 /srv/launch_server.py",
    ):
        text = script(f"{server} --attention-backend flashinfer", "other --attention-backend flashinfer")
        assert patched(TRITON, text, "run.sh") == text.replace("flashinfer", "triton", 1)
