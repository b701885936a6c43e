"""Lines of one process in, Python tracebacks with their whole chain out.

The law: nothing is a traceback because it mentions one.  A header must end its line, a frame must be a
``File`` line, and an exception line counts alone only if it opens its line.

Source: CPython 3.8 to 3.14, ``Lib/traceback.py`` and ``Python/traceback.c``: header, frames (a ``File`` line, source
lines, caret lines, repeat marks), the exception with a message of any number of lines, notes; blank lines and a
sentence between two exceptions of a chain; ``+``/``|`` margins in exception groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import attrs
import regex

from logtriage.events.block import Block, span_of
from logtriage.model import Event, ExceptionLink, Frame, Line, Process, Traceback

__all__ = ["open_block"]

_HEADER: Final = "Traceback (most recent call last):"
_MAX_FRAMES: Final = 300
_MAX_MESSAGE: Final = 16_384
_MAX_LINES: Final = 20_000
_FRAME: Final = regex.compile(
    r'(?P<indent>\s*)(?:[>│|] )?File "(?P<file>[^"]*)", line (?P<line>\d+)(?:, in (?P<function>.*))?$'
)
_CARET: Final = regex.compile(r"\s*[~^][~^\s]*$")
_SKIPPED: Final = regex.compile(
    r"\s*(?:\[Previous line repeated \d+ more times?\]|\.\.\.<\d+ lines>\.\.\.|\[\.\.\.\]|\.\.\.)\s*$"
)
_TYPED: Final = regex.compile(
    r"(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:\(\w+\))?)(?::(?: (?P<message>.*))?)?$", regex.DOTALL
)
_NAMED_LIKE_AN_EXCEPTION: Final = regex.compile(
    r"(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*)?(?:Error|Exception|Interrupt|SystemExit|StopIteration|Timeout|Empty|Full|ExceptionGroup|Failure|Died)(?:\(\w+\))?$"
)
_CHAINS: Final[dict[str, Literal["cause", "context"]]] = {
    "The above exception was the direct cause of the following exception": "cause",
    "During handling of the above exception, another exception occurred": "context",
}
_ANNOUNCES: Final = regex.compile(
    r"""
    (?P<text> (?: [\w. ]{1,60} [ ] )? hit [ ] an [ ] exception | Exception [ ] in [ ] thread [ ] .{1,100}? (?=:$)
      | Process [ ] [\w:.-]{1,60} (?=:$) | Task [ ] exception [ ] was [ ] never [ ] retrieved
      | Exception [ ] in [ ] callback [ ] .{1,200} | Exception [ ] ignored [ ] .{1,300} | ---[ ]Logging[ ]error[ ]---
      | Unhandled [ ] exception .{0,60} | Failed [ ] to [ ] load [ ] model [ ] .{1,100} ) [.:]? \s* $
    """,
    regex.VERBOSE,
)
_IGNORED: Final = ("Exception ignored", "--- Logging error")
# What starts something else, so that no message of an exception goes on in it.
_ENDS: Final = regex.compile(
    r"Fatal Python error|terminate called|Process \S+:$|Exception in thread |Exception ignored |usage: |NVRM:"
    r"|/\S+\.cu:\d+: |\S+\.py:\d+: \w*Warning|Current thread 0x|Thread 0x|frame #\d+|Killed$|\./?\S+: line \d+: "
    r"|\[rank\d+\]:|(?:Loading|Capturing|Compiling) .{0,80}\d+%|Traceback \(most"
    r"|(?:Scheduler or DataParallel|Subprocess \S+ \(pid|MPI_ABORT|ray\.exceptions\.)|\(\w+ pid=\d+\)"
)
_MARGIN: Final = regex.compile(r"\s*(?:\| ?|\+-\+-+ ?\d* ?-*|\+-+ ?\d* ?-*)+")
_IN_APP: Final = regex.compile(r"(?:^|[/\\])(?:sglang|sgl_kernel|sgl_jit_kernel|vllm|tensorrt_llm)[/\\]")
_QUOTED: Final = regex.compile(r"['\"`]|\btext=|\bobj=")


def open_block(line: Line) -> Block | None:
    """Start a traceback on a header, an announcement of one, a stray frame or a bare exception line."""
    text = line.text
    if text.endswith(_HEADER) or text.rstrip().endswith(_HEADER):
        before = text.rstrip()[: -len(_HEADER)].strip(" :+|")
        if len(before) > 300 or _QUOTED.search(before):
            return None  # a quotation, as in an echoed request
        return _TracebackBlock(line, before, grouped="Exception Group" in before)
    escaped = _HEADER + "\\n"
    if escaped in text and not line.process.label.startswith("?"):
        return _unescape(line, escaped)
    announced = _ANNOUNCES.match(text) if len(text) < 500 else None
    if announced:
        return _TracebackBlock(line, announced["text"].strip())
    if any(text.strip().startswith(sentence) for sentence in _CHAINS):
        return _TracebackBlock(line, "", torn=True)
    if _FRAME.match(text) and ("in " in text or line.text.startswith("  File")):
        block = _TracebackBlock(None, "", torn=True)
        return block if block.offer(line) else None
    return _bare_exception(line)


def _bare_exception(line: Line) -> Block | None:
    """``Type: text`` without a traceback, where it opens its line and its type is named like an exception."""
    match = _TYPED.match(line.text[:2000])
    if match is None or not _NAMED_LIKE_AN_EXCEPTION.fullmatch(match["type"]):
        return None
    if line.prefixed and line.level not in ("", "ERROR", "CRITICAL"):
        return None
    if (
        match["message"] is None
        and ":" not in line.text
        and match["type"] not in ("AssertionError", "NotImplementedError")
    ):
        return None
    block = _TracebackBlock(None, "", torn=True)
    block.take_exception(line, match)
    return block


def _unescape(line: Line, escaped: str) -> Block | None:
    """A traceback that a JSON or repr escape put into one line."""
    head, _, body = line.text.partition(escaped)
    if len(head) > 300 or "messages" in head or "prompt" in head:
        return None
    block = _TracebackBlock(attrs.evolve(line, text=_HEADER), "")
    for text in body.replace('\\"', '"').split("\\n")[:2000]:
        if not block.offer(attrs.evolve(line, text=text.rstrip("\"'}"), prefixed=False)):
            break
    return block


class _TracebackBlock:
    """A traceback that is being read."""

    def __init__(self, line: Line | None, header: str, *, torn: bool = False, grouped: bool = False) -> None:
        self._lines: list[Line] = [line] if line else []
        self._header = header
        self._torn = torn
        self._grouped = grouped
        self._links: list[ExceptionLink] = []
        self._frames: list[Frame] = []
        self._type: str | None = None
        self._message: list[str] = []
        self._size = 0
        self._blank = False
        self._expect: Literal["header", "frame", "source", "exception", "message"] = "frame"
        if line and header and not line.text.rstrip().endswith(_HEADER):
            self._expect = "header"

    def offer(self, line: Line) -> bool:
        """Take *line* if the traceback goes on in it."""
        if len(self._lines) >= _MAX_LINES or self._is_new_message(line):
            return False
        text = _MARGIN.sub("", line.text, count=1) if self._grouped else line.text
        taken = self._take(line, text)
        if taken and (len(self._lines) < 4000 or self._expect == "source"):
            self._lines.append(line)
        return taken

    def _is_new_message(self, line: Line) -> bool:
        if line.prefixed:
            return True
        first = self._lines[0] if self._lines else None
        # vLLM repeats its prefix, with the place of the logging call, on each line of a message.
        return bool(first and first.place and line.place != first.place)

    def _take(self, line: Line, text: str) -> bool:
        stripped = text.strip()
        if not stripped:
            self._blank = True
            return True
        if stripped.rstrip(":") in _CHAINS:
            self._end_link(_CHAINS[stripped.rstrip(":")])
            self._expect = "header"
            return True
        if stripped.endswith(_HEADER):
            return self._take_header(stripped)
        frame = _FRAME.match(text)
        if frame:
            return self._take_frame(frame, text)
        if self._expect == "header":
            # after an announcement comes the handle or future it is about; after a chain sentence, a header
            return (
                not self._blank
                and self._header != ""
                and stripped.startswith(("future:", "handle:", "task:"))
            )
        return self._take_text(line, text, stripped)

    def _take_header(self, stripped: str) -> bool:
        if self._expect == "message":
            if not (self._blank or self._quotes_remote()):
                return False
            if not self._quotes_remote():
                return False  # a second traceback without a sentence between them
            self._end_link("remote")
        if self._grouped and self._type is not None:
            self._end_link("context")
        if self._expect == "frame" and self._frames and not self._grouped:
            return False
        self._expect = "frame"
        self._grouped = self._grouped or "Exception Group" in stripped
        self._blank = False
        return True

    def _take_frame(self, frame: regex.Match[str], text: str) -> bool:
        if self._expect == "message" and not self._is_bare:
            if not self._quotes_remote():
                return False
            self._end_link("remote")
        function = frame["function"] or ""
        if self._expect != "header" and not function and not text.startswith(" "):
            return False
        if len(self._frames) < _MAX_FRAMES:
            name = frame["file"]
            self._frames.append(
                Frame(name, int(frame["line"][:9]), function.strip(), "", bool(_IN_APP.search(name)))
            )
        self._expect = "source"
        self._blank = False
        return True

    def _take_text(self, line: Line, text: str, stripped: str) -> bool:
        if self._expect == "message":
            return self._take_message(text, stripped)
        if _SKIPPED.match(text):
            self._torn = self._torn or "[...]" in text or stripped == "..."
            return True
        if _CARET.match(text):
            return bool(self._frames)
        indented = text[:1].isspace()
        typed = _TYPED.match(stripped)
        if (
            typed
            and not indented
            and (self._expect != "source" or self._looks_like_exception(typed, stripped))
        ):
            self.take_exception(None, typed)
            return True
        if self._expect == "source" and self._frames:
            self._frames[-1] = attrs.evolve(self._frames[-1], line=stripped[:500])
            self._expect = "exception"
            return True
        if typed and self._type is None and self._frames and self._looks_like_exception(typed, stripped):
            self.take_exception(None, typed)
            return True
        return indented and bool(self._frames)  # further source lines (3.13), or damage

    @property
    def _is_bare(self) -> bool:
        """Whether all there is so far is an exception line; people paste the stack below it."""
        return not (self._frames or self._links or self._lines[0].text.rstrip().endswith(_HEADER))

    def _looks_like_exception(self, typed: regex.Match[str], stripped: str) -> bool:
        """Where indentation may be lost, only a name like an exception's tells it from source text."""
        if _NAMED_LIKE_AN_EXCEPTION.fullmatch(typed["type"]):
            return True
        indented = any(
            line.text.startswith("  File") or line.text.startswith("    ") for line in self._lines[-4:]
        )
        return indented and (typed["message"] is not None or stripped.isidentifier())

    def take_exception(self, line: Line | None, typed: regex.Match[str]) -> None:
        """Take the line that names the exception."""
        if line is not None:
            self._lines.append(line)
        self._type = typed["type"]
        self._message = [typed["message"] or ""]
        self._size = len(self._message[0])
        self._expect = "message"
        self._blank = False

    def _take_message(self, text: str, stripped: str) -> bool:
        paragraphs = self._message[0] == "" and len(self._message) < 60  # "ImportError:" and its report below
        if self._blank and not self._grouped and not paragraphs:
            return self._quotes_remote()
        if _ENDS.match(stripped) or self._size > _MAX_MESSAGE:
            return self._size > _MAX_MESSAGE and not _ENDS.match(stripped)
        typed = _TYPED.match(stripped[:2000])
        if self._is_bare and typed and not text[:1].isspace() and _NAMED_LIKE_AN_EXCEPTION.fullmatch(typed["type"]):
            return False  # one bare exception line after another
        self._message.append(text.rstrip())
        self._size += len(text)
        return True

    def _quotes_remote(self) -> bool:
        """Whether the exception's message is a traceback from another process."""
        if not self._type:
            return False
        return (
            "Remote" in self._type or self._type.startswith("ray.exceptions") or self._message[:1] == ['"""']
        )

    def _end_link(self, relation: Literal["cause", "context", "remote"]) -> None:
        if self._type is not None or self._frames:
            self._links.append(self._link(relation))
        self._frames, self._message, self._type = [], [], None
        self._expect = "frame"
        self._blank = False

    def _link(self, relation: Literal["cause", "context", "remote", ""]) -> ExceptionLink:
        message = "\n".join(self._message).rstrip()[:_MAX_MESSAGE]
        return ExceptionLink(self._type or "", message, tuple(self._frames), relation)

    def close(self) -> Sequence[Event]:
        """End the traceback; what is missing makes it incomplete."""
        if self._type is None and not self._frames and not self._links:
            return []  # an announcement or a header alone
        if self._type is not None or self._frames:
            self._links.append(self._link(""))
        if self._grouped and len(self._links) > 1 and "Group" in self._links[0].type:
            self._links = [*self._links[1:], attrs.evolve(self._links[0], relation="")]
        last = self._links[-1]
        first = self._lines[0]
        complete = not self._torn and bool(last.type)
        title = f"{last.type}: {last.message}" if last.message else last.type
        message = title or (
            f"{last.frames[-1].filename}:{last.frames[-1].lineno} {last.frames[-1].line}"
            if last.frames
            else self._header
        )
        process, basis = self._owner(first)
        return [
            Traceback(
                process=process,
                span=span_of(self._lines),
                message=message,
                time=next((line.time for line in self._lines if line.time), None),
                basis=basis,
                stream=first.stream,
                chain=tuple(self._links),
                header=self._header,
                complete=complete,
                ignored=self._header.startswith(_IGNORED),
            )
        ]

    def _owner(
        self, first: Line
    ) -> tuple[Process, Literal["prefix", "pid", "continuation", "only-candidate", "guess"]]:
        """The process; a header such as ``DetokenizerManager hit an exception`` names it better than a bare prefix."""
        process, basis = first.process, first.basis
        if process.label in ("", "main") and not process.rank:
            for word, role, label in _ROLES:
                if word in self._header:
                    return attrs.evolve(process, role=role, label=label), "prefix"  # type: ignore[arg-type]
            if self._header.startswith("Process "):
                return attrs.evolve(process, role="worker", label=self._header[8:].rstrip(":")), basis
        return process, basis


_ROLES: Final = (
    ("Detokenizer", "detokenizer", "detokenizer"),
    ("Tokenizer", "tokenizer", "tokenizer"),
    ("DataParallelController", "manager", "data-parallel-controller"),
    ("Scheduler", "scheduler", "scheduler"),
    ("TpModelWorker", "scheduler", "scheduler"),
)
