"""What the scanner looks for: short literals, one of which stands in the first line of every event.

Law: a parser of events whose opening line holds none of these never sees its event.  They are
plain bytes because ``bytes.find`` reads gigabytes a second and a regular expression does not;
they hold no quote and no backslash, so that JSON's escaping cannot hide them.
"""

from __future__ import annotations

from typing import Final

__all__ = ["AFTER", "ANCHORS", "BEFORE", "MARKS"]

BEFORE: Final = 24
"""Lines kept before a hit: the source lines of a traceback whose head was cut off."""

AFTER: Final = 64
"""Lines kept after a hit: the longest message of an exception seen in released engines is 40 lines."""

ANCHORS: Final[tuple[bytes, ...]] = (
    # errors in the words that programs use for them; the first letter is left out for its case
    b"rror",
    b"xception",
    b"raceback",
    b"  File ",
    b"File \\",  # JSON escapes the quote of a frame whose indentation was lost
    b"atal",
    b"ailed",
    b"ssert",
    b"Interrupt",
    b"SystemExit",
    b"ERROR",
    b"FAILED",
    b"not supported",
    b"cannot find",
    b"not found",
    b"No module named",
    # native code
    b"terminate called",
    b"what():",
    b"corrupt",
    b"invalid pointer",
    b"double free",
    b"stack smashing",
    b"frame #",
    b"Thread 0x",
    b"Caught signal",
    b"egmentation",
    b"egfault",
    b"Aborted",
    b"emory access fault",
    b"Root Cause (first",
    b"SIG",
    b"Bus e",
    b"core dumped",
    b"MPI_ABORT",
    # processes and their supervisors
    b"illed",
    b"sigquit",
    b"crashed",
    b"is dead",
    b"xit code",
    b"xitcode",
    b"exited",
    b"terminated",
    b"died",
    b"kill_process_tree",
    b"systemd",
    b"oom-kill",
    b"-- Boot",
    b"-- Reboot",
    b"raceful",
    b"hutting down",
    b"hutdown",
    b"leaked",
    # kernel and driver
    b"NVRM",
    b"Xid",
    b"traps:",
    # collectives and watchdogs
    b"atchdog",
    b"imeout",
    b"imed out",
    b"NCCL WARN",
    b"ProcessGroup",
    b"ut of memory",
    b"Hang detected",
    b"shared memory broadcast",
    b"blocked for more",
    b"closed by peer",
    b"reset by peer",
    # argument parsers
    b"invalid choice",
    # how far the server has come, and what it was started with
    b"server_args=",
    b"Init torch distributed",
    b"Load weight",
    b"Starting to load model",
    b"oading model weights",
    b"KV Cache is allocated",
    b"Memory pool end",
    b"Capture",
    b"Capturing",
    b"fired up",
    b"startup complete",
    b"Starting vLLM",
    b"vLLM API server version",
    b"Initializing a V",
    b"Uvicorn running",
    b"unresponsive",
    # journal entries whose text cannot be searched: an array of bytes, or left out
    b'MESSAGE":[',
    b'MESSAGE" : [',
    b'MESSAGE":null',
    b'MESSAGE" : null',
    b"blob data]",
    b"Suppressed ",
)

MARKS: Final[tuple[bytes, ...]] = (b"Decode batch", b"Prefill batch", b"Avg prompt throughput")
"""Lines of a server at work: the first of each dropped stretch is kept, to know that it served."""
