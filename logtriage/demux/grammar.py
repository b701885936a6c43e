"""One line of text in, its place in the grammar of a traceback out, and how well it goes on from another.

Only as much grammar as telling apart the lines of several writers needs; events are read elsewhere.
"""

from __future__ import annotations

from typing import Final, Literal

import regex

__all__ = ["FOLLOWS", "Kind", "child_name", "classify", "goes_on", "is_frame", "leads"]

Kind = Literal[
    "header", "frame", "source", "caret", "exception", "chain", "blank", "native", "child", "other"
]

FOLLOWS: Final[dict[Kind, frozenset[Kind]]] = {
    "child": frozenset({"header"}),
    "header": frozenset({"frame", "exception"}),
    "frame": frozenset({"source", "frame", "exception", "caret"}),
    "source": frozenset({"caret", "frame", "exception", "source"}),
    "caret": frozenset({"frame", "exception", "source"}),
    "exception": frozenset({"chain"}),
    "chain": frozenset({"header", "frame"}),
}
"""What may come next after a line of each kind, for the writer of a traceback that is still open."""

_HEAD: Final = 2_000
_FRAME: Final = regex.compile(r"""\s*File "[^"]*", line \d+(?:, in (?P<function>\S+))?""")
_WHOLE_FRAME: Final = regex.compile(r"""  File "[^"]+", line \d+, in [\w<>.]+\s*$""")
_DUMPED_FRAME: Final = regex.compile(r"""\s*File "[^"]*", line (?:\d+|\?\?\?) in |\s+<no Python frame>""")
_CARET: Final = regex.compile(r"\s+[~^][~^\s]*$")
_EXCEPTION: Final = regex.compile(
    r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout|Warning|Empty|Full|Group|Failed)\w*(?::|$)"
    r"|(?:[a-z_]\w*\.)+[A-Z]\w*(?::|$)|AssertionError\b"
)
_CHAIN: Final = (
    "During handling of the above exception",
    "The above exception was the direct cause",
)
_NATIVE: Final = regex.compile(
    r"Fatal Python error|terminate called|\*\*\* |!!!!!!!|Current thread 0x|Thread 0x|Caught signal"
    r"|\[\S+:\d+\s?:\S*\d+:\d+\] Caught|/\S+\.cu:\d+: |Failed: Cuda error|\[TensorRT-LLM\]|NVRM:"
    r"|Segmentation fault|\S+\[\d+\]: segfault"
)
_CHILD: Final = regex.compile(
    r"Process (?P<name>[\w:.-]{1,60}):$|Exception in thread .{1,100}:$"
)
# Functions that are called by another name: forward() by that of its module.
_NAMELESS: Final = regex.compile(
    r"__(?:call|new|enter|exit|getattr|next)__|forward|_call_impl|_wrapped_call_impl|_fn|wrapper|wrapped|inner"
    r"|decorate_context|<(?:lambda|listcomp|genexpr|dictcomp)>"
)
# Names of variables that hold a function, which then has another name.
_ANY_FUNCTION: Final = frozenset(
    ("func", "fn", "f", "fun", "function", "target", "_target", "callback", "method", "forward_call", "call", "self")
)
_ENTRIES: Final = frozenset(
    ("<module>", "_bootstrap", "_bootstrap_inner", "run_scheduler_process", "run_detokenizer_process", "worker")
)
_TELLS: Final = regex.compile(
    r"error|exception|fail|could not|cannot|unable|crash|abort|^(?:future|handle|task|transport|protocol): <",
    regex.IGNORECASE,
)
_CALL: Final = regex.compile(r"\b(?P<name>\w{1,100})\(")
_RAISE: Final = regex.compile(r"\s*(?:raise (?P<name>[\w.]+)|(?P<assert>assert)\b)")


def classify(text: str) -> Kind:
    """Say what *text* would be in a traceback.

    Args:
        text: One line without prefix and line break.

    Returns:
        ``header`` (``Traceback …``), ``frame`` (``File …``), ``source`` (indented text), ``caret``,
        ``exception`` (``Type: message``), ``chain`` (the sentence between two tracebacks), ``blank``,
        ``native`` (output of a signal handler or of C++), ``child`` (``Process X:``), or ``other``.
    """
    stripped = text[:_HEAD].strip()
    if not stripped:
        return "blank"
    if text.rstrip().endswith("Traceback (most recent call last):"):
        return "header"
    if _DUMPED_FRAME.match(text[:_HEAD]):
        return "native"  # of faulthandler, which has no comma there
    if _FRAME.match(text[:_HEAD]):
        return "frame"
    if _CARET.match(text[:_HEAD]):
        return "caret"
    if text[:3].isspace():
        return "source"
    if stripped.startswith(_CHAIN):
        return "chain"
    if _NATIVE.match(stripped):
        return "native"
    if _CHILD.match(stripped):
        return "child"
    return "exception" if _EXCEPTION.match(stripped[:300]) else "other"


def child_name(text: str) -> str:
    """The name of the process that announces its traceback, ``thread`` for a thread of the current one.

    >>> child_name("Process SpawnProcess-3:")
    'SpawnProcess-3'
    """
    match = _CHILD.match(text.strip())
    return (match["name"] or "thread") if match else ""


def leads(text: str) -> bool:
    """Whether a traceback may well stand below *text*: it tells of an error, or ends as if it quoted something.

    >>> leads("Task exception was never retrieved"), leads("Decode batch. #running-req: 1")
    (True, False)
    """
    stripped = text[:_HEAD].strip()
    if stripped.startswith("Ignore "):
        return False
    return stripped.endswith((":", '"""')) or _TELLS.search(stripped) is not None


def is_frame(text: str) -> bool:
    """Whether *text* is a frame line and nothing else.

    >>> is_frame('  File "a.py", line 3, in f'), is_frame('  File "a.py", line 3, in f"b.py", line 4, in g')
    (True, False)
    """
    return len(text) < _HEAD and _WHOLE_FRAME.match(text) is not None


def goes_on(last: Kind, source: str, text: str, kind: Kind) -> int:
    """How well *text* goes on from a writer's last line, from -2 (hardly) to 3 (it names what comes next).

    Args:
        last: What the writer's last line was.
        source: The source line under its last frame: it calls the next frame's function, or raises.
        text: The line.
        kind: What the line is.
    """
    if kind == "frame":
        match = _FRAME.match(text[:_HEAD])
        function = (match["function"] or "") if match else ""
        if last in ("header", "chain"):
            return 2 if function in _ENTRIES else 0
        if last == "frame":
            return -2 if source else 0  # its source line is due, unless this stack has none
        if source.lstrip().startswith("raise "):
            return -2
        called = set(_CALL.findall(source[:_HEAD]))
        if function in called:
            return 2
        if function == "__init__":  # called by the name of the class
            return 2 if any(name[:1].isupper() for name in called) else -1
        if _NAMELESS.fullmatch(function) or called & _ANY_FUNCTION:
            return 1
        return -1
    if kind == "source":
        return 2 if last == "frame" else 0  # a frame that waits for its source needs one first
    if kind == "exception" and last in ("source", "caret"):
        match = _RAISE.match(source)
        if match is None:
            return 0
        name = (match["name"] or "AssertionError").rpartition(".")[2]
        if name[:1].isupper():
            raised = text.partition(":")[0].strip().rpartition(".")[2]
            return 3 if raised == name else -2
        return 1
    return 0
