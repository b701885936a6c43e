"""Lines of cluster launchers in, message and task out: Ray, srun, mpirun, torchrun.

Sources: Ray's log monitor (``(Actor pid=N, ip=A)``, coloured); ``srun -l`` (``N: ``); Open MPI ``--tag-output``
(``[job,rank]<stderr>:``); torchrun ``--tee`` (``[default0]:``); srun under a step shell (``[/bin/sh@<0,0>]:``).
"""

from __future__ import annotations

from typing import Final

import regex

from logtriage.formats.envelope import Format, Peeled

__all__ = ["RAY", "TASKS"]

_RAY: Final = regex.compile(
    r"""
    (?: \[\d+m )? \( (?P<actor> [A-Za-z_] (?: [\w.:] | \( [\w.()]{0,80} \) )*+ )
    (?: [ ]\w+=[^\s,()]+ )*? [ ] pid=(?P<pid>\d+) (?: , [ ] ip=(?P<ip>[\w.:]+) )? \) (?: \[0m )?
    (?: [ ] (?P<rest> .* ) | $ )
    """,
    regex.VERBOSE | regex.DOTALL,
)
# vLLM names its own processes in the same way; those are read by demux, which knows what they are.
_VLLM: Final = regex.compile(r"EngineCore|APIServer|ApiServer|Worker_|VllmWorker|DPCoordinator|ApiServer_")
_TASK: Final = regex.compile(
    r"""
    (?: \[\d{4}-\d\d-\d\d[ ]\d\d:\d\d:\d\d\] [ ] )?  \[ [^\]@\s]{1,64} @<\d+,\d+> \]: [ ]?  (?P<rest> .* )
    | (?P<task> [ ]{0,4} \d{1,4} ): (?: [ ] (?P<rest> .* ) | $ )
    | \[ \d+,\d+ \] <std(?:out|err)>: [ ]? (?P<rest> .* )
    | \[default\d+\]: [ ]? (?P<rest> .* )
    """,
    regex.VERBOSE | regex.DOTALL,
)


def _peel_ray(text: str) -> Peeled | None:
    match = _RAY.match(text)
    if match is None or _VLLM.match(match["actor"]):
        return None
    return Peeled(match["rest"] or "", {"pid": int(match["pid"][:10]), "host": match["ip"], "ident": match["actor"]})


def _peel_task(text: str) -> Peeled | None:
    match = _TASK.match(text)
    if match is None:
        return None
    return Peeled(match["rest"] or "", {"ident": f"task {match['task'].strip()}"} if match["task"] else {})


RAY: Final = Format(
    "ray",
    _peel_ray,
    samples=(
        ("(SGLangEngine pid=3111, ip=10.0.0.5) hello", "hello"),
        ("(MapWorker(MapBatches(Engine)) pid=12)   x", "  x"),
        ("[36m(SGLangEngine pid=21873)[0m x", "x"),
        ("(RayActor rank=3 pid=7)", ""),
    ),
)
TASKS: Final = Format(
    "slurm",
    _peel_task,
    samples=(
        ("0: hello", "hello"),
        ("[2026-12-09 15:55:11] [/bin/sh@<0,0>]:   File", "  File"),
        ("[1,3]<stderr>:hello", "hello"),
        ("[default0]:hello", "hello"),
        ("12:", ""),
    ),
)
