"""A root event and its incident in, the event with the process it happened to out.

Native output carries no rank, the kernel knows pids only, and a launcher speaks of others: who died has to be
joined from what the rest says.
"""

from __future__ import annotations

from typing import Final

import attrs

from logtriage.consequences import is_cuda_fault, is_peer_loss
from logtriage.model import (
    CollectiveTimeout,
    Event,
    FatalError,
    Incident,
    KernelReport,
    LoggedError,
    NativeAbort,
    Process,
    ProcessExit,
    Traceback,
    WatchdogTimeout,
)

__all__ = ["silent_rank", "with_victim"]

_SIGNALS: Final = {
    "Segmentation fault": -11,
    "Aborted": -6,
    "Bus error": -7,
    "Floating point exception": -8,
    "Illegal instruction": -4,
}
_OWN: Final = ("", "main")
_MAIN: Final = Process("launcher", "main")
_MAIN_FUNCTIONS: Final = frozenset({"<module>", "_run_module_as_main", "_run_code"})
_CHILD_FUNCTIONS: Final = frozenset({"spawn_main", "_bootstrap", "_bootstrap_inner"})


def with_victim(root: Event, incident: Incident) -> Event:
    """Name the process of a root that names none.

    Args:
        root: The root event.
        incident: Its incident.

    Returns:
        The event, with the process that other events of the incident show it to be of, and a ``basis`` that
        says how sure that is; unchanged if nothing shows it.
    """
    if isinstance(root, ProcessExit):
        # A launcher that asks its children one after the other names the first it asked, not the first that
        # died.
        asked = root.message.startswith("Rank ")
        return attrs.evolve(root, process=root.victim) if root.victim.label and not asked else root
    if isinstance(root, KernelReport):
        return _of_pid(root, incident)
    if silent := silent_rank(root, incident):
        return attrs.evolve(root, process=silent, basis="guess")  # who waited is not who hangs
    if root.process.rank or root.process.label not in _OWN:
        return root
    if isinstance(root, Traceback):
        return _of_main(root)
    if isinstance(root, LoggedError):
        return _of_logged(root, incident)
    return _of_native(root, incident) if isinstance(root, (FatalError, NativeAbort)) else root


def _of_pid(root: KernelReport, incident: Incident) -> Event:
    """The process that the kernel names, if others name it better.

    In a container the kernel's pid is another one; then the only process that was killed is the OOM killer's.
    """
    exits = [event for event in incident.events if isinstance(event, ProcessExit) and event.victim.label]
    spoken = [event.process for event in incident.events if not isinstance(event, KernelReport)]
    for process in [*spoken, *(event.victim for event in exits)]:
        if root.pid and process.pid == root.pid and process.label and process.role != "manager":
            return attrs.evolve(root, process=process, basis="pid")
    killed = {event.victim.label: event.victim for event in exits if event.exit_code == -9}
    if root.report == "oom" and len(killed) == 1:
        return attrs.evolve(root, process=next(iter(killed.values())), basis="only-candidate")
    return root


def _of_main(root: Traceback) -> Event:
    """An exception that nobody caught, in the program itself rather than in a process that it started."""
    functions = [frame.function for frame in root.chain[-1].frames]
    if root.process.label or not functions or functions[0] not in _MAIN_FUNCTIONS:
        return root
    if not _CHILD_FUNCTIONS.isdisjoint(functions):
        return root
    return attrs.evolve(root, process=attrs.evolve(root.process, role=_MAIN.role, label=_MAIN.label))


def _of_logged(root: LoggedError, incident: Incident) -> Event:
    if root.origin == "argparse" and not root.process.label:
        return attrs.evolve(root, process=attrs.evolve(root.process, role=_MAIN.role, label=_MAIN.label))
    return _of_traceback(root, incident, "NCCL") if root.origin == "nccl" else root


def _of_native(root: FatalError | NativeAbort, incident: Incident) -> Event:
    wanted = _SIGNALS.get(root.reason) if isinstance(root, FatalError) else None
    exits = [event for event in incident.events if isinstance(event, ProcessExit) and event.victim.rank]
    fitting = [event for event in exits if (event.exit_code or 0) < 0 and wanted in (None, event.exit_code)]
    victims = {event.victim.label: event.victim for event in fitting}
    if len(victims) == 1:
        return attrs.evolve(root, process=next(iter(victims.values())), basis="only-candidate")
    if isinstance(root, NativeAbort) and is_cuda_fault(root):
        return _of_traceback(root, incident, "")
    heard = {e.process.rank.tp for e in incident.events if is_peer_loss(e) and e.process.rank.tp is not None}
    silent = _missing(heard, incident)
    return attrs.evolve(root, process=silent, basis="guess") if silent else root


def _of_traceback(root: Event, incident: Incident, word: str) -> Event:
    """The process of the first traceback that follows from *root*."""
    for event in incident.events:
        if (
            isinstance(event, Traceback)
            and event.span.first > root.span.first
            and event.process.label not in _OWN
            and (word in event.message if word else is_cuda_fault(event))
        ):
            return attrs.evolve(root, process=event.process, basis="guess")
    return root


def silent_rank(root: Event, incident: Incident) -> Process | None:
    """The suspect of a hang: the one rank that does not complain while all others do.

    Args:
        root: A time-out.
        incident: Its incident.
    """
    if not isinstance(root, (CollectiveTimeout, WatchdogTimeout)):
        return None
    waited = [event for event in incident.events if event.kind == root.kind]
    ranks = {rank for event in waited if (rank := _place(event.process)) is not None}
    return _missing(ranks, incident)


def _place(process: Process) -> int | None:
    return process.rank.tp if process.rank.tp is not None else process.rank.world


def _missing(heard: set[int], incident: Incident) -> Process | None:
    """The only rank of the group that *heard* lacks."""
    size = incident.invocation.server_args.get("tp_size")
    if not isinstance(size, int) or len(heard) != size - 1 or size < 3 or not heard < set(range(size)):
        return None
    (missing,) = set(range(size)) - heard
    template = next(e.process for e in incident.events if _place(e.process) in heard)
    axis = "tp" if template.rank.tp is not None else "world"
    rank = attrs.evolve(template.rank, **{axis: missing})
    return attrs.evolve(template, rank=rank, label=str(rank), pid=None)
