"""What CPython prints is read as what the program that raised it says of itself."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from logtriage.events import EventReader
from logtriage.events.traceback import open_block
from logtriage.model import Event, Line, Traceback
from tests.events.feeding import events_of, lines_of

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "cpython"
RECORDED = sorted(str(path.relative_to(FIXTURES))[:-4] for path in FIXTURES.glob("3.*/*.txt"))


def recorder() -> Any:
    """The script that recorded the fixtures."""
    spec = importlib.util.spec_from_file_location("record", FIXTURES / "record.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RECORD = recorder()
PROGRAMS = [name for name in RECORD.PROGRAMS if sys.version_info >= (3, 11) or name not in RECORD.NEEDS_311]


def links_of(event: Event) -> list[dict[str, Any]]:
    """The chain in the words of the truth."""
    assert isinstance(event, Traceback)
    return [
        {
            "type": link.type,
            "message": link.message,
            "frames": [[frame.function, frame.lineno] for frame in link.frames],
            "relation": link.relation,
        }
        for link in event.chain
    ]


def check(events: Sequence[Event], truth: str) -> None:
    """Hold *events* against what the program said."""
    told = [json.loads(line) for line in truth.splitlines()]
    for said in told:
        for link in said["chain"]:
            if link["message"] is None:  # str() fails: the printers of different releases say so differently
                link["message"] = "<exception str() failed>"
            link["message"] = link["message"].rstrip()
    for event, said in zip(events, told, strict=False):
        found = links_of(event)
        for link in found:
            if link["message"].startswith("<unprintable "):
                link["message"] = "<exception str() failed>"
        assert found == said["chain"]
        assert isinstance(event, Traceback)
        assert event.header.startswith(said["header"])
        assert bool(event.header) == bool(said["header"])
        assert event.ignored == said["ignored"]
    assert len(events) == len(told)


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_traceback_is_read_as_its_program_tells_it(name: str) -> None:
    text = (FIXTURES / f"{name}.txt").read_text(encoding="utf-8")
    check(events_of(open_block, plain(text)), (FIXTURES / f"{name}.jsonl").read_text(encoding="utf-8"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_this_interpreter_prints_what_is_read(program: str) -> None:
    printed, truth = RECORD.run_program(sys.executable, program)
    check(events_of(open_block, plain(printed)), truth)


def plain(text: str) -> list[Line]:
    """The lines as they reach the parser; a log's prefix is taken off by the stage before."""
    lines = lines_of(text)
    prefix = "[2026-12-01 10:00:00 TP0] "
    return [
        Line(line.text.removeprefix(prefix), line.line, line.process, prefixed=line.text.startswith(prefix))
        for line in lines
    ]


def read(lines: Iterable[Line]) -> list[Event]:
    """The events of all parsers."""
    reader = EventReader()
    return [*(event for line in lines for event in reader.feed(line)), *reader.close()]
