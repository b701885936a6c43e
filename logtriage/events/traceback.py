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

from logtriage.events.block import Block
from logtriage.events.collect import after_bar, in_app
from logtriage.events.exception_chain import MAX_MESSAGE, Chain, ExceptionLink, Relation, group_rule
from logtriage.model import Basis, Event, Frame, Line, Process, Span, Traceback

__all__ = ["open_block"]

_HEADER: Final = "Traceback (most recent call last):"
_GROUPED: Final = "Exception Group"
_MAX_LINES: Final = 20_000
_HEAD: Final = 4_096
_FRAME: Final = regex.compile(
    r"""(?P<indent>\s*)(?:[>│|]\ )?File\ ["“](?P<file>[^"”]*)["”],\ line\ (?P<line>\d+)
        (?:,\ in\ (?P<function>.*))?\s*$""",
    regex.VERBOSE,
)
_FRAME_TORN: Final = regex.compile(r"""\s*File ["“][^"”]{0,1000}(?:["”](?:,? ?(?:l|li|lin|line)?(?: \d*,?)?(?: i?n?)?)?)?$""")
_FRAME_REST: Final = regex.compile(r"\s*(?P<digits>\d*),? ?in (?P<function>[\w<>.]+)\s*$")
_CARET: Final = regex.compile(r"\s*[~^][~^\s]*$")
_SKIPPED: Final = regex.compile(
    r"\s*(?:\[Previous line repeated \d+ more times?\]|\.\.\.<\d+ lines>\.\.\.|\[\.\.\.\]|\.\.\.(?: \(max_group_depth is \d+\))?"
    r"|and \d+ more exceptions?)\s*$"
)
_TYPED: Final = regex.compile(
    r"(?P<type>(?:(?:[^\W\d]\w*|<locals>)\.)*[^\W\d]\w*(?:\(\w+\))?)(?::(?: (?P<message>.*))?)?\s*$", regex.DOTALL
)
_NAMED_LIKE_AN_EXCEPTION: Final = regex.compile(
    r"(?:(?:[^\W\d]\w*|<locals>)\.)*(?:_?[A-Z]\w*|_)?"
    r"(?:Error|Exception|Interrupt|SystemExit|StopIteration|Timeout|Empty|Full|ExceptionGroup|Failure|Died|RemoteTraceback)(?:\(\w+\))?$"
)
_CHAINS: Final[dict[str, Relation]] = {
    "The above exception was the direct cause of the following exception": "cause",
    "During handling of the above exception, another exception occurred": "context",
}
_ANNOUNCES: Final = regex.compile(
    r"""
    (?P<text> (?: [\w. ]{1,60} [ ] )? hit [ ] an [ ] exception | Exception [ ] in [ ] thread [ ] .{1,100}? (?=:$)
      | Process [ ] [\w:.-]{1,60} (?=:$) | (?:Task|Future) [ ] exception [ ] was [ ] never [ ] retrieved
      | Exception [ ] in [ ] callback [ ] .{1,200} | Exception [ ] ignored [ ] .{1,300} | ---[ ]Logging[ ]error[ ]---
      | Error [ ] in [ ] (?:sys\.\w+|atexit\._run_exitfuncs) (?=:$) | Original [ ] exception [ ] was (?=:$)
      | Unhandled [ ] exception .{0,60} | Failed [ ] to [ ] load [ ] model [ ] .{1,100} ) [.:]? \s* $
    """,
    regex.VERBOSE,
)
_ABOUT: Final = ("future:", "handle:", "task:", "transport:", "protocol:", "object:")
_LOGGING: Final = "--- Logging error"
_IGNORED: Final = ("Exception ignored", _LOGGING)
# What starts something else, so that no message of an exception goes on in it.
_ENDS: Final = regex.compile(
    r"Fatal Python error|terminate called|usage: |NVRM:"
    r"|/\S+\.cu:\d+: |\S+\.py:\d+: \w*Warning|Current thread 0x|Thread 0x|frame #\d+|Killed$|\./?\S+: line \d+: "
    r"|\[rank\d+\]:|(?:Loading|Capturing|Compiling) .{0,80}\d+%|Traceback \(most"
    r"|(?:Scheduler or DataParallel|Subprocess \S+ \(pid|MPI_ABORT|ray\.exceptions\.)|\(\w+ pid=\d+\)"
)
# And what, standing below a blank line, is hardly a further paragraph of a message.
_FOREIGN: Final = regex.compile(
    r"[\[({*!|=+#<]|\d{1,4}[-:/]\d\d|\d{1,3}%|(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b|[\w.-]+:\d+:\d+ |\S+ \d\d \d\d:\d\d"
    r"|(?:systemd|kernel)\b|/\S+: |(?:\w+: ){0,2}(?:Aborted|Segmentation|Bus error|core dumped)"
)
_QUOTE_MARGIN: Final = regex.compile(r"(?:[>│|] ?)+")
_GROUP_MARGIN: Final = regex.compile(r"(?P<indent> *)(?:\| ?|\+ (?=Exception Group))")
_KEY: Final = regex.compile(r"""(?P<key>\w+)["']?\s*[:=]\s*[bfru]?["'][^"']*$""")
_LOG_KEYS: Final = frozenset(
    ["msg", "message", "log", "error", "err", "exc", "exc_info", "exception", "traceback", "stack", "stacktrace", "stack_trace", "detail", "details", "event", "line", "reason"]
)


