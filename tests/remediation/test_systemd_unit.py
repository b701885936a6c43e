"""Units of systemd, edited in place."""

import pytest

from logtriage.errors import PatchError
from logtriage.model import Change
from logtriage.remediation import propose_patch
from tests.remediation.tools import TRITON, patched, remediation, run_script, set_flag, systemd_commands

UNIT = """\
[Unit]
Description=Inference
After=network-online.target

[Service]
User=llm
Environment=HF_HOME=/srv/hf
Environment="NCCL_DEBUG=INFO" CUDA_LAUNCH_BLOCKING=1
ExecStart=/opt/llm/bin/python -m sglang.launch_server \\
  --model-path /srv/models/next-80b \\
  --attention-backend flashinfer \\
  --tp 8
Restart=always

[Install]
WantedBy=multi-user.target
"""


def unit(command: str, *more: str) -> str:
    return "\n".join(["[Service]", *more, f"ExecStart={command}", "Restart=always", ""])


def test_only_the_value_changes() -> None:
    expected = UNIT.replace("--attention-backend flashinfer", "--attention-backend triton")
    assert patched(TRITON, UNIT) == expected


def test_systemd_reads_the_new_command_as_meant() -> None:
    commands = systemd_commands(("llm.service", patched(TRITON, UNIT)))
    argv = "/opt/llm/bin/python -m sglang.launch_server --model-path /srv/models/next-80b"
    assert commands in (None, [[*argv.split(), "--attention-backend", "triton", "--tp", "8"]])


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("sglang serve --attention-backend flashinfer", "sglang serve --attention-backend triton"),
        ("sglang serve --attention-backend=flashinfer --x", "sglang serve --attention-backend=triton --x"),
        ('sglang serve --attention-backend="flashinfer"', 'sglang serve --attention-backend="triton"'),
        ("sglang serve '--attention-backend=flashinfer'", "sglang serve '--attention-backend=triton'"),
        ("sglang serve --attention-backend 'flashinfer'", "sglang serve --attention-backend 'triton'"),
        ("sglang serve --attention_backend flashinfer", "sglang serve --attention_backend triton"),
        (
            "sglang serve --attention-backend fa3 --attention-backend flashinfer",
            "sglang serve --attention-backend triton --attention-backend triton",
        ),
        ("sglang serve --tp 8", "sglang serve --tp 8 --attention-backend triton"),
        ("sglang serve --attention-backend", "sglang serve --attention-backend triton"),
        ("-@:/bin/sglang me serve", None),
        (":/bin/sglang serve", ":/bin/sglang serve --attention-backend triton"),
        (
            "/bin/bash -c 'exec sglang serve --attention-backend flashinfer >>/tmp/o 2>&1'",
            "/bin/bash -c 'exec sglang serve --attention-backend triton >>/tmp/o 2>&1'",
        ),
        (
            '/bin/bash -lc "source v/activate && sglang serve --tp 8 | tee log"',
            '/bin/bash -lc "source v/activate && sglang serve --tp 8 --attention-backend triton | tee log"',
        ),
        (
            "/usr/bin/docker run --gpus all lmsysorg/sglang:v0.5.9 python3 -m sglang.launch_server --tp 8",
            "/usr/bin/docker run --gpus all lmsysorg/sglang:v0.5.9 python3 -m sglang.launch_server --tp 8"
            " --attention-backend triton",
        ),
        (
            "numactl -l python -m vllm.entrypoints.openai.api_server --attention-backend flashinfer",
            "numactl -l python -m vllm.entrypoints.openai.api_server --attention-backend triton",
        ),
        # No known server: the only command is the one.
        ("/srv/start-llm --attention-backend flashinfer", "/srv/start-llm --attention-backend triton"),
        ("/srv/start-llm", "/srv/start-llm --attention-backend triton"),
    ],
)
def test_every_way_to_write_it(command: str, expected: str | None) -> None:
    after = patched(TRITON, unit(command))
    assert after == unit(expected if expected is not None else f"{command} --attention-backend triton")


def test_a_comment_inside_the_command_stays_where_it_is() -> None:
    text = unit(
        "sglang serve \\\n  --tp 8 \\\n# flashinfer was faster\n  ; or so\n"
        "  --attention-backend flashinfer \\\n  --port 1"
    )
    assert patched(TRITON, text) == text.replace("backend flashinfer", "backend triton")
    removed = patched(remediation(Change("remove-flag", "--attention-backend")), text)
    assert removed == text.replace("  --attention-backend flashinfer \\\n", "")


