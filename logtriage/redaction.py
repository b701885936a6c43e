"""Text from a log goes in; text without control characters and without secrets comes out.

Secrets are found by the *name* that introduces them (a flag, a field, a variable, a header) or by
the shape that issuers give their tokens.

Laws: both functions are idempotent, and take time linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from logtriage.secret_names import MARK, PROSE, is_harmless, marker, secret_kind, split_words

__all__ = ["clean", "marker", "redact", "redact_arguments", "redact_mapping", "secret_kind"]

# --- control characters ---------------------------------------------------------------------------

# ECMA-48: CSI, then the string sequences (OSC, DCS, SOS, PM, APC), then the short ones.  A string
# sequence ends on its own line: an unterminated one must not hide the lines after it.  None holds
# the start of another, which keeps the search linear.
_CONTROL: Final = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x80-\x9f\n]*(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b[ -/]*[0-~]"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    # Bidirectional controls, zero-width and other invisible characters, line separators.
    "|[\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    r"""Remove what a terminal would obey instead of show.

    Args:
        text: Any text; line breaks and tabs stay.

    Returns:
        *text* without escape sequences (each removed whole), control characters, bidirectional
        controls and zero-width characters; bytes that were no UTF-8 become U+FFFD.

    >>> clean("\x1b[1;31mfatal\x1b[0m\r\n")
    'fatal\n'
    """
    if text.isprintable():
        return text
    return _SURROGATE.sub("\ufffd", _CONTROL.sub("", text))


# --- names and their values -----------------------------------------------------------------------

_ANCHOR: Final = re.compile(r"key|token|passw|passphrase|pwd|secret|credential|authorization", re.IGNORECASE)
_NAME_END: Final = re.compile(r"[\w-]{0,64}")
_NAME_CHARACTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
_QUOTE: Final = r"\\{0,4}[\"']"
_GAP: Final = r"[ \t]{0,16}"
_NEXT_LINE: Final = r"\r?\n[+\- ]?[ \t]{0,128}"  # a line break, and the first column of a diff

_ASSIGNED: Final = re.compile(rf"(?P<close>{_QUOTE})?{_GAP}(?P<sign>=>|:=|=(?!=)|:(?![:/])){_GAP}")
# ("api_key", "…")  and  {"name": "HF_TOKEN", "value": "…"}
_LISTED: Final = re.compile(
    rf"{_QUOTE}{_GAP},(?:[ \t]{{0,64}}|{_NEXT_LINE})(?:{_QUOTE}value{_QUOTE}{_GAP}:{_GAP})?(?=b?{_QUOTE})"
)
# - name: HF_TOKEN, and the value on the line below
_BELOW: Final = re.compile(rf"[\"']?[ \t]{{0,16}}{_NEXT_LINE}value:[ \t]{{0,16}}")
_FLAG_VALUE: Final = re.compile(rf"(?:{_QUOTE})?(?:[ \t]{{1,64}}(?:\\{_NEXT_LINE})?|\\{_NEXT_LINE})")
_FLAG_BELOW: Final = re.compile(rf"[\"']?,?[ \t]{{0,64}}{_NEXT_LINE}(?:-[ \t]{{1,8}})?")

_BARE_WORDS: Final = frozenset({"token", "secret", "secrets", "credential", "credentials"})
_OPEN: Final = re.compile(rf"[bBrRuUfF]{{0,2}}({_QUOTE})")
_QUOTED: Final = {quote: re.compile(rf"[^{quote}\\\n]*(?:\\.[^{quote}\\\n]*)*") for quote in "'\""}
_BARE: Final = re.compile(r"[^\s\"'`]+")
_BARE_IN_QUERY: Final = re.compile(r"[^\s\"'`&#]+")
_SCHEME: Final = re.compile(r"(?:bearer|basic|token|digest)[ \t]{1,16}", re.IGNORECASE)


class _Redactor:
    """One text and the spans of its secrets."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.spans: list[tuple[int, int, str]] = []

    def names(self) -> None:
        """Find secrets by the name before them."""
        text, done = self.text, 0
        for anchor in _ANCHOR.finditer(text):
            if anchor.start() < done:
                continue
            found = _NAME_END.match(text, anchor.end())
            end = found.end() if found else anchor.end()
            before = text[max(done, anchor.start() - 64) : anchor.start()]
            start = anchor.start() - (len(before) - len(before.rstrip(_NAME_CHARACTERS)))
            done = end
            name = text[start:end]
            kind = secret_kind(name)
            if kind is not None:
                done = max(done, self._value(name, kind, start, end))

    def _value(self, name: str, kind: str, start: int, end: int) -> int:
        """Mark the value of the name at *start*; return where to go on."""
        text = self.text
        compound = len(split_words(name)) > 1 or name.startswith("--")
        if found := _ASSIGNED.match(text, end):
            # "Unexpected token: x" is prose; "token": "x" and token=x are not.
            if found["sign"] == ":" and not found["close"] and name.lower() in _BARE_WORDS:
                return end
            opener = "" if found["close"] or start == 0 else text[start - 1]
            return self._mark(name, kind, found.end(), opener=opener)
        if compound or kind == "password" or name.lower() == "authorization":
            found = _LISTED.match(text, end) or (_BELOW.match(text, end) if compound else None)
            if found:
                return self._mark(name, kind, found.end())
        if name.startswith("-"):
            found = _FLAG_VALUE.match(text, end)
            if found is None and self._alone(start):
                found = _FLAG_BELOW.match(text, end)
            if found:
                return self._mark(name, kind, found.end(), flag=True)
        return end

    def _alone(self, start: int) -> bool:
        """Whether only list marks stand before the flag on its line: the value is then the next item."""
        line = self.text.rfind("\n", max(0, start - 160), start) + 1
        return not self.text[line:start].strip(" \t+-'\"")

    def _mark(self, name: str, kind: str, start: int, *, opener: str = "", flag: bool = False) -> int:
        if kind == "token" and (scheme := _SCHEME.match(self.text, start)):
            start = scheme.end()
        start, end, quoted = self._extent(start, opener)
        if kind == "token" and (scheme := _SCHEME.match(self.text, start, end)):
            start = scheme.end()
        if not quoted and (mark := MARK.match(self.text, start)) and mark.end() >= end:
            return mark.end()
        value = self.text[start:end]
        if flag and not quoted and (value.startswith("-") or value.lower() in PROSE):
            return start
        if not is_harmless(value, name, quoted=quoted):
            self.spans.append((start, end, kind))
            return end
        return start

    def _extent(self, start: int, opener: str) -> tuple[int, int, bool]:
        """Where the value that starts at *start* begins and ends, and whether it is quoted."""
        text = self.text
        line_end = text.find("\n", start)
        line_end = len(text) if line_end < 0 else line_end
        if opened := _OPEN.match(text, start):
            quote, start = opened[1], opened.end()
            if len(quote) == 1:
                body = _QUOTED[quote].match(text, start)
                return start, body.end() if body else line_end, True
            end = text.find(quote, start, line_end)
            return start, line_end if end < 0 else end, True
        if opener in ("'", '"') and opener:  # '--api-key=a b'
            end = text.find(opener, start, line_end)
            if end >= 0:
                return start, end, False
        bare = (_BARE_IN_QUERY if opener in ("?", "&") and opener else _BARE).match(text, start)
        if bare is None:
            return start, start, False
        return start, start + len(bare[0].rstrip(",;)]}>")), False

    def urls(self) -> None:
        """Find user names and passwords in URLs."""
        for found in _URL.finditer(self.text):
            if not MARK.fullmatch(found[1]):
                self.spans.append((*found.span(1), "url-userinfo"))

    def shapes(self) -> None:
        """Find tokens by their shape, and what follows ``Bearer``."""
        for found in _SHAPE.finditer(self.text):
            # Words that only begin like a token (sk-learn-…, hf_transformers…) have no digit or capital.
            body = found[0][3:]
            if len(body) >= 32 or not body.replace("-", "").replace("_", "").isalpha() or not body.islower():
                self.spans.append((*found.span(), _SHAPE_KIND.get(found[0][:3], "token")))
        for found in _BEARER.finditer(self.text):
            if found[1].lower() not in PROSE:
                self.spans.append((*found.span(1), "token"))

    def result(self) -> tuple[str, dict[str, int]]:
        """The text with every span replaced, and how many of each kind there were."""
        pieces: list[str] = []
        counts: dict[str, int] = {}
        done = 0
        for start, end, kind in _merged(self.spans):
            pieces += (self.text[done:start], marker(kind))
            counts[kind] = counts.get(kind, 0) + 1
            done = end
        return "".join((*pieces, self.text[done:])), dict(sorted(counts.items()))


