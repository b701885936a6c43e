"""The bytes of a signature file enter; its content leaves, and a Signature made of it, or all its defects.

Law: :func:`build_signature` is the only place that makes a Signature, so the value is the same whether the
content came from the TOML file or from a compiled bundle.
"""

from __future__ import annotations

import difflib
import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import regex

from logtriage.model import Change, Condition, FramePattern, Remediation, Signature, Variant

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

__all__ = ["Defect", "build_signature", "content_defects", "outside_re2", "parse_content"]

Content = Mapping[str, Any]
Defect = tuple[str, str]
"""Where in the file (a JSONPath or a line), and what is wrong there."""

_SCHEMA: Final = Path(__file__).with_name("signature-v1.schema.json")
_FEW: Final = 10
_REASON_LIMIT: Final = 300

# tomllib came with Python 3.11; what installs on 3.10 is the same parser under its older name.
_TOML_MODULE: Final = "tomllib" if sys.version_info >= (3, 11) else "tomli"
_TOML_PLACE: Final = regex.compile(r" \(at (?:(line \d+), (column \d+)|end of document)\)$")

# "${NAME}" is a variable of the shell or of systemd, not ours.
_TEMPLATE: Final = regex.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")
# An escaped character, a property or a whole character class: nothing in them is a construct.
_ATOM: Final = regex.compile(
    r"\\[pP]\{\^?\w+\}|\\[^A-Za-z0-9]|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*+\]", regex.DOTALL
)
_QUANTIFIER: Final = regex.compile(r"\{(\d*),?(\d*)\}")
_MOST_REPETITIONS: Final = 1000
# RE2 runs in linear time because it lacks these; what Python and RE2 spell differently is refused as well.
_OUTSIDE_RE2: Final = (
    (regex.compile(r"\(\?<?[=!]"), "look-around"),
    (regex.compile(r"\\[1-9gk]|\(\?P="), "a back-reference"),
    (regex.compile(r"\(\?>|[*+?}]\+"), "an atomic group or a possessive quantifier"),
    (regex.compile(r"\(\?[(|&R0-9#]|\(\?P[>&]"), "a conditional, a recursion, a branch reset or a comment"),
    (regex.compile(r"\(\?<[A-Za-z_]"), "a group named (?<name>…) instead of (?P<name>…)"),
    (regex.compile(r"\(\?[A-Za-z-]*[abefluxwLV]"), "a flag other than i, m and s"),
    (regex.compile(r"\\[GKLMmNRXhHuUZ]"), "an escape of Python's"),
    (regex.compile(r"\{[^{}]*[a-z<][^{}]*\}"), "fuzzy matching"),
)


def parse_content(raw: bytes) -> tuple[dict[str, Any], list[Defect]]:
    """Parse a signature file.

    Args:
        raw: Its bytes.

    Returns:
        The content, and nothing; or an empty content and the defect that ended the parse, its place a line.
    """
    toml = importlib.import_module(_TOML_MODULE)
    try:
        return toml.loads(raw.decode()), []
    except UnicodeDecodeError as error:
        return {}, [(_line(raw[: error.start]), "is not UTF-8")]
    except RecursionError:
        return {}, [("$", "is nested too deeply")]
    except toml.TOMLDecodeError as error:
        reason = _TOML_PLACE.sub("", str(error))
        place = _TOML_PLACE.search(str(error))
        if place is None or place[1] is None:
            return {}, [(_line(raw.rstrip()), f"{reason} at the end of the file")]
        return {}, [(place[1], f"{reason} ({place[2]})")]


def _line(before: bytes) -> str:
    """The line on which the bytes *before* end."""
    return f"line {before.count(10) + 1}"


def build_signature(content: Content) -> Signature:
    """Make the value of a signature file.

    Args:
        content: The parsed file, free of defects.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: *content* has another shape, as that of a damaged
            bundle may have.
    """
    rule = content["match"]
    optional = ("confidence", "cause", "constraint")
    frame = rule.get("frame")
    return Signature(
        **{name: content[name] for name in _REQUIRED},
        **{name: content[name] for name in optional if name in content},
        variants=tuple(_variant(variant) for variant in rule["variant"]),
        kinds=tuple(rule.get("events", ())),
        exceptions=tuple(rule.get("exceptions", ())),
        frame=None if frame is None else FramePattern(**frame),
        requires=_condition(content.get("requires", {})),
        excludes=_condition(content.get("excludes", {})),
        remediations=tuple(_remediation(remediation) for remediation in content.get("remediation", ())),
        next_steps=tuple(content.get("next_steps", ())),
        references=tuple(content.get("references", ())),
        related=tuple(content.get("related", ())),
    )


_REQUIRED: Final = ("id", "revision", "title", "status", "level", "category", "owner", "role")


