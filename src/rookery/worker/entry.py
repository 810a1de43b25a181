"""Main function of a worker process: build the envs, then serve until the caller closes them."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from contextlib import suppress
from functools import partial
from multiprocessing import parent_process

from rookery.env import registrations
from rookery.env.randomness import fresh_entropy, seed_global_streams, seeded_entropy
from rookery.env.seam import Batch
from rookery.worker.channel import PipeChannel
from rookery.worker.failures import description_error
from rookery.worker.loop import attached, serve
from rookery.worker.pipes import ChannelClosedError, PipeEnd, wait
from rookery.worker.protocol import (
    ADOPT_LARGER_ROWS,
    LEND,
    STACK_SIGNAL,
    Assignment,
    Events,
    WorkerSpec,
)
from rookery.worker.shared_arrays import SharedArrays
from rookery.worker.start.family import end_own_family, lead_family

_ORPHAN_CHECK_S = 1.0
_ORPHAN_EXIT_CODE = 70


def run(
    pipe: PipeEnd,
    events: Events,
    inherited: WorkerSpec | None,
    stacks: PipeEnd | None,
) -> None:
    """Run a worker until it is closed or its caller has exited.

    Args:
        pipe: the caller sends a WorkerSpec. The worker answers with a Description. Then the caller
            sends an Assignment, the shared arrays, and requests.
        events: the events between the caller and this worker.
        inherited: the WorkerSpec of a forked worker, which is not pickled.
        stacks: where to write the Python stack when the caller asks for it with a signal.
    """
    lead_family()
    _leave_signals_to_the_caller()
    end_with_the_caller()
    if sys.platform != "win32" and stacks is not None and STACK_SIGNAL is not None:
        faulthandler.register(STACK_SIGNAL, file=stacks.fileno(), all_threads=True)
    channel = PipeChannel(pipe)
    with suppress(ChannelClosedError):  # the caller is gone, or another env could not be built
        batch = _build(channel, inherited)
        if batch is not None:
            _serve(channel, events, batch)
    _leave_threads_behind()


def _build(channel: PipeChannel, inherited: WorkerSpec | None) -> Batch | None:
    received = channel.receive()[1] if inherited is None else b""
    try:
        seed_global_streams(fresh_entropy())
        spec: WorkerSpec = inherited or channel.decode(received)
        _adopt_spec(spec)
        batch = spec.make_batch()
        batch.passes_on = ()
        description = _description(channel, batch)
    except BaseException as error:  # the caller raises it
        channel.send(0, channel.failure(error))
        return None
    channel.send(0, description)
    return batch


def _description(channel: PipeChannel, batch: Batch) -> bytes:
    """Pickle the description of the envs. PicklingError names the part that cannot be pickled."""
    description = batch.describe()
    try:
        return channel.encode(description)
    except Exception as error:
        raise description_error(batch, description, error) from error


def _adopt_spec(spec: WorkerSpec) -> None:
    """Set environment variables, working directory and registrations as in the caller."""
    if spec.environment is not None:
        os.environ.clear()
        os.environ.update(spec.environment)
    if spec.working_directory is not None:
        os.chdir(spec.working_directory)
    registrations.install(spec.registrations)


def _serve(channel: PipeChannel, events: Events, batch: Batch) -> None:
    try:
        assignment: Assignment = channel.decode(channel.receive()[1])
        shared = SharedArrays.receive(assignment.spaces, assignment.num_workers, channel)
    except ChannelClosedError:
        batch.close()
        raise
    follow_seed = partial(_follow_seed, assignment.index)
    server = attached(
        batch, assignment, shared.arrays, shared.orders, pickles=True, on_first_seed=follow_seed
    )
    handler = server.handler

    def receive_loan() -> None:
        handler.memory = channel.receive_block()

    handler.add(
        {ADOPT_LARGER_ROWS: partial(shared.receive_larger_rows, channel), LEND: receive_loan}
    )
    serve(channel, events, server, assignment.first_requests)


def _follow_seed(worker: int, seed: int) -> None:
    seed_global_streams(seeded_entropy(seed, worker))


def _leave_signals_to_the_caller() -> None:
    # A Ctrl-C in a terminal reaches every process of the group. Only the caller handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "win32":
        signal.signal(signal.SIGBREAK, signal.SIG_IGN)


def end_with_the_caller() -> None:
    """Exit when the caller has exited, together with all processes started by this one."""
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent_pid: int) -> None:
    caller = parent_process()
    assert caller is not None
    while not wait([caller.sentinel], _ORPHAN_CHECK_S) and os.getppid() == parent_pid:
        pass
    end_own_family(_ORPHAN_EXIT_CODE)


def _leave_threads_behind() -> None:
    """Exit at once if an env has left a thread that the interpreter would wait for."""
    here = threading.current_thread()
    if any(not thread.daemon for thread in threading.enumerate() if thread is not here):
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(0)
