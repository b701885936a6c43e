"""A judged incident in, its diagnosis out: the signature that fits, how sure that is, and what mends it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import attrs
import regex

from logtriage.faults import fingerprint
from logtriage.launch import did_you_mean, knows_flag, knows_value, replacement_of, resolve_flag
from logtriage.matching import Index, condition_holds, match, render_template
from logtriage.model import (
    Alternative,
    Change,
    Confidence,
    Diagnosis,
    Event,
    Incident,
    KernelReport,
    Lifecycle,
    LoggedError,
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
_MOST_WITNESSES: Final = 16
_FUNCTIONS: Final[tuple[tuple[Phase, str], ...]] = (
    (
        "serve",
        "event_loop_normal event_loop_overlap run_event_loop dispatch_event_loop event_loop handle_loop"
        " event_loop_pp event_loop_normal_disagg_prefill event_loop_overlap_disagg_prefill run_batch"
        " event_loop_normal_disagg_decode event_loop_overlap_disagg_decode process_batch_result"
        " forward_thread_func run_busy_loop worker_busy_loop _event_loop_wrapper",
    ),
    (
        "capture",
        "capture capture_one_batch_size init_device_graphs init_cuda_graphs capture_model _capture_graph",
    ),
    (
        "load",
        "load_model load_weights _initialize_model get_model load_weights_and_postprocess"
        " get_model_architecture resolve_transformers_arch",
    ),
    (
        "init",
        "init_memory_pool init_torch_distributed init_attention_backend profile_max_num_token initialize"
        " init_distributed_environment determine_available_memory _initialize_kv_caches",
    ),
    (
        "args",
        "prepare_server_args from_cli_args parse_args __post_init__ from_server_args create_engine_config",
    ),
)
_WORKER: Final = "run_scheduler_process"
_UNKNOWN_STEPS: Final = (
    "Read the root event at the lines given, and what its process printed just before them.",
    "Search the engine's issue tracker for the exception type and the message without its numbers.",
    "Collect the whole log of one start: journalctl -u UNIT -o json --all --since '-1h'.",
)
_EVIDENCE_STEPS: Final = (
    "Look for what is not in this log: dmesg -T | grep -iE 'oom|killed process|xid|segfault' around the time"
    " of death.",
    "Get the lines before the first one here, from every rank and every node: the cause is printed before"
    " its consequences.",
)
_FRACTION: Final = regex.compile(r"fraction|ratio|utilization")
_SMALLEST_FRACTION: Final = 0.05
_LARGEST_FRACTION: Final = 0.98
_MEMORY_FLAGS: Final = frozenset(
    (
        *("--cuda-graph-max-bs", "--max-running-requests", "--chunked-prefill-size", "--max-prefill-tokens"),
        *("--context-length", "--max-total-tokens", "--max-num-seqs", "--max-num-batched-tokens"),
        "--max-model-len",
    )
)
"""Flags that cost the more memory the larger they are."""
_UNIT: Final = regex.compile(r"[\w@:.\\-]{1,255}")


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
    steps += _loop_steps(incident)
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
    way to the latest one that shows a cause, and a unit that never said a word of its own to one that did.
    """
    if not diagnoses:
        return None
    servers = {found.incident.invocation.unit for found in diagnoses if _is_heard(found.incident)}
    ours = [i for i, found in enumerate(diagnoses) if found.incident.invocation.unit in servers]
    candidates = ours or list(range(len(diagnoses)))
    shown = [i for i in candidates if diagnoses[i].verdict.root_role == "initiating"]
    known = [i for i in shown if diagnoses[i].match is not None]
    return (known or shown or candidates)[-1]


def _is_heard(incident: Incident) -> bool:
    """Whether a process of the service said something, not only systemd or the kernel about it."""
    return any(
        event.process.label != "systemd" and not isinstance(event, KernelReport) for event in incident.events
    )


def _match(verdict: Verdict, incident: Incident, index: Index) -> tuple[Match | None, list[Alternative]]:
    """Match the root, or who else may say more."""
    alternatives: list[Alternative] = []
    for event in islice(_witnesses(verdict), _MOST_WITNESSES):
        found, more = match(event, incident, index)
        alternatives = alternatives or more
        if found:
            return found[0], alternatives
    return None, alternatives


def _witnesses(verdict: Verdict) -> Iterator[Event]:
    """The root, then the same fault on other ranks, whose text may be whole, then other consequences."""
    if verdict.root is None:
        return
    yield verdict.root
    roles = {"observer", "cascade"} if verdict.root_role == "earliest-evidence" else {"observer"}
    yield from (finding.event for finding in verdict.findings if finding.role in roles)


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
    phase = incident.phase
    if isinstance(root, LoggedError) and root.origin in ("argparse", "bind"):
        # The web server says that it is up before it has its port.
        return "args" if root.origin == "argparse" else "init"
    if not isinstance(root, Traceback):
        return phase
    functions = {frame.function for link in root.chain for frame in link.frames}
    shown = next((phase for phase, names in _FUNCTIONS if not functions.isdisjoint(names.split())), None)
    if shown is None and any(frame.filename.endswith("argparse.py") for frame in root.chain[-1].frames):
        shown = "args"
    shown = shown or phase
    # The arguments are read before a rank is started.
    return "init" if shown == "args" and (root.process.rank or _WORKER in functions) else shown


