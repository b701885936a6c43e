"""Deaths that others report: who died, of what, and who says so."""


from __future__ import annotations

import pytest

from logtriage.events.process_exit import open_block
from logtriage.model import Process, ProcessExit, Rank, Record, Span
from tests.events.feeding import events_of, lines_of, one

MAIN = Process("launcher", "main")


@pytest.mark.parametrize(
    ("text", "label", "pid", "code"),
    [
        (
            "» Subprocess scheduler_3 (pid=9198) crashed with exit code -9. Triggering SIGQUIT for cleanup...",
            "TP3",
            9198,
            -9,
        ),
        (
            "» Subprocess detokenizer (pid=71) crashed with exit code 1. Triggering SIGQUIT",
            "detokenizer",
            71,
            1,
        ),
        ("» Child process unexpectedly failed with exitcode=256. pid=26754", "", 26754, 1),
        ("» Child process unexpectedly failed with exitcode=9. pid=26754", "", 26754, -9),
        ("» Child process unexpectedly failed with exitcode=139. pid=26754", "", 26754, -11),
        ("» Child process unexpectedly failed with an exit code 256. pid=12", "", 12, 1),
        ("Scheduler or DataParallelController 2211 terminated with -3", "", 2211, -3),
        ("Worker proc VllmWorker-3 died unexpectedly, shutting down executor.", "VllmWorker-3", None, None),
        (
            "Worker proc VllmWorker-0 died unexpectedly (exit code: -15), shutting down executor.",
            "VllmWorker-0",
            None,
            -15,
        ),
        (
            "Worker proc VllmWorker-2 died unexpectedly (exit code: None), shutting down executor.",
            "VllmWorker-2",
            None,
            None,
        ),
        (
            "Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.",
            "EngineCore_DP0",
            None,
            None,
        ),
        ("Worker VllmWorkerProcess pid 81 died, exit code: -11", "VllmWorkerProcess", 81, -11),
        ("Server process exited with code -9", "Server", None, -9),
        ("sglang-1 exited with code 137", "sglang-1", None, 137),
        ("scheduler_0 exited during initialization (exit code -9). Check the worker logs.", "TP0", None, -9),
    ],
)
def test_a_supervisor_names_the_dead(text: str, label: str, pid: int | None, code: int | None) -> None:
    event = one(open_block, lines_of(text, process=MAIN), ProcessExit)
    assert (event.victim.label, event.victim.pid, event.exit_code) == (label, pid, code)
    assert event.process == MAIN


def test_a_scheduler_is_named_by_its_index() -> None:
    event = one(open_block, "Subprocess scheduler_5 (pid=8) crashed with exit code -6.", ProcessExit)
    assert event.victim == Process("scheduler", "TP5", Rank(tp=5), 8)


def test_the_exit_code_of_a_dead_scheduler_stands_on_the_next_line() -> None:
    text = "» Rank 0 scheduler is dead. Please check if there are relevant logs.\n» Exit code: -9"
    event = one(open_block, text, ProcessExit)
    assert (event.victim.label, event.exit_code, event.span) == ("TP0", -9, Span(1, 2))
    assert event.message.endswith("Exit code: -9")


def test_a_launcher_may_not_know_the_exit_code_yet() -> None:
    text = "» Rank 0 scheduler is dead. Please check if there are relevant logs.\n» Exit code: None"
    assert one(open_block, text, ProcessExit).exit_code is None


def test_an_exit_code_that_came_apart_from_its_sentence_is_told_alone() -> None:
    text = "» Rank 0 scheduler is dead. Please check if there are relevant logs.\n» Load weight begin.\n» Exit code: -9"
    first, second = events_of(open_block, text)
    assert isinstance(first, ProcessExit)
    assert isinstance(second, ProcessExit)
    assert (first.exit_code, second.exit_code) == (None, -9)


@pytest.mark.parametrize(
    ("text", "pid", "code"),
    [
        ("Killed", None, -9),
        ("Segmentation fault (core dumped)", None, -11),
        ("Aborted (core dumped)", None, -6),
        ("Bus error", None, -7),
        ("Illegal instruction (core dumped)", None, -4),
        (
            "./serve.sh: line 31: 20417 Killed                  python -m sglang.launch_server --tp 2",
            20417,
            -9,
        ),
        ("bash: line 1:   431 Segmentation fault      (core dumped) python -m vllm.entrypoints", 431, -11),
        ("100%|#| 9/9 [00:01<00:00,  7.1it/s]Killed", None, -9),
    ],
)
def test_a_shell_tells_of_a_signal(text: str, pid: int | None, code: int) -> None:
    event = one(open_block, text, ProcessExit)
    assert (event.victim.label, event.victim.pid, event.exit_code) == ("main", pid, code)