def _merged(spans: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """The spans in order, those that overlap or touch made one."""
    merged: list[tuple[int, int, str]] = []
    for start, end, kind in sorted(spans, key=lambda span: (span[0], -span[1])):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]), merged[-1][2])
        elif end > start:
            merged.append((start, end, kind))
    return merged


_URL: Final = re.compile(r"://([^\s/?#\"'<>]{1,1024})@")
# The look-behind keeps a search from starting again inside one long word, which would cost the square.
_SHAPE: Final = re.compile(
    r"(?<![A-Za-z0-9_])(?:hf_[A-Za-z0-9]{16,}|api_org_[A-Za-z0-9]{16,}|gh[oprsu]_[A-Za-z0-9]{16,}"
    r"|github_pat_[A-Za-z0-9_]{16,}|A[KS]IA[A-Z0-9]{12,}|AIza[A-Za-z0-9_-]{30,})[A-Za-z0-9_]*"
    r"|(?<![\w-])(?:sk-[A-Za-z0-9_-]{16,}|glpat-[A-Za-z0-9_-]{16,}|nvapi-[A-Za-z0-9_-]{16,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}"
    r"|eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?)[A-Za-z0-9_]*"
)
_SHAPE_KIND: Final = dict.fromkeys(("sk-", "AKI", "ASI", "AIz", "nva"), "api-key")
_BEARER: Final = re.compile(r"(?<![A-Za-z0-9_])bearer[ \t]{1,16}([A-Za-z0-9._~+/=-]{6,})", re.IGNORECASE)
# Cheap tests that most lines fail, so that a line without a secret costs about a microsecond.
_NAME_HINTS: Final = ("key", "token", "passw", "passphrase", "pwd", "secret", "credential", "authorization")
_SHAPE_HINTS: Final = ("hf_", "sk-", "gho_", "ghp_", "ghr_", "ghs_", "ghu_", "_pat_", "akia", "asia", "aiza")
_MORE_SHAPE_HINTS: Final = ("glpat-", "nvapi-", "xox", "eyj", "bearer", "api_org_")


