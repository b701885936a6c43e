"""The kernel and NVIDIA's driver: the faults they report, and the channel they are believed on."""


from __future__ import annotations

import pytest

from logtriage.events.kernel import open_block
from logtriage.model import KernelReport, Record, Span
from tests.events.feeding import KERNEL, events_of, lines_of, one


def report(text: str, record: Record = KERNEL) -> KernelReport:
    return one(open_block, lines_of(text, record=record), KernelReport)


@pytest.mark.parametrize(
    ("text", "code", "device", "pid", "comm"),
    [
        ("NVRM: Xid (0001:00): 8, Channel 00000000", 8, "0001:00", None, ""),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", 14, "0000:03:00", None, ""),
        (
            "NVRM: Xid (PCI:0000:01:00): 31, Ch 00000003, engmask 00000101, intr 10000000",
            31,
            "0000:01:00",
            None,
            "",
        ),
        (
            "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping",
            63,
            "0000:10:1c",
            1896,
            "",
        ),
        (
            "NVRM: Xid (PCI:0000:3a:00): 94, pid='<unknown>', name=<unknown>, Contained: SM (0x1).",
            94,
            "0000:3a:00",
            None,
            "",
        ),
        ("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.", 79, "0000:01:00", None, ""),
        ("NVRM: Xid (PCI:0000:01:00): 79", 79, "0000:01:00", None, ""),
        (
            "NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=sglang::schedul, Ch 00000001 caused by previous Xid 149",
            45,
            "0000:dc:00",
            1818990,
            "sglang::schedul",
        ),
        (
            "NVRM: Xid (PCI:0000:5e:00 GPU-I:02 GPU-CI:01): 43, pid=7, name=pt main, Ch 8",
            43,
            "0000:5e:00",
            7,
            "pt main",
        ),
    ],
)
def test_an_xid_of_any_driver_is_read(text: str, code: int, device: str, pid: int | None, comm: str) -> None:
    event = report(text)
    assert (event.report, event.code, event.device) == ("xid", code, device)
    assert (event.pid, event.comm, event.trusted) == (pid, comm, True)
    assert (event.process.label, event.message) == ("kernel", text)


@pytest.mark.parametrize(
    "stamp",
    [
        "",
        "[ 3602.305943] ",
        "[Tue Dec  1 02:39:50 2026] ",
        "<6>[ 3602.305943] ",
        "[ 3602.305943][  T531] ",
        "19:14:43  ",
    ],
)
def test_time_stamps_of_dmesg_are_no_part_of_the_message(stamp: str) -> None:
    event = report(f"{stamp}NVRM: Xid (PCI:0000:70:00): 13, Graphics Exception: ESR 0x57e7b0=0x81e0017")
    assert event.message == "NVRM: Xid (PCI:0000:70:00): 13, Graphics Exception: ESR 0x57e7b0=0x81e0017"


def test_text_without_an_envelope_is_an_event_that_is_not_trusted() -> None:
    for text in (
        "NVRM: Xid (PCI:0000:70:00): 79, GPU has fallen off the bus.",
        "kernel: NVRM: Xid (PCI:0000:70:00): 79",
    ):
        assert report(text, Record("", 1)).trusted is False


@pytest.mark.parametrize("ident", ["python3", "sglang", "docker", "systemd"])
def test_a_server_cannot_speak_for_the_kernel(ident: str) -> None:
    record = Record("", 1, ident=ident, transport="stdout")
    for text in (
        "NVRM: Xid (PCI:0000:70:00): 79, GPU has fallen off the bus.",
        "Out of memory: Killed process 4 (x)",
    ):
        assert events_of(open_block, lines_of(text, record=record)) == []


def test_a_prefixed_line_is_the_engines() -> None:
    assert events_of(open_block, "» NVRM: Xid (PCI:0000:70:00): 79, GPU has fallen off the bus.") == []


def test_indented_text_and_echoes_belong_to_the_xid() -> None:
    text = """
NVRM: Xid (PCI:0000:9a:00): 31, pid=477445, name=python3, channel 0x00000002, intr 00000000.
      MMU Fault: ENGINE GRAPHICS GPC0 faulted @ 0x182400_0030198d.
NVRM: GPU 0000:9a:00.0: GPU has fallen off the bus.
NVRM: A GPU crash dump has been created. If possible, please run
NVRM: Xid (PCI:0000:9a:00): 45, pid=477445, name=python3, Ch 00000002"""
    first, second = events_of(open_block, lines_of(text, record=KERNEL))
    assert isinstance(first, KernelReport)
    assert isinstance(second, KernelReport)
    assert (first.code, first.span, second.code) == (31, Span(1, 4), 45)
    assert first.message.endswith("MMU Fault: ENGINE GRAPHICS GPC0 faulted @ 0x182400_0030198d.")


def test_a_gpu_may_fall_off_the_bus_without_an_xid() -> None:
    text = """
NVRM: The NVIDIA GPU 0000:b3:00.0
NVRM: (PCI ID: 10de:26b5) installed in this system has
NVRM: fallen off the bus and is not responding to commands.
nvidia: probe of 0000:b3:00.0 failed with error -1"""
    event = report(text)
    assert (event.report, event.device, event.span) == ("bus", "0000:b3:00.0", Span(1, 3))
    assert "fallen off the bus" in event.message


def test_a_gpu_that_is_merely_named_is_no_fault() -> None:
    text = "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:26b5) is supported\nsomething else"
    assert events_of(open_block, lines_of(text, record=KERNEL)) == []


