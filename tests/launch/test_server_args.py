"""The engine's record of its arguments, whole, cut and hostile."""

import ast
import re
import string
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from logtriage.launch import parse_server_args, server_args
from tests.steps import executed_lines

RECORDS = Path(__file__).parent / "server_args"
RELEASES = ("0.4.9", "0.5.9", "0.5.15", "0.5.23")


def line_of(release: str) -> str:
    return (RECORDS / f"{release}.txt").read_text(encoding="utf-8")


def parsed(text: str) -> dict[str, object]:
    record = parse_server_args(text)
    assert record is not None
    return record


def literal_arguments(line: str) -> dict[str, object]:
    """The same line read by Python's own parser: every argument that is a literal."""
    text = line.split("server_args=", 1)[1].strip()
    tree = ast.parse(text, mode="eval").body
    if isinstance(tree, ast.Dict):
        whole = ast.literal_eval(tree)
        assert isinstance(whole, dict)
        return whole
    assert isinstance(tree, ast.Call)
    found: dict[str, object] = {}
    for keyword in tree.keywords:
        if not any(isinstance(node, ast.Call) for node in ast.walk(keyword.value)):
            found[str(keyword.arg)] = ast.literal_eval(keyword.value)
    return found


@pytest.mark.parametrize("release", RELEASES)
def test_a_genuine_record_reads_as_python_reads_it(release: str) -> None:
    record = parsed(line_of(release))
    expected = literal_arguments(line_of(release))
    assert {name: record.get(name) for name in expected} == expected
    assert len(record) - len(expected) in {0, 1}


def test_the_settings_of_the_genuine_starts_are_known() -> None:
    assert parsed(line_of("0.4.9"))["tp_size"] == 8
    assert parsed(line_of("0.5.9"))["attention_backend"] == "torch_native"
    assert parsed(line_of("0.5.15"))["model_path"] == "/models/tiny-qwen3"
    assert parsed(line_of("0.5.23"))["mem_fraction_static"] == 0.05


def test_a_value_that_is_no_literal_stays_text() -> None:
    config = parsed(line_of("0.5.15"))["cuda_graph_config"]
    assert isinstance(config, str)
    assert config.startswith("CudaGraphConfig(decode=PhaseConfig(backend=")
    assert config.endswith("full_prefill_max_req=None))")


def test_reprs_of_objects_are_kept_and_do_not_disturb_what_follows() -> None:
    line = (
        "server_args=ServerArgs(mode=<Mode.NULL: 'a, b'>, path=PosixPath('/m/x'), "
        "call=<function f at 0x7f>, nested={'k': <X.Y: 1>, <X.Z: 2>: [PosixPath('/y')]}, tp_size=4)"
    )
    assert parse_server_args(line) == {
        "mode": "<Mode.NULL: 'a, b'>",
        "path": "PosixPath('/m/x')",
        "call": "<function f at 0x7f>",
        "nested": {"k": "<X.Y: 1>", "<X.Z: 2>": ["PosixPath('/y')"]},
        "tp_size": 4,
    }


def test_every_sort_of_literal_is_read() -> None:
    line = (
        "[2026-02-03 04:05:06 TP0] server_args={'a': 'it\\'s', \"b\": \"say \\\"hi\\\"\", 'c': -1, "
        "'d': 0.875, 'e': 1e-05, 'f': None, 'g': True, 'h': False, 'i': [1, [2]], 'j': (), 'k': (1,), "
        "'l': {}, 'm': {'x', 'x'}, 'n': b'\\xff', "
        "'o': '\\u00e9\\n'} trailing words"
    )
    assert parse_server_args(line) == {
        "a": "it's",
        "b": 'say "hi"',
        "c": -1,
        "d": 0.875,
        "e": 1e-05,
        "f": None,
        "g": True,
        "h": False,
        "i": [1, [2]],
        "j": (),
        "k": (1,),
        "l": {},
        "m": ["x", "x"],
        "n": "ÿ",
        "o": "é\n",
    }


@pytest.mark.parametrize(
    "line",
    [
        "",
        "server_args",
        "server_args=<ServerArgs object at 0x7f>",
        "server_args=Other(tp_size=8)",
        "my_server_args={'tp_size': 8}",
        "The server is fired up and ready to roll!",
    ],
)
def test_a_line_without_a_record_gives_nothing(line: str) -> None:
    assert parse_server_args(line) is None


