"""A judged incident in, its diagnosis out: the signature that fits, how sure that is, and what mends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from logtriage.faults import fingerprint
from logtriage.launch import did_you_mean, knows_flag, knows_value, replacement_of
from logtriage.matching import Index, condition_holds, match, render_template
from logtriage.model import (
    Alternative,
    Change,
    Confidence,
    Diagnosis,
    Event,
    Incident,
    Match,
    Phase,
    Redaction,
    Remediation,
    Traceback,
    Verdict,
)

__all__ = ["diagnose", "headline"]

_ORDER: Final[tuple[Confidence, ...]] = ("possible", "likely", "certain")
_MOST_ALTERNATIVES: Final = 5
_FUNCTIONS: Final[tuple[tuple[Phase, frozenset[str]], ...]] = (
    ("serve", frozenset({"event_loop_normal", "event_loop_overlap", "run_event_loop", "dispatch_event_loop", "event_loop",
                         "forward_thread_func", "run_busy_loop", "worker_busy_loop", "handle_loop", "_event_loop_wrapper"})),
    ("capture", frozenset({"capture", "capture_one_batch_size", "init_device_graphs", "init_cuda_graphs", "capture_model", "_capture_graph"})),
    ("load", frozenset({"load_model", "load_weights", "_initialize_model", "get_model", "load_weights_and_postprocess"})),
    ("init", frozenset({"init_memory_pool", "init_torch_distributed", "init_attention_backend", "profile_max_num_token",
                        "initialize", "init_distributed_environment", "determine_available_memory", "_initialize_kv_caches"})),
    ("args", frozenset({"prepare_server_args", "from_cli_args", "parse_args", "__post_init__", "from_server_args", "create_engine_config"})),
)  # fmt: skip
_UNKNOWN_STEPS: Final = (
    "Read the root event at the lines given, and what its process printed just before them.",
    "Search the engine's issue tracker for the exception type and the message without its numbers.",
    "Collect the whole log of one start: journalctl -u UNIT -o json --all --since '-1h'.",
)
_EVIDENCE_STEPS: Final = (
    "Look for what is not in this log: dmesg -T | grep -iE 'oom|killed process|xid|segfault' around the time of death.",
    "Get the lines before the first one here, from every rank and every node: the cause is printed before its consequences.",
)


def diagnose(incident: Incident, verdict: Verdict, index: Index, redacted: Mapping[str, int]) -> Diagnosis:
    """Put the answer together.

    Args:
        incident: The events of one invocation.
        verdict: Which of them started it.
        index: The known faults.
        redacted: Kinds of secrets removed from its lines, and how many.

    Returns:
        The diagnosis; its ``match`` is ``None`` if no signature fits.
    """
    root = verdict.root
    incident = attrs.evolve(incident, phase=_phase(incident, root))
    found, alternatives = _match(verdict, incident, index)
    confidence = _confidence(found, verdict)
    remediations: tuple[Remediation, ...] = ()
    steps: list[str] = []
    if found is not None and root is not None:
        remediations = _remediations(found, root, incident)
        captures = dict(found.captures)
        steps += [render_template(step, captures) for step in found.signature.next_steps]
    if verdict.root_role == "earliest-evidence":
        steps += _EVIDENCE_STEPS
    if found is None:
        steps += _UNKNOWN_STEPS
    return Diagnosis(
        fingerprint=fingerprint(root),
        incident=incident,
        verdict=verdict,
        match=found,
        confidence=confidence,
        alternatives=tuple(alternatives[:_MOST_ALTERNATIVES]),
        remediations=remediations,
        next_steps=tuple(dict.fromkeys(steps)),
        redacted=tuple(Redaction(kind, count) for kind, count in sorted(redacted.items()) if count),
        final=incident.final,
    )


def headline(diagnoses: Sequence[Diagnosis]) -> int | None:
    """Choose the answer among several diagnoses.

    The last crash is what keeps the service down now; but one of which the log holds only consequences gives
    way to the latest one that shows a cause.
    """
    if not diagnoses:
        return None
    shown = [i for i, found in enumerate(diagnoses) if found.verdict.root_role == "initiating"]
    known = [i for i in shown if diagnoses[i].match is not None]
    return (known or shown or range(len(diagnoses)))[-1]


def _match(verdict: Verdict, incident: Incident, index: Index) -> tuple[Match | None, list[Alternative]]:
    """Match the root; where its text is cut off, the same fault on another rank may say more."""
    if verdict.root is None:
        return None, []
    found, alternatives = match(verdict.root, incident, index)
    if not found:
        for finding in verdict.findings:
            if finding.role == "observer":
                found, more = match(finding.event, incident, index)
                alternatives = alternatives or more
                if found:
                    break
    return (found[0] if found else None), alternatives


def _confidence(found: Match | None, verdict: Verdict) -> Confidence:
    """The least of what the signature, the root and the reading of its lines allow."""
    if found is None or verdict.root_role == "earliest-evidence":
        return "possible"
    limits: list[Confidence] = [found.signature.confidence]
    if found.signature.status == "experimental" or found.signature.role != "initiating":
        limits.append("likely")
    root = verdict.root
    if isinstance(root, Traceback) and not root.complete:
        limits.append("likely")
    if root is not None and root.basis == "guess":
        limits.append("likely")
    return min(limits, key=_ORDER.index)


def _phase(incident: Incident, root: Event | None) -> Phase:
    """The phase that the root's own frames show, else the one the engine had announced."""
    if isinstance(root, Traceback):
        functions = {frame.function for link in root.chain for frame in link.frames}
        for phase, names in _FUNCTIONS:
            if functions & names:
                return phase
        if any(frame.filename.endswith("argparse.py") for frame in root.chain[-1].frames):
            return "args"
    if root is not None and root.kind == "logged-error" and "error: " in root.message and incident.phase == "unknown":
        return "args"
    return incident.phase


