"""The founding crash: one flag carried over from another model's unit, six starts, six crashes.

The truth is the recording's own: each worker noted beside the journal what it had printed, and systemctl was asked
while it happened.
"""

from __future__ import annotations

import json
import lzma
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

import logtriage

FOUNDING: Final = Path(__file__).parent.parent / "fixtures" / "founding"
TRUTH: Final[dict[str, Any]] = json.loads((FOUNDING / "case.json").read_text())
UNIT: Final = FOUNDING / "sglang-qwen35.service"
FORMS: Final = ("journal.short.txt", "journal.json", "journal.export")


def answer(form: str) -> logtriage.Diagnosis:
    report = logtriage.triage(FOUNDING / form)
    assert report.headline is not None
    return report.diagnoses[report.headline]


@pytest.mark.parametrize("form", FORMS)
def test_the_root_is_the_assertion_on_the_first_rank_that_printed(form: str) -> None:
    found = answer(form)
    root = found.verdict.root
    assert isinstance(root, logtriage.model.Traceback)
    assert root.chain[-1].type == TRUTH["root"]["type"]
    assert TRUTH["root"]["message_contains"] in root.message
    assert root.process.label == TRUTH["root"]["process"] == TRUTH["printed"][0][0]
    assert root.chain[-1].frames[-1].function == "attn_backend_wrapper"
    assert found.verdict.root_role == "initiating"
    assert found.incident.phase == TRUTH["root"]["phase"]


@pytest.mark.parametrize("form", FORMS)
def test_the_other_ranks_that_printed_are_observers(form: str) -> None:
    observers = [f.event.process.label for f in answer(form).verdict.findings if f.role == "observer"]
    assert observers == TRUTH["printed"][0][1:]


@pytest.mark.parametrize("form", FORMS)
def test_six_crashes_are_one_diagnosis_of_a_unit_that_systemd_calls_activating(form: str) -> None:
    report = logtriage.triage(FOUNDING / form)
    found = answer(form)
    assert len(report.diagnoses) == 1  # the previous model's unit served and was stopped
    assert found.repeats == TRUTH["repeats"] == 6
    assert found.incident.invocation.restarts == TRUTH["restarts"] == 5
    assert found.incident.invocation.state == TRUTH["state"] == "activating"
    assert found.incident.invocation.unit == UNIT.name


@pytest.mark.parametrize("form", FORMS)
def test_the_signature_and_its_fix_are_certain(form: str) -> None:
    found = answer(form)
    assert found.match is not None
    assert found.match.signature.id == "sglang.attention.hybrid-gdn-on-blackwell"
    assert found.confidence == "certain"
    (change,) = found.remediations[0].changes
    assert (change.op, change.name) == ("set-flag", "--attention-backend")
    assert (change.old, change.value) == ("flashinfer", "triton")
    assert {change.name: change.value} == TRUTH["fix"]["changes"]


def test_all_forms_of_the_journal_have_one_fingerprint() -> None:
    assert len({answer(form).fingerprint for form in FORMS}) == 1


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "logtriage", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


@pytest.fixture
def patch(tmp_path: Path) -> Path:
    done = run(str(FOUNDING / "journal.short.txt"), "--patch", UNIT.name, cwd=tmp_path_with_unit(tmp_path))
    assert done.returncode == 1, done.stderr
    assert "hybrid-gdn-on-blackwell" in done.stderr
    (tmp_path / "fix.patch").write_text(done.stdout)
    return tmp_path / "fix.patch"


def tmp_path_with_unit(folder: Path) -> Path:
    shutil.copy(UNIT, folder)
    return folder


@pytest.mark.parametrize("tool", [["git", "apply"], ["patch", "-p1", "-i"]], ids=["git", "patch"])
def test_git_and_patch_take_the_patch_and_one_value_differs(patch: Path, tool: list[str]) -> None:
    done = subprocess.run([*tool, patch.name], cwd=patch.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before, after = UNIT.read_text(), (patch.parent / UNIT.name).read_text()
    assert after == before.replace("--attention-backend flashinfer", "--attention-backend triton")
    assert after != before


def test_systemd_has_no_complaint_that_the_original_did_not_have(patch: Path) -> None:
    subprocess.run(["git", "apply", patch.name], cwd=patch.parent, check=True)
    complaints = []
    for folder in (FOUNDING, patch.parent):
        done = subprocess.run(
            ["systemd-analyze", "verify", str(folder / UNIT.name)], capture_output=True, text=True, check=False
        )
        complaints.append(done.stderr.replace(str(folder), ""))
    assert complaints[1] == complaints[0]


def test_the_text_answer_has_at_most_40_lines_and_ends_with_the_fix() -> None:
    done = run(str(FOUNDING / "journal.short.txt"))
    lines = done.stdout.splitlines()
    assert len(lines) <= 40
    assert any("--attention-backend: flashinfer -> triton" in line for line in lines[-16:])


@pytest.mark.parametrize("form", ["text", "json", "jsonl", "markdown"])
def test_no_secret_of_the_server_leaves_in_any_format(form: str) -> None:
    raw = (FOUNDING / "journal.short.txt").read_text()
    secrets = {word for word in raw.replace("'", " ").split() if word.startswith("sk-founding")}
    assert secrets
    done = run(str(FOUNDING / "journal.short.txt"), "--format", form, "--patch", str(UNIT))
    assert not any(secret in done.stdout + done.stderr for secret in secrets)


def test_the_binary_journal_reads_like_its_text_forms(tmp_path: Path) -> None:
    pytest.importorskip("systemd", reason="the extra `journal` is not installed")
    path = tmp_path / "system.journal"
    path.write_bytes(lzma.decompress((FOUNDING / "system.journal.xz").read_bytes()))
    report = logtriage.triage(path)
    assert report.headline is not None
    found = report.diagnoses[report.headline]
    assert found.fingerprint == answer("journal.export").fingerprint
    assert found.repeats == 6
