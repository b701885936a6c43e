"""Tracebacks as people paste them: a damage is done to what CPython printed, the truth stays the program's.

What a damage takes away for good is said beside it; class, message and the frames that are left must be found.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logtriage.events import EventReader
from logtriage.events.traceback import open_block
from logtriage.model import Event, Traceback
from tests.events.cpython_runs import FIXTURES
from tests.events.feeding import events_of, lines_of

BAR = "Capturing batches (bs=1 avail_mem=2.00 GB):   0%|          | 0/3 [00:00<?, ?it/s]"
PROGRAMS = [
    *("plain", "chain_uncaught", "chains", "carets", "recursion", "message_uncaught", "threads", "groups", "notes"),
    *("no_source", "syntax"),
]
Links = list[dict[str, Any]]


def samples(version: str, program: str) -> list[tuple[str, Links]]:
    """Each traceback of a recording, with what its program says of it."""
    text = (FIXTURES / version / f"{program}.txt").read_text(encoding="utf-8")
    told = [json.loads(line) for line in (FIXTURES / version / f"{program}.jsonl").read_text("utf-8").splitlines()]
    lines = text.split("\n")
    found = events_of(open_block, text)
    assert len(found) == len(told)
    return [
        ("\n".join(lines[event.span.first - 1 : event.span.last]).rstrip("\n"), said["chain"])
        for event, said in zip(found, told, strict=True)
    ]


def read(text: str) -> list[Event]:
    """The events of all parsers."""
    reader = EventReader()
    return [*(event for line in lines_of(text) for event in reader.feed(line)), *reader.close()]


SAMPLES = [
    sample
    for version in ("3.8", "3.11", "3.13")
    for program in PROGRAMS
    if (FIXTURES / version / f"{program}.txt").exists()
    for sample in samples(version, program)
]


def each(text: str, change: Callable[[str], str]) -> str:
    """Every line changed."""
    return "\n".join(map(change, text.split("\n")))


def wrapped(width: int) -> Callable[[str], str]:
    return lambda text: each(
        text, lambda line: "\n".join(line[at : at + width] for at in range(0, max(len(line), 1), width))
    )


KEEPS_ALL: dict[str, Callable[[str], str]] = {
    "the indentation is lost": lambda text: each(text, str.lstrip),
    "every line has a blank one below": lambda text: text.replace("\n", "\n\n"),
    "lines are padded": lambda text: each(text, lambda line: line.ljust(120)),
    "lines end in CR LF": lambda text: text.replace("\n", "\r\n"),
    "wrapped at 80": wrapped(80),
    "wrapped at 120": wrapped(120),
    "quoted": lambda text: each(text, lambda line: f"> {line}"),
    "quoted twice": lambda text: each(text, lambda line: f">> {line}"),
    "indented": lambda text: each(text, lambda line: f"    {line}"),
    "a list's item": lambda text: "- " + text.replace("\n", "\n  "),
    "HTML": html.escape,
    "older HTML": lambda text: html.escape(text).replace("&#x27;", "&#39;"),
    "quoted HTML": lambda text: each(text, lambda line: f"&gt; {html.escape(line)}"),
    "escaped underscores": lambda text: text.replace("_", r"\_"),
    "curly quotes": lambda text: re.sub(r'"([^"\n]*)"', "“\\1”", text),
    "a string of JSON": lambda text: json.dumps({"level": "error", "msg": text, "pid": 3}),
    "JSON in JSON": lambda text: json.dumps({"log": json.dumps({"msg": text}) + "\n", "stream": "stderr"}),
    "JSON in JSON in JSON": lambda text: json.dumps({"line": json.dumps({"log": json.dumps({"msg": text})})}),
    "JSON without Unicode": lambda text: json.dumps({"message": text}, ensure_ascii=False),
    "repr": lambda text: repr({"level": "error", "exc_info": text}),
    "logfmt": lambda text: f"time=10:00:00,400 level=error msg={json.dumps(text)} pid=3",
    "rsyslog": lambda text: text.replace("\n", "#012"),
    "behind a progress bar": lambda text: BAR + text,
    "behind a progress bar and a return": lambda text: f"{BAR}\r{text}",
}
# The header of an exception that was never raised is its own line, which is found only where a line begins.
NEEDS_ITS_LINE = ("quoted", "quoted twice", "indented", "a list's item", "quoted HTML", "rsyslog", "behind")


def words(text: str | None) -> str:
    """A message without its blanks, which wraps and doubled lines change."""
    return "".join((text or "").split())


def functions(links: Links) -> list[list[list[Any]]]:
    return [[list(frame) for frame in link["frames"]] for link in links]


def only(events: list[Event]) -> Traceback:
    [event] = [event for event in events if event.kind != "lifecycle"]  # a progress bar tells a step
    assert isinstance(event, Traceback)
    return event


def links_of(event: Traceback) -> Links:
    return [
        {"type": link.type, "message": link.message, "frames": [[f.function, f.lineno] for f in link.frames]}
        for link in event.chain
    ]


@pytest.mark.parametrize("damage", KEEPS_ALL)
def test_a_damage_that_takes_nothing_away_changes_nothing(damage: str) -> None:
    for text, chain in SAMPLES:
        found, told = links_of(only(read(KEEPS_ALL[damage](text)))), chain
        if not text.startswith(("Traceback", "Exception in", "  + ")) and damage.startswith(NEEDS_ITS_LINE):
            found, told = found[-1:], told[-1:]
        assert [link["type"] for link in found] == [link["type"] for link in told], text
        assert [words(link["message"]) for link in found] == [words(link["message"]) for link in told], text
        assert functions(found) == functions(told), text


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_cut_head_leaves_the_rest(lost: int) -> None:
    held = 0
    for text, chain in SAMPLES:
        lines = text.split("\n")
        if len(chain) > 1 or lost >= len(lines) - 1:
            continue
        [found] = links_of(only(read("\n".join(lines[lost:]))))
        assert (found["type"], words(found["message"])) == (chain[-1]["type"], words(chain[-1]["message"])), text
        assert found["frames"] == chain[-1]["frames"][len(chain[-1]["frames"]) - len(found["frames"]) :], text
        held += 1
    assert held > 50


def test_a_site_that_takes_tags_for_its_own_leaves_class_message_and_lines() -> None:
    for text, chain in SAMPLES:
        found = links_of(only(read(re.sub(r"<\w+>", "", text))))
        assert [(link["type"], words(link["message"])) for link in found] == [
            (link["type"], words(link["message"])) for link in chain
        ], text
        assert [[line for _, line in frames] for frames in functions(found)] == [
            [line for _, line in frames] for frames in functions(chain)
        ], text


def test_double_underscores_that_became_bold_leave_the_frames() -> None:
    def bold(name: str) -> str:
        return re.sub(r"__(\w+?)__", r"\1", name)

    for text, chain in SAMPLES:
        found = links_of(only(read(bold(text))))
        assert [link["type"] for link in found] == [bold(link["type"]) for link in chain], text
        assert functions(found) == [[[bold(name), line] for name, line in each] for each in functions(chain)], text


@pytest.mark.parametrize("damage", ["quoted", "indented", "a string of JSON", "rsyslog"])
def test_a_quoted_traceback_whose_quotation_mark_is_hidden_is_read(damage: str) -> None:
    [(text, chain), *_] = samples("3.11", "pool")
    found = links_of(only(read(KEEPS_ALL[damage](text))))
    said = [link for link in chain if not link["type"].endswith("RemoteTraceback")]
    assert [(link["type"], link["message"]) for link in found] == [(link["type"], link["message"]) for link in said]
    assert functions(found) == functions(said)


PLAIN = """\
Traceback (most recent call last):
  File "/opt/sglang/srt/a_file.py", line 39, in __init__
    self.start(a * b * c)
