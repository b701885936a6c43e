"""A folder in, a small machine out: a real systemd as PID 1 in namespaces of its own.

The host's ``/usr`` is shown read-only; everything else is the machine's: host name, process
ids, mounts, cgroups and journal.  Leaving the ``with`` block kills it with all it started.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

SYSTEMD: Final = Path("/usr/lib/systemd/systemd")
UNITS: Final = Path("/usr/lib/systemd/system")
NAMESPACES: Final = ["-m", "-u", "-i", "-n", "-p", "-C"]
# Without the .wants folders of the host nothing else than the journal starts.
SHIPPED: Final = ("*.target", "*.slice", "systemd-journald*", "systemd-journal-flush.service")
FOLDERS: Final = ("usr", "proc", "sys", "run", "tmp", "dev", "old", "units", "var/log/journal")
FILES: Final = {
    "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\nsystemd-journal:x:999:\n",
    "etc/systemd/journald.conf": "[Journal]\nStorage=persistent\n",
    "etc/systemd/system/machine.target": "[Unit]\nDescription=Machine\nRequires=basic.target\n"
    "Wants=systemd-journald.service systemd-journal-flush.service\nAfter=basic.target\n",
}
BOOT: Final = """
set -eu; echo $$ > "$2/cgroup.procs"; exec unshare -m -u -i -n -p -C --fork --kill-child sh -euc '
hostname gpu01; mount --make-rprivate /; mount --bind "$1" "$1"; cd "$1"
mount --bind /usr usr; mount -o remount,ro,bind usr; mount --bind units usr/lib/systemd/system
mount -t proc proc proc; mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount --bind proc/sys proc/sys; mount -o remount,ro,bind proc/sys
for place in run dev; do mount -t tmpfs -o mode=755 tmpfs $place; done
for name in null zero full random urandom tty; do
    touch dev/$name; mount --bind /dev/$name dev/$name
done
mkdir dev/pts dev/shm; mount -t tmpfs tmpfs dev/shm; touch dev/console
pivot_root . old; cd /; umount -l /old
exec env -i container=test PATH=/usr/sbin:/usr/bin LANG=C.UTF-8 \\
    /usr/lib/systemd/systemd --unit=machine.target --log-target=journal --show-status=no
' sh "$1"
"""


def why_not() -> str | None:
    """Return why no machine can be booted here; ``None`` if one can."""
    if os.geteuid() != 0:
        return "only root can boot a systemd in namespaces"
    if not SYSTEMD.exists():
        return "systemd is not installed (Debian: apt-get install systemd)"
    tried = subprocess.run(["unshare", *NAMESPACES, "--fork", "true"], stderr=subprocess.DEVNULL)
    if tried.returncode:
        return "this system refuses new namespaces (unshare failed)"
    return None if cgroup_mount() else "no cgroup2 file system is mounted"


def cgroup_mount() -> Path | None:
    """Return where the host has mounted its cgroup2 hierarchy."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)


class Machine:
    """A running systemd, reached with :meth:`run`; its root folder stays when it is gone."""

    def __init__(self, root: Path, files: dict[str, str]) -> None:
        """Lay out *root*, an empty folder, with *files*: text by path relative to it."""
        self.root = root
        for name in FOLDERS:
            (root / name).mkdir(parents=True)
        for name in ("bin", "sbin", "lib", "lib64"):
            (root / name).symlink_to(f"usr/{name}")
        (root / "var/run").symlink_to("/run")
        for path in (path for pattern in SHIPPED for path in UNITS.glob(pattern)):
            if path.is_file():
                shutil.copy(path, root / "units")
        for name, text in (FILES | files).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)

    def __enter__(self) -> Machine:
        """Boot and wait until the machine has reached its target."""
        self.cgroup = (cgroup_mount() or Path()) / f"{self.root.name}.{os.getpid()}"
        self.cgroup.mkdir()
        command = ["sh", "-c", BOOT, "sh", str(self.root), str(self.cgroup)]
        with (self.root / "boot.txt").open("w") as said:
            self.outer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=said)
        for _ in range(150):
            time.sleep(0.2)
            if self.run("systemctl", "is-active", "machine.target").strip() == "active":
                return self
            if self.outer.poll() is not None:
                break
        self.__exit__()
        raise RuntimeError(f"systemd did not boot: {(self.root / 'boot.txt').read_text()}")

    def __exit__(self, *exception: object) -> None:
        """Kill the machine and remove its cgroups."""
        self.outer.kill()  # --kill-child: PID 1 of the machine, hence all of it, goes too
        self.outer.wait()
        for _ in range(50):
            with contextlib.suppress(OSError):  # processes still on their way out
                for folder, _, _ in os.walk(self.cgroup, topdown=False):
                    Path(folder).rmdir()
                return
            time.sleep(0.1)

    def run(self, *command: str) -> str:
        """Run *command* inside and return its standard output, empty before the boot."""
        children = f"/proc/{self.outer.pid}/task/{self.outer.pid}/children"
        pid = Path(children).read_text().strip()
        if not pid or Path(f"/proc/{pid}/comm").read_text() != "systemd\n":
            return ""
        inside = ["nsenter", "-t", pid, *NAMESPACES, "--root", "--wd", "env", "TZ=UTC", *command]
        done = subprocess.run(inside, stdout=subprocess.PIPE, text=True, check=False)
        return done.stdout