def open_block(line: Line) -> Block | None:
    """Start a traceback on a header, an announcement of one, a stray frame or a bare exception line.

    >>> block = open_block(Line("Scheduler hit an exception: Traceback (most recent call last):", 1, Process()))
    >>> block.offer(Line('  File "a.py", line 3, in f', 2, Process())), block.offer(Line("KeyError: 1", 3, Process()))
    (True, True)
    >>> block.close()[0].message
    'KeyError: 1'
    """
    text = line.text
    if text.rstrip().endswith(_HEADER):
        return _headed(line)
    if _HEADER in text:
        return _unescape(line)
    announced = _ANNOUNCES.match(text) if len(text) < 500 else None
    if announced:
        return _TracebackBlock(line, announced["text"].strip(), expect="header")
    if text.strip().startswith(tuple(_CHAINS)):
        block = _TracebackBlock(line, torn=True, expect="header")
        block.chain.end(_CHAINS.get(text.strip().rstrip(":"), "context"))
        return block
    if "File " in text[:80] and _FRAME.match(text[:_HEAD]) and ("in " in text or text.startswith("  File")):
        block = _TracebackBlock(line, torn=", in " in text)
        return block if block.take(line) else None
    return _bare_exception(line)


def _headed(line: Line) -> Block | None:
    """A header ends the line: what stands before it says who writes, is a margin, or quotes it."""
    before = line.text.rstrip()[: -len(_HEADER)]
    if "it/s]" in before or "s/it]" in before:
        before = after_bar(before)
    margin = _QUOTE_MARGIN.fullmatch(before)
    grouped = before.rstrip().endswith(_GROUPED)
    before = before.strip().removesuffix(_GROUPED).strip(" :+|>│")
    if len(before) > 300 or _is_quotation(before):
        return None  # as in an echoed request
    expect: _Expect = "frame"
    named = _TYPED.match(before) if before and not grouped else None
    if named and not _NAMED_LIKE_AN_EXCEPTION.fullmatch(named["type"]):
        named = None
    block = _TracebackBlock(
        line, "" if named else before, grouped=grouped, expect=expect, margin=margin.group() if margin else ""
    )
    if named:  # the message of an exception is a traceback
        block.chain.name(named["type"], named["message"] or "")
        block.chain.enter("quote")
        block.torn = True
    return block


def _is_quotation(before: str) -> bool:
    """Whether a quote that is still open, or the name of a request's field, stands before a header."""
    if "obj=" in before or "text=" in before:
        return True
    plain = regex.sub(r"\w'\w", "", before)
    return any(plain.count(quote) % 2 for quote in "'\"`")


def _bare_exception(line: Line) -> Block | None:
    """``Type: text`` without a traceback, where it opens its line and its type is named like an exception."""
    match = _TYPED.match(line.text[:_HEAD])
    if match is None or not _NAMED_LIKE_AN_EXCEPTION.fullmatch(match["type"]):
        return None
    if line.prefixed and line.level not in ("", "ERROR", "CRITICAL"):
        return None
    alone = match["message"] is None and ":" not in line.text
    if alone and match["type"] not in ("AssertionError", "NotImplementedError"):
        return None
    block = _TracebackBlock(line, torn=True, expect="message")
    block.bare = True
    block.chain.name(match["type"], _TYPED.match(line.text)["message"] or "")  # type: ignore[index]
    return block


