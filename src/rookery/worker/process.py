"""WorkerProcess: the life of one worker process, as its caller sees it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from multiprocessing import connection

import psutil

from rookery.common.pickling import by_value
from rookery.common.resources import ProcessWatch, UseWatch
from rookery.shared import SharedBlock
from rookery.worker import entry
from rookery.worker.channel import PipeChannel
from rookery.worker.failures import exit_in_words, oom_kills
from rookery.worker.pipes import PipeEnd, wait
from rookery.worker.protocol import STACK_SIGNAL, Assignment, Bells, WorkerSpec
from rookery.worker.shared_arrays import Board
from rookery.worker.start import launch
from rookery.worker.start.family import Family
from rookery.worker.wait.event import Arrivals, Doorbell

_TERMINATE_GRACE_S = 1.0
_END_WAIT_S = 10.0  # for a process that is about to end: a busy machine takes its time
_STACK_WAIT_S = 10.0  # for the first words; a process that takes the signal itself never answers
_STACK_GAP_S = 5.0  # between words: on a busy machine they may come one by one
_STACK_PAUSE_S = 0.05  # after what looks like the end: it has said all
# How the stack of the main thread ends, which comes last; long ones are cut short by three dots.
_LAST_WORDS = (b" in <module>\n", b" in _run_module_as_main\n", b"\n  ...\n")
_CHUNK_BYTES = 65536


class WorkerProcess:
    """A child process that serves a batch of envs.

    Args:
        start_method: see :mod:`rookery.worker.start.launch`.
        threads: cap on the threads of numerical libraries.
        spec: what to build. A forked process inherits it; for others it was pickled.
        name: of the process.
        arrivals: has the bell that workers of a vector env share.
        shows_stack: whether it is to show where it hangs.
        preload: modules that a forkserver has imported before it forks.
        is_crowded: whether there are as many workers as cores.
        check: called ten times a second while a message is waited for; what it raises ends that.

    Attributes:
        kind, fate: what to call it, and what became of it when it was killed, in messages.
        node: None: this machine.
        pid: of the process.
        use: what it uses.
        channel: to it.
        bells: between it and the caller.
    """

    kind, fate = "process", "was killed"
    node = None

    def __init__(
        self,
        start_method: str,
        threads: int | None,
        spec: WorkerSpec | bytes,
        name: str,
        arrivals: Arrivals,
        shows_stack: bool,
        preload: tuple[str, ...],
        is_crowded: bool,
        check: Callable[[], None],
    ) -> None:
        inherited = None if isinstance(spec, bytes) else spec
        self._oom_kills_before = oom_kills()
        go, done, (bell, is_own) = Doorbell(), Doorbell(is_crowded), arrivals.bell_for_next()
        self.bells = Bells(go, done, bell)
        self._own_bells = (go, done, bell) if is_own else (go, done)
        self._stacks, their_stacks = _stack_pipe(shows_stack)
        pipe, theirs = connection.Pipe()
        # A forked worker has the script's own classes; copies by value would be others.
        self.channel = PipeChannel(pipe, check, by_value=inherited is None)
        try:
            self._process = launch.start_process(
                start_method,
                threads,
                entry.run,
                (theirs, self.bells, inherited, their_stacks),
                name,
                preload,
            )
        except BaseException:
            self._forget_names()
            self._close_pipes()
            raise
        finally:
            theirs.close()
            if their_stacks is not None:
                their_stacks.close()
        self.pid: int = self._process.pid or 0
        self._family = Family(self.pid)
        self.use: UseWatch = ProcessWatch(self.pid)
        self._is_assigned = self._is_over = False
        self._end = ""  # how it ended, in words
        self._unsent = spec if inherited is None else None

    def greet(self) -> None:
        """Send what it is to build, if that was not inherited."""
        if isinstance(self._unsent, bytes):
            self.channel.send(0, self._unsent)
            self._unsent = None

    def has_built(self) -> None:
        """Take in that its envs are built: it has all that travels by name."""
        self._forget_names()

    def assign(self, assignment: Assignment, board: Board) -> None:
        """Give it its part of the board."""
        self.channel.send(0, by_value(assignment))
        board.send(self.channel)
        self._is_assigned = True

    def send_block(self, block: SharedBlock) -> None:
        """Give it access to a block."""
        self.channel.send_block(block)

    def is_alive(self) -> bool:
        """Whether the process runs. The sentinel tells even where SIGCHLD is ignored."""
        if self._is_over:
            return False
        return not wait([self._process.sentinel], 0) and self._process.exitcode is None

    def end_in_words(self) -> str:
        """How the process has ended; it may still be about to."""
        if not self._end:
            self._process.join(_END_WAIT_S)
            out_of_memory = (oom_kills() or 0) > (self._oom_kills_before or 0)
            self._end = exit_in_words(self._process.exitcode, out_of_memory)
        return self._end

    def python_stack(self) -> str:
        """The stack of every Python thread of the process, even in native code; the main one first.

        Where the platform cannot show it, a word about that.
        """
        if STACK_SIGNAL is None or self._stacks is None:
            return "(this platform cannot show the stack of another process)"
        try:
            os.kill(self.pid, STACK_SIGNAL)
        except ProcessLookupError:
            return "(the process has ended)"
        if _is_stopped(self.pid):
            return "(the process is stopped)"
        text = _read_stacks(self._stacks)
        return _main_thread_first(text) or "(the process did not answer)"

    def kill(self) -> None:
        """End the process, and those its envs have started, at once; twice is fine."""
        if not self._is_over:
            self._end_family()
            self.stop(deadline=0.0)

    def stop(self, deadline: float) -> None:
        """End the process by ``deadline``, gently if it lets us, and give back all it held."""
        if self._is_over:
            return
        if not self._is_assigned:  # it waits to be assigned its part, and leaves if nobody is there
            self.channel.close()
        patience_s = max(deadline - time.perf_counter(), 0.0)
        wait([self._process.sentinel], patience_s)
        if self.is_alive():
            self._process.terminate()
            self._process.join(_TERMINATE_GRACE_S)
        self._end_family()
        self._process.join()
        self._forget_names()
        self._close_pipes()
        if self._process.exitcode is None:  # somebody else, or an ignored SIGCHLD, has reaped it
            launch.give_up(self._process)
        exit_code = self._process.exitcode
        self._end = self._end or exit_in_words(exit_code)
        if exit_code is not None:
            self._process.close()
        self._is_over = True

    def _end_family(self) -> None:
        """Kill the process and whatever its envs have started."""
        if not self._family.kill():
            self._process.kill()

    def _close_pipes(self) -> None:
        self.channel.close()
        if self._stacks is not None:
            self._stacks.close()

    def _forget_names(self) -> None:
        for bell in self._own_bells:
            bell.forget_name()


def _stack_pipe(is_wanted: bool) -> tuple[PipeEnd | None, PipeEnd | None]:
    if not is_wanted or STACK_SIGNAL is None:
        return None, None
    return connection.Pipe(duplex=False)


def _is_stopped(pid: int) -> bool:
    """Whether a process waits to be continued, and handles no signal until then."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return False


def _read_stacks(pipe: PipeEnd) -> str:
    """What faulthandler writes until it has said all, or says no more."""
    text, patience_s = b"", _STACK_WAIT_S
    while wait([pipe], patience_s):
        chunk = os.read(pipe.fileno(), _CHUNK_BYTES)
        if not chunk:  # nobody is left who could write
            break
        text += chunk
        patience_s = _STACK_PAUSE_S if text.endswith(_LAST_WORDS) else _STACK_GAP_S
    return text.decode(errors="replace")


def _main_thread_first(text: str) -> str:
    """Faulthandler's stacks, the one of the thread that steps the envs first, without our own."""
    stacks = [part for part in text.strip().split("\n\n") if part and " in _watch\n" not in part]
    return "\n\n".join(reversed(stacks)).replace("Current thread", "Thread")
