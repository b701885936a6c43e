"""Folders of signature files enter; one Database leaves, or one error with every defect and its place.

Law: files are validated when a bundle is built, never when it is used.  The bundle is JSON, keyed by the
digest of the files it was built from; one that is missing, stale, damaged or not ours is built anew, and
where it cannot be written it is kept in memory.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from logtriage.errors import DatabaseError, Location, SignatureError
from logtriage.model import Signature
from logtriage.schema.bundle import BUNDLE_FORMAT, pack, unpack
from logtriage.schema.signature import build_signature, content_defects, parse_content

__all__ = [
    "BUNDLE_NAME",
    "DATABASE_VERSION",
    "Database",
    "build_bundle",
    "builtin_root",
    "find_defects",
    "load_database",
    "write_bundle",
]

DATABASE_VERSION: Final = "2026.12.1"
BUNDLE_NAME: Final = "bundle.json"
_FILE_NAME: Final = "signature.toml"
# Every change of a signature leaves one more bundle behind, and a person who writes signatures makes many.
_BUNDLES_KEPT: Final = 8


@attrs.frozen
class Database:
    """What is known, ready for matching.

    Attributes:
        version: Version of the built-in signatures.
        signatures: In the order of their ids.
        digest: Digest of all files they came from; differs when any of them differs.
    """

    version: str
    signatures: tuple[Signature, ...]
    digest: str


@attrs.frozen
class _Tree:
    """The signature files below one root.

    Attributes:
        root: The folder.
        files: Path below the root with slashes, and content; in the order of paths.
        defects: What could not be read.
    """

    root: Path
    files: tuple[tuple[str, bytes], ...]
    defects: tuple[SignatureError, ...] = ()

    @property
    def digest(self) -> str:
        """Depends on the paths below the root and the bytes, not on where the root is."""
        digest = hashlib.sha256(f"logtriage bundle {BUNDLE_FORMAT}\n".encode())
        for name, raw in self.files:
            digest.update(f"{len(raw)} {name}\n".encode(errors="surrogateescape"))
            digest.update(raw)
        return digest.hexdigest()


def load_database(*roots: Path | str) -> Database:
    """Load the built-in signatures and those of further folders.

    Args:
        roots: Overlays: a signature of theirs replaces the one with the same id before it.

    Returns:
        All signatures, in the order of their ids.

    Raises:
        DatabaseError: A folder or a file cannot be used; it holds every defect of every folder.
    """
    overlays = [_read_tree(Path(root), may_be_empty=False) for root in roots]
    trees = [_read_tree(builtin_root()), *overlays]
    signatures: dict[str, Signature] = {}
    defects: list[SignatureError] = []
    for tree in trees:
        loaded, found = _load(tree)
        signatures.update((signature.id, signature) for signature in loaded)
        defects += found
    if defects:
        raise DatabaseError(defects)
    digest = hashlib.sha256("\n".join(tree.digest for tree in trees).encode()).hexdigest()
    return Database(DATABASE_VERSION, tuple(signatures[name] for name in sorted(signatures)), digest)


def builtin_root() -> Path:
    """The folder of the built-in signatures: in the package if installed, else beside it in the source tree.

    An editable install does not map ``signatures/`` into the package, so both places are looked at.
    """
    package = Path(__file__).parent
    packaged = package / "_signatures"
    return packaged if packaged.is_dir() else package.parent / "signatures"


def find_defects(root: Path | str | None = None, *, check_logs: bool = True) -> tuple[SignatureError, ...]:
    """Check the files below one root, as their author wants it before publishing them.

    Args:
        root: The folder; ``None``: the built-in one.
        check_logs: Look at the logs beside each signature as well; an installed package has none.

    Returns:
        Every defect, in the order of files; empty if there is none.
    """
    tree = _read_tree(builtin_root() if root is None else Path(root))
    contents, defects = _read_contents(tree)
    if check_logs:
        defects += [defect for name, _ in tree.files for defect in _folder_defects((tree.root / name).parent)]
    defects += _related_defects(tree, contents)
    return tuple(sorted(defects, key=lambda defect: str(defect.location.path)))


def build_bundle(root: Path) -> bytes:
    """Validate the files below *root* and compile them.

    Args:
        root: A folder of signatures.

    Returns:
        The bundle: the same bytes for the same files, wherever they are.

    Raises:
        DatabaseError: A file has a defect.
    """
    tree = _read_tree(root)
    contents, defects = _read_contents(tree)
    if defects:
        raise DatabaseError(defects)
    return pack(contents, tree.digest)


def write_bundle(root: Path) -> Path:
    """Compile the files below *root* into a bundle in that folder, for a package to ship.

    Args:
        root: A folder of signatures.

    Returns:
        The file written.

    Raises:
        DatabaseError: A file has a defect.
        OSError: The bundle cannot be written.
    """
    path = root / BUNDLE_NAME
    _write(path, build_bundle(root))
    return path


def _read_tree(root: Path, *, may_be_empty: bool = True) -> _Tree:
    """Read the signature files below *root*; what cannot be read becomes a defect."""
    if not root.is_dir():
        return _Tree(root, (), (_defect(root, "$", "is not a folder"),))
    defects: list[SignatureError] = []
    files: list[tuple[str, bytes]] = []

    def report(error: OSError) -> None:
        defects.append(_defect(Path(error.filename), "$", f"cannot be read: {error.strerror}"))

    for folder, below, names in os.walk(root, onerror=report):
        below[:] = [name for name in below if not name.startswith(".")]
        if _FILE_NAME in names:
            path = Path(folder, _FILE_NAME)
            try:
                files.append((path.relative_to(root).as_posix(), path.read_bytes()))
            except OSError as error:
                report(error)
    if not files and not defects and not may_be_empty:
        defects.append(_defect(root, "$", f"holds no {_FILE_NAME} in any folder below it"))
    return _Tree(root, tuple(sorted(files)), tuple(defects))


def _load(tree: _Tree) -> tuple[tuple[Signature, ...], list[SignatureError]]:
    """The signatures of a tree, from a bundle if there is a good one, and the defects of its files."""
    digest = tree.digest
    cache = _cache_folder()
    cached = cache / f"bundle-{digest}.json" if cache and tree.files and not tree.defects else None
    if not tree.defects:
        signatures = unpack(_read(tree.root / BUNDLE_NAME), digest)
        if signatures is None and cached is not None and _is_ours(cached):
            signatures = unpack(_read(cached), digest)
        if signatures is not None:
            return signatures, []
    contents, defects = _read_contents(tree)
    if cached is not None and not defects:
        _keep(cached, pack(contents, digest))
    return tuple(map(build_signature, contents)), defects


def _read_contents(tree: _Tree) -> tuple[list[dict[str, Any]], list[SignatureError]]:
    """Parse and check every file of a tree; the contents are those without a defect."""
    contents: list[dict[str, Any]] = []
    defects = list(tree.defects)
    first: dict[str, str] = {}
    for name, raw in tree.files:
        path = tree.root / name
        content, found = parse_content(raw)
        found = found or content_defects(content)
        here = [_defect(path, place, reason) for place, reason in found]
        here += _id_defects(path, name, content.get("id"), first)
        defects += here
        if not here:
            contents.append(content)
    return contents, defects


def _id_defects(path: Path, name: str, given: object, first: dict[str, str]) -> Iterator[SignatureError]:
    """Compare an id with the path and with the ids before it."""
    if not isinstance(given, str):
        return
    wanted = name.removesuffix(_FILE_NAME).rstrip("/").replace("/", ".")
    if not wanted:
        yield _defect(
            path, "$.id", "has no path below the root: name the folder that holds the owners' folders"
        )
    elif given != wanted:
        yield _defect(path, "$.id", f"{given!r} differs from the path, which makes {wanted!r}")
    if given in first:
        yield _defect(path, "$.id", f"{given!r} is the id of {first[given]} too")
    first.setdefault(given, name)


def _folder_defects(folder: Path) -> Iterator[SignatureError]:
    """Check the files beside a signature."""
    names = sorted(path.name for path in folder.iterdir())
    for kind, meaning in (("match", "it must match"), ("near", "looks alike but must not match")):
        logs = [name for name in names if re.fullmatch(rf"{kind}\.[^.]+\.log", name)]
        if not logs:
            yield _defect(folder, "$", f"has no {kind}.<name>.log, a log that {meaning}")
        for name in logs:
            if not (folder / name).read_bytes().strip():
                yield _defect(folder / name, "line 1", "is empty")
    for name in names:
        if name.endswith(".log") and not re.fullmatch(r"(match|near)\.[^.]+\.log", name):
            yield _defect(folder / name, "$", "is neither match.<name>.log nor near.<name>.log")
        pair = re.fullmatch(r"launch\.(before|after)\.(.+)", name)
        other = pair and f"launch.{'after' if pair[1] == 'before' else 'before'}.{pair[2]}"
        if other and other not in names:
            yield _defect(folder / name, "$", f"has no {other} beside it")


def _related_defects(tree: _Tree, contents: Iterable[dict[str, Any]]) -> list[SignatureError]:
    """Find related ids that nobody has."""
    # An overlay may name a signature that it does not replace.
    trees = [tree] if tree.root == builtin_root() else [tree, _read_tree(builtin_root())]
    known = {
        name.removesuffix(f"/{_FILE_NAME}").replace("/", ".") for each in trees for name, _ in each.files
    }
    return [
        _defect(
            tree.root.joinpath(*content["id"].split("."), _FILE_NAME),
            f"$.related[{index}]",
            f"there is no signature {name!r}",
        )
        for content in contents
        for index, name in enumerate(content.get("related", ()))
        if name not in known
    ]


def _read(path: Path) -> bytes:
    """The content of a file that need not be there."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _is_ours(path: Path) -> bool:
    """Whether the user alone can have written a file: a bundle says which patch to propose."""
    try:
        status = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def _cache_folder() -> Path | None:
    """Where the user keeps what can be made anew; ``None`` if there is no such place."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # the XDG specification says that a relative one is to be ignored
        try:
            base = Path.home() / ".cache"
        except RuntimeError:
            return None
    return base / "logtriage" if base.is_absolute() else None


def _keep(path: Path, bundle: bytes) -> None:
    """Write a bundle into the cache, if that is possible, and remove the oldest ones."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(path, bundle)
        bundles = sorted(path.parent.glob("bundle-*.json"), key=lambda each: each.stat().st_mtime)
        for old in bundles[:-_BUNDLES_KEPT]:
            old.unlink()
    except OSError:
        # A read-only home, a full disk: the run has what it needs in memory.
        return


def _write(path: Path, raw: bytes) -> None:
    """Write a file so that a reader sees all of it or nothing."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_bytes(raw)
        part.chmod(0o644)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _defect(path: Path, key: str, reason: str) -> SignatureError:
    return SignatureError(reason, location=Location(path, key))
