"""Lines of the kernel and of NVIDIA's driver in, one event out for each fault they report.

Law: the kernel is believed on its own channel only.  A line of a server that reads like one of the
kernel's is no event; one without any envelope is an event that says it is not trusted.

Source:
    NVIDIA's open kernel modules 515 to 595 and reports of older drivers; Linux 4.14 to 6.18:
    ``mm/oom_kill.c``, ``arch/x86/mm/fault.c``, ``kernel/hung_task.c``, ``drivers/pci/pcie/aer.c``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import attrs

from logtriage.events.block import Block
from logtriage.events.collect import HEAD, Gathering, joined
from logtriage.model import Event, KernelReport, Line, Process, Record

__all__ = ["open_block"]

_STAMP: Final = re.compile(
    r"\s*(?:<\d+>)?(?:\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? "
    r"|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4}\] "
    r"|\d\d:\d\d:\d\d(?:\.\d+)? +)?(?:kernel: )?(?:\[ *\d+\.\d+\] )?"
)
_XID: Final = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<device>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2})?(?:\.[0-7])?)"
    r"(?: GPU-I:\d+)?(?: GPU-CI:\d+)?\): (?P<code>\d+)(?:, ?(?P<rest>.*))?",
    re.DOTALL,
)
_OWNER: Final = re.compile(r"pid='?(?P<pid>\d+|<[^>]{0,40}>)'?(?:, name='?(?P<name>[^,]{0,40}?)'?)?(?:, |$)")
_SXID: Final = re.compile(
    r"nvidia-nvswitch\d+: SXid \((?:PCI:)?(?P<device>[0-9a-fA-F:.]{5,20})\): (?P<code>\d+), (?P<rest>.*)"
)
_DRIVER: Final = re.compile(
    r"NVRM: (?:GPU (?P<device>[0-9a-fA-F:.]{5,20}): )?"
    r"(?P<what>GPU has fallen off the bus|RmInitAdapter failed|rm_init_adapter failed|API mismatch: )"
)
_PROBED: Final = re.compile(r"NVRM: The NVIDIA GPU (?P<device>[0-9a-fA-F:.]{5,20})")
_BUS_ADDRESS: Final = "fallen off the bus"

_OOM_HEAD: Final = re.compile(r"[\w:./+ -]{1,32} invoked oom-killer: ")
_OOM_KILL: Final = re.compile(r"oom-kill:constraint=.{0,2000}?,task=(?P<comm>.{1,32}),pid=(?P<pid>\d+),uid=")
_KILLED: Final = re.compile(
    r"(?:(?P<kind>Memory cgroup out of memory|Out of memory)(?: \([^)]{0,80}\))?: )?"
    r"Kill(?:ed)? process (?P<pid>\d+) \((?P<comm>[^)]{0,32})\)(?P<size>.{0,40}total-vm:)?"
)
_OOM_LINE: Final = re.compile(
    r"\[ *\d+\]|\[ +pid +\]|CPU: |Hardware name|Call Trace|RIP: |RSP: |R[A-Z0-9]{2}: |Code: | |</?TASK>"
    r"|Mem|Node |DMA|Normal|HighMem|memory|swap|Swap |kmem|Tasks |active_anon|lowmem|Total |Free |\d+ "
    r"|hugetlb|Unreclaimable|oom|Out of memory|Memory cgroup"
)
_SEGFAULT: Final = re.compile(
    r"(?P<comm>[^\[\]]{1,32})\[(?P<pid>\d+)\]: (?:segfault at [0-9a-f]+ ip |unhandled signal \d+)"
)
_TRAP: Final = re.compile(
    r"traps: (?P<comm>[^\[\]]{1,32})\[(?P<pid>\d+)\] (?:general protection|trap [a-z ]{1,40})"
)
_HUNG: Final = re.compile(r"INFO: task (?P<comm>.{1,32}):(?P<pid>\d+) blocked for more than \d+ seconds")
_HARDWARE: Final = re.compile(
    r"(?:\S{1,40} \S{1,20}: )?(?:AER: )?(?:Uncorrected \((?:Non-)?Fatal\) error (?:message )?received"
    r"|PCIe Bus Error: severity=Uncorrected|DPC: containment event)"
    r"|Memory failure: 0x[0-9a-f]+: .{0,40}SIGBUS to (?P<comm>[^:]{1,32}):(?P<pid>\d+)"
    r"|EDAC \S{1,40}: \d+ UE |mce: \[Hardware Error\]: CPU \d+: Machine Check Exception"
)
_EARLYOOM: Final = re.compile(
    r'sending SIG(?:TERM|KILL) to process (?P<pid>\d+) (?:uid \d+ )?"(?P<comm>[^"]{0,64})"'
)
_MAX_OOM_LINES: Final = 2000


def open_block(line: Line) -> Block | None:
    """Start a block on a line of the kernel that reports a fault.

    >>> from logtriage.model import Record
    >>> record = Record("", 1, ident="kernel", transport="kernel")
    >>> text = "NVRM: Xid (PCI:0000:1a:00): 31, pid=4242, name=python3, Ch 00000008, intr 00000000. MMU Fault"
    >>> [event] = open_block(Line(text, 1, Process(), record=record)).close()
    >>> event.code, event.pid, event.comm, event.trusted
    (31, 4242, 'python3', True)
    """
    record = line.record
    trusted = _is_kernel(record)
    if not trusted and (line.prefixed or record.ident or record.transport not in ("", "kernel")):
        return None
    if record.ident == "earlyoom":
        return _open_earlyoom(line)
    text = _stripped(line)
    if "NVRM: " in text[:8]:
        return _open_driver(line, text)
    if "SXid" in text and (switch := _SXID.match(text)):
        return _Switch(line, switch)
    if "oom" in text or "process " in text:
        if _OOM_HEAD.match(text) or _OOM_KILL.match(text):
            return _Oom(line)
        killed = _KILLED.match(text)
        if killed and (killed["kind"] or killed["size"]):
            return _Oom(line)
    if fault := _SEGFAULT.match(text) or _TRAP.match(text):
        return _Fault(line, fault)
    if trusted:
        if hung := _HUNG.match(text):
            return _Report(line, _Told("hung-task", pid=int(hung["pid"]), comm=hung["comm"]))
        if hardware := _HARDWARE.match(text):
            pid = int(hardware["pid"]) if hardware["pid"] else None
            return _Report(line, _Told("hardware", pid=pid, comm=hardware["comm"] or ""))
    return None


def _stripped(line: Line) -> str:
    """The text behind the time stamps that ``dmesg`` and syslog leave on it."""
    text = line.text[:HEAD]
    stamp = _STAMP.match(text)
    return (text[stamp.end() :] if stamp else text).rstrip()


def _open_driver(line: Line, text: str) -> Block | None:
    if found := _XID.match(text):
        rest = found["rest"] or ""
        owner = _OWNER.match(rest)
        pid = owner["pid"] if owner else ""
        comm = (owner["name"] or "") if owner else ""
        told = _Told(
            "xid",
            code=int(found["code"]),
            pid=int(pid) if pid.isdecimal() else None,
            comm="" if comm.startswith("<") else comm[:15],
            device=found["device"],
        )
        return _Report(line, told)
    if probed := _PROBED.match(text):
        return _Probed(line, probed["device"])
    if driver := _DRIVER.match(text):
        report = "bus" if driver["what"] == f"GPU has {_BUS_ADDRESS}" else "driver"
        return _Report(line, _Told(report, device=driver["device"] or ""))
    return None


def _open_earlyoom(line: Line) -> Block | None:
    found = _EARLYOOM.match(line.text[:HEAD])
    if found is None:
        return None
    return _Report(line, _Told("oom", pid=int(found["pid"]), comm=found["comm"]))


def _is_kernel(record: Record) -> bool:
    """Whether the kernel itself, or earlyoom in its place, said this."""
    return record.transport == "kernel" or record.ident in ("kernel", "earlyoom")


@attrs.frozen
class _Told:
    """What the first line of a report tells; the names are those of :class:`KernelReport`."""

    report: str
    code: int | None = None
    pid: int | None = None
    comm: str = ""
    device: str = ""


class _Kernel(Gathering):
    """What all reports share."""

    def __init__(self, first: Line) -> None:
        super().__init__(first, keep=False)
        self.texts.append(_stripped(first))
        self._trusted = _is_kernel(first.record)

    def elsewhere(self, line: Line) -> bool:
        """Whether *line* cannot be the kernel's: an engine's prefix stands on it."""
        return line.prefixed and not self._trusted

    def event(self, told: _Told) -> KernelReport:
        """The event."""
        process = self.first.process
        if process.role != "kernel":
            process = Process(role="kernel", label="kernel", host=self.first.record.host)
        return KernelReport(
            message=joined(self.texts),
            report=told.report,
            code=told.code,
            pid=told.pid,
            comm=told.comm,
            device=told.device,
            trusted=self._trusted,
            **self.origin(process),
        )


class _Report(_Kernel):
    """A report of one line and the driver's further lines about it."""

    # One printk with line breaks arrives indented; the driver then adds lines of no news.
    _ECHO = re.compile(
        r"NVRM: (?:GPU \S{1,20}: GPU (?:has fallen off the bus|serial number|is on Board)|A GPU crash dump|"
        r"nvidia-bug-report\.sh|the NVIDIA kernel module|this kernel module has|make sure that this|"
        r"components have the same|\s*-?\d+\s+\d+\s+[A-Z_]+|GPU\d* (?:GSP )?RPC|Rate limiting)"
    )

    def __init__(self, first: Line, told: _Told) -> None:
        super().__init__(first)
        self._told = told

    def offer(self, line: Line) -> bool:
        """Take indented text, and the driver's lines that repeat the report."""
        if self.elsewhere(line) or (line.record.ident or "kernel") != (self.first.record.ident or "kernel"):
            return False
        if line.text[:4].isspace() and line.text.strip() and self._told.report == "xid":
            self.texts.append(line.text.strip()[:HEAD])
            return self.take(line, keep=False) and len(self.texts) < 40
        text = _stripped(line)
        if not self._ECHO.match(text):
            return False
        if self._told.report == "driver":
            self.texts.append(text)
        return self.take(line, keep=False)

    def close(self) -> Sequence[Event]:
        """One report."""
        return [self.event(self._told)]


