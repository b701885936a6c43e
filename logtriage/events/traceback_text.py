"""Text of one line in, what it may be in a traceback out: the wording of CPython, as patterns.

Law: each pattern is linear in the length of the text, however that was made up.

Source: CPython 3.8 to 3.14, ``Lib/traceback.py``, ``Python/traceback.c``, ``Lib/threading.py``, ``Lib/asyncio``,
``Lib/multiprocessing``, ``Lib/logging``.
"""

from __future__ import annotations

from typing import Final

import attrs
import regex

from logtriage.events.collect import HEAD, after_bar
from logtriage.events.exception_chain import Relation
from logtriage.model import Process

__all__ = [
    "ABOUT",
    "ANNOUNCES",
    "CARET",
    "CHAINS",
    "CPP_FRAME",
    "ENDS",
    "FOREIGN",
    "FRAME",
    "FRAME_REST",
    "FRAME_TORN",
    "GROUPED",
    "GROUP_MARGIN",
    "HEADER",
    "IGNORED",
    "LOGGING",
    "ORIGIN",
    "SKIPPED",
    "TYPED",
    "before_header",
    "is_quotation",
    "joined_frame",
    "named_exception",
    "process_of",
]

HEADER: Final = "Traceback (most recent call last):"
GROUPED: Final = "Exception Group"
FRAME: Final = regex.compile(
    r"""(?P<indent>\s*)(?:[>│|]\ )?File\ ["“](?P<file>[^"”]*)["”],\ line\ (?P<line>\d+)
        (?:,\ in(?:\ (?P<function>.*))?)?\s*$""",
    regex.VERBOSE,
)
FRAME_TORN: Final = regex.compile(
    r"""\s*File ["“][^"”]{0,1000}(?:["”](?:,? ?(?:l|li|lin|line)?(?: \d*,?)?(?: i?n?)?)?)?$"""
)
FRAME_REST: Final = regex.compile(r"\s*(?P<begins>(?P<digits>\d*),? ?in )?(?P<function>[\w<>.]+)\s*$")
CARET: Final = regex.compile(r"\s*[~^][~^\s]*$")
SKIPPED: Final = regex.compile(
    r"""
    \s* (?: \[Previous[ ]line[ ]repeated[ ]\d+[ ]more[ ]times?\] | \.\.\.<\d+[ ]lines>\.\.\. | \[\.\.\.\]
      | \.\.\.(?:[ ]\(max_group_depth[ ]is[ ]\d+\))? | and[ ]\d+[ ]more[ ]exceptions? ) \s* $
    """,
    regex.VERBOSE,
)
TYPED: Final = regex.compile(
    r"(?P<type>(?:(?:[^\W\d]\w{0,99}|<locals>)\.){0,20}[^\W\d]\w{0,99}(?:\(\w{1,99}\))?)"
    r"(?::(?: (?P<message>.*))?)?\s*$",
    regex.DOTALL,
)
_NAMED_LIKE_ONE: Final = regex.compile(
    r"""
    (?: (?: [^\W\d]\w{0,99} | <locals> ) \. ){0,20} (?: _?[A-Z]\w{0,99} | _ )?
    (?: Error | Exception | Interrupt | SystemExit | StopIteration | Timeout | Empty | Full | Failure | Died
      | ExceptionGroup | RemoteTraceback ) (?: \(\w+\) )? $
    """,
    regex.VERBOSE,
)
CHAINS: Final[dict[str, Relation]] = {
    "The above exception was the direct cause of the following exception": "cause",
    "During handling of the above exception, another exception occurred": "context",
}
CPP_FRAME: Final = regex.compile(
    r" *(?:frame #\d+: |<omitting python frames>|C\+\+ CapturedTraceback:|#\d+ .+ from \S+:\d+\s*$)"
)
"""A call of C++ code, of which torch adds a stack to the message of an exception."""

ANNOUNCES: Final = regex.compile(
    r"""
    (?P<text> (?: [\w. ]{1,60} [ ] )? hit [ ] an [ ] exception | Exception [ ] in [ ] thread [ ] .{1,100}? (?=:$)
      | Process [ ] [\w:.-]{1,60} (?=:$) | (?:Task|Future) [ ] exception [ ] was [ ] never [ ] retrieved
      | Exception [ ] in [ ] callback [ ] .{1,200} | Exception [ ] ignored [ ] .{1,300} | ---[ ]Logging[ ]error[ ]---
      | Error [ ] in [ ] (?:sys\.\w+|atexit\._run_exitfuncs) (?=:$) | Original [ ] exception [ ] was (?=:$)
      | Unhandled [ ] exception .{0,60} | Failed [ ] to [ ] load [ ] model [ ] .{1,100} ) [.:]? \s* $
    """,
    regex.VERBOSE,
)
ABOUT: Final = ("future:", "handle:", "task:", "transport:", "protocol:", "object:")
"""What may stand between an announcement and the traceback."""

ORIGIN: Final = "source_traceback: Object created at (most recent call last):"
"""The head of the calls that made a task or a handle, which asyncio's debug mode tells before the traceback."""