def _unescape(line: Line) -> Block | None:
    """A traceback that a JSON or repr escape put into one line."""
    head, _, body = line.text.partition(_HEADER)
    escape = next((mark for mark in ("\\n", "\\\\n") if body.startswith(mark)), None)
    if escape is None or line.process.label.startswith("?"):
        return None
    key = _KEY.search(head[-200:])
    if key["key"].lower() not in _LOG_KEYS if key else _is_quotation(head) and len(head) > 1:
        return None
    head = head[key.end("key") :] if key else head
    before = head.strip(" '\":=").removesuffix(_GROUPED).strip(" '\":+=")
    block = _TracebackBlock(line, before[-300:], grouped=_GROUPED in head)
    for text in body[len(escape) :].replace('\\"', '"').split(escape)[:2000]:
        end = text.find('", "') if key else -1
        text = (text[:end] if end >= 0 else text).replace("\\t", "\t").rstrip("\"'},)]" if key else "\"'")
        if not block.offer(attrs.evolve(line, text=text, prefixed=False)) or end >= 0:
            break
    block.seal()
    return block


_Expect = Literal["header", "frame", "source", "exception", "message", "closed", "afterwards", "nothing"]


class _TracebackBlock:
    """A traceback that is being read.

    Attributes:
        chain: Its exceptions.
        torn: Something is missing.
        bare: An exception line without a traceback, so far.
    """

    def __init__(
        self,
        line: Line,
        header: str = "",
        *,
        torn: bool = False,
        grouped: bool = False,
        expect: _Expect = "frame",
        margin: str = "",
    ) -> None:
        self.chain = Chain()
        self.torn = torn
        self.bare = False
        self._first = line
        self._span = Span(line.line, line.line)
        self._time = line.time
        self._count = 1
        self._header = header
        self._grouped = grouped
        self._expect: _Expect = expect
        self._margin = margin.rstrip()
        self._blank = False
        self._base: int | None = None  # blanks before a frame, less the two that belong to it
        self._flat = False  # the indentation is lost
        self._piece = ""  # a frame line that was cut in two
        self._quotes_frames = False

    def seal(self) -> None:
        """Refuse every further line."""
        self._expect = "nothing"

    def offer(self, line: Line) -> bool:
        """Take *line* if the traceback goes on in it."""
        if self._expect == "nothing" or self._count >= _MAX_LINES or self._is_new_message(line):
            return False
        if self._margin and not line.text.lstrip().startswith(self._margin[0]):
            return False
        taken = self.take(line)
        if taken:
            self._count += 1
            self._span = self._span.join(Span(line.line, line.line))
            self._time = self._time or line.time
        return taken

    def _is_new_message(self, line: Line) -> bool:
        # vLLM repeats its prefix, with the place of the logging call, on each line of a message.
        return line.prefixed or bool(self._first.place and line.place != self._first.place)

    def take(self, line: Line) -> bool:
        """Take *line* if its text may come next."""
        text = line.text
        column = -1
        if self._margin:
            text = text.lstrip()[len(self._margin) :]
            text = text[1:] if text[:1] == " " and self._margin[-1] != " " else text
        if self._grouped:
            if rule := group_rule(text):
                self.chain.turn(rule)
                self._expect, self._blank = "closed" if rule.closes else "frame", False
                return True
            if match := _GROUP_MARGIN.match(text):
                text, column = text[match.end() :], len(match["indent"])
        return self._take(line, text, column)

    def _take(self, line: Line, text: str, column: int) -> bool:
        stripped = text.strip()
        if not stripped:
            self._blank = True
            self.chain.draft.blanks += self._expect == "message"
            return True
        if (relation := _CHAINS.get(stripped.rstrip(":"))) and self._expect != "nothing":
            self.chain.unwind(column)
            self.chain.end(relation)
            self._expect, self.torn, self.bare = "header", self.torn and not self.bare, False
            return True
        if stripped.endswith(_HEADER):
            return self._take_header(line, stripped, column)
        if self._expect == "closed":
            return False
        if self._piece:
            text, stripped = self._mend(text)
        frame = _FRAME.match(text[:_HEAD]) if "File " in text[:200] else None
        if frame:
            return self._take_frame(frame, text, stripped)
        if self._expect in ("header", "afterwards"):
            return self._take_between(stripped, text)
        if self._expect == "message":
            return self._take_message(text, stripped)
        return self._take_text(text, stripped)

    def _take_header(self, line: Line, stripped: str, column: int) -> bool:
        """A header begins the traceback, one of its chain, or one that a message quotes."""
        draft = self.chain.draft
        if self._expect == "message":
            if self._quotes_traceback():
                self.chain.enter("quote")
            elif line.place and not line.prefixed and not draft.blanks:
                self.chain.enter("note")  # vLLM adds the traceback once more as a note
            else:
                return False  # a second traceback without a sentence between them
        elif self._names(stripped):
            self.chain.enter("quote")
        elif draft or self._is_over(column):
            return False
        self._grouped = self._grouped or stripped.removesuffix(_HEADER).strip(" +|") == _GROUPED
        self._expect, self._blank = "frame", False
        return True

    def _is_over(self, column: int) -> bool:
        """Whether a header cannot go on with what is read: no sentence and no rule of a group led to it."""
        if self._expect == "header":
            return False
        self.chain.unwind(column)
        return self._expect == "closed" or self.chain.inside != "group"

    def _names(self, stripped: str) -> bool:
        """Whether a header is the message of an exception; that is taken."""
        named = _TYPED.match(stripped.removesuffix(_HEADER).rstrip())
        if not (named and _NAMED_LIKE_AN_EXCEPTION.fullmatch(named["type"])):
            return False
        self.chain.name(named["type"], named["message"] or "")
        return True

    def _quotes_traceback(self) -> bool:
        """Whether the message leads to a traceback from another process."""
        draft = self.chain.draft
        words = draft.last_words()
        if draft.blanks and not ("Remote" in str(draft.type) or words == '"""'):
            return False
        return words.endswith((":", '"""'))

    def _take_frame(self, frame: regex.Match[str], text: str, stripped: str) -> bool:
        draft = self.chain.draft
        if self._expect == "message" and not self.bare:
            if draft.type and draft.type.startswith("ray.exceptions"):
                self.chain.end("remote")
            elif draft.last_words().endswith(":") or (self._quotes_frames and not draft.blanks):
                self._quotes_frames = True  # "from user code:" and frames below it
                draft.say(text.rstrip())
                return True
            else:
                return False
        elif self._expect == "afterwards":
            return self._header.startswith(_LOGGING)
        function = (frame["function"] or "").strip()
        if not function and text[:1] != " " and not self._flat and self._expect != "header":
            return False
        if self._base is None:
            indent = len(frame["indent"])
            self._base, self._flat = max(indent - 2, 0), indent == 0
        name = frame["file"]
        self.chain.add_frame(Frame(name, int(frame["line"][:9]), function, "", in_app(name)))
        self._expect, self._blank = "source", False
        return True

    def _mend(self, text: str) -> tuple[str, str]:
        """Join the two halves of a frame line that a terminal or an editor wrapped."""
        for joined in (self._piece + text, f"{self._piece.rstrip()} {text.strip()}"):
            if _FRAME.match(joined[:_HEAD]):
                self._piece = ""
                return joined, joined.strip()
        self._piece, self.torn = "", True
        return text, text.strip()

    def _take_between(self, stripped: str, text: str) -> bool:
        """Text where a header is due, or below a traceback that is complete."""
        if self._expect == "afterwards":
            if stripped.startswith("Arguments: "):
                self._expect = "nothing"
                return True
            return text[:1] == " " or stripped.startswith("Message: ")
        if _SKIPPED.match(text[:200]):
            self.torn = True
            return True
        typed = _TYPED.match(text)
        if typed and _NAMED_LIKE_AN_EXCEPTION.fullmatch(typed["type"]):
            self._name(typed)  # an exception that was never raised has no traceback
            return True
        # after an announcement comes the handle or future it is about
        return not self._blank and self._header != "" and stripped.startswith(_ABOUT)

    def _take_text(self, text: str, stripped: str) -> bool:
        """Source, carets, and the exception at the end of the frames."""
        frames = self.chain.draft.frames
        if _SKIPPED.match(text[:200]):
            self.torn = self.torn or "[...]" in text or stripped == "..."
            return True
        if _CARET.match(text[:_HEAD]):
            return bool(frames)
        if self._base and text[: self._base].isspace():
            text = text[self._base :]
        indented = text[:1].isspace()
        typed = _TYPED.match(text if not indented else stripped)
        if typed and (
            _NAMED_LIKE_AN_EXCEPTION.fullmatch(typed["type"])
            if self._flat or (indented and self._expect == "exception")
            else not indented
        ):
            self._name(typed)
            return True
        if not frames:
            return False
        if _FRAME_TORN.match(text[:_HEAD]):
            self._piece = text
            return True
        rest = _FRAME_REST.match(text) if not frames[-1].function else None
        if rest and frames[-1].lineno is not None:
            self.chain.mend_frame(function=rest["function"], lineno=int(f"{frames[-1].lineno}{rest['digits']}"[:9]))
            return True
        return self._take_source(stripped, indented)

    def _take_source(self, stripped: str, indented: bool) -> bool:
        """A line of source; it may be one of several, or the rest of one that was wrapped."""
        last = self.chain.draft.frames[-1]
        wrapped = len(last.line) >= 50 and self._expect == "exception" and not self._blank
        if not (indented or self._flat or wrapped) or (not indented and _ENDS.match(stripped)):
            return False
        if self._expect == "source":
            self.chain.mend_frame(line=stripped[:500])
            self._expect = "exception"
        elif not indented and not self._flat:
            self.chain.mend_frame(line=f"{last.line} {stripped}"[:500])
        return True

    def _name(self, typed: regex.Match[str]) -> None:
        """The line that names the exception."""
        self.chain.name(typed["type"], typed["message"] or "")
        self._expect, self._blank = "message", False

    def _take_message(self, text: str, stripped: str) -> bool:
        draft = self.chain.draft
        if stripped == '"""' and self.chain.leave_quote():
            self._expect = "closed"
            return True
        if self._header.startswith(_LOGGING) and stripped == "Call stack:":
            self._expect = "afterwards"
            return True
        if _SKIPPED.match(text[:200]) and self._grouped:
            return True
        if _ENDS.match(stripped) or (len(stripped) < 500 and _ANNOUNCES.match(stripped)):
            return False
        if draft.blanks and self._is_foreign(stripped):
            return False
        typed = _TYPED.match(stripped[:_HEAD])
        named = typed and not text[:1].isspace() and _NAMED_LIKE_AN_EXCEPTION.fullmatch(typed["type"])
        if named and (self.bare or draft.blanks):
            return False  # one bare exception line after another
        if draft.size <= MAX_MESSAGE or draft.blanks == 0:
            draft.say(text.rstrip())
        return True

    def _is_foreign(self, stripped: str) -> bool:
        """Whether a text below a blank line is no further paragraph of the message."""
        said = self.chain.draft.message
        if len(said) > 60:
            return True
        if self.chain.inside == "quote" or said[0] == "":
            return False  # "ImportError:" and a report of several paragraphs
        return self.bare or _FOREIGN.match(stripped) is not None

    def close(self) -> Sequence[Event]:
        """End the traceback; what is missing makes it incomplete."""
        if not self.chain:
            return []  # an announcement or a header alone
        links = self.chain.finish()
        return [self._event(chain) for chain in (links, *self.chain.notes) if chain]

    def _event(self, chain: Sequence[ExceptionLink]) -> Traceback:
        last = chain[-1]
        title = f"{last.type}: {last.message}" if last.message else last.type
        if not title and last.frames:
            title = f"{last.frames[-1].filename}:{last.frames[-1].lineno} {last.frames[-1].line}"
        process, basis = self._owner()
        return Traceback(
            process=process,
            span=self._span,
            message=title or self._header,
            time=self._time,
            basis=basis,
            stream=self._first.stream,
            chain=tuple(chain),
            header=self._header,
            complete=bool(last.type) and not self.torn and self._expect != "header",
            ignored=self._header.startswith(_IGNORED),
        )

    def _owner(self) -> tuple[Process, Basis]:
        """The process; a header such as ``DetokenizerManager hit an exception`` names it better than a bare prefix."""
        process, basis = self._first.process, self._first.basis
        if process.label in ("", "main") and not process.rank:
            for word, named in _ROLES:
                if word in self._header:
                    return attrs.evolve(process, role=named.role, label=named.label), "prefix"
            if self._header.startswith("Process "):
                return attrs.evolve(process, role="worker", label=self._header[8:].rstrip(":")), basis
        return process, basis


_ROLES: Final = (
    ("Detokenizer", Process("detokenizer", "detokenizer")),
    ("Tokenizer", Process("tokenizer", "tokenizer")),
    ("DataParallelController", Process("manager", "data-parallel-controller")),
    ("Scheduler", Process("scheduler", "scheduler")),
    ("TpModelWorker", Process("scheduler", "scheduler")),
)
