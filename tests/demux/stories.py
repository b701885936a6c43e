"""Ranks that die each in its own way, and the lines they write; for the tests of this folder."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from logtriage.demux import Demux
from logtriage.events import EventReader
from logtriage.formats import FORMATS, Unwrapper
from logtriage.model import Event, Line, Record, Traceback
from logtriage.scan import Scanner

__all__ = ["Story", "events_of", "interleave", "lines_of", "outcome", "records_of", "story"]

# What a rank may be doing, from the outermost call to the innermost: function, file, line and the source line there.
WAYS: tuple[tuple[tuple[str, str, int, str], ...], ...] = (
    (
        ("run_scheduler_process", "managers/scheduler.py", 3239, "scheduler = Scheduler("),
        ("__init__", "managers/scheduler.py", 371, "self.init_model_worker()"),
        ("init_model_worker", "managers/scheduler.py", 538, "self.tp_worker = start_worker(args)"),
        ("start_worker", "managers/tp_worker.py", 92, "self.load_model(self.model_config)"),
        ("load_model", "model_executor/model_runner.py", 751, "for name in shards: open_shard(name)"),
        ("open_shard", "model_loader/weight_utils.py", 650, "raise SafetensorError(name)"),
    ),
    (
        ("run_scheduler_process", "managers/scheduler.py", 3271, "scheduler.event_loop_overlap()"),
        ("event_loop_overlap", "managers/scheduler.py", 1120, "result = self.run_batch(batch)"),
        ("run_batch", "managers/scheduler.py", 2101, "return self.worker.forward_batch(batch)"),
        ("forward_batch", "managers/tp_worker.py", 401, "logits = self.allocate(batch.size)"),
        ("allocate", "mem_cache/memory_pool.py", 120, "raise OutOfMemoryError(size)"),
    ),
    (
        ("run_scheduler_process", "managers/scheduler.py", 3255, "scheduler.warm_up(server_args)"),
        ("warm_up", "managers/scheduler.py", 811, "self.runner.capture_graphs()"),
        ("capture_graphs", "model_executor/cuda_graph_runner.py", 300, "with graph(pool): replay(batch)"),
        ("replay", "model_executor/cuda_graph_runner.py", 381, "assert batch.size <= self.max_size"),
    ),
    (
        ("run_scheduler_process", "managers/scheduler.py", 3230, "configure(server_args, port_args)"),
        ("configure", "server_args.py", 77, "return parse_ports(port_args)"),
        ("parse_ports", "server_args.py", 99, 'raise ValueError(f"bad port {port}")'),
    ),
    (
        ("run_scheduler_process", "managers/scheduler.py", 3262, "scheduler.join_group(world)"),
        ("join_group", "distributed/parallel_state.py", 1460, "barrier = connect(world, timeout)"),
        ("connect", "distributed/parallel_state.py", 1500, "sock = dial(address)"),
        ("dial", "distributed/utils.py", 41, "raise ConnectionError(address)"),
    ),
)
TYPES: tuple[str, ...] = (
    "safetensors.SafetensorError",
    "torch.OutOfMemoryError",
    "AssertionError",
    "ValueError",
    "ConnectionError",
)


class Story:
    """What one rank says.

    Attributes:
        label: The rank as engines print it.
        pid: Its process.
        lines: Its lines, a header with prefix first.
        type: The class of its exception.
        message: The message of its exception.
        frames: Functions and lines of its stack.
    """

    def __init__(self, label: str, pid: int, way: int) -> None:
        self.label = label
        self.pid = pid
        self.type = TYPES[way]
        self.message = f"failed on {label}"
        self.frames = [(function, number) for function, _, number, _ in WAYS[way]]
        self.lines = [f"[2026-11-15 10:00:00 {label}] Scheduler hit an exception: Traceback (most recent call last):"]
        for function, file, number, source in WAYS[way]:
            self.lines.append(f'  File "/opt/sglang/srt/{file}", line {number}, in {function}')
            self.lines.append(f"    {source}")
        self.lines.append(f"{self.type}: {self.message}")


def story(count: int, chance: random.Random) -> list[Story]:
    """*count* ranks; as far as there are ways enough, each goes its own."""
    ways = list(range(len(WAYS)))
    chance.shuffle(ways)
    return [Story(f"TP{rank}", 4000 + rank, ways[rank % len(ways)]) for rank in range(count)]


def interleave(stories: Sequence[Story], chance: random.Random, *, by_write: bool = False) -> list[tuple[Story, str]]:
    """All lines, in any order that leaves each rank's own as it is.

    Args:
        stories: The ranks.
        chance: Decides on the order.
        by_write: What one write holds stays together: a frame and its source, a header and the first frame.
    """
    writes: list[tuple[Story, list[list[str]]]] = []
    for each in stories:
        pieces: list[list[str]] = []
        for number, line in enumerate(each.lines):
            if by_write and (line.startswith("    ") or number == 1):
                pieces[-1].append(line)
            else:
                pieces.append([line])
        writes.append((each, pieces))
    turns = [each for each, pieces in writes for _ in pieces]
    chance.shuffle(turns)
    left = {id(each): iter(pieces) for each, pieces in writes}
    return [(each, line) for each in turns for line in next(left[id(each)])]


def lines_of(records: Iterable[Record], demux: Demux | None = None) -> list[Line]:
    """The records' lines with their process."""
    demux = demux or Demux(lambda text: text)
    lines = [line for record in records for line in demux.feed(record)]
    return [*lines, *demux.close()]


def events_of(records: Iterable[Record]) -> list[Event]:
    """The events that the records tell."""
    reader = EventReader()
    out = [event for line in lines_of(records) for event in reader.feed(line)]
    return [*out, *reader.close()]


def records_of(log: bytes) -> list[Record]:
    """What the stages before make of a log."""
    scanner, unwrapper = Scanner(), Unwrapper(FORMATS, lambda text: text)
    return [*unwrapper.feed(scanner.feed(log)), *unwrapper.feed(scanner.close()), *unwrapper.close()]


def outcome(events: Iterable[Event]) -> set[tuple[str, str, str, tuple[tuple[str, int | None], ...]]]:
    """Who died of what, and where."""
    return {
        (event.process.label, link.type, link.message, tuple((frame.function, frame.lineno) for frame in link.frames))
        for event in events
        if isinstance(event, Traceback)
        for link in event.chain[-1:]
    }