class _Probed(_Kernel):
    """Three lines of one printk; the last says whether the GPU fell off the bus."""

    def __init__(self, first: Line, device: str) -> None:
        super().__init__(first)
        self._device = device

    def offer(self, line: Line) -> bool:
        """Take the driver's next lines up to the verdict."""
        text = line.text.strip() if line.text[:4].isspace() else _stripped(line)
        if (
            self.elsewhere(line)
            or len(self.texts) > 4
            or _BUS_ADDRESS in self.texts[-1]
            or not text.startswith("NVRM: ")
        ):
            return False
        if _XID.match(text):
            return False
        self.texts.append(text)
        return self.take(line, keep=False)

    def close(self) -> Sequence[Event]:
        """One report, if the GPU fell off the bus."""
        return [self.event(_Told("bus", device=self._device))] if _BUS_ADDRESS in joined(self.texts) else []


class _Switch(_Kernel):
    """A report of an NVSwitch; lines on severity and data repeat its code."""

    def __init__(self, first: Line, found: re.Match[str]) -> None:
        super().__init__(first)
        self._found = found

    def offer(self, line: Line) -> bool:
        """Take lines of the same switch and code that add detail."""
        found = _SXID.match(_stripped(line))
        same = found is not None and all(found[key] == self._found[key] for key in ("device", "code"))
        return bool(same and found and found["rest"].startswith(("Severity", "Data"))) and self.take(
            line, keep=False
        )

    def close(self) -> Sequence[Event]:
        """One report."""
        return [self.event(_Told("sxid", code=int(self._found["code"]), device=self._found["device"]))]


