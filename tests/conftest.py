"""Every test must leave the process as it found it: no child, no shared mapping, no descriptor."""

from __future__ import annotations

import gc
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --whole."""
    parser.addoption(
        "--whole",
        action="store_true",
        help="run every combination of parameters, not only so many that every two values meet, "
        "and what exercises another library's classes only",
    )


_GRACE_S = 5.0  # a worker that was told to leave may still be on its way out
_POLL_S = 0.01

# Processes that serve later tests too. A worker that a fork server forked has the same command line
# as the server, so only direct children count as servers.
_SERVER = re.compile(
    r"(multiprocessing\.(forkserver|resource_tracker)|rookery\.worker\.\w+) import"
    r"|-m rookery\.worker"
)


@dataclass(frozen=True)
class Holdings:
    """What a process holds at one moment.

    Attributes:
        children: Description of every living or unreaped descendant that is no server, by identity.
        servers: How the caller is connected to the fork servers and the resource tracker, by
            their identities.
        mappings: Shared mappings: anonymous ones, files, and named memory.
        descriptors: Open descriptors by what they point at, numbers of pipes and sockets left out.
    """

    children: dict[tuple[int, float], str]
    servers: dict[tuple[int, float], str]
    mappings: Counter[str]
    descriptors: Counter[str]

    @classmethod
    def now(cls) -> Holdings:
        """Look at this process."""
        children: dict[tuple[int, float], str] = {}
        servers: dict[tuple[int, float], str] = {}
        for process in psutil.Process().children(recursive=True):
            description = _describe(process)
            if description is None:
                continue
            identity = (process.pid, process.create_time())
            if _is_server(process):
                ours = "rookery.worker.forkserver_main" in " ".join(process.cmdline())
                servers[identity] = "socket" if ours else "pipe"
            else:
                children[identity] = description
        return cls(children, servers, _shared_mappings(), _open_descriptors())

    def gained_since(self, before: Holdings) -> list[str]:
        """Describe everything held now that was not held before."""
        descriptors = self.descriptors - before.descriptors
        # The caller keeps one end of a connection to each server, as long as the server lives.
        descriptors -= Counter(
            kind for key, kind in self.servers.items() if key not in before.servers
        )
        return [
            *(
                f"child process: {text}"
                for key, text in self.children.items()
                if key not in before.children
            ),
            *(f"shared mapping: {name}" for name in (self.mappings - before.mappings).elements()),
            *(f"descriptor: {target}" for target in (+descriptors).elements()),
        ]


def _describe(process: psutil.Process) -> str | None:
    """Say which process it is, or None if it is gone."""
    try:
        command = " ".join(process.cmdline())
        return f"pid {process.pid}, {process.status()}: {command[:160] or process.name()}"
    except psutil.ZombieProcess:
        return f"pid {process.pid}, zombie: {process.pid} was never waited for"
    except psutil.NoSuchProcess:
        return None


def _is_server(process: psutil.Process) -> bool:
    try:
        is_direct_child = process.ppid() == os.getpid()
        return is_direct_child and _SERVER.search(" ".join(process.cmdline())) is not None
    except psutil.Error:
        return False


def _shared_mappings() -> Counter[str]:
    """Count the shared mappings of this process, by name; empty where /proc does not exist."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return Counter()
    fields = [line.split(maxsplit=5) for line in lines]
    return Counter(
        (row[5] if len(row) > 5 else "anonymous") for row in fields if row[1].endswith("s")
    )


def _open_descriptors() -> Counter[str]:
    """Count the open descriptors of this process, by target; empty where /proc does not exist."""
    targets: Counter[str] = Counter()
    try:
        descriptors = os.listdir("/proc/self/fd")
    except OSError:
        return targets
    for descriptor in descriptors:
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # the descriptor that listed the folder
            continue
        targets[re.sub(r":\[\d+\]$", "", target)] += 1
    return targets


def _gained_for_good(before: Holdings) -> list[str]:
    """Describe what is still held after garbage collection and a moment of patience."""
    deadline = time.monotonic() + _GRACE_S
    gained = Holdings.now().gained_since(before)
    if gained:
        gc.collect()
    while gained and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        gained = Holdings.now().gained_since(before)
    return gained


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Fail a test that leaves a process, a shared mapping or a descriptor behind."""
    before = Holdings.now()
    yield
    gained = _gained_for_good(before)
    if gained:
        pytest.fail("the test left behind:\n  " + "\n  ".join(gained), pytrace=False)
