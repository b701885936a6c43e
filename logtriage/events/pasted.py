r"""A line of a pasted traceback in, the line as it was printed out.

Law: only what a frame line proves to be damage is mended, so that a message may hold ``&quot;`` or ``\_`` of its own.

Source: HTML 5 (character references), CommonMark (backslash escapes).
"""

from __future__ import annotations

import html
from typing import Final

import regex

__all__ = ["Pasted"]

_ENTITY_FRAME: Final = regex.compile(r"(?:\s|&gt;|[>│|+]){0,200}File (?:&quot;|&\#0?34;|&\#x22;)")
_MARKDOWN_FRAME: Final = regex.compile(
    r"""
    (?:\s|\\?[>│|+]){0,200} File[ ] ["“] (?![A-Za-z]:\\)
    (?: [^"”\\]{0,1000} \\_ | [^"”]{0,1000} ["”],[ ]line[ ]\d+,[ ]in[ ] [^\\]{0,200} \\[_<*] )
    """,
    regex.VERBOSE,
)
_MARKDOWN: Final = regex.compile(r"\\(?P<sign>[\\`*_{}\[\]<>()#+.!|~-])")


class Pasted:
    """What was done to the lines of one traceback on their way.

    Attributes:
        entities: Quotes and angle brackets are HTML's.
        markdown: Underscores and stars are escaped.
    """

    def __init__(self) -> None:
        self.entities = False
        self.markdown = False

    def mend(self, text: str) -> str:
        r"""The line as it was printed.

        >>> Pasted().mend("  File &quot;a.py&quot;, line 3, in &lt;module&gt;")
        '  File "a.py", line 3, in <module>'
        >>> Pasted().mend(r'  File "a\_b.py", line 3, in \_\_init\_\_')
        '  File "a_b.py", line 3, in __init__'
        >>> Pasted().mend(r"ValueError: &quot;\_")
        'ValueError: &quot;\\_'
        """
        if "&" in text:
            self.entities = self.entities or _ENTITY_FRAME.match(text) is not None
            text = html.unescape(text) if self.entities else text
        if "\\" in text:
            self.markdown = self.markdown or _MARKDOWN_FRAME.match(text) is not None
            text = _MARKDOWN.sub(r"\g<sign>", text) if self.markdown else text
        return text