def redact(text: str) -> tuple[str, dict[str, int]]:
    """Replace secrets by marks such as ``[redacted:api-key]``.

    Args:
        text: One or more lines, without control characters (see :func:`clean`).

    Returns:
        The text without secrets, and how many of each kind were replaced.

    >>> redact("serve --api-key s3cr3t --max-total-tokens 4096")
    ('serve --api-key [redacted:api-key] --max-total-tokens 4096', {'api-key': 1})
    """
    folded = text.lower()
    redactor = _Redactor(text)
    if any(hint in folded for hint in _NAME_HINTS):
        redactor.names()
    if "://" in text and "@" in text:
        redactor.urls()
    if any(hint in folded for hint in _SHAPE_HINTS) or any(hint in folded for hint in _MORE_SHAPE_HINTS):
        redactor.shapes()
    return redactor.result() if redactor.spans else (text, {})


# --- values that are already taken apart ----------------------------------------------------------


def _count(into: dict[str, int], more: Mapping[str, int]) -> None:
    for kind, count in more.items():
        into[kind] = into.get(kind, 0) + count


def redact_arguments(arguments: Iterable[str]) -> tuple[tuple[str, ...], dict[str, int]]:
    """Redact a command line that is already split into words.

    Args:
        arguments: The words.

    Returns:
        As many words, without secrets, and how many of each kind were replaced.

    >>> redact_arguments(["--api-key", "s3cr3t", "--tp", "8"])
    (('--api-key', '[redacted:api-key]', '--tp', '8'), {'api-key': 1})
    """
    words: list[str] = []
    counts: dict[str, int] = {}
    flag = ""
    for word in arguments:
        kind = secret_kind(flag) if flag else None
        if kind and not word.startswith("--") and not is_harmless(word, flag, quoted=True):
            shown, more = marker(kind), {kind: 1}
        else:
            shown, more = redact(clean(word))
        flag = word if word.startswith("--") and "=" not in word else ""
        words.append(shown)
        _count(counts, more)
    return tuple(words), dict(sorted(counts.items()))


def redact_mapping(mapping: Mapping[str, object]) -> tuple[dict[str, object], dict[str, int]]:
    """Redact named values, such as the arguments a server printed at its start.

    Args:
        mapping: Names and values; values may hold further mappings and sequences.

    Returns:
        A copy without secrets and control characters, and how many of each kind were replaced.

    >>> redact_mapping({"api_key": "s3cr3t", "tp_size": 8})
    ({'api_key': '[redacted:api-key]', 'tp_size': 8}, {'api-key': 1})
    """
    counts: dict[str, int] = {}
    result = {clean(str(name)): _redact_value(str(name), value, counts) for name, value in mapping.items()}
    return result, dict(sorted(counts.items()))


def _redact_value(name: str, value: object, counts: dict[str, int]) -> object:
    if isinstance(value, Mapping):
        redacted, more = redact_mapping(value)
        _count(counts, more)
        return redacted
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
        return [_redact_value(name, item, counts) for item in items]
    if not isinstance(value, str):
        return value
    kind = secret_kind(name)
    if kind and not is_harmless(value, name, quoted=True):
        _count(counts, {kind: 1})
        return marker(kind)
    shown, more = redact(clean(value))
    _count(counts, more)
    return shown
