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
import regex

from logtriage.model import (
    Event,
    FatalError,
    Incident,
    Invocation,
    KernelReport,
    Lifecycle,
    LoggedError,
    NativeAbort,
    Phase,
    ProcessExit,
    Span,
    Traceback,
    WatchdogTimeout,
)
from logtriage.weight import thin, weigh

__all__ = ["IncidentAssembler"]

MAX_EVENTS: Final = 2_000
"""Events kept of one invocation: 500 ranks may each tell of four."""

_MAX_SERVICES: Final = 1_000
_MAX_WEIGHT: Final = 1 << 25  # bytes of events of all open invocations together, roughly
_MAX_PIDS: Final = 100_000
_MANAGERS: Final = ("init.scope", "user@", "session-", "user-", "-.slice")
_PHASES: Final[tuple[Phase, ...]] = ("args", "init", "load", "capture", "serve", "shutdown")
_PRELUDE: Final = frozenset({"exec-failed", "left-over", "control-exited"})
"""What may stand before "Started": systemd and the child it forks write to the journal independently."""
_CLEAN: Final = frozenset({"TERM", "INT", "HUP", "PIPE"})
_SENTENCE: Final = regex.compile(
    r"(?:Starting|Started|Finished|Stopping|Stopped(?: \(with error\))?|Failed to start|Timed out starting"
    r"|Dependency failed for|Assertion failed for) (?P<described>.{1,300}?)\.{0,3}$"
)


# Where the journal does not say which unit a process is of, the name of the unit may.
_SERVER_NAME: Final = regex.compile(
    r"sglang|vllm|llm|trt|triton|infer|model|serv(?:e|ing)\b|prefill|decode|gpu|qwen|llama|deepseek|glm|mistral",
    regex.IGNORECASE,
)


