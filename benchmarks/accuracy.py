"""Measures how often the answer is right, beside what a person gets from the usual short cuts.

The cases are folders with a log (``log.txt``, or a short journal) and ``case.json``, the truth about it:
those in ``fixtures/``, and those of a folder that is given.  For each of four questions the share of
right answers is printed:

- *found*: a crash is called a crash, and a healthy log is not;
- *root*: the event that is shown first holds the words of the true root;
- *process*: it names the rank or process that it happened to;
- *category*: the kind of fault is right.

A question counts only where the truth has an answer to it.  The short cuts are the first line that looks like
an error, the last one, and ``tail -40``.  They are judged kindly: words and rank are theirs if they stand
anywhere in what they show, although a person would still have to pick them out of 40 lines.  Many of the logs
are short, which helps ``tail``.  Short cuts know no categories.

    python -m benchmarks.accuracy --verbose more-cases/
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from logtriage import Database, Diagnosis, load_database, triage
from logtriage.model import Traceback

__all__ = ["QUESTIONS", "Answer", "Case", "judge", "main", "read_cases"]

FIXTURES: Final = Path(__file__).parent.parent / "fixtures"
LOGS: Final = ("log.txt", "journal.short.txt", "journal.short-precise")
QUESTIONS: Final = ("found", "root", "process", "category")
_ERROR: Final = re.compile(
    r"\b\w*(?:Error|Exception)\b|\berror:|\bfatal\b|\bFATAL\b|\bERROR\b|Traceback|\bKilled\b"
)
_RANK: Final = re.compile(r"(?:\d\d[ \]]|[\[( ])((?:DP\d+ )?(?:PP\d+ )?(?:TP\d+)(?: EP\d+)?)\b")


@attrs.frozen
class Case:
    """A log and the truth about it.

    Attributes:
        name: The name of its folder.
        log: The file.
        truth: What ``case.json`` holds.
    """

    name: str
    log: Path
    truth: Mapping[str, Any]

    @property
    def healthy(self) -> bool:
        """Nothing crashed."""
        return bool(self.truth["category"] == "healthy")


@attrs.frozen
class Answer:
    """What somebody said about a log.

    Attributes:
        crashed: There was a crash.
        words: The words of the root.
        processes: The processes it may have happened to.
        category: The kind of fault, or ``None``.
    """

    crashed: bool
    words: str = ""
    processes: frozenset[str] = frozenset()
    category: str | None = None


def read_cases(folder: Path) -> Iterator[Case]:
    """The cases below a folder, in the order of their names."""
    for truth in sorted(folder.glob("*/case.json")):
        for name in LOGS:
            if (log := truth.parent / name).is_file():
                yield Case(truth.parent.name, log, json.loads(truth.read_text("utf-8")))
                break


def judge(case: Case, answer: Answer) -> dict[str, bool]:
    """Hold an answer against the truth.

    Args:
        case: The case.
        answer: The answer.

    Returns:
        Whether it is right, for each question that the truth answers.
    """
    verdict = {"found": answer.crashed is not case.healthy}
    if case.healthy:
        return verdict
    root = case.truth["root"]
    if wanted := root.get("message_contains") or root.get("type"):
        said = _folded(answer.words)
        verdict["root"] = any(_folded(text) in said for text in _options(wanted))
    if process := root.get("process"):
        verdict["process"] = bool(answer.processes & set(_options(process)))
    categories = _options(case.truth["category"])
    if "unknown" not in categories:
        verdict["category"] = answer.category in categories
    return verdict


def _options(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _folded(text: str) -> str:
    return " ".join(re.split(r"\W+", text.lower())).strip()


def _told(found: Diagnosis) -> str:
    root = found.verdict.root
    if root is None:
        return ""
    chain = root.chain if isinstance(root, Traceback) else ()
    return " ".join([root.message, *(f"{link.type} {link.message}" for link in chain)])


def _logtriage(database: Database) -> Callable[[Case], Answer]:
    def ask(case: Case) -> Answer:
        report = triage(case.log, database=database)
        if report.headline is None:
            return Answer(crashed=False)
        found = report.diagnoses[report.headline]
        root, match = found.verdict.root, found.match
        label = frozenset({root.process.label}) if root is not None else frozenset()
        return Answer(True, _told(found), label, match.signature.category if match else None)

    return ask


def _lines(case: Case) -> list[str]:
    return case.log.read_text("utf-8", "replace").splitlines()


def _shown(lines: Sequence[str]) -> Answer:
    """What a few lines tell."""
    text = "\n".join(lines)
    return Answer(any(map(_ERROR.search, lines)), text, frozenset(_RANK.findall(text)))


def _first_error(case: Case) -> Answer:
    return _shown([line for line in _lines(case) if _ERROR.search(line)][:1])


def _last_error(case: Case) -> Answer:
    return _shown([line for line in _lines(case) if _ERROR.search(line)][-1:])


def _tail(case: Case) -> Answer:
    return _shown(_lines(case)[-40:])


def _table(verdicts: Mapping[str, Sequence[Mapping[str, bool]]]) -> str:
    lines = [f"| | {' | '.join(QUESTIONS)} |", "|---|---:|---:|---:|---:|"]
    for name, judged in verdicts.items():
        cells = []
        for question in QUESTIONS:
            right = [verdict[question] for verdict in judged if question in verdict]
            known = question != "category" or name == "logtriage"
            cells.append(
                f"{sum(right)}/{len(right)} ({sum(right) / len(right):.0%})" if right and known else "-"
            )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "folders", nargs="*", type=Path, metavar="FOLDER", help="more cases, besides those in fixtures/"
    )
    parser.add_argument("--only", action="store_true", help="leave out those in fixtures/")
    parser.add_argument("--verbose", action="store_true", help="name the cases that logtriage got wrong")
    options = parser.parse_args(arguments)
    folders = [*([] if options.only else [FIXTURES]), *options.folders]
    cases = [case for folder in folders for case in read_cases(folder)]
    if not cases:
        parser.error("no folder holds a case.json with a log beside it")
    ways: dict[str, Callable[[Case], Answer]] = {
        "logtriage": _logtriage(load_database()),
        "first error line": _first_error,
        "last error line": _last_error,
        "tail -40": _tail,
    }
    verdicts = {name: [judge(case, ask(case)) for case in cases] for name, ask in ways.items()}
    print(f"{len(cases)} cases, {sum(case.healthy for case in cases)} of them healthy\n")
    print(_table(verdicts))
    if options.verbose:
        for case, verdict in zip(cases, verdicts["logtriage"], strict=True):
            wrong = [question for question, right in verdict.items() if not right]
            if wrong:
                print(f"{case.name}: {', '.join(wrong)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
