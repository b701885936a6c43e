"""One line of text in, its place in the grammar of a traceback out.

Only as much grammar as telling apart the lines of several writers needs; events are read elsewhere.
"""

from __future__ import annotations

from typing import Final, Literal

import regex

__all__ = ["Kind", "classify", "frame_function"]

Kind = Literal[
    "header", "frame", "source", "caret", "exception", "chain", "blank", "native", "child", "other"
]

_FRAME: Final = regex.compile(r"""\s*File "[^"]*", line \d+(?:, in (?P<function>\S+))?""")
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
    r"Fatal Python error|terminate called|\*\*\* |!!!!!!!|Current thread 0x|Thread 0x|Caught signal|\[\S+:\d+\s?:\S*\d+:\d+\] Caught"
    r"|/\S+\.cu:\d+: |Failed: Cuda error|\[TensorRT-LLM\]|NVRM:|Segmentation fault|\S+\[\d+\]: segfault"
)
_CHILD: Final = regex.compile(
    r"Process (?P<name>(?:\w*Process|VllmWorker|EngineCore)\S*):$|Exception in thread "
)


def classify(text: str) -> Kind:
    """Say what *text* would be in a traceback.

    Args:
        text: One line without prefix and line break.

    Returns:
        ``header`` (``Traceback …``), ``frame`` (``File …``), ``source`` (indented text), ``caret``,
        ``exception`` (``Type: message``), ``chain`` (the sentence between two tracebacks), ``blank``,
        ``native`` (output of a signal handler or of C++), ``child`` (``Process X:``), or ``other``.
    """
    stripped = text.strip()
    if not stripped:
        return "blank"
    if stripped.endswith("Traceback (most recent call last):"):
        return "header"
    if _FRAME.match(text):
        return "frame"
    if _CARET.match(text):
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


def frame_function(text: str) -> str:
    """The function that a frame line names, or ``""``."""
    match = _FRAME.match(text)
    return (match["function"] or "") if match else ""