class _Fault(_Kernel):
    """A segmentation fault or another trap; the code bytes stand on the next line."""

    def __init__(self, first: Line, found: re.Match[str]) -> None:
        super().__init__(first)
        self._found = found

    def offer(self, line: Line) -> bool:
        """Take the code bytes."""
        return not self.elsewhere(line) and _stripped(line).startswith("Code: ") and self.take(line)

    def close(self) -> Sequence[Event]:
        """One report; the number is a thread's, which may differ from the process's."""
        return [self.event(_Told("segfault", pid=int(self._found["pid"]), comm=self._found["comm"].strip()))]


class _Oom(_Kernel):
    """The OOM killer's block: who asked, the state of memory, who was killed."""

    def __init__(self, first: Line) -> None:
        super().__init__(first)
        self._victim: tuple[int, str] | None = None
        self._killed = False
        self._lines = 1
        self._read(self.texts[0])

    def _read(self, text: str) -> None:
        killed = _KILLED.match(text)
        if killed and (killed["kind"] or killed["size"]):
            self._killed = True
        found = killed if self._killed else _OOM_KILL.match(text)
        if found:
            self._victim = int(found["pid"]), found["comm"]
            self.texts = [text]

    def offer(self, line: Line) -> bool:
        """Take the kernel's lines up to the one that names the victim."""
        text = _stripped(line)
        self._lines += 1
        if self.elsewhere(line) or self._lines > _MAX_OOM_LINES:
            return False
        if self._killed:
            return text.startswith("oom_reaper: ") and self.take(line, keep=False)
        killed = _KILLED.match(text)
        if not killed and _OOM_KILL.match(text) is None and not _OOM_LINE.match(text):
            return False
        if killed and self._victim and int(killed["pid"]) != self._victim[0]:
            return False
        self._read(text)
        return self.take(line, keep=False)

    def close(self) -> Sequence[Event]:
        """One report, if a victim is named or at least the killer was called."""
        pid, comm = self._victim or (None, "")
        return [self.event(_Told("oom", pid=pid, comm=comm))]
