"""One incident for each invocation, with the state that systemctl would show."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from logtriage.demux import Demux
from logtriage.events import EventReader
from logtriage.formats import FORMATS, Unwrapper
from logtriage.incidents import MAX_EVENTS, IncidentAssembler
from logtriage.launch import parse_server_args
from logtriage.model import Event, Incident, Lifecycle, Process
from logtriage.rootcause import judge
from logtriage.scan import Scanner
from tests.telling import MAIN, dumped, engine, exited, kernel, logged, raised, rank, stuck, systemd, xid

FIXTURES: Final = Path(__file__).parent.parent / "fixtures"
JOURNALS: Final = [
    FIXTURES / "systemd" / version / form
    for version in ("247.3", "252.39")
    for form in ("journal.short.txt", "journal.json")
]
ARGS: Final = "server_args=ServerArgs(model_path='/m', tp_size=8)"


def assembled(events: Iterable[Event]) -> list[Incident]:
    assembler = IncidentAssembler(parse_server_args)
    out = [incident for event in events for incident in assembler.feed(event)]
    return [*out, *assembler.close()]


def read(log: bytes) -> list[Incident]:
    scanner, unwrapper, demux, reader = Scanner(), Unwrapper(FORMATS, str), Demux(str), EventReader()
    records = [*unwrapper.feed(scanner.feed(log)), *unwrapper.feed(scanner.close()), *unwrapper.close()]
    lines = [line for record in records for line in demux.feed(record)]
    return assembled([*(event for line in lines for event in reader.feed(line)), *reader.close()])


def actions(incident: Incident) -> list[str]:
    return [event.action for event in incident.events if isinstance(event, Lifecycle)]


# What systemctl said of the units of the genuine journals


def last_said(path: Path) -> dict[str, dict[str, str]]:
    """The last answer of ``systemctl`` on each unit."""
    out = {}
    text = (path.parent / "systemctl.txt").read_text()
    for unit, active, shown in re.findall(
        r"^## (\S+) [^:]*: is-active=(\w+) .*\n(StatusErrno=.*)$", text, re.MULTILINE
    ):
        out[f"{unit}.service"] = {"is-active": active, **dict(pair.split("=", 1) for pair in shown.split())}
    return out


# The sentence on a start that a condition skipped is no event; 247 does not name the unit it did not start.
SKIPPED: Final = {"llm-cond.service", "llm-unitcond.service"}
NAMELESS: Final = {"llm-dep.service"}


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: f"{path.parent.name}-{path.suffix[1:]}")
def test_the_state_of_every_unit_is_what_systemctl_said(path: Path) -> None:
    last = {incident.invocation.unit: incident.invocation for incident in read(path.read_bytes())}
    truth = last_said(path)
    wanted = (
        set(truth)
        - SKIPPED
        - (NAMELESS if path.name == "journal.short.txt" and "247" in path.parent.name else set())
    )
    assert len(wanted) >= 28
    assert {unit: last[unit].state for unit in wanted} == {unit: truth[unit]["is-active"] for unit in wanted}


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: f"{path.parent.name}-{path.suffix[1:]}")
def test_the_result_and_the_restarts_are_what_systemctl_said(path: Path) -> None:
    last = {incident.invocation.unit: incident.invocation for incident in read(path.read_bytes())}
    known = {unit: said for unit, said in last_said(path).items() if said["InvocationID"]}
    assert len(known) >= 24
    told = {unit: (last[unit].result, last[unit].restarts or 0) for unit in known}
    assert told == {unit: (said["Result"], int(said["NRestarts"])) for unit, said in known.items()}


@pytest.mark.parametrize(
    ("crashes", "truth"),
    [(1, ("failed", "exit-code", None)), (2, ("activating", "exit-code", 1))],
    ids=["first-crash", "second-crash"],
)
@pytest.mark.parametrize("version", ["247.3", "252.39"])
def test_a_journal_that_ends_between_crash_and_restart(
    version: str, crashes: int, truth: tuple[str, str, int | None]
) -> None:
    """``systemctl`` said ``activating`` both times; after one crash the journal alone cannot know that."""
    log = (FIXTURES / "systemd" / version / "journal.short.txt").read_text()
    ends = [found.end() for found in re.finditer(r".*llm-slowfail\.service: Failed with result.*\n", log)]
    (invocation,) = [
        i.invocation
        for i in read(log[: ends[crashes - 1]].encode())[-40:]
        if i.invocation.unit == "llm-slowfail.service"
    ][-1:]
    assert (invocation.state, invocation.result, invocation.restarts) == truth


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: f"{path.parent.name}-{path.suffix[1:]}")
def test_every_start_is_an_incident_of_its_own(path: Path) -> None:
    starts = [
        i.invocation.unit
        for i in read(path.read_bytes())
        if "main-exited" in actions(i) or "stopped" in actions(i)
    ]
    assert {
        unit: starts.count(f"llm-{unit}.service")
        for unit in ("exit1", "always", "default", "slowfail", "left", "ok")
    } == {
        "exit1": 3,
        "always": 2,
        "default": 5,
        "slowfail": 3,
        "left": 2,
        "ok": 3,
    }


# Boundaries


def test_a_restart_counter_belongs_to_the_start_that_follows_it() -> None:
    first, second = assembled(
        [
            systemd(1, "started"),
            raised(2, "ValueError: x", 0),
            systemd(3, "main-exited", "KILL", 9),
            systemd(4, "failed", "signal"),
            systemd(5, "restart-scheduled", number=7),
            systemd(6, "stopped"),
            systemd(7, "started"),
            raised(8, "ValueError: x", 1),
        ]
    )
    assert (first.invocation.restarts, first.invocation.state, first.invocation.result) == (
        None,
        "activating",
        "signal",
    )
    assert (second.invocation.restarts, second.invocation.state) == (7, "active")
    assert (second.span.first, len(second.events)) == (7, 2)


def test_a_log_that_ends_while_a_restart_is_due_has_its_counter() -> None:
    (incident,) = assembled(
        [systemd(1, "started"), systemd(2, "failed", "exit-code"), systemd(3, "restart-scheduled", number=4)]
    )
    assert (incident.invocation.restarts, incident.invocation.state) == (4, "activating")


def test_a_start_by_hand_resets_the_counter() -> None:
    incidents = assembled(
        [
            systemd(1, "started"),
            systemd(2, "failed", "exit-code"),
            systemd(3, "restart-scheduled", number=3),
            systemd(4, "started"),
            systemd(5, "stopping"),
            systemd(6, "stopped", "success"),
            systemd(7, "stopped"),
            systemd(8, "started"),
        ]
    )
    assert [incident.invocation.restarts for incident in incidents] == [None, 3, None]


def test_the_start_limit_ends_a_loop_as_failed_with_the_last_counter() -> None:
    (incident,) = assembled(
        [
            systemd(1, "started"),
            systemd(2, "main-exited", "FAILURE", 1),
            systemd(3, "failed", "exit-code"),
            systemd(4, "restart-scheduled", number=5),
            systemd(5, "stopped"),
            systemd(6, "start-limit"),
            systemd(7, "failed", "exit-code"),
        ]
    )
    assert (incident.invocation.state, incident.invocation.restarts) == ("failed", 5)


def test_a_unit_that_was_restarted_before_is_activating_after_its_last_crash() -> None:
    crash = [("started", ""), ("main-exited", "KILL"), ("failed", "signal")]
    events = [systemd(i, *step) for i, step in enumerate([*crash, ("restart-scheduled", "1"), *crash], 1)]
    assert [i.invocation.state for i in assembled(events)] == ["activating", "activating"]
    assert [i.invocation.state for i in assembled(events[:3])] == ["failed"]


def test_a_failed_unit_that_is_stopped_before_its_restart_is_inactive() -> None:
    (incident,) = assembled(
        [systemd(1, "started"), systemd(2, "failed", "exit-code"), systemd(3, "stopped", "stop")]
    )
    assert incident.invocation.state == "inactive"


def test_invocation_ids_part_two_starts_whatever_the_order_of_the_lines() -> None:
    first, second = "a" * 32, "b" * 32
    incidents = assembled(
        [
            raised(1, "ValueError: x", rank(0, 10), unit="llm.service", invocation_id=first),
            systemd(2, "failed", "exit-code", invocation_id=first),
            systemd(3, "restart-scheduled", number=1, invocation_id=first),
            raised(4, "ValueError: x", rank(0, 20), unit="llm.service", invocation_id=second),
            systemd(5, "started", invocation_id=second),
            systemd(6, "failed", "exit-code", invocation_id=second),
        ]
    )
    assert [(i.invocation.id, len(i.events), i.invocation.restarts) for i in incidents] == [
        (first, 3, None),
        (second, 3, 1),
    ]


def test_what_a_child_says_before_started_belongs_to_that_start() -> None:
    (incident,) = assembled(
        [
            systemd(1, "exec-failed", "CHDIR"),
            systemd(2, "started"),
            systemd(3, "main-exited", "CHDIR", 200),
            systemd(4, "failed", "exit-code"),
        ]
    )
    assert (actions(incident)[:2], incident.invocation.state) == (["exec-failed", "started"], "failed")


def test_a_left_over_process_is_found_by_the_next_start() -> None:
    first, second = assembled(
        [
            systemd(1, "started"),
            systemd(2, "failed", "exit-code"),
            systemd(3, "left-over"),
            systemd(4, "started"),
            systemd(5, "failed", "signal"),
        ]
    )
    assert (actions(first), actions(second)) == (["started", "failed"], ["left-over", "started", "failed"])


def test_arguments_that_come_again_after_a_crash_begin_a_new_invocation_of_a_raw_log() -> None:
    first, second = assembled(
        [
            engine(1, "server-args", ARGS),
            raised(2, "ValueError: x", 0),
            engine(3, "server-args", ARGS),
            raised(4, "ValueError: x", 3),
        ]
    )
    assert [len(first.events), len(second.events)] == [2, 2]
    assert second.invocation.server_args == {"model_path": "/m", "tp_size": 8}
    assert (second.invocation.unit, second.invocation.state) == (None, "unknown")


def test_arguments_that_come_again_from_a_serving_server_mean_that_it_was_killed_unseen() -> None:
    _, second = assembled(
        [
            engine(1, "server-args", ARGS),
            engine(2, "ready", "serve"),
            engine(3, "server-args", ARGS),
            raised(4, "ValueError: x", 0),
        ]
    )
    assert second.phase == "args"


def test_two_nodes_that_start_together_into_one_log_are_one_invocation() -> None:
    incidents = assembled(
        [engine(1, "server-args", ARGS), engine(2, "server-args", ARGS), raised(3, "ValueError: x", 0)]
    )
    assert len(incidents) == 1


def test_each_refusal_of_the_arguments_is_an_invocation() -> None:
    refused = [
        logged(line, "serve: error: unrecognized arguments: --x", MAIN, "argparse") for line in (1, 2, 3)
    ]
    assert len(assembled(refused)) == 3


def test_a_reboot_ends_everything() -> None:
    before, after = assembled(
        [
            systemd(1, "started"),
            systemd(2, "failed", "signal"),
            systemd(3, "restart-scheduled", number=2),
            engine(4, "boot"),
            systemd(5, "started"),
            systemd(6, "failed", "exit-code"),
        ]
    )
    assert (before.invocation.restarts, after.invocation.restarts) == (2, None)
    assert after.invocation.state == "failed"  # the boots before tell nothing of this unit file


def test_units_that_run_side_by_side_are_kept_apart() -> None:
    prefill, decode = rank(0, 100), rank(0, 200)
    incidents = assembled(
        [
            systemd(1, "started", unit="prefill.service"),
            engine(2, "server-args", ARGS, prefill),
            systemd(3, "started", unit="decode.service"),
            engine(4, "server-args", ARGS, decode),
            raised(5, "ValueError: p", prefill),
            raised(6, "ValueError: d", decode),
            systemd(7, "failed", "signal", unit="decode.service"),
            systemd(8, "failed", "exit-code", unit="prefill.service"),
        ]
    )
    told = {
        i.invocation.unit: ([e.message for e in i.events if e.kind == "traceback"], i.invocation.result)
        for i in incidents
    }
    assert told == {
        "prefill.service": (["ValueError: p"], "exit-code"),
        "decode.service": (["ValueError: d"], "signal"),
    }


def test_one_unit_on_two_hosts_is_two_services() -> None:
    incidents = assembled(
        [
            systemd(1, "started", process=Process("manager", "systemd", host="a")),
            systemd(2, "started", process=Process("manager", "systemd", host="b")),
            systemd(3, "failed", "signal", process=Process("manager", "systemd", host="a")),
        ]
    )
    assert [(i.invocation.host, i.invocation.state) for i in incidents] == [("a", "failed"), ("b", "active")]


def test_a_process_is_not_given_to_a_bystander_that_systemd_spoke_of_last() -> None:
    incidents = assembled(
        [
            systemd(1, "started"),
            engine(2, "server-args", ARGS, Process("launcher", "main", pid=50)),
            systemd(3, "started", unit="cron.service"),
            raised(4, "ValueError: x", rank(0, 60)),
        ]
    )
    assert [i.invocation.unit for i in incidents if any(e.kind == "traceback" for e in i.events)] == [
        "llm.service"
    ]


def test_a_log_that_begins_in_the_middle_learns_its_unit_from_the_end() -> None:
    (incident,) = assembled(
        [
            raised(1, "ValueError: x", rank(0, 60)),
            systemd(2, "main-exited", "KILL", 9),
            systemd(3, "failed", "signal"),
        ]
    )
    assert (incident.invocation.unit, incident.invocation.state, len(incident.events)) == (
        "llm.service",
        "failed",
        3,
    )


def test_the_healthy_end_of_another_unit_does_not_adopt_a_server_at_work() -> None:
    incidents = assembled(
        [
            raised(1, "ValueError: x", rank(0, 60)),
            systemd(2, "stopped", "success", unit="logrotate.service"),
            systemd(3, "main-exited", "KILL", 9),
        ]
    )
    assert {i.invocation.unit: i.events[0].kind for i in incidents} == {
        "llm.service": "traceback",
        "logrotate.service": "lifecycle",
    }


def test_systemd_that_describes_its_units_is_understood() -> None:
    told = [
        ("started", "Started LLM server."),
        ("started", "Started Daily apt."),
        ("stopped", "Stopped LLM server."),
        ("started", "Started LLM server."),
    ]
    said = {
        line: systemd(line, action, unit=None, message=text)
        for line, (action, text) in zip((1, 2, 6, 7), told, strict=True)
    }
    incidents = assembled(
        [
            said[1],
            said[2],
            systemd(3, "main-exited", "FAILURE", 1),
            systemd(4, "failed", "exit-code"),
            systemd(5, "restart-scheduled", number=1),
            said[6],
            said[7],
            systemd(8, "failed", "exit-code"),
        ]
    )
    ends = [i.invocation for i in incidents if i.invocation.unit == "llm.service"]
    assert [(end.state, end.restarts) for end in ends][-1] == ("activating", 1)


def test_the_kernel_before_the_first_start_is_part_of_it() -> None:
    (incident,) = assembled([xid(1, 79), systemd(2, "started"), systemd(3, "failed", "exit-code")])
    assert [event.kind for event in incident.events] == ["kernel", "lifecycle", "lifecycle"]


def test_the_kernel_names_a_process_by_its_pid() -> None:
    incidents = assembled(
        [
            systemd(1, "started", unit="a.service"),
            engine(2, "ready", process=rank(0, 100)),
            systemd(3, "started", unit="b.service"),
            engine(4, "ready", process=Process(pid=200), unit="b.service"),
            kernel(5, "oom", 100, "python3"),
        ]
    )
    assert [i.invocation.unit for i in incidents if any(e.kind == "kernel" for e in i.events)] == [
        "a.service"
    ]


def test_hostile_numbers_of_units_and_events_are_bounded() -> None:
    assembler = IncidentAssembler(parse_server_args)
    out = [
        i
        for line in range(1, 1_500)
        for i in assembler.feed(systemd(line, "failed", "signal", unit=f"u{line}.service"))
    ]
    assert len(out) == 499
    flood = IncidentAssembler(parse_server_args)
    for line in range(1, MAX_EVENTS + 51):
        flood.feed(logged(line, f"error {line}", 0))
    (incident,) = flood.close()
    assert (len(incident.events), flood.dropped) == (MAX_EVENTS, 50)
    assert (incident.events[0].span.first, incident.events[-1].span.first) == (1, MAX_EVENTS + 50)


# Ends that are no crash, and ends that hide one


def test_a_stop_after_which_the_server_kills_itself_is_no_crash() -> None:
    (incident,) = assembled(
        [
            systemd(1, "started"),
            engine(2, "ready", "serve"),
            systemd(3, "stopping", "stop"),
            engine(4, "sigterm", "signal"),
            engine(5, "teardown"),
            systemd(6, "main-exited", "KILL", 9),
            systemd(7, "failed", "signal"),
            systemd(8, "stopped", "stop"),
        ]
    )
    assert judge(incident) is None
    assert (incident.invocation.state, incident.invocation.result, incident.phase) == (
        "failed",
        "signal",
        "shutdown",
    )


def test_rolling_restarts_are_healthy_lives() -> None:
    once = [("started", ""), ("stopping", "restart"), ("stopped", "success"), ("stopped", "restart")]
    incidents = assembled(
        systemd(line, *step) for line, step in enumerate([*once, *once, ("started", "")], 1)
    )
    assert [judge(incident) for incident in incidents] == [None, None, None]
    assert [incident.invocation.state for incident in incidents] == ["inactive", "inactive", "active"]


def test_a_crash_that_systemd_calls_success_is_a_crash_of_an_inactive_unit() -> None:
    (incident,) = assembled(
        [
            systemd(1, "started"),
            raised(2, "ValueError: x", 3),
            engine(3, "sigquit"),
            systemd(4, "stopped", "success"),
        ]
    )
    verdict = judge(incident)
    assert verdict is not None
    assert verdict.root is incident.events[1]
    assert (incident.invocation.state, incident.invocation.result) == ("inactive", "success")


def test_a_loop_of_clean_ends_stays_activating_once_it_was_seen_to_restart() -> None:
    events = [
        systemd(line, action, detail, number)
        for line, (action, detail, number) in enumerate(
            [
                ("started", "", None),
                ("stopped", "success", 0),
                ("restart-scheduled", "", 1),
                ("started", "", None),
                ("stopped", "success", 0),
            ],
            1,
        )
    ]
    assert [i.invocation.state for i in assembled(events)] == ["activating", "activating"]


def test_a_unit_that_was_never_started_did_not_fail() -> None:
    (incident,) = assembled([systemd(1, "failed", "dependency")])
    assert (incident.invocation.state, incident.invocation.result) == ("inactive", None)


# Phases


@pytest.mark.parametrize(
    ("steps", "phase"),
    [
        ([], "unknown"),
        (["server-args"], "args"),
        (["server-args", "init", "load"], "load"),
        (["server-args", "load", "init"], "init"),
        (["load", "init", "capture"], "capture"),
        (["capture", "ready", "load"], "serve"),
        (["nonsense"], "unknown"),
    ],
)
def test_the_phase_is_the_last_one_told_before_the_trouble(steps: list[str], phase: str) -> None:
    told = [
        engine(
            line, step if step in ("ready", "server-args") else "phase", "" if step == "server-args" else step
        )
        for line, step in enumerate(steps, 1)
    ]
    (incident,) = assembled([*told, raised(50, "ValueError: x", 0), engine(51, "phase", "serve")])
    assert incident.phase == phase


def test_a_server_that_only_says_that_it_shuts_down_was_not_asked_to() -> None:
    (drained,) = assembled(
        [engine(1, "ready", "serve"), engine(2, "sigterm", "drained"), raised(3, "ValueError: x", 0)]
    )
    (closed,) = assembled(
        [engine(1, "ready", "serve"), engine(2, "sigterm", "shutdown"), raised(3, "ValueError: x", 0)]
    )
    assert (drained.phase, closed.phase) == ("shutdown", "serve")


@pytest.mark.parametrize(
    ("event", "announced"),
    [
        (raised(2, "ValueError: x", 0), 1),
        (dumped(2, "Segmentation fault"), 1),
        (exited(2, 3, -9), 1),
        (exited(2, 3, 0), 0),
        (raised(2, "ValueError: x", 0, ignored=True), 0),
        (logged(2, "something", 0), 0),
        (stuck(2, 0, soft=True), 0),
    ],
)
def test_an_invocation_in_trouble_is_announced_once(event: Event, announced: int) -> None:
    assembler = IncidentAssembler(parse_server_args)
    for each in (engine(1, "server-args", ARGS), event):
        assembler.feed(each)
    assert [incident.final for incident in assembler.provisional()] == [False] * announced
    assert assembler.provisional() == []
    assert [incident.final for incident in assembler.close()] == [True]
