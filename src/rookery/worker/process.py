"""WorkerProcess: a worker process, started, inspected and ended by its caller."""

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
from rookery.worker.protocol import STACK_SIGNAL, Assignment, Events, WorkerSpec
from rookery.worker.shared_arrays import SharedArrays
from rookery.worker.start import launch
from rookery.worker.start.family import Family
from rookery.worker.wait.event import Arrivals, ProcessEvent

_TERMINATE_GRACE_S = 1.0
_END_WAIT_S = 10.0  # for a process that is about to exit, on a busy machine
_STACK_WAIT_S = 10.0  # for the first output; a process that handles the signal itself writes none
_STACK_GAP_S = 5.0  # between parts of the output, which may come one by one on a busy machine
_STACK_PAUSE_S = 0.05  # after what looks like the end of the output
# The end of the main thread's stack, which comes last. Three dots end a long stack.
_LAST_LINES = (b" in <module>\n", b" in _run_module_as_main\n", b"\n  ...\n")
_CHUNK_BYTES = 65536


class WorkerProcess:
    """A child process that serves a batch of envs.

    Args:
        start_method: see :mod:`rookery.worker.start.launch`.
        threads: maximum number of threads of numerical libraries.
        spec: what to build. A forked process inherits it; for other processes it is pickled.
        name: name of the process.
        arrivals: contains the event that the workers of a vector env share.
        shows_stack: whether errors show the stack of a process that hangs.
        preload: modules that a forkserver imports before it forks.
        is_crowded: whether there are as many workers as cores.
        check: called ten times a second while waiting for a message. An exception that it raises
            ends the wait.

    Attributes:
        kind, fate: for messages, what this worker is and what happens when it is killed.
        node: None, which is this machine.
        pid: id of the process.
        use: memory and CPU use of the process.
        channel: the channel to the process.
        events: the events between the process and the caller.
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
        go, done, (event, is_own) = (
            ProcessEvent(),
            ProcessEvent(is_crowded),
            arrivals.event_for_next(),
        )
        self.events = Events(go, done, event)
        self._unshared_events = (go, done, event) if is_own else (go, done)
        self._stacks, their_stacks = _stack_pipe(shows_stack)
        pipe, theirs = connection.Pipe()
        # A forked worker has the classes of the script; classes pickled by value would differ.
        self.channel = PipeChannel(pipe, check, by_value=inherited is None)
        try:
            self._process = launch.start_process(
                start_method,
                threads,
                entry.run,
                (theirs, self.events, inherited, their_stacks),
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
        self._end = ""  # how it has ended, for messages
        self._unsent = spec if inherited is None else None

    def greet(self) -> None:
        """Send what to build, unless it was inherited."""
        if isinstance(self._unsent, bytes):
            self.channel.send(0, self._unsent)
            self._unsent = None

    def has_built(self) -> None:
        """Remove the names of the events, which the process has opened."""
        self._forget_names()

    def assign(self, assignment: Assignment, shared: SharedArrays) -> None:
        """Give the process its part of the shared arrays."""
        self.channel.send(0, by_value(assignment))
        shared.send(self.channel)
        self._is_assigned = True

    def send_block(self, block: SharedBlock) -> None:
        """Give the process access to a block."""
        self.channel.send_block(block)

    def is_alive(self) -> bool:
        """Return whether the process runs. The sentinel works even if SIGCHLD is ignored."""
        if self._is_over:
            return False
        return not wait([self._process.sentinel], 0) and self._process.exitcode is None

    def end_in_words(self) -> str:
        """Return how the process has ended. Wait for it if it is about to exit."""
        if not self._end:
            self._process.join(_END_WAIT_S)
            out_of_memory = (oom_kills() or 0) > (self._oom_kills_before or 0)
            self._end = exit_in_words(self._process.exitcode, out_of_memory)
        return self._end

    def python_stack(self) -> str:
        """Return the stack of every Python thread of the process, the main thread first.

        Threads in native code are included. If the platform cannot show stacks, the result says so.
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
        """Kill the process and all processes that its envs have started. May be repeated."""
        if not self._is_over:
            self._end_family()
            self.stop(deadline=0.0)

    def stop(self, deadline: float) -> None:
        """Wait for the process until ``deadline``, then end it, and release its resources."""
        if self._is_over:
            return
        if not self._is_assigned:  # it waits for its assignment, and exits when the channel closes
            self.channel.close()
        wait([self._process.sentinel], max(deadline - time.perf_counter(), 0.0))
        if self.is_alive():
            self._process.terminate()
            self._process.join(_TERMINATE_GRACE_S)
        self._end_family()
        self._process.join()
        self._forget_names()
        self._close_pipes()
        if self._process.exitcode is None:  # other code, or an ignored SIGCHLD, has reaped it
            launch.give_up(self._process)
        exit_code = self._process.exitcode
        self._end = self._end or exit_in_words(exit_code)
        if exit_code is not None:
            self._process.close()
        self._is_over = True

    def _end_family(self) -> None:
        """Kill the process and all processes that its envs have started."""
        if not self._family.kill():
            self._process.kill()

    def _close_pipes(self) -> None:
        self.channel.close()
        if self._stacks is not None:
            self._stacks.close()

    def _forget_names(self) -> None:
        for event in self._unshared_events:
            event.forget_name()


def _stack_pipe(is_wanted: bool) -> tuple[PipeEnd | None, PipeEnd | None]:
    if not is_wanted or STACK_SIGNAL is None:
        return None, None
    return connection.Pipe(duplex=False)


def _is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, so that it handles no signals until it continues."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return False


def _read_stacks(pipe: PipeEnd) -> str:
    """Read the output of faulthandler until it is complete, or nothing more comes."""
    text, wait_s = b"", _STACK_WAIT_S
    while wait([pipe], wait_s):
        chunk = os.read(pipe.fileno(), _CHUNK_BYTES)
        if not chunk:  # the process has exited
            break
        text += chunk
        wait_s = _STACK_PAUSE_S if text.endswith(_LAST_LINES) else _STACK_GAP_S
    return text.decode(errors="replace")


def _main_thread_first(text: str) -> str:
    """Reorder faulthandler's stacks: the thread that steps the envs first; without our watcher."""
    stacks = [part for part in text.strip().split("\n\n") if part and " in _watch\n" not in part]
    return "\n\n".join(reversed(stacks)).replace("Current thread", "Thread")
