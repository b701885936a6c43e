"""What is installed answers like the tree, byte for byte, and needs nothing of the tree.

The wheel is built from the sdist, so a file that the sdist lacks is missed here before a user misses it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import Final

import attrs
import pytest

TREE: Final = Path(__file__).parent.parent
JOURNAL: Final = TREE / "fixtures" / "founding" / "journal.short.txt"
UNIT: Final = TREE / "fixtures" / "founding" / "sglang-qwen35.service"
# What setup.cfg and setup.py read; nothing that an earlier build left behind.
SOURCES: Final = (
    "logtriage",
    "signatures",
    "setup.cfg",
    "setup.py",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)
CALLS: Final = {
    "text": [str(JOURNAL)],
    "json": [str(JOURNAL), "--format", "json"],
    "patch": [str(JOURNAL), "--patch", str(UNIT)],
    "drop-in": [str(JOURNAL), "--patch", str(UNIT), "--drop-in", "--format", "json"],
    "list": ["signatures", "list"],
}


def run(command: list[str], cwd: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "COV_"))
    }
    settings = {"XDG_CACHE_HOME": str(cwd.parent / "cache"), **environment}
    return subprocess.run(command, cwd=cwd, env={**inherited, **settings}, capture_output=True, check=False)


def succeed(command: list[str], cwd: Path) -> None:
    done = run(command, cwd)
    assert done.returncode == 0, done.stderr.decode(errors="replace")


@attrs.frozen
class Built:
    """The tree at one moment, its distributions, and the folder each was installed into."""

    source: Path
    sdist: Path
    wheel: Path
    installed: dict[str, Path]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("packaging")
    source, dist = folder / "source", folder / "dist"
    source.mkdir()
    for name in SOURCES:
        if (TREE / name).is_dir():
            leave_out = shutil.ignore_patterns("__pycache__", "bundle.json")
            shutil.copytree(TREE / name, source / name, ignore=leave_out)
        else:
            shutil.copy(TREE / name, source / name)
    succeed([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist), str(source)], folder)
    (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    offline = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    installed = {"wheel": folder / "from-wheel", "sdist": folder / "from-sdist"}
    for kind, distribution in (("wheel", wheel), ("sdist", sdist)):
        target = ["--target", str(installed[kind]), str(distribution)]
        succeed([sys.executable, "-m", "pip", "install", *offline, *target], folder)
    return Built(source, sdist, wheel, installed)


def sources(built: Built, folder: str, pattern: str) -> list[Path]:
    return [path.relative_to(built.source) for path in (built.source / folder).rglob(pattern)]


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
@pytest.mark.parametrize("call", CALLS)
def test_what_is_installed_prints_the_bytes_of_the_tree(
    built: Built, kind: str, call: str, empty: Path
) -> None:
    command = [sys.executable, "-m", "logtriage", *CALLS[call]]
    wanted = run(command, empty, PYTHONPATH=str(built.source))
    got = run(command, empty, PYTHONPATH=str(built.installed[kind]))
    assert (got.returncode, got.stdout, got.stderr) == (wanted.returncode, wanted.stdout, wanted.stderr)
    assert got.returncode == (0 if call == "list" else 1)
    assert got.stdout
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_a_run_uses_the_bundle_and_validates_nothing(
    built: Built, kind: str, empty: Path, tmp_path: Path
) -> None:
    code = (
        "import json, sys, logtriage, logtriage.cli\n"
        f"status = logtriage.cli.main([{str(JOURNAL)!r}, '--format', 'json'])\n"
        "heavy = [name for name in ('jsonschema', 'tomllib', 'tomli', 'systemd') if name in sys.modules]\n"
        "print(json.dumps([status, logtriage.__file__, heavy]), file=sys.stderr)\n"
    )
    cache = tmp_path / "cache"
    done = run(
        [sys.executable, "-c", code], empty, PYTHONPATH=str(built.installed[kind]), XDG_CACHE_HOME=str(cache)
    )
    status, place, heavy = json.loads(done.stderr)
    assert (status, heavy) == (1, [])
    assert Path(place).is_relative_to(built.installed[kind])
    assert (
        not cache.exists()
    )  # a bundle that does not fit its files would have been built anew and kept there


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_the_bundle_and_the_files_know_the_same_faults(built: Built, kind: str, empty: Path) -> None:
    signatures = built.installed[kind] / "logtriage" / "_signatures"
    _, _, packed = (signatures / "bundle.json").read_text().partition("\n")
    ids = [
        signature["id"] for signature in json.loads("[" + packed.rstrip().removesuffix("}").removeprefix("["))
    ]
    files = [
        ".".join(path.parent.relative_to(signatures).parts) for path in signatures.rglob("signature.toml")
    ]
    known = sorted(".".join(path.parts[1:-1]) for path in sources(built, "signatures", "signature.toml"))
    assert sorted(ids) == sorted(files) == known
    check = run(
        [sys.executable, "-m", "logtriage", "signatures", "check"],
        empty,
        PYTHONPATH=str(built.installed[kind]),
    )
    assert check.stdout.decode() == f"{len(ids)} signatures, 0 defects\n"


def test_the_wheel_holds_the_package_its_data_and_no_log(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        names = {PurePosixPath(name) for name in wheel.namelist()}
    inside = {str(name.relative_to("logtriage")) for name in names if name.parts[0] == "logtriage"}
    assert {
        "py.typed",
        "_signatures/bundle.json",
        "schema/report-v1.schema.json",
        "schema/signature-v1.schema.json",
        "launch/flags-sglang.json",
    } <= inside
    python = {str(path.relative_to("logtriage")) for path in sources(built, "logtriage", "*.py")}
    assert {name for name in inside if name.endswith(".py")} == python
    assert {PurePosixPath(name).suffix for name in inside} == {".py", ".json", ".toml", ".typed"}
    assert all(name.parts[0] == "logtriage" or name.parts[0].endswith(".dist-info") for name in names)
    assert any(name.name == "LICENSE" for name in names)


def test_the_sdist_holds_what_a_build_reads(built: Built) -> None:
    with tarfile.open(built.sdist) as sdist:
        names = {str(PurePosixPath(*PurePosixPath(name).parts[1:])) for name in sdist.getnames()}
    assert {"setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE"} <= names
    assert set(map(str, sources(built, "signatures", "signature.toml"))) <= names


def test_the_installed_command_is_called_logtriage(built: Built, empty: Path) -> None:
    script = built.installed["wheel"] / "bin" / "logtriage"
    done = run([sys.executable, str(script), "--version"], empty, PYTHONPATH=str(built.installed["wheel"]))
    assert re.fullmatch(r"logtriage \d+\.\d+\.\d+\S*\n", done.stdout.decode())
