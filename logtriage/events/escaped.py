r"""One line in, the traceback that a JSON or repr escape put into it out.

Law: only the value of a log's own field is a traceback.  What stands in a request, a response or a prompt is
somebody's text, whatever the name of the innermost field.

Source: RFC 8259 section 7, Python's ``repr``, rsyslog's ``$EscapeControlCharactersOnReceive`` (``#012``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
import regex

from logtriage.events.traceback_text import CHAINS, HEADER, is_quotation

__all__ = ["unescape"]

_MAX_LINES: Final = 2_000
_MAX_BEFORE: Final = 300
_SENTENCES: Final = frozenset(f"{sentence}:" for sentence in CHAINS)
_MAX_LEVELS: Final = 4
"""Escapes inside each other that are undone: a collector's, a logger's, a launcher's, and one to spare."""

_BREAK: Final = regex.compile(r"(?P<slashes>\\{1,8})(?:r\\{1,8})?n|(?P<octal>#012)")
_ESCAPE: Final = regex.compile(r"\\(?:u(?P<code>[0-9a-fA-F]{4})|x(?P<byte>[0-9a-fA-F]{2})|(?P<sign>.))", regex.DOTALL)
_SIGNS: Final = {"n": "\n", "r": "", "t": "\t", "b": "\b", "f": "\f"}
_TOKEN: Final = regex.compile(
    r"""
    (?P<whole> "(?:[^"\\]|\\.)*" | (?<![\w\\])'(?:[^'\\]|\\.)*'(?!\w) )
    | (?P<open> " | (?<![\w\\])' ) | (?P<opens> [{\[(] ) | (?P<closes> [}\])] )
    """,
    regex.VERBOSE | regex.DOTALL,
)
_KEY: Final = regex.compile(r"""(?P<key>[\w.-]{1,80})["']?\s{0,3}[:=]\s{0,3}[bfru]?$""")
_NAME: Final = regex.compile(r"""(?P<key>[\w.-]{1,80})["']?\s{0,3}(?:[:=]\s{0,3})?$""")
_VALUE: Final = {quote: regex.compile(rf"(?:[^{quote}\\]|\\.)*", regex.DOTALL) for quote in "'\""}
_LOG_KEY: Final = regex.compile(
    r"msg|message|log|line|event|reason|details?|error|err|exc|exc_info|exception|traceback|stack_?(?:trace)?",
    regex.IGNORECASE,
)
_SOMEBODYS: Final = regex.compile(
    r"""
    (?: .*[._-] )? (?: prompts? | contents? | messages | inputs? | texts? | request | req | payload | body | query
      | obj | params | arguments | role | response | resp | reply | output | outputs | completion | choices
      | tool_calls | document | documents )
    """,
    regex.VERBOSE | regex.IGNORECASE,
)
"""Fields of requests and responses."""

_LEADS_TO_TEXT: Final = regex.compile(
    r"\b(?:prompt|payload|body|inputs?|completion|params|query)\W*$", regex.IGNORECASE
)
"""Text before a header: somebody's own words follow."""

_LEADS_TO_OBJECT: Final = regex.compile(
    r"""
    \b (?: prompt | payload | request | req | body | inputs? | response | reply | completion | params | query | sent
      | received | data ) \W* $
    | \b 4\d\d [ ]? [:-]? [ ]? (?: Bad[ ]Request | Unauthorized | Forbidden | Not[ ]Found | Unprocessable | Conflict
      | Payload[ ]Too | Content[ ]Too | Too[ ]Many | Client[ ]Error )
    | Bad[ ]Request \W* $ | Error[ ]code: [ ] 4\d\d \b | \b (?: HTTP | status ) (?: [ _]code)? [:= ]{1,3} 4\d\d \b
    | HTTP/\d (?: \.\d )? "? [ ] 4\d\d \b
    """,
    regex.VERBOSE | regex.IGNORECASE,
)
"""Text before an object: a request, an answer, or the answer to a bad request follows."""

_CLIENT_ERROR: Final = regex.compile(r"""["'](?:code|status|status_code)["']\s{0,3}:\s{0,3}["']?4\d\d\b""")


