"""Lines of systemd in, one event out for each step in the life of a unit.

Law: only systemd itself is believed: a line counts if the journal says that systemd wrote it or if
it carries one of systemd's message ids, whatever its text says.

Source:
    systemd 245 to 257: ``src/core/unit.c``, ``service.c``, ``execute.c``, ``src/oom``; message ids of
    ``sd-messages.h``, which are the same in all of them.
"""

from __future__ import annotations

import re
from typing import Final

from logtriage.events.collect import HEAD, Gathering
from logtriage.model import Lifecycle, Line, Process

__all__ = ["read_systemd"]

_STARTING: Final = "7d4958e842da4a758f6c1cdc7b36dcc5"
_STARTED: Final = "39f53479d3a045ac8e11786248231fbf"
_START_FAILED: Final = "be02cf6855d2428ba40df7e9d022f03d"
_STOPPING: Final = "de5b426a63be47a7b6ac3eaac82e2f6f"
_STOPPED: Final = "9d1aaa27d60140bd96365438aad20286"
_EXITED: Final = "98e322203f7a4ed290d09fe03c09fe15"
_SUCCESS: Final = "7ad2d189f7e94e70a38c781354912448"
_FAILED: Final = "d9b373ed55a64feb8242e02dbe79a49c"
_RESTART: Final = "5eb03494b6584870a536b337290809b3"
_EXEC_FAILED: Final = "641257651c1b4ec9a8624d7a40a9e1e7"
_OOM: Final = "fe6faa94e7774663a0da52717891d8ef"
_OOMD: Final = "d989611b15e44c9dbf31e3c81256e4ed"
_IDS: Final = frozenset(
    (
        *(_STARTING, _STARTED, _START_FAILED, _STOPPING, _STOPPED, _EXITED),
        *(_SUCCESS, _FAILED, _RESTART, _EXEC_FAILED, _OOM, _OOMD),
    )
)

_UNIT: Final = (
    r"[\w@:.\\-]{1,255}\.(?:service|scope|slice|socket|target|mount|timer|path|device|swap|automount)"
)
_ABOUT: Final = re.compile(rf"(?P<unit>{_UNIT}): (?P<text>.*)", re.DOTALL)
_NAMED: Final = re.compile(rf"(?P<unit>{_UNIT})(?= - |\.|\Z| with error)")
_EXIT: Final = re.compile(
    r"(?P<which>Main|Control) process exited, code=(?P<code>\w+)"
    r"(?:, status=(?P<status>\d+)(?:/(?P<name>[\w+/-]+))?)?"
)
_RESULT: Final = re.compile(r"(?:Unit entered failed state|Failed with result '(?P<result>[\w-]+)')")
_COUNTER: Final = re.compile(
    r"Scheduled restart job(?:,| immediately).*restart counter is at (?P<number>\d+)"
)
_TIMED_OUT: Final = re.compile(r"(?:State )?'?(?P<what>[\w-]+)'? (?:operation )?timed out")
_STEP: Final = re.compile(r"Failed at step (?P<step>[A-Z_]+) spawning ")
_EXEC_TEXTS: Final = (
    "Failed to determine user credentials",
    "Failed to determine group credentials",
    "Failed to execute ",
    "Failed to locate executable",
    "Unable to locate executable",
    "Changing to the requested working directory failed",
    "Failed to load environment files",
    "Failed to run '",
    "Failed to spawn '",
    "Failed to set up mount namespacing",
    "Failed to set up standard",
    "Executable ",
)
_OOMD_KILL: Final = re.compile(r"Killed (?P<cgroup>/\S{1,400}) due to memory (?:pressure|used)")
_JOBS: Final[tuple[tuple[str, str], ...]] = (
    ("Starting ", "starting"),
    ("Started ", "started"),
    ("Finished ", "started"),
    ("Stopping ", "stopping"),
    ("Stopped (with error) ", "stopped"),
    ("Stopped ", "stopped"),
    ("Failed to start ", "failed"),
    ("Timed out starting ", "timeout"),
    ("Dependency failed for ", "failed"),
    ("Assertion failed for ", "failed"),
)
_DETAILS: Final = {
    "Timed out starting ": "start",
    "Dependency failed for ": "dependency",
    "Assertion failed for ": "assert",
}
_SIGNALS: Final = {
    1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL",
    11: "SEGV", 13: "PIPE", 14: "ALRM", 15: "TERM", 24: "XCPU", 25: "XFSZ", 31: "SYS",
}  # fmt: skip


def read_systemd(line: Line) -> Lifecycle | None:
    """Read a line of systemd.

    Args:
        line: Any line; one that systemd did not write gives nothing.

    >>> from logtriage.model import Record
    >>> record = Record("", 1, ident="systemd", pid=1)
    >>> text = "llm.service: Main process exited, code=killed, status=9/KILL"
    >>> event = read_systemd(Line(text, 1, Process(), record=record))
    >>> event.action, event.unit, event.detail, event.number
    ('main-exited', 'llm.service', 'KILL', 9)
    """
    ident = line.record.ident or ""
    # Before it becomes the service, the child writes under systemd's name (247) or as "(python)".
    child = ident.startswith("(") and ident.endswith(")")
    if not (ident.startswith("systemd") or child or line.record.message_id in _IDS):
        return None
    text = line.text[:HEAD].rstrip()
    fields = dict(line.record.fields)
    if ident == "systemd-oomd" and (killed := _OOMD_KILL.match(text)):
        unit = killed["cgroup"].rpartition("/")[2]
        return _event(line, "oom-killed", detail="systemd-oomd", unit=unit)
    unit = fields.get("UNIT") or fields.get("USER_UNIT") or fields.get("OBJECT_SYSTEMD_UNIT")
    about = _ABOUT.match(text)
    if about:
        event = _about_unit(line, about["text"], unit or about["unit"])
        if event or child:
            return event
    if child:
        return None
    return _job(line, text, unit, fields) or _by_id(line, unit, fields)


