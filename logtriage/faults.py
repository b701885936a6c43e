"""An event in, the identity of its fault out: what stays the same over ranks, hosts, times and transports."""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath
from typing import Final

import regex

from logtriage.model import (
    CollectiveTimeout,
    Event,
    ExceptionLink,
    FatalError,
    Frame,
    KernelReport,
    Lifecycle,
    LoggedError,
    NativeAbort,
    ProcessExit,
    Traceback,
)

__all__ = ["fingerprint", "same_fault", "skeleton"]

_RANK: Final = r"(?:DP|PP|TP|EP|ATTN_CP|MOE_DP|[Rr]ank ?|GPU ?|scheduler_|pid ?)\d+"
# Digits behind a letter are part of a name (fp8, sm90, Qwen3), but for those that number a rank or a GPU.
_VARIABLE: Final = regex.compile(
    r"(?P<set>\{[^{}]{0,400}\})"
    r"|(?P<url>\b[a-z][a-z0-9+]{1,9}://[^\s'\",)]{1,400})"
    r"|(?P<path>(?:/[\w.+@-]+){2,}/?)"
    r"|(?P<uuid>\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b)"
    r"|(?P<port>(?<![\w.-])(?!\S{0,80}\.(?:cpp|cc|cuh?|hpp|h|py|rs):)[A-Za-z][\w.-]{0,80}:\d{2,5}\b(?!:))"
    r"|(?P<hex>\b0x[0-9a-fA-F_]+\b|\b(?=[a-f]*[0-9])[0-9a-f]{12,}\b)"
    r"|(?P<pci>\b(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:[.:][0-9a-fA-F]{1,2})?\b)"
    r"|(?P<six>\[[0-9a-fA-F:]{2,39}\](?::\d{2,5})?)"
    r"|(?P<ip>\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b)"
    rf"|(?P<rank>\b{_RANK}(?:[ _]{_RANK})*\b)"
    r"|(?P<number>(?<![A-Za-z\d])\d+(?:\.\d+)?)"
)
_WORD: Final = regex.compile(r"[\w.-]+")


def skeleton(text: str) -> str:
    """A message without what differs from run to run: numbers, paths, addresses, ranks, the order of sets.

    >>> skeleton("Tried to allocate 3.50 GiB on GPU 4")
    'Tried to allocate # GiB on #'
    """

    def replace(match: regex.Match[str]) -> str:
        if match["set"]:
            words = _WORD.findall(_VARIABLE.sub("#", match["set"][1:-1]))
            return "{" + ",".join(sorted(words)) + "}"
        return "#"

    return " ".join(_VARIABLE.sub(replace, text[:4000]).split())


def _innermost(frames: tuple[Frame, ...]) -> list[str]:
    """The last frames of the engine, else the last ones of all, as ``file:function``."""
    own = [frame for frame in frames if frame.in_app] or list(frames)
    return [f"{PurePosixPath(frame.filename).name}:{frame.function}" for frame in own[-2:]]


def _link_identity(link: ExceptionLink) -> list[str]:
    said = skeleton(link.message.partition("\n")[0])
    if not said and link.frames:  # a bare assertion is told from another one only by its source
        said = skeleton(link.frames[-1].line)
    return [link.type.rpartition(".")[2], said]


def _identity(event: Event) -> list[str]:
    if isinstance(event, Traceback):
        last = event.chain[-1]
        return ["traceback", *_link_identity(event.chain[0]), *_link_identity(last), *_innermost(last.frames)]
    if isinstance(event, FatalError):
        return ["fatal-error", event.reason, *_innermost(tuple(reversed(event.frames)))]
    if isinstance(event, Lifecycle):
        return ["lifecycle", event.action, event.detail]
    if isinstance(event, KernelReport) and (event.code is not None or event.report == "oom"):
        return ["kernel", event.report, str(event.code)]
    if isinstance(event, CollectiveTimeout) and event.operation:
        return ["collective", event.operation]
    return [event.kind, *_told_by(event)]


def _told_by(event: Event) -> list[str]:
    """What the first line of an event says, and what its number would hide."""
    first = event.message.partition("\n")[0]
    if isinstance(event, LoggedError) and event.origin == "argparse":
        first = first.partition("error: ")[2] or first  # one program is started under many names
    host = event.victim.host if isinstance(event, ProcessExit) else event.process.host
    if host:
        first = first.replace(host, "#")
    if isinstance(event, ProcessExit):
        return [str(event.exit_code), skeleton(first)]
    return [event.origin, skeleton(first)] if isinstance(event, NativeAbort) else [skeleton(first)]


def fingerprint(event: Event | None) -> str:
    """The identity of a fault, ``lt1:`` and 16 hex digits; the number is that of the algorithm."""
    identity = _identity(event) if event is not None else ["nothing"]
    return "lt1:" + hashlib.sha256("\x1f".join(identity).encode("utf-8", "replace")).hexdigest()[:16]


def same_fault(one: Event, other: Event) -> bool:
    """Whether two events tell of the same fault, on whichever rank."""
    if isinstance(one, LoggedError) and isinstance(other, Traceback):
        return same_fault(other, one)
    if isinstance(one, Traceback) and isinstance(other, LoggedError):
        # Of some ranks the log holds only the last line of the traceback.
        last = one.chain[-1]
        return bool(last.message) and _last_line(last) == skeleton(other.message.partition("\n")[0])
    if one.kind != other.kind:
        return False
    if isinstance(one, Traceback) and isinstance(other, Traceback):
        mine, theirs = one.chain[-1], other.chain[-1]
        if not mine.type or not theirs.type:  # one is torn: its frames must be the beginning of the other's
            pairs = zip(mine.frames, theirs.frames, strict=False)
            return bool(mine.frames and theirs.frames) and all(a.function == b.function for a, b in pairs)
        return _link_identity(mine) == _link_identity(theirs)
    return _identity(one) == _identity(other)


def _last_line(link: ExceptionLink) -> str:
    return skeleton(f"{link.type}: {link.message}".partition("\n")[0])