def test_removing_the_last_flag_takes_the_backslash_before_it() -> None:
    wanted = remediation(Change("remove-flag", "--tensor-parallel-size"))
    assert patched(wanted, UNIT) == UNIT.replace(" \\\n  --tp 8", "")
    commented = unit("sglang serve \\\n  --port 1 \\\n  # eight of them\n  --tp 8")
    assert patched(wanted, commented) == unit("sglang serve \\\n  --port 1\n  # eight of them")


def test_a_new_flag_gets_a_line_of_its_own_where_the_others_have_one() -> None:
    wanted = set_flag("--disable-custom-all-reduce")
    assert patched(wanted, UNIT) == UNIT.replace("  --tp 8\n", "  --tp 8 \\\n  --disable-custom-all-reduce\n")


def test_an_empty_command_takes_back_those_before_it() -> None:
    text = (
        "[Service]\nExecStart=sglang serve --attention-backend flashinfer\n"
        "ExecStart=\nExecStart=sglang serve --attention-backend flashinfer --tp 4\n"
    )
    assert patched(TRITON, text) == text.replace("flashinfer --tp 4", "triton --tp 4")


def test_only_the_section_of_the_service_counts() -> None:
    text = "[X-Note]\nExecStart=sglang serve --attention-backend flashinfer\n" + unit("sglang serve --tp 8")
    assert patched(TRITON, text) == text.replace("--tp 8", "--tp 8 --attention-backend triton")


@pytest.mark.parametrize("end", ["\n", ""])
def test_line_breaks_of_windows_are_kept(end: str) -> None:
    text = (UNIT.rstrip("\n") + end).replace("\n", "\r\n")
    wanted = remediation(
        Change("set-flag", "--attention-backend", "triton"),
        Change("set-flag", "--port", "9"),
        Change("set-env", "NCCL_P2P_DISABLE", "1"),
    )
    plain = (UNIT.rstrip("\n") + end).replace("flashinfer", "triton")
    plain = plain.replace("  --tp 8\n", "  --tp 8 \\\n  --port 9\n")
    plain = plain.replace("BLOCKING=1\n", "BLOCKING=1\nEnvironment=NCCL_P2P_DISABLE=1\n")
    assert patched(wanted, text) == plain.replace("\n", "\r\n")


def test_a_value_in_a_variable_is_changed_there() -> None:
    text = unit("sglang serve --attention-backend ${BACKEND} --tp 8", "Environment=BACKEND=flashinfer TP=8")
    assert patched(TRITON, text) == text.replace("BACKEND=flashinfer", "BACKEND=triton")


def test_arguments_in_a_variable_are_changed_there() -> None:
    text = unit("sglang serve $ARGS --tp 8", 'Environment="ARGS=--attention-backend flashinfer --port 1"')
    assert patched(TRITON, text) == text.replace("flashinfer", "triton")
    removed = patched(remediation(Change("remove-flag", "--attention-backend")), text)
    assert removed == text.replace("--attention-backend flashinfer ", "")


def test_a_wrapped_command_with_a_variable_of_the_unit() -> None:
    text = unit(
        "/bin/sh -c 'exec sglang serve --attention-backend \"$$BACKEND\"'", "Environment=BACKEND=flashinfer"
    )
    assert patched(TRITON, text) == text.replace("=flashinfer", "=triton")


@pytest.mark.parametrize(
    ("command", "more", "reason"),
    [
        ("sglang serve --attention-backend ${BACKEND}", [], "set outside this file"),
        (
            "sglang serve --attention-backend $BACKEND",
            ["EnvironmentFile=-/etc/default/llm"],
            "/etc/default/llm",
        ),
        (
            "sglang serve --attention-backend ${BACKEND}",
            ["Environment=BACKEND=fa3", "Environment=BACKEND=fa4"],
            "assigned on lines 2, 3",
        ),
        ("sglang serve --attention-backend flash${REST}", ["Environment=REST=infer"], "put together"),
        (
            "sglang serve --attention-backend ${B} --decode-attention-backend ${B}",
            ["Environment=B=flashinfer"],
            "--decode-attention-backend",
        ),
        (
            "sglang serve --attention-backend ${B} --x ${B}",
            ["Environment=B=flashinfer"],
            "without changing --x",
        ),
        ("sglang serve \\ \n  --attention-backend flashinfer", [], "a blank follows the backslash"),
        ('sglang serve --model "a --attention-backend flashinfer', [], "not closed"),
        (
            "sglang serve --attention-backend flashinfer --prefill-attention-backend flashinfer",
            [],
            "--prefill-attention-backend is flashinfer too",
        ),
    ],
)
def test_what_cannot_be_changed_safely_is_refused_with_its_line(
    command: str, more: list[str], reason: str
) -> None:
    with pytest.raises(PatchError) as refused:
        propose_patch(TRITON, unit(command, *more), "llm.service")
    assert reason in refused.value.reason
    assert refused.value.location is not None
    assert str(refused.value.location.path) == "llm.service"
    assert str(refused.value.location.key) == f"line {len(more) + 2}"


