"""A patch goes in; the unified diff comes out that ``git apply`` and ``patch -p1`` both take.

The line breaks of the file are kept byte for byte, and a last line without
one is marked as such: ``difflib`` alone gets that wrong, and ``git`` then
calls the patch corrupt.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

from logtriage.model import Patch

__all__ = ["unified_diff"]

_CONTEXT: Final = 3
# Comparing all lines with all others is quadratic, and worse where many are the same.
_MAX_SEARCH: Final = 1_000_000
_NO_NEW_LINE: Final = "\n\\ No newline at end of file\n"
_Opcode = tuple[str, int, int, int, int]


def unified_diff(patch: Patch) -> str:
    r"""Write a patch as a unified diff, with ``a/`` and ``b/`` before a path that is made relative.

    Returns:
        The diff; the empty string if the patch changes nothing.

    >>> print(unified_diff(Patch("run.sh", "serve --tp 8", "serve --tp 4", "shell-script")), end="")
    --- a/run.sh
    +++ b/run.sh
    @@ -1 +1 @@
    -serve --tp 8
    \ No newline at end of file
    +serve --tp 4
    \ No newline at end of file
    """
    if patch.before == patch.after:
        return ""
    before, after = _lines(patch.before), _lines(patch.after)
    old = "/dev/null" if patch.creates else _label("a", patch.path)
    head = [f"--- {old}\n", f"+++ {_label('b', patch.path)}\n"]
    hunks = [line for group in _grouped(_opcodes(before, after)) for line in _hunk(group, before, after)]
    return "".join(head + hunks)


def _opcodes(before: Sequence[str], after: Sequence[str]) -> list[_Opcode]:
    """What to do to *before*; lines that both begin and end with are not searched for matches."""
    shorter = min(len(before), len(after))
    start = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    left = shorter - start
    same = next((at for at in range(left) if before[-1 - at] != after[-1 - at]), left)
    old, new = before[start : len(before) - same], after[start : len(after) - same]
    if len(old) * len(new) > _MAX_SEARCH:
        inner: list[_Opcode] = [("replace", 0, len(old), 0, len(new))]
    else:
        inner = list(SequenceMatcher(None, old, new, autojunk=False).get_opcodes())
    codes: list[_Opcode] = [("equal", 0, start, 0, start)]
    codes += [(tag, a + start, b + start, c + start, d + start) for tag, a, b, c, d in inner]
    codes.append(("equal", len(before) - same, len(before), len(after) - same, len(after)))
    return [code for code in codes if code[1:] != (code[1], code[1], code[3], code[3])]


def _grouped(codes: Sequence[_Opcode]) -> Iterator[list[_Opcode]]:
    """Cut at equal stretches too long to be shown, and shorten those at the ends."""
    group: list[_Opcode] = []
    for index, (tag, a, b, c, d) in enumerate(codes):
        if tag != "equal":
            group.append((tag, a, b, c, d))
            continue
        is_last = index == len(codes) - 1
        if group and (is_last or b - a > 2 * _CONTEXT):
            yield [*group, (tag, a, min(b, a + _CONTEXT), c, min(d, c + _CONTEXT))]
            group = []
        if not is_last:
            lead = min(b - a, _CONTEXT) if not group else b - a
            group.append((tag, b - lead, b, d - lead, d))
    if group and any(code[0] != "equal" for code in group):
        yield group


def _lines(text: str) -> list[str]:
    """Cut at line feeds only: ``splitlines`` would also cut at form feeds and lone carriage returns."""
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last] if last else [])


def _hunk(group: Sequence[_Opcode], before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    first, last = group[0], group[-1]
    yield f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@\n"
    for tag, start, end, new_start, new_end in group:
        if tag == "equal":
            yield from (_marked(" ", line) for line in before[start:end])
            continue
        yield from (_marked("-", line) for line in before[start:end])
        yield from (_marked("+", line) for line in after[new_start:new_end])


def _range(start: int, end: int) -> str:
    """A range of lines; an empty one names the line before it."""
    length = end - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


def _marked(mark: str, line: str) -> str:
    return mark + (line if line.endswith("\n") else line + _NO_NEW_LINE)


def _label(side: str, path: str) -> str:
    """Name the file; ``git`` wants a tab after a name with blanks, and quotes around odd characters."""
    relative = posixpath.normpath(path).lstrip("/")
    name = f"{side}/{relative}"
    if any(character < " " or character in '"\\\x7f' for character in name):
        escaped = "".join(_escaped(byte) for byte in name.encode("utf-8", "surrogateescape"))
        return f'"{escaped}"'
    return f"{name}\t" if " " in name else name


def _escaped(byte: int) -> str:
    character = chr(byte)
    if character in '"\\':
        return f"\\{character}"
    return character if 32 <= byte < 127 else f"\\{byte:03o}"
