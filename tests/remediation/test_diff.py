"""Diffs that git and patch take, byte for byte."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logtriage.model import Patch
from logtriage.remediation.diff import unified_diff
from tests.remediation.tools import applied

TOOLS = ("git", "patch")
LINES = [f"line {number}\n" for number in range(1, 21)]


def shell(before: str, after: str, path: str = "run.sh") -> Patch:
    return Patch(path, before, after, "shell-script")


def test_nothing_changed_is_no_diff() -> None:
    assert unified_diff(shell("a\n", "a\n")) == ""


def test_a_change_is_shown_with_three_lines_around_it() -> None:
    before = "".join(LINES)
    assert unified_diff(shell(before, before.replace("line 10\n", "line ten\n"), "/etc/llm/run.sh")) == (
        "--- a/etc/llm/run.sh\n+++ b/etc/llm/run.sh\n@@ -7,7 +7,7 @@\n"
        " line 7\n line 8\n line 9\n-line 10\n+line ten\n line 11\n line 12\n line 13\n"
    )


def test_changes_far_apart_get_hunks_of_their_own() -> None:
    before = "".join(LINES)
    after = before.replace("line 2\n", "").replace("line 19\n", "line 19\nnew\n")
    diff = unified_diff(shell(before, after))
    assert re.findall(r"^@@.*", diff, re.MULTILINE) == ["@@ -1,5 +1,4 @@", "@@ -17,4 +16,5 @@"]


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nb\nc\n", "a\nB\nc\n"),
        ("a\nb", "a\nB"),
        ("a\nb", "a\nb\n"),
        ("a\nb\n", "a\nb"),
        ("a\nb", "A\nb"),
        ("a\r\nb\r\n", "a\r\nB\r\n"),
        ("a\r\nb", "a\r\nB"),
        ("a\n\x0cb\x0b\u2028c\n", "a\n\x0cB\x0b\u2028c\n"),
        ("a\rb\nc\n", "a\rb\nC\n"),
        ("", "a\n"),
        ("a\n", ""),
        ("".join(LINES), "".join(LINES[3:-2])),
    ],
)
def test_both_tools_make_the_file_that_was_meant(tool: str, before: str, after: str) -> None:
    if after or tool == "git":
        creates = not before
        patch = Patch("deploy/run.sh", before, after, "shell-script", creates=creates)
        assert applied(patch, tool) == after


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    "path",
    [
        "/etc/systemd/system/llm@.service",
        "./a/b.sh",
        "with blank/run me.sh",
        "größe.sh",
        'odd"name.sh',
        "tab\tname.sh",
    ],
)
def test_any_path_can_be_patched(tool: str, path: str) -> None:
    assert applied(shell("a\n", "b\n", path), tool) == "b\n"


texts = st.lists(st.sampled_from(["a", "b", "", "x y", "\\", "-", "+", "\r"]), max_size=12).map("\n".join)


@settings(max_examples=40, deadline=None)
@given(texts, texts)
def test_git_turns_any_text_into_any_other(before: str, after: str) -> None:
    if before and after and before != after:
        assert applied(shell(before, after), "git") == after


def test_a_file_that_changes_altogether_is_one_hunk() -> None:
    before, after = "".join(f"a{n}\n" for n in range(1500)), "".join(f"b{n}\n" for n in range(1500))
    diff = unified_diff(shell(before, after))
    assert diff.count("@@ -1,1500 +1,1500 @@") == 1
    assert applied(shell(before, after), "patch") == after
