"""Driver: makes rookery's public calls, whatever fails meanwhile, and holds them to the model."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import psutil
from fault_model import DEADLY, HANGS, SOFT, FaultModel, without_causes
from gymnasium.vector import AutoresetMode
from interruption import alarm, interrupted
from model_backends import NUM_ENVS, Backend

import rookery
from rookery import seeding
from rookery.testing import Fault, Scripted
from rookery.testing.comparison import RECV_NAMES, RESET_NAMES, STEP_NAMES, Comparison
from rookery.testing.difference import Difference, find_difference
from rookery.testing.model import Row

PATIENCE_S = 100.0
GONE_S = 60.0  # how long an ended process may take to be gone


class Driver(Comparison):
    """One vector env and its model.

    Args:
        backend: where the envs live.
        mode: ``"next_step"``, ``"same_step"`` or ``"disabled"``.
        copy: whether results are copies.
        restarts: whether failed workers are replaced.
        step_timeout_s: the longest a step may take; None for no deadline.
        start_method: of the workers.

    Attributes:
        counts: how often something of note was done, by name.
    """

    def __init__(
        self,
        backend: Backend,
        mode: str = "next_step",
        copy: bool = True,
        restarts: bool = False,
        step_timeout_s: float | None = None,
        start_method: str | None = None,
        counts: dict[str, int] | None = None,
    ) -> None:
        super().__init__(NUM_ENVS, copy)
        self.counts = {} if counts is None else counts
        self.backend = backend
        self.mode = AutoresetMode[mode.upper()]
        self.has_deadline = step_timeout_s is not None
        env_fns = [partial(Scripted, render_mode="rgb_array")] * NUM_ENVS
        options = dict(backend.options)
        if backend.has_processes:
            options["start_method"] = start_method
        if restarts or self.has_deadline:
            options["faults"] = rookery.FaultPolicy(
                "restart" if restarts else "raise",
                max_restarts=10**6,
                step_timeout_s=step_timeout_s,
            )
        self.note(f"make_vec({options}, autoreset_mode={mode!r}, copy={copy})")
        with alarm():
            self.venv = rookery.make_vec(env_fns, autoreset_mode=mode, copy=copy, **options)
        parts = self.venv.statistics().workers
        workers = [part.env_ids for part in parts if part.pid != os.getpid()]
        self.model = FaultModel(env_fns, self.mode, workers, restarts)
        self.sent: dict[int, Row | None] = {}  # what busy envs will answer; None if they fail
        self.down: set[int] = set()  # workers that were killed, which nobody has noticed yet
        self.is_closed = False

    # ---------------------------------------------------------------- what can be done now

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way, and nobody is dead."""
        return not (self.sent or self.down or self.is_closed)

    @property
    def can_step(self) -> bool:
        """Whether every env may be stepped."""
        return not (self.sent or self.is_closed or self._needs_reset(self.model))

    def allowed(self, faults: Sequence[int], i: int) -> bool:
        """Whether env ``i`` may commit such a fault here, and this process survives it."""
        if faults == HANGS:
            return self.has_deadline and self.model.worker_of(i) is not None
        return faults == SOFT or self.model.worker_of(i) is not None

    def _count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    def _do(self, call: Callable[[], Any]) -> Any:
        self._count("operations")
        with alarm():
            return call()

    def _error(self, call: Callable[[], Any], kinds: Any, what: str) -> BaseException:
        """The error of a call that must raise one."""
        try:
            came = self._do(call)
        except kinds as error:
            return error
        except Exception as error:
            self.fail(Difference("error", what, repr(error)))
        return self.fail(Difference("result", what, came))

    # ---------------------------------------------------------------- reset

    def reset(self, seed: int | None, word: str | None = None, mask: Any = None) -> None:
        """Reset all envs, or those that a mask selects."""
        seeds = None if seed is None else [seed + i for i in range(NUM_ENVS)]
        options: Any = {} if word is None else {"word": word}
        own = options if mask is None else {**options, "reset_mask": np.array(mask)}
        if self.down:
            self.note("reset(seed=10), with a dead worker")
            self._recover([[env] for env in self.model.envs], 10)
            return
        self.note(f"reset(seed={seed}, options={own or None})")
        expected = self.model.reset(seeds, options or None, mask)
        self.begin()
        came = self._do(lambda: self.venv.reset(seed=seed, options=own or None))
        self.take(RESET_NAMES, expected, came)

    def refused_reset(self) -> None:
        """A reset whose options cannot be sent to a worker changes nothing."""
        self.note("reset(options={'word': <a lock>})")
        lock = {"word": threading.Lock()}
        self._error(lambda: self.venv.reset(options=lock), rookery.PicklingError, "a PicklingError")

    def _recover(
        self, candidates: Sequence[Sequence[Any]], seed: int, pids: Sequence[int] | None = None
    ) -> None:
        """Reset all envs after trouble; each env is then one of its candidates, begun anew.

        Where a worker has died and nobody restarts it, the reset may raise what it died of.

        Args:
            candidates: of each env.
            seed: of the reset.
            pids: of the workers before the trouble, if an interruption may have cut a message
                short: the worker that it came from, or was for, is replaced then.
        """
        seeds = [seed + i for i in range(NUM_ENVS)]
        self.begin()
        self.begin()
        dead, self.down, self.sent = self.down, set(), {}
        for worker in dead:
            self.model.attempts[worker] += self.model.restarts
        pids = self.venv.pids if pids is None or dead else pids
        try:
            came = self._do(lambda: self.venv.reset(seed=seed))
        except rookery.WorkerError as error:
            if isinstance(error, rookery.EnvFailed) or not dead or self.model.restarts:
                self.fail(Difference("error", "the envs' first observations", repr(error)))
            self.close()
            return
        except rookery.RookeryError as error:
            self.fail(Difference("error", "the envs' first observations", repr(error)))
        for worker in self._replaced_since(pids) - dead:
            self.model.attempts[worker] += self.model.restarts
            dead.add(worker)
        rows = []
        for i in range(NUM_ENVS):
            choices = [(env, seeds[i]) for env in candidates[i]]
            if self.model.worker_of(i) in dead:
                choices = self._renewed(i, seeds[i])
            rows.append(self._begun(i, choices, came[0][i]))
        obs, _, _, _, info = self.model.batch(rows)
        self.take(RESET_NAMES, (obs, info), came)

    def _replaced_since(self, pids: Sequence[int]) -> set[int]:
        """Workers that are others now."""
        pairs = zip(pids, self.venv.pids, strict=True)
        return {worker for worker, (before, now) in enumerate(pairs) if before != now}

    def _renewed(self, i: int, seed: int) -> list[tuple[Any, int]]:
        """Envs in the place of a lost one: seeded as asked, or, where it was restarted, anew."""
        seeds = [seed]
        if self.model.restarts:
            attempt = self.model.attempts[self.model.worker_of(i)]
            seeds.append(seeding.derived_seed(seed, attempt))
        return [(env, one) for one in seeds for env in self._replaced(i)]

    def _begun(self, i: int, choices: Sequence[tuple[Any, int]], came: Any) -> Row:
        """The first row of whichever candidate fits what came; of the last one if none does."""
        asked = choices[0][1]
        for env, seed in choices:
            self.model.envs[i] = env
            row = self.model.reset_env(i, seed)
            self.model.seeds[i] = asked
            if find_difference(row.obs, came, "") is None:
                break
        return row

    # ---------------------------------------------------------------- step

    def step(self, actions: Sequence[int], in_two: bool = False) -> None:
        """Step all envs, some of which may fail."""
        call = "step_async({0}); step_wait()" if in_two else "step({0})"
        self.note(call.format([_named(a) for a in actions]))
        if self._needs_reset(self.model):
            self._error(partial(self._step, actions, in_two), rookery.UsageError, "a UsageError")
            self.begin()
            self._compare_steps()
            return
        culprits = self._culprits(actions)
        down, self.down = self.down, set()
        before = self.model.copy()
        rows = self.model.step_all(actions, down)
        self._count("faults", len(culprits) + len(down))
        self._count("restarts", sum(self.model.attempts) - sum(before.attempts))
        self.begin()
        if None in rows:
            self._failing_step(partial(self._step, actions, in_two), culprits, down, before)
            return
        came = self._do(partial(self._step, actions, in_two))
        self._take_step(self.model.batch([row for row in rows if row is not None]), came)

    def _step(self, actions: Sequence[int], in_two: bool) -> Any:
        if not in_two:
            return self.venv.step(np.array(actions))
        self.venv.step_async(np.array(actions))
        return self.venv.step_wait(timeout=PATIENCE_S)

    def _take_step(self, expected: Any, came: Any) -> None:
        self.require_parts(STEP_NAMES, came)
        shown = (*came[:4], without_causes(came[4]))
        for name, e, c in zip(STEP_NAMES, expected, shown, strict=True):
            self.compare(e, c, name)
        self.keep(STEP_NAMES, came)

    def _culprits(self, actions: Sequence[int]) -> dict[int, int]:
        bad = (*SOFT, *DEADLY, *HANGS)
        return {i: a for i, a in enumerate(actions) if self.model.asks(i, a, bad)}

    def _failing_step(
        self,
        call: Callable[[], Any],
        culprits: dict[int, int],
        down: set[int],
        before: FaultModel,
    ) -> None:
        """A step in which envs fail raises what one of them did, and names it first.

        Where a worker has died, the others need not have been stepped.
        """
        error: Any = self._error(call, rookery.WorkerError, "a WorkerError")
        soft = {i for i, fault in culprits.items() if fault in SOFT}
        lost = down | {self.model.worker_of(i) for i in culprits if i not in soft}
        in_lost = {i for i in range(NUM_ENVS) if self.model.worker_of(i) in lost}
        named = error.env_ids[0] if error.env_ids else None
        guilty = soft - in_lost if isinstance(error, rookery.EnvFailed) else in_lost
        if named not in (guilty or soft):
            expected = f"an error that names one of {sorted(soft | in_lost)}"
            self.fail(Difference("error.env_ids", expected, f"{error.env_ids} of {error!r}"))
        if lost:
            self.down = {w for w in lost if w is not None}
            self.note("reset(seed=11)")
            self._recover(_candidates([before, self.model]), 11)

    def _compare_steps(self) -> None:
        """Every env must have been stepped as often as the model's."""
        if not self.is_idle:
            return
        expected = self.model.call("steps_ever")
        self.compare(expected, self._do(lambda: self.venv.call("steps_ever")), "steps_ever")

    def late_step(self, actions: Sequence[int], interrupt_at: int | None = None) -> None:
        """A step while a worker is stopped: it is late, or interrupted, and then comes whole."""
        self._compare_steps()  # a worker that still starts would be waited for by step_async
        if self.venv._results.reader.wanted is not None:  # so would be all, to see larger arrays
            self.step(actions)
            return
        self.note(f"step_async({actions}), step_wait(timeout=0.05) while a worker is stopped")
        rows = [self.model.step_env(i, action) for i, action in enumerate(actions)]
        pid = self.venv.pids[0]
        os.kill(pid, signal.SIGSTOP)
        try:
            self.begin()
            self._do(lambda: self.venv.step_async(np.array(actions)))
            wait = partial(self.venv.step_wait, timeout=0.05)
            if interrupt_at is not None and not self.backend.steps_itself:
                wait = partial(interrupted, wait, interrupt_at)
            # An interruption after the last line of the wait is a timeout.
            self._error(wait, (rookery.WorkerTimeout, KeyboardInterrupt), "a WorkerTimeout")
        finally:
            os.kill(pid, signal.SIGCONT)
        came = self._do(lambda: self.venv.step_wait(timeout=PATIENCE_S))
        self._take_step(self.model.batch(rows), came)

    # ---------------------------------------------------------------- partial batches

    def send(self, ids: Sequence[int], actions: Sequence[int]) -> None:
        """Have some envs step."""
        self.note(f"send({[_named(a) for a in actions]}, {list(ids)})")
        self.begin(list(ids))
        for i, action in zip(ids, actions, strict=True):
            self._count("faults", self.model.asks(i, action, SOFT))
            self.sent[i] = self.model.step_one(i, action)
        self._do(lambda: self.venv.send(np.array(actions), list(ids)))

    def send_reset(self, ids: Sequence[int]) -> None:
        """Have some envs begin anew."""
        self.note(f"send_reset(env_ids={list(ids)})")
        self.begin(list(ids))
        for i in ids:
            self.sent[i] = self.model.reset_env(i)
        self._do(lambda: self.venv.send_reset(env_ids=list(ids)))

    def recv(self, min_envs: int) -> None:
        """Take who is ready, or the failure of one that is."""
        self.note(f"recv(min_envs={min_envs})")
        failing = {i for i, row in self.sent.items() if row is None}
        try:
            came = self._do(lambda: self.venv.recv(min_envs=min_envs, timeout=PATIENCE_S))
        except rookery.EnvFailed as error:
            if not error.env_ids or error.env_ids[0] not in failing:
                self.fail(Difference("error", f"a result, or of {failing}", repr(error)))
            del self.sent[error.env_ids[0]]
            return
        told = self.received_ids(came, min_envs, [i for i in self.sent if i not in failing])
        rows: list[Any] = [self.sent.pop(i) for i in told]
        self.take(RECV_NAMES, (*self.model.batch(rows), came[-1]), came)

    def recv_all(self) -> None:
        """Take what is under way."""
        while self.sent:
            self.recv(len(self.sent))

    def send_that_kills(self, actions: Sequence[int]) -> None:
        """Send all envs something that takes a process with it; take what comes, and reset.

        Who had answered by then is a matter of time: an env of the lost worker shows what its step
        led to, or that it was cut short.
        """
        self.note(f"send({[_named(a) for a in actions]}), recv() of all, reset(seed=16)")
        ids = range(NUM_ENVS)
        lost = {self.model.worker_of(i) for i in ids if self.model.asks(i, actions[i], DEADLY)}
        last = self.model.copy()
        self.begin()
        rows: dict[int, Row | None] = {}
        for i, action in enumerate(actions):
            rows[i] = None if action in DEADLY else self.model.step_one(i, action)
        self.sent = dict(rows)
        self._do(lambda: self.venv.send(np.array(actions), list(ids)))
        after_its_worker: set[int] = set()  # who may or may not have answered before it ended
        while self.sent:
            self._recv_of_lost(lost, last, after_its_worker)
        self._count("faults", len(lost))
        candidates = _candidates([last, self.model])
        if not self.model.restarts:
            self.down = {w for w in lost if w is not None}
        else:
            self._count("restarts", len(lost))
            for i in ids:
                if self.model.worker_of(i) in lost:
                    candidates[i] = self._replaced(i)
        self._recover(candidates, 16)

    def _replaced(self, i: int) -> list[Any]:
        """The env in the place of a lost one: just built, or reset once, in the same-step mode."""
        self.model.begin_anew(i)
        begun = deepcopy(self.model.envs[i])
        attempt = self.model.attempts[self.model.worker_of(i)]
        begun.reset(seed=seeding.derived_seed(self.model.seeds[i], attempt))
        return [self.model.envs[i], begun]

    def _recv_of_lost(
        self, lost: set[int | None], last: FaultModel, after_its_worker: set[int]
    ) -> None:
        try:
            came = self._do(lambda: self.venv.recv(min_envs=1, timeout=PATIENCE_S))
        except rookery.WorkerDied as error:
            concerned = {i for i in self.sent if self.model.worker_of(i) in lost}
            if self.model.restarts or not concerned & set(error.env_ids):
                self.fail(Difference("error", f"a result, or of {concerned}", repr(error)))
            for i in concerned:
                if self.sent[i] is None:
                    del self.sent[i]
                else:
                    after_its_worker.add(i)
            return
        except rookery.NoPendingCallError as error:
            if not set(self.sent) <= after_its_worker:
                self.fail(Difference("error", f"a result of {set(self.sent)}", repr(error)))
            self.sent.clear()
            return
        told = self.received_ids(came, 1, list(self.sent))
        fault = came[4].get("fault", {})
        for k, i in enumerate(told):
            row = self.sent.pop(i)
            if not came[4].get("_fault", [False] * len(told))[k]:
                self._compare_row(row, came, k, i)
                continue
            worker = self.model.worker_of(i)
            same_step = self.mode is AutoresetMode.SAME_STEP
            shown = came[4]["final_obs"][k] if same_step else came[0][k]
            self.compare(last.obs[i], np.array(shown), f"last obs of env {i}")
            flags = tuple(part[k].item() for part in came[1:4])
            self.compare((0.0, False, True), flags, f"reward, terminated, truncated of env {i}")
            if worker not in lost or tuple(fault["env_ids"][k]) != tuple(
                self.model.workers[worker]
            ):
                self.fail(Difference("fault", f"of one of the workers {lost}", fault))
            self.model.attempts[worker] = int(fault["attempt"][k])

    def _compare_row(self, row: Row | None, came: Any, k: int, i: int) -> None:
        if row is None:
            self.fail(Difference("recv", f"no answer of env {i}, which died", came))
        expected = self.model.batch([row])
        for name, e, c in zip(STEP_NAMES[:4], expected[:4], came[:4], strict=True):
            self.compare(e[0], c[k], f"{name} of env {i}")

    def interrupt_recv(self, actions: Sequence[int], line: int) -> None:
        """Ctrl-C at a line of recv; a reset follows, at once or once what is busy was received."""
        self.note(f"send({list(actions)}), recv(), Ctrl-C before line {line}, reset(seed=17)")
        before, pids = self.model.copy(), self.venv.pids
        self.begin()
        self.sent = {i: self.model.step_env(i, action) for i, action in enumerate(actions)}
        self._do(lambda: self.venv.send(np.array(actions), list(range(NUM_ENVS))))
        recv = partial(self.venv.recv, min_envs=NUM_ENVS, timeout=PATIENCE_S)
        try:
            self._do(lambda: interrupted(recv, line))
            self.sent = {}
        except KeyboardInterrupt:
            self._count("interruptions")
            self._receive_leftovers(pids)
        worlds = [before, before.half_stepped(actions), self.model]
        self._recover(_candidates(worlds), 17, pids)

    def _receive_leftovers(self, pids: Sequence[int]) -> None:
        """After an interruption: what can still be received is new."""
        try:
            while self.sent:
                came = self._do(lambda: self.venv.recv(min_envs=1, timeout=PATIENCE_S))
                lost = self._replaced_since(pids)
                for k, i in enumerate(self.received_ids(came, 1, list(self.sent))):
                    row = self.sent.pop(i)
                    if self.model.worker_of(i) not in lost:
                        self._compare_row(row, came, k, i)
        except rookery.UsageError:
            self.note("... nothing is left to receive, or a reset is asked for")
        except rookery.WorkerDied as error:
            self._require_torn(error)

    def misuse(self) -> None:
        """Calls that cannot be made now are refused, and change nothing."""
        self.note(f"calls that are refused while {sorted(self.sent)} are busy")
        zeros = np.zeros(NUM_ENVS, int)
        self.refuses(rookery.NoPendingCallError, lambda: self.venv.call_wait())
        if not self.sent:
            self.refuses(rookery.NoPendingCallError, lambda: self.venv.recv(timeout=PATIENCE_S))
            self.refuses(rookery.NoPendingCallError, lambda: self.venv.step_wait())
            return
        busy = min(self.sent)
        for call in (
            lambda: self.venv.step(zeros),
            lambda: self.venv.reset(seed=3),
            lambda: self.venv.call("steps_ever"),
            lambda: self.venv.send(zeros[:1], [busy]),
            lambda: self.venv.send_reset(env_ids=[busy]),
        ):
            self.refuses(rookery.PendingCallError, call)

    # ---------------------------------------------------------------- attributes

    def call(self) -> None:
        """Call a method and get attributes."""
        self.note("call('double', 4), get_attr('label'), render()")
        self.compare(
            self.model.call("double", 4), self._do(lambda: self.venv.call("double", 4)), ""
        )
        came = self._do(lambda: self.venv.get_attr("label"))
        self.compare(self.model.call("label"), came, "label")
        frames = self.model.call("render")
        self.compare(frames, self._do(lambda: self.venv.render()), "frames")
        self._compare_steps()

    def set_attr(self, values: Sequence[Any]) -> None:
        """Set an attribute."""
        self.note(f"set_attr('label', {list(values)})")
        self.model.set_attr("label", values)
        self._do(lambda: self.venv.set_attr("label", list(values)))

    def statistics(self) -> None:
        """Look at numbers and processes."""
        self.note("statistics(), pids")
        parts = self._do(lambda: self.venv.statistics()).workers
        workers = [part.env_ids for part in parts if part.pid != os.getpid()]
        self.compare(list(self.model.workers), workers, "env_ids of the workers")
        self.compare(len(self.model.workers), len(set(self.venv.pids)), "number of pids")

    # ---------------------------------------------------------------- what comes from outside

    def kill(self, worker: int) -> None:
        """Kill a worker that has nothing to do."""
        pid = self.venv.pids[worker]
        self.note(f"kill -9 of worker {worker}")
        os.kill(pid, signal.SIGKILL)
        self._require_ended([pid])
        self.down.add(worker)

    def call_dead(self, name: str) -> None:
        """With a dead worker, a call raises a WorkerError at once, as a reset may afterwards."""
        calls: dict[str, Callable[[], Any]] = {
            "call": lambda: self.venv.call("steps_ever"),
            "set_attr": lambda: self.venv.set_attr("label", "late"),
            "step": lambda: self.venv.step(np.zeros(NUM_ENVS, int)),
        }
        self.note(f"{name}, with a dead worker, and reset(seed=12)")
        self._count("faults")
        before = self.model.copy()
        error: Any = self._error(calls[name], rookery.WorkerDied, "a WorkerDied")
        lost = {i for w in self.down for i in self.model.workers[w]}
        if not error.env_ids or not set(error.env_ids) <= lost:
            self.fail(Difference("error.env_ids", f"some of {sorted(lost)}", error.env_ids))
        after = self.model.copy()
        if name == "step" and not self._needs_reset(before):
            after.step_all([0] * NUM_ENVS, set(self.down))
        self._recover(_candidates([before, after]), 12)
        if not self.is_closed:
            self.set_attr(["again"] * NUM_ENVS)

    def fork(self) -> None:
        """A forked child is refused every call, and its end harms nothing."""
        self.note("fork, calls in the child")
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
            pid = os.fork()
        if pid == 0:
            self._be_the_child(writer)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            told = pipe.read()
        _, status = os.waitpid(pid, 0)
        names = "reset step call set_attr send recv"
        self.compare(
            (0, " ".join(f"{n}:UsageError" for n in names.split())), (status, told), "fork"
        )

    def _be_the_child(self, writer: int) -> None:
        signal.alarm(100)  # ends a child that waits for ever
        told, zeros = [], np.zeros(NUM_ENVS, int)
        calls: dict[str, Callable[[], Any]] = {
            "reset": lambda: self.venv.reset(seed=1),
            "step": lambda: self.venv.step(zeros),
            "call": lambda: self.venv.call("steps_ever"),
            "set_attr": lambda: self.venv.set_attr("label", "child"),
            "send": lambda: self.venv.send(zeros),
            "recv": lambda: self.venv.recv(timeout=1),
        }
        try:
            for name, call in calls.items():
                try:
                    call()
                    told.append(f"{name}:returned")
                except rookery.UsageError:
                    told.append(f"{name}:UsageError")
                except BaseException as error:
                    told.append(f"{name}:{error!r}")
            os.write(writer, " ".join(told).encode())
            del calls, self.venv
            gc.collect()
        finally:
            os._exit(0)

    # ---------------------------------------------------------------- interruptions

    def interrupt_step(self, actions: Sequence[int], line: int, then: str) -> None:
        """Ctrl-C at a line of a step, and another call."""
        self.note(f"step({actions}), Ctrl-C before line {line}, then {then}")
        pids = self.venv.pids
        before, after = self.model.copy(), self.model
        expected = after.batch([after.step_env(i, a) for i, a in enumerate(actions)])
        worlds = [before, before.half_stepped(actions), after]
        self.begin()
        if self._is_interrupted(lambda: self.venv.step(np.array(actions)), line, expected):
            self.begin()
            worlds += self._after_interruption(then, worlds, expected, pids)
        elif then == "close":
            self.close()
        if self.is_closed:
            return
        # Where the line is reached depends on how long workers are waited for; with a reset, what
        # is drawn next does not.
        self.note("reset(seed=13)")
        self._recover(_candidates(worlds), 13, pids)

    def _is_interrupted(self, call: Callable[[], Any], line: int, expected: Any) -> bool:
        try:
            came = self._do(lambda: interrupted(call, line))
        except KeyboardInterrupt:
            self._count("interruptions")
            return True
        self._take_step(expected, came)
        return False

    def _after_interruption(
        self, then: str, worlds: Sequence[FaultModel], expected: Any, pids: Sequence[int]
    ) -> list[FaultModel]:
        """Make the next call: it is refused, or what it returns is new.

        Where the interruption has cut a message short, a worker is lost, and its envs with it.

        Returns:
            What the call has made of the envs, if it did anything to them.
        """
        before = worlds[0]
        try:
            if then == "close":
                self.close()
            elif then == "masked reset":
                return self._masked_reset(worlds, pids)
            elif then == "wait":
                came = self._do(lambda: self.venv.step_wait(timeout=PATIENCE_S))
                if not self._replaced_since(pids):
                    self._take_step(expected, came)
            elif then == "call":
                came = self._do(lambda: self.venv.call("steps_ever"))
                self._one_of([before.call("steps_ever"), self.model.call("steps_ever")], came)
            elif then == "step" and not self._needs_reset(before):
                return self._step_anew(before, pids)
        except rookery.UsageError:
            self.note("... which is refused")  # nothing is under way, or a reset is asked for
        except rookery.WorkerDied as error:
            self._require_torn(error)
        return []

    def _step_anew(self, before: FaultModel, pids: Sequence[int]) -> list[FaultModel]:
        """Step, where the step before may have been made or not; what has become of the envs."""
        came = self._do(lambda: self.venv.step(np.zeros(NUM_ENVS, int)))
        if self._replaced_since(pids):
            return []
        worlds = [m.copy() for m in (before, self.model) if not self._needs_reset(m)]
        self._one_of([m.batch([m.step_env(i, 0) for i in range(NUM_ENVS)]) for m in worlds], came)
        return worlds

    def _masked_reset(self, worlds: Sequence[FaultModel], pids: Sequence[int]) -> list[FaultModel]:
        """Reset some envs: the others show where they are; what has become of all."""
        ids = sorted({0, *self.model.failed})
        mask = np.isin(np.arange(NUM_ENVS), ids)
        obs, _ = self._do(lambda: self.venv.reset(options={"reset_mask": mask}))
        ever = self._do(lambda: self.venv.call("steps_ever"))
        if not self._replaced_since(pids):
            shown = obs[:, 0].astype(int).tolist()
            # An env that replaces a lost one has shown nothing yet: its row is the lost one's last.
            known = [i for i in range(NUM_ENVS) if i in ids or not worlds[0].begins_anew(i)]
            self.compare({i: ever[i] for i in known}, {i: shown[i] for i in known}, "steps_ever")
        later = [world.copy() for world in worlds]
        for world in later:
            for i in ids:
                world.reset_env(i)
        return later

    def _require_torn(self, error: rookery.WorkerDied) -> None:
        if "an interruption cut a message short" not in str(error):
            self.fail(Difference("error", "none, or of a message that was cut short", repr(error)))
        self.note("... which finds a message cut short, and its worker ended")

    def _needs_reset(self, model: FaultModel) -> bool:
        return self.mode is AutoresetMode.DISABLED and any(model.ended)

    def _one_of(self, results: Sequence[Any], came: Any) -> None:
        if all(find_difference(result, came, "") is not None for result in results):
            self.fail(Difference("result", results, came))

    def interrupt_reset(self, line: int) -> None:
        """Ctrl-C at a line of a reset, and a reset."""
        self.note(f"reset(seed=14), Ctrl-C before line {line}, then reset(seed=15)")
        before, pids = self.model.copy(), self.venv.pids
        expected = self.model.reset([14 + i for i in range(NUM_ENVS)])
        self.begin()
        try:
            came = self._do(lambda: interrupted(lambda: self.venv.reset(seed=14), line))
        except KeyboardInterrupt:
            self._count("interruptions")
            self._recover(_candidates([before, self.model]), 15, pids)
            return
        self.take(RESET_NAMES, expected, came)
        self.reset(seed=15)

    def interrupt_close(self, line: int) -> None:
        """Ctrl-C at a line of close, and close again."""
        self.note(f"close(), Ctrl-C before line {line}, then close()")
        pids = self.venv.pids
        try:
            self._do(lambda: interrupted(lambda: self.venv.close(), line))
        except KeyboardInterrupt:
            self._count("interruptions")
        self._end(pids)

    # ---------------------------------------------------------------- the end

    def close(self) -> None:
        """Close, twice; no worker is left, and every call is refused."""
        self.note("close(), twice")
        self._end(self.venv.pids)

    def _end(self, pids: Sequence[int]) -> None:
        self._do(lambda: self.venv.close())
        self._do(lambda: self.venv.close())
        self.is_closed, self.sent, self.down = True, {}, set()
        self.look_back()
        self._require_ended(pids)
        zeros = np.zeros(NUM_ENVS, int)
        self.refuses(rookery.ClosedError, lambda: self.venv.step(zeros))
        self.refuses(rookery.ClosedError, lambda: self.venv.reset())

    def _require_ended(self, pids: Sequence[int]) -> None:
        alive = [pid for pid in pids if not _ends(pid)]
        self.compare([], alive, "workers that are still there")

    def drop(self) -> None:
        """Let the garbage collector close it."""
        self.note("del, garbage collection")
        pids = self.venv.pids
        del self.venv
        self.is_closed, self.sent, self.down = True, {}, set()
        gc.collect()
        self._require_ended(pids)


def _candidates(worlds: Sequence[FaultModel]) -> list[list[Any]]:
    """By env, what it is in each of some models."""
    return [list(envs) for envs in zip(*(deepcopy(world.envs) for world in worlds), strict=True)]


def _ends(pid: int) -> bool:
    """Wait until a process has ended, reaped or not; kill one that does not."""
    deadline = time.monotonic() + GONE_S
    while psutil.pid_exists(pid):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            return False
        time.sleep(0.005)
    return True


def _named(action: int) -> str:
    return Fault(action).name if action in Fault.__members__.values() else str(action)
