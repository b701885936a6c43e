"""Records in, the source each came through out, with the processes that were seen to write into it.

Law: whatever a log claims of pids and ranks, at most :data:`MAX_SOURCES` sources and :data:`MAX_WRITERS` writers
are remembered; the one that was silent longest is forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import attrs

from logtriage.demux.grammar import Progress
from logtriage.demux.vocabulary import Vocabulary
from logtriage.model import Process, Record

__all__ = ["MAX_SOURCES", "MAX_WRITERS", "Source", "Sources", "Writer"]

MAX_SOURCES: Final = 4_096
"""Pipes and pids remembered at a time."""

MAX_WRITERS: Final = 8_192
"""Writers remembered at a time, of all sources together."""

_MAX_OF_SOURCE: Final = 512
_MAX_LABELS: Final = 2


@attrs.define(eq=False)
class Writer:
    """One process as the text shows it, and how far its traceback has come.

    Attributes:
        key: Names its stream of lines.
        name: Its name in its source.
        process: The process.
        progress: How far its traceback has come.
        text: Its last line, of its traceback as long as that is open.
        line: The input line that was.
        began: The input line its traceback began on.
        leads: Its last line may lead to a traceback.
        torch: torch's own prefix stood on its last line that had one.
    """

    key: str
    name: str
    process: Process
    progress: Progress = attrs.field(factory=Progress)
    text: str = ""
    line: int = 0
    began: int = 0
    leads: bool = False
    torch: bool = False


class Source:
    """What arrives through one pipe or under one pid.

    Attributes:
        key: Names it.
        has_pid: The collector said which process writes.
        writers: Its writers by name, the one that was silent longest first.
        current: Who wrote the last line.
        line: The input line that was.
        vocabulary: The lines of tracebacks that it carried in whole.
    """

    def __init__(self, key: str, has_pid: bool) -> None:
        self.key = key
        self.has_pid = has_pid
        self.writers: OrderedDict[str, Writer] = OrderedDict()
        self.current: Writer | None = None
        self.line = 0
        self.vocabulary = Vocabulary()
        self._labels: dict[str, Writer] = {}
        self._worlds: set[int] = set()

    def writer(self, name: str, process: Process) -> Writer:
        """The writer called *name*; a new one has *process*."""
        writer = self.writers.get(name)
        if writer is None:
            writer = self.writers[name] = Writer(f"{self.key}#{name}", name, process)
            if len(self.writers) > _MAX_OF_SOURCE:
                self.writers.popitem(last=False)
        return writer

    def turn_to(self, writer: Writer) -> None:
        """Note that *writer* wrote the last line."""
        self.current = writer
        if writer.name in self.writers:
            self.writers.move_to_end(writer.name)

    def claim(self, writer: Writer, world: int | None) -> None:
        """Note that an engine's prefix named *writer*, or only its rank in the whole process group."""
        if world is not None:
            if len(self._worlds) < _MAX_LABELS:
                self._worlds.add(world)
        elif len(self._labels) < _MAX_LABELS and (self._labels or writer.name != "main"):
            # A child may speak as its parent does until it has set up its own log.
            self._labels.setdefault(writer.name, writer)

    @property
    def is_one_process(self) -> bool:
        """Whether the pid is that of the process that writes, not that of a container's runtime."""
        return self.has_pid and len(self._labels) < _MAX_LABELS and len(self._worlds) < _MAX_LABELS

    @property
    def owner(self) -> Writer | None:
        """The only process of the source, once its lines have named it."""
        return next(iter(self._labels.values()), None) if self.is_one_process else None


class Sources:
    """All sources of a log, the one that was silent longest first."""

    def __init__(self) -> None:
        self._sources: OrderedDict[str, Source] = OrderedDict()
        self._writers = 0

    def __len__(self) -> int:
        return len(self._sources)

    @property
    def writers(self) -> int:
        """Number of writers remembered."""
        return sum(len(source.writers) for source in self._sources.values())

    def of(self, record: Record) -> Source:
        """The source of a record."""
        key = f"{record.boot_id or ''}/{record.host or ''}/{record.ident or ''}/{record.pid or ''}"
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = Source(key, record.pid is not None)
            if len(self._sources) > MAX_SOURCES:
                self._forget()
        else:
            self._sources.move_to_end(key)
        return source

    def settle(self, source: Source, before: int) -> None:
        """Count the writers that *source* has got since it had *before*; forget old sources if there are too many."""
        self._writers += len(source.writers) - before
        while self._writers > MAX_WRITERS and len(self._sources) > 1:
            self._forget()

    def _forget(self) -> None:
        _, oldest = self._sources.popitem(last=False)
        self._writers -= len(oldest.writers)
