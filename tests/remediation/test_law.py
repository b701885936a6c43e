"""The law of patches: however a command is written, exactly what was meant differs, and twice is once."""

from __future__ import annotations

import shlex

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from logtriage.errors import PatchError
from logtriage.model import Change
from logtriage.remediation import propose_patch
from logtriage.remediation.argv import tokenize
from tests.remediation.tools import patched, remediation, run_script, systemd_commands

Pair = tuple[str, str | None]

SPELLINGS = ("--attention-backend", "--attention-backen", "--attention_backend")
OTHERS: list[Pair] = [
    ("--model-path", "/m/next 80b"),
    ("--tp", "8"),
    ("--trust-remote-code", None),
    ("--mem-fraction-static", "0.88"),
    ("--json-model-override-args", '{"a": "it\'s 50% of $HOME", "b": [1, 2]}'),
    ("--served-model-name", "größe;x"),
    ("--random-seed", "-1"),
    ("--enable-mixed-chunk", None),
    ("--host", "0.0.0.0"),
]
VALUES = ("triton", "a b", "it's", '"', "50%", "$X", "back\\slash", "x;y")


@attrs.frozen
class Written:
    """One option, and how it is written: with ``=``, and in which quotes."""

    pair: Pair
    joined: bool
    mark: str

    def words(self) -> list[str]:
        """The words the server gets."""
        name, value = self.pair
        if value is None:
            return [name]
        return [f"{name}={value}"] if self.joined else [name, value]


def shell_quote(text: str, mark: str) -> str:
    if mark == "d":
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("`", "\\`")
        return f'"{escaped}"'
    return shlex.quote(text)


