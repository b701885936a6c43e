"""An incident in, out what the judgement of each of its events may depend on."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from logtriage.consequences import is_cuda_fault, is_stop, is_trouble
from logtriage.model import Event, Incident, Lifecycle, ProcessExit, Traceback

__all__ = ["Scene", "read_scene"]


@attrs.frozen
class Scene:
    """What rules may ask about the incident besides the event.

    Attributes:
        events: All events in order.
        stopped: Input line from which somebody had asked the service to stop; 0 if nobody had.
        trouble: Input line of the first event that tells of a fault; 0 if there is none before a stop.
        cuda_faults: First line of the first CUDA fault of each stream.
        exceptions: Messages of all exceptions, by the line on which each traceback begins.
        exits: Input line of the first report that a process ended badly; 0 if there is none.
        failed: Whether systemd said that the unit failed.
    """

    events: Sequence[Event]
    stopped: int
    trouble: int
    cuda_faults: dict[str, int]
    exceptions: Sequence[tuple[int, str]]
    exits: int
    failed: bool


def read_scene(incident: Incident) -> Scene:
    """Look over an incident once.

    Args:
        incident: The events of one invocation.
    """
    events = incident.events
    troubles = [event.span.first for event in events if is_trouble(event)]
    trouble = min(troubles, default=0)
    stops = [event.span.first for event in events if is_stop(event)]
    # A stop that is asked for after the first trouble explains nothing.
    stopped = min((line for line in stops if not trouble or line < trouble), default=0)
    faults: dict[str, int] = {}
    for event in events:
        if is_cuda_fault(event):
            faults.setdefault(event.stream, event.span.first)
    exceptions = [
        (event.span.first, link.message.partition("\n")[0].strip())
        for event in events
        if isinstance(event, Traceback)
        for link in event.chain
    ]
    ended = [e for e in events if isinstance(e, ProcessExit) and e.exit_code != 0 and e.victim.label]
    exits = min((event.span.first for event in ended), default=0)
    failed = any(isinstance(event, Lifecycle) and event.action == "failed" for event in events)
    return Scene(events, stopped, 0 if stopped else trouble, faults, exceptions, exits, failed)