def _loop_steps(incident: Incident) -> Iterator[str]:
    """What a unit asks for that systemd has restarted in vain."""
    invocation = incident.invocation
    unit = invocation.unit if _UNIT.fullmatch(invocation.unit or "") else "UNIT"
    if any(isinstance(event, Lifecycle) and event.action == "start-limit" for event in incident.events):
        again = f"systemctl reset-failed {unit}; systemctl start {unit}"
        yield f"systemd has given up; after the repair: {again}."
    elif invocation.state == "activating" and (invocation.restarts or 0) > 1:
        yield f"systemd goes on restarting it; until it is repaired: systemctl stop {unit}."


def _remediations(found: Match, root: Event, incident: Incident) -> tuple[Remediation, ...]:
    """What the signature offers for this incident, best first."""
    captures = dict(found.captures)
    saves = found.signature.category.startswith("oom.")
    out = [
        useful
        for remediation in found.signature.remediations
        if condition_holds(remediation.when, root, incident) is not False
        if (useful := _useful(_filled(remediation, captures, incident), incident, saves=saves)) is not None
    ]
    suggestion = _suggestion(found, captures, root, incident)
    offered = [suggestion, *out] if suggestion else out
    release = incident.invocation.engine_version
    known = [
        remediation
        for remediation in offered
        if all(_is_known(change, release) for change in remediation.changes)
    ]
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
    old = None
    if change.op in ("set-flag", "remove-flag"):
        old = incident.invocation.server_args.get(_argument(name, incident))
    if change.adjust is not None:
        value = _adjusted(name, old, change.adjust) or value
    shown = None if old is None or isinstance(old, (dict, list)) else str(old)
    return attrs.evolve(change, name=name, value=value, old=shown)


def _argument(flag: str, incident: Incident) -> str:
    """The name of the argument that a flag sets."""
    known = resolve_flag(flag.replace("_", "-"), incident.invocation.engine_version) or flag
    return known.lstrip("-").replace("-", "_")


def _adjusted(flag: str, old: object, step: float) -> str | None:
    """The value in force moved by *step*; ``None`` where there is none, or no room left.

    >>> _adjusted("--mem-fraction-static", 0.85, -0.05), _adjusted("--max-loras-per-batch", 8, 1)
    ('0.8', '9')
    """
    if not isinstance(old, (int, float)) or isinstance(old, bool):
        return None
    moved = old + step
    if _FRACTION.search(flag):
        moved = min(max(moved, _SMALLEST_FRACTION), _LARGEST_FRACTION)
    if moved <= 0:
        return None
    return str(int(moved)) if isinstance(old, int) and not _FRACTION.search(flag) else f"{moved:.4g}"


def _useful(remediation: Remediation, incident: Incident, *, saves: bool) -> Remediation | None:
    """A remediation without changes that change nothing; ``None`` if it then has nothing left to change."""
    changes = tuple(c for c in remediation.changes if not _is_idle(c, incident, saves=saves))
    if remediation.changes and not changes:
        return None
    return attrs.evolve(remediation, changes=changes)


def _is_idle(change: Change, incident: Incident, *, saves: bool) -> bool:
    """Whether the arguments in force already are what a change asks for.

    Args:
        change: The change, resolved.
        incident: Its incident.
        saves: The change is to save memory.
    """
    arguments = incident.invocation.server_args
    name = _argument(change.name, incident)
    if not arguments or change.op not in ("set-flag", "remove-flag"):
        return False
    old = arguments.get(name)
    if change.op == "remove-flag":
        # A flag under a name that the table lacks may set an argument of another name.
        return old in (None, False) if name in arguments else _is_listed(change.name)
    if change.value is None:
        return old is True
    new = _number(change.value)
    if saves and change.name in _MEMORY_FLAGS and isinstance(old, int) and new is not None and new >= old:
        return True
    return old is not None and (str(old) == change.value or (new is not None and new == _number(str(old))))


def _is_listed(flag: str) -> bool:
    return resolve_flag(flag.replace("_", "-")) is not None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _is_known(change: Change, release: str | None) -> bool:
    """Whether the release at hand knows the flag and the value; an unknown release knows them all."""
    if change.op != "set-flag" or not change.name.startswith("--") or release is None:
        return True
    return (
        knows_flag(change.name, release)
        and knows_value(change.name, change.value or "", release) is not False
    )


def _suggestion(
    found: Match, captures: Mapping[str, str], root: Event, incident: Incident
) -> Remediation | None:
    """What an argument that was refused was probably meant to be."""
    flag = captures.get("flag", "")
    if found.signature.category != "config.args" or not flag.startswith("-"):
        return None
    value = captures.get("value")
    if "choices" in captures and value is not None:
        return _meant_choice(flag.split("/")[-1], value, captures["choices"])
    program = root.message.partition("error:")[0]
    if incident.invocation.engine not in (None, "sglang") or "vllm" in program or "trtllm" in program:
        return None  # the table of flags is SGLang's
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


def _meant_choice(flag: str, value: str, listed: str) -> Remediation | None:
    choices = [choice.strip(" '\"") for choice in listed.split(",")]
    meant = did_you_mean(value, [choice for choice in choices if choice])
    if meant is None:
        return None
    return Remediation(
        f"Write {meant} instead of {value}",
        "review",
        (Change("set-flag", flag, meant, value),),
        rationale=f"{meant} is the choice of {flag} that is spelt most alike; {value} is none of them.",
    )