def exec_quote(text: str, mark: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$")
    if mark == "d" or not escaped.isalnum():
        escaped = escaped.replace('"', '\\"')
        return f'"{escaped}"'
    return escaped


def words_of(options: list[Written], dialect: str) -> list[list[str]]:
    quote = shell_quote if dialect == "shell" else exec_quote
    return [[quote(word, option.mark) for word in option.words()] for option in options]


def render(options: list[Written], style: str, new_line: str, last: bool) -> str:
    """A file that starts the server with *options*."""
    dialect = "exec" if style.startswith("unit") and style != "unit-shell" else "shell"
    groups = [" ".join(words) for words in words_of(options, dialect)]
    one_line, lines = " ".join(groups), " \\\n  ".join(["", *groups])
    server = "python3 -m sglang.launch_server"
    head = "[Unit]\nDescription=x\n\n[Service]\n"
    text = {
        "plain": f"#!/bin/bash\nexec {server} {one_line} 2>&1",
        "lines": f"#!/bin/bash\nnohup {server}{lines} </dev/null",
        "array": "#!/bin/bash\nA=(\n"
        + "".join(f"  {g}  # say\n" for g in groups)
        + f')\n{server} "${{A[@]}}"',
        "wrapped": f"#!/bin/sh\nbash -c {shlex.quote(f'{server} {one_line} | cat')}",
        "unit": f"{head}ExecStart=/usr/bin/{server} {one_line}",
        "unit-lines": f"{head}ExecStart=/usr/bin/{server}{lines}\nRestart=no",
        "unit-comments": f"{head}ExecStart=/usr/bin/{server}{lines}".replace(" \\\n", " \\\n# say\n"),
        "unit-shell": f"{head}ExecStart=/bin/bash -c {exec_quote(f'exec {server} {one_line}', 'd')}",
    }[style]
    return (text + ("\n" if last else "")).replace("\n", new_line)


SHELLS = ("plain", "lines", "array", "wrapped")
UNITS = ("unit", "unit-lines", "unit-comments", "unit-shell")


@st.composite
def commands(draw: st.DrawFn) -> list[Written]:
    others = draw(st.lists(st.sampled_from(OTHERS), max_size=5, unique_by=lambda pair: pair[0]))
    mine = draw(st.lists(st.tuples(st.sampled_from(SPELLINGS), st.sampled_from(VALUES)), max_size=2))
    pairs = draw(st.permutations([*others, *mine]))
    return [Written(pair, draw(st.booleans()), draw(st.sampled_from("bd"))) for pair in pairs]


def is_mine(option: Written) -> bool:
    return option.pair[0] in SPELLINGS


def wanted_words(options: list[Written], change: Change) -> list[str]:
    """What the server should get afterwards, worked out on the options themselves."""
    if change.op == "remove-flag":
        return [word for option in options if not is_mine(option) for word in option.words()]
    changed = [
        attrs.evolve(option, pair=(option.pair[0], change.value)) if is_mine(option) else option
        for option in options
    ]
    if not any(map(is_mine, options)):
        changed.append(Written(("--attention-backend", change.value), joined=False, mark="b"))
    return [word for option in changed for word in option.words()]


CHANGES = st.sampled_from(
    [
        *(Change("set-flag", "--attention-backend", value) for value in VALUES),
        Change("remove-flag", "--attention-backend"),
    ]
)
BREAKS = st.sampled_from(["\n", "\r\n"])


@settings(max_examples=60, deadline=None)
@given(commands(), CHANGES, st.sampled_from(SHELLS), st.booleans())
def test_bash_starts_the_server_with_exactly_the_change(
    options: list[Written], change: Change, style: str, last: bool
) -> None:
    text = render(options, style, "\n", last)
    start = ["-m", "sglang.launch_server"]
    assert run_script(text) == [[*start, *(word for option in options for word in option.words())]]
    after = patched(remediation(change), text, "run.sh")
    assert run_script(after) == [[*start, *wanted_words(options, change)]]


@settings(max_examples=25, deadline=None)
@given(commands(), CHANGES, st.sampled_from(UNITS), st.booleans(), BREAKS)
def test_systemd_reads_the_command_with_exactly_the_change(
    options: list[Written], change: Change, style: str, last: bool, new_line: str
) -> None:
    text = render(options, style, new_line, last)
    after = patched(remediation(change), text)
    assert after.count(new_line) == after.count("\n")
    for argv in systemd_commands(("llm.service", after)) or ():
        if style == "unit-shell":
            assert run_script(argv[2])[0][2:] == wanted_words(options, change)
        else:
            assert argv[3:] == wanted_words(options, change)


@settings(max_examples=150, deadline=None)
@given(commands(), CHANGES, st.sampled_from((*SHELLS, *UNITS)), st.booleans(), BREAKS)
def test_no_byte_outside_the_command_changes(
    options: list[Written], change: Change, style: str, last: bool, new_line: str
) -> None:
    text = render(options, style, new_line, last)
    patch = propose_patch(remediation(change), text, "run.sh" if style in SHELLS else "llm.service")
    again = propose_patch(remediation(change), patch.after, patch.path)
    assert again.before == again.after
    assert patch.after.endswith(new_line) is last
    assert patch.after.split(new_line)[0] == text.split(new_line)[0]
    if change.op == "remove-flag" and not any(map(is_mine, options)):
        assert patch.after == text


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1), min_size=1, max_size=5))
def test_words_are_read_as_they_were_quoted(words: list[str]) -> None:
    words = ["serve", *words]
    assert [word.text for word in tokenize(shlex.join(words))] == words
    assert [word.text for word in tokenize(" ".join(shell_quote(word, "d") for word in words))] == words
    assert [word.text for word in tokenize(" ".join(exec_quote(w, "d") for w in words), "exec")] == words


def outcome(change: Change, text: str, path: str) -> str:
    """The text a patch starts from, or the reason there is none."""
    try:
        return propose_patch(remediation(change), text, path).before
    except PatchError as refused:
        return refused.reason


@given(st.text("ab -='\"\\$`{}()[]<>|&;#\n\r\t%*", max_size=40))
def test_no_file_makes_it_fail_in_any_other_way_than_by_refusing(text: str) -> None:
    changes = [Change("set-flag", "--tp", "4"), Change("remove-flag", "--a"), Change("set-env", "A", "1")]
    script, unit = f"sglang serve {text}", f"[Service]\nExecStart=sglang serve {text}"
    assert all(outcome(change, script, "run.sh") for change in changes)
    assert all(outcome(change, unit, "x.service") for change in changes)
