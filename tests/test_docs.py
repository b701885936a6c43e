"""What the documentation shows, runs; what it lists is what there is."""

from __future__ import annotations

import configparser
import gzip
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import logtriage
from logtriage.remediation.targets import TARGETS
from logtriage.renderers import RENDERERS
from logtriage.schema.signature import content_defects, parse_content
from tests.pages import PAGES, TREE, anchor, code_words, fences, keys, rows, sections
from tests.test_imports import MAY_DO_IO, MAY_IMPORT

REPORT: Final = TREE / "docs" / "report.md"
ARCHITECTURE: Final = TREE / "docs" / "architecture.md"
FOUNDING: Final = TREE / "fixtures" / "founding"
SIGNATURE: Final = "sglang.attention.hybrid-gdn-on-blackwell"
SCHEMA: Final[dict[str, Any]] = json.loads((TREE / "logtriage" / "schema" / "report-v1.schema.json").read_text())


def named(value: object) -> str:
    return str(value.relative_to(TREE)) if isinstance(value, Path) else str(value)[:70]


# --- commands -------------------------------------------------------------------------------------


def commands() -> Iterator[tuple[Path, str]]:
    """Every command of ours on any page; placeholders and synopses are none."""
    for page in PAGES:
        shown = [line for language in ("sh", "") for block in fences(page, language) for line in block.splitlines()]
        for text in [*shown, *code_words(page)]:
            command = re.sub(r"\s+#.*", "", text)
            placeholder = re.search(r"<\w+>|\[FILE|\[DIR|wrong-backend|logtriage$", command)
            if re.search(r"\bpython3? -m logtriage\b", command) and (
                not placeholder or command.endswith("| python -m logtriage")
            ):
                yield page, command


