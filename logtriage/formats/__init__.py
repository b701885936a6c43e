"""Lines in, records out: the envelopes that collectors put around text are taken off, one inside the other.

A new format is one module with its samples and one line in :data:`FORMATS`.
"""

from __future__ import annotations

from typing import Final

from logtriage.formats.containers import COMPOSE, CRI, DOCKER_TIMES, KUBECTL
from logtriage.formats.envelope import Format, Peeled
from logtriage.formats.journal_export import JournalExport
from logtriage.formats.journal_short import JOURNAL_SHORT
from logtriage.formats.json_lines import DOCKER_JSON, JOURNAL_JSON, journal_fields
from logtriage.formats.launchers import RAY, TASKS
from logtriage.formats.loggers import DMESG, WRAPPED
from logtriage.formats.unwrap import Unwrapper

__all__ = ["FORMATS", "Format", "JournalExport", "Peeled", "Unwrapper", "journal_fields"]

# The order is that of precision: what a later pattern would take by accident stands before it.
FORMATS: Final[tuple[Format, ...]] = (
    JOURNAL_JSON,
    DOCKER_JSON,
    JOURNAL_SHORT,
    CRI,
    DOCKER_TIMES,
    KUBECTL,
    RAY,
    WRAPPED,
    DMESG,
    TASKS,
    COMPOSE,
)
