"""What holds for every test: which ones run, and that nothing may be left behind.

A test must leave the process as it found it: no child, no thread, no shared mapping, no descriptor,
no named semaphore, no folder of multiprocessing's.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from multiprocessing.process import current_process
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest
from pairs import every_pair

# A slow machine makes no example wrong. In CI everybody gets the same examples.
hypothesis.settings.register_profile("free", deadline=None, print_blob=True)
hypothesis.settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
hypothesis.settings.load_profile("ci" if "CI" in os.environ else "free")

# Where bytecode is not to be written, everyone of the hundreds of interpreters that tests start
# would compile rookery anew, and every process of this run would rewrite every test.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell starts background jobs with Ctrl-C ignored, and all children would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# ---------------------------------------------------------------- which tests run, and where


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many processes run the tests: none but this one where files or tests were named.

    Two more than there are cores, for many tests wait for what is not computed here.
    """
    if config.option.keyword or not all(Path(argument).is_dir() for argument in config.args):
        return 0
    return min(os.cpu_count() or 1, 6) + 2


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --slow, --whole and --skip-missing."""
    parser.addoption(
        "--slow",
        action="store_true",
        help="run what takes seconds too, which the whole suite leaves out; "
        "files, folders and -k run it in any case",
    )
    parser.addoption(
        "--whole",
        action="store_true",
        help="run every combination of parameters, not only so many that every two values meet, "
        "what exercises another library's classes only, and what neighbours prove too",
    )
    parser.addoption(
        "--skip-missing",
        action="store_true",
        help="skip tests that fail for want of a package, as torch where there is only the core",
    )


@pytest.hookimpl(trylast=True)  # after -k and -m have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only --whole runs, and of the whole suite what only --slow runs."""
    if config.getoption("whole"):
        return
    left_out = {"peer", "whole"}
    if _is_for_everything(config) and not config.getoption("slow"):
        left_out.add("slow")
    named = tuple(argument for argument in config.args if "::" in argument)
    candidates = defaultdict(list)
    for item in items:
        is_left_out = any(mark.name in left_out for mark in item.iter_markers())
        if not is_left_out or item.nodeid.endswith(named):
            candidates[item.nodeid.partition("[")[0]].append(item)
    kept = {item.nodeid for test in candidates.values() for item in _where_every_pair_meets(test)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]


def _is_for_everything(config: pytest.Config) -> bool:
    """Whether the whole suite is to run, and nothing was chosen from it."""
    everything = {config.rootpath, *(config.rootpath / path for path in config.getini("testpaths"))}
    asked = {config.invocation_params.dir / argument for argument in config.args}
    return asked <= everything and not (config.option.keyword or config.option.markexpr)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have the garbage collector look at nothing that was there before the first test.

    What tests and their libraries have imported stays, and makes every look at it long.

    And keep torch to one thread: with a test on every core, two would spin for each other, which
    made a learner's steps take five times as much of a core.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
    gc.collect()
    gc.freeze()


def _where_every_pair_meets(items: list[pytest.Item]) -> list[pytest.Item]:
    """Choose from the items of one test function.

    A list of parameters that one ``parametrize`` or fixture gives counts as one parameter.
    """
    if not hasattr(items[0], "callspec"):
        return items
    return [items[i] for i in every_pair([item.callspec._idlist for item in items])]