def test_torchrun_names_the_first_failure_in_a_table() -> None:
    text = """
Root Cause (first observed failure):
[0]:
  time      : 2026-12-01_02:48:40
  host      : gpu7
  rank      : 3 (local_rank: 1)
  exitcode  : -9 (pid: 29123)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 29123
============================================================
"""
    event = one(open_block, text, ProcessExit)
    assert event.victim == Process("worker", "rank3", Rank(world=3), 29123, "gpu7")
    assert (event.exit_code, event.span) == (-9, Span(1, 8))


def test_torchrun_points_at_the_binary_that_failed() -> None:
    text = (
        "E1201 02:39:50.123000 14021 torch/distributed/elastic/multiprocessing/api.py:869] "
        "failed (exitcode: -11) local_rank: 3 (pid: 4242) of binary: /usr/bin/python"
    )
    event = one(open_block, text, ProcessExit)
    assert (event.victim.pid, event.exit_code) == (4242, -11)


def test_supervisord_and_pm2_name_their_program() -> None:
    event = one(open_block, "WARN exited: sglang (terminated by SIGKILL; not expected)", ProcessExit)
    assert (event.victim.label, event.exit_code) == ("sglang", -9)
    assert (
        one(open_block, "WARN exited: x (terminated by SIGRTMIN; not expected)", ProcessExit).exit_code
        is None
    )
    assert one(open_block, "WARN exited: sglang (exit status 1; not expected)", ProcessExit).exit_code == 1
    assert (
        one(open_block, "App [sglang:0] exited with code [1] via signal [SIGINT]", ProcessExit).exit_code == 1
    )


def test_slurm_names_host_and_task() -> None:
    event = one(open_block, "srun: error: gb200-07: task 3: Segmentation fault (core dumped)", ProcessExit)
    assert (event.victim.host, event.victim.rank, event.exit_code) == ("gb200-07", Rank(world=3), -11)
    event = one(open_block, "srun: error: gb200-07: tasks 0-7: Exited with exit code 1", ProcessExit)
    assert event.exit_code == 1
    assert one(open_block, "srun: error: o0616: task 0: Out Of Memory", ProcessExit).exit_code == -9


def test_open_mpi_names_the_rank_in_a_paragraph() -> None:
    text = """
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[39394,1],5]
  Exit code:    1
"""
    event = one(open_block, text, ProcessExit)
    assert (event.victim.rank, event.exit_code) == (Rank(world=5), 1)
    event = one(
        open_block,
        "mpirun noticed that process rank 14 with PID 4257 on node c02 exited on signal 11 (Segmentation fault).",
        ProcessExit,
    )
    assert (event.victim.rank, event.victim.pid, event.exit_code) == (Rank(world=14), 4257, -11)


def test_systemd_coredump_names_process_and_signal() -> None:
    record = Record(
        "",
        1,
        ident="systemd-coredump",
        message_id="fc2e22bc6ee647b6b90729ab34a250b1",
        fields=(("COREDUMP_SIGNAL", "6"),),
    )
    text = "Process 4242 (sglang::schedul) of user 1000 dumped core."
    event = one(open_block, lines_of(text, record=record), ProcessExit)
    assert (event.victim.label, event.victim.pid, event.exit_code) == ("sglang::schedul", 4242, -6)
    text = "Process 113 (sleep) of user 0 terminated abnormally with signal 11/SEGV, processing..."
    assert one(open_block, lines_of(text, record=record), ProcessExit).exit_code == -11


@pytest.mark.parametrize(
    "text",
    [
        "» Killed",  # an engine's own message, not the shell's
        "Killed the old server, starting a new one",
        "Process 4242 (sglang::schedul) of user 1000 dumped core.",  # anybody can print this
        "text='Subprocess scheduler_3 (pid=9198) crashed with exit code -9'",
        "The process exited with code 0 in the example above",
        "exit code 0 means that all went well",
    ],
)
def test_talk_about_death_is_none(text: str) -> None:
    assert events_of(open_block, text) == []
