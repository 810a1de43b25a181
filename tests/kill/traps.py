"""Traps: places in a worker's protocol where it kills or stops itself.

`armed` has the workers of this process run :func:`run`, by every start method, which puts traps
into their code before they begin. A trap is set while its file lies in a folder; whoever steps into
it removes the file, so that it catches one worker once.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import current_process
from pathlib import Path
from typing import Any

from rookery.worker import entry
from rookery.worker.protocol import Bells

Spring = Callable[[], None]
Installer = Callable[[Spring], None]

_run = entry.run


@dataclass(frozen=True)
class Trap:
    """One place, and what happens there.

    Attributes:
        point: of POINTS.
        folder: where the file is that sets it.
        worker: name of the process that it is for.
        how: "kill" or "stop".
        helper: None, or who holds all that was open in the worker: a process that it forks first,
            in its "group" or in a "session" of its own.
        then: the trap that is set when this one has caught somebody.
    """

    point: str
    folder: str
    worker: str = "rookery-2"
    how: str = "kill"
    helper: str | None = None
    then: Trap | None = None

    @property
    def file(self) -> Path:
        """That sets it."""
        return Path(self.folder, self.point)

    @property
    def stopped(self) -> int | None:
        """The process that has stopped itself, once it has."""
        try:
            return int(Path(self.folder, "stopped").read_text() or 0) or None
        except FileNotFoundError:
            return None

    @property
    def helpers(self) -> list[int]:
        """Processes that hold what a worker has left open."""
        return [int(path.suffix[1:]) for path in Path(self.folder).glob("helper.*")]

    def set(self) -> None:
        """Have it catch the next one."""
        self.file.touch()

    @property
    def is_set(self) -> bool:
        """Whether it has caught nobody since it was set."""
        return self.file.exists()

    def spring(self) -> None:
        """Be caught, if it is set."""
        try:
            self.file.unlink()
        except FileNotFoundError:
            return
        if self.then is not None:
            self.then.set()
        if self.helper is not None:
            _leave_a_helper(self.helper, self.folder)
        if self.how == "stop":
            Path(self.folder, "stopped").write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP if self.how == "stop" else signal.SIGKILL)

    def all(self) -> Iterator[Trap]:
        """It, and those that follow."""
        yield self
        if self.then is not None:
            yield from self.then.all()


def _leave_a_helper(where: str, folder: str) -> None:
    pid = os.fork()
    if pid:
        Path(folder, f"helper.{pid}").touch()
        return
    if where == "session":
        os.setsid()
    while True:
        signal.pause()


def run(traps: Sequence[Trap], *args: Any) -> None:
    """Be a worker, with traps."""
    for trap in traps:
        if current_process().name == trap.worker:
            POINTS[trap.point](trap.spring)
    _run(*args)


@contextmanager
def armed(trap: Trap) -> Iterator[None]:
    """Within the block, workers that are started have a trap, and those that follow it."""
    before = entry.run
    entry.run = functools.partial(run, tuple(trap.all()))  # type: ignore[assignment]
    try:
        yield
    finally:
        entry.run = before
        for pid in trap.helpers:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:  # the caller has ended it with its worker
                continue


def is_stopped(pid: int | None) -> bool:
    """Whether a process is stopped by a signal."""
    if pid is None:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (FileNotFoundError, ProcessLookupError):
        return False


def await_stop(trap: Trap) -> None:
    """Wait until somebody was caught and has stopped."""
    while not is_stopped(trap.stopped):
        time.sleep(0.01)


# ---------------------------------------------------------------- where


def around(target: str, when: str, only: Callable[..., bool] = lambda *args: True) -> Installer:
    """Before or after a function, given as ``module:Class.name``, is called with some arguments."""

    def install(spring: Spring) -> None:
        module, _, path = target.partition(":")
        owner: Any = importlib.import_module(f"rookery.{module}")
        *classes, name = path.split(".")
        for part in classes:
            owner = getattr(owner, part)
        original = getattr(owner, name)

        @functools.wraps(original)
        def function(*args: Any, **kwargs: Any) -> Any:
            if when == "before" and only(*args):
                spring()
            result = original(*args, **kwargs)
            if when == "after" and only(*args):
                spring()
            return result

        setattr(owner, name, function)

    return install


def _request(method: str) -> Callable[..., bool]:
    return lambda handler, name, args: name == method


def _half(spring: Spring) -> None:
    """A message of which a part was sent."""
    from rookery.worker import pipes

    write = pipes.write

    def write_half(pipe: Any, data: bytes, *watched: Any) -> None:
        half = len(data) // 2
        write(pipe, data[:half], *watched)
        spring()
        write(pipe, data[half:], *watched)

    pipes.write = write_half


class _Words:
    """An array, with a trap before or after something is written to it."""

    def __init__(self, words: Any, spring: Spring, when: str) -> None:
        self._words, self._spring, self._when = words, spring, when

    def __getattr__(self, name: str) -> Any:
        return getattr(self._words, name)

    def __getitem__(self, place: Any) -> Any:
        return self._words[place]

    def __len__(self) -> int:
        return len(self._words)

    def __ne__(self, other: object) -> Any:
        return self._words != other

    def __setitem__(self, place: Any, value: Any) -> None:
        if self._when == "before":
            self._spring()
        if self._when == "half" and len(self._words) > 1 and not isinstance(place, int):
            self._words[0 if isinstance(place, slice) else place[:1]] = value
            self._spring()
        self._words[place] = value
        if self._when == "after":
            self._spring()

    def fill(self, value: Any) -> None:
        self[:] = value


def word(name: str, when: str) -> Installer:
    """Before, after or amid the writing of a word of orders."""

    def install(spring: Spring) -> None:
        from rookery.worker.orders import OrderPart

        init = OrderPart.__init__

        def with_trap(part: Any, *args: Any) -> None:
            init(part, *args)
            setattr(part, name, _Words(getattr(part, name), spring, when))
            columns = part.status, part.answered_at, part.answered
            part._columns = columns, columns  # in place of views of the same memory

        OrderPart.__init__ = with_trap  # type: ignore[method-assign]

    return install


class _Bell:
    def __init__(self, bell: Any, spring: Spring, when: str) -> None:
        self._bell, self._spring, self._when = bell, spring, when

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bell, name)

    def ring(self) -> None:
        if self._when == "before":
            self._spring()
        self._bell.ring()
        if self._when == "after":
            self._spring()


def ring(when: str) -> Installer:
    """Before or after the worker rings."""

    def install(spring: Spring) -> None:
        serve = entry.serve

        def with_trap(channel: Any, bells: Bells, *args: Any) -> None:
            done, arrivals = (_Bell(bell, spring, when) for bell in (bells.done, bells.arrivals))
            serve(channel, Bells(bells.go, done, arrivals), *args)

        entry.serve = with_trap

    return install


SEND, RECEIVE = "worker.channel:PipeChannel.send", "worker.channel:PipeChannel.receive"
ANSWER = "worker.loop:RequestHandler.answer"
MAP = "shared.block:SharedBlock.map"

POINTS: dict[str, Installer] = {
    # being told what to build, and building it
    "before anything": lambda spring: spring(),
    "own group": around("worker.entry:lead_family", "after"),
    "watching the caller": around("worker.entry:end_with_the_caller", "after"),
    "before a message comes": around(RECEIVE, "before"),
    "after a message came": around(RECEIVE, "after"),
    "like the caller": around("worker.entry:_become_like_the_caller", "after"),
    "before the build": around("worker.protocol:BatchMaker.__call__", "before"),
    "amid the build": around("env.recipe:EnvRecipe.build", "after"),
    "after the build": around("worker.protocol:BatchMaker.__call__", "after"),
    "before a message is sent": around(SEND, "before"),
    "half a message": _half,
    "after a message was sent": around(SEND, "after"),
    # being given memory
    "before the board": around("worker.shared_arrays:Board.receive", "before"),
    "before a block": around("worker.channel:PipeChannel.receive_block", "before"),
    "before a mapping": around(MAP, "before"),
    "after a mapping": around(MAP, "after"),
    "after the board": around("worker.shared_arrays:Board.receive", "after"),
    "before serving": around("worker.entry:serve", "before"),
    # orders
    "order seen": around(
        "worker.orders:OrderPart.next_group", "after", lambda part: part.is_busy()
    ),
    "before an order": around("worker.loop:OrderServer.carry_out", "before"),
    "after an order": around("worker.loop:OrderServer.carry_out", "after"),
    "before progress": word("progress", "before"),
    "after progress": word("progress", "after"),
    "before busy_s": word("busy_s", "before"),
    "after busy_s": word("busy_s", "after"),
    "before status": word("status", "before"),
    "after status": word("status", "after"),
    "before answered_at": word("answered_at", "before"),
    "after answered_at": word("answered_at", "after"),
    "before answered": word("answered", "before"),
    "half of answered": word("answered", "half"),
    "after answered": word("answered", "after"),
    "before the ring": ring("before"),
    "after the ring": ring("after"),
    # requests
    "before an answer": around(ANSWER, "before"),
    "after an answer": around(ANSWER, "after"),
    "before set_attr": around(ANSWER, "before", _request("set_attr")),
    "after set_attr": around(ANSWER, "after", _request("set_attr")),
    "before prepare_reset": around(ANSWER, "before", _request("prepare_reset")),
    "after prepare_reset": around(ANSWER, "after", _request("prepare_reset")),
    "before adopt_larger_rows": around(ANSWER, "before", _request("adopt_larger_rows")),
    "after adopt_larger_rows": around(ANSWER, "after", _request("adopt_larger_rows")),
    "before lend": around(ANSWER, "before", _request("lend")),
    "after lend": around(ANSWER, "after", _request("lend")),
    "before install": around(ANSWER, "before", _request("install")),
    "after install": around(ANSWER, "after", _request("install")),
    "before collect": around(ANSWER, "before", _request("collect")),
    "after collect": around(ANSWER, "after", _request("collect")),
    "before weights": around("policy.weights:WeightStore.read", "before"),
    "amid weights": around("policy.weights:_checksum", "before"),
    "after weights": around("policy.weights:WeightStore.read", "after"),
    # the end
    "before close": around(ANSWER, "before", _request("close")),
    "before env.close": around("env.group:EnvGroup.close", "before"),
    "after env.close": around("env.group:EnvGroup.close", "after"),
    "leaving": around("worker.entry:_leave_threads_behind", "before"),
}