# ---------------------------------------------------------------- packages that are not installed


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[Any]:
    """Skip a file that imports what is not installed."""
    report = yield
    if report.failed and collector.config.getoption("skip_missing"):
        missing = re.search(r"No module named '([\w.]+)'", str(report.longrepr))
        if missing and _is_missing(missing[1]):
            report.outcome = "skipped"
            report.longrepr = (str(collector.path), 0, f"Skipped: needs {missing[1]}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[Any]:
    """Skip a test whose fixtures need what is not installed."""
    return (yield from _skipped_where_missing(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[Any]:
    """Skip a test that needs what is not installed."""
    return (yield from _skipped_where_missing(item))


def _skipped_where_missing(item: pytest.Item) -> Generator[None, Any, Any]:
    try:
        return (yield)
    except Exception as error:
        missing = _what_is_missing(error) if item.config.getoption("skip_missing") else None
        if missing is None:
            raise
    # What the error knows would be taken for left behind, were it kept.
    for kept in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(kept, None)
    pytest.skip(missing)


def _what_is_missing(error: BaseException | None) -> str | None:
    """Say for want of which package an error was raised, if that is why."""
    while error is not None:
        if type(error).__name__ in ("MissingExtra", "DependencyNotInstalled"):
            return str(error)
        if isinstance(error, ModuleNotFoundError) and error.name and _is_missing(error.name):
            return f"needs {error.name}"
        error = error.__cause__ or error.__context__
    return None


def _is_missing(module: str) -> bool:
    return importlib.util.find_spec(module.partition(".")[0]) is None


# ---------------------------------------------------------------- what is left behind

_GRACE_S = 30.0  # a worker that was told to leave may still be on its way out
_POLL_S = 0.01

_MULTIPROCESSINGS_FOLDER = "pymp-"  # where it keeps its sockets
_SEMAPHORES = Path("/dev/shm")

# Processes that serve later tests too. A worker that a fork server forked has the same command line
# as the server, so only direct children count as servers.
_SERVER = re.compile(
    r"(multiprocessing\.(forkserver|resource_tracker)|rookery\.worker\.[\w.]+) import"
    r"|-m rookery\.worker"
)


@dataclass(frozen=True)
class Holdings:
    """What a process holds at one moment.

    Attributes:
        children: Description of every living or unreaped descendant that is no server, by identity.
        servers: How the caller is connected to the fork servers and the resource tracker, by
            their identities.
        threads: Description of every living thread, by identity.
        mappings: Shared mappings: anonymous ones, files, and named memory.
        descriptors: Open descriptors by what they point at, numbers of pipes and sockets left out.
        files: Folders of multiprocessing's, except this process's own, and our named semaphores.
    """

    children: dict[tuple[int, float], str]
    servers: dict[tuple[int, float], str]
    threads: dict[int, str]
    mappings: Counter[str]
    descriptors: Counter[str]
    files: frozenset[str]

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
                ours = "rookery.worker.start.forkserver_main" in " ".join(process.cmdline())
                servers[identity] = "socket" if ours else "pipe"
            else:
                children[identity] = description
        threads = {id(thread): repr(thread) for thread in threading.enumerate()}
        return cls(
            children,
            servers,
            threads,
            _shared_mappings(),
            _open_descriptors(),
            _files(),
        )

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
            *(f"thread: {text}" for key, text in self.threads.items() if key not in before.threads),
            *(f"shared mapping: {name}" for name in (self.mappings - before.mappings).elements()),
            *(f"descriptor: {target}" for target in (+descriptors).elements()),
            *(
                f"file: {path}"
                for path in sorted(self.files - before.files)
                if not _is_anothers(path)
            ),
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
        if target.endswith(".ttf"):  # matplotlib 3.8 keeps the fonts of a PDF open
            continue
        targets[re.sub(r":\[\d+\]$", "", target)] += 1
    return targets


def _files() -> frozenset[str]:
    """List folders of multiprocessing's and semaphores that have our name."""
    own = current_process()._config.get("tempdir")  # removed when this process ends
    folders = Path(tempfile.gettempdir()).glob(f"{_MULTIPROCESSINGS_FOLDER}*")
    semaphores = _SEMAPHORES.glob("sem.*rookery*")
    return frozenset(map(str, [*folders, *semaphores])) - {str(own)}


def _is_anothers(name: str) -> bool:
    """Whether a living process that is not this one gave the name, which has a pid in it."""
    pid = re.search(r"rookery-(\d+)", name)
    return pid is not None and int(pid[1]) != os.getpid() and psutil.pid_exists(int(pid[1]))


# What modules with tests import, and workers with them whose envs stand there. None of it is large.
_IMPORTED_BY_TESTS = (
    "gymnasium.envs.classic_control.cartpole",
    "gymnasium.vector",
    "hypothesis",
    "pytest",
    "rookery.testing.faulty",
)


@pytest.fixture(scope="session", autouse=True)
def fork_servers_import_what_tests_do() -> Iterator[None]:
    """Have a fork server import once what would take each of its workers a tenth of a second."""
    if "rookery" not in sys.modules:  # as in the tests of this file
        yield
        return
    from rookery.worker.start import launch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "_PRELOAD", [*launch._PRELOAD, *_IMPORTED_BY_TESTS])
        yield


@pytest.fixture(scope="session", autouse=True)
def folder_for_temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give this run a temporary folder of its own, so that nobody else's files are blamed on it."""
    tmp_path_factory.getbasetemp()  # stays where it is, for its files are kept for some time
    folder = tempfile.mkdtemp(prefix="rk-")  # short, for sockets in it have names of bounded length
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield
    # After multiprocessing has removed what it keeps in there.
    Finalize(None, shutil.rmtree, (folder, True), exitpriority=-1000)


def _gained_for_good(before: Holdings) -> tuple[list[str], Holdings]:
    """Describe what is still held after garbage collection and a moment of patience, and all."""
    deadline = time.monotonic() + _GRACE_S
    now = Holdings.now()
    gained = now.gained_since(before)
    if gained:
        gc.collect()
    while gained and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        now = Holdings.now()
        gained = now.gained_since(before)
    return gained, now


class Watch:
    """What was held after the test before, unless something outlives tests since then.

    A plugin, for of a conftest file's hooks pytest does not call these for fixtures of a session.
    """

    latest: Holdings | None = None

    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """What is set up for several tests is no gain of one."""
        self._forget(fixturedef)

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """What the end of a fixture of several tests leaves is no gain of the next test."""
        self._forget(fixturedef)

    def _forget(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        if fixturedef.scope != "function":
            self.latest = None


_watch = Watch()


def pytest_configure(config: pytest.Config) -> None:
    """Be told of fixtures."""
    config.pluginmanager.register(_watch)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Fail a test that leaves anything behind."""
    before = _watch.latest or Holdings.now()
    yield
    gained, _watch.latest = _gained_for_good(before)
    if gained:
        pytest.fail("the test left behind:\n  " + "\n  ".join(gained), pytrace=False)
