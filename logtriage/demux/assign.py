"""Records in, lines with their process out: whose is a line that does not say it?

The law: a line's process depends on the records before it, never on the cut of the chunks.

Source of a line: in a journal the pid that journald stamped on it.  Where one pid carries several ranks
(a container runtime, a Ray actor), or there is no pid, the text has to tell.  The engine's own prefix stands
only on the first line of a message; the lines after it are the same writer's, unless the grammar of a
traceback says that an older, unfinished one goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs
import regex

from logtriage.demux.grammar import FOLLOWS, Kind, child_name, classify, goes_on, is_frame, leads
from logtriage.demux.prefix import Prefix, split_prefix
from logtriage.demux.seams import glued
from logtriage.demux.writers import Source, Sources, Writer
from logtriage.model import Basis, Line, Process, Record

__all__ = ["Demux"]

_MAX_TEXT: Final = 64 * 1024
_OPEN: Final = frozenset({"header", "frame", "source", "caret", "chain"})
_SEEN_NEXT: Final = 2
_STAYS: Final = 1
_SIGN: Final = 2
_WITNESSES: Final = {
    "kernel": Process("kernel", "kernel"),
    "systemd": Process("manager", "systemd"),
}


class Demux:
    """Give every line its process.

    Args:
        purify: Removes control characters and secrets from a text; called once for each line, before
            anything of it is kept.

    Attributes:
        engines: Engines whose prefix was seen, in the order of their first.
    """

    def __init__(self, purify: Callable[[str], str]) -> None:
        self._purify = purify
        self._sources = Sources()
        self.engines: list[str] = []

    def feed(self, record: Record) -> Sequence[Line]:
        """Take a record; return its line, or two if another writer's text is glued to its end."""
        text = self._purify(record.text[:_MAX_TEXT])
        record = attrs.evolve(record, text="")
        witness = _witness(record)
        if witness is not None:
            key = f"{record.host}/{witness.label}/{record.pid or ''}"
            process = attrs.evolve(witness, pid=record.pid, host=record.host)
            return [Line(text, record.line, process, "pid", record.time, True, stream=key, record=record)]
        source = self._sources.of(record)
        before = len(source.writers)
        lines = self._lines(source, record, text)
        self._sources.settle(source, before)
        return lines

    def close(self) -> Sequence[Line]:
        """End the stream; nothing is held back."""
        return []

    @property
    def size(self) -> tuple[int, int]:
        """Number of sources and of writers that are remembered."""
        return len(self._sources), self._sources.writers

    def _lines(self, source: Source, record: Record, text: str) -> list[Line]:
        current = source.current
        at = glued(text, current is not None and current.last in _OPEN)
        if at:
            return [self._piece(source, record, text[:at]), self._line(source, record, text[at:])]
        return self._resumed(source, record, text) or [self._line(source, record, text)]

    def _resumed(self, source: Source, record: Record, text: str) -> list[Line]:
        """The lines of *text* if it holds the rest of one that was cut off before, else none."""
        if source.is_one_process or not text:
            return []
        for writer, cut in list(source.cuts.items()):
            if source.seams.mends(cut, text):
                return [self._whole(source, record, writer, cut + text)]
            at = source.seams.split(cut, text)
            if at:
                first = self._piece(source, record, text[:at])
                return [first, self._whole(source, record, writer, cut + text[at:])]
        current = source.current
        if current is not None and current.last == "exception" and not split_prefix(text):
            whole = source.seams.ending(text)  # no message ends as a line of source does
            best = self._best(source, whole, classify(whole)) if whole else None
            if best is not None:
                return [self._whole(source, record, best[0], whole)]
        return []

    def _piece(self, source: Source, record: Record, text: str) -> Line:
        """The beginning of a line that another writer cut in on."""
        line = self._line(source, record, text, whole=False)
        if source.current is not None:
            source.cut_off(source.current, text)
        return line

    def _whole(self, source: Source, record: Record, writer: Writer, text: str) -> Line:
        """The line that was cut, now that its rest has come; it is said once more in whole."""
        kind = classify(text)
        self._note(source, writer, text, kind)
        if kind == "source":
            writer.source = text.strip()
        return self._make(record, text, writer, "only-candidate", None)

    def _line(self, source: Source, record: Record, text: str, *, whole: bool = True) -> Line:
        prefix = None if record.continued and source.has_pid else split_prefix(text)
        if prefix is None:
            return self._bare(source, record, text, whole)
        if prefix.engine not in self.engines and prefix.engine != "torch":
            self.engines.append(prefix.engine)
        writer, basis = self._named(source, prefix, record)
        kind = classify(prefix.rest)
        if prefix.starts and regex.search(r"exception:?\s*$", prefix.rest[-200:]):
            kind = "header"
        writer.torch = prefix.engine == "torch"
        self._note(source, writer, prefix.rest, kind, starts=prefix.starts)
        return self._make(record, prefix.rest, writer, basis, prefix)

    def _named(self, source: Source, prefix: Prefix, record: Record) -> tuple[Writer, Basis]:
        """The writer that a prefix names."""
        owner = source.owner
        world = prefix.process.rank.world if prefix.engine == "torch" else None
        process = attrs.evolve(prefix.process, pid=prefix.process.pid or record.pid, host=record.host)
        if world is not None and owner is not None:
            source.claim(owner, world)
            if source.is_one_process:  # the pid says more than the rank in the whole group
                return source.writer(owner.name, owner.process), "pid"
        writer = source.writer(prefix.process.label or "main", process)
        source.claim(writer, world)
        return writer, "prefix"

    def _bare(self, source: Source, record: Record, text: str, whole: bool) -> Line:
        """A line without a prefix."""
        kind = classify(text)
        if source.is_one_process:
            writer = source.owner or source.current
            if writer is None:
                writer = source.writer("", Process("unknown", "", pid=record.pid, host=record.host))
            basis: Basis = "pid"
        else:
            writer, basis = self._choose(source, record, text, kind)
        self._note(source, writer, text, kind, whole=whole)
        return self._make(record, text, writer, basis, None)

    def _choose(self, source: Source, record: Record, text: str, kind: Kind) -> tuple[Writer, Basis]:
        """Whose line without a prefix is it, where only the text can tell?"""
        current = source.current
        unknown = Process("unknown", "", pid=record.pid, host=record.host)
        if kind == "native":
            if current is not None and current.torch and current.last not in _OPEN:
                return current, "continuation"  # torch's watchdog throws what it has just logged
            return source.writer("?native", unknown), "guess"
        if kind == "child":
            process = attrs.evolve(unknown, role="worker", label=child_name(text))
            return source.writer(f"?{process.label}", process), "continuation"
        if kind in ("blank", "other") and current is not None:
            return current, "continuation"
        below = kind == "caret" or (kind == "source" and current is not None and current.last == "frame")
        if below and current is not None and kind in FOLLOWS.get(current.last, ()):
            return current, "continuation"  # a frame and what is below it are one write as a rule
        if kind == "header" and current is not None and current.leads:
            return current, "continuation"
        best = self._best(source, text, kind)
        if best is not None:
            return best
        if kind in ("source", "caret") and current is not None:
            return current, "continuation"
        if kind == "header" or (current is None and (kind in ("frame", "exception") or leads(text))):
            process = Process("launcher", "main", pid=record.pid, host=record.host)
            return source.writer("?main", process), "guess"
        if current is not None and current.process.label in ("", "main"):
            return current, "continuation"
        return source.writer("?", unknown), "guess"

    def _best(self, source: Source, text: str, kind: Kind) -> tuple[Writer, Basis] | None:
        """The writer whose unfinished traceback goes on best in *text*."""
        fitting = [writer for writer in source.writers.values() if kind in FOLLOWS.get(writer.last, ())]
        if not fitting:
            return None
        current = source.current
        if source.turned and any(writer is not current for writer in fitting):
            fitting = [writer for writer in fitting if writer is not current]

        def fitness(writer: Writer) -> int:
            score = goes_on(writer.last, writer.source, text, kind)
            if source.knows(writer.frame if writer.last != "header" else "", text.strip()):
                score += _SEEN_NEXT
            return score + _STAYS if writer is current else score

        # Of equals the one that was silent longest: it stands first.  Without a sign the current one goes on.
        best = max(fitting, key=fitness)
        if current in fitting and fitness(best) < max(_SIGN, fitness(current) + 1):
            best = current
        if best is current:
            return best, "continuation"
        return best, "only-candidate" if len(fitting) == 1 else "guess"

    def _note(
        self, source: Source, writer: Writer, text: str, kind: Kind, *, starts: bool = False, whole: bool = True
    ) -> None:
        """Remember how far *writer* has come."""
        source.turn_to(writer)
        writer.leads = leads(text) if kind == "other" else kind == "exception" and text.rstrip().endswith(":")
        if kind == "blank" or (kind == "other" and not starts):
            return  # says nothing of how far a traceback has come
        # what begins as a frame and does not end as one was torn, and whose its end is does not show
        source.turned = kind == "other" or (kind == "frame" and not is_frame(text) and ", in " in text)
        stripped = text.strip()[:500]
        if whole and not source.is_one_process:
            if kind in ("frame", "exception") and writer.last in ("header", "frame", "source", "caret"):
                source.learn("" if writer.last == "header" else writer.frame, stripped)
            if kind in ("frame", "source", "caret"):
                source.seams.remember(text)
        if kind == "source" and writer.last in ("frame", "other"):
            writer.source = stripped
        if kind == "frame":
            writer.frame = stripped
        if kind == "header":
            writer.frame = writer.source = ""
        writer.last = kind

    def _make(self, record: Record, text: str, writer: Writer, basis: Basis, prefix: Prefix | None) -> Line:
        time = record.time or (prefix.time if prefix else None)
        if prefix is None:
            return Line(text, record.line, writer.process, basis, time, stream=writer.key, record=record)
        return Line(
            text,
            record.line,
            writer.process,
            basis,
            time,
            prefix.starts,
            prefix.level,
            prefix.place,
            writer.key,
            record,
        )


def _witness(record: Record) -> Process | None:
    """A sender that is no process of the server."""
    if record.ident == "kernel" or record.transport == "kernel":
        return _WITNESSES["kernel"]
    if record.ident and (record.ident.startswith("systemd") or record.ident == "init.scope"):
        return _WITNESSES["systemd"]
    if record.ident and record.ident.startswith("("):
        return _WITNESSES["systemd"]  # systemd's child before it became the service, ``(python3)``
    return None
