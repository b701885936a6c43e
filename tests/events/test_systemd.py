"""systemd's words in the releases from 245 to 257, and whom they are believed from."""

from __future__ import annotations

import pytest

from logtriage.events.lifecycle import open_block
from logtriage.events.systemd import read_systemd
from logtriage.model import Lifecycle, Line, Process, Record
from tests.events.feeding import SYSTEMD, events_of, lines_of, one


def said(text: str, record: Record = SYSTEMD) -> Lifecycle:
    event = read_systemd(Line(text, 1, Process(), record=record))
    assert event is not None
    return event


@pytest.mark.parametrize(
    ("text", "action", "detail", "number"),
    [
        ("Started llm-exit1.service - LLM server exit1.", "started", "", None),
        ("Starting llm-pre.service - LLM server pre...", "starting", "", None),
        ("Stopping llm-ok.service - LLM server ok...", "stopping", "", None),
        ("Stopped llm-ok.service - LLM server ok.", "stopped", "", None),
        ("Failed to start llm-pre.service - LLM server pre.", "failed", "", None),
        ("Timed out starting llm.service - LLM server.", "timeout", "start", None),
        ("Dependency failed for llm-dep.service - LLM server.", "failed", "dependency", None),
        ("llm.service: Deactivated successfully.", "stopped", "success", None),
        ("llm.service: Succeeded.", "stopped", "success", None),  # up to 247
        ("llm.service: Main process exited, code=exited, status=1/FAILURE", "main-exited", "FAILURE", 1),
        ("llm.service: Main process exited, code=killed, status=9/KILL", "main-exited", "KILL", 9),
        ("llm.service: Main process exited, code=dumped, status=6/ABRT", "main-exited", "ABRT", 6),
        ("llm.service: Main process exited, code=exited, status=137/n/a", "main-exited", "n/a", 137),
        (
            "llm.service: Control process exited, code=exited, status=3/NOTIMPLEMENTED",
            "control-exited",
            "NOTIMPLEMENTED",
            3,
        ),
        ("llm.service: Failed with result 'exit-code'.", "failed", "exit-code", None),
        ("llm.service: Failed with result 'start-limit-hit'.", "failed", "start-limit-hit", None),
        ("llm.service: Scheduled restart job, restart counter is at 3.", "restart-scheduled", "", 3),
        (
            "llm.service: Scheduled restart job immediately on client request, restart counter is at 8.",
            "restart-scheduled",
            "",
            8,
        ),
        ("llm.service: Start request repeated too quickly.", "start-limit", "", None),
        ("llm.service: start operation timed out. Terminating.", "timeout", "start", None),
        ("llm.service: State 'stop-sigterm' timed out. Killing.", "timeout", "stop-sigterm", None),
        ("llm.service: Service reached runtime time limit. Stopping.", "timeout", "runtime", None),
        ("llm.service: Stopping timed out. Terminating.", "timeout", "stop", None),
        ("llm.service: Watchdog timeout (limit 1min 30s)!", "timeout", "watchdog", None),
        (
            "llm.service: A process of this unit has been killed by the OOM killer.",
            "oom-killed",
            "kernel",
            None,
        ),
        ("llm.service: systemd-oomd killed 61 process(es) in this unit.", "oom-killed", "systemd-oomd", None),
        (
            "llm.service: Failed at step EXEC spawning /x/python: No such file or directory",
            "exec-failed",
            "EXEC",
            None,
        ),
        (
            "llm.service: Failed to locate executable /x/python: No such file or directory",
            "exec-failed",
            "",
            None,
        ),
        (
            "llm.service: Unable to locate executable '/x/python': No such file or directory",
            "exec-failed",
            "",
            None,
        ),
        ("llm.service: Failed to determine user credentials: No such process", "exec-failed", "", None),
        ("llm.service: Failed to load environment files: No such file or directory", "exec-failed", "", None),
        (
            "llm.service: Found left-over process 323 (sleep) in control group while starting unit.",
            "left-over",
            "",
            None,
        ),
        ("llm.service: Killing process 269 (sh) with signal SIGKILL.", "teardown", "", None),
    ],
)
def test_every_wording_is_a_step(text: str, action: str, detail: str, number: int | None) -> None:
    event = said(text)
    assert (event.action, event.detail, event.number) == (action, detail, number)
    assert event.unit is not None
    assert event.unit.endswith(".service")
    assert event.message == text
    assert event.process.label == "systemd"


