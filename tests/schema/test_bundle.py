"""A bundle is whole or nothing."""

from __future__ import annotations

import json

import pytest

from logtriage.schema.bundle import pack, unpack
from logtriage.schema.signature import build_signature, parse_content
from tests.signature_files import WHOLE

CONTENT, _ = parse_content(WHOLE.encode())
BUNDLE = pack([CONTENT], "d1")


def test_a_signature_is_the_same_from_the_file_and_from_the_bundle() -> None:
    assert unpack(BUNDLE, "d1") == (build_signature(CONTENT),)


def test_a_bundle_is_json() -> None:
    bundle = json.loads(BUNDLE)
    assert bundle["digest"] == "d1"
    assert bundle["signatures"][0]["id"] == "sglang.attention.wrong-backend"


def test_a_bundle_of_other_files_is_refused() -> None:
    assert unpack(BUNDLE, "d2") is None


@pytest.mark.parametrize("length", range(0, len(BUNDLE) - 1, 37))
def test_a_truncated_bundle_is_refused(length: int) -> None:
    assert unpack(BUNDLE[:length], "d1") is None


def test_a_changed_byte_is_noticed_even_where_the_json_stays_valid() -> None:
    changed = BUNDLE.replace(b"triton", b"tritan")
    assert json.loads(changed) != json.loads(BUNDLE)
    assert unpack(changed, "d1") is None


@pytest.mark.parametrize(
    "raw",
    [b"", b"null", b"[]", b"7", b'"text"', b"{}", b'{"format": 1}', b"\xff\xfe", b"[" * 100_000],
    ids=["empty", "null", "list", "number", "text", "object", "half", "binary", "deep"],
)
def test_what_is_no_bundle_is_refused(raw: bytes) -> None:
    assert unpack(raw, "d1") is None


@pytest.mark.parametrize(
    "content", [{}, {"id": "x"}, {**CONTENT, "match": []}, {**CONTENT, "requires": 3}, 5]
)
def test_contents_of_another_shape_are_refused(content: object) -> None:
    assert unpack(pack([content], "d1"), "d1") is None  # type: ignore[list-item]
