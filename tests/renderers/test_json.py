"""The JSON document: held against the published schema, and value by value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import pytest

from logtriage._version import VERSION
from logtriage.model import (
    ExceptionLink,
    FatalError,
    Frame,
    Gap,
    Occurrence,
    Process,
    Rank,
    Redaction,
    Report,
    Span,
    Traceback,
    Unread,
    UnreadLine,
    Verdict,
)
from logtriage.renderers import RENDERERS, render
from logtriage.renderers.json import MAX_FRAMES, dumps, report_to_dict
from logtriage.schema.report import report_schema
from tests.renderers import reports

VALIDATOR = jsonschema.Draft202012Validator(report_schema())

GAPS = (Gap("null-message", Span(10, 12), "MESSAGE was left out; use --all.", 2),)
NO_EVENT = reports.recognised(verdict=Verdict(None, "earliest-evidence", "nothing could be read"))
FATAL = FatalError(
    process=reports.TP3, span=Span(1, 2), message="Fatal Python error: Aborted", reason="Aborted"
)
OCCURRENCES = (Occurrence(Span(1, 9), "TP3", "12:00:07", 4), Occurrence(Span(11, 19)))
UNREAD = Unread(
    3, 1, (UnreadLine(Span(4, 4), "TP3", piece=True, text="  ^^^"), UnreadLine(Span(5, 6), "", piece=False, text="x"))
)
REPORTS = {
    "healthy": reports.report(gaps=GAPS),
    "recognised": reports.report(reports.recognised()),
    "unrecognised": reports.report(reports.unrecognised()),
    "several": reports.report(reports.unrecognised(), reports.recognised(final=False), gaps=GAPS),
    "no-event": reports.report(NO_EVENT),
    "fatal-error": reports.report(reports.diagnosis(FATAL)),
    "loop": reports.report(reports.recognised(occurrences=OCCURRENCES, unread=UNREAD)),
}


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_documents_fit_the_published_schema(report: Report) -> None:
    VALIDATOR.validate(json.loads(render(report, "json")))


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_each_line_of_json_lines_fits_the_schema_of_a_diagnosis(report: Report) -> None:
    lines = render(report, "jsonl").splitlines()
    assert len(lines) == len(report.diagnoses)
    schema = {**report_schema()["$defs"]["diagnosis"], "$defs": report_schema()["$defs"]}
    for line in lines:
        jsonschema.Draft202012Validator(schema).validate(json.loads(line))


def test_the_schema_is_valid_and_closed() -> None:
    schema = report_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    opened = [place for place, each in _objects(schema) if each.get("additionalProperties") is not False]
    # What a server prints as its arguments, and what a pattern captures, has names of its own.
    assert opened == ["$.$defs.invocation.properties.server_args", "$.$defs.match.properties.captures"]


def _objects(schema: Any, place: str = "$") -> list[tuple[str, dict[str, Any]]]:
    found = []
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            found.append((place, schema))
        for key, value in schema.items():
            found += _objects(value, f"{place}.{key}")
    elif isinstance(schema, list):
        for index, value in enumerate(schema):
            found += _objects(value, f"{place}[{index}]")
    return found


def first(report: Report) -> dict[str, Any]:
    document: Any = json.loads(render(report, "json"))
    diagnosis = document["diagnoses"][0]
    assert isinstance(diagnosis, dict)
    return diagnosis


def test_the_head_says_what_was_read_and_by_whom() -> None:
    document = report_to_dict(reports.report(reports.recognised(), gaps=GAPS))
    assert list(document) == [
        "schema_version", "logtriage_version", "database_version", "source", "headline", "diagnoses",
    ]  # fmt: skip
    assert document["logtriage_version"] == VERSION
    assert document["database_version"] == "2026.12.1"
    assert document["headline"] == 0
    assert document["source"] == {
        "name": "server.log",
        "formats": ["journal-short", "sglang"],
        "lines": 1234,
        "bytes": 98765,
        "gaps": [
            {"kind": "null-message", "span": [10, 12], "note": "MESSAGE was left out; use --all.", "count": 2}
        ],
    }


def test_nothing_crashed_is_an_empty_list_and_no_headline() -> None:
    document = report_to_dict(reports.report())
    assert (document["headline"], document["diagnoses"]) == (None, [])


def test_keys_of_a_diagnosis_keep_their_order() -> None:
    assert list(first(reports.report(reports.recognised()))) == [
        "fingerprint", "repeats", "final", "invocation", "phase", "root", "findings", "match", "confidence",
        "alternatives", "remediations", "next_steps", "occurrences", "unread", "redacted",
    ]  # fmt: skip


def test_each_crash_and_each_unread_line_is_told() -> None:
    shown = first(REPORTS["loop"])
    assert shown["occurrences"] == [
        {"span": [1, 9], "process": "TP3", "time": "12:00:07", "restarts": 4},
        {"span": [11, 19], "process": "", "time": None, "restarts": None},
    ]
    assert shown["unread"] == {
        "count": 3,
        "pieces": 1,
        "lines": [
            {"span": [4, 4], "process": "TP3", "piece": True, "text": "  ^^^"},
            {"span": [5, 6], "process": "", "piece": False, "text": "x"},
        ],
    }


def test_the_root_is_told_with_its_chain() -> None:
    root = first(reports.report(reports.recognised()))["root"]
    assert root["role"] == "initiating"
    assert root["reason"] == "it is the first exception of the incident"
    event = root["event"]
    assert (event["kind"], event["span"], event["time"]) == ("traceback", [120, 161], "2026-03-09T12:00:01")
    assert event["process"] == {
        "label": "TP3",
        "role": "scheduler",
        "rank": {"tp": 3},
        "pid": 4242,
        "host": None,
    }
    exception = event["exception"]
    assert list(exception) == ["type", "message", "frames", "chain", "complete"]
    assert (exception["type"], exception["complete"]) == ("AssertionError", True)
    assert [frame["lineno"] for frame in exception["frames"]] == [2311, 187, 81]
    assert exception["frames"][2] == {
        "filename": "/usr/lib/python3.12/contextlib.py",
        "lineno": 81,
        "function": "inner",
        "line": "return func(*args)",
        "in_app": False,
    }
    [link] = exception["chain"]
    assert (link["relation"], link["type"], link["message"]) == ("cause", "KeyError", "'flashinfer'")
    assert len(link["frames"]) == 1


def test_only_tracebacks_have_an_exception() -> None:
    diagnosis = first(reports.report(reports.unrecognised()))
    assert diagnosis["root"]["event"]["exception"] is None
    kinds = [(each["event"]["kind"], each["event"]["exception"] is None) for each in diagnosis["findings"]]
    assert kinds == [("traceback", False)] * 3 + [("lifecycle", True)]


def test_a_quoted_remote_exception_is_a_cause() -> None:
    chain = (
        ExceptionLink("A", "", (), "remote"),
        ExceptionLink("B", "", (), "context"),
        ExceptionLink("C", ""),
    )
    event = attrs.evolve(reports.ROOT, chain=chain)
    exception = first(reports.report(reports.diagnosis(event)))["root"]["event"]["exception"]
    assert [(link["type"], link["relation"]) for link in exception["chain"]] == [
        ("A", "cause"),
        ("B", "context"),
    ]


def test_only_said_axes_of_a_rank_are_shown() -> None:
    process = Process("scheduler", "DP1 TP0", Rank(dp=1, tp=0))
    event = attrs.evolve(reports.ROOT, process=process)
    shown = first(reports.report(reports.diagnosis(event)))["root"]["event"]["process"]
    assert shown["rank"] == {"dp": 1, "tp": 0}


def test_a_match_is_filled_with_what_was_captured() -> None:
    match = first(reports.report(reports.recognised()))["match"]
    assert match == {
        "signature": "sglang.attention.hybrid-gdn-on-blackwell",
        "revision": 2,
        "category": "config.attention-backend",
        "title": "Hybrid GDN model on Blackwell with an unsupported attention backend",
        "cause": "The backend flashinfer does not serve this model on this GPU.",
        "captures": {"got": "flashinfer"},
    }


def test_an_unknown_crash_has_no_match() -> None:
    diagnosis = first(reports.report(reports.unrecognised()))
    assert diagnosis["match"] is None
    assert diagnosis["remediations"] == []
    assert diagnosis["next_steps"] == ["Run it again with --log-level debug."]


def test_changes_name_the_old_and_the_new_value() -> None:
    remediation = first(reports.report(reports.recognised()))["remediations"][0]
    assert remediation["changes"] == [
        {"op": "set-flag", "name": "--attention-backend", "from": "flashinfer", "value": "triton"}
    ]
    assert remediation["patch"] is None
    assert remediation["steps"] == ["systemctl daemon-reload", "systemctl restart sglang-qwen.service"]


def test_a_patch_without_a_secret_stays_exact() -> None:
    diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-A=1\t\udce9\r\n+A=2\t\udce9\r\n"
    remediation = attrs.evolve(reports.REMEDIATION, patch=diff)
    shown = first(reports.report(reports.recognised(remediations=(remediation,))))["remediations"][0]
    assert (shown["patch"], shown["patch_redacted"]) == (diff, False)


def test_a_patch_with_a_secret_is_redacted_and_marked() -> None:
    remediation = attrs.evolve(reports.REMEDIATION, patch=" Environment=HF_TOKEN=abc\n-a\n+b\n")
    shown = first(reports.report(reports.recognised(remediations=(remediation,), redacted=())))
    assert shown["remediations"][0]["patch"] == " Environment=HF_TOKEN=[redacted:token]\n-a\n+b\n"
    assert shown["remediations"][0]["patch_redacted"] is True
    assert shown["redacted"] == [{"kind": "token", "count": 1}]


def test_secrets_found_before_and_here_are_counted_together() -> None:
    invocation = attrs.evolve(
        reports.INVOCATION,
        argv=("serve", "--api-key", "abc"),
        server_args={"hf_token": "def", "ratio": float("inf")},
    )
    incident = attrs.evolve(reports.recognised().incident, invocation=invocation)
    diagnosis = reports.recognised(
        incident=incident, redacted=(Redaction("api-key", 2), Redaction("password", 0))
    )
    shown = first(reports.report(diagnosis))
    assert shown["invocation"]["argv"] == ["serve", "--api-key", "[redacted:api-key]"]
    assert shown["invocation"]["server_args"] == {"hf_token": "[redacted:token]", "ratio": "inf"}
    assert shown["redacted"] == [{"kind": "api-key", "count": 3}, {"kind": "token", "count": 1}]


def test_arguments_of_any_type_become_plain_values() -> None:
    arguments = {
        "sizes": (1, 2),
        "extra": {"a": None, "b": [True]},
        "path": Path("/m"),
        "text": "x\x1b[0m" * 3,
    }
    invocation = attrs.evolve(reports.INVOCATION, server_args=arguments)
    incident = attrs.evolve(reports.recognised().incident, invocation=invocation)
    shown = first(reports.report(reports.recognised(incident=incident)))["invocation"]["server_args"]
    assert shown == {"sizes": [1, 2], "extra": {"a": None, "b": [True]}, "path": "/m", "text": "xxx"}


def test_long_messages_and_deep_stacks_are_cut_in_the_middle() -> None:
    frames = tuple(Frame("loop.py", number, "again") for number in range(1000))
    event = reports.raised("a" * 50_000 + "z", frames=frames)
    exception = first(reports.report(reports.diagnosis(event)))["root"]["event"]["exception"]
    assert len(exception["message"]) < 4100
    assert exception["message"].startswith("aaaa")
    assert exception["message"].endswith("aaaz")
    assert " characters left out] " in exception["message"]
    numbers = [frame["lineno"] for frame in exception["frames"]]
    assert numbers == [*range(MAX_FRAMES // 2), None, *range(1000 - MAX_FRAMES // 2, 1000)]
    assert exception["frames"][MAX_FRAMES // 2]["function"] == "[800 frames left out]"


def test_a_traceback_without_any_exception_shows_none() -> None:
    event = Traceback(process=reports.TP3, span=Span(1, 1), message="cut off", chain=(), complete=False)
    assert first(reports.report(reports.diagnosis(event)))["root"]["event"]["exception"] is None


def test_bytes_that_are_no_text_survive_as_escapes() -> None:
    text = dumps({"patch": "caf\udce9 \u6a21"})
    assert text == '{"patch": "caf\\udce9 \u6a21"}'
    assert json.loads(text.encode()) == {"patch": "caf\udce9 \u6a21"}


def test_an_unknown_format_is_refused_and_the_known_ones_named() -> None:
    with pytest.raises(ValueError, match="choose from text, json, jsonl, markdown"):
        render(reports.report(), "xml")
    assert list(RENDERERS) == ["text", "json", "jsonl", "markdown"]
