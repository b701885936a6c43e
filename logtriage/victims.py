"""A root event and its incident in, the event with the process it happened to out.

Native output carries no rank, and a launcher speaks of others: who died has to be joined from what the rest says.
"""

from __future__ import annotations

from typing import Final

import attrs

from logtriage.consequences import is_cuda_fault, is_peer_loss
from logtriage.model import (
    Event,
    FatalError,
    Incident,
    LoggedError,
    NativeAbort,
    Process,
    ProcessExit,
    Traceback,
)

__all__ = ["with_victim"]

_SIGNALS: Final = {
    "Segmentation fault": -11,
    "Aborted": -6,
    "Bus error": -7,
    "Floating point exception": -8,
    "Illegal instruction": -4,
}


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
        # A launcher that asks its children one after the other names the first it asked, not the first that died.
        asked = root.message.startswith("Rank ")
        return attrs.evolve(root, process=root.victim) if root.victim.label and not asked else root
    if root.process.rank or root.process.label not in ("", "main"):
        return root
    if isinstance(root, LoggedError):
        return _of_traceback(root, incident, "NCCL") if root.origin == "nccl" else root
    if not isinstance(root, (FatalError, NativeAbort)):
        return root
    wanted = _SIGNALS.get(root.reason) if isinstance(root, FatalError) else None
    exits = [event for event in incident.events if isinstance(event, ProcessExit) and event.victim.rank]
    fitting = [event for event in exits if (event.exit_code or 0) < 0 and wanted in (None, event.exit_code)]
    victims = {event.victim.label: event.victim for event in fitting}
    if len(victims) == 1:
        return attrs.evolve(root, process=next(iter(victims.values())), basis="only-candidate")
    if isinstance(root, NativeAbort) and is_cuda_fault(root):
        return _of_traceback(root, incident, "")
    silent = _silent_rank(incident)
    return attrs.evolve(root, process=silent, basis="guess") if silent else root


def _of_traceback(root: Event, incident: Incident, word: str) -> Event:
    """The process of the first traceback that follows from *root*."""
    for event in incident.events:
        if isinstance(event, Traceback) and event.span.first > root.span.first and event.process.label not in ("", "main"):
            if word in event.message if word else is_cuda_fault(event):
                return attrs.evolve(root, process=event.process, basis="guess")
    return root


def _silent_rank(incident: Incident) -> Process | None:
    """The one rank that says nothing of a lost peer while all others do."""
    size = incident.invocation.server_args.get("tp_size")
    heard = {e.process.rank.tp for e in incident.events if is_peer_loss(e) and e.process.rank.tp is not None}
    if not isinstance(size, int) or len(heard) != size - 1 or size < 3:
        return None
    (missing,) = set(range(size)) - heard
    template = next(e.process for e in incident.events if e.process.rank.tp is not None)
    rank = attrs.evolve(template.rank, tp=missing)
    return attrs.evolve(template, rank=rank, label=str(rank), pid=None)
