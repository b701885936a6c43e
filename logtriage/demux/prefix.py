"""One line of engine output in, its prefix and the rest out.

An engine tells in front of a line who writes.  SGLang does so on the first line of a message, vLLM,
TensorRT-LLM and torch on each one.
"""

from __future__ import annotations

from typing import Final

import attrs
import regex

from logtriage.model import Process, Rank

__all__ = ["Prefix", "split_prefix"]


@attrs.frozen
class Prefix:
    """What stood in front of a line.

    Attributes:
        engine: ``sglang``, ``vllm``, ``tensorrt-llm`` or ``torch``.
        process: Who writes.
        rest: The line without the prefix.
        time: The time in it, as written.
        starts: A message starts here; False where the prefix is repeated on each line of one.
        level: ``INFO``, ``ERROR``…, if it is in the prefix.
        place: Source file and line, if they are in the prefix.
    """

    engine: str
    process: Process
    rest: str
    time: str | None = None
    starts: bool = False
    level: str = ""
    place: str = ""


# An axis of size 1 is left out, and older releases print TP before PP, so any of the axes can follow
# in any order.  The earliest releases print no date; SGLANG_LOG_MS adds milliseconds.
_SGLANG: Final = regex.compile(
    r"""
    \[ (?P<time> (?: (?: \d{4}- )? \d\d-\d\d [ ] )? \d\d:\d\d:\d\d (?: \.\d{3} )? )
    (?: [ ] (?P<axis> DP | PP | ATTN_CP | MOE_DP | TP | EP ) (?P<rank> \d{1,6} ) )*
    \] (?: [ ] | $ )
    """,
    regex.VERBOSE,
)
# The head of the first line is lost where a paste began in the middle of it.
_SGLANG_TORN: Final = regex.compile(
    r"[\d: .-]{0,24}\b(?:(?P<axis>DP|PP|ATTN_CP|MOE_DP|TP|EP)(?P<rank>\d{1,6}) ?)+\] (?=\S)"
)
# torch's launcher up to 2.3, DeepSpeed: Python's default time, with a comma.
_COMMA: Final = regex.compile(r"\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\] ")
# A process inherits the pipe that its parent has put its own name in front of: the last name is the writer's.
_VLLM: Final = regex.compile(
    r"""
    (?: \( (?: EngineCore | APIServer | ApiServer ) \w* [ ] pid=\d{1,10} \) [ ] (?= \( \w+ [ ] ) )?
    (?: \( (?P<name> (?: EngineCore | APIServer | ApiServer | Worker | VllmWorker ) \w* | DPCoordinator | DPSupervisor )
        (?: [ ] (?P<told> rank=\d{1,6} | [A-Z]+\d{1,6} (?: _[A-Z]+\d{1,6} )* ) )* [ ] pid=(?P<pid> \d{1,10} ) \) [ ]? )?
    (?: (?P<level> DEBUG | INFO | WARNING | ERROR | CRITICAL ) [ ] (?P<time> \d\d-\d\d [ ] \d\d:\d\d:\d\d )
        [ ] (?: \[ (?P<place> [\w./-]+:\d+ ) \] | (?P<place> [\w.]+:\d+ ) \] ) (?: [ ] | $ ) )?
    """,
    regex.VERBOSE,
)
_TRTLLM: Final = regex.compile(
    r"""
    \[ (?P<time> \d\d/\d\d/\d{4}-\d\d:\d\d:\d\d ) \] [ ] \[TRT-LLM\] [ ]
    (?: \[ (?:RANK|MPI_Rank) [ ] (?P<rank> \d{1,6} ) \] [ ] )?
    \[ (?P<level> [A-Z] ) \] [ ] (?: \[ \w{1,60} \] (?: \[RANK [ ] (?P<rank> \d{1,6} ) \] )? [ ] )?
    """,
    regex.VERBOSE,
)
_TORCH_HOOK: Final = regex.compile(r"\[rank\d{1,6}\]: ")
_TORCH: Final = regex.compile(r"\[rank(?P<rank>\d{1,6})\]:[ ]?")
# torch's C++ log begins a message on each of its lines; the hook for exceptions puts its name on every line of one.
_TORCH_LOG: Final = regex.compile(r"\[[DIWEF]\d{3,4} \d\d:\d\d:\d\d")
_TRTLLM_LEVELS: Final = {
    "V": "DEBUG",
    "D": "DEBUG",
    "I": "INFO",
    "W": "WARNING",
    "E": "ERROR",
    "F": "CRITICAL",
}


