"""A string that may come from a log goes in; one that is safe to show comes out.

Control characters and secrets are removed before anything is stored; every renderer does it once
more on what it shows, so that one forgotten place upstream does not become a leak.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from logtriage.model import Diagnosis, Match, Redaction
from logtriage.redaction import clean, redact, redact_arguments, redact_mapping

__all__ = ["MAX_TEXT", "Fence", "shorten"]

# More of a message than this is a dump; its first lines say what happened, its last ones how it ended.
MAX_TEXT: Final = 4000
# A brace after a dollar is a variable of the shell, not a capture.
_PLACEHOLDER: Final = re.compile(r"(?<!\$)\{([A-Za-z_]\w{0,63})\}")


def shorten(text: str, limit: int = MAX_TEXT) -> str:
    """Cut the middle out of a text that is longer than *limit* characters.

    >>> shorten("abcdefghijkl", 8)
    'abcdef … [4 characters left out] … kl'
    """
    if len(text) <= limit:
        return text
    tail = limit // 4
    return f"{text[: limit - tail]} … [{len(text) - limit} characters left out] … {text[-tail:]}"


class Fence:
    """Cleans what one diagnosis shows, and counts the secrets it had to remove."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def _count(self, counts: Mapping[str, int]) -> None:
        for kind, count in counts.items():
            self._counts[kind] = self._counts.get(kind, 0) + count

    def text(self, text: str, limit: int = MAX_TEXT) -> str:
        """*text* without control characters and secrets, at most about *limit* characters."""
        # Cut generously before looking for secrets, so that a huge text costs no time.  The cut may
        # halve a secret, so the final cut lies well inside.
        shown, counts = redact(clean(shorten(text, max(4 * limit, 4096))))
        self._count(counts)
        return shorten(shown, limit)

    def optional(self, text: str | None, limit: int = MAX_TEXT) -> str | None:
        """As :meth:`text`; ``None`` stays ``None``."""
        return None if text is None else self.text(text, limit)

    def filled(self, text: str, match: Match | None) -> str:
        """*text* with ``{name}`` replaced by what the pattern captured under that name."""
        captures = dict(match.captures) if match else {}
        return self.text(_PLACEHOLDER.sub(lambda found: captures.get(found[1], found[0]), text))

    def patch(self, patch: str) -> str:
        """A diff without secrets; every other byte stays, so that it can still be applied."""
        shown, counts = redact(patch)
        self._count(counts)
        return shown

    def shown_patch(self, patch: str) -> str:
        """A diff to be read, not applied: control characters are removed from it as well."""
        return self.patch(clean(patch))

    def arguments(self, arguments: Iterable[str]) -> list[str]:
        """A command line, word by word."""
        words, counts = redact_arguments(arguments)
        self._count(counts)
        return [shorten(word) for word in words]

    def mapping(self, mapping: Mapping[str, object]) -> dict[str, object]:
        """Named values of a server."""
        values, counts = redact_mapping(mapping)
        self._count(counts)
        return values

    def redacted(self, diagnosis: Diagnosis) -> tuple[Redaction, ...]:
        """What was removed upstream and here, by kind."""
        counts = dict(self._counts)
        for removed in diagnosis.redacted:
            counts[removed.kind] = counts.get(removed.kind, 0) + removed.count
        return tuple(Redaction(kind, count) for kind, count in sorted(counts.items()) if count)