def test_a_number_at_the_cut_is_left_out_and_a_closed_string_is_not() -> None:
    assert parse_server_args("server_args=ServerArgs(a='x', port=300") == {"a": "x"}
    assert parse_server_args("server_args=ServerArgs(a=1, b='x'") == {"a": 1, "b": "x"}
    assert parse_server_args("server_args=ServerArgs(a=1, b='x") == {"a": 1}
    assert parse_server_args("server_args=ServerArgs(a=1, b=[1, 2") == {"a": 1}
    assert parse_server_args("server_args=ServerArgs(a=1, b=Tru") == {"a": 1}
    assert parse_server_args("server_args=ServerArgs(a=1, b") == {"a": 1}


@pytest.mark.parametrize("release", RELEASES)
def test_a_cut_record_never_says_anything_the_whole_one_does_not(release: str) -> None:
    line = line_of(release).rstrip("\n")
    whole = parsed(line)
    start = line.index("server_args=") + len("server_args=ServerArgs(")
    sizes = []
    for end in range(start, len(line), 37):
        part = parsed(line[:end])
        assert {name: whole[name] for name in part} == part
        sizes.append(len(part))
    assert sizes == sorted(sizes)
    assert sizes[-1] >= len(whole) - 2


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(string.ascii_letters, min_size=1), inner, max_size=3)
    ),
    max_leaves=8,
)
names = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)


@given(st.dictionaries(names, values, max_size=6))
def test_what_python_prints_is_read_back(record: dict[str, object]) -> None:
    keywords = ", ".join(f"{name}={value!r}" for name, value in record.items())
    assert parse_server_args(f"[10:00:00] server_args={record!r}") == record
    assert parse_server_args(f"[10:00:00] server_args=ServerArgs({keywords})") == record


@given(st.text("server_args=ServerArgs({'\"\\x0:,<>()[]}- \0", max_size=60))
def test_garbage_is_never_an_error(text: str) -> None:
    record = parse_server_args("server_args={'a': 1, " + text)
    assert record is not None
    assert set(map(type, record)) <= {str}


HOSTILE: Final = (
    ("", "{", ""),
    ("", "{'a':", ""),
    ("", "[(", ""),
    ("", "<(", ""),
    ("x", "'\\", ""),
    ("", "'\\'", ""),
    ("", "-", "1)"),
    ("", "9", ")"),
    ("", " ", ")"),
    ("1, ", "b=", "1)"),
    ("", "'a", ""),
)
ODD: Final = ("'\0')", "007, b=1)", "'\\ud800')", "'\\N{nothing of this name}')")


def hostile(start: str, unit: str, end: str, count: int) -> str:
    return f"server_args=ServerArgs(a={start}{unit * count}{end}"


@pytest.mark.parametrize("parts", [*HOSTILE, *(("", odd, "") for odd in ODD)], ids=repr)
@pytest.mark.parametrize("count", [1, 300_000])
def test_hostile_values_never_raise(parts: tuple[str, str, str], count: int) -> None:
    record = parse_server_args(hostile(*parts, count))
    assert record is not None
    assert str(record).encode("utf-8")


@pytest.mark.parametrize("parts", HOSTILE, ids=repr)
def test_hostile_values_cost_no_more_than_their_length(parts: tuple[str, str, str]) -> None:
    few, many = (executed_lines(partial(parse_server_args, hostile(*parts, count))) for count in (500, 2_000))
    assert many < 5 * few + 1_000  # linear is 4, the square would be 16


def test_no_pattern_gives_back_what_it_took() -> None:
    patterns = [each.pattern for each in vars(server_args).values() if isinstance(each, regex.Pattern)]
    assert len(patterns) >= 5
    for pattern in patterns:
        # Without classes of characters, what is escaped, and the repeats that keep what they have.
        bare = re.sub(r"\\.", "x", re.sub(r"\[(?:\\.|[^\]])*\]", "x", pattern))
        assert not set("*+") & set(re.sub(r"[*+]\+", "", bare)), pattern


def test_reading_stops_at_the_size_limit() -> None:
    record = parsed("server_args=ServerArgs(a=1, " + "b='x', " * 200_000 + "c=3)")
    assert record == {"a": 1, "b": "x"}
