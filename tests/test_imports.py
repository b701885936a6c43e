"""Imports point one way: stages know the model and the errors, never each other."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

PACKAGE: Final = Path(__file__).parent.parent / "logtriage"

# Room -> rooms it may import.  A room that is missing here fails the test, so a new one has to be given
# its place before it can be used.
MAY_IMPORT: Final[dict[str, set[str]]] = {
    "_version": set(),
    "errors": set(),
    "model": set(),
    "redaction": {"secret_names"},
    "secret_names": set(),
    # bytes to events
    "scan": set(),
    "formats": {"model"},
    "demux": {"model"},
    "events": {"model"},
    "weight": {"model"},
    "incidents": {"model", "weight"},
    "unread": {"model"},
    # judgement
    "consequences": {"model"},
    "faults": {"model"},
    "victims": {"consequences", "model"},
    "rootcause": {"consequences", "faults", "model", "scene", "victims"},
    "scene": {"consequences", "model"},
    # knowledge
    "launch": {"errors", "model"},
    "schema": {"errors", "model"},
    "database": {"errors", "model", "schema"},
    "texts": {"model"},
    "conditions": {"model"},
    "matching": {"conditions", "model", "texts"},
    "diagnosis": {"faults", "launch", "matching", "model"},
    "repeats": {"model", "unread"},
    "remediation": {"errors", "launch", "model"},
    # the rim
    "renderers": {"_version", "model", "redaction"},
    "sources": {"errors", "formats", "model"},
    "triage": {
        "consequences", "database", "demux", "diagnosis", "events", "formats", "incidents", "launch", "matching",
        "model", "redaction", "repeats", "rootcause", "scan", "sources", "unread", "weight",
    },
    "launch_files": {"errors", "model", "remediation"},
    "cli": {"_version", "database", "errors", "launch_files", "model", "renderers", "sources", "triage"},
    "__init__": {"_version", "database", "errors", "model", "remediation", "renderers", "triage"},
    "__main__": {"cli"},
}  # fmt: skip
MAY_DO_IO: Final = {"sources", "database", "cli", "launch_files", "schema", "launch"}
"""Rooms that open files; ``schema`` and ``launch`` read the data that lies in their own folders."""


def imported_rooms(source: str) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports hide which room is meant"
            names = [node.module or ""] if node.module != "logtriage" else [f"logtriage.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("logtriage.")}
    return rooms


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    room = path.relative_to(PACKAGE).with_suffix("").parts[0]
    assert imported_rooms(path.read_text()) - {room} <= MAY_IMPORT[room]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_rim_opens_files(path: Path) -> None:
    room = path.relative_to(PACKAGE).with_suffix("").parts[0]
    opening = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "mkstemp", "Popen", "system"}
    called = {
        node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute))
    }
    assert room in MAY_DO_IO or not called & opening


def test_every_room_has_its_place() -> None:
    rooms = {path.stem if path.is_file() else path.name for path in PACKAGE.iterdir()}
    assert rooms - {"__pycache__", "py"} - set(MAY_IMPORT) == set()