COMMANDS: Final = sorted({command for _, command in commands()})


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder that holds what the commands on the pages speak of."""
    journal = (FOUNDING / "journal.short.txt").read_bytes()
    for name in ("journal.txt", "crash.log"):
        (tmp_path / name).write_bytes(journal)
    (tmp_path / "server.log.gz").write_bytes(gzip.compress(journal))
    (tmp_path / ".run").symlink_to(TREE)
    (tmp_path / "fixtures").symlink_to(TREE / "fixtures")
    overlay = tmp_path / "DIR" / "sglang" / "args" / "no-such-thing"
    overlay.mkdir(parents=True)
    (overlay / "signature.toml").write_text(fences(TREE / "CONTRIBUTING.md", "toml")[0])
    (overlay / "match.plain.log").write_text("ValueError: there is no such thing as --thing\n")
    (overlay / "near.other.log").write_text("ValueError: there is such a thing\n")
    units = tmp_path / "etc" / "systemd" / "system"
    units.mkdir(parents=True)
    shutil.copy(FOUNDING / "sglang-qwen35.service", units)
    tools = tmp_path / "bin"
    tools.mkdir()
    form = "case $* in *export*) form=export;; *) form=json;; esac"
    for name, body in (
        ("python", f'exec "{sys.executable}" "$@"'),
        ("python3", f'exec "{sys.executable}" "$@"'),
        ("journalctl", f"{form}; cat fixtures/founding/journal.$form"),
    ):
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    return tmp_path


def run(command: str, desk: Path) -> subprocess.CompletedProcess[str]:
    # What pip would install is linked: the test has no network.
    command = re.sub(r"^python3 -m pip install [^&]*&& ", "", command)
    command = command.replace("/etc/systemd", f"{desk}/etc/systemd")
    environment = {**os.environ, "PATH": f"{desk}/bin:{os.environ['PATH']}", "PYTHONPATH": str(TREE)}
    return subprocess.run(
        ["bash", "-c", command], cwd=desk, env=environment, capture_output=True, text=True, check=False
    )


def test_the_pages_show_commands() -> None:
    assert len(COMMANDS) >= 8
    assert any("journalctl" in command for command in COMMANDS)
    assert any("pip install" in command for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=named)
def test_a_command_on_a_page_does_what_it_says(command: str, desk: Path) -> None:
    done = run(command, desk)
    assert "Traceback" not in done.stderr
    if " signatures " in command:
        assert (done.returncode, done.stderr) == (0, "")
        assert "0 defects" in done.stdout or SIGNATURE in done.stdout
    elif "git apply" in command:
        assert done.returncode == 0, done.stderr
        unit = (desk / "etc/systemd/system/sglang-qwen35.service").read_text()
        assert "--attention-backend triton" in unit
    else:
        assert done.returncode == 1, done.stderr
        assert SIGNATURE in done.stdout + done.stderr or "Hybrid GDN" in done.stdout + done.stderr
    if "--patch" in command and "git apply" not in command:
        assert done.stdout.startswith("--- a/")


PYTHON: Final = [(page, block) for page in PAGES for block in fences(page, "python")]


@pytest.mark.parametrize(("page", "block"), PYTHON, ids=named)
def test_a_python_block_on_a_page_runs(page: Path, block: str, desk: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=desk, env={**os.environ, "PYTHONPATH": str(TREE)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), page
    assert "Hybrid GDN" in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_names_of_the_library_on_a_page_exist(page: Path) -> None:
    spoken = {name for word in code_words(page) for name in re.findall(r"^logtriage((?:\.[A-Za-z]\w*)+)", word)}
    for name in spoken:
        found: object = logtriage
        for part in name.split(".")[1:]:
            assert hasattr(found, part), f"logtriage{name}"
            found = getattr(found, part)


# --- command line ---------------------------------------------------------------------------------


def helped() -> str:
    return subprocess.run(
        [sys.executable, "-m", "logtriage", "--help"], capture_output=True, text=True, check=True, cwd=TREE
    ).stdout


def test_the_options_of_the_page_are_those_of_the_help() -> None:
    options = re.findall(r"^  (?:-h, )?(--[\w-]+)", helped(), re.M)
    assert sorted(keys(sections(REPORT)["Command line"])) == sorted(options)


def test_the_formats_and_kinds_of_file_of_the_page_are_those_there_are() -> None:
    told = {row[0]: row[1] for row in rows(sections(REPORT)["Command line"])}
    assert re.findall(r"`(\w+)`(?: \(default\))?:", told["`--format`"]) == list(RENDERERS)
    kinds = {target.kind for target in TARGETS} | {"systemd-drop-in"}
    assert set(re.findall(r"`([a-z-]+)`", told["`--target`"].partition("tell:")[2])) == kinds


def test_the_exit_statuses_are_the_same_on_all_pages_and_in_the_help() -> None:
    pages = [
        {row[0]: row[1] for row in rows(page.read_text()) if row[0][:1].isdigit()}
        for page in (TREE / "README.md", REPORT)
    ]
    helped_rows = re.findall(r"^  ([\d, ]+?)  (.+)$", helped().partition("exit status:")[2], re.M)
    assert list(pages[0]) == list(pages[1]) == [status for status, _ in helped_rows]
    for status, meaning in helped_rows:
        assert pages[0][status].startswith(meaning.partition(";")[0])
        assert pages[1][status].startswith(meaning.partition(";")[0].partition(" (")[0])


@pytest.mark.parametrize(
    ("log", "status"),
    [("INFO: fine\n", 0), ("ValueError: nobody knows of this\n", 3), ("", 0), (None, 2)],
)
def test_the_exit_statuses_are_what_the_page_says(log: str | None, status: int, desk: Path) -> None:
    if log is not None:
        (desk / "some.log").write_text(log)
    assert run("python -m logtriage some.log", desk).returncode == status


# --- the report -----------------------------------------------------------------------------------

DEFINITIONS: Final[dict[str, Any]] = SCHEMA["$defs"]
DIAGNOSIS: Final[dict[str, Any]] = DEFINITIONS["diagnosis"]["properties"]
OBJECTS: Final[dict[str, Any]] = {
    "report": SCHEMA,
    **{name: each for name, each in DEFINITIONS.items() if each["type"] == "object"},
    "root": DIAGNOSIS["root"]["anyOf"][0],
    "alternative": DIAGNOSIS["alternatives"]["items"],
    "redaction": DIAGNOSIS["redacted"]["items"],
    "rank": DEFINITIONS["process"]["properties"]["rank"],
    "link": DEFINITIONS["exception"]["properties"]["chain"]["items"],
}


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema and every schema in it."""
    if isinstance(schema, dict):
        yield schema
    values = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for value in values:
        yield from parts(value)


