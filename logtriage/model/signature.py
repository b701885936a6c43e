"""What we know: a signature, how it is recognised, and what mends it."""

from __future__ import annotations

from typing import Literal

import attrs

__all__ = [
    "Applicability",
    "Change",
    "Condition",
    "Confidence",
    "FramePattern",
    "Match",
    "Operation",
    "Remediation",
    "Signature",
    "Variant",
]

Applicability = Literal["safe", "review", "display-only"]
Operation = Literal[
    "set-flag", "remove-flag", "set-env", "unset-env", "require-version", "install", "start-service", "other"
]
Confidence = Literal["certain", "likely", "possible"]


@attrs.frozen
class Change:
    """One change a remediation asks for; it names no file.

    Attributes:
        op: What to do.
        name: The flag (``--attention-backend``), variable, package or service.
        value: The new value; ``None`` for a flag without one.  ``{name}`` stands for a capture.
        old: The failing value as seen in the log, once known.
        adjust: For numbers: what to add to the value in force (``-0.05``), where it is known.
    """

    op: Operation
    name: str
    value: str | None = None
    old: str | None = None
    adjust: float | None = None


@attrs.frozen
class Condition:
    """What must hold besides the text.  An unknown fact never fails a condition of ``requires``.

    Attributes:
        server_args: Argument name and the values it may have (``"*"``: any value but None).
        context: Literals, each of which some other event of the incident must contain.
        phases: Phases of the incident, any of them.
        release: Version specifier for the engine (PEP 440), ``""`` for any.
        flags: Command-line flags, each of which must stand in the command line, where that is known.
    """

    server_args: tuple[tuple[str, tuple[str, ...]], ...] = ()
    context: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    release: str = ""
    flags: tuple[str, ...] = ()


@attrs.frozen
class Remediation:
    """Something that mends the fault.

    Attributes:
        title: One imperative sentence.
        applicability: ``safe``, ``review`` or ``display-only``, as defined in the documentation.
        changes: The changes, to be made together.
        steps: What to do by hand, in order, besides the change itself.
        rationale: Why it helps, and which part of the evidence says so.
        side_effects: What it costs.
        references: Where that is written.
        when: Offered only if this holds.
        patch: The unified diff for the file given, once made.
    """

    title: str
    applicability: Applicability
    changes: tuple[Change, ...] = ()
    steps: tuple[str, ...] = ()
    rationale: str = ""
    side_effects: str = ""
    references: tuple[str, ...] = ()
    when: Condition = Condition()
    patch: str | None = None


@attrs.frozen
class FramePattern:
    """A frame of the traceback.

    Attributes:
        file: Ending of the file name (``srt/layers/attention/attention_registry.py``), or ``""``.
        function: Function name, or ``""``.
        innermost: Only the last frame counts; else any frame may be it.
    """

    file: str = ""
    function: str = ""
    innermost: bool = False


@attrs.frozen
class Variant:
    """One wording of the fault.

    Attributes:
        name: Short name, unique in the signature.
        literals: Texts, all of which the message must contain (white space is folded first).
        pattern: A regular expression (RE2 subset) that must match too; its named groups are captured.
        source_line: Text that the source line under the innermost frame must contain.
        exceptions: Exception classes of this wording only; empty: those of the signature.
        releases: Releases whose source holds this wording (``0.5.6-0.5.9``): a hint, never a gate.
        proof: ``source`` (read in a release), ``observed`` (seen in our own runs) or ``report``.
    """

    name: str
    literals: tuple[str, ...] = ()
    pattern: str | None = None
    source_line: str | None = None
    exceptions: tuple[str, ...] = ()
    releases: str = ""
    proof: Literal["source", "observed", "report"] = "report"


@attrs.frozen
class Signature:
    """A known fault.

    Attributes:
        id: Its path with dots, ``sglang.attention.hybrid-gdn-on-blackwell``.
        revision: Counts up with each change of meaning.
        title: One line, names the fault.
        status: ``experimental``, ``test``, ``stable`` or ``deprecated``.
        level: ``warning``, ``error`` or ``fatal``.
        category: One of the published categories.
        owner: Whose message it is (``sglang``, ``torch``, ``nccl``, ``driver``, ``systemd``, …).
        role: ``initiating``, ``cascade``, ``teardown`` or ``advice``.
        kinds: Kinds of event it may match; empty: any.
        exceptions: Exception classes, last part or whole name; empty: any or none.
        frame: A frame the traceback must have.
        variants: The wordings; one must match.
        confidence: The most that a match may claim.
        cause: What went wrong, for the person on call.
        constraint: What a match does not prove.
        requires: Facts that must not contradict.
        excludes: Facts any of which rules it out.
        remediations: Best first.
        next_steps: What to look at when the remediations do not settle it.
        references: Sources.
        related: Ids of signatures that look alike.
    """

    id: str
    revision: int
    title: str
    status: str
    level: str
    category: str
    owner: str
    role: str
    variants: tuple[Variant, ...]
    kinds: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    frame: FramePattern | None = None
    confidence: Confidence = "certain"
    cause: str = ""
    constraint: str = ""
    requires: Condition = Condition()
    excludes: Condition = Condition()
    remediations: tuple[Remediation, ...] = ()
    next_steps: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    related: tuple[str, ...] = ()


@attrs.frozen
class Match:
    """A signature that fits an event.

    Attributes:
        signature: The signature.
        variant: Name of the wording that matched.
        captures: What the pattern captured, name and text.
        specificity: Larger means that more had to hold; orders several matches.
        link: Index of the chain's exception that matched; ``None`` for other events.
    """

    signature: Signature
    variant: str
    captures: tuple[tuple[str, str], ...] = ()
    specificity: float = 0.0
    link: int | None = None
