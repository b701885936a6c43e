"""Small signature files and the trees that hold them, for tests of the database."""

from __future__ import annotations

from pathlib import Path

HEAD = """\
id = "sglang.attention.wrong-backend"
revision = 2
title = "Backend {backend} does not serve this model"
status = "stable"
level = "fatal"
category = "config.attention-backend"
owner = "sglang"
role = "initiating"
cause = "The engine was given {backend}."
"""
MATCH = """\
[match]
events = ["traceback"]
exceptions = ["AssertionError"]
frame = { file = "layers/registry.py", function = "choose" }
[[match.variant]]
name = "one-name"
literals = ["is not among the supported backends"]
pattern = '''Got (?P<backend>\\w+)'''
releases = "0.5.6-0.5.9"
proof = "source"
"""
REMEDIATION = """\
[[remediation]]
title = "Use triton instead of {backend}"
applicability = "safe"
rationale = "The message names it."
changes = [{ op = "set-flag", name = "--attention-backend", value = "triton" }]
"""
WHOLE = HEAD + MATCH + REMEDIATION
ID = "sglang.attention.wrong-backend"


def write_signature(root: Path, text: str = WHOLE, name: str = ID) -> Path:
    """Write a signature file into the folder that its id names.

    Args:
        root: Root of the tree.
        text: Content of the file.
        name: The id by which it is placed.

    Returns:
        The file.
    """
    path = root.joinpath(*name.split("."), "signature.toml")
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return path


def renamed(name: str, text: str = WHOLE) -> str:
    """The same signature under another id."""
    return text.replace(ID, name)
