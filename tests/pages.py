"""A page of the documentation in, its code, its tables and its sections out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

__all__ = ["PAGES", "TREE", "anchor", "code_words", "fences", "keys", "rows", "sections"]

TREE: Final = Path(__file__).parent.parent
PAGES: Final = [TREE / "README.md", TREE / "CONTRIBUTING.md", *sorted((TREE / "docs").glob("*.md"))]


def fences(page: Path, language: str) -> list[str]:
    """The code blocks in a language, those in lists without their indentation."""
    found = re.finditer(r"^( *)```(\w*)\n(.*?)^\1```$", page.read_text(), re.M | re.S)
    return [re.sub(rf"^{match[1]}", "", match[3], flags=re.M) for match in found if match[2] == language]


def prose(page: Path) -> str:
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.M | re.S)


def code_words(page: Path) -> list[str]:
    """What stands in backticks, a line break in it made a blank."""
    return [" ".join(word.split()) for word in re.findall(r"`([^`]+)`", prose(page))]


def sections(page: Path) -> dict[str, str]:
    """Each heading and the text up to the next one."""
    parts = re.split(r"^#{1,6} (.+)$", prose(page), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> list[list[str]]:
    """The cells of the tables in a text, without their heads."""
    cells = [
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line in text.splitlines()
        if line[:1] == "|"
    ]
    return [row for row in cells[1:] if not row[0].startswith("---")]


def keys(text: str) -> list[str]:
    return [row[0].strip("`") for row in rows(text)]


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
