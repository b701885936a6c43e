"""A command line and a wanted option go in; the edits that change it, and no other byte, come out.

An option may be written ``--flag value`` or ``--flag=value``, by another of
its names or by a beginning of one, with underscores, in quotes, through a
variable, or several times; ``argparse`` lets the last one win, and a stale
value left before it would mislead the reader, so all are changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import regex

from logtriage.launch import flag_arity, same_flag
from logtriage.remediation.program import ArgumentList, Flag, Launch, Program, flags_of
from logtriage.remediation.shell import ShellError, read_script
from logtriage.remediation.source import Edit, View, apply_edits
from logtriage.remediation.unit import UnitError, read_words
from logtriage.remediation.words import Quoting, Word, quote

__all__ = [
    "add_flag",
    "edits_to_add",
    "edits_to_remove",
    "edits_to_set",
    "remove_flag",
    "set_flag",
    "tokenize",
    "uses_of",
]

# What stands between two words is blanks, continuations and comments.
_COMMENT: Final = regex.compile(r"#|\n[ \t]*+;")
_PLAIN_GAP: Final = regex.compile(r"(?:[ \t]|\\?\r?\n)*+")
_BREAK: Final = regex.compile(r"\r?\n")


def tokenize(text: str, quoting: Quoting = "shell") -> tuple[Word, ...]:
    r"""Cut one command line into words.

    Args:
        text: The command line; lines may be continued.
        quoting: ``shell``, or ``exec`` for the rules of systemd.

    Raises:
        PatchError: A quote is not closed.

    >>> [word.text for word in tokenize("serve --model 'a b' \\\n --tp=8  # eight")]
    ['serve', '--model', 'a b', '--tp=8']
    """
    return _read_line(text, quoting).launches[0].words


def set_flag(text: str, flag: str, value: str | None, quoting: Quoting = "shell") -> str:
    """Give *flag* the value *value* wherever it stands in a command line; add it if it stands nowhere.

    Raises:
        PatchError: The line cannot be read, or the value is not written in it.

    >>> set_flag("serve --tp 8 --attention-backend flashinfer", "--attention-backend", "triton")
    'serve --tp 8 --attention-backend triton'
    """
    program = _read_line(text, quoting)
    return apply_edits(text, edits_to_set(program, flag, value))


def remove_flag(text: str, flag: str, quoting: Quoting = "shell") -> str:
    """Take *flag* and its value out of a command line, wherever it stands.

    Raises:
        PatchError: The line cannot be read.

    >>> remove_flag("serve --tp 8 --enable-mixed-chunk --port 1", "--enable-mixed-chunk")
    'serve --tp 8 --port 1'
    """
    while edits := edits_to_remove(_read_line(text, quoting), flag):
        text = apply_edits(text, edits)
    return text


def add_flag(text: str, flag: str, value: str | None = None, quoting: Quoting = "shell") -> str:
    """Put *flag* at the end of a command line, before what redirects its output.

    Raises:
        PatchError: The line cannot be read.

    >>> add_flag("serve --tp 8 > log 2>&1 &", "--attention-backend", "triton")
    'serve --tp 8 --attention-backend triton > log 2>&1 &'
    """
    program = _read_line(text, quoting)
    return apply_edits(text, [edits_to_add(program, program.launches[0], flag, value)])


def _read_line(text: str, quoting: Quoting) -> Program:
    """Read a text that is one command as a program."""
    bare = Program(text, "", (), {})
    view = View.of_file(text)
    try:
        if quoting == "shell":
            commands = read_script(view).commands
            words = commands[0].words if commands else ()
        else:
            words = tuple(read_words(view, quoting))
    except (ShellError, UnitError) as error:
        raise bare.refuse(error.reason, error.place) from error
    if not words:
        raise bare.refuse("there is no command")
    launch = Launch((ArgumentList(words[1:], words[0]),), words, words[0].file_start)
    return Program(text, "", (launch,), {})


def uses_of(program: Program, name: str) -> list[Flag]:
    """Where an option is given; a spelling of exactly *name* hides other spellings of the same."""
    flags = program.flags()
    exact = [flag for flag in flags if flag.name == name]
    if exact and "_" in name:
        return exact
    return [flag for flag in flags if same_flag(flag.name, name)]


def edits_to_set(program: Program, name: str, value: str | None, old: str | None = None) -> list[Edit]:
    """Give an option a value, everywhere it is given, or at the end of the only launch.

    Args:
        program: What the file starts.
        name: The option.
        value: Its value; ``None`` for an option without one.
        old: The failing value, where known; of several launches only those with it are changed.

    Raises:
        PatchError: The value comes from elsewhere, or it is unclear which launch is meant.
    """
    uses = uses_of(program, name)
    if len(program.launches) > 1 and uses and old is not None:
        failing = [flag for flag in uses if old in program.values_of(flag)]
        if not failing and not any(value in program.values_of(flag) for flag in uses):
            reason = f"several commands start a server, and {name} is {old} in none of them"
            raise program.refuse(reason, uses[0].words[0].file_start)
        uses = failing or [flag for flag in uses if value in program.values_of(flag)]
    if uses:
        return [edit for flag in uses for edit in _set_one(program, flag, value, old)]
    if len(program.launches) != 1:
        lines = ", ".join(str(program.text.count("\n", 0, launch.at) + 1) for launch in program.launches)
        raise program.refuse(f"several commands start a server (lines {lines}) and none has {name}")
    return [edits_to_add(program, program.launches[0], name, value)]


def _set_one(program: Program, flag: Flag, value: str | None, old: str | None) -> list[Edit]:
    present = program.values_of(flag)
    if value is None or present == {value} or (value in present and old not in present):
        return []
    if flag.value is None:
        last = flag.words[-1]
        return [_insertion(last, " " + _encoded(last, value, flag.name))]
    if flag_arity(flag.name) == "many" and flag.value.word is not flag.words[0]:
        return _set_many(flag, value)
    return program.literal(flag.value, old, flag.name).replace(value)


def _set_many(flag: Flag, value: str) -> list[Edit]:
    """Replace all values of an option that takes several."""
    first, last = flag.words[1], flag.words[-1]
    text = " ".join(quote(word, first.quoting) for word in value.split())
    return first.view.replace(first.start, last.end, text)


def edits_to_add(program: Program, launch: Launch, name: str, value: str | None) -> Edit:
    """Put an option behind the last argument, on a line of its own if the one before it is.

    Args:
        program: What the file starts.
        launch: The command.
        name: The option.
        value: Its value; ``None`` for an option without one.

    Raises:
        PatchError: There is no command to add to.
    """
    arguments = launch.arguments[0]
    last = arguments.words[-1] if arguments.words else arguments.before
    if last is None:
        raise program.refuse(f"there is no command that {name} could be added to", launch.at)
    text = _style(program, arguments) + _encoded(last, name)
    if value is not None:
        text += " " + _encoded(last, value, name)
    return _insertion(last, text)


def _encoded(beside: Word, value: str, name: str = "") -> str:
    """Write a value as a new word behind another."""
    words = value.split() if flag_arity(name) == "many" else [value]
    text = " ".join(quote(word, beside.quoting) for word in words)
    return beside.view.encode(text, max(beside.end - 1, 0))


def _insertion(after: Word, text: str) -> Edit:
    return Edit(after.file_end, after.file_end, text)


def _style(program: Program, arguments: ArgumentList) -> str:
    """What stands before the last option if that begins a line, else a blank."""
    flags = flags_of(arguments)
    if not flags:
        return " "
    gap = _gap_before(program, arguments.words, arguments.before, flags[-1].index)
    if gap is None or "\n" not in gap:
        return " "
    if _COMMENT.search(gap) is None:
        return gap if _PLAIN_GAP.fullmatch(gap) else " "
    breaks = list(_BREAK.finditer(gap))
    start = gap[: breaks[0].start()]
    return (start if start.endswith("\\") else "") + gap[breaks[-1].start() :]


def _gap_before(program: Program, words: Sequence[Word], before: Word | None, index: int) -> str | None:
    """The text of the file between a word and the one before it; ``None`` if nothing is before it."""
    previous = words[index - 1] if index else before
    if previous is None or previous.view is not words[index].view:
        return None
    return program.text[previous.file_end : words[index].file_start]


def edits_to_remove(program: Program, name: str) -> list[Edit]:
    """Take an option out where it is given last; none if it is given nowhere.

    One at a time, because two that follow each other share what stands between them.
    """
    uses = uses_of(program, name)
    return _removal(program, uses[-1]) if uses else []


def _removal(program: Program, flag: Flag) -> list[Edit]:
    """Take an option out, and the blanks or the continuation before it."""
    first, last, words = flag.words[0], flag.words[-1], flag.arguments.words
    gap = _gap_before(program, words, flag.arguments.before, flag.index)
    own = first.view.pieces(first.start, last.end)
    if gap is None:
        following = words[flag.index + len(flag.words) :][:1]
        if following and _PLAIN_GAP.fullmatch(program.text[last.file_end : following[0].file_start]):
            own = first.view.pieces(first.start, following[0].start)
        return [Edit(*piece, "") for piece in own]
    start = first.file_start - len(gap)
    if _PLAIN_GAP.fullmatch(gap):
        return [Edit(start, own[0][1], ""), *(Edit(*piece, "") for piece in own[1:])]
    if _COMMENT.search(gap) is not None and _BREAK.search(gap):
        return [_removal_behind_comment(program, start, first, last)]
    previous = words[flag.index - 1] if flag.index else flag.arguments.before or first
    return [Edit(*piece, "") for piece in first.view.pieces(previous.end, last.end)]


def _removal_behind_comment(program: Program, start: int, first: Word, last: Word) -> Edit:
    """Take words out and leave the comment that stands on the lines before them, from *start* on."""
    gap = program.text[start : first.file_start]
    breaks = list(_BREAK.finditer(gap))
    kept = gap[: breaks[-1].start()]
    rest = program.text[last.file_end :].split("\n", 1)[0]
    if "\\" in kept.split("#", 1)[0] and rest.strip() == "\\":
        return Edit(start + breaks[-1].end(), last.file_end + len(rest) + 1, "")
    if kept[: breaks[0].start()].endswith("\\"):
        kept = kept[: breaks[0].start() - 1].rstrip(" \t") + kept[breaks[0].start() :]
    return Edit(start, last.file_end, kept)
