"""What a file starts: its servers, the options that reach them, and where each of these is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import regex

from logtriage.errors import Location, PatchError
from logtriage.launch import flag_arity
from logtriage.remediation.source import line_of
from logtriage.remediation.words import Expansion, Part, Word

__all__ = ["ArgumentList", "Flag", "Launch", "Program", "Variable", "flags_of", "is_flag", "refusal"]

_FLAG: Final = regex.compile(r"-{1,2}[A-Za-z][^\s=]*+")


@attrs.frozen(eq=False)
class Variable:
    """An assignment ``NAME=value``.

    Attributes:
        name: The name.
        value: The value, where it stands.
        words: The words to take out to undo it; two for ``-e NAME=value``.
        before: The word before these, if any.
        exported: The server gets it in its environment.
        alone: It is a command, or a setting, of its own.
    """

    name: str
    value: Part
    words: tuple[Word, ...]
    before: Word | None = None
    exported: bool = False
    alone: bool = False


@attrs.frozen(eq=False)
class ArgumentList:
    """Words that become arguments of the server.

    Attributes:
        words: The words, in order.
        before: The word before the first, if there is one.
    """

    words: tuple[Word, ...]
    before: Word | None = None


@attrs.frozen(eq=False)
class Flag:
    """One option of a command line.

    Attributes:
        name: The option as written.
        value: Its value, or the first of several; ``None`` without one.
        words: All words of it.
        arguments: The list it stands in.
        index: The index of its first word there.
    """

    name: str
    value: Part | None
    words: tuple[Word, ...]
    arguments: ArgumentList
    index: int


@attrs.frozen(eq=False)
class Launch:
    """A command that starts a server.

    Attributes:
        arguments: Its own arguments first, then those that come from arrays and variables.
        words: All words of the outermost command.
        at: Where the statement begins in the file, for a line to be put before it.
        leads_line: A line may be put there.
        cut: Where it ends although its author meant it to go on; ``None`` if nowhere.
        in_array: The words stand in an array that is run elsewhere.
        known: It names a known server; else it is only the likeliest command.
    """

    arguments: tuple[ArgumentList, ...]
    words: tuple[Word, ...]
    at: int
    leads_line: bool = False
    cut: int | None = None
    in_array: bool = False
    known: bool = True

    def flags(self) -> list[Flag]:
        """Every option that reaches the server, from whichever list."""
        return [flag for arguments in self.arguments for flag in flags_of(arguments)]


@attrs.frozen(eq=False)
class Program:
    """What a file starts, and with what.

    Attributes:
        text: The file.
        path: Its name.
        launches: The commands that start a server.
        variables: Assignments by name.
        elsewhere: Other files that variables may come from.
    """

    text: str
    path: str
    launches: tuple[Launch, ...]
    variables: Mapping[str, tuple[Variable, ...]]
    elsewhere: tuple[str, ...] = ()

    def refuse(self, reason: str, at: int | None = None) -> PatchError:
        """The error that names *reason* and the line of the character *at*."""
        return refusal(reason, self.text, self.path, at)

    def flags(self) -> list[Flag]:
        """Every option of every launch, each place once."""
        found: dict[int, Flag] = {}
        for launch in self.launches:
            for flag in launch.flags():
                found.setdefault(flag.words[0].file_start, flag)
        return list(found.values())

    def value_of(self, flag: Flag) -> str | None:
        """The value an option has, variables of this file put in."""
        if flag.value is None:
            return None
        more = flag.words[2:] if flag.value.word is not flag.words[0] else ()
        return " ".join(self.resolve(part) for part in [flag.value, *map(Part.whole, more)])

    def values_of(self, flag: Flag) -> frozenset[str | None]:
        """The values an option may have: several if a variable is assigned in several places."""
        if flag.value is not None and (expansion := flag.value.variable()):
            known = self.variables.get(expansion.name, ())
            if len(known) > 1:
                return frozenset(self.resolve(item.value) for item in known)
        return frozenset({self.value_of(flag)})

    def resolve(self, part: Part, seen: tuple[str, ...] = ()) -> str:
        """The text of *part* with those variables put in that have one value in this file."""
        text = part.text
        for expansion in sorted(part.expansions, key=lambda expansion: -expansion.start):
            start, end = expansion.start - part.start, expansion.end - part.start
            if start >= 0 and end <= part.end - part.start:
                text = text[:start] + self._expand(part.word, expansion, seen) + text[end:]
        return text

    def _expand(self, word: Word, expansion: Expansion, seen: tuple[str, ...]) -> str:
        known = self.variables.get(expansion.name, ())
        if len(known) == 1 and expansion.name not in seen:
            return self.resolve(known[0].value, (*seen, expansion.name))
        if expansion.default and (not known or expansion.name in seen):
            return word.text[slice(*expansion.default)]
        return word.text[expansion.start : expansion.end]

    def literal(self, part: Part, old: str | None, what: str, seen: tuple[str, ...] = ()) -> Part:
        """Find the place where the text of *part* is written out: itself, an assignment or a default.

        Args:
            part: The value.
            old: What it should be now; tells apart several assignments.
            what: What the value is of, for the error.
            seen: The variables on the way here.

        Raises:
            PatchError: It is not written in this file, or at several places.
        """
        if not part.expansions:
            return part
        expansion, at = part.variable(), part.word.file_start
        if expansion is None:
            raise self.refuse(f"the value of {what} is put together from {part.text}", at)
        known = self.variables.get(expansion.name, ()) if expansion.name not in seen else ()
        if not known and expansion.default is not None:
            return self._default(part, expansion, old, what)
        if not known:
            places = f" (perhaps in {', '.join(self.elsewhere)})" if self.elsewhere else ""
            reason = f"the value of {what} is {part.text}, which is set outside this file{places}"
            raise self.refuse(reason, at)
        matching = [item for item in known if old is not None and self.resolve(item.value) == old]
        if len(known) > 1 and len(matching) != 1:
            lines = ", ".join(str(line_of(self.text, item.words[0].file_start)) for item in known)
            raise self.refuse(f"the value of {what} is {part.text}, which is assigned on lines {lines}", at)
        chosen = known[0] if len(known) == 1 else matching[0]
        return self.literal(chosen.value, old, what, (*seen, expansion.name))

    def _default(self, part: Part, expansion: Expansion, old: str | None, what: str) -> Part:
        """The text after ``:-``, if the failing value came from it."""
        default = Part(part.word, *(expansion.default or (0, 0)))
        if old is not None and default.text != old:
            reason = f"the value of {what} was {old}, which is not the default in {part.text}"
            raise self.refuse(reason, part.word.file_start)
        return default


def flags_of(arguments: ArgumentList) -> list[Flag]:
    """Read the options of an argument list, as the server's parser will.

    An unknown option takes the word after it, unless that is an option too.
    """
    found: list[Flag] = []
    index, words = 0, arguments.words
    while index < len(words):
        word = words[index]
        if not is_flag(word):
            index += 1
            continue
        name, equals, _ = word.text.partition("=")
        if equals:
            value = Part(word, len(name) + 1, len(word.text))
            found.append(Flag(name, value, (word,), arguments, index))
            index += 1
            continue
        end = index + 1 + _count_values(name, words, index + 1)
        first = Part.whole(words[index + 1]) if end > index + 1 else None
        found.append(Flag(name, first, words[index:end], arguments, index))
        index = end
    return found


def is_flag(word: Word) -> bool:
    """Whether the word begins an option."""
    return _FLAG.match(word.text) is not None


def _count_values(name: str, words: Sequence[Word], start: int) -> int:
    """How many words from *start* on are values of the option."""
    arity = flag_arity(name)
    end = start
    while end < len(words) and not is_flag(words[end]) and not _expands_to_list(words[end]):
        end += 1
    values = end - start
    return {"none": 0, "many": values}.get(arity or "", min(values, 1))


def _expands_to_list(word: Word) -> bool:
    expansion = word.variable()
    return (expansion is not None and expansion.array) or word.text in {"$@", "$*", "${@}"}


def refusal(reason: str, text: str, path: str, at: int | None = None) -> PatchError:
    """The error for the file *path* that names *reason* and the line of the character *at*."""
    key = f"line {line_of(text, at)}" if at is not None else "$"
    return PatchError(reason, location=Location(Path(path), key))
