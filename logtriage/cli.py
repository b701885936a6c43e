"""Arguments, files and standard input go in; the answer, messages and an exit status come out.

Whatever happens, the user sees a message and what was found so far, never a traceback of ours.
Heavy modules are imported inside functions: ``--help`` and a wrong flag must answer at once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn, TextIO

from logtriage._version import VERSION
from logtriage.errors import LogtriageError, SourceError

if TYPE_CHECKING:
    from logtriage.model import Report
    from logtriage.triage import Triage

__all__ = ["main"]

NOTHING_CRASHED: Final = 0
DIAGNOSED: Final = 1
FAILED: Final = 2
NOT_RECOGNISED: Final = 3
INTERRUPTED: Final = 128 + signal.SIGINT
TERMINATED: Final = 128 + signal.SIGTERM

FORMATS: Final = ("text", "json", "jsonl", "markdown")

_EPILOG: Final = """\
exit status:
  0  nothing crashed
  1  a crash was diagnosed
  3  a crash was seen but not recognised
  2  wrong use, unreadable input, or an internal error
  130, 143  interrupted; the partial answer was printed

commands:
  logtriage signatures list [DIR ...]    what can be recognised
  logtriage signatures check [DIR ...]   validate signature files
A file called `signatures` is written ./signatures.
"""


class _Terminated(BaseException):
    """SIGTERM arrived; like KeyboardInterrupt it passes by every ``except Exception``."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: The arguments after the program's name; those of the process if ``None``.

    Returns:
        The exit status, as the help text lists it.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with _termination():
            if arguments and arguments[0] in _COMMANDS:
                return _COMMANDS[arguments[0]](arguments[1:])
            return _diagnose(_parser().parse_args(arguments))
    except SystemExit as leaving:  # argparse printed its message
        return leaving.code if isinstance(leaving.code, int) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except _Terminated:
        return TERMINATED
    except LogtriageError as error:
        _complain(str(error))
    except OSError as error:
        _complain(f"cannot go on: {error.strerror or type(error).__name__}")
    except Exception as error:  # noqa: BLE001  no traceback of ours may reach a user
        _complain(f"internal error: {type(error).__name__}")
    return FAILED


# --- arguments ------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="logtriage",
        description="Read what a dying LLM inference server left behind; name the root cause and the fix.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "files", nargs="*", metavar="FILE",
        help="log text, any `journalctl -o` output, a binary .journal, or one of these compressed; several "
        "are parts of one stream; none or `-`: standard input",
    )  # fmt: skip
    parser.add_argument(
        "--format", choices=FORMATS, default="text", help="text is for people and ends with the answer"
    )
    parser.add_argument(
        "--patch", action="append", default=[], metavar="FILE",
        help="a file that launches the server; text format prints its unified diff, and nothing else, to "
        "standard output, and the diagnosis to standard error; FILE itself is not changed",
    )  # fmt: skip
    parser.add_argument("--drop-in", action="store_true", help="patch a unit by a drop-in beside it instead")
    parser.add_argument(
        "--target", metavar="KIND", help="what kind of file --patch names, if it is not clear"
    )
    parser.add_argument(
        "--signatures",
        action="append",
        default=[],
        metavar="DIR",
        help="more signatures, over those that ship",
    )
    parser.add_argument(
        "--verbose", action="store_true",
        help="do not keep to 40 lines, and list the lines inside the crash that belong to no event",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"logtriage {VERSION}")
    parser.set_defaults(usage_error=parser.error)
    return parser


def _check(options: argparse.Namespace) -> None:
    """Refuse what argparse cannot see."""
    error: Callable[[str], NoReturn] = options.usage_error
    if not options.patch and (options.drop_in or options.target):
        error("--drop-in and --target need --patch FILE")
    if options.files.count("-") > 1:
        error("standard input can be read only once")


# --- reading --------------------------------------------------------------------------------------


def _diagnose(options: argparse.Namespace) -> int:
    _check(options)
    from logtriage.triage import Triage

    names = options.files or ["-"]
    database = None
    if options.signatures:
        from logtriage.database import load_database

        database = load_database(*(Path(folder) for folder in options.signatures))
    triage = Triage(database=database, name=", ".join(names))
    failure = _read(triage, names)
    report = triage.report()
    failure = failure or _broken(report)
    _note_empty(report, failure)
    failure = _answer(report, options, failure) or failure
    if failure or report.headline is None:
        return failure or NOTHING_CRASHED
    return NOT_RECOGNISED if report.diagnoses[report.headline].match is None else DIAGNOSED


def _read(triage: Triage, names: Sequence[str]) -> int:
    """Feed all inputs; return 0, or the exit status for what went wrong.

    Whatever it is, the caller goes on to print what was found until then.
    """
    from logtriage.sources import open_source

    failure = entries = 0
    try:
        for name in names:
            try:
                for item in open_source(name, first_entry=entries + 1):
                    if isinstance(item, bytes):
                        triage.feed(item)
                    else:
                        entries += 1
                        triage.feed_record(item)
            except SourceError as error:  # noqa: PERF203  a handful of files
                _complain(str(error))
                failure = FAILED
    except KeyboardInterrupt:
        failure = INTERRUPTED
    except _Terminated:
        failure = TERMINATED
    except Exception as error:  # noqa: BLE001  one broken parser must not cost the rest of the answer
        _complain(f"internal error: {type(error).__name__}; the answer may lack a part")
        failure = FAILED
    try:
        triage.close()
    except Exception as error:  # noqa: BLE001  likewise
        if not failure:
            _complain(f"internal error: {type(error).__name__}; the answer may lack a part")
        failure = failure or FAILED
    return failure


