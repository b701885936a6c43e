"""Records in, lines with their process out: whose is a line that does not say it?

The law: a line's process depends on the records alone, never on the cut of the chunks.

Source of a line: in a journal the pid that journald stamped on it.  Where one pid carries several ranks
(a container runtime, a Ray actor), or there is no pid, the text has to tell.  The engine's own prefix stands
only on the first line of a message; the lines after it are the same writer's.  As soon as two tracebacks are
open at the same time that no longer holds: the lines are held back until they have ended, and told apart all
together (:mod:`logtriage.demux.untangle`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs
import regex

from logtriage.demux.cut import Waiting, joined, may_be_announcement, was_cut
from logtriage.demux.grammar import FOLLOWS, HEADER, Kind, Progress, child_name, classify, leads, may_name
from logtriage.demux.prefix import Prefix, split_prefix
from logtriage.demux.tangle import Tangle, glued
from logtriage.demux.untangle import untangle
from logtriage.demux.writers import Source, Sources, Writer
from logtriage.model import Basis, Line, Process, Record

__all__ = ["Demux"]

_MAX_TEXT: Final = 64 * 1024
_MAX_TANGLES: Final = 8
_FRESH: Final = 2_000
"""Lines after which a traceback that has not gone on is taken for one that never will."""

_STARTS: Final = "server_args="
_ANNOUNCED: Final = regex.compile(r"exception:?\s*$")
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
        self._tangles: dict[str, tuple[Source, Tangle]] = {}
        self._pending: dict[str, Waiting] = {}
        self.engines: list[str] = []

    def feed(self, record: Record) -> Sequence[Line]:
        """Take a record; return the lines whose process is known by now, in the order of the stream.

        That is the record's line, or two if another writer's text is glued to its end; none as long as
        several tracebacks are open in its stream, and all that were held back when they have ended.
        """
        text = self._purify(record.text[:_MAX_TEXT])
        record = attrs.evolve(record, text="")
        witness = _witness(record)
        if witness is not None:
            key = f"{record.host}/{witness.label}/{record.pid or ''}"
            process = attrs.evolve(witness, pid=record.pid, host=record.host)
            line = Line(text, record.line, process, "pid", record.time, True, stream=key, record=record)
            return [*self.close(), line]
        source = self._sources.of(record)
        before = len(source.writers)
        lines = self._lines(source, record, text)
        source.line = record.line
        self._sources.settle(source, before)
        return lines

    def close(self) -> Sequence[Line]:
        """End the stream; return the lines that were held back."""
        out = [line for source, tangle in self._tangles.values() for line in self._untangled(source, tangle)]
        self._tangles.clear()
        out += [line for waiting in list(self._pending.values()) for line in self._due(waiting.source)]
        return sorted(out, key=lambda line: line.line)

    @property
    def size(self) -> tuple[int, int]:
        """Number of sources and of writers that are remembered."""
        return len(self._sources), self._sources.writers

    def _lines(self, source: Source, record: Record, text: str) -> Sequence[Line]:
        prefix = None if record.continued and source.has_pid else split_prefix(text)
        kind = classify(prefix.rest if prefix else text)
        if prefix and prefix.starts and _ANNOUNCED.search(prefix.rest[-200:]):
            kind = "header"
        if prefix and _STARTS in prefix.rest[:_FRESH]:
            return [*self._ended(source), *self._due(source), self._line(source, record, text, prefix, kind)]
        held = self._tangles.get(source.key)
        if held is not None:
            return self._held(source, held[1], record, text, prefix, kind)
        if prefix is None and kind == "other" and source.current is not None:
            due = source.current.progress.last in ("source", "caret", "frame")
            kind = "exception" if due and may_name(text) else kind
        if source.is_one_process:
            return self._one_process(source, record, text, prefix, kind)
        if source.key in self._pending:
            return [*self._due(source), *self._lines(source, record, text)]
        current = source.current
        at = glued(text, current is not None and current.progress.is_open)
        if self._mixes(source, record, text, prefix, kind, at):
            tangle = Tangle(sum(writer.progress.is_open for writer in self._fresh(source, record)))
            self._tangles[source.key] = (source, tangle)
            if len(self._tangles) > _MAX_TANGLES:
                oldest, waiting = self._tangles.pop(next(iter(self._tangles)))
                return [*self._untangled(oldest, waiting), *self._held(source, tangle, record, text, prefix, kind)]
            return self._held(source, tangle, record, text, prefix, kind)
        if at:
            rest = split_prefix(text[at:])
            first = self._line(source, record, text[:at], prefix, classify(prefix.rest[:at] if prefix else text[:at]))
            return [first, self._line(source, record, text[at:], rest, classify(rest.rest if rest else text[at:]))]
        return [self._line(source, record, text, prefix, kind)]

    # --- lines of one process that may go on ----------------------------------------------------

    def _one_process(
        self, source: Source, record: Record, text: str, prefix: Prefix | None, kind: Kind
    ) -> Sequence[Line]:
        """The lines of a pid; the last one of a traceback waits, since another process may have cut it off."""
        out: list[Line] = []
        last = record
        waiting = self._pending.pop(source.key, None)
        if waiting is not None:
            plain = classify(prefix.rest if prefix else text)
            whole = joined(waiting.last, waiting.text, waiting.prefix, record, text, prefix, plain)
            if whole is not None:
                record, text = waiting.record, whole
                prefix = split_prefix(text)
                kind = classify(prefix.rest if prefix else text)
            else:
                out.append(self._line(source, waiting.record, waiting.text, waiting.prefix, waiting.kind))
        writer = source.owner or source.current
        state = writer.progress if writer else Progress()
        in_traceback = state.is_open or state.last == "exception" or kind in ("header", "exception")
        if text and (in_traceback or was_cut(last) or may_be_announcement(prefix)):
            self._pending[source.key] = Waiting(source, record, last, text, prefix, kind)
            return out
        return [*out, self._line(source, record, text, prefix, kind)]

    def _due(self, source: Source) -> list[Line]:
        """The line of a pid that waits, if one does."""
        waiting = self._pending.pop(source.key, None)
        return [self._line(source, waiting.record, waiting.text, waiting.prefix, waiting.kind)] if waiting else []

    # --- lines that have to wait ----------------------------------------------------------------

    @staticmethod
    def _fresh(source: Source, record: Record) -> list[Writer]:
        """The writers whose tracebacks may still go on."""
        return [
            writer
            for writer in source.writers.values()
            if (writer.progress.is_open or writer is source.current) and record.line - writer.line <= _FRESH
        ]

    def _mixes(
        self, source: Source, record: Record, text: str, prefix: Prefix | None, kind: Kind, at: int
    ) -> bool:
        """Whether from this line on the lines of several tracebacks may be mixed."""
        if prefix is not None and not prefix.starts:
            return False  # each line says whose it is
        current = source.current
        if kind in ("other", "blank", "native") and not at:
            return False
        named = prefix.process.label or "main" if prefix else None
        others = [
            writer
            for writer in self._fresh(source, record)
            if writer.progress.is_open and writer.name != named
        ]
        if at:
            return current is not None and current in others
        if prefix is None and kind == "header":
            led = current is not None and (current.leads or current.progress.last in ("chain", "child"))
            # ``RuntimeError: Traceback …``: the message of an exception is a traceback
            led = led or (current in others and may_name(text.strip().removesuffix(HEADER) or "-"))
            return len(others) > 1 if led else bool(others)
        if prefix is None and kind != "child":
            return len(others) > 1
        return bool(others)

    def _held(
        self, source: Source, tangle: Tangle, record: Record, text: str, prefix: Prefix | None, kind: Kind
    ) -> Sequence[Line]:
        """Hold a line back; return all that were, if that is enough."""
        label = self._named(source, prefix, record)[0].name if prefix else ""
        current = source.current
        inside = glued(text, True) > 0
        tangle.take(record, text, prefix, label, kind, inside=inside)
        if current is None and label:
            source.current = source.writers.get(label)
        return self._ended(source) if tangle.is_over else []

    def _ended(self, source: Source) -> list[Line]:
        """The lines of a source that were held back."""
        _, tangle = self._tangles.pop(source.key, (source, None))
        return self._untangled(source, tangle) if tangle is not None else []

    def _untangled(self, source: Source, tangle: Tangle) -> list[Line]:
        """The lines that were held back, with their owners."""
        records, held = tangle.records, tangle.held
        first = records[0]
        known = sorted(self._fresh(source, first), key=lambda writer: writer.began)
        progress = {writer.name: writer.progress for writer in known}
        current = source.current.name if source.current else ""
        owned, states, last = untangle(held, progress, current, source.vocabulary)
        lines = []
        for each in owned:
            record = records[each.line]
            writer = source.writers.get(each.name)
            if writer is None and each.prefix is not None:
                writer = self._named(source, each.prefix, record)[0]
            if writer is None:
                writer = source.writer(each.name, _unnamed(each.name, record))
            writer.text, writer.line = each.text, record.line
            lines.append(self._make(record, each.text, writer, each.basis, each.prefix))
        for name, state in states.items():
            if name in source.writers:
                source.writers[name].progress = state
        if last in source.writers:
            source.turn_to(source.writers[last])
        return lines

    # --- lines that can be told at once ---------------------------------------------------------

    def _line(self, source: Source, record: Record, text: str, prefix: Prefix | None, kind: Kind) -> Line:
        if prefix is None:
            return self._bare(source, record, text, kind)
        writer, basis = self._named(source, prefix, record)
        writer.torch = prefix.engine == "torch"
        self._note(source, writer, record, prefix.rest, kind, starts=prefix.starts)
        return self._make(record, prefix.rest, writer, basis, prefix)

    def _named(self, source: Source, prefix: Prefix, record: Record) -> tuple[Writer, Basis]:
        """The writer that a prefix names."""
        if prefix.engine not in self.engines and prefix.engine != "torch":
            self.engines.append(prefix.engine)
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

    def _bare(self, source: Source, record: Record, text: str, kind: Kind) -> Line:
        """A line without a prefix."""
        if source.is_one_process:
            writer = source.owner or source.current
            if writer is None:
                writer = source.writer("", Process("unknown", "", pid=record.pid, host=record.host))
            basis: Basis = "pid"
        else:
            writer, basis = self._choose(source, record, text, kind)
        self._note(source, writer, record, text, kind)
        return self._make(record, text, writer, basis, None)

    def _choose(self, source: Source, record: Record, text: str, kind: Kind) -> tuple[Writer, Basis]:
        """Whose line without a prefix is it, where at most one traceback is open?"""
        current = source.current
        unknown = Process("unknown", "", pid=record.pid, host=record.host)
        if kind == "native":
            if current is not None and current.torch and not current.progress.is_open:
                return current, "continuation"  # torch's watchdog throws what it has just logged
            return source.writer("?native", unknown), "guess"
        if kind == "child":
            process = attrs.evolve(unknown, role="worker", label=child_name(text))
            return source.writer(f"?{process.label}", process), "continuation"
        if kind in ("blank", "other") and current is not None:
            return current, "continuation"
        quoted = current is not None and current.progress.is_open and may_name(text.strip().removesuffix(HEADER) or "-")
        if kind == "header" and current is not None and (current.leads or quoted):
            return current, "continuation"
        fitting = [writer for writer in source.writers.values() if kind in FOLLOWS.get(writer.progress.last, ())]
        if current in fitting and current is not None:
            return current, "continuation"
        if fitting:
            return fitting[-1], "only-candidate" if len(fitting) == 1 else "guess"
        if kind in ("source", "caret", "margin") and current is not None:
            return current, "continuation"
        if kind == "header" or (current is None and (kind in ("frame", "exception") or leads(text))):
            process = Process("launcher", "main", pid=record.pid, host=record.host)
            return source.writer("?main", process), "guess"
        if current is not None and current.process.label in ("", "main"):
            return current, "continuation"
        return source.writer("?", unknown), "guess"

    def _note(
        self, source: Source, writer: Writer, record: Record, text: str, kind: Kind, *, starts: bool = False
    ) -> None:
        """Remember how far *writer* has come."""
        source.turn_to(writer)
        writer.leads = leads(text) if kind == "other" else kind == "exception" and text.rstrip().endswith(":")
        if kind == "blank" or (kind == "other" and not starts and not source.is_one_process):
            return  # says nothing of how far a traceback has come
        state = writer.progress
        writer.text, writer.line = text, record.line
        if kind == "other":
            writer.progress = Progress() if starts else state
            return
        if kind == "header":
            writer.began = record.line
        if not source.is_one_process:
            if kind in ("frame", "source", "caret", "exception") and state.is_open:
                source.vocabulary.learn(state.place, text, kind)
            if kind in ("frame", "source", "caret"):
                source.vocabulary.remember(text)
        writer.progress = state.after(text, kind)

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


def _unnamed(name: str, record: Record) -> Process:
    """The process of a writer that no prefix names."""
    unknown = Process("unknown", "", pid=record.pid, host=record.host)
    if name == "?main":
        return attrs.evolve(unknown, role="launcher", label="main")
    if name.startswith(("?main", "?native")) or name == "?":
        return unknown
    return attrs.evolve(unknown, role="worker", label=name[1:])


def _witness(record: Record) -> Process | None:
    """A sender that is no process of the server."""
    if record.ident == "kernel" or record.transport == "kernel":
        return _WITNESSES["kernel"]
    if record.ident and (record.ident.startswith("systemd") or record.ident == "init.scope"):
        return _WITNESSES["systemd"]
    if record.ident and record.ident.startswith("("):
        return _WITNESSES["systemd"]  # systemd's child before it became the service, ``(python3)``
    return None