def test_a_sibling_with_another_value_is_mentioned_and_one_that_changes_too_is_fine() -> None:
    text = unit("sglang serve --attention-backend flashinfer --decode-attention-backend fa3")
    patch = propose_patch(TRITON, text, "llm.service")
    assert patch.after == text.replace("flashinfer", "triton")
    assert any("--decode-attention-backend fa3 stays" in step for step in patch.steps)
    text = unit("sglang serve --attention-backend flashinfer --decode-attention-backend flashinfer")
    both = remediation(
        Change("set-flag", "--attention-backend", "triton", old="flashinfer"),
        Change("set-flag", "--decode-attention-backend", "triton", old="flashinfer"),
    )
    assert patched(both, text) == text.replace("flashinfer", "triton")


@pytest.mark.parametrize(
    "value",
    ["a b", 'say "hi"', "it's", "50%", "$HOME", "back\\slash", "a;b", ";", "", '{"a": [1, 2]}', "größe"],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_any_value_arrives_as_it_is(value: str, wrapped: bool) -> None:
    command = "/bin/bash -c 'exec sglang serve --port 1'" if wrapped else "/bin/sglang serve --port 1"
    after = patched(set_flag("--json", value), unit(command))
    assert after.startswith(unit(command).split("1", 1)[0])
    for argv in systemd_commands(("llm.service", after)) or ():
        seen = run_script(argv[2], programs=("sglang",))[0] if wrapped else argv[1:]
        assert seen == ["serve", "--port", "1", "--json", value]


def test_variables_are_set_where_they_stand_or_behind_the_others() -> None:
    wanted = remediation(
        Change("set-env", "CUDA_LAUNCH_BLOCKING", "0"),
        Change("set-env", "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        Change("set-env", "NOTE", "50% of it"),
    )
    expected = UNIT.replace(
        "CUDA_LAUNCH_BLOCKING=1\n",
        "CUDA_LAUNCH_BLOCKING=0\nEnvironment=PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n"
        'Environment="NOTE=50%% of it"\n',
    )
    assert patched(wanted, UNIT) == expected


def test_a_first_variable_comes_before_the_command() -> None:
    wanted = remediation(Change("set-env", "A", "1"))
    assert patched(wanted, unit("sglang serve")) == unit("sglang serve", "Environment=A=1")
    assert patched(wanted, "[Unit]\n[Service]\n") == "[Unit]\n[Service]\nEnvironment=A=1\n"
    assert patched(wanted, "[Service]\nEnvironment=B=2") == "[Service]\nEnvironment=B=2\nEnvironment=A=1"


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("HF_HOME", "Environment=HF_HOME=/srv/hf\n", ""),
        ("NCCL_DEBUG", '"NCCL_DEBUG=INFO" ', ""),
        ("CUDA_LAUNCH_BLOCKING", " CUDA_LAUNCH_BLOCKING=1", ""),
        ("NOT_THERE", "", ""),
    ],
)
def test_variables_are_taken_out(name: str, before: str, after: str) -> None:
    assert patched(remediation(Change("unset-env", name)), UNIT) == UNIT.replace(before, after, 1)


def test_variables_given_on_the_command_line_count() -> None:
    text = unit("/usr/bin/env NCCL_DEBUG=INFO A=1 sglang serve --tp 8")
    wanted = remediation(Change("set-env", "NCCL_DEBUG", "WARN"), Change("unset-env", "A"))
    assert patched(wanted, text) == unit("/usr/bin/env NCCL_DEBUG=WARN sglang serve --tp 8")