def test_a_mismatch_of_versions_is_the_drivers_report() -> None:
    text = """
NVRM: API mismatch: the client has the version 550.54.15, but
NVRM: this kernel module has the version 535.104.05.  Please
NVRM: make sure that this kernel module and all NVIDIA driver
NVRM: components have the same version."""
    event = report(text)
    assert (event.report, event.span) == ("driver", Span(1, 4))
    assert "535.104.05" in event.message
    assert report("NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x62:0x40:2477)").report == "driver"


def test_a_switch_reports_with_its_own_numbers() -> None:
    text = """
nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Severity 1 Engine instance 62 Sub-engine instance 00
nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Data {0x50610002, 0x10100030}"""
    event = report(text)
    assert (event.report, event.code, event.device, event.span) == ("sxid", 20034, "0000:c1:00.0", Span(1, 3))


OOM = """
sglang::schedul invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
CPU: 1 UID: 0 PID: 431 Comm: sglang::schedul Not tainted 6.18.44 #1 PREEMPT(none)
Call Trace:
 <TASK>
memory: usage 40960kB, limit 40960kB, failcnt 70
Tasks state (memory values in pages):
[  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name
[    431]     0   431    12667    11814    10112     1702        0   139264        0             0 sglang::schedul
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/x,task_memcg=/x,task=sglang::schedul,pid=431,uid=0
Memory cgroup out of memory: Killed process 431 (sglang::schedul) total-vm:50668kB, anon-rss:40448kB, file-rss:6808kB
oom_reaper: reaped process 431 (sglang::schedul), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB
"""


def test_the_block_of_the_oom_killer_is_one_report_about_its_victim() -> None:
    event = report(OOM)
    assert (event.report, event.pid, event.comm) == ("oom", 431, "sglang::schedul")
    assert event.message.startswith("Memory cgroup out of memory: Killed process 431 (sglang::schedul)")
    assert event.span == Span(1, 11)


@pytest.mark.parametrize(
    ("text", "pid", "comm"),
    [
        ("Out of memory: Killed process 77 (python3) total-vm:1kB, anon-rss:2kB", 77, "python3"),
        ("Out of memory: Kill process 4294 (node) score 4 or sacrifice child", 4294, "node"),
        ("Killed process 4294 (node) total-vm:12kB, anon-rss:4kB", 4294, "node"),
        ("Out of memory (oom_kill_allocating_task): Killed process 9 (a b) total-vm:1kB", 9, "a b"),
        (
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,global_oom,task_memcg=/x,task=python3,pid=5,uid=0",
            5,
            "python3",
        ),
    ],
)
def test_the_victim_may_stand_alone(text: str, pid: int, comm: str) -> None:
    event = report(text)
    assert (event.report, event.pid, event.comm) == ("oom", pid, comm)


def test_two_victims_are_two_reports() -> None:
    text = "\n".join(
        f"Memory cgroup out of memory: Killed process {pid} (python3) total-vm:1kB, anon-rss:2kB"
        for pid in (5, 6)
    )
    assert [getattr(e, "pid", None) for e in events_of(open_block, lines_of(text, record=KERNEL))] == [5, 6]


def test_a_killer_that_found_no_victim_was_still_called() -> None:
    event = report("python3 invoked oom-killer: gfp_mask=0x100cca, order=0\nMem-Info:")
    assert (event.report, event.pid) == ("oom", None)


def test_an_xid_inside_the_block_of_the_oom_killer_is_not_lost() -> None:
    text = "python3 invoked oom-killer: order=0\nNVRM: Xid (PCI:0000:70:00): 45, pid=5, name=python3, Ch 2"
    assert [getattr(e, "report", "") for e in events_of(open_block, lines_of(text, record=KERNEL))] == [
        "oom",
        "xid",
    ]


@pytest.mark.parametrize(
    ("text", "pid", "comm"),
    [
        (
            "sglang::schedul[478]: segfault at 0 ip 00007f93b8f85ad8 sp 00007fff7a490178 error 4 in libc.so.6[167ad8]",
            478,
            "sglang::schedul",
        ),
        (
            "traps: python3[525] general protection fault ip:56003e94119b sp:7ffe error:0 in libcuda.so",
            525,
            "python3",
        ),
        ("traps: python3[526] trap invalid opcode ip:5600 sp:7ffe error:0 in common_ops.so", 526, "python3"),
    ],
)
def test_a_segfault_names_the_thread(text: str, pid: int, comm: str) -> None:
    event = report(f"{text}\nCode: e1 ff ff ff c3 66 2e")
    assert (event.report, event.pid, event.comm, event.span) == ("segfault", pid, comm, Span(1, 2))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("INFO: task python3:24242 blocked for more than 120 seconds.", "hung-task"),
        ("pcieport 0000:00:02.0: AER: Uncorrected (Fatal) error received: 0000:03:00.0", "hardware"),
        (
            "Memory failure: 0x12345: Sending SIGBUS to python3:4242 due to hardware memory corruption",
            "hardware",
        ),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0", "hardware"),
    ],
)
def test_the_host_reports_its_own_faults_on_the_kernels_channel_only(text: str, kind: str) -> None:
    assert report(text).report == kind
    assert events_of(open_block, lines_of(text, record=Record("", 1))) == []


def test_earlyoom_kills_without_the_kernel() -> None:
    text = 'sending SIGTERM to process 431 uid 0 "sglang::schedul": badness 912, VmRSS 210343 MiB'
    event = report(text, Record("", 1, ident="earlyoom"))
    assert (event.report, event.pid, event.comm) == ("oom", 431, "sglang::schedul")


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0",
        "pcieport 0000:00:02.0: AER: Multiple Corrected error received: 0000:03:00.0",
        "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE",
        "audit: type=1400 apparmor=DENIED",
    ],
)
def test_what_is_no_fault_gives_nothing(text: str) -> None:
    assert events_of(open_block, lines_of(text, record=KERNEL)) == []
