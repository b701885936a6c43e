"""The texts an event offers to signatures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logtriage.model import (
    Event,
    ExceptionLink,
    FatalError,
    Frame,
    Incident,
    Invocation,
    KernelReport,
    LoggedError,
    NativeAbort,
    Process,
    Span,
    Traceback,
)
from logtriage.texts import Surroundings, event_texts, fold

HERE = Process()
AT = Span(1, 1)


def traceback(*chain: ExceptionLink, header: str = "", message: str = "") -> Traceback:
    return Traceback(process=HERE, span=AT, message=message, chain=chain, header=header)


def folded(event: Event) -> list[str]:
    return [text.folded for text in event_texts(event)]


@given(st.text())
def test_folded_text_has_single_blanks_and_stays_as_it_is(text: str) -> None:
    once = fold(text)
    assert fold(once) == once
    assert "  " not in once
    assert "\n" not in once
    assert once.split() == text.split()


def test_each_exception_of_a_chain_is_a_text_with_the_header() -> None:
    event = traceback(
        ExceptionLink("KeyError", "'x'", relation="context"),
        ExceptionLink("torch.OutOfMemoryError", "CUDA out\nof memory"),
        header="Scheduler hit an exception",
        message="torch.OutOfMemoryError: CUDA out of memory",
    )
    assert folded(event) == [
        "KeyError: 'x' Scheduler hit an exception",
        "torch.OutOfMemoryError: CUDA out of memory Scheduler hit an exception",
    ]
    assert [(text.type, text.link) for text in event_texts(event)] == [
        ("KeyError", 0),
        ("torch.OutOfMemoryError", 1),
    ]


def test_an_exception_without_message_is_its_class() -> None:
    assert folded(traceback(ExceptionLink("AssertionError", ""))) == ["AssertionError"]


def test_a_message_that_says_more_than_the_chain_is_a_text_of_its_own() -> None:
    event = traceback(ExceptionLink("ValueError", "a"), message="ValueError: a; see also b")
    assert folded(event) == ["ValueError: a", "ValueError: a; see also b"]


def test_a_traceback_without_a_chain_has_its_message() -> None:
    assert folded(traceback(message="cut off")) == ["cut off"]


def test_a_fatal_error_shows_its_frames_as_faulthandler_prints_them() -> None:
    frames = (Frame("/a/triton/backend.py", 12, "compile"), Frame("/a/run.py", 3, "<module>"))
    event = FatalError(process=HERE, span=AT, message="", reason="Segmentation fault", frames=frames)
    (text,) = event_texts(event)
    assert text.folded == (
        'Fatal Python error: Segmentation fault File "/a/triton/backend.py", line 12 in compile '
        'File "/a/run.py", line 3 in <module>'
    )
    assert text.frames[-1].function == "compile"


def test_the_reason_of_a_fatal_error_stands_once() -> None:
    message = "Fatal Python error: Aborted"
    event = FatalError(process=HERE, span=AT, message=message, reason="Aborted")
    assert folded(event) == [message]


def test_an_error_line_is_an_exception_only_if_it_names_one() -> None:
    bare = LoggedError(process=HERE, span=AT, message="no such file", type="OSError", origin="bind")
    (text,) = event_texts(bare)
    assert (text.folded, text.type) == ("OSError: no such file", "OSError")
    plain = LoggedError(process=HERE, span=AT, message="invalid choice", origin="argparse")
    assert event_texts(plain)[0].type is None


def test_native_code_names_its_class() -> None:
    event = NativeAbort(
        process=HERE, span=AT, message="what(): x", origin="terminate", exception="c10::Error"
    )
    assert [(text.folded, text.type) for text in event_texts(event)] == [("what(): x", "c10::Error")]


def test_any_other_event_is_its_message() -> None:
    event = KernelReport(process=HERE, span=AT, message="NVRM: Xid 79", report="xid")
    assert [(text.raw, text.type) for text in event_texts(event)] == [("NVRM: Xid 79", None)]


def test_a_huge_message_keeps_its_head_and_its_tail_and_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    folded: list[int] = []

    def counted(text: str) -> str:
        folded.append(len(text))
        return fold(text)

    monkeypatch.setattr("logtriage.texts.fold", counted)
    event = traceback(ExceptionLink("RuntimeError", "first " + "x " * 5_000_000 + "last"))
    (text,) = event_texts(event)
    assert max(folded) <= 64 * 1024 + 1  # the ten megabytes are cut before they are looked through
    assert text.folded.startswith("RuntimeError: first x")
    assert text.folded.endswith("x last")
    assert len(text.folded) <= 64 * 1024 + 1
    assert text.raw.startswith("RuntimeError: first x")
    assert text.raw.endswith("x last")
    assert len(text.raw) <= 8 * 1024 + 1


def test_surroundings_are_the_texts_of_the_other_events() -> None:
    event = traceback(ExceptionLink("ncclSystemError", "duplicate GPU"))
    other = LoggedError(process=HERE, span=Span(9, 9), message="NCCL WARN\n  Duplicate GPU detected")
    case = Incident(Invocation(), (other, event), "init", Span(1, 9))
    around = Surroundings(event, case)
    assert around.hold("NCCL WARN Duplicate  GPU")
    assert not around.hold("duplicate GPU")