@pytest.mark.parametrize("name", OBJECTS)
def test_the_page_lists_the_keys_of_the_schema_in_its_order(name: str) -> None:
    assert keys(sections(REPORT)[name]) == list(OBJECTS[name]["properties"])


def test_no_object_of_the_schema_is_missing_on_the_page() -> None:
    described = [id(each) for each in OBJECTS.values()]
    assert all(
        id(each) in described for each in parts(SCHEMA) if isinstance(each.get("properties"), dict) and "type" in each
    )


@pytest.mark.parametrize(
    ("heading", "places"),
    [
        ("Roles", [OBJECTS["root"]["properties"]["role"], DEFINITIONS["finding"]["properties"]["role"]]),
        ("Applicability", [DEFINITIONS["remediation"]["properties"]["applicability"]]),
        ("Confidence", [DIAGNOSIS["confidence"]]),
        ("Gaps", [DEFINITIONS["gap"]["properties"]["kind"]]),
    ],
    ids=named,
)
def test_words_with_a_fixed_meaning_are_those_of_the_schema(heading: str, places: list[dict[str, Any]]) -> None:
    assert set(keys(sections(REPORT)[heading])) == {value for place in places for value in place["enum"]}


def test_every_value_that_the_schema_allows_stands_on_the_page() -> None:
    spoken = set(code_words(REPORT))
    assert {value for each in parts(SCHEMA) for value in each.get("enum", ())} <= spoken


def test_applicability_means_the_same_to_authors_and_to_users() -> None:
    pages = [sections(REPORT)["Applicability"], sections(TREE / "docs" / "signatures.md")["Remediations"]]
    users, authors = ({row[0]: row[1] for row in rows(text) if len(row) == 2} for text in pages)
    assert users
    for word, meaning in users.items():
        assert meaning.startswith(authors[word])


# --- signatures -----------------------------------------------------------------------------------

EXAMPLES: Final = [(page, block) for page in PAGES for block in fences(page, "toml")]


@pytest.mark.parametrize(("page", "block"), EXAMPLES, ids=named)
def test_an_example_of_a_signature_is_valid(page: Path, block: str) -> None:
    content, unreadable = parse_content(block.encode())
    assert (list(unreadable), list(content_defects(content))) == ([], []), page


def test_the_smallest_signature_does_what_its_page_promises(desk: Path) -> None:
    done = run(
        "python -m logtriage --signatures DIR DIR/sglang/args/no-such-thing/match.plain.log --format json",
        desk,
    )
    assert done.returncode == 1
    (found,) = json.loads(done.stdout)["diagnoses"]
    assert found["match"]["signature"] == "sglang.args.no-such-thing"
    assert run("python -m logtriage signatures check DIR", desk).stdout == "1 signatures, 0 defects\n"


# --- the house ------------------------------------------------------------------------------------


def test_every_room_stands_on_the_page() -> None:
    text = sections(ARCHITECTURE)["The rooms"]
    spoken = {Path(word).stem for word in re.findall(r"`([\w/]+(?:\.py)?)`", text)}
    assert set(MAY_IMPORT) - {"__init__", "__main__", "_version"} <= spoken


def test_the_rooms_that_open_files_are_those_of_the_test() -> None:
    line = next(line for line in sections(ARCHITECTURE)["Who may import whom"].splitlines() if "open files" in line)
    assert set(re.findall(r"`(\w+)`", line)) - {"MAY_DO_IO"} == MAY_DO_IO


def test_the_values_of_the_page_are_those_of_the_model() -> None:
    spoken = set(re.findall(r"`([A-Z]\w+)`", sections(ARCHITECTURE)["Values"]))
    assert spoken - {"None"} <= set(logtriage.model.__all__)
    events = {name for name in logtriage.model.__all__ if issubclass_of_event(name)}
    assert events <= spoken


def issubclass_of_event(name: str) -> bool:
    value = getattr(logtriage.model, name)
    return isinstance(value, type) and issubclass(value, logtriage.model.Event)


