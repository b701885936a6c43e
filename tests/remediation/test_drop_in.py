"""Drop-ins: the unit stays as it is."""

import shutil
import subprocess
from pathlib import Path

import pytest

from logtriage.errors import PatchError
from logtriage.model import Change
from logtriage.remediation import drop_in, propose_patch
from logtriage.remediation.diff import unified_diff
from tests.remediation.test_systemd_unit import UNIT
from tests.remediation.tools import TRITON, applied, remediation, systemd_commands

PATH = "/etc/systemd/system/llm.service"
DROP_IN = f"{PATH}.d/50-logtriage.conf"
CONTENT = """\
[Service]
ExecStart=
ExecStart=/opt/llm/bin/python -m sglang.launch_server \\
  --model-path /srv/models/next-80b \\
  --attention-backend triton \\
  --tp 8
"""


def test_it_resets_the_command_and_gives_all_of_it() -> None:
    patch = drop_in(TRITON, UNIT, PATH)
    assert (patch.path, patch.before, patch.after, patch.creates) == (DROP_IN, "", CONTENT, True)
    assert patch.kind == "systemd-drop-in"
    assert patch == propose_patch(TRITON, UNIT, PATH, target="systemd-drop-in")


def test_its_diff_makes_a_new_file() -> None:
    diff = unified_diff(drop_in(TRITON, UNIT, PATH))
    assert diff.startswith(f"--- /dev/null\n+++ b{DROP_IN}\n@@ -0,0 +1,6 @@\n+[Service]\n+ExecStart=\n")
    assert applied(drop_in(TRITON, UNIT, PATH), "git") == CONTENT
    assert applied(drop_in(TRITON, UNIT, PATH), "patch") == CONTENT


def test_systemd_runs_the_new_command_and_only_that() -> None:
    commands = systemd_commands(("llm.service", UNIT), ("llm.service.d/50-logtriage.conf", CONTENT))
    argv = "/opt/llm/bin/python -m sglang.launch_server --model-path /srv/models/next-80b"
    assert commands in (None, [[*argv.split(), "--attention-backend", "triton", "--tp", "8"]])


def test_systemd_verifies_the_unit_with_it(tmp_path: Path) -> None:
    unit = UNIT.replace("/opt/llm/bin/python", "/bin/true").replace("User=llm\n", "")
    content = drop_in(TRITON, unit, "llm.service").after
    (tmp_path / "llm.service.d").mkdir()
    (tmp_path / "llm.service").write_text(unit)
    (tmp_path / "llm.service.d" / "50-logtriage.conf").write_text(content)
    assert content == CONTENT.replace("/opt/llm/bin/python", "/bin/true")
    if shutil.which("systemd-analyze"):
        command = ["systemd-analyze", "verify", str(tmp_path / "llm.service")]
        done = subprocess.run(command, capture_output=True, check=False)
        assert (done.returncode, done.stderr.decode()) == (0, "")


def test_variables_need_no_command() -> None:
    wanted = remediation(
        Change("set-env", "NCCL_P2P_DISABLE", "1"),
        Change("set-env", "HF_HOME", "/x y"),
        Change("unset-env", "NCCL_DEBUG"),
    )
    assert drop_in(wanted, UNIT, PATH).after == (
        '[Service]\nEnvironment="HF_HOME=/x y"\nEnvironment=NCCL_P2P_DISABLE=1\nUnsetEnvironment=NCCL_DEBUG\n'
    )


def test_arguments_from_a_variable_change_only_that() -> None:
    text = '[Service]\nEnvironment="ARGS=--attention-backend flashinfer"\nExecStart=sglang serve $ARGS\n'
    assert drop_in(TRITON, text, PATH).after == '[Service]\nEnvironment="ARGS=--attention-backend triton"\n'


def test_a_unit_that_says_so_already_needs_none() -> None:
    patch = drop_in(TRITON, UNIT.replace("flashinfer", "triton"), PATH)
    assert patch.before == patch.after
    assert unified_diff(patch) == ""


def test_line_breaks_of_windows_do_not_get_into_it() -> None:
    assert drop_in(TRITON, UNIT.replace("\n", "\r\n"), PATH).after == CONTENT


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("deploy/llm.service", "deploy/llm.service.d/50-logtriage.conf"),
        ("/usr/lib/systemd/system/llm.service", DROP_IN),
        ("/lib/systemd/user/llm.service", "/etc/systemd/user/llm.service.d/50-logtriage.conf"),
        ("/etc/systemd/system/llm.service.d/override.conf", DROP_IN),
        ("/run/systemd/system/llm@.service", "/run/systemd/system/llm@.service.d/50-logtriage.conf"),
    ],
)
def test_it_goes_beside_the_unit_but_never_into_the_folders_of_vendors(path: str, expected: str) -> None:
    assert drop_in(TRITON, UNIT, path).path == expected


def test_it_comes_after_the_drop_ins_there_are() -> None:
    override = "[Service]\nExecStart=\nExecStart=sglang serve --attention-backend flashinfer\n"
    text = f"# {PATH}\n{UNIT}\n# {PATH}.d/override.conf\n{override}"
    patch = drop_in(TRITON, text, "-")
    assert patch.path == f"{PATH}.d/zz-logtriage.conf"
    assert patch.after == override.replace("flashinfer", "triton")


def test_only_a_unit_can_have_one() -> None:
    with pytest.raises(PatchError, match="only a systemd unit"):
        drop_in(TRITON, "#!/bin/sh\nsglang serve\n", "run.sh")
