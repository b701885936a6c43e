"""Single command lines, cut into words and edited."""

import pytest

from logtriage.errors import PatchError
from logtriage.remediation.argv import add_flag, remove_flag, set_flag, tokenize
from logtriage.remediation.program import ArgumentList, flags_of
from logtriage.remediation.words import Quoting
from tests.remediation.tools import patched
from tests.remediation.tools import set_flag as wanted_flag


def pairs(line: str) -> list[tuple[str, str | None]]:
    words = tokenize(line)
    return [(f.name, f.value.text if f.value else None) for f in flags_of(ArgumentList(words[1:], words[0]))]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("s --tp 8 --port=1", [("--tp", "8"), ("--port", "1")]),
        ("s --trust-remote-code next --tp 8", [("--trust-remote-code", None), ("--tp", "8")]),
        ("s --random-seed -1", [("--random-seed", "-1")]),
        ("s --unknown value --other", [("--unknown", "value"), ("--other", None)]),
        ("s --cuda-graph-bs 1 2 4 --tp 8", [("--cuda-graph-bs", "1"), ("--tp", "8")]),
        ("s -tp 8 -O3", [("-tp", "8"), ("-O3", None)]),
        ("s --x= --y ''", [("--x", ""), ("--y", "")]),
        ('s --unknown "${ARGS[@]}"', [("--unknown", None)]),
        ("s --unknown $@", [("--unknown", None)]),
        ("s --unknown $VALUE", [("--unknown", "$VALUE")]),
        ("s positional - -- 5", []),
    ],
)
def test_options_are_read_as_the_server_reads_them(line: str, expected: list[tuple[str, str | None]]) -> None:
    assert pairs(line) == expected


@pytest.mark.parametrize(
    ("line", "quoting", "expected"),
    [
        ("a 'b c' \"d $e\" f\\ g", "shell", ["a", "b c", "d $e", "f g"]),
        ("a \\\n  b \\\r\n c", "shell", ["a", "b", "c"]),
        ('a "x\\\ny" z\\\nw', "shell", ["a", "xy", "zw"]),
        ("a 2>&1 >out <in &>>all b", "shell", ["a", "b"]),
        (
            "a $(b 'c )' \"d )\") ${e:-f g} `h i` j",
            "shell",
            ["a", "$(b 'c )' \"d )\")", "${e:-f g}", "`h i`", "j"],
        ),
        ("a $'b' $\"c\" $ d$", "shell", ["a", "b", "c", "$", "d$"]),
        ("a <(b c) >(d e) f", "shell", ["a", "f"]),
        ("a b#c # d", "shell", ["a", "b#c"]),
        ("a ; b", "shell", ["a"]),
        ("a \\", "shell", ["a", "\\"]),
        ('a \'b\\\'c\' "d\\te" x"y z" %%i $$x', "exec", ["a", "b'c", "d\te", "xy z", "%i", "$x"]),
        ("a $$x %i", "exec-verbatim", ["a", "$$x", "%i"]),
    ],
)
def test_words_are_cut_by_the_rules_of_their_reader(line: str, quoting: Quoting, expected: list[str]) -> None:
    assert [word.text for word in tokenize(line, quoting)] == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("s --a 1", "s --a 2"),
        ("s --a=1", "s --a=2"),
        ("s --b 1", "s --b 1 --a 2"),
        ("s", "s --a 2"),
        ("s --a", "s --a 2"),
        ("s --a ''", "s --a 2"),
        ("s --a=", "s --a=2"),
        ('s --a=""', "s --a=2"),
        ('s "--a="', 's "--a=2"'),
        ("s --a \"1\"'1'", "s --a 2"),
        ("s '--a=1'1", "s --a=2"),
        ("s --a 1 --a=1", "s --a 2 --a=2"),
        ("s --a 1 > o", "s --a 2 > o"),
        ("s > o &", "s --a 2 > o &"),
        ("s \\\r\n --b 1", "s \\\r\n --b 1 \\\r\n --a 2"),
    ],
)
def test_a_flag_is_set(before: str, after: str) -> None:
    assert set_flag(before, "--a", "2") == after
    assert set_flag(after, "--a", "2") == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("s --a 1 --b", "s --b"),
        ("s --b --a 1", "s --b"),
        ("s --a=1  --b", "s  --b"),
        ("s --a 1 --a 2 --a", "s"),
        ("s \\\n  --a 1 \\\n  --b", "s \\\n  --b"),
        ("s --b", "s --b"),
    ],
)
def test_a_flag_is_removed(before: str, after: str) -> None:
    assert remove_flag(before, "--a") == after


def test_a_flag_is_added_by_the_rules_of_the_reader() -> None:
    assert add_flag("s --b", "--a", "50% of $x") == "s --b --a '50% of $x'"
    assert add_flag("s --b", "--a", "50% of $x", "exec") == 's --b --a "50%% of $$x"'
    assert add_flag("s", "--a") == "s --a"
    assert add_flag("s", "--cuda-graph-bs", "1 2") == "s --cuda-graph-bs 1 2"


@pytest.mark.parametrize(
    ("line", "quoting", "reason"),
    [
        ("s 'a", "shell", "line 1: the quote that opens here is not closed"),
        ('s \\\n "a', "shell", "line 2: the quote that opens here is not closed"),
        ("s $(a", "shell", "line 1: what opens here is not closed"),
        ("s ${a", "shell", "line 1: what opens here is not closed"),
        ("a=(b", "shell", "line 1: the list that opens here is not closed"),
        ("s 'a", "exec", "line 1: the quote that opens here is not closed"),
        ("", "shell", "there is no command"),
        ("# s", "shell", "there is no command"),
        (" ", "exec", "there is no command"),
    ],
)
def test_what_is_no_command_is_refused(line: str, quoting: Quoting, reason: str) -> None:
    with pytest.raises(PatchError) as refused:
        tokenize(line, quoting)
    assert reason in str(refused.value)


def test_a_variable_split_at_blanks_cannot_take_a_value_with_blanks() -> None:
    text = '#!/bin/sh\nE="--a 1"\npython3 -m sglang.launch_server $E\n'
    assert patched(wanted_flag("--a", "2"), text, "run.sh") == text.replace("1", "2")
    with pytest.raises(PatchError, match="split at blanks"):
        patched(wanted_flag("--a", "2 3"), text, "run.sh")
