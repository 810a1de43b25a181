"""The life of a worker process: build the envs, then serve until told to stop."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import parent_process

from rookery.env import registrations
from rookery.env.randomness import fresh_entropy, seed_global_streams, seeded_entropy
from rookery.env.seam import Batch
from rookery.worker.channel import PipeChannel
from rookery.worker.loop import attached, serve
from rookery.worker.pipes import ChannelClosedError, PipeEnd, wait
from rookery.worker.protocol import (
    ADOPT_LARGER_ROWS,
    LEND,
    STACK_SIGNAL,
    Assignment,
    Bells,
    WorkerSpec,
)
from rookery.worker.shared_arrays import Board
from rookery.worker.start.family import end_own_family, lead_family
from rookery.worker.unsendable import description_error

_ORPHAN_CHECK_S = 1.0
_ORPHAN_EXIT_CODE = 70


def run(
    pipe: PipeEnd,
    bells: Bells,
    inherited: WorkerSpec | None,
    stacks: PipeEnd | None,
) -> None:
    """Be a worker.

    Args:
        pipe: the caller sends a WorkerSpec, then, after our Description, an Assignment and the
            board, later requests.
        bells: between the caller and us.
        inherited: the WorkerSpec of a forked worker, which need not be pickled.
        stacks: where to write the Python stack when the caller asks for it with a signal.
    """
    lead_family()
    _leave_signals_to_the_caller()
    end_with_the_caller()
    if sys.platform != "win32" and stacks is not None and STACK_SIGNAL is not None:
        faulthandler.register(STACK_SIGNAL, file=stacks.fileno(), all_threads=True)
    channel = PipeChannel(pipe)
    with suppress(ChannelClosedError):  # the caller is gone, or some other env could not be built
        batch = _build(channel, inherited)
        if batch is not None:
            _serve(channel, bells, batch)
    _leave_threads_behind()


def _build(channel: PipeChannel, inherited: WorkerSpec | None) -> Batch | None:
    received = channel.receive()[1] if inherited is None else b""
    try:
        seed_global_streams(fresh_entropy())
        spec: WorkerSpec = inherited or channel.decode(received)
        _become_like_the_caller(spec)
        batch = spec.make_batch()
        batch.passes_on = ()
        description = _description(channel, batch)
    except BaseException as error:  # whatever an env does, the caller hears of it
        channel.send(0, channel.failure(error))
        return None
    channel.send(0, description)
    return batch


def _description(channel: PipeChannel, batch: Batch) -> bytes:
    """What the envs are, in bytes; PicklingError names what in it cannot travel."""
    said = batch.describe()
    try:
        return channel.encode(said)
    except Exception as error:
        raise description_error(batch, said, error) from error


def _become_like_the_caller(spec: WorkerSpec) -> None:
    """Make this process like the caller's, as far as envs can tell."""
    if spec.environment is not None:
        os.environ.clear()
        os.environ.update(spec.environment)
    if spec.working_directory is not None:
        os.chdir(spec.working_directory)
    registrations.install(spec.registrations)


def _serve(channel: PipeChannel, bells: Bells, batch: Batch) -> None:
    try:
        assignment: Assignment = channel.decode(channel.receive()[1])
        board = Board.receive(assignment.spaces, assignment.num_workers, channel)
    except ChannelClosedError:
        batch.close()
        raise
    follow_seed = partial(_follow_seed, assignment.index)
    server = attached(
        batch, assignment, board.arrays, board.orders, travels=True, on_first_seed=follow_seed
    )
    handler = server.handler

    def receive_loan() -> None:
        handler.memory = channel.receive_block()

    handler.add(
        {ADOPT_LARGER_ROWS: partial(board.receive_larger_rows, channel), LEND: receive_loan}
    )
    serve(channel, bells, server, assignment.first_requests)


def _follow_seed(worker: int, seed: int) -> None:
    seed_global_streams(seeded_entropy(seed, worker))


def _leave_signals_to_the_caller() -> None:
    # A Ctrl-C in a terminal reaches every process of the group; the caller alone deals with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "win32":
        signal.signal(signal.SIGBREAK, signal.SIG_IGN)


def end_with_the_caller() -> None:
    """End, with whatever this process has started, when the caller has ended."""
    threading.Thread(target=_watch, args=(os.getppid(), end_own_family), daemon=True).start()


def _watch(parent_pid: int, leave: Callable[[int], None]) -> None:
    caller = parent_process()
    assert caller is not None
    while not wait([caller.sentinel], _ORPHAN_CHECK_S) and os.getppid() == parent_pid:
        pass
    leave(_ORPHAN_EXIT_CODE)


def _leave_threads_behind() -> None:
    """End at once if an env has left a thread that the interpreter would wait for."""
    here = threading.current_thread()
    if any(not thread.daemon for thread in threading.enumerate() if thread is not here):
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(0)
