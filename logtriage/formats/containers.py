"""Lines of container tools in, message and container out: docker and CRI times, compose, kubectl.

Sources: ``docker logs --timestamps`` (RFC 3339, nanoseconds); CRI log format (time, stream, ``P`` or ``F``);
``docker compose logs`` (name padded to the longest, a bar); ``kubectl logs --prefix`` (``[pod/NAME/CONTAINER]``).
"""

from __future__ import annotations

from typing import Final

import regex

from logtriage.formats.envelope import Format, Peeled

__all__ = ["COMPOSE", "CRI", "DOCKER_TIMES", "KUBECTL"]

_ZONE: Final = r"(?:Z|[+-]\d\d:\d\d)"
_TIME: Final = (
    rf"(?P<time>\d{{4}}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\.\d{{9}}{_ZONE}?"
    rf"|\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{{1,9}})?{_ZONE})"
)
_DOCKER: Final = regex.compile(rf"{_TIME}(?: (?P<rest>.*)|$)", regex.DOTALL)
_CRI: Final = regex.compile(rf"{_TIME} (?:stdout|stderr) (?P<tag>[PF])(?::\S+)?(?: (?P<rest>.*)|$)", regex.DOTALL)
_COMPOSE: Final = regex.compile(r"(?P<name>[a-zA-Z0-9][\w.-]{0,80})\s+\|(?: (?P<rest>.*)|$)", regex.DOTALL)
_KUBECTL: Final = regex.compile(
    r"\[(?:pod/)?(?P<pod>[a-z0-9][a-z0-9.-]{0,252})/(?P<name>[a-z0-9][a-z0-9.-]{0,62})\](?: (?P<rest>.*)|$)",
    regex.DOTALL,
)


def _peel_docker(text: str) -> Peeled | None:
    match = _DOCKER.match(text)
    return Peeled(match["rest"] or "", {"time": match["time"]}) if match else None


def _peel_cri(text: str) -> Peeled | None:
    match = _CRI.match(text)
    if match is None:
        return None
    return Peeled(match["rest"] or "", {"time": match["time"]}, partial=match["tag"] == "P")


def _peel_compose(text: str) -> Peeled | None:
    match = _COMPOSE.match(text)
    return Peeled(match["rest"] or "", {"ident": match["name"]}) if match else None


def _peel_kubectl(text: str) -> Peeled | None:
    match = _KUBECTL.match(text)
    return Peeled(match["rest"] or "", {"host": match["pod"], "ident": match["name"]}) if match else None


DOCKER_TIMES: Final = Format(
    "docker",
    _peel_docker,
    samples=(
        ("2026-03-09T12:00:01.000000001Z hello", "hello"),
        ("2026-03-09T12:00:01.270604397+08:00   x", "  x"),
        ("2026-03-09 01:26:30.040100128 hello", "hello"),
        ("2026-03-09T12:00:01Z", ""),
    ),
)
CRI: Final = Format(
    "cri",
    _peel_cri,
    samples=(
        ("2026-03-09T12:00:01.000000001Z stderr F hello", "hello"),
        ("2026-03-09T12:00:01.000000001Z stdout P part", "part"),
    ),
)
COMPOSE: Final = Format(
    "compose",
    _peel_compose,
    samples=(("sglang-1  | hello", "hello"), ("router-prefill-12  |", ""), ("deepseek  |   File", "  File")),
)
KUBECTL: Final = Format(
    "kubectl",
    _peel_kubectl,
    samples=(("[pod/sglang-0/server] hello", "hello"), ("[sglang-7d9/main] x", "x")),
)
