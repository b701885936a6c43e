"""Eight processes that die at once with one pipe between them: the program that the tests start.

``python eight_ranks.py whole|huge|uncaught SEED TRUTH`` forks eight ranks.  Each walks its own way down a stack of
functions and fails at the end of it with a message that names the rank; what the traceback must hold goes to the
folder TRUTH, one file of JSON a rank, taken from the traceback objects:

    whole     its logger writes the traceback as one record of a few KB, as SGLang's does
    huge      the same with a record larger than a pipe holds, so the kernel tears it
    uncaught  nobody catches it, so multiprocessing prints it piece by piece, without a word on the rank
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import random
import sys
import traceback
from pathlib import Path
from typing import Any

RANKS = 8


def attend(steps: list[str], rank: int) -> Any:
    return follow(steps, rank)


def project(steps: list[str], rank: int) -> Any:
    hidden = len(steps)
    if hidden % 2:
        return follow(steps, rank)
    return attend(steps[1:], rank) if steps[:1] == ["attend"] else follow(steps, rank)


def load_weights(steps: list[str], rank: int) -> Any:
    return follow(
        steps,
        rank,
    )


def forward(steps: list[str], rank: int) -> Any:
    return follow(steps, rank) or project(steps, rank)


def capture(steps: list[str], rank: int) -> Any:
    graph = follow(steps, rank)
    assert graph is None
    return graph


def follow(steps: list[str], rank: int) -> Any:
    if not steps:
        return fail(rank)
    if steps[0] == "attend":
        return attend(steps[1:], rank)
    if steps[0] == "project":
        return project(steps[1:], rank)
    if steps[0] == "load_weights":
        return load_weights(steps[1:], rank)
    if steps[0] == "forward":
        return forward(steps[1:], rank)
    return capture(steps[1:], rank)


def fail(rank: int) -> None:
    if rank % 2:
        raise ValueError(f"rank {rank} is odd")
    raise RuntimeError(f"rank {rank} is even")


def run_rank(rank: int, mode: str, seed: int, start: Any) -> None:
    chance = random.Random(f"{seed}/{rank}")
    ways = ["attend", "project", "load_weights", "forward", "capture"]
    steps = [chance.choice(ways) for _ in range(300 if mode == "huge" else 9)]
    sys.setrecursionlimit(5000)
    logging.basicConfig(format=f"[%(asctime)s TP{rank}] %(message)s", datefmt="%Y-%m-%d %H:%M:%S", force=True)
    start.wait()
    try:
        follow(steps, rank)
    except Exception as error:
        tell(rank, error)
        if mode == "uncaught":
            raise
        logging.error("Scheduler hit an exception: %s", traceback.format_exc())


def tell(rank: int, error: Exception) -> None:
    """Write the truth."""
    frames = [[frame.f_code.co_name, line] for frame, line in traceback.walk_tb(error.__traceback__)]
    told = {"rank": rank, "type": type(error).__name__, "message": str(error), "frames": frames}
    (Path(sys.argv[3]) / f"{rank}.json").write_text(json.dumps(told), encoding="utf-8")


def main() -> None:
    mode, seed = sys.argv[1], int(sys.argv[2])
    context = multiprocessing.get_context("fork")
    start = context.Barrier(RANKS)
    children = [
        context.Process(target=run_rank, args=(rank, mode, seed, start), name=f"rank_{rank}") for rank in range(RANKS)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()


if __name__ == "__main__":
    main()
