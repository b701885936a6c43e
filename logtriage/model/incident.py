"""One life of the service and the judgement on what ended it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from logtriage.model.event import Event, Phase
from logtriage.model.text import Span

__all__ = ["Finding", "FindingRole", "Incident", "Invocation", "RootRole", "Verdict"]

FindingRole = Literal["initiating", "observer", "cascade", "teardown", "noise", "unknown"]
RootRole = Literal["initiating", "earliest-evidence"]


@attrs.frozen
class Invocation:
    """One start of the service.

    Attributes:
        unit: systemd unit, if known.
        id: systemd invocation id, if known.
        host: Host name, if known.
        started: Time of the first sign of life, as written.
        ended: Time of the last sign of life, as written.
        state: What ``systemctl is-active`` would say after it: ``activating``, ``failed``,
            ``inactive``, ``active`` or ``unknown``.
        result: systemd's result (``exit-code``, ``signal``, ``oom-kill``, …) or ``None``.
        restarts: systemd's restart counter when this invocation started; ``None`` if not said.
        engine: ``sglang``, ``vllm``, ``tensorrt-llm`` or ``None``.
        engine_version: Release, if the log names it.
        argv: The command line, if the log shows it.
        server_args: The resolved arguments the engine printed, secrets already removed.
    """

    unit: str | None = None
    id: str | None = None
    host: str | None = None
    started: str | None = None
    ended: str | None = None
    state: str = "unknown"
    result: str | None = None
    restarts: int | None = None
    engine: str | None = None
    engine_version: str | None = None
    argv: tuple[str, ...] | None = None
    server_args: Mapping[str, object] = attrs.field(factory=dict)


@attrs.frozen
class Finding:
    """An event and its part in the story.

    Attributes:
        event: The event.
        role: Its part.
        reason: One sentence that says why it has this part.
    """

    event: Event
    role: FindingRole
    reason: str


@attrs.frozen
class Incident:
    """The events of one invocation that ended, or seems to end, badly.

    Attributes:
        invocation: Which start of the service.
        events: All its events, in the order of the input.
        phase: How far it had come when the first trouble showed.
        span: The input lines from its first event to its last.
        final: False while more may follow.
    """

    invocation: Invocation
    events: tuple[Event, ...]
    phase: Phase
    span: Span
    final: bool = True


@attrs.frozen
class Verdict:
    """Which event of an incident started it, and what the others are.

    Attributes:
        root: The event to read first; ``None`` if no event could be read.
        root_role: ``initiating``, or ``earliest-evidence`` where the log holds only consequences.
        reason: Why this one.
        findings: Every other event with its part.
    """

    root: Event | None
    root_role: RootRole
    reason: str
    findings: tuple[Finding, ...] = ()
