"""The life of a worker process: build the envs, then serve commands until told to stop."""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import connection, parent_process
from multiprocessing.connection import Connection
from typing import Any

from rookery.env import registrations
from rookery.env.batch import EnvBatch
from rookery.env.slab import SEE_SLAB
from rookery.env.travel import pickled
from rookery.worker.board import Board, Words
from rookery.worker.desk import Desk
from rookery.worker.doorbell import Doorbell
from rookery.worker.failure import Failure
from rookery.worker.protocol import (
    ANSWER,
    DONE,
    EVERYBODY,
    FAILURE,
    MAIL,
    REQUEST,
    SEEN_IN_SLAB,
    STACK_SIGNAL,
    Assignment,
    Errand,
    Hello,
)

_ORPHAN_CHECK_S = 1.0
_ORPHAN_EXIT_CODE = 70


def run(
    pipe: Connection,
    go: Doorbell,
    done: Doorbell,
    arrivals: Doorbell,
    inherited: Errand | None,
    stacks: Connection | None,
) -> None:
    """Be a worker.

    Args:
        pipe: the caller sends an Errand, then, after our Hello, an Assignment, later requests.
        go: rung by the caller for each command.
        done: rung by us for each reply.
        arrivals: rung by us and the other workers for each env that has answered its mail.
        inherited: the Errand of a forked worker, which need not be pickled.
        stacks: where to write the Python stack when the caller asks for it with a signal.
    """
    _lead_a_process_group()
    _leave_signals_to_the_caller()
    _end_with_the_caller()
    if stacks is not None and STACK_SIGNAL is not None:
        faulthandler.register(STACK_SIGNAL, file=stacks.fileno(), all_threads=True)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the caller is gone; so are we
        batch = _build(pipe, inherited)
        if batch is not None:
            try:
                assignment: Assignment = pickle.loads(pipe.recv_bytes())
            except EOFError:  # some other env could not be built
                batch.close()
                raise
            _serve(pipe, go, done, arrivals, batch, assignment)


def _build(pipe: Connection, inherited: Errand | None) -> EnvBatch | None:
    received = pipe.recv_bytes() if inherited is None else b""
    try:
        errand: Errand = inherited or pickle.loads(received)
        _settle(errand)
        batch = EnvBatch(errand.recipes, errand.first_id)
    except BaseException as error:  # whatever an env does, the caller hears of it
        pipe.send_bytes(pickled(Failure.of(error)))
        return None
    pipe.send_bytes(pickled(Hello.of(batch.envs)))
    return batch


def _settle(errand: Errand) -> None:
    """Make this process like the caller's, as far as envs can tell."""
    os.environ.clear()
    os.environ.update(errand.environment)
    if errand.working_directory is not None:
        os.chdir(errand.working_directory)
    registrations.install(errand.registrations)


def _serve(
    pipe: Connection,
    go: Doorbell,
    done: Doorbell,
    arrivals: Doorbell,
    batch: EnvBatch,
    assignment: Assignment,
) -> None:
    board = Board.receive(assignment.spaces, assignment.num_workers, pipe)
    words = board.words(assignment.index)
    batch.attach(board.arrays, assignment.autoreset_mode, words.progress, travels=True)
    desk = Desk(batch, board, words.progress, pipe, go)
    closing = interrupted = False
    while not closing and go.wait(_always):
        command, words.command[0] = words.command[0], MAIL
        if command == MAIL:
            interrupted = not _answer_mail(batch, board, words, pipe, arrivals)
            continue
        request = pipe.recv_bytes() if command == REQUEST else None
        try:
            if request is None:
                answer = batch.step(command)
            else:
                method, args = pickle.loads(request)
                closing = method == "close"
                answer = desk.answer(method, args)
            reply, payload = _reply(EVERYBODY, answer)
        except BaseException as error:  # whatever an env does, the caller hears of it
            reply, payload = FAILURE, pickled((EVERYBODY, Failure.of(error)))
        words.reply[0] = reply
        words.busy_s[0] = batch.busy_s
        done.ring()
        if payload:
            pipe.send_bytes(payload)
        if interrupted and not closing:
            interrupted = not _answer_mail(batch, board, words, pipe, arrivals)


def _answer_mail(
    batch: EnvBatch, board: Board, words: Words, pipe: Connection, arrivals: Doorbell
) -> bool:
    """Do what single envs were told; False if a command came before all had answered."""
    mail = board.arrays.mail
    while unanswered := batch.unanswered():
        if words.command[0] != MAIL:
            return False
        env_id = unanswered[0]
        try:
            status, payload = _reply(env_id, batch.obey(env_id))
        except BaseException as error:  # whatever an env does, the caller hears of it
            status, payload = FAILURE, pickled((env_id, Failure.of(error)))
        words.busy_s[0] = batch.busy_s
        mail.answer(env_id, status, time.perf_counter())
        arrivals.ring()
        if payload:
            pipe.send_bytes(payload)
    return True


def _reply(whose: int, answer: Any) -> tuple[int, bytes]:
    """The reply word, and what goes through the pipe."""
    if answer is SEE_SLAB:
        return SEEN_IN_SLAB, b""
    return (ANSWER, pickled((whose, answer))) if answer else (DONE, b"")


def _always() -> bool:
    return True  # whether the caller is still there, the watching thread finds out


def _leave_signals_to_the_caller() -> None:
    # A Ctrl-C in a terminal reaches every process of the group; the caller alone deals with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end_with_the_caller() -> None:
    threading.Thread(target=_watch, args=(os.getppid(), os._exit), daemon=True).start()


def _watch(parent_pid: int, leave: Callable[[int], None]) -> None:
    caller = parent_process()
    assert caller is not None
    while not connection.wait([caller.sentinel], _ORPHAN_CHECK_S) and os.getppid() == parent_pid:
        pass
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)  # ourselves, and whatever the envs have started
    leave(_ORPHAN_EXIT_CODE)


def _lead_a_process_group() -> None:
    # Processes that envs start belong to the group and can be ended with it.
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
