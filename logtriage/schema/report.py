"""The published schema of a report, as plain values; nothing on the path of an ordinary run reads it."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Final, cast

__all__ = ["REPORT_SCHEMA", "report_schema"]

REPORT_SCHEMA: Final = "report-v1.schema.json"


def report_schema() -> dict[str, Any]:
    """Read the JSON Schema (draft 2020-12) of what ``--format json`` prints.

    Returns:
        The schema; the schema of one line of ``--format jsonl`` is its ``$defs.diagnosis``.

    >>> report_schema()["$schema"]
    'https://json-schema.org/draft/2020-12/schema'
    """
    text = files("logtriage.schema").joinpath(REPORT_SCHEMA).read_text(encoding="utf-8")
    return cast("dict[str, Any]", json.loads(text))