@pytest.mark.parametrize(
    "text",
    [
        "llm.service: Consumed 2min 11.402s CPU time.",
        "Reached target multi-user.target.",
        "Created slice x.slice.",
    ],
)
def test_what_is_no_step_gives_nothing(text: str) -> None:
    assert read_systemd(Line(text, 1, Process(), record=SYSTEMD)) is None


def test_a_description_has_no_unit_and_the_journal_has() -> None:
    assert said("Started LLM server exit1.").unit is None
    record = Record("", 1, ident="systemd", fields=(("UNIT", "llm-exit1.service"),))
    assert said("Started LLM server exit1.", record).unit == "llm-exit1.service"
    record = Record("", 1, ident="systemd", fields=(("USER_UNIT", "llm.service"),))
    assert said("Started LLM server exit1.", record).unit == "llm.service"


def test_the_journal_tells_whether_a_stop_is_part_of_a_restart() -> None:
    record = Record("", 1, ident="systemd", fields=(("UNIT", "a.service"), ("JOB_TYPE", "restart")))
    assert said("Stopped a.service - A.", record).detail == "restart"


def test_systemd_oomd_names_the_control_group() -> None:
    record = Record("", 1, ident="systemd-oomd", pid=812)
    event = said(
        "Killed /system.slice/llm.service due to memory pressure for /system.slice being 71.32% > 60.00%",
        record,
    )
    assert (event.action, event.unit) == ("oom-killed", "llm.service")


@pytest.mark.parametrize("ident", ["(python)", "(ash)", "systemd"])
def test_the_child_speaks_for_the_unit_before_it_becomes_the_service(ident: str) -> None:
    record = Record("", 1, ident=ident, pid=4711)
    assert (
        said("llm.service: Failed at step USER spawning /bin/bash: No such process", record).detail == "USER"
    )


@pytest.mark.parametrize("ident", [None, "python3", "sglang", "kernel"])
def test_nobody_else_is_believed(ident: str | None) -> None:
    record = Record("", 1, ident=ident)
    text = "llm.service: Main process exited, code=killed, status=9/KILL"
    assert events_of(open_block, lines_of(text, record=record)) == []


def test_a_message_id_is_believed_whatever_the_text_says() -> None:
    def told(message_id: str, **fields: str) -> Lifecycle:
        record = Record("", 1, message_id=message_id, fields=(("UNIT", "llm.service"), *fields.items()))
        return said("in words of another language", record)

    exited = told(
        "98e322203f7a4ed290d09fe03c09fe15", EXIT_CODE="killed", EXIT_STATUS="9", COMMAND="ExecStart"
    )
    assert (exited.action, exited.detail, exited.number) == ("main-exited", "KILL", 9)
    exited = told(
        "98e322203f7a4ed290d09fe03c09fe15", EXIT_CODE="exited", EXIT_STATUS="3", COMMAND="ExecStartPre"
    )
    assert (exited.action, exited.detail, exited.number) == ("control-exited", "exited", 3)
    failed = told("d9b373ed55a64feb8242e02dbe79a49c", UNIT_RESULT="oom-kill")
    assert (failed.action, failed.detail) == ("failed", "oom-kill")
    restart = told("5eb03494b6584870a536b337290809b3", N_RESTARTS="12")
    assert (restart.action, restart.number) == ("restart-scheduled", 12)
    assert told("39f53479d3a045ac8e11786248231fbf").action == "started"
    assert told("fe6faa94e7774663a0da52717891d8ef").action == "oom-killed"
    assert told("39f53479d3a045ac8e11786248231fbf").unit == "llm.service"


def test_damaged_fields_are_not_numbers() -> None:
    record = Record(
        "",
        1,
        message_id="98e322203f7a4ed290d09fe03c09fe15",
        fields=(("EXIT_STATUS", "nine"), ("EXIT_CODE", "killed")),
    )
    event = said("?", record)
    assert (event.number, event.detail) == (None, "killed")


def test_a_crash_loop_reads_as_the_steps_that_systemd_took() -> None:
    text = """
Started llm.service - LLM server.
llm.service: Main process exited, code=exited, status=1/FAILURE
llm.service: Failed with result 'exit-code'.
llm.service: Scheduled restart job, restart counter is at 1.
Stopped llm.service - LLM server.
Started llm.service - LLM server.
"""
    events = events_of(open_block, lines_of(text, record=SYSTEMD))
    assert [event.action for event in events if isinstance(event, Lifecycle)] == [
        "started",
        "main-exited",
        "failed",
        "restart-scheduled",
        "stopped",
        "started",
    ]
    assert (
        one(open_block, lines_of("Started llm.service - LLM.", record=SYSTEMD), Lifecycle).unit
        == "llm.service"
    )