def test_all_changes_are_made_together_and_the_others_left_to_the_person() -> None:
    wanted = remediation(
        Change("require-version", "sglang", ">=0.5.10"),
        Change("set-flag", "--chunked-prefill-size", "2048"),
        Change("remove-flag", "--attention-backend"),
        Change("set-env", "HF_HOME", "/mnt/hf"),
        Change("unset-env", "NCCL_DEBUG"),
    )
    expected = (
        UNIT.replace("  --attention-backend flashinfer \\\n", "")
        .replace("  --tp 8\n", "  --tp 8 \\\n  --chunked-prefill-size 2048\n")
        .replace("/srv/hf", "/mnt/hf")
        .replace('"NCCL_DEBUG=INFO" ', "")
    )
    assert patched(wanted, UNIT) == expected


def test_the_steps_name_the_unit() -> None:
    patch = propose_patch(TRITON, UNIT, "/etc/systemd/system/llm@.service")
    assert [step.split("  #")[0] for step in patch.steps] == [
        "systemctl daemon-reload",
        "systemctl reset-failed llm@INSTANCE.service",
        "systemctl restart llm@INSTANCE.service",
        "journalctl -fu llm@INSTANCE.service",
    ]
    user = propose_patch(TRITON, UNIT, "/home/me/.config/systemd/user/llm.service")
    assert user.steps[0] == "systemctl --user daemon-reload"


def test_of_what_systemctl_cat_prints_only_the_file_that_counts_is_patched() -> None:
    override = "[Service]\nExecStart=\nExecStart=sglang serve --attention-backend flashinfer --tp 4\n"
    text = (
        f"# /usr/lib/systemd/system/llm.service\n{UNIT}\n"
        f"# /etc/systemd/system/llm.service.d/override.conf\n{override}"
    )
    patch = propose_patch(TRITON, text, "cat.txt")
    assert patch.path == "/etc/systemd/system/llm.service.d/override.conf"
    assert patch.before == override
    assert patch.after == override.replace("flashinfer", "triton")
    assert "systemctl restart llm.service" in patch.steps
    first = propose_patch(remediation(Change("set-env", "HF_HOME", "/x")), text, "cat.txt")
    assert (first.path, first.before) == ("/usr/lib/systemd/system/llm.service", UNIT)
    spread = remediation(Change("set-env", "HF_HOME", "/x"), *TRITON.changes)
    with pytest.raises(PatchError, match="make a drop-in instead"):
        propose_patch(spread, text, "cat.txt")


def test_an_environment_file_may_still_win() -> None:
    text = unit("sglang serve", "EnvironmentFile=/etc/default/llm")
    patch = propose_patch(remediation(Change("set-env", "A", "1")), text, "llm.service")
    assert patch.steps[0] == "check that /etc/default/llm does not set A, which would win"


def test_a_program_nobody_knows_has_to_hand_the_flag_on() -> None:
    patch = propose_patch(TRITON, unit("/srv/start-llm --tp 8"), "llm.service")
    assert patch.steps[0] == "check that /srv/start-llm hands --attention-backend on to the server"


def test_the_likeliest_command_of_a_shell_is_the_server() -> None:
    text = unit("/bin/bash -c 'cd /srv; exec python3 serve_llm.py --tp 8'")
    assert patched(TRITON, text) == text.replace("--tp 8", "--tp 8 --attention-backend triton")


@pytest.mark.parametrize("command", ["/bin/sh -c 'exit 1'", "/bin/bash -c true"])
def test_a_shell_that_starts_nothing_is_refused(command: str) -> None:
    with pytest.raises(PatchError, match="no command in this file starts a server"):
        propose_patch(TRITON, unit(command), "llm.service")


def test_a_file_without_a_service_cannot_hold_a_variable() -> None:
    with pytest.raises(PatchError, match=r"no section \[Service\]"):
        propose_patch(remediation(Change("set-env", "A", "1")), "ExecStart=sglang serve\n", "llm.service")


def test_more_servers_than_anybody_starts_are_refused() -> None:
    text = "[Service]\n" + "ExecStart=sglang serve --attention-backend flashinfer\n" * 40
    with pytest.raises(PatchError, match="40 commands in this file start a server"):
        propose_patch(TRITON, text, "llm.service")


def test_an_empty_environment_takes_back_those_before_it() -> None:
    text = unit("sglang serve", "Environment=A=0", "Environment=", "Environment=B=1")
    assert patched(remediation(Change("set-env", "A", "1")), text) == text.replace(
        "Environment=B=1\n", "Environment=B=1\nEnvironment=A=1\n"
    )