def _broken(report: Report) -> int:
    """Say what a defect of ours cost; return 0, or the exit status for it."""
    notes = [gap.note for gap in report.source.gaps if gap.kind == "internal-error"]
    for note in notes:
        _complain(note)
    return FAILED if notes else 0


def _note_empty(report: Report, failure: int) -> None:
    notes = [gap.note for gap in report.source.gaps if gap.kind in ("empty", "binary")]
    if not failure and (notes or not report.source.lines):
        _complain(notes[0] if notes else "the input holds no readable line")


# --- answering ------------------------------------------------------------------------------------


def _answer(report: Report, options: argparse.Namespace, failure: int) -> int:
    """Print the report; return 0, or the exit status for what went wrong."""
    from logtriage.renderers import render

    shown = partial(render, verbose=options.verbose)
    if failure and options.format == "text" and not report.source.lines and report.headline is None:
        return 0  # nothing was read: "nothing crashed" would be a lie
    if not options.patch:
        _write(sys.stdout, shown(report, options.format, color=_colored(sys.stdout)))
        return 0
    from logtriage.launch_files import patch_files

    patched = patch_files(report, options.patch, drop_in=options.drop_in, target=options.target)
    if options.format == "text":
        # Standard output is for `git apply`: the diff is of the user's own file, hence exact.
        _write(sys.stdout, patched.diff)
        _write(sys.stderr, shown(patched.told, "text", color=_colored(sys.stderr)))
    else:
        _write(sys.stdout, shown(patched.report, options.format, color=_colored(sys.stdout)))
    for reason in patched.reasons:
        _complain(reason)
    return FAILED if patched.unreadable else 0


# --- sub-commands ---------------------------------------------------------------------------------


def _signatures(arguments: Sequence[str]) -> int:
    """``signatures list`` and ``signatures check``."""
    parser = argparse.ArgumentParser(prog="logtriage signatures", description="Look at the signatures.")
    actions = parser.add_subparsers(dest="action", required=True)
    for name, text in (("list", "list what is known"), ("check", "validate files, and name every defect")):
        action = actions.add_parser(name, help=text, description=text)
        meaning = (
            "further signatures, over the built-in ones"
            if name == "list"
            else "the folder, else the built-in one"
        )
        action.add_argument("folders", nargs="*", metavar="DIR", type=Path, help=meaning)
    options = parser.parse_args(arguments)
    return (
        _list_signatures(options.folders) if options.action == "list" else _check_signatures(options.folders)
    )


def _list_signatures(folders: Sequence[Path]) -> int:
    from logtriage.database import load_database

    signatures = load_database(*folders).signatures
    width = max((len(signature.id) for signature in signatures), default=0)
    rows = (f"{each.id:{width}}  {each.status:12}  {each.category:28}  {each.title}\n" for each in signatures)
    _write(sys.stdout, "".join(rows))
    return 0


def _check_signatures(folders: Sequence[Path]) -> int:
    from logtriage.database import builtin_root, find_defects

    missing = [folder for folder in folders if not folder.is_dir()]
    for folder in missing:
        _complain(f"{folder}: not a folder")
    roots = [folder for folder in folders if folder.is_dir()] if folders else [builtin_root()]
    # An installed package ships signatures without their logs.
    defects = [each for root in roots for each in find_defects(root, check_logs=root.name != "_signatures")]
    for defect in defects:
        _complain(str(defect))
    count = sum(1 for root in roots for _ in root.rglob("signature.toml"))
    _write(sys.stdout, f"{count} signatures, {len(defects)} defects\n")
    return FAILED if defects or missing else 0


_COMMANDS: Final[dict[str, Callable[[Sequence[str]], int]]] = {"signatures": _signatures}


# --- the process ----------------------------------------------------------------------------------


@contextlib.contextmanager
def _termination() -> Iterator[None]:
    """Let SIGTERM unwind like Ctrl-C, so that the partial answer can be printed."""

    def terminate(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001  the signature of handlers
        raise _Terminated

    try:
        before = signal.signal(signal.SIGTERM, terminate)
    except ValueError:  # not in the main thread, where handlers cannot be set
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _colored(stream: TextIO | None) -> bool:
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return wanted and stream is not None and stream.isatty()


def _write(stream: TextIO | None, text: str) -> None:
    """Write UTF-8 whatever the locale, and bytes of a launch file as they were; a reader may have gone."""
    if stream is None:  # closed by whoever started us
        return
    try:
        stream.buffer.write(text.encode("utf-8", "surrogateescape"))
        stream.buffer.flush()
    except BrokenPipeError:
        _mute(stream)


def _mute(stream: TextIO) -> None:
    """Send what is still buffered nowhere: the interpreter would complain about the closed pipe at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _complain(message: str) -> None:
    """Say it on standard error; whether anybody can hear it changes nothing."""
    with contextlib.suppress(OSError):
        _write(sys.stderr, f"logtriage: {message}\n")
