"""Contents of signature files enter and one compiled bundle leaves, or the other way round.

Law: a bundle is JSON, says of which files it is, and is either whole or nothing: a damaged one is no error.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final

from logtriage.model import Signature
from logtriage.schema.signature import build_signature

__all__ = ["BUNDLE_FORMAT", "pack", "unpack"]

# Raise it whenever a bundle written before could be read wrongly now: a stricter schema, another layout.
BUNDLE_FORMAT: Final = 1


def pack(contents: Sequence[dict[str, Any]], digest: str) -> bytes:
    """Make a bundle.

    Args:
        contents: The parsed files, free of defects.
        digest: Digest of the files.

    Returns:
        One JSON value on two lines, the first of which holds the checksum of the second.
    """
    rest = json.dumps(contents, separators=(",", ":")).encode() + b"}\n"
    checksum = hashlib.sha256(rest).hexdigest()
    head = {"format": BUNDLE_FORMAT, "digest": digest, "checksum": checksum}
    return json.dumps(head)[:-1].encode() + b', "signatures":\n' + rest


def unpack(raw: bytes, digest: str) -> tuple[Signature, ...] | None:
    """Make the signatures of a bundle; nothing is validated but the checksum.

    Args:
        raw: The bundle.
        digest: Digest of the files it should be of.

    Returns:
        The signatures in the order they were packed; ``None`` if it is damaged, or a bundle of other files.
    """
    try:
        bundle = json.loads(raw)
        sound = (
            bundle["format"] == BUNDLE_FORMAT
            and bundle["digest"] == digest
            and bundle["checksum"] == hashlib.sha256(raw.partition(b"\n")[2]).hexdigest()
        )
        return tuple(map(build_signature, bundle["signatures"])) if sound else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