def _about_unit(line: Line, text: str, unit: str) -> Lifecycle | None:
    """Read a text of the form ``unit: text``."""
    if found := _EXIT.match(text):
        action = "main-exited" if found["which"] == "Main" else "control-exited"
        number = int(found["status"]) if found["status"] else None
        return _event(line, action, detail=found["name"] or found["code"], number=number, unit=unit)
    if found := _RESULT.match(text):
        return _event(line, "failed", detail=found["result"] or "", unit=unit)
    if found := _COUNTER.match(text):
        return _event(line, "restart-scheduled", number=int(found["number"]), unit=unit)
    if text.startswith("Start request repeated too quickly"):
        return _event(line, "start-limit", unit=unit)
    if text.startswith(("Deactivated successfully", "Succeeded")):
        return _event(line, "stopped", detail="success", unit=unit)
    if found := _STEP.match(text):
        return _event(line, "exec-failed", detail=found["step"], unit=unit)
    if text.startswith(_EXEC_TEXTS):
        return _event(line, "exec-failed", unit=unit)
    if text.startswith("A process of this unit has been killed by the OOM killer"):
        return _event(line, "oom-killed", detail="kernel", unit=unit)
    if text.startswith("systemd-oomd killed "):
        return _event(line, "oom-killed", detail="systemd-oomd", unit=unit)
    return _timeout(line, text, unit)


def _timeout(line: Line, text: str, unit: str) -> Lifecycle | None:
    """Read what systemd says when it loses its patience, or sweeps up afterwards."""
    if text.startswith("Watchdog timeout (limit "):
        return _event(line, "timeout", detail="watchdog", unit=unit)
    if text.startswith("Service reached runtime time limit"):
        return _event(line, "timeout", detail="runtime", unit=unit)
    if text.startswith("Stopping timed out"):
        return _event(line, "timeout", detail="stop", unit=unit)
    if found := _TIMED_OUT.match(text):
        return _event(line, "timeout", detail=found["what"], unit=unit)
    if text.startswith(("Killing process ", "Sent signal ")):
        return _event(line, "teardown", unit=unit)
    if text.startswith("Found left-over process "):
        return _event(line, "left-over", unit=unit)
    return None


def _job(line: Line, text: str, unit: str | None, fields: dict[str, str]) -> Lifecycle | None:
    """Read a text about a job: ``Started llm.service - LLM server.`` or, in 247, ``Started LLM server.``."""
    for words, action in _JOBS:
        if text.startswith(words):
            named = _NAMED.match(text[len(words) :])
            detail = _DETAILS.get(words, "")
            if action in ("stopping", "stopped"):
                detail = fields.get("JOB_TYPE", "")
            return _event(line, action, detail=detail, unit=unit or (named["unit"] if named else None))
    return None


def _by_id(line: Line, unit: str | None, fields: dict[str, str]) -> Lifecycle | None:
    """Read the fields of a message whose text is not known."""
    message_id = line.record.message_id
    if message_id == _EXITED:
        status = fields.get("EXIT_STATUS", "")
        number = int(status) if status.isdecimal() else None
        killed = fields.get("EXIT_CODE") in ("killed", "dumped")
        name = _SIGNALS.get(number or 0, "") if killed else ""
        action = "main-exited" if fields.get("COMMAND", "ExecStart") == "ExecStart" else "control-exited"
        return _event(line, action, detail=name or fields.get("EXIT_CODE", ""), number=number, unit=unit)
    if message_id == _FAILED:
        return _event(line, "failed", detail=fields.get("UNIT_RESULT", ""), unit=unit)
    if message_id == _RESTART:
        count = fields.get("N_RESTARTS", "")
        return _event(line, "restart-scheduled", number=int(count) if count.isdecimal() else None, unit=unit)
    actions = {
        _STARTING: "starting",
        _STARTED: "started",
        _STOPPING: "stopping",
        _STOPPED: "stopped",
        _SUCCESS: "stopped",
        _START_FAILED: "failed",
        _EXEC_FAILED: "exec-failed",
        _OOM: "oom-killed",
        _OOMD: "oom-killed",
    }
    return _event(line, actions[message_id], unit=unit) if message_id in actions else None


def _event(
    line: Line, action: str, *, detail: str = "", number: int | None = None, unit: str | None = None
) -> Lifecycle:
    process = line.process
    if process.label != "systemd":
        process = Process(role="manager", label="systemd", pid=line.record.pid, host=line.record.host)
    return Lifecycle(
        message=line.text[:HEAD].rstrip(),
        action=action,
        detail=detail,
        number=number,
        unit=unit,
        **Gathering(line, keep=False).origin(process),
    )