@attrs.define
class _Life:
    """An invocation that is being put together."""

    invocation: Invocation
    events: list[Event] = attrs.field(factory=list)
    dropped: int = 0
    weight: int = 0  # about how much memory the events take
    room: int = 1 << 24  # and how much they may
    phase: Phase = "unknown"
    phases: set[str] = attrs.field(factory=set)
    started: bool = False  # systemd said "Started", or the engine printed its arguments
    introduced: bool = False  # the engine printed its arguments
    told: bool = False  # more is known of it than its start and the prelude of that
    heard: bool = False  # a process of it said something
    troubled: bool = False  # something that looks like a crash was seen
    asked: bool = False  # somebody asked it to stop
    ended: bool = False  # somebody said that it is over
    refused: bool = False  # its arguments were refused
    gave_up: bool = False  # systemd said that it does not start it again
    scheduled: int | None = None  # the restart counter that its end brought about
    announced: bool = False  # its provisional incident was handed out

    def add(self, event: Event) -> None:
        """Keep an event; when there are too many, the middle of the story goes."""
        if isinstance(event, Lifecycle) and event.action == "phase":
            if event.detail in self.phases:  # a server at work says so on every line
                return
            self.phases.add(event.detail)
        elif isinstance(event, WatchdogTimeout):
            self.phases.clear()  # what is said of work from here on shows that the server lives
        self.events.append(event)
        before = len(self.events)
        self.weight = thin(self.events, self.weight + weigh(event), room=self.room, most=MAX_EVENTS)
        self.dropped += before - len(self.events)

    def incident(self, *, final: bool) -> Incident:
        """What is known of it."""
        events = tuple(sorted(self.events, key=lambda event: event.span.first))
        span = Span(events[0].span.first, max(event.span.last for event in events))
        return Incident(self.invocation, events, self.phase, span, final)

    def take(self, event: Event, parse_arguments: Callable[[str], Mapping[str, object] | None]) -> None:
        """Take an event in: what it changes in what is known."""
        invocation = self.invocation
        changes: dict[str, Any] = {}
        if event.time:
            changes["ended"] = event.time
            changes["started"] = invocation.started or event.time
        changes["unit"] = invocation.unit or _unit(event)
        changes["id"] = invocation.id or event.invocation_id
        changes["host"] = invocation.host or event.process.host
        if _is_manager(event):
            assert isinstance(event, Lifecycle)
            changes.update(self._step_of_unit(event))
        elif isinstance(event, Lifecycle):
            self.told = self.heard = True
            changes.update(self._step_of_engine(event, parse_arguments))
        elif not isinstance(event, KernelReport):
            self.told = self.heard = True
            self.refused = self.refused or _refuses_arguments(event)
            self.troubled = self.troubled or _is_trouble(event)
        self.invocation = attrs.evolve(invocation, **changes)
        self.add(event)

    def _step_of_engine(
        self, event: Lifecycle, parse_arguments: Callable[[str], Mapping[str, object] | None]
    ) -> dict[str, Any]:
        action = event.action
        if action == "version":
            return {"engine_version": event.detail}
        if action == "sigquit":
            self.troubled = True
        if action == "sigterm" and event.detail != "shutdown" and not self.troubled:
            self.asked = True
            self.phase = "shutdown"
        if action in ("phase", "ready", "server-args") and not self.troubled:
            said = {"ready": "serve", "server-args": "args"}.get(action, event.detail)
            # One rank may still tell of its loading when another one serves already.
            if self.phase not in ("serve", "shutdown"):
                self.phase = next((phase for phase in _PHASES if phase == said), self.phase)
        if action == "server-args":
            self.started = self.introduced = True
            return {"engine": "sglang", "server_args": parse_arguments(event.detail) or {}}
        return {}

    def _step_of_unit(self, event: Lifecycle) -> dict[str, Any]:
        """A step as systemd tells it; the state is what ``systemctl is-active`` would say after it."""
        action, state = event.action, self.invocation.state
        self.told = self.told or action not in (*_PRELUDE, "starting", "started")
        if action in ("starting", "started"):
            self.started = self.started or action == "started"
            return {"state": "activating" if action == "starting" else "active"}
        if action == "stopping":
            self.asked = True
            if not self.troubled:
                self.phase = "shutdown"
        if action == "main-exited":
            self.ended = True
            bad = event.number != 0 and event.detail not in _CLEAN
            self.troubled = self.troubled or bad
            return {"state": "failed"} if bad else {}
        if action == "failed":
            return self._failed(event)
        if action == "stopped":
            return self._stopped(event, state)
        if action == "restart-scheduled":
            self.ended = True
            self.scheduled = event.number if event.number is not None else (self.invocation.restarts or 0) + 1
            return {"state": "activating"}
        if action == "start-limit":
            self.gave_up = True
            return {"state": "failed", "restarts": self.scheduled or self.invocation.restarts}
        return {}

    def _failed(self, event: Lifecycle) -> dict[str, Any]:
        self.ended = True
        if event.detail in ("dependency", "assert"):
            return {"state": "inactive"}  # it was never started, so it did not fail
        return {"state": "failed", "result": event.detail or self.invocation.result}

    def _stopped(self, event: Lifecycle, state: str) -> dict[str, Any]:
        if event.detail == "success":
            self.ended = True
            return {"state": "inactive", "result": "success"}
        if self.scheduled is not None or (state == "failed" and (self.asked or self.gave_up)):
            return {}
        # Of a failed unit: somebody stopped it while systemd waited to start it again.
        self.ended = self.gave_up = True
        return {"state": "inactive"}


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
        self._last = ""  # the service last heard of
        self._speaking = ""  # the service of which a process was last heard
        self._described: OrderedDict[str, str] = OrderedDict()  # services by the description of their unit
        self._restarts: OrderedDict[str, set[str]] = OrderedDict()  # states from which systemd started it

    def feed(self, event: Event) -> Sequence[Incident]:
        """Take an event; return the incidents that it ends."""
        if isinstance(event, Lifecycle) and event.action == "boot":
            ended = self.close()
            self._by_pid.clear()
            self._restarts.clear()
            return ended
        out: list[Incident] = []
        key = self._key(event)
        life = self._lives.get(key)
        restarts: int | None = None
        if life is not None and _begins_anew(life, event):
            restarts = life.scheduled if _is_start(event) or event.invocation_id else None
            out += self._end(key, followed=True)
            life = None
        if life is None:
            life = self._begin(key, restarts, event)
            if len(self._lives) > _MAX_SERVICES:
                out += self._end(next(iter(self._lives)))
        life.room = min(_MAX_WEIGHT // 2, _MAX_WEIGHT // len(self._lives))
        life.take(event, self._parse_arguments)
        return out

    def close(self) -> Sequence[Incident]:
        """End the stream; return what is still open."""
        return [incident for key in list(self._lives) for incident in self._end(key)]

    def provisional(self) -> Sequence[Incident]:
        """What is known so far of invocations that are in trouble, each handed out once."""
        fresh = [life for life in self._lives.values() if life.troubled and not life.announced]
        for life in fresh:
            life.announced = True
        return [life.incident(final=False) for life in fresh if life.events]

    def _begin(self, key: str, restarts: int | None, event: Event) -> _Life:
        life = self._lives[key] = _Life(Invocation(unit=_unit(event), restarts=restarts))
        stray = self._lives.get("")
        if key and stray is not None and not stray.told:  # reports of the kernel from before the first start
            del self._lives[""]
            for report in stray.events:
                life.add(report)
        return life

    def _end(self, key: str, *, followed: bool = False) -> list[Incident]:
        """End the life of a service; *followed*: another one was begun."""
        life = self._lives.pop(key)
        self.dropped += life.dropped
        invocation = life.invocation
        before = self._restarts.get(key, set())
        if life.scheduled is not None:
            self._restarts[key] = {*before, "inactive" if invocation.result == "success" else "failed"}
            self._restarts.move_to_end(key)
            if len(self._restarts) > _MAX_SERVICES:
                self._restarts.popitem(last=False)
            if not followed:
                invocation = attrs.evolve(invocation, restarts=life.scheduled)
        elif life.ended and invocation.state in before and not life.asked and not life.gave_up:
            # What systemd did after such an end before it does again, until it says that it gave up.
            invocation = attrs.evolve(invocation, state="activating")
        life.invocation = invocation
        return [life.incident(final=True)] if life.events else []

    def _key(self, event: Event) -> str:
        """The service an event is about."""
        host, unit = event.process.host or "", _unit(event)
        pid = (event.process.host, event.process.pid or 0)
        if unit:
            key = self._named(f"{host}/{unit}", event)
        elif _is_manager(event):
            key = self._nameless(host, event)
        elif isinstance(event, KernelReport):
            known = self._by_pid.get((event.process.host, event.pid or 0))
            return known or (self._speaking if self._speaking in self._lives else self._last)
        elif pid[1] and pid in self._by_pid:
            key = self._by_pid[pid]
        else:
            key = self._nearest(event)
        self._last = key
        if not _is_manager(event):
            self._speaking = key
            if pid[1]:
                self._by_pid[pid] = key
                if len(self._by_pid) > _MAX_PIDS:
                    self._by_pid.popitem(last=False)
        return key

    def _nearest(self, event: Event) -> str:
        """The service of a process that nothing else is known of."""
        speaking = self._lives.get(self._speaking)
        if speaking is not None and not speaking.ended and not (speaking.introduced and _is_start(event)):
            return self._speaking
        fresh = [key for key, life in self._lives.items() if not life.heard and not life.ended and key]
        if not fresh:
            return self._last if speaking is None else self._speaking
        return next((key for key in reversed(fresh) if _SERVER_NAME.search(key)), fresh[-1])

    def _named(self, key: str, event: Event) -> str:
        """The service of a unit; the first to name it may adopt what its processes had said before."""
        if key in self._lives or not isinstance(event, Lifecycle) or _is_start(event):
            return key
        if key in self._described.values():
            return key
        open_lives = [(other, life) for other, life in self._lives.items() if not life.ended]
        nameless = [other for other, life in open_lives if not life.invocation.unit]
        if event.action in _PRELUDE:
            nameless = [other for other in nameless if other == self._last and not self._lives[other].heard]
        if event.action == "stopped":  # a healthy end is hardly that of a server amid its work
            lives = self._lives
            nameless = [other for other in nameless if not lives[other].heard or lives[other].asked]
        if nameless:
            likely = next((other for other in reversed(nameless) if _SERVER_NAME.search(other)), nameless[-1])
            self._adopt(key, self._speaking if self._speaking in nameless else likely)
        return key

    def _adopt(self, key: str, nameless: str) -> None:
        self._lives[key] = self._lives.pop(nameless)
        if nameless.startswith("?"):
            self._describe(nameless[1:], key)
        for pid in [pid for pid, other in self._by_pid.items() if other == nameless]:
            self._by_pid[pid] = key
        if self._speaking == nameless:
            self._speaking = key

    def _nameless(self, host: str, event: Event) -> str:
        """The service of a sentence that describes its unit instead of naming it (systemd before 249)."""
        found = _SENTENCE.match(event.message[:400])
        if found is None or not isinstance(event, Lifecycle):
            return self._last
        description = f"{host}/{found['described']}"
        last = self._lives.get(self._last)
        if last is not None and event.action in ("stopped", "failed") and not event.detail:
            # It comes right behind a line of the same unit that names it.
            known = description in self._described or f"?{description}" in self._lives
            if last.scheduled is not None or not (known or self._last in self._described.values()):
                self._describe(description, self._last)
        return self._described.get(description, f"?{description}")

    def _describe(self, description: str, key: str) -> None:
        for wrong in [other for other, unit in self._described.items() if unit == key]:
            del self._described[wrong]
        self._described[description] = key
        if len(self._described) > _MAX_SERVICES:
            self._described.popitem(last=False)


def _unit(event: Event) -> str | None:
    """The unit an event is of, unless that is the manager's own."""
    return None if not event.unit or event.unit.startswith(_MANAGERS) else event.unit


def _is_manager(event: Event) -> bool:
    """Whether systemd says it."""
    return isinstance(event, Lifecycle) and event.process.label == "systemd"


def _is_start(event: Event) -> bool:
    return isinstance(event, Lifecycle) and event.action in ("starting", "started", "server-args")


def _begins_anew(life: _Life, event: Event) -> bool:
    """Whether an event cannot be of the invocation that its service was known to be in."""
    if event.invocation_id and life.invocation.id:
        return event.invocation_id != life.invocation.id
    if _refuses_arguments(event):
        return life.refused
    if not isinstance(event, Lifecycle):
        return False
    if event.action == "server-args":
        # Two nodes of one server start at the same time; who has come further had started before.
        return life.troubled or life.ended or life.phase in ("capture", "serve", "shutdown")
    if event.action == "left-over":
        return life.ended
    if event.action == "starting":
        return life.told or life.started
    running = life.started or (life.told and life.invocation.state != "activating")
    return event.action == "started" and (life.ended or running)


def _refuses_arguments(event: Event) -> bool:
    return isinstance(event, LoggedError) and event.origin == "argparse"


def _is_trouble(event: Event) -> bool:
    """Whether a process of a healthy service does not say it."""
    if isinstance(event, Traceback):
        return not event.ignored
    if isinstance(event, ProcessExit):
        return event.exit_code != 0
    return isinstance(event, (FatalError, NativeAbort)) or _refuses_arguments(event)
