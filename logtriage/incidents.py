"""Events in, one incident for each invocation of the service out.

The law: an event belongs to the invocation that its sender was started in.  systemd's invocation id says so
where there is one, else the pid, else the order of the stream: a sign of life after a sign of death begins
a new invocation.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from logtriage.model import (
    Event,
    Incident,
    Invocation,
    KernelReport,
    Lifecycle,
    LoggedError,
    Phase,
    ProcessExit,
    Span,
    Traceback,
)

__all__ = ["IncidentAssembler"]

MAX_EVENTS: Final = 2_000
"""Events kept of one invocation: 500 ranks may each tell of four."""

_MAX_SERVICES: Final = 1_000
_BEGINS: Final = frozenset({"started", "starting", "boot", "server-args"})
_SERVED: Final = frozenset({"serve", "ready"})
_PROGRESS: Final[tuple[Phase, ...]] = ("unknown", "args", "init", "load", "capture", "serve", "shutdown")


@attrs.define
class _Life:
    """An invocation that is being put together."""

    invocation: Invocation
    events: list[Event] = attrs.field(factory=list)
    dropped: int = 0
    phase: Phase = "unknown"
    troubled: bool = False  # something that looks like a crash was seen
    ended: bool = False  # somebody said that it is over
    starting: bool = False  # "Starting" was said, "Started" not yet
    told: bool = False  # something besides its start is known of it
    announced: bool = False  # its provisional incident was handed out
    phases: set[str] = attrs.field(factory=set)

    def add(self, event: Event) -> None:
        """Take an event; when there are too many, the middle of the story goes."""
        self.events.append(event)
        if len(self.events) > MAX_EVENTS:
            del self.events[MAX_EVENTS // 2]
            self.dropped += 1


class IncidentAssembler:
    """Put events together, one incident an invocation.

    Args:
        parse_arguments: Reads the line on which the engine prints its arguments.

    Attributes:
        dropped: Events that had to be dropped because an invocation had too many.
    """

    def __init__(self, parse_arguments: Callable[[str], Mapping[str, object] | None]) -> None:
        self.dropped = 0
        self._parse_arguments = parse_arguments
        self._lives: OrderedDict[str, _Life] = OrderedDict()
        self._by_pid: OrderedDict[tuple[str | None, int], str] = OrderedDict()
        self._last = ""
        self._restarts: dict[str, int] = {}

    def feed(self, event: Event) -> Sequence[Incident]:
        """Take an event; return the incidents that it ends."""
        out: list[Incident] = []
        key = self._key(event)
        life = self._lives.get(key)
        if isinstance(event, Lifecycle):
            if event.action == "boot":
                return self.close()
            if life is not None and self._begins_anew(life, event):
                out += self._end(key)
                life = None
        elif life is not None and _is_other_invocation(life, event):
            out += self._end(key)
            life = None
        if life is None:
            life = self._lives[key] = _Life(Invocation(unit=event.unit, restarts=self._restarts.get(key)))
            if len(self._lives) > _MAX_SERVICES:
                out += self._end(next(iter(self._lives)))
        self._take(key, life, event)
        return out

    def close(self) -> Sequence[Incident]:
        """End the stream; return what is still open."""
        return [incident for key in list(self._lives) for incident in self._end(key)]

    def provisional(self) -> Sequence[Incident]:
        """What is known so far of invocations that are in trouble, each handed out once."""
        out = [_incident(life, final=False) for life in self._lives.values() if life.troubled and not life.announced]
        for life in self._lives.values():
            life.announced = life.announced or life.troubled
        return out

    def _key(self, event: Event) -> str:
        """The service an event is about: its unit, else that of its pid, else the last one heard of."""
        pid = (event.process.host, event.process.pid or 0)
        if event.unit and not event.unit.startswith(("init.scope", "user@", "session-")):
            key = event.unit
            if key not in self._lives and "" in self._lives and not self._lives[""].invocation.unit:
                self._lives[key] = self._lives.pop("")  # the first to name its unit
                self._by_pid = OrderedDict((p, key if k == "" else k) for p, k in self._by_pid.items())
        elif event.process.pid and pid in self._by_pid:
            key = self._by_pid[pid]
        elif isinstance(event, KernelReport) and (event.process.host, event.pid or 0) in self._by_pid:
            key = self._by_pid[(event.process.host, event.pid or 0)]
        else:
            key = self._last
        if event.process.pid and event.process.role != "kernel" and event.process.label != "systemd":
            self._by_pid[pid] = key
            if len(self._by_pid) > 100_000:
                self._by_pid.popitem(last=False)
        if not isinstance(event, KernelReport):
            self._last = key
        return key

    def _begins_anew(self, life: _Life, event: Lifecycle) -> bool:
        if event.action == "server-args":
            return life.troubled or life.ended
        if event.action == "starting":
            return life.told
        if event.action == "started":
            return life.told and not (life.starting and not life.ended)
        return False

    def _take(self, key: str, life: _Life, event: Event) -> None:
        invocation = life.invocation
        changes: dict[str, Any] = {}
        if event.time:
            changes["ended"] = event.time
            changes["started"] = invocation.started or event.time
        changes["unit"] = invocation.unit or event.unit
        changes["id"] = invocation.id or event.invocation_id
        changes["host"] = invocation.host or event.process.host
        if isinstance(event, Lifecycle):
            changes.update(self._lifecycle(key, life, event))
        else:
            life.told = True
            if isinstance(event, (Traceback, ProcessExit)) or (
                isinstance(event, LoggedError) and event.origin == "argparse"
            ):
                life.troubled = True
        life.invocation = attrs.evolve(invocation, **changes)
        if not isinstance(event, Lifecycle) or event.action != "phase":
            life.add(event)
        elif event.detail not in life.phases:  # a server at work says so on every line
            life.phases.add(event.detail)
            life.add(event)

    def _lifecycle(self, key: str, life: _Life, event: Lifecycle) -> dict[str, Any]:
        """What a step of the service's life changes in what we know of it."""
        action = event.action
        if action in ("starting", "started"):
            life.starting = action == "starting"
            return {"state": "activating" if action == "starting" else "active"}
        life.told = True
        if action in ("phase", "ready", "server-args") and not life.troubled:
            said: Phase = (
                "serve" if action == "ready" else "args" if action == "server-args" else _phase(event.detail)
            )
            life.phase = max(life.phase, said, key=_PROGRESS.index)
        if action == "version":
            return {"engine_version": event.detail}
        if action == "server-args":
            return {"engine": "sglang", "server_args": self._parse_arguments(event.detail) or {}}
        if action in ("sigquit", "main-exited"):
            life.troubled = True
        if action in ("main-exited", "stopped", "failed"):
            life.ended = True
        if action == "failed":
            return {"state": "failed", "result": event.detail or life.invocation.result}
        if action == "stopped":
            return {"state": "inactive"} if not life.troubled else {}
        if action == "restart-scheduled":
            life.ended = True
            if event.number is not None:
                self._restarts[key] = event.number
            return {"state": "activating"}
        if action == "start-limit":
            return {"state": "failed"}
        return {}

    def _end(self, key: str) -> list[Incident]:
        life = self._lives.pop(key)
        self.dropped += life.dropped
        if self._restarts.get(key) is not None and life.invocation.state == "failed" and not _gave_up(life):
            # A unit that systemd has restarted before is restarted again, unless systemd says that it gave up.
            life.invocation = attrs.evolve(life.invocation, state="activating")
        return [_incident(life, final=True)] if life.events else []


def _incident(life: _Life, *, final: bool) -> Incident:
    events = tuple(sorted(life.events, key=lambda event: event.span.first))
    span = Span(events[0].span.first, max(event.span.last for event in events))
    return Incident(life.invocation, events, life.phase, span, final)


def _gave_up(life: _Life) -> bool:
    return any(isinstance(event, Lifecycle) and event.action == "start-limit" for event in life.events)


def _is_other_invocation(life: _Life, event: Event) -> bool:
    return bool(event.invocation_id and life.invocation.id and event.invocation_id != life.invocation.id)


def _phase(detail: str) -> Phase:
    return next((phase for phase in _PROGRESS if phase == detail), "unknown")
