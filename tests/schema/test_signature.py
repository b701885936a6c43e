"""From the bytes of a signature file to the value, and every defect with its place."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
import re2  # type: ignore[import-untyped]
import regex
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from logtriage.model import Change, Condition, FramePattern, Remediation, Signature, Variant
from logtriage.schema.signature import build_signature, content_defects, outside_re2, parse_content
from tests.signature_files import HEAD, MATCH, REMEDIATION, WHOLE

SCHEMA = Path(__file__).parents[2] / "logtriage" / "schema" / "signature-v1.schema.json"
FULL = (
    HEAD.replace(
        'role = "initiating"', 'role = "initiating"\nconfidence = "likely"\nconstraint = "Not proven."'
    )
    + """\
references = ["https://example.org/1"]
related = ["sglang.attention.other"]
next_steps = ["Read the line above."]
[match]
frame = { file = "layers/registry.py", innermost = true }
[[match.variant]]
name = "first"
literals = ["a", "b"]
pattern = '''Got (?P<backend>\\w+)'''
source_line = "assert x"
exceptions = ["torch.AcceleratorError"]
[requires]
phases = ["init", "capture"]
context = ["NCCL WARN"]
server_args = { attention_backend = ["fa3", "*"], tp_size = [8], enable_dp_attention = [true] }
release = ">=0.5.3,<0.6"
flags = ["--trust-remote-code"]
[excludes]
phases = ["serve"]
[[remediation]]
title = "Lower it"
applicability = "review"
side_effects = "Slower."
steps = ["Restart."]
references = ["https://example.org/2"]
when = { release = "<0.5.10" }
changes = [
  { op = "set-flag", name = "--mem-fraction-static", value = "lower", adjust = -0.05 },
  { op = "unset-env", name = "FOO" },
]
"""
)


def defects(text: str) -> list[tuple[str, str]]:
    content, found = parse_content(text.encode())
    assert found == []
    return content_defects(content)


def test_every_field_of_the_file_is_in_the_value() -> None:
    content, found = parse_content(FULL.encode())
    assert (found, content_defects(content)) == ([], [])
    assert build_signature(content) == Signature(
        id="sglang.attention.wrong-backend",
        revision=2,
        title="Backend {backend} does not serve this model",
        status="stable",
        level="fatal",
        category="config.attention-backend",
        owner="sglang",
        role="initiating",
        confidence="likely",
        cause="The engine was given {backend}.",
        constraint="Not proven.",
        frame=FramePattern("layers/registry.py", innermost=True),
        variants=(
            Variant(
                "first",
                ("a", "b"),
                r"Got (?P<backend>\w+)",
                "assert x",
                exceptions=("torch.AcceleratorError",),
            ),
        ),
        requires=Condition(
            server_args=(
                ("attention_backend", ("fa3", "*")),
                ("tp_size", ("8",)),
                ("enable_dp_attention", ("True",)),
            ),
            context=("NCCL WARN",),
            phases=("init", "capture"),
            release=">=0.5.3,<0.6",
            flags=("--trust-remote-code",),
        ),
        excludes=Condition(phases=("serve",)),
        remediations=(
            Remediation(
                "Lower it",
                "review",
                changes=(
                    Change("set-flag", "--mem-fraction-static", "lower", adjust=-0.05),
                    Change("unset-env", "FOO"),
                ),
                steps=("Restart.",),
                side_effects="Slower.",
                references=("https://example.org/2",),
                when=Condition(release="<0.5.10"),
            ),
        ),
        next_steps=("Read the line above.",),
        references=("https://example.org/1",),
        related=("sglang.attention.other",),
    )


def test_the_value_holds_no_list_so_that_it_can_be_compared_and_hashed() -> None:
    content, _ = parse_content(FULL.encode())
    assert len({build_signature(content), build_signature(content)}) == 1


def test_a_minimal_file_takes_the_defaults_of_the_values() -> None:
    content, _ = parse_content(WHOLE.encode())
    signature = build_signature(content)
    assert signature.kinds == ("traceback",)
    assert signature.exceptions == ("AssertionError",)
    assert (signature.confidence, signature.constraint) == ("certain", "")
    assert signature.requires == signature.excludes == Condition()
    assert signature.variants[0].proof == "source"


CHANGE = 'op = "set-flag", name = "--attention-backend", value = "triton"'
PATTERN = "$.match.variant[0].pattern"
# An edit of the whole file, and what is then wrong where.  An edit of "" appends.
DEFECTS = [
    ('"fatal"', '"fatl"', "$.level", "'fatl' is not one of ['warning', 'error', 'fatal']"),
    ('title = "Backend {backend} does not serve this model"\n', "", "$", "'title' is a required property"),
    ("revision = 2", 'revision = "2"', "$.revision", "'2' is not of type 'integer'"),
    ("revision = 2", "revision = 0", "$.revision", "0 is less than the minimum of 1"),
    ("revision = 2", "revision = 2\ncolour = 1", "$", "'colour' was unexpected"),
    (
        "config.attention-backend",
        "config.attention-backends",
        "$.category",
        "mean 'config.attention-backend'",
    ),
    ("config.attention-backend", "zzzz", "$.category", "'zzzz' is not one of the 59 known values"),
    ('"The engine was given {backend}."', '" "', "$.cause", "' ' is not a non-empty text"),
    ("attention.wrong-backend", "Wrong", "$.id", "'sglang.Wrong' is not an id: names in kebab-case"),
    (MATCH, "", "$", "'match' is a required property"),
    ('"traceback"', '"crash"', "$.match.events[0]", "'crash' is not one of"),
    ('"AssertionError"', '"a b"', "$.match.exceptions[0]", "'a b' is not an exception class"),
    ("literals =", "literal =", "$.match.variant[0]", "'literal' was unexpected"),
    ("literals = [", "literals = 'x' #", "$.match.variant[0].literals", "'x' is not of type 'array'"),
    ('proof = "source"', 'proof = "rumour"', "$.match.variant[0].proof", "'rumour' is not one of"),
    ("", "[requires]\nrelease = '0.5.3'", "$.requires.release", "'0.5.3' is not a version specifier"),
    ("", "[requires]\nphases = ['boot']", "$.requires.phases[0]", "'boot' is not one of"),
    ("", "[excludes]\nflags = ['tp']", "$.excludes.flags[0]", "'tp' is not a flag with its dashes"),
    ("", "[requires.server_args]\ndtype = 'half'", "$.requires.server_args.dtype", "is not of type 'array'"),
    ('"safe"', '"certain"', "$.remediation[0].applicability", "'certain' is not one of"),
    (
        '"--att',
        '"att',
        "$.remediation[0].changes[0].name",
        "'attention-backend' is not a flag with its dashes",
    ),
    ('"set-flag"', '"set"', "$.remediation[0].changes[0].op", "'set' is not one of"),
    (CHANGE, 'op = "set-env", name = "A"', "$.remediation[0].changes[0]", "'value' is a required property"),
    (
        CHANGE,
        'op = "require-version", name = "sglang", value = "newest"',
        "$.remediation[0].changes[0].value",
        "'newest' is not a version specifier such as",
    ),
    (
        CHANGE,
        'op = "install", name = "ninja", adjust = 1',
        "$.remediation[0].changes[0].op",
        "'install' is not one of ['set-flag', 'set-env']",
    ),
    (REMEDIATION, "", "$", "needs a remediation, or next_steps where nothing can be changed"),
    (
        REMEDIATION,
        '[[match.variant]]\nname = "one-name"\nliterals = ["x"]\n' + REMEDIATION,
        "$.match.variant[1].name",
        "'one-name' is the name of another variant",
    ),
    (r"\w+)", r"\w+", PATTERN, "is not a regular expression: missing )"),
    (r"\w+)", r"\w+)(?!x)", PATTERN, "uses look-around, which is outside the RE2 subset"),
    ("Use triton instead of {backend}", "Use {x}", "$.remediation[0].title", "{x} is captured by no variant"),
    ("was given {backend}", "was given {other}", "$.cause", "{other} is captured by no variant"),
    ('"triton"', '"{best}"', "$.remediation[0].changes[0].value", "{best} is captured by no variant"),
    (
        "rationale =",
        'steps = ["ps", "kill {pid}"]\nrationale =',
        "$.remediation[0].steps[1]",
        "{pid} is captured",
    ),
]


@pytest.mark.parametrize(("old", "new", "place", "reason"), DEFECTS)
def test_each_kind_of_defect_is_found_at_its_place(old: str, new: str, place: str, reason: str) -> None:
    text = WHOLE.replace(old, new) if old else f"{WHOLE}{new}\n"
    assert text != WHOLE
    found = defects(text)
    assert [where for where, _ in found] == [place]
    assert reason in found[0][1]


def test_a_variant_that_asks_for_nothing_is_a_defect() -> None:
    match = '[match]\nevents = ["traceback"]\n[[match.variant]]\nname = "any"\n'
    text = HEAD.replace("{backend}", "x") + match + REMEDIATION.replace("{backend}", "x")
    assert defects(text) == [
        (
            "$.match.variant[0]",
            "needs literals, a pattern, a source_line, exceptions or a frame: it fits every event",
        )
    ]


def test_all_defects_of_a_file_are_found_in_one_run() -> None:
    text = (
        WHOLE.replace('"fatal"', '"fatl"').replace('"safe"', '"sure"').replace("revision = 2", "revision = 0")
    )
    assert [place for place, _ in defects(text)] == [
        "$.level",
        "$.remediation[0].applicability",
        "$.revision",
    ]


def test_variables_of_the_shell_are_not_taken_for_captures() -> None:
    text = WHOLE.replace("The message names it.", "See ${HOME} and { print }.")
    assert defects(text) == []


@pytest.mark.parametrize(
    ("raw", "place", "reason"),
    [
        (b'id = "a"\ntitle "b"\n', "line 2", "after a key"),
        (b'id = "a"\nid = "b"\n', "line 2", "overwrite"),
        (b'id = "a"\n\ntitle = """b\n', "line 3", "at the end of the file"),
        (b'id = "a"\ntitle = "\xff"\n', "line 2", "is not UTF-8"),
        (b"x = " + b"[" * 9000, "$", "is nested too deeply"),
    ],
)
def test_a_file_that_is_not_toml_says_on_which_line(raw: bytes, place: str, reason: str) -> None:
    content, found = parse_content(raw)
    assert content == {}
    assert [where for where, _ in found] == [place]
    assert reason in found[0][1]