def _frozen(content: Content) -> dict[str, Any]:
    """The same names with lists made tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}


def _variant(content: Content) -> Variant:
    return Variant(**_frozen(content))


def _condition(content: Content) -> Condition:
    parts = _frozen(content)
    parts["server_args"] = tuple(
        (name, tuple(str(value) for value in values)) for name, values in parts.get("server_args", {}).items()
    )
    return Condition(**parts)


def _remediation(content: Content) -> Remediation:
    parts = _frozen(content)
    parts["changes"] = tuple(Change(**change) for change in content.get("changes", ()))
    parts["when"] = _condition(content.get("when", {}))
    return Remediation(**parts)


def content_defects(content: Content) -> list[Defect]:
    """Find everything that is wrong with the content of a signature file.

    Args:
        content: The parsed file.

    Returns:
        Each defect with its place, in the order of the places.  What the schema cannot say (patterns,
        templates, names) is looked at only when the schema is satisfied.
    """
    return _schema_defects(content) or sorted(_meaning_defects(content))


def _schema_defects(content: Content) -> list[Defect]:
    # Imported late: it takes 0.23 s, and a run that loads a compiled bundle never needs it.
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(json.loads(_SCHEMA.read_text(encoding="utf-8")))
    return sorted((error.json_path, _reason(error)) for error in validator.iter_errors(content))


def _reason(error: ValidationError) -> str:
    """What the schema found, in words for the author of the file."""
    schema: Any = error.schema
    value: Any = error.instance
    if error.validator == "pattern" and "title" in schema:
        return f"{value!r} is not {schema['title']}"
    if error.validator == "enum" and len(schema["enum"]) > _FEW:
        near = difflib.get_close_matches(str(value), schema["enum"], n=3)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        return f"{value!r} is not one of the {len(schema['enum'])} known values{hint}"
    return error.message if len(error.message) <= _REASON_LIMIT else f"{error.message[:_REASON_LIMIT]}…"


def _meaning_defects(content: Content) -> Iterator[Defect]:
    """What the schema cannot say."""
    rule = content["match"]
    if not content.get("remediation") and not content.get("next_steps"):
        yield "$", "needs a remediation, or next_steps where nothing can be changed"
    names: set[str] = set()
    captures: set[str] = set()
    unreadable = False
    for index, variant in enumerate(rule["variant"]):
        place = f"$.match.variant[{index}]"
        if variant["name"] in names:
            yield f"{place}.name", f"{variant['name']!r} is the name of another variant"
        names.add(variant["name"])
        if not _asks_for_anything(rule, variant):
            yield (
                place,
                "needs literals, a pattern, a source_line, exceptions or a frame: it fits every event",
            )
        if "pattern" in variant:
            groups, reason = _read_pattern(variant["pattern"])
            captures.update(groups)
            if reason:
                unreadable = True
                yield f"{place}.pattern", reason
    if unreadable:
        return  # its captures are not known, and a template that names one is no defect of its own
    for place, text in _templates(content):
        for name in _TEMPLATE.findall(text):
            if name not in captures:
                yield place, f"{{{name}}} is captured by no variant"


def _asks_for_anything(rule: Content, variant: Content) -> bool:
    asked = ("literals", "pattern", "source_line", "exceptions")
    return any(name in variant for name in asked) or "exceptions" in rule or "frame" in rule


def _read_pattern(pattern: str) -> tuple[Sequence[str], str]:
    """The captures of a pattern, and why it cannot be used, or ``""``."""
    try:
        groups = list(regex.compile(pattern, regex.ASCII).groupindex)
    except (regex.error, RecursionError, OverflowError) as error:
        return [], f"is not a regular expression: {error}"
    outside = outside_re2(pattern)
    return groups, f"uses {outside}, which is outside the RE2 subset" if outside else ""


def outside_re2(pattern: str) -> str | None:
    r"""Name what a regular expression uses that RE2 does not have.

    Args:
        pattern: Compiles with :mod:`regex`.

    Returns:
        The first such construct in words, or ``None``.

    Source:
        RE2's syntax page.  This is a cheap check for the author of a file; the tests compile every shipped
        pattern with RE2 itself.

    >>> outside_re2(r"Got (?!triton)")
    'look-around'
    >>> outside_re2(r"[(?=] \\1 (?P<name>\w+)")
    """
    plain = _ATOM.sub("A", pattern)
    bounds = [int(bound[:9]) for pair in _QUANTIFIER.findall(plain) for bound in pair if bound]
    if max(bounds, default=0) > _MOST_REPETITIONS:
        return f"more than {_MOST_REPETITIONS} repetitions"
    return next((name for construct, name in _OUTSIDE_RE2 if construct.search(plain)), None)


def _templates(content: Content) -> Iterator[tuple[str, str]]:
    """Every text in which captures are replaced, with its place."""
    yield from _texts("$", content, ("title", "cause", "constraint", "next_steps"))
    for index, remediation in enumerate(content.get("remediation", ())):
        place = f"$.remediation[{index}]"
        yield from _texts(place, remediation, ("title", "rationale", "side_effects", "steps"))
        for number, change in enumerate(remediation.get("changes", ())):
            yield from _texts(f"{place}.changes[{number}]", change, ("value",))


def _texts(place: str, content: Content, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The texts under some names, each of which holds one text, several, or none."""
    for name in names:
        value = content.get(name, "")
        if isinstance(value, str):
            yield f"{place}.{name}", value
        else:
            yield from ((f"{place}.{name}[{index}]", text) for index, text in enumerate(value))
