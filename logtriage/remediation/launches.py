"""Commands of a script go in; the servers they start and the variables they set come out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import regex

from logtriage.remediation.program import ArgumentList, Launch, Variable, is_flag
from logtriage.remediation.shell import Array, Command, Script, ShellError, read_script
from logtriage.remediation.words import Part, Word

__all__ = [
    "arguments_from_variables",
    "launches_of",
    "likeliest_launch",
    "nested_launches",
    "program_of",
    "runs_program",
    "script_in",
    "start_of_arguments",
    "variables_before",
    "variables_of",
    "words_between_blanks",
]

_ASSIGNMENT: Final = regex.compile(r"([A-Za-z_]\w*+)\+?=")
_ENV_OPTION: Final = regex.compile(r"(?:-e|--env)(?:=?([A-Za-z_]\w*+)=)?")
_MODULE: Final = regex.compile(
    r"sglang\.launch_server|sglang\.srt\.server|sglang\.srt\.entrypoints\.\S+"
    r"|sglang_router\.launch_server|vllm\.entrypoints\.\S+"
)
_PROGRAM_FILE: Final = regex.compile(r"(?:\S*/)?(?:launch_server|api_server)\.py")
_SERVE_COMMANDS: Final = frozenset({"sglang", "vllm", "lmdeploy", "trtllm-serve"})
_LOOKS_NESTED: Final = regex.compile(r"sglang|vllm|lmdeploy|trtllm-serve|launch_server|api_server")
_RUNS_PROGRAM: Final = regex.compile(
    r"python[\d.]*|docker|podman|nerdctl|srun|mpirun|torchrun|ray|uv|poetry|conda|exec|nohup|env|time|timeout"
    r"|numactl|taskset|nice|ionice|stdbuf|sudo|setsid|tmux|screen|ssh|bash|sh|zsh|dash|su|xargs|eval|accelerate"
)
_EXPORTING: Final = frozenset({"export", "declare", "typeset", "local", "readonly"})
# Commands that only talk about a server.
_BYSTANDERS: Final = frozenset(
    {"echo", "printf", "pkill", "pgrep", "kill", "killall", "grep", "ps", "awk", "sed", "cat", "tail"}
    | {"head", "tee", "pip", "pip3", "which", "type", "curl", "test", "[", "[[", "trap", "cd"}
)
_MAX_DEPTH: Final = 4


def launches_of(script: Script, depth: int = 0) -> list[Launch]:
    """Find the servers that a script starts, directly or in the text it hands to another shell."""
    following = [*script.commands[1:], None]
    launches = [
        launch
        for command, after in zip(script.commands, following, strict=False)
        for launch in _launches_of(command, after, depth)
    ]
    for array in script.arrays:
        start = start_of_arguments(array.words)
        if start is not None:
            own = ArgumentList(array.words[start:], array.words[start - 1])
            launches.append(Launch((own,), array.words, array.words[0].file_start, in_array=True))
    return launches


def _launches_of(command: Command, following: Command | None, depth: int) -> list[Launch]:
    words = command.words
    if program_of(words) in _BYSTANDERS:
        return []
    nested = [launch for word in words for launch in nested_launches(word, depth)]
    if nested:
        # A line for the environment has to stand before the outermost statement.
        at, leads = words[0].file_start, command.leads_line
        return [Launch(inner.arguments, words, at, leads, inner.cut or command.cut) for inner in nested]
    start = start_of_arguments(words)
    if start is None:
        return []
    cut = command.cut
    if cut is None and following is not None and is_flag(following.words[0]):
        # A comment inside a continued command ended it; the options after it run as a command of their own.
        cut = following.words[0].file_start
    own = ArgumentList(words[start:], words[start - 1])
    return [Launch((own,), words, words[0].file_start, command.leads_line, cut)]


def likeliest_launch(script: Script) -> list[Launch]:
    """The only command with options, where no command names a known server."""
    found = [command for command in script.commands if _may_be_server(command)]
    if len(found) != 1:
        return []
    words, command = found[0].words, found[0]
    start = next((index for index, word in enumerate(words) if word.text.endswith(".py")), 0) + 1
    own = ArgumentList(words[start:], words[start - 1])
    return [Launch((own,), words, words[0].file_start, command.leads_line, command.cut, known=False)]


def _may_be_server(command: Command) -> bool:
    return runs_program(command) and any(is_flag(word) for word in command.words)


def runs_program(command: Command) -> bool:
    """Whether it runs an interpreter, a container or a known server, not just any word."""
    program = program_of(command.words)
    return _RUNS_PROGRAM.fullmatch(program) is not None or program in _SERVE_COMMANDS


def nested_launches(word: Word, depth: int = 0) -> list[Launch]:
    """Find the servers that a word starts when a shell runs its text, as after ``bash -c``."""
    script = script_in(word) if depth < _MAX_DEPTH else None
    return launches_of(script, depth + 1) if script else []


def script_in(word: Word, *, known: bool = True) -> Script | None:
    """Read the text of a word as a script, if it may start a server; *known*: a known one."""
    assigned = _ASSIGNMENT.match(word.text)
    start = assigned.end() if assigned else 0
    text = word.text[start:]
    if not any(blank in text.strip() for blank in " \n") or (known and not _LOOKS_NESTED.search(text)):
        return None
    try:
        return read_script(word.inside(start, len(word.text)))
    except ShellError:
        return None


def start_of_arguments(words: Sequence[Word]) -> int | None:
    """The index of the first argument to a known server; ``None`` if no known server is named."""
    for index, word in enumerate(words):
        if _MODULE.fullmatch(word.text) or _PROGRAM_FILE.fullmatch(word.text):
            return index + 1
        if word.text.rsplit("/", 1)[-1] in _SERVE_COMMANDS:
            if index + 1 < len(words) and words[index + 1].text == "serve":
                return index + 2
            if word.text.rsplit("/", 1)[-1] == "trtllm-serve":
                return index + 1
    return None


def program_of(words: Sequence[Word]) -> str:
    """The base name of the program a command runs."""
    for word in words:
        if not _ASSIGNMENT.match(word.text):
            return word.text.rsplit("/", 1)[-1]
    return ""


def variables_of(script: Script, depth: int = 0) -> Iterator[Variable]:
    """Find the assignments of a script, those in the text it hands to another shell included."""
    exported = _exported_names(script)
    for array in script.arrays:
        yield from variables_before(array.words)
    for command in script.commands:
        words, program = command.words, program_of(command.words)
        if program in _EXPORTING:
            marked = program == "export" or any("x" in w.text for w in words if w.text.startswith("-"))
            yield from _assignments(words, exported if not marked else None, alone=len(words) == 2)
        elif not program:
            yield from _assignments(words, exported, alone=len(words) == 1)
        elif program not in _BYSTANDERS:
            yield from variables_before(words)
        for word in words:
            inner = script_in(word) if depth < _MAX_DEPTH and program not in _BYSTANDERS else None
            if inner:
                yield from variables_of(inner, depth + 1)


def variables_before(words: Sequence[Word]) -> Iterator[Variable]:
    """Find what a command that starts a server puts into its environment, ``env A=1`` and ``-e A=1`` too."""
    start = start_of_arguments(words)
    if start is None and any(nested_launches(word) for word in words):
        start = len(words)
    yield from _assignments(words[: start or 0], None)


def _exported_names(script: Script) -> frozenset[str]:
    """Names exported without a value; ``*`` if the script exports all."""
    names: set[str] = set()
    for command in script.commands:
        texts = [word.text for word in command.words]
        if texts[0] == "export":
            names.update(texts[1:])
        elif texts[:2] == ["set", "-a"] or texts[:3] == ["set", "-o", "allexport"]:
            names.add("*")
    return frozenset(names)


def _assignments(
    words: Sequence[Word], exported: frozenset[str] | None, *, alone: bool = False
) -> Iterator[Variable]:
    """The words that assign; *exported* names those the server gets, ``None``: all."""
    for index, word in enumerate(words):
        previous = words[index - 1] if index else None
        option = _ENV_OPTION.match(word.text)
        found = _ASSIGNMENT.match(word.text)
        taken: tuple[Word, ...] = (word,)
        if option and option[1]:
            name, start = option[1], option.end()
        elif found:
            name, start = found[1], found.end()
            if previous and previous.text in {"-e", "--env"}:
                taken, previous = (previous, word), words[index - 2] if index > 1 else None
        else:
            continue
        given = exported is None or name in exported or "*" in exported
        yield Variable(name, Part(word, start, len(word.text)), taken, previous, given, alone)


def arguments_from_variables(
    arguments: ArgumentList, variables: Mapping[str, Sequence[Variable]], arrays: Sequence[Array]
) -> list[ArgumentList]:
    """Follow the words that are nothing but a variable to the arguments it holds."""
    found: list[ArgumentList] = []
    seen: set[str] = set()
    waiting = [arguments]
    while waiting:
        for word in waiting.pop(0).words:
            expansion = word.variable()
            if expansion is None or expansion.name in seen:
                continue
            seen.add(expansion.name)
            lists = [ArgumentList(array.words) for array in arrays if array.name == expansion.name]
            for variable in variables.get(expansion.name, ()):
                words = words_between_blanks(variable.value)
                if any(is_flag(word) for word in words):
                    lists.append(ArgumentList(words))
            found += lists
            waiting += lists
    return found


def words_between_blanks(part: Part) -> tuple[Word, ...]:
    """The words a variable falls into when it is used outside of quotes."""
    view = part.inside()
    words = []
    for found in regex.finditer(r"\S++", view.text):
        shift = part.start + found.start()
        expansions = tuple(
            expansion.shifted(-shift)
            for expansion in part.expansions
            if expansion.start >= shift and expansion.end <= shift + len(found[0])
        )
        spans = tuple((at, at + 1) for at in range(found.start(), found.end()))
        marks = "b" * len(found[0])
        words.append(Word(view, found.start(), found.end(), "blanks", found[0], spans, marks, expansions))
    return tuple(words)
