"""Who wrote a line: the rank in the parallel layout and the process."""

from __future__ import annotations

from typing import Literal

import attrs

from logtriage.model.text import Record

__all__ = ["Basis", "Line", "Process", "ProcessRole", "Rank"]

ProcessRole = Literal[
    "scheduler", "tokenizer", "detokenizer", "launcher", "worker", "manager", "kernel", "unknown"
]
Basis = Literal["prefix", "pid", "continuation", "only-candidate", "guess"]


@attrs.frozen(repr=False)
class Rank:
    """Coordinates of a worker in the parallel layout.

    ``None`` on an axis means the log did not say, which is not the same as
    rank 0: a server started with ``--tp 1`` prints no TP coordinate at all.

    Attributes:
        dp: Data-parallel rank.
        pp: Pipeline-parallel rank.
        attn_cp: Context-parallel rank of the attention layers.
        moe_dp: Data-parallel rank of the expert layers.
        tp: Tensor-parallel rank.
        ep: Expert-parallel rank.
        world: Rank in the whole process group (torch's ``[rank5]``), where only that is said.
    """

    dp: int | None = None
    pp: int | None = None
    attn_cp: int | None = None
    moe_dp: int | None = None
    tp: int | None = None
    ep: int | None = None
    world: int | None = None

    def __repr__(self) -> str:
        return f"Rank({', '.join(f'{axis}={rank}' for axis, rank in self.said())})"

    def __str__(self) -> str:
        """The rank as engines print it, ``DP1 TP3``; ``rank5`` if only the world rank is known."""
        parts = [f"{axis.upper()}{rank}" for axis, rank in self.said() if axis != "world"]
        return " ".join(parts) or (f"rank{self.world}" if self.world is not None else "")

    def __bool__(self) -> bool:
        return bool(self.said())

    def said(self) -> list[tuple[str, int]]:
        """The axes the log named, in the order engines print them."""
        axes = ("dp", "pp", "attn_cp", "moe_dp", "tp", "ep", "world")
        return [(axis, value) for axis in axes if (value := getattr(self, axis)) is not None]


@attrs.frozen
class Process:
    """A process of the server, or a witness from outside (kernel, systemd).

    Attributes:
        role: What it does in the server.
        label: Its name as people say it: ``DP1 TP3``, ``main``, ``tokenizer``, ``kernel``, ``systemd``.
        rank: Its place in the parallel layout.
        pid: Its process id, if known.
        host: Its host, if known.
    """

    role: ProcessRole = "unknown"
    label: str = ""
    rank: Rank = Rank()
    pid: int | None = None
    host: str | None = None


@attrs.frozen
class Line:
    """One line of text with the process it was assigned to.

    Attributes:
        text: The text without envelope and engine prefix.
        line: The input line, 1-based.
        process: Who wrote it.
        basis: How that is known, from ``prefix`` (sure) to ``guess``.
        time: The best time known, as written.
        prefixed: The engine's own prefix stood on this line, so no older block can go on in it.
        level: The level an engine printed (``ERROR``), or ``""``.
        place: The place in its source that an engine printed (``core.py:710``), or ``""``; lines of
            one message share it where the engine repeats its prefix on each.
        stream: Key of the text stream this line belongs to; lines of one process share it.
        record: What the collector said about it: unit, ident, transport and so on.
    """

    text: str
    line: int
    process: Process
    basis: Basis = "prefix"
    time: str | None = None
    prefixed: bool = False
    level: str = ""
    place: str = ""
    stream: str = ""
    record: Record = attrs.field(factory=lambda: Record("", 0))