UNITS: Final = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20}
BOUNDS: Final = {
    "one input line": ["scan.pure:MAX_LINE"],
    "lines held by the scanner": ["scan.anchors:BEFORE"],
    "parts of one message, joined": ["formats.unwrap:_MAX_JOINED"],
    "one field of an exported journal": ["formats.journal_export:_MAX_VALUE"],
    "text of a line after its envelope": ["demux.assign:_MAX_TEXT"],
    "lines, text held back while tracebacks of a stream are mixed": [
        f"demux.tangle:{name}" for name in ("MAX_LINES", "MAX_TEXT")
    ],
    "torn lines of such a stream that wait for their rest": ["demux.mending:MAX_CUTS"],
    "lines and steps of tracebacks that a stream remembers": [
        f"demux.vocabulary:{name}" for name in ("MAX_LINES", "MAX_STEPS")
    ],
    "pipes and pids that are told apart, writers of all of them": [
        f"demux.writers:{name}" for name in ("MAX_SOURCES", "MAX_WRITERS")
    ],
    "open blocks of events": ["events:_MAX_OPEN"],
    "frames and links of a traceback, length of a message": [
        f"events.exception_chain:{name}" for name in ("_MAX_FRAMES", "_MAX_LINKS", "MAX_MESSAGE")
    ],
    "open services, pids": ["incidents:_MAX_SERVICES", "incidents:_MAX_PIDS"],
    "events of one invocation": ["incidents:MAX_EVENTS"],
    "senders of lines that belong to no event, such lines of each": [
        f"unread:{name}" for name in ("MAX_PLACES", "MAX_PIECES", "MAX_OTHERS")
    ],
    "crashes told one by one of one fault": ["repeats:MAX_OCCURRENCES"],
}  # fmt: skip


def test_the_bounds_of_the_page_are_those_of_the_code() -> None:
    told = {row[0]: row[1] for row in rows(sections(ARCHITECTURE)["How memory stays bounded"])}
    assert set(told) == {*BOUNDS, "different faults"}
    assert told["different faults"].startswith(f"{logtriage.Limits().diagnoses:,} ")
    for what, places in BOUNDS.items():
        numbers = re.findall(r"(\d[\d,]*)(?: ([KM]iB))?", told[what])
        limits = [place.split(":") for place in places]
        assert [int(number.replace(",", "")) * UNITS[unit] for number, unit in numbers] == [
            getattr(importlib.import_module(f"logtriage.{module}"), name) for module, name in limits
        ], what


# --- places ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_place_that_a_page_names_exists(page: Path) -> None:
    top = "|".join(("logtriage", "tests", "docs", "fixtures", "benchmarks", "signatures"))
    spoken = {word for word in code_words(page) if re.fullmatch(rf"(?:{top})/[\w./-]*|[A-Z]+\.md|setup\.\w+", word)}
    example = "signatures/sglang/attention/wrong-backend/"
    assert {place for place in spoken if not (TREE / place).exists() and place != example} == set()


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_to_a_heading(page: Path) -> None:
    links = re.findall(r"\]\(#([^)]+)\)", page.read_text())
    assert {link for link in links if link not in map(anchor, sections(page))} == set()


def test_the_dependencies_of_the_page_are_those_that_are_installed() -> None:
    setup = configparser.ConfigParser()
    setup.read(TREE / "setup.cfg")
    wanted = re.findall(r"^([\w-]+)", setup["options"]["install_requires"], re.M)
    assert sorted(keys(sections(TREE / "README.md")["Install"])) == sorted(wanted)


def test_the_packages_that_the_extra_needs_are_those_that_the_tests_install() -> None:
    text = sections(TREE / "README.md")["Install"].partition("Debian packages")[2].partition(". Without")[0]
    prepared = (TREE / "tests" / "run").read_text()
    needed = re.findall(r"`([a-z0-9-]+)`", text)
    assert needed
    assert all(re.search(rf"[( ]{name}[ )]", prepared) for name in needed)


def test_the_answer_on_the_front_page_is_the_answer() -> None:
    shown = next(block for block in fences(TREE / "README.md", "") if block.startswith("Service"))
    report = logtriage.triage(FOUNDING / "journal.short.txt")
    said = logtriage.render(report)
    told = [(line[:12].strip(), " ".join(line[12:].removesuffix(", ...").split())) for line in shown.splitlines()]
    assert len(told) >= 6
    assert [label for label, _ in told if not re.search(rf"^{label}", said, re.M)] == []
    assert [text for _, text in told if text not in " ".join(said.split())] == []
