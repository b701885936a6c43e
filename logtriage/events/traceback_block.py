"""Lines of one traceback in, its event out.

Source: CPython 3.8 to 3.14, ``Lib/traceback.py`` and ``Python/traceback.c``: header, frames (a ``File`` line, source
lines, caret lines, repeat marks), the exception with a message of any number of lines, notes; blank lines and a
sentence between two exceptions of a chain; ``+``/``|`` margins in exception groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import attrs
import regex

from logtriage.events.collect import HEAD, in_app
from logtriage.events.exception_chain import MAX_MESSAGE, Chain, group_rule, title_of
from logtriage.events.pasted import Pasted
from logtriage.events.traceback_text import (
    ABOUT,
    ANNOUNCES,
    CARET,
    CHAINS,
    CPP_FRAME,
    ENDS,
    FOREIGN,
    FRAME,
    FRAME_REST,
    FRAME_TORN,
    GROUP_MARGIN,
    GROUPED,
    HEADER,
    IGNORED,
    LOGGING,
    ORIGIN,
    SKIPPED,
    TYPED,
    joined_frame,
    named_exception,
    process_of,
)
from logtriage.model import Event, ExceptionLink, Frame, Line, Span, Traceback

__all__ = ["TracebackBlock"]

_MAX_LINES: Final = 20_000
_Expect = Literal["header", "frame", "source", "exception", "message", "closed", "afterwards", "origin", "nothing"]


class TracebackBlock:
    """A traceback that is being read.

    Attributes:
        chain: Its exceptions.
        pasted: What was done to its lines on their way.
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
        self.pasted = Pasted()
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
        self._flat_tree = False  # that of the tree of a group
        self._in_cpp = False  # the stack of a C++ exception stands in the message
        self._awaits_function = False  # its frame was cut in front of it
        self._piece = ""  # a frame line that was cut in two
        self._quotes_frames = False

    def seal(self) -> None:
        """Refuse every further line."""
        self._expect = "nothing"

    def offer(self, line: Line) -> bool:
        """Take *line* if the traceback goes on in it."""
        if self._expect == "nothing" or self._count >= _MAX_LINES or self._is_new_message(line):
            return False
        mended = self.pasted.mend(line.text)
        line = line if mended == line.text else attrs.evolve(line, text=mended)
        if self._margin and not line.text.lstrip().startswith(self._margin[0]):
            return False
        if not self._take_line(line):
            return False
        self._count += 1
        self._span = self._span.join(Span(line.line, line.line))
        self._time = self._time or line.time
        return True

    def _is_new_message(self, line: Line) -> bool:
        # vLLM repeats its prefix, with the place of the logging call, on each line of a message.
        return line.prefixed or bool(self._first.place and line.place != self._first.place)

    def take(self, line: Line) -> bool:
        """Take the first line."""
        return self._take_line(attrs.evolve(line, text=self.pasted.mend(line.text)))

    def _take_line(self, line: Line) -> bool:
        """Take *line* if its text may come next."""
        text = line.text
        column = -1
        if self._margin:
            text = text.lstrip()[len(self._margin) :]
            text = text[1:] if text[:1] == " " and self._margin[-1] != " " else text
        if self._base and text[: self._base].isspace():
            text = text[self._base :]
        if self._grouped:
            if rule := group_rule(text):
                self._flat_tree = self._flat_tree or rule.column < 2 + 2 * rule.opens
                if self._flat_tree:
                    rule = attrs.evolve(rule, column=self.chain.column + 2 * rule.opens)
                self.chain.turn(rule)
                self._expect, self._blank = "closed" if rule.closes else "frame", False
                return True
            if match := GROUP_MARGIN.match(text):
                text = text[match.end() :]
                self._flat_tree = self._flat_tree or not match["indent"]
                column = self.chain.column if self._flat_tree else len(match["indent"])
        return self._take(line, text, column)

    def _take(self, line: Line, text: str, column: int) -> bool:
        stripped = text.strip()
        if not stripped:
            self._blank = True
            self.chain.draft.blanks += self._expect == "message"
            return True
        if relation := CHAINS.get(stripped.rstrip(":")):
            self.chain.unwind(column)
            self.chain.close_quotation()
            self.chain.end(relation)
            self._expect, self.torn, self.bare = "header", self.torn and not self.bare, False
            return True
        if self._expect == "origin":
            if not stripped.endswith(HEADER):
                return text[:1].isspace()
            self._expect = "header"
        if stripped.endswith(HEADER):
            return self._take_header(line, stripped, column)
        if self._expect == "closed":
            return False
        if self._piece:
            joined = joined_frame(self._piece, text)
            self._piece, self.torn = "", self.torn or not joined
            text = joined or text
        frame = FRAME.match(text[:HEAD]) if "File " in text[:200] else None
        if frame:
            return self._take_frame(frame, text)
        if self._expect in ("header", "afterwards"):
            return self._take_between(stripped, text)
        if self._expect == "message":
            return self._take_message(text, stripped, column)
        return self._take_text(text, stripped)

    def _take_header(self, line: Line, stripped: str, column: int) -> bool:
        """A header begins the traceback, one of its chain, or one that a message quotes."""
        draft = self.chain.draft
        if self._expect == "message":
            if draft.last_words().endswith((":", '"""')) and (not draft.blanks or "Remote" in str(draft.type)):
                self.chain.enter("quote")
            elif line.place and not line.prefixed and not draft.blanks:
                self.chain.enter("note")  # vLLM adds the traceback once more as a note
            else:
                return False  # a second traceback without a sentence between them
        elif self._names(stripped):
            self.chain.enter("quote")
        elif draft or self._is_over(column):
            return False
        self._grouped = self._grouped or stripped.removesuffix(HEADER).strip(" +|") == GROUPED
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
        named = named_exception(stripped.removesuffix(HEADER).rstrip())
        if named:
            self.chain.name(named["type"], named["message"] or "")
        return named is not None

    def _take_frame(self, frame: regex.Match[str], text: str) -> bool:
        """A frame; in a message it may be one that the message quotes."""
        draft = self.chain.draft
        if self._expect == "message":
            if draft.type and draft.type.startswith("ray.exceptions"):
                self.chain.end("remote")
            elif self.bare:
                pass  # people paste the stack below the exception
            elif not draft.blanks and (self._quotes_frames or draft.last_words().endswith(":")):
                self._quotes_frames = True  # "from user code:" and frames below it
                draft.say(text.rstrip())
                return True
            else:
                return False
        elif self._expect == "afterwards":
            return self._header.startswith(LOGGING)
        function = (frame["function"] or "").strip()
        if not function and not text[:1].isspace() and not self._flat and self._expect != "header":
            return False
        self._flat = self._flat or not frame["indent"]
        if self._base is None:
            self._base = max(len(frame["indent"]) - 2, 0)
        name = frame["file"]
        self.chain.add_frame(Frame(name, int(frame["line"][:9]), function, "", in_app(name)))
        self._awaits_function = text.rstrip().endswith(", in")
        self._expect, self._blank = "source", False
        return True

    def _take_between(self, stripped: str, text: str) -> bool:
        """Text where a header is due, or below a traceback that is complete."""
        if self._expect == "afterwards":
            if stripped.startswith("Arguments: "):
                self._expect = "nothing"
                return True
            return text[:1] == " " or stripped.startswith("Message: ")
        if SKIPPED.match(text[:200]):
            self.torn = True
            return True
        if typed := named_exception(text):
            return self._name(typed)  # an exception that was never raised has no traceback
        if stripped.startswith(ORIGIN):
            self._expect = "origin"
            return True
        # after an announcement comes the handle or future it is about
        return not self._blank and self._header != "" and stripped.startswith(ABOUT)

    def _take_text(self, text: str, stripped: str) -> bool:
        """Source, carets, and the exception at the end of the frames."""
        frames = self.chain.draft.frames
        if SKIPPED.match(text[:200]):
            self.torn = self.torn or "[...]" in text or stripped == "..."
            return True
        if CARET.match(text[:HEAD]):
            return bool(frames)
        indented = text[:1].isspace()
        if self._awaits_function and not indented and self._take_rest(text):
            return True
        if self._flat or (indented and self._expect == "exception"):
            typed = named_exception(stripped)
        else:
            typed = None if indented else TYPED.match(text)
        if typed:
            return self._name(typed)
        if FRAME_TORN.match(text[:HEAD]):
            self._piece = text
            return True
        if not frames:
            return False
        return self._take_rest(text) or self._take_source(stripped, indented)

    def _take_rest(self, text: str) -> bool:
        """The rest of a frame line that was cut behind its number, or behind the word before the function."""
        frame = self.chain.draft.frames[-1] if self.chain.draft.frames else None
        if frame is None or frame.function or frame.lineno is None or self._expect != "source":
            return False
        rest = FRAME_REST.match(text)
        if rest is None or not (rest["begins"] or self._awaits_function):
            return False
        self.chain.mend_frame(function=rest["function"], lineno=int(f"{frame.lineno}{rest['digits'] or ''}"[:9]))
        self._awaits_function = False
        return True

    def _take_source(self, stripped: str, indented: bool) -> bool:
        """A line of source; it may be one of several, or the rest of one that was wrapped."""
        last = self.chain.draft.frames[-1]
        wrapped = len(last.line) >= 50 and self._expect == "exception" and not self._blank
        if not (indented or self._flat or wrapped) or (not indented and ENDS.match(stripped)):
            return False
        if self._expect == "source":
            self.chain.mend_frame(line=stripped[:500])
            self._expect = "exception"
        elif stripped.startswith(last.line):
            self.chain.mend_frame(line=stripped[:500])  # its beginning came first, where another writer cut in
        elif not indented and not self._flat:
            self.chain.mend_frame(line=f"{last.line} {stripped}"[:500])
        return True

    def _name(self, typed: regex.Match[str]) -> bool:
        """Take the line that names the exception."""
        self.chain.name(typed["type"], typed["message"] or "")
        self._expect, self._blank, self._in_cpp = "message", False, False
        return True

    def _take_message(self, text: str, stripped: str, column: int) -> bool:
        draft = self.chain.draft
        if stripped == '"""' and self.chain.leave_quote():
            self._expect = "closed"
            return True
        if self._header.startswith(LOGGING) and stripped == "Call stack:":
            self._expect = "afterwards"
            return True
        if column >= 0:  # the margin of a group tells whose line it is
            draft.say(text.rstrip())
            return True
        if SKIPPED.match(text[:200]) and self._grouped:
            return True
        if CPP_FRAME.match(text[:HEAD]):
            self._in_cpp = True
            return True  # it belongs to the message, but its address tells nothing
        if self._in_cpp and draft.blanks and not stripped.startswith((".", "Exception raised from ")):
            return False
        if ENDS.match(stripped) or (len(stripped) < 500 and ANNOUNCES.match(stripped)):
            return False
        if draft.blanks and self._is_foreign(stripped):
            return False
        named = None if text[:1].isspace() else named_exception(text)
        if named and draft.is_begun_by(text):
            return self._name(named)  # its beginning came first, where another writer cut in
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
        return self.bare or FOREIGN.match(stripped) is not None

    def close(self) -> Sequence[Event]:
        """End the traceback; what is missing makes it incomplete."""
        if not self.chain:
            return []  # an announcement or a header alone
        links = self.chain.finish()
        return [self._event(chain) for chain in (links, *self.chain.notes) if chain]

    def _event(self, chain: Sequence[ExceptionLink]) -> Traceback:
        process = process_of(self._header, self._first.process)
        return Traceback(
            process=process,
            span=self._span,
            message=title_of(chain[-1]) or self._header,
            time=self._time,
            basis="prefix" if process.role not in ("worker", self._first.process.role) else self._first.basis,
            stream=self._first.stream,
            chain=tuple(chain),
            header=self._header,
            complete=bool(chain[-1].type) and not self.torn and self._expect != "header",
            ignored=self._header.startswith(IGNORED),
        )
