"""Folders of signatures: overlays, defects with their places, bundles and where they are kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import logtriage.database
from logtriage.database import build_bundle, builtin_root, find_defects, load_database, write_bundle
from logtriage.errors import DatabaseError
from logtriage.schema.signature import content_defects
from tests.signature_files import ID, WHOLE, renamed, write_signature

OTHER = "torch.memory.other"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def builtin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A built-in tree of two signatures."""
    root = tmp_path / "builtin"
    write_signature(root)
    write_signature(root, renamed(OTHER), OTHER)
    monkeypatch.setattr(logtriage.database, "builtin_root", lambda: root)
    return root


@pytest.fixture
def validations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the files that were validated."""
    seen: list[str] = []

    def record(content: dict[str, object]) -> list[tuple[str, str]]:
        seen.append(str(content["id"]))
        return content_defects(content)

    monkeypatch.setattr(logtriage.database, "content_defects", record)
    return seen


def places(error: DatabaseError) -> list[tuple[str, str]]:
    return [(defect.location.path.parent.name, defect.location.key) for defect in error.defects]


def cached(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "logtriage").iterdir())


def test_signatures_come_in_the_order_of_their_ids(builtin: Path) -> None:
    write_signature(builtin, renamed("cuda.device.a"), "cuda.device.a")
    database = load_database()
    assert [signature.id for signature in database.signatures] == ["cuda.device.a", ID, OTHER]
    assert database.version == logtriage.database.DATABASE_VERSION


@pytest.mark.usefixtures("builtin")
def test_an_overlay_replaces_and_adds(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    write_signature(first, WHOLE.replace("revision = 2", "revision = 7"))
    write_signature(first, renamed("site.net.a"), "site.net.a")
    write_signature(second, WHOLE.replace("revision = 2", "revision = 8"))
    revisions = {each.id: each.revision for each in load_database(first, str(second)).signatures}
    assert revisions == {ID: 8, "site.net.a": 2, OTHER: 2}


def test_the_digest_tells_databases_apart_but_not_places(builtin: Path, tmp_path: Path) -> None:
    for name in ("here", "there"):
        write_signature(tmp_path / name, renamed("site.net.a"), "site.net.a")
    plain = load_database().digest
    overlaid = load_database(tmp_path / "here").digest
    assert overlaid == load_database(tmp_path / "there").digest != plain
    (builtin / "torch" / "memory" / "other" / "match.a.log").write_text("a log is not part of it")
    assert load_database().digest == plain


def test_defects_of_all_files_of_all_roots_are_raised_at_once(builtin: Path, tmp_path: Path) -> None:
    write_signature(builtin, renamed("a.b.syntax") + "\nid", "a.b.syntax")
    write_signature(builtin, renamed("a.b.level").replace("fatal", "fatl"), "a.b.level")
    overlay = tmp_path / "overlay"
    write_signature(overlay, renamed("a.b.name"), "a.b.other-name")
    with pytest.raises(DatabaseError) as caught:
        load_database(overlay, tmp_path / "missing")
    line = len(WHOLE.splitlines()) + 2
    assert places(caught.value) == [
        ("level", "$.level"),
        ("syntax", f"line {line}"),
        ("other-name", "$.id"),
        (tmp_path.name, "$"),
    ]
    text = str(caught.value)
    assert f"{builtin}/a/b/level/signature.toml: $.level: 'fatl' is not one of" in text
    assert "'a.b.name' differs from the path, which makes 'a.b.other-name'" in text
    assert f"{tmp_path}/missing: $: is not a folder" in text


def test_an_id_that_two_folders_make_is_a_defect_of_the_second(builtin: Path) -> None:
    twin = builtin / "sglang" / "attention.wrong-backend"
    twin.mkdir()
    (twin / "signature.toml").write_text(WHOLE)
    with pytest.raises(DatabaseError) as caught:
        load_database()
    assert str(caught.value) == (
        f"{builtin}/sglang/attention/wrong-backend/signature.toml: $.id: "
        "'sglang.attention.wrong-backend' is the id of sglang/attention.wrong-backend/signature.toml too"
    )


@pytest.mark.usefixtures("builtin")
def test_an_overlay_without_any_signature_is_a_defect(tmp_path: Path) -> None:
    (tmp_path / "empty" / ".git").mkdir(parents=True)
    (tmp_path / "empty" / ".git" / "signature.toml").write_text("hidden folders do not count")
    with pytest.raises(DatabaseError, match=r"holds no signature\.toml in any folder below it"):
        load_database(tmp_path / "empty")


def test_a_signature_folder_given_as_the_root_is_explained(builtin: Path) -> None:
    with pytest.raises(DatabaseError, match="has no path below the root"):
        load_database(builtin / "sglang" / "attention" / "wrong-backend")


def test_a_file_that_cannot_be_read_is_a_defect(builtin: Path) -> None:
    (builtin / "x" / "signature.toml").mkdir(parents=True)
    (builtin / "torch" / "memory" / "other" / "signature.toml").unlink()
    (builtin / "torch" / "memory" / "other" / "signature.toml").symlink_to("nowhere")
    with pytest.raises(DatabaseError) as caught:
        load_database()
    assert places(caught.value) == [("other", "$")]
    assert "cannot be read: No such file" in str(caught.value)


@pytest.mark.usefixtures("builtin")
def test_signatures_are_equal_whether_validated_or_from_a_bundle(validations: list[str]) -> None:
    built = load_database()
    assert validations == [ID, OTHER]
    again = load_database()
    assert validations == [ID, OTHER]
    assert again == built


def test_a_bundle_beside_the_files_is_used_and_the_cache_is_left_alone(
    builtin: Path, tmp_path: Path, validations: list[str]
) -> None:
    assert write_bundle(builtin) == builtin / "bundle.json"
    validations.clear()
    assert [signature.id for signature in load_database().signatures] == [ID, OTHER]
    assert validations == []
    assert not (tmp_path / "cache").exists()


def test_a_bundle_is_the_same_bytes_wherever_the_files_are(builtin: Path, tmp_path: Path) -> None:
    for name in (OTHER, ID):
        write_signature(tmp_path / "copy", renamed(name), name)
    assert build_bundle(tmp_path / "copy") == build_bundle(builtin)


def test_a_bundle_of_files_with_defects_is_not_built(builtin: Path) -> None:
    write_signature(builtin, renamed("a.b.level").replace("fatal", "fatl"), "a.b.level")
    with pytest.raises(DatabaseError, match=r"\$\.level"):
        write_bundle(builtin)
    assert not (builtin / "bundle.json").exists()


def test_a_changed_file_makes_the_bundle_stale(builtin: Path, validations: list[str]) -> None:
    write_bundle(builtin)
    load_database()
    path = builtin / "sglang" / "attention" / "wrong-backend" / "signature.toml"
    path.write_text(WHOLE.replace("revision = 2", "revision = 3"))
    validations.clear()
    assert load_database().signatures[0].revision == 3
    assert validations == [ID, OTHER]


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"format": 1, "digest": "x", "signatures": []}'])
def test_a_damaged_bundle_is_built_anew(builtin: Path, tmp_path: Path, damage: bytes) -> None:
    expected = load_database()
    (bundle,) = cached(tmp_path)
    whole = bundle.read_bytes()
    for raw in (damage, whole[: len(whole) // 2]):
        bundle.write_bytes(raw)
        (builtin / "bundle.json").write_bytes(raw)
        assert load_database() == expected
        assert bundle.read_bytes() == whole


def test_the_cache_holds_whole_bundles_only_and_not_too_many(builtin: Path, tmp_path: Path) -> None:
    path = builtin / "sglang" / "attention" / "wrong-backend" / "signature.toml"
    for revision in range(1, 13):
        path.write_text(WHOLE.replace("revision = 2", f"revision = {revision}"))
        load_database()
    names = [bundle.name for bundle in cached(tmp_path)]
    assert len(names) == 8
    for bundle in cached(tmp_path):
        digest = bundle.name.removeprefix("bundle-").removesuffix(".json")
        assert json.loads(bundle.read_bytes())["digest"] == digest


@pytest.mark.usefixtures("builtin")
def test_a_cache_that_cannot_be_written_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, validations: list[str]
) -> None:
    # A file where the folder should be fails for root as well, unlike a mode without write permission.
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load_database() == load_database()
    assert validations == [ID, OTHER, ID, OTHER]


@pytest.mark.usefixtures("builtin")
def test_a_full_disk_leaves_no_half_written_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    assert len(load_database().signatures) == 2
    assert cached(tmp_path) == []


@pytest.mark.usefixtures("builtin")
def test_a_bundle_that_others_could_have_written_is_not_trusted(
    tmp_path: Path, validations: list[str]
) -> None:
    load_database()
    (bundle,) = cached(tmp_path)
    bundle.chmod(0o666)
    validations.clear()
    load_database()
    assert validations == [ID, OTHER]
    assert bundle.stat().st_mode & 0o777 == 0o644


@pytest.mark.usefixtures("builtin")
def test_a_relative_cache_folder_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    load_database()
    assert not (tmp_path / "relative").exists()
    assert len(list((tmp_path / "home" / ".cache" / "logtriage").iterdir())) == 1


@pytest.mark.usefixtures("builtin")
def test_without_a_home_the_bundle_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise RuntimeError("no home")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", fail)
    assert len(load_database().signatures) == 2


def test_a_run_with_a_bundle_does_not_import_jsonschema(builtin: Path, tmp_path: Path) -> None:
    write_signature(tmp_path / "overlay", renamed("site.net.a"), "site.net.a")
    load_database(tmp_path / "overlay")
    program = (
        "import sys; from pathlib import Path; import logtriage.database as d; "
        f"d.builtin_root = lambda: Path({str(builtin)!r}); "
        f"n = len(d.load_database({str(tmp_path / 'overlay')!r}).signatures); "
        "print(n, sorted({'jsonschema', 'tomllib', 'pickle'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ)
    assert (run.stdout, run.stderr) == ("3 []\n", "")


def test_the_built_in_folder_is_in_the_package_or_beside_it() -> None:
    package = Path(logtriage.database.__file__).parent
    assert builtin_root() in (package / "_signatures", package.parent / "signatures")


def test_a_complete_folder_has_no_defect(builtin: Path) -> None:
    complete(builtin, ID)
    complete(builtin, OTHER)
    assert find_defects() == ()


@pytest.mark.usefixtures("builtin")
def test_logs_are_looked_for_only_where_they_are_published() -> None:
    assert find_defects(check_logs=False) == ()
    assert [(defect.location.path.name, defect.reason) for defect in find_defects()] == [
        ("wrong-backend", "has no match.<name>.log, a log that it must match"),
        ("wrong-backend", "has no near.<name>.log, a log that looks alike but must not match"),
        ("other", "has no match.<name>.log, a log that it must match"),
        ("other", "has no near.<name>.log, a log that looks alike but must not match"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("match.empty.log", " \n", "is empty"),
        ("matches.x.log", "x", "is neither match.<name>.log nor near.<name>.log"),
        ("match.log", "x", "is neither match.<name>.log nor near.<name>.log"),
        ("launch.before.service", "x", "has no launch.after.service beside it"),
        ("launch.after.yaml", "x", "has no launch.before.yaml beside it"),
    ],
)
def test_a_file_beside_the_signature_can_be_a_defect(
    builtin: Path, name: str, content: str, reason: str
) -> None:
    folder = complete(builtin, ID)
    complete(builtin, OTHER)
    (folder / name).write_text(content)
    (defect,) = find_defects(builtin)
    assert (defect.location.path, defect.reason) == (folder / name, reason)


@pytest.mark.usefixtures("builtin")
def test_a_related_id_must_be_somebodys(tmp_path: Path) -> None:
    related = f'related = ["{OTHER}", "site.net.gone"]\n[match]'
    write_signature(tmp_path / "overlay", renamed("site.net.a").replace("[match]", related), "site.net.a")
    (defect,) = find_defects(tmp_path / "overlay", check_logs=False)
    assert (defect.location.key, defect.reason) == ("$.related[1]", "there is no signature 'site.net.gone'")


def test_a_check_finds_defects_of_contents_too(builtin: Path) -> None:
    write_signature(builtin, renamed("a.b.level").replace("fatal", "fatl"), "a.b.level")
    assert [defect.location.key for defect in find_defects(check_logs=False)] == ["$.level"]


def complete(root: Path, name: str) -> Path:
    """Put the logs beside a signature that its publication needs."""
    folder = root.joinpath(*name.split("."))
    for log in ("match.one-name.log", "near.other.log"):
        (folder / log).write_text("a line\n")
    for script in ("launch.before.sh", "launch.after.sh"):
        (folder / script).write_text("exec python3 -m sglang.launch_server\n")
    return folder