ValueError: not &quot;this&quot; and not \\_that\\_"""


def test_a_message_may_hold_what_looks_like_damage() -> None:
    [link] = only(read(PLAIN)).chain
    assert link.message == "not &quot;this&quot; and not \\_that\\_"


def test_a_folder_of_windows_is_no_damage() -> None:
    [link] = only(read(PLAIN.replace("/opt/sglang/srt/a_file.py", "C:\\_build\\_a.py"))).chain
    assert link.frames[0].filename == "C:\\_build\\_a.py"


def test_a_function_on_a_line_of_its_own_is_joined_to_its_frame() -> None:
    for cut in ("in ", "in", "line 39, ", "line 39,", "line 39"):
        at = PLAIN.index(cut) + len(cut)
        [link] = only(read(f"{PLAIN[:at]}\n{PLAIN[at:]}")).chain
        assert [(frame.function, frame.lineno) for frame in link.frames] == [("__init__", 39)], cut


# --- somebody's text -------------------------------------------------------------------------------------------------


def escaped(levels: int) -> str:
    text = PLAIN
    for _ in range(levels):
        text = json.dumps(text)[1:-1]
    return text


@pytest.mark.parametrize(
    "line",
    [
        '400 Bad Request: {"error": {"message": "%s"}}',
        'HTTP 422: {"error": {"message": "%s"}}',
        'INFO:     127.0.0.1:5 - "POST /v1/completions HTTP/1.1" 400 Bad Request: {"error": {"message": "%s"}}',
        'status=404 body={"message": "%s"}',
        '{"object":"error","message":"%s","type":"BadRequestError","param":null,"code":400}',
        '{"code": 400, "message": "%s"}',
        'Request payload: {"message": "%s"}',
        'received: {"msg": "%s"}',
        '{"request": {"message": "%s"}}',
        '{"prompt": "%s"}',
        '{"level": "info", "msg": "prompt: %s"}',
        '{"messages": [{"role": "user", "content": "%s"}]}',
        '{"messages": [{"message": "%s"}]}',
        '{"level": "info", "payload": {"log": "%s"}}',
        '{"choices": [{"index": 0, "message": "%s"}]}',
        '{"response": {"output": [{"message": "%s"}]}}',
        "Receive: obj=GenerateReqInput(rid='1', text=\"%s\", sampling_params={})",
        "prompt: %s",
        "INFO prompt=%s",
        'the user said "%s"',
    ],
)
def test_somebodys_text_is_no_crash(line: str) -> None:
    assert read(line % escaped(1)) == []


@pytest.mark.parametrize(
    "line",
    [
        '{"level": "error", "msg": "400 Bad Request: {\\"error\\": {\\"message\\": \\"%s\\"}}"}',
        '{"level": "info", "msg": "{\\"messages\\": [{\\"message\\": \\"%s\\"}]}"}',
        '{"log": "{\\"prompt\\": \\"%s\\"}\\n", "stream": "stdout"}',
        '{"body": "{\\"message\\": \\"%s\\"}"}',
    ],
)
def test_somebodys_text_inside_a_log_is_no_crash(line: str) -> None:
    assert read(line % escaped(2)) == []


@pytest.mark.parametrize(
    "line",
    [
        '{"request": {"method": "POST", "path": "/x"}, "level": "error", "msg": "%s"}',
        '{"level": "error", "error": {"message": "x", "stack_trace": "%s"}}',
        '2026-12-01 10:00:00,423 - ERROR - {"msg": "%s"}',
        '{"msg": "the request failed: %s", "status": 500}',
        "Scheduler hit an exception: %s",
        '"%s"',
    ],
)
def test_a_logs_own_field_is_read_whatever_stands_beside_it(line: str) -> None:
    event = only(read(line % escaped(1)))
    assert (event.chain[-1].type, len(event.chain[-1].frames), event.span.last) == ("ValueError", 1, 1)


def test_a_bad_request_that_a_client_raises_is_the_clients_exception() -> None:
    line = f"openai.BadRequestError: Error code: 400 - {{'error': {{'message': '{escaped(1)}'}}}}"
    assert only(read(line)).chain[-1].type == "openai.BadRequestError"


def test_a_field_that_is_cut_off_is_read_as_far_as_it_goes() -> None:
    line = '{"level": "error", "msg": "' + escaped(1)[:-20]
    assert only(read(line)).chain[-1].message == "not &quot;this&quot; and not \\_that\\_"[:-18]


def test_a_line_that_another_process_wrote_below_ends_what_was_escaped() -> None:
    text = KEEPS_ALL["a string of JSON"](PLAIN)
    lines = [attrs.evolve(line, prefixed=False) for line in lines_of(f"{text}\nsome other text")]
    assert [event.span.last for event in events_of(open_block, lines)] == [1]


SIGNS = st.text("{}[]()\"'\\\\:=,n amsgpro", max_size=60)


@given(before=SIGNS, after=SIGNS, mark=st.sampled_from(["\\n", "\\\\n", "\\\\\\\\n", "\\r\\n", "#012"]))
def test_any_signs_around_an_escaped_header_are_read_without_a_defect(before: str, after: str, mark: str) -> None:
    reader = EventReader()
    text = f"{before}Traceback (most recent call last):{mark}ValueError: x{after}"
    found = [*(event for line in lines_of(text) for event in reader.feed(line)), *reader.close()]
    assert reader.failures == 0
    assert all(event.span.last == 1 for event in found)


NAMES = st.sampled_from(["level", "pid", "logger", "time", "rank"])


@given(st.dictionaries(NAMES, st.text(max_size=30)), st.booleans())
def test_other_fields_of_a_log_do_not_matter(fields: dict[str, str], first: bool) -> None:
    own = {"message": PLAIN}
    line = json.dumps({**own, **fields} if first else {**fields, **own})
    [link] = only(read(line)).chain
    assert link.message == PLAIN.partition("ValueError: ")[2]
    assert [frame.function for frame in link.frames] == ["__init__"]
