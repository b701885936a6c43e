"""Records in, lines with their process out: whose is a line that does not say it?

The law: a line's process depends on the records before it, never on the cut of the chunks.

Source of a line: in a journal the pid that journald stamped on it.  Where one pid carries several ranks
(a container runtime, a Ray actor), or there is no pid, the text has to tell.  The engine's own prefix stands
only on the first line of a message; the lines after it are the same writer's, unless the grammar of a
traceback says that an older, unfinished one goes on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

import attrs
import regex

from logtriage.demux.grammar import Kind, classify, frame_function
from logtriage.demux.prefix import Prefix, split_prefix
from logtriage.model import Basis, Line, Process, Record

__all__ = ["Demux"]

_MAX_SOURCES: Final = 10_000
_MAX_WRITERS: Final = 2_048
_MAX_TEXT: Final = 64 * 1024
_GLUED: Final = regex.compile(
    r"\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:\.\d+)?(?: [A-Z_]{2,7}\d+)*\] "
    r"(?:\w+ hit an exception: Traceback \(most recent call last\):$|Received sigquit |SIGQUIT received\.)"
)
# What may come next after a line of each kind, for the writer of a traceback that is still open.
_FOLLOWS: Final[dict[Kind, frozenset[Kind]]] = {
    "header": frozenset({"frame"}),
    "frame": frozenset({"source", "frame", "exception", "caret"}),
    "source": frozenset({"caret", "frame", "exception", "source"}),
    "caret": frozenset({"frame", "exception", "source"}),
    "exception": frozenset({"chain"}),
    "chain": frozenset({"header", "frame"}),
}
_WITNESSES: Final = {
    "kernel": Process("kernel", "kernel"),
    "systemd": Process("manager", "systemd"),
}


@attrs.define
class _Writer:
    """One process as the text shows it, and how far its traceback has come."""

    key: str
    process: Process
    last: Kind = "other"
    source: str = ""  # the source line under the last frame
    used: int = 0


@attrs.define
class _Source:
    """What arrives through one pipe or under one pid."""

    key: str
    has_pid: bool
    writers: dict[str, _Writer] = attrs.field(factory=dict)
    current: _Writer | None = None
    labels: set[str] = attrs.field(factory=set)
    count: int = 0


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
        self._sources: OrderedDict[str, _Source] = OrderedDict()
        self.engines: list[str] = []

    def feed(self, record: Record) -> Sequence[Line]:
        """Take a record; return its line, or two if another writer's line is glued to its end."""
        text = self._purify(record.text[:_MAX_TEXT])
        record = attrs.evolve(record, text="")
        glued = _GLUED.search(text)
        if glued and glued.start() and not regex.search(r"['\"]|obj=", text[: glued.start()][:2000]):
            at = glued.start()
            return [self._line(record, text[:at]), self._line(record, text[at:])]
        return [self._line(record, text)]

    def close(self) -> Sequence[Line]:
        """End the stream; nothing is held back."""
        return []

    def _line(self, record: Record, text: str) -> Line:
        witness = _witness(record)
        if witness is not None:
            key = f"{record.host}/{witness.label}/{record.pid or ''}"
            return Line(
                text,
                record.line,
                attrs.evolve(witness, pid=record.pid, host=record.host),
                "pid",
                record.time,
                True,
                stream=key,
                record=record,
            )
        source = self._source(record)
        source.count += 1
        prefix = None if record.continued and source.has_pid else split_prefix(text)
        if prefix is None:
            return self._bare(source, record, text)
        if prefix.engine not in self.engines and prefix.engine != "torch":
            self.engines.append(prefix.engine)
        writer = self._named(source, prefix, record)
        self._note(source, writer, prefix.rest, starts=prefix.starts)
        return self._make(record, prefix.rest, writer, "prefix", prefix)

    def _source(self, record: Record) -> _Source:
        key = f"{record.boot_id or ''}/{record.host or ''}/{record.ident or ''}/{record.pid or ''}"
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = _Source(key, record.pid is not None)
            if len(self._sources) > _MAX_SOURCES:
                self._sources.popitem(last=False)
        else:
            self._sources.move_to_end(key)
        return source

    def _named(self, source: _Source, prefix: Prefix, record: Record) -> _Writer:
        """The writer that a prefix names."""
        label = prefix.process.label or "main"
        if prefix.process.rank:
            source.labels.add(label)
        return self._writer(
            source,
            label,
            attrs.evolve(prefix.process, pid=prefix.process.pid or record.pid, host=record.host),
        )

    def _writer(self, source: _Source, label: str, process: Process) -> _Writer:
        writer = source.writers.get(label)
        if writer is None:
            if len(source.writers) >= _MAX_WRITERS:
                source.writers.pop(min(source.writers.values(), key=lambda w: w.used).process.label, None)
            writer = source.writers[label] = _Writer(f"{source.key}#{label}", process)
        return writer

    def _bare(self, source: _Source, record: Record, text: str) -> Line:
        """A line without a prefix."""
        kind = classify(text)
        own_pid = source.has_pid and len(source.labels) <= 1
        if own_pid:
            writer = source.current or self._writer(
                source, "", Process("unknown", "", pid=record.pid, host=record.host)
            )
            if source.current is not None and kind in ("native", "child", "header") and source.labels:
                writer = source.writers[next(iter(source.labels))]
            basis: Basis = "pid"
        else:
            writer, basis = self._choose(source, record, text, kind)
        self._note(source, writer, text, kind=kind)
        return self._make(record, text, writer, basis, None)

    def _choose(self, source: _Source, record: Record, text: str, kind: Kind) -> tuple[_Writer, Basis]:
        """Whose line without a prefix is it, where only the text can tell?"""
        current = source.current
        unknown = Process("unknown", "", pid=record.pid, host=record.host)
        if kind == "native":
            return self._writer(source, "?native", unknown), "guess"
        if kind == "child":
            name = text.strip().split()[1].rstrip(":") if text.startswith("Process ") else "thread"
            return self._writer(
                source, f"?{name}", Process("worker", name, pid=record.pid, host=record.host)
            ), "continuation"
        if kind in ("blank", "other") and current is not None:
            return current, "continuation"
        fitting = [w for w in source.writers.values() if kind in _FOLLOWS.get(w.last, ())]
        if (
            current is not None
            and current in fitting
            and (len(fitting) == 1 or not _breaks(current, text, kind))
        ):
            return current, "continuation"
        fitting = [w for w in fitting if w is not current] or fitting
        if fitting:
            best = max(fitting, key=lambda w: (_continues(w, text, kind), w.used))
            return best, "only-candidate" if len(fitting) == 1 else "guess"
        if kind in ("source", "caret") and current is not None:
            return current, "continuation"
        if kind == "header" or (kind == "exception" and current is None):
            return self._writer(
                source, "?main", Process("launcher", "main", pid=record.pid, host=record.host)
            ), "guess"
        if current is not None and current.process.label in ("", "main"):
            return current, "continuation"
        return self._writer(source, "?", unknown), "guess"

    def _note(
        self, source: _Source, writer: _Writer, text: str, *, kind: Kind | None = None, starts: bool = False
    ) -> None:
        """Remember how far *writer* has come."""
        kind = kind or classify(text)
        source.current = writer
        writer.used = source.count
        if kind == "source":
            writer.source = text
        if kind == "blank" or (kind == "other" and not starts):
            return  # says nothing of how far a traceback has come
        if starts and regex.search(r"exception:?\s*$", text):
            kind = "header"
        writer.last = kind

    def _make(self, record: Record, text: str, writer: _Writer, basis: Basis, prefix: Prefix | None) -> Line:
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


def _continues(writer: _Writer, text: str, kind: Kind) -> int:
    """How well *text* goes on from *writer*'s last line: the source line of a frame calls the next frame's function."""
    if kind != "frame" or writer.last not in ("source", "caret"):
        return 0
    function = frame_function(text)
    if function and f"{function}(" in writer.source:
        return 2
    # a constructor is called by the name of its class, a forward() by that of its module
    return (
        1
        if function in ("__init__", "__call__", "forward", "wrapper", "decorate_context", "<listcomp>")
        else 0
    )


def _breaks(writer: _Writer, text: str, kind: Kind) -> bool:
    """Whether *text*, though the grammar allows it, hardly goes on from the current writer's last line."""
    if writer.last == "frame" and kind == "frame":
        return True  # its source line is still due
    return (
        kind == "frame"
        and writer.last in ("source", "caret")
        and _continues(writer, text, kind) == 0
        and "(" in writer.source
    )