# Each with whether RE2 takes it, which the next test asks RE2 itself.
PATTERNS = {
    r"Got (?P<name>\w+)": None,
    r"(?i:error) [0-9a-f]{1,16}": None,
    r"a{1000}": None,
    r"[(?=] \\1 \(\?! x": None,
    r"[]\\] \[ [^]] (?:a|b)+?": None,
    r"\p{Greek}\bx\B[[:alpha:]]*": None,
    r"\d+ \{[a-z]+\}": None,
    r"(?s)a.b": None,
    r"a(?=b)": "look-around",
    r"a(?!b)": "look-around",
    r"(?<=a)b": "look-around",
    r"(?<!a)b": "look-around",
    r"(a)\1": "a back-reference",
    r"(?P<x>a)(?P=x)": "a back-reference",
    r"(?P<x>a)\g<x>": "a back-reference",
    r"(?>a+)b": "an atomic group or a possessive quantifier",
    r"a++b": "an atomic group or a possessive quantifier",
    r"(a)?(?(1)b|c)": "a conditional, a recursion, a branch reset or a comment",
    r"(?#why)a": "a conditional, a recursion, a branch reset or a comment",
    r"(?x) a b": "a flag other than i, m and s",
    r"a\Z": "an escape of Python's",
    r"\N{DIGIT ONE}": "an escape of Python's",
    r"(?:abc){e<=1}": "fuzzy matching",
    r"a{1001}": "more than 1000 repetitions",
    r"a{1,2000}": "more than 1000 repetitions",
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_lies_outside_re2_is_named(pattern: str) -> None:
    assert regex.compile(pattern) is not None
    assert outside_re2(pattern) == PATTERNS[pattern]


def re2_takes(pattern: str) -> bool:
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error:
        return False
    return True


@pytest.mark.parametrize("pattern", PATTERNS)
def test_re2_itself_agrees(pattern: str) -> None:
    # RE2 reads {e<=1} as plain text, so there the two engines differ without an error.
    expected = PATTERNS[pattern] in (None, "fuzzy matching")
    assert re2_takes(pattern) is expected


ATOMS = st.sampled_from(
    [
        "a",
        r"\w",
        r"\\",
        "[^]x]",
        "(?:",
        "(",
        ")",
        "*",
        "+",
        "?",
        "|",
        "=",
        "!",
        "(?=",
        "(?<!",
        r"\1",
        r"\(",
        "{2}",
    ]
)


@given(st.lists(ATOMS, max_size=8).map("".join))
def test_a_pattern_that_passes_the_check_passes_re2(pattern: str) -> None:
    try:
        regex.compile(pattern)
    except regex.error:
        return
    # RE2 alone refuses a quantifier upon a quantifier ("a**"), which regex takes for "a*" or refuses too.
    assert outside_re2(pattern) is not None or re2_takes(pattern) or regex.search(r"[*+?}][*?{]", pattern)


def test_the_example_of_the_documentation_has_no_defect_and_shows_every_key() -> None:
    page = (SCHEMA.parents[2] / "docs" / "signatures.md").read_text(encoding="utf-8")
    example = page.partition("```toml\n")[2].partition("```")[0]
    content, found = parse_content(example.encode())
    assert (found, content_defects(content)) == ([], [])
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert set(content) == set(schema["properties"])
    assert set(content["requires"]) == set(schema["$defs"]["condition"]["properties"])
    assert set(content["remediation"][0]) == set(schema["$defs"]["remediation"]["properties"])


def test_the_schema_is_a_valid_schema() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert Draft202012Validator.META_SCHEMA["$id"] == schema["$schema"]
    assert list(Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(schema)) == []


@pytest.mark.parametrize(
    ("definition", "value"),
    [("variant", Variant), ("condition", Condition), ("change", Change), ("remediation", Remediation)],
)
def test_the_schema_names_the_fields_of_the_values(definition: str, value: type[attrs.AttrsInstance]) -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    fields = {field.name for field in attrs.fields(value)}
    # These two are only known once a log is at hand.
    assert set(schema["$defs"][definition]["properties"]) == fields - {"old", "patch"}
