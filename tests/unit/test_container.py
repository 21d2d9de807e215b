"""What a container allows, read as the kernel writes it, and what that means for a supervisor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from fencepost.settings import Settings, read
from fencepost.supervisor import cgroup
from fencepost.supervisor.cgroup import Limits
from fencepost.supervisor.container import Container, Memory, description, look, warnings

MIB = 1024 * 1024
NONE = Limits(memory=None, cpus=None, tasks=None, killed_together=False)

V2 = {
    "proc/self/cgroup": "0::/\n",
    "sys/fs/cgroup/memory.max": "536870912\n",
    "sys/fs/cgroup/memory.oom.group": "1\n",
    "sys/fs/cgroup/cpu.max": "150000 100000\n",
    "sys/fs/cgroup/pids.max": "64\n",
}
V2_WITHOUT_LIMITS = {
    "proc/self/cgroup": "0::/\n",
    "sys/fs/cgroup/memory.max": "max\n",
    "sys/fs/cgroup/memory.oom.group": "0\n",
    "sys/fs/cgroup/cpu.max": "max 100000\n",
    "sys/fs/cgroup/pids.max": "max\n",
}
V2_OF_THE_HOST = {
    "proc/self/cgroup": "0::/kubepods/burst/pod1/c1\n",
    "sys/fs/cgroup/kubepods/memory.max": "8589934592\n",
    "sys/fs/cgroup/kubepods/burst/pod1/memory.max": "268435456\n",
    "sys/fs/cgroup/kubepods/burst/pod1/c1/memory.max": "max\n",
    "sys/fs/cgroup/kubepods/burst/pod1/c1/memory.oom.group": "1\n",
    "sys/fs/cgroup/kubepods/burst/pod1/cpu.max": "200000 100000\n",
    "sys/fs/cgroup/kubepods/burst/pod1/c1/cpu.max": "400000 100000\n",
    "sys/fs/cgroup/kubepods/burst/pod1/pids.max": "100\n",
}
V1 = {
    "proc/self/cgroup": "9:pids:/docker/abc\n5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n1:name=systemd:/\n0::/\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "536870912\n",
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/pids/pids.max": "64\n",
}
V1_WITHOUT_LIMITS = {
    "proc/self/cgroup": "9:pids:/\n5:cpu,cpuacct:/\n4:memory:/\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/pids/pids.max": "max\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Callable[[Mapping[str, str]], Path]:
    """Write files below a folder that stands for /."""

    def write(files: Mapping[str, str]) -> Path:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, encoding="ascii")
        return tmp_path

    return write


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Four workers."""
    monkeypatch.setenv("FENCEPOST_CONCURRENCY", "4")
    return read()


def inside(*, memory: int | None = None, cpus: float | None = None, tasks: int | None = None, **other: object) -> Container:
    together = bool(other.pop("killed_together", False))
    limits = Limits(memory=memory, cpus=cpus, tasks=tasks, killed_together=together)
    return Container(limits, **{"descriptors": None, "first_process": "fencepost", **other})


@pytest.mark.parametrize(
    ("files", "limits"),
    [
        (V2, Limits(memory=512 * MIB, cpus=1.5, tasks=64, killed_together=True)),
        (V2_WITHOUT_LIMITS, NONE),
        (V2_OF_THE_HOST, Limits(memory=256 * MIB, cpus=2, tasks=100, killed_together=True)),
        (V1, Limits(memory=512 * MIB, cpus=1.5, tasks=64, killed_together=False)),
        (V1_WITHOUT_LIMITS, NONE),
        ({}, NONE),
        ({**V2, "sys/fs/cgroup/memory.max": "odd\n", "sys/fs/cgroup/cpu.max": "1 0\n"}, Limits(None, None, 64, True)),
    ],
    ids=["v2", "v2 without limits", "v2 with the host's paths", "v1", "v1 without limits", "no cgroups", "unreadable"],
)
def test_the_limits_are_read_as_the_kernel_writes_them(
    root: Callable[[Mapping[str, str]], Path], files: Mapping[str, str], limits: Limits
) -> None:
    """The least of ours and of those above it that can be seen; what says nothing limits nothing."""
    assert cgroup.limits(root(files)) == limits


def test_the_first_process_is_known_by_its_name(root: Callable[[Mapping[str, str]], Path]) -> None:
    """And a container without one that can be read is none to speak of."""
    assert look(root({})).first_process == ""
    assert look(root({"proc/1/comm": "bash\n"})).first_process == "bash"


def test_a_container_is_described_by_its_limits() -> None:
    """Nothing is said of what is not limited."""
    assert description(Limits(memory=512 * MIB, cpus=1.5, tasks=64, killed_together=True)) == (
        "512 MiB of memory, 1.5 CPUs, 64 processes and threads"
    )
    assert description(Limits(memory=None, cpus=1, tasks=None, killed_together=False)) == "1 CPU"
    assert description(NONE) == ""


@pytest.mark.parametrize(
    ("here", "memory", "says"),
    [
        (
            inside(memory=272 * MIB),
            Memory(50 * MIB, 50 * MIB),
            "4 workers and the supervisor need at least 274 MiB before any job",
        ),
        (inside(killed_together=True), None, "kills the supervisor together with all workers (memory.oom.group is 1)"),
        (inside(killed_together=True), None, "recorded as lost, by the next supervisor"),
        (inside(cpus=3.5), None, "4 workers share 3.5 CPU"),
        (inside(tasks=13), None, "need 14 processes and threads, and the container may have 13 (pids.max)"),
        (inside(descriptors=100), None, "4 workers needs 116 descriptors, and may open 100 (ulimit -Hn)"),
        (inside(first_process="sh"), None, "PID 1 is sh, and a shell does not pass on TERM"),
    ],
    ids=["memory", "killed together", "what follows", "cpus", "tasks", "descriptors", "a shell"],
)
def test_what_a_limit_means_is_said_in_one_line(settings: Settings, here: Container, memory: Memory | None, says: str) -> None:
    """D6, G1: what is short, by how much, and what to do or what follows."""
    (line,) = warnings(here, settings, memory)
    assert says in line
    assert "\n" not in line


def test_limits_that_are_enough_are_not_warned_of(settings: Settings) -> None:
    """The least that is enough, of each."""
    here = inside(memory=274 * MIB, cpus=4, tasks=14, descriptors=116, first_process="tini")
    assert warnings(here, settings, Memory(50 * MIB, 50 * MIB)) == []
    assert warnings(inside(memory=1), settings, None) == []


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """A counter of kills and a clock, both to be turned by hand."""
    turned = {"kills": 7, "time": 100.0}
    monkeypatch.setattr(cgroup, "_kills", cgroup._Kills())
    monkeypatch.setattr(cgroup, "_oom_kills", lambda: turned["kills"])
    monkeypatch.setattr("time.monotonic", lambda: turned["time"])
    cgroup.start()
    return turned


def test_each_kill_that_was_counted_is_told_of_one_death(kernel: dict[str, float]) -> None:
    """G1: of two at once, two; of none, none; and what was counted before the start is nobody's."""
    assert not cgroup.counted_an_oom_kill()
    kernel["kills"] += 2
    assert [cgroup.counted_an_oom_kill() for _ in range(3)] == [True, True, False]


def test_a_kill_of_a_jobs_program_is_not_told_of_a_later_death(kernel: dict[str, float]) -> None:
    """G1: no worker has died of it, and whoever is killed later, by someone, is not said to have."""
    kernel["kills"] += 1
    cgroup.look()
    kernel["time"] += cgroup.TOLD_WITHIN + 0.1
    assert not cgroup.counted_an_oom_kill()