def _remediations(found: Match, root: Event, incident: Incident) -> tuple[Remediation, ...]:
    captures = dict(found.captures)
    out = [
        _filled(remediation, captures, incident)
        for remediation in found.signature.remediations
        if condition_holds(remediation.when, root, incident) is not False
    ]
    suggestion = _suggestion(found, captures, incident)
    offered = [suggestion, *out] if suggestion else out
    release = incident.invocation.engine_version
    known = [remediation for remediation in offered if all(_is_known(change, release) for change in remediation.changes)]
    return tuple(known or offered)


def _filled(remediation: Remediation, captures: Mapping[str, str], incident: Incident) -> Remediation:
    return attrs.evolve(
        remediation,
        title=render_template(remediation.title, captures),
        rationale=render_template(remediation.rationale, captures),
        side_effects=render_template(remediation.side_effects, captures),
        steps=tuple(render_template(step, captures) for step in remediation.steps),
        changes=tuple(_resolved(change, captures, incident) for change in remediation.changes),
    )


def _resolved(change: Change, captures: Mapping[str, str], incident: Incident) -> Change:
    """A change with its captures filled in, the value in force, and what is computed from that."""
    name = render_template(change.name, captures)
    value = render_template(change.value, captures) if change.value is not None else None
    arguments = incident.invocation.server_args
    field = name.lstrip("-").replace("-", "_")
    old = arguments.get(field) if change.op in ("set-flag", "remove-flag") else None
    shown = None if old is None or isinstance(old, (dict, list)) else str(old)
    if change.adjust is not None and isinstance(old, (int, float)) and not isinstance(old, bool):
        moved = old + change.adjust
        if isinstance(old, float) and 0 < old <= 1:
            moved = min(max(moved, 0.05), 0.98)
        if moved > 0:
            value = str(int(moved)) if isinstance(old, int) else f"{moved:.4g}"
    return attrs.evolve(change, name=name, value=value, old=shown)


def _is_known(change: Change, release: str | None) -> bool:
    """Whether the release at hand knows the flag and the value; an unknown release knows them all."""
    if change.op != "set-flag" or not change.name.startswith("--") or release is None:
        return True
    return knows_flag(change.name, release) and knows_value(change.name, change.value or "", release) is not False


def _suggestion(found: Match, captures: Mapping[str, str], incident: Incident) -> Remediation | None:
    """What an argument that was refused was probably meant to be."""
    flag = captures.get("flag", "")
    if found.signature.category != "config.args" or not flag.startswith("-"):
        return None
    value = captures.get("value")
    if "choices" in captures and value is not None:
        choices = [choice.strip(" '\"") for choice in captures["choices"].split(",")]
        meant = did_you_mean(value, [choice for choice in choices if choice])
        if meant is None:
            return None
        change = Change("set-flag", flag.split("/")[-1], meant, value)
        return Remediation(
            f"Write {meant} instead of {value}",
            "review",
            (change,),
            rationale=f"{meant} is the choice of {change.name} that is spelt most alike; the parser does not know {value}.",
        )
    if knows_flag(flag, incident.invocation.engine_version):
        return None
    meant = replacement_of(flag) or did_you_mean(flag)
    if meant is None:
        return None
    changes = (Change("remove-flag", flag, None, value), Change("set-flag", meant, value))
    return Remediation(
        f"Write {meant} instead of {flag}",
        "review",
        changes,
        rationale=f"The engine has no {flag}; {meant} is the flag that is spelt most alike.",
    )