LOGGING: Final = "--- Logging error"
IGNORED: Final = ("Exception ignored", LOGGING)

ENDS: Final = regex.compile(
    r"""
    Fatal[ ]Python[ ]error | terminate[ ]called | usage:[ ] | NVRM: | /\S+\.cu:\d+:[ ] | \S+\.py:\d+:[ ]\w*Warning
    | (?:Current[ ]thread|Thread)[ ]0x | frame[ ]\#\d+ | Killed$ | \./?\S+:[ ]line[ ]\d+:[ ] | \[rank\d+\]:
    | Traceback[ ]\(most | (?:Loading|Capturing|Compiling)[ ].{0,80}\d+% | ray\.exceptions\. | \(\w+[ ]pid=\d+\)
    | -{74}$ | Root[ ]Cause[ ]\(first[ ]
    | (?:Scheduler[ ]or[ ]DataParallel|Subprocess[ ]\S+[ ]\(pid|MPI_ABORT)
    """,
    regex.VERBOSE,
)
"""What starts something else, so that no message of an exception goes on in it."""

FOREIGN: Final = regex.compile(
    r"""
    [\[({*!|=+#<] | \d{1,4}[-:/]\d\d | \d{1,3}% | (?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b
    | [\w.-]+:\d+:\d+[ ] | \S+[ ]\d\d[ ]\d\d:\d\d | (?:systemd|kernel)\b | /\S+:[ ]
    | (?:\w+:[ ]){0,2}(?:Aborted|Segmentation|Bus[ ]error|core[ ]dumped)
    """,
    regex.VERBOSE,
)
"""What, standing below a blank line, is hardly a further paragraph of a message."""

GROUP_MARGIN: Final = regex.compile(r"(?P<indent> *)(?:\| ?|\+ (?=Exception Group))")
_QUOTE_MARGIN: Final = regex.compile(r"(?:[>│|] ?)+")
_MAX_BEFORE: Final = 300
_ROLES: Final = (
    ("Detokenizer", Process("detokenizer", "detokenizer")),
    ("Tokenizer", Process("tokenizer", "tokenizer")),
    ("DataParallelController", Process("manager", "data-parallel-controller")),
    ("Scheduler", Process("scheduler", "scheduler")),
    ("TpModelWorker", Process("scheduler", "scheduler")),
)


def named_exception(text: str) -> regex.Match[str] | None:
    """The class and the message, if *text* is ``Class: message`` and the class is named like an exception.

    >>> named_exception("torch.OutOfMemoryError: CUDA out of memory.")["type"]
    'torch.OutOfMemoryError'
    >>> named_exception("else:") is None
    True
    """
    match = TYPED.match(text)
    return match if match and _NAMED_LIKE_ONE.fullmatch(match["type"]) else None


def is_quotation(before: str) -> bool:
    """Whether a quote that is still open, or the name of a request's field, stands before a header."""
    if "obj=" in before or "text=" in before:
        return True
    plain = regex.sub(r"\w'\w", "", before)
    return any(plain.count(quote) % 2 for quote in "'\"`")


def joined_frame(piece: str, text: str) -> str:
    """The frame line that a terminal or an editor wrapped; ``""`` if the two make none.

    >>> joined_frame('  File "a.py", line 3,', 'in f')
    '  File "a.py", line 3, in f'
    """
    both = (piece + text, f"{piece.rstrip()} {text.strip()}")
    return next((joined for joined in both if len(joined) < HEAD and FRAME.match(joined)), "")


def process_of(header: str, process: Process) -> Process:
    """The process; an announcement such as ``DetokenizerManager hit an exception`` names it better than a bare prefix.

    >>> process_of("DetokenizerManager hit an exception", Process("launcher", "main")).label
    'detokenizer'
    """
    if process.rank or process.label not in ("", "main"):
        return process
    for word, named in _ROLES:
        if word in header:
            return attrs.evolve(process, role=named.role, label=named.label)
    if header.startswith("Process "):
        return attrs.evolve(process, role="worker", label=header[8:].rstrip(":"))
    return process


def before_header(text: str) -> tuple[str, str, bool] | None:
    """What stands before the header that ends a line.

    Args:
        text: The line.

    Returns:
        The announcement, the margin that every line of the traceback will have, and whether it is that of
        an exception group; ``None`` if the header is quoted, as in an echoed request.

    >>> before_header("> Traceback (most recent call last):")
    ('', '> ', False)
    """
    before = text.rstrip().removesuffix(HEADER)
    if "it/s]" in before or "s/it]" in before:
        before = after_bar(before)
    grouped = before.rstrip().endswith(GROUPED)
    lead = before.rstrip().removesuffix(GROUPED).rstrip(" +") + " " if grouped else before
    margin = _QUOTE_MARGIN.fullmatch(lead)
    before = before.strip().removesuffix(GROUPED).strip(" :+|>│")
    if len(before) > _MAX_BEFORE or is_quotation(before):
        return None
    return before, margin.group() if margin else "", grouped
