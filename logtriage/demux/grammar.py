"""One line of text in, its place in the grammar of a traceback out, and how well it goes on from another.

Only as much grammar as telling apart the lines of several writers needs; events are read elsewhere.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import regex

__all__ = [
    "FOLLOWS",
    "HEADER",
    "Kind",
    "Progress",
    "announcement_reach",
    "called",
    "child_name",
    "classify",
    "function_of",
    "goes_on",
    "is_frame",
    "leads",
    "may_name",
    "path_of",
]

Kind = Literal[
    "header", "frame", "source", "caret", "exception", "chain", "margin", "blank", "native", "child", "other"
]

FOLLOWS: Final[dict[Kind, frozenset[Kind]]] = {
    "child": frozenset({"header"}),
    "header": frozenset({"frame", "exception", "margin"}),
    "margin": frozenset({"margin", "exception"}),
    "frame": frozenset({"source", "frame", "exception", "caret"}),
    "source": frozenset({"caret", "frame", "exception", "source"}),
    "caret": frozenset({"frame", "exception", "source"}),
    "exception": frozenset({"chain"}),
    "chain": frozenset({"header", "frame"}),
}
"""What may come next after a line of each kind, for the writer of a traceback that is still open."""

_OPEN: Final = frozenset({"header", "margin", "frame", "source", "caret", "chain", "child"})
HEADER: Final = "Traceback (most recent call last):"
_ANNOUNCED: Final = "Scheduler hit an exception: " + HEADER
_HEAD: Final = 2_000
_MAX_PLACE: Final = 500
_FRAME: Final = regex.compile(r"""\s*File "[^"]*", line \d+(?:, in (?P<function>\S+))?""")
_WHOLE_FRAME: Final = regex.compile(r"""  File "[^"]+", line \d+, in [\w<>.]+\s*$""")
_DUMPED_FRAME: Final = regex.compile(r"""\s*File "[^"]*", line (?:\d+|\?\?\?) in |\s+<no Python frame>""")
# An exception group: "|" in front of each line, "+-" between its parts; the last rule stands below the outermost "+".
_MARGIN: Final = regex.compile(r" {2,40}(?:\||\+-)")
_GROUP_ENDS: Final = regex.compile(r" {4}\+-{30,}\s*$")
_CARET: Final = regex.compile(r"\s+[~^][~^\s]*$")
_EXCEPTION: Final = regex.compile(
    r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout|Warning|Empty|Full|Group|Failed)\w*(?::|$)"
    r"|(?:[a-z_]\w*\.)+[A-Z]\w*(?::|$)|AssertionError\b|(?:Base)?Exception(?:Group)?(?::|$)"
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
_LIKE_NAMED: Final = regex.compile(r"(?:(?:[^\W\d]\w{0,60}|<locals>)\.){0,8}[^\W\d]\w{0,80}(?:: |:?\s*$)")
_CALL: Final = regex.compile(r"\b(?P<name>\w{1,100})\(")
_RAISE: Final = regex.compile(r"\s*(?:raise (?P<name>[\w.]+)|(?P<assert>assert)\b)")


class Progress(NamedTuple):
    """How far a writer has come in a traceback.

    Attributes:
        last: What its last line was.
        frame: Its last frame line, stripped; ``""`` below the header.
        source: The source line below that frame.
        before: The frame line before that.
        odd: It printed a frame that no other one printed.
    """

    last: Kind = "other"
    frame: str = ""
    source: str = ""
    before: str = ""
    odd: bool = False

    @property
    def place(self) -> tuple[str, str]:
        """Where it is: the last two frame lines."""
        return self.before, self.frame

    @property
    def is_open(self) -> bool:
        """Whether a traceback has begun and not ended."""
        return self.last in _OPEN

    def after(self, text: str, kind: Kind) -> Progress:
        """How far the writer has come with one more line, *text*, which is *kind*.

        >>> Progress("header").after('  File "a.py", line 3, in f', "frame").frame
        'File "a.py", line 3, in f'
        """
        stripped = text.strip()[:_MAX_PLACE]
        if kind in ("frame", "source", "caret", "margin") and self.last in ("exception", "other"):
            return self  # of a message, or of a stack without a header
        if kind in ("header", "chain", "child", "exception", "margin"):
            return Progress(kind)
        if kind == "frame":
            return Progress("frame", stripped, "", self.frame, odd=self.odd)
        if kind == "source":
            source = self.source if self.last in ("source", "caret") else stripped
            return Progress("source", self.frame, source, self.before, odd=self.odd)
        if kind == "caret":
            return Progress("caret", self.frame, self.source, self.before, odd=self.odd)
        return self


def classify(text: str) -> Kind:
    """Say what *text* would be in a traceback.

    Args:
        text: One line without prefix and line break.

    Returns:
        ``header`` (``Traceback …``), ``frame`` (``File …``), ``source`` (indented text), ``caret``,
        ``exception`` (``Type: message``), ``chain`` (the sentence between two tracebacks), ``margin`` (a line
        of an exception group; its last rule counts as ``exception``, since the traceback ends there), ``blank``,
        ``native`` (output of a signal handler or of C++), ``child`` (``Process X:``), or ``other``.
    """
    stripped = text[:_HEAD].strip()
    if not stripped:
        return "blank"
    if _MARGIN.match(text[:_MAX_PLACE]):
        return "exception" if _GROUP_ENDS.match(text[:_MAX_PLACE]) else "margin"
    if text.rstrip().endswith(HEADER):
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


def may_name(text: str) -> bool:
    """Whether *text*, where an exception is due, may be one that is not named like one.

    >>> may_name("Outer.Inner: nested"), may_name("batch, 3)")
    (True, False)
    """
    return _LIKE_NAMED.match(text[:_HEAD]) is not None


def announcement_reach(text: str) -> int:
    """How many characters of SGLang's announcement of a traceback *text* begins with.

    >>> announcement_reach("Schedu"), announcement_reach("Scheme")
    (6, 4)
    """
    pairs = zip(text, _ANNOUNCED, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(text), len(_ANNOUNCED)))


def path_of(text: str) -> str:
    """The file that a whole frame line names, ``""`` for any other text.

    >>> path_of('  File "/a.py", line 3, in f')
    '/a.py'
    """
    return text[8 : text.index('"', 8)] if text.startswith('  File "') and is_frame(text) else ""


def function_of(text: str) -> str:
    """The function that a whole frame line names, ``""`` for any other text.

    >>> function_of('  File "/a.py", line 3, in f')
    'f'
    """
    return text.rstrip().rpartition(", in ")[2] if is_frame(text) else ""


def called(source: str) -> set[str]:
    """The names of the functions that a line of source calls.

    >>> sorted(called("return self.run(make(x))"))
    ['make', 'run']
    """
    return set(_CALL.findall(source[:_HEAD]))


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
        names = called(source)
        if function in names:
            return 2
        if function == "__init__":  # called by the name of the class
            return 2 if any(name[:1].isupper() for name in names) else -1
        if _NAMELESS.fullmatch(function) or names & _ANY_FUNCTION:
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
