"""An event in, the identity of its fault out: what stays the same over ranks, hosts, times and transports."""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath
from typing import Final

import regex

from logtriage.model import Event, ExceptionLink, FatalError, Frame, Lifecycle, Traceback

__all__ = ["fingerprint", "same_fault", "skeleton"]

_VARIABLE: Final = regex.compile(
    r"(?P<path>(?:/[\w.+@-]+){2,}/?)|(?P<hex>\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{12,}\b)|(?P<set>\{[^{}]{0,400}\})"
    r"|(?P<ip>\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b)|(?P<rank>\b(?:DP|PP|TP|EP|rank ?|Rank ?|GPU ?|scheduler_)\d+\b)|(?P<number>\d+(?:\.\d+)?)"
)


def skeleton(text: str) -> str:
    """A message without what differs from run to run: numbers, paths, addresses, ranks, the order of sets.

    >>> skeleton("Tried to allocate 3.50 GiB on GPU 4")
    'Tried to allocate # GiB on #'
    """

    def replace(match: regex.Match[str]) -> str:
        if match["set"]:
            return "{" + ",".join(sorted(regex.findall(r"[\w.-]+", match["set"]))) + "}"
        return "#"

    return " ".join(_VARIABLE.sub(replace, text[:4000]).split())


def _innermost(frames: tuple[Frame, ...]) -> list[str]:
    """The last frames of the engine, else the last ones of all, as ``file:function``."""
    own = [frame for frame in frames if frame.in_app] or list(frames)
    return [f"{PurePosixPath(frame.filename).name}:{frame.function}" for frame in own[-2:]]


def _link_identity(link: ExceptionLink) -> list[str]:
    return [link.type.rpartition(".")[2], skeleton(link.message.partition("\n")[0])]


def _identity(event: Event) -> list[str]:
    if isinstance(event, Traceback):
        last = event.chain[-1]
        return ["traceback", *_link_identity(event.chain[0]), *_link_identity(last), *_innermost(last.frames)]
    if isinstance(event, FatalError):
        return ["fatal-error", event.reason, *_innermost(tuple(reversed(event.frames)))]
    if isinstance(event, Lifecycle):
        return ["lifecycle", event.action, event.detail]
    return [event.kind, skeleton(event.message.partition("\n")[0])]


def fingerprint(event: Event | None) -> str:
    """The identity of a fault, ``lt1:`` and 16 hex digits; the number is that of the algorithm."""
    identity = _identity(event) if event is not None else ["nothing"]
    return "lt1:" + hashlib.sha256("\x1f".join(identity).encode("utf-8", "replace")).hexdigest()[:16]


def same_fault(one: Event, other: Event) -> bool:
    """Whether two events tell of the same fault, on whichever rank."""
    if one.kind != other.kind:
        return False
    if isinstance(one, Traceback) and isinstance(other, Traceback):
        mine, theirs = one.chain[-1], other.chain[-1]
        if not mine.type or not theirs.type:  # one is torn: its frames must be the beginning of the other's
            pairs = zip(mine.frames, theirs.frames, strict=False)
            return bool(mine.frames and theirs.frames) and all(a.function == b.function for a, b in pairs)
        return _link_identity(mine) == _link_identity(theirs)
    return _identity(one) == _identity(other)