def unescape(text: str) -> Sequence[str]:
    r"""Undo the escape that put a traceback into one line.

    Args:
        text: The line, with a header in it.

    Returns:
        The lines of the traceback: the header with what announces it, or an exception that led to it, first.
        None if it stands in a field that is no log's, or if no escaped line break follows.

    >>> unescape('{"msg": "x hit an exception: Traceback (most recent call last):\\nKeyError: 1", "level": 1}')
    ['x hit an exception: Traceback (most recent call last):', 'KeyError: 1']
    >>> unescape('400 Bad Request: {"error": {"message": "Traceback (most recent call last):\\nKeyError: 1"}}')
    []
    """
    head, _, body = text.partition(HEADER)
    mark = _BREAK.match(body)
    if mark is None:
        return []
    if mark["octal"]:
        return [] if _LEADS_TO_TEXT.search(head[-_MAX_BEFORE:]) else _lines(head, body, "#012")
    levels = len(mark["slashes"]).bit_length()
    if levels > _MAX_LEVELS:
        return []
    place = _place_of(head, levels)
    if not _is_a_logs(head, place):
        return []
    for _ in range(levels - 1):
        body = _once(body)
    value = body[: _end_of(body, place.quote)]
    if place.quote and _CLIENT_ERROR.search(f"{head[-2_000:]} {body[len(value) : len(value) + 2_000]}"):
        return []
    return _lines(_once(place.inside), _once(value), "\n")


def _lines(inside: str, value: str, separator: str) -> list[str]:
    """The lines from the one that begins the traceback."""
    before = inside.split(separator)
    led = [number for number, line in enumerate(before) if line.strip() in _SENTENCES]
    start = max(led[0] - 2, 0) if led else len(before) - 1
    announced = before[-1].lstrip(" '\":=")[-_MAX_BEFORE:]
    after = value.split(separator)[1:_MAX_LINES]
    return [line.rstrip("\r") for line in (*before[start:-1], f"{announced}{HEADER}", *after)]


def _end_of(text: str, quote: str) -> int:
    """Where a string ends."""
    found = _VALUE[quote].match(text) if quote else None
    return found.end() if found else len(text)


@attrs.frozen
class _Place:
    """Where a header stands in structured text.

    Attributes:
        keys: The names of the fields around it, outermost first; ``None`` where a value has no name.
        leads: The text before the first object, of the line and of each string inside it.
        inside: The text before it in its own string.
        quote: What opened that string, or ``""``.
    """

    keys: tuple[str | None, ...]
    leads: tuple[str, ...]
    inside: str
    quote: str


def _place_of(head: str, levels: int) -> _Place:
    """Follow the strings and brackets that are open at the end of *head*."""
    keys: list[str | None] = []
    leads: list[str] = []
    quote = ""
    for level in range(levels):
        around, opened = _open_string(head)
        if opened is None:
            break
        keys += [*around, _name(_KEY, head, opened)]
        leads.append(head[: head.find("{")] if "{" in head else head[:opened])
        quote, head = head[opened], head[opened + 1 :]
        if level < levels - 1:
            head = _once(head)
    return _Place(tuple(keys), tuple(leads), head, quote)


def _open_string(head: str) -> tuple[list[str | None], int | None]:
    """The names of the open brackets, and where a string begins that does not end."""
    around: list[str | None] = []
    for token in _TOKEN.finditer(head):
        if token["open"]:
            return around, token.start()
        if token["opens"]:
            around.append(_name(_NAME, head, token.start()))
        elif token["closes"] and around:
            around.pop()
    return [], None


def _name(pattern: regex.Pattern[str], head: str, at: int) -> str | None:
    """The name of the value that begins at *at*."""
    found = pattern.search(head[max(at - 100, 0) : at])
    return found["key"] if found else None


def _is_a_logs(head: str, place: _Place) -> bool:
    """Whether the place is a field of a log, not one of a request or of an answer."""
    if _LEADS_TO_TEXT.search(place.inside[-_MAX_BEFORE:]):
        return False
    if not place.quote:
        return not is_quotation(head)
    if any(_LEADS_TO_OBJECT.search(lead[-_MAX_BEFORE:]) for lead in place.leads):
        return False
    if any(key is not None and _SOMEBODYS.fullmatch(key) for key in place.keys):
        return False
    key = place.keys[-1]
    return _LOG_KEY.fullmatch(key) is not None if key is not None else len(head) == 1


def _once(text: str) -> str:
    """Undo one escape."""
    return _ESCAPE.sub(_plain, text) if "\\" in text else text


def _plain(found: regex.Match[str]) -> str:
    if found["code"] or found["byte"]:
        code = int(found["code"] or found["byte"], 16)
        return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)
    return _SIGNS.get(found["sign"], found["sign"])