def split_prefix(text: str) -> Prefix | None:
    """Split an engine's prefix off one line.

    Args:
        text: One line of server output, envelopes already removed, without its line break.

    Returns:
        The prefix, or ``None`` if there is none (the body of a traceback, native output).  An SGLang
        prefix without coordinates is of the main process, or of the only worker of a one-GPU server.

    Source:
        SGLang: ``configure_logger`` sets the format, ``run_scheduler_process`` in
        ``srt/managers/scheduler.py`` builds the coordinates (0.3.6 to 0.5.23).  vLLM:
        ``decorate_logs`` and ``logger.py`` (0.8 to 0.11).  TensorRT-LLM: ``logger.py``.  torch: the
        ``[rankN]:`` of its exception hook and C++ logging.

    >>> split_prefix("[2026-11-15 10:00:00 TP7] Scheduler hit an exception: Traceback").process.label
    'TP7'
    """
    return _sglang(text) or _torch(text) or _vllm(text) or _trtllm(text)


def _sglang(text: str) -> Prefix | None:
    match = _SGLANG.match(text)
    time = match["time"] if match else None
    if match is None:
        match = _SGLANG_TORN.match(text)
        if match is None:
            return None
    said = {a.lower(): int(r) for a, r in zip(match.captures("axis"), match.captures("rank"), strict=True)}
    rank = Rank(**said)
    process = Process("scheduler", str(rank), rank) if rank else Process("launcher", "main")
    return Prefix("sglang", process, text[match.end() :], time, starts=True)


def _torch(text: str) -> Prefix | None:
    match = _TORCH.match(text)
    if match is None:
        match = _COMMA.match(text)
        if match is None:
            return None
        return Prefix("torch", Process("launcher", "main"), text[match.end() :], match["time"], starts=True)
    rank = Rank(world=int(match["rank"]))
    rest = text[match.end() :]
    return Prefix("torch", Process("worker", str(rank), rank), rest, starts=_TORCH_LOG.match(rest) is not None)


def _vllm(text: str) -> Prefix | None:
    match = _VLLM.match(text)
    if match is None or not match.group():
        return None
    process = Process("launcher", "main")
    if match["name"]:
        process = _vllm_process(match["name"], match.captures("told"), int(match["pid"]))
    # torch's hook for uncaught exceptions puts its own name on each line, and vLLM then puts its own before that
    inner = _TORCH_HOOK.match(text, match.end()) if match["name"] else None
    return Prefix(
        "vllm",
        process,
        text[inner.end() if inner else match.end() :],
        match["time"],
        level=match["level"] or "",
        place=match["place"] or "",
    )


def _vllm_process(name: str, told: list[str], pid: int) -> Process:
    """The process that vLLM names: ``Worker_DP0_TP1``, ``VllmWorker TP0``, ``EngineCore_DP0``."""
    words = [word for part in (name, *told) for word in part.split("_")]
    axes = regex.findall(r"\b(DP|PP|TP|EP)(\d{1,6})\b", " ".join(words))
    said = {axis.lower(): int(value) for axis, value in axes}
    ranks = [int(word[5:]) for word in told if word.startswith("rank=")]
    if name.startswith("EngineCore"):
        return Process("manager", name, Rank(**said), pid)
    if "APIServer" in name or "ApiServer" in name:
        return Process("launcher", "main", Rank(), pid)
    rank = Rank(**said, world=ranks[0] if ranks else None)
    label = str(rank) if said else f"VllmWorker rank={ranks[0]}" if ranks else name
    return Process("worker", label, rank, pid)


def _trtllm(text: str) -> Prefix | None:
    match = _TRTLLM.match(text)
    if match is None:
        return None
    process = Process("launcher", "main")
    if match["rank"]:
        process = Process("worker", f"RANK {match['rank']}", Rank(world=int(match["rank"])))
    level = _TRTLLM_LEVELS.get(match["level"], "")
    return Prefix("tensorrt-llm", process, text[match.end() :], match["time"], starts=True, level=level)
