"""Two diagnoses of the same fault go in, one comes out: a crash loop is one entry, and still tells each crash."""

from __future__ import annotations

from typing import Final

import attrs

from logtriage.model import Diagnosis, Event, Incident, Occurrence
from logtriage.unread import join

__all__ = ["MAX_OCCURRENCES", "fold", "occurrence"]

MAX_OCCURRENCES: Final = 200
"""Crashes of one diagnosis that are told one by one: the first and the last of them, as many of each."""


def occurrence(incident: Incident, root: Event | None) -> Occurrence:
    """Where one crash began.

    Args:
        incident: The crash.
        root: The event that started it, or ``None``.
    """
    restarts = incident.invocation.restarts
    if root is None:
        return Occurrence(incident.span, restarts=restarts)
    return Occurrence(root.span, root.process.label, root.time, restarts)


def fold(before: Diagnosis, found: Diagnosis) -> Diagnosis:
    """Tell a crash together with an earlier one that is the same.

    Args:
        before: The diagnosis of all earlier ones.
        found: That of the new one.

    Returns:
        The first incident, with the invocation as the last one left it.
    """
    first, last = before.incident, found.incident.invocation
    begun = first.invocation
    invocation = attrs.evolve(last, started=begun.started, server_args=begun.server_args)
    half = MAX_OCCURRENCES // 2
    each = (*before.occurrences, *found.occurrences)
    return attrs.evolve(
        found if before.match is None and found.match else before,
        incident=attrs.evolve(first, invocation=invocation),
        next_steps=tuple(dict.fromkeys((*before.next_steps, *found.next_steps))),
        repeats=before.repeats + found.repeats,
        final=found.final,
        occurrences=each if len(each) <= 2 * half else (*each[:half], *each[-half:]),
        unread=join(before.unread, found.unread),
    )
