"""Short ways to mistakes that the model found, each told by itself."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import weakref
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pytest
from driver import Driver
from interruption import interrupted
from machine import NEXT_CALLS
from model_backends import BACKENDS, NUM_ENVS
from patience import DEADLINE_S, PATIENCE_S

import rookery
from rookery.testing import Fault, Scripted

WITH_PROCESSES = [name for name, backend in BACKENDS.items() if backend.has_processes]
WITHOUT_CALLER = [name for name, backend in BACKENDS.items() if backend.can_restart]
ZEROS = (0,) * NUM_ENVS


class Walked(Driver):
    """A driver that is closed when its block ends, and looks back after every operation."""

    def note(self, operation: str) -> None:
        self.look_back()
        super().note(operation)

    def __enter__(self) -> Walked:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.look_back()
        if not self.is_closed:
            self.venv.close()


def _driver(name: str, *args: Any, **options: Any) -> Walked:
    driver = Walked(BACKENDS[name], *args, **options)
    driver.reset(seed=0)
    return driver


# -------------------------------------------------------------------- workers that die


@pytest.mark.parametrize("call", ["call", "set_attr", "step"])
@pytest.mark.parametrize("worker", [0, 1])
def test_after_a_call_met_a_dead_worker_nothing_is_pending(call: str, worker: int) -> None:
    with _driver("process-2") as driver:
        driver.kill(worker)
        driver.call_dead(call)


@pytest.mark.parametrize("worker", [0, 1])
def test_a_close_with_a_dead_worker_closes_the_envs_of_the_others(
    worker: int, tmp_path: Any
) -> None:
    marks = [tmp_path / str(i) for i in range(2)]
    venv = rookery.make_vec([_Marking(mark) for mark in marks], backend="process", num_workers=2)
    venv.reset(seed=0)
    pid = venv.pids[worker]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(rookery.WorkerDied):
        venv.call("steps_ever")
    venv.close()
    assert [mark.exists() for mark in marks] == [worker != 0, worker != 1]


class _Marking:
    """Builds an env that leaves a file when it is closed."""

    def __init__(self, mark: Any) -> None:
        self.mark = mark

    def __call__(self) -> Any:
        mark = self.mark

        class Marked(Scripted):
            def close(self) -> None:
                mark.touch()

        return Marked()


# -------------------------------------------------------------------- restarts


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_infos_of_a_lost_worker_are_not_told_again(mode: str, copy: bool, steps: int) -> None:
    with _driver("process-2", mode, copy, restarts=True) as driver:
        for _ in range(steps):
            driver.step(ZEROS)
        for _ in range(3):
            driver.step((Fault.KILL, 0, 0))
            if mode == "disabled":
                driver.reset(None, mask=[True, True, True])
            driver.step(ZEROS)


def test_an_env_that_was_only_to_be_reset_does_not_end_twice() -> None:
    for name in WITHOUT_CALLER:
        with _driver(name, restarts=True) as driver:
            driver.step((Fault.END, 0, Fault.TRUNCATE))
            driver.step((0, Fault.KILL, 0))
            driver.step(ZEROS)


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [True, False])
def test_an_env_that_hangs_is_lost_and_all_begin_anew(restarts: bool) -> None:
    with _driver("process-2", restarts=restarts, step_timeout_s=DEADLINE_S) as driver:
        driver.step(ZEROS)
        driver.step((0, Fault.HANG, 0))
        if not driver.is_closed:
            driver.reset(seed=4)
            driver.step(ZEROS)


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_whoever_answered_before_its_worker_died_is_received(mode: str, restarts: bool) -> None:
    with _driver("process-2", mode, restarts=restarts) as driver:
        driver.send_that_kills((0, 1, Fault.KILL))
        if not driver.is_closed:
            driver.step(ZEROS)


# -------------------------------------------------------------------- envs that raise


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("name", BACKENDS)
def test_whoever_fails_all_others_are_stepped_once(name: str, mode: str) -> None:
    with _driver(name, mode) as driver:
        for env in range(NUM_ENVS):
            actions = [0] * NUM_ENVS
            actions[env] = Fault.RAISE
            driver.step(actions)
            driver.call()
            driver.step(ZEROS)


def _end(driver: Driver, env: int, actions: list[int]) -> None:
    """Take a step that ends an env's episode; nobody is stepped before that env was reset."""
    driver.step(actions)
    driver.step(ZEROS)  # refused
    driver.reset(None, mask=[i == env for i in range(NUM_ENVS)])
    driver.step(ZEROS)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_step_of_ended_envs_is_refused_and_steps_none(name: str) -> None:
    for env in range(NUM_ENVS):
        with _driver(name, "disabled") as driver:
            actions = [0] * NUM_ENVS
            actions[env] = Fault.END
            _end(driver, env, actions)


@pytest.mark.parametrize("name", BACKENDS)
def test_after_an_env_raised_a_vector_env_that_is_dropped_is_not_kept(name: str) -> None:
    venv = rookery.make_vec([Scripted] * NUM_ENVS, **BACKENDS[name].options)
    venv.reset(seed=0)
    with pytest.raises(rookery.EnvFailed):
        venv.step(np.full(NUM_ENVS, Fault.RAISE))
    kept = weakref.ref(venv)
    del venv
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("name", BACKENDS)
def test_an_episode_that_ended_beside_a_failure_is_not_stepped_on(name: str) -> None:
    with _driver(name, "disabled") as driver:
        for env in range(NUM_ENVS):
            actions = [0] * NUM_ENVS
            actions[env], actions[env - 1] = Fault.END, Fault.RAISE
            _end(driver, env, actions)


@pytest.mark.parametrize("name", WITHOUT_CALLER)
def test_an_episode_that_ended_in_a_dropped_step_is_not_stepped_on(name: str) -> None:
    with _driver(name, "disabled") as driver:
        venv = driver.venv
        with pytest.raises(KeyboardInterrupt), venv._pending.guard:
            venv.step_async(np.array([0, Fault.END, 0]))
            raise KeyboardInterrupt
        venv.reset(options={"reset_mask": np.array([True, False, False])})
        with pytest.raises(rookery.UsageError, match=r"episodes of envs \[1\] have ended"):
            venv.step(np.array(ZEROS))


# -------------------------------------------------------------------- views


@pytest.mark.parametrize("name", WITH_PROCESSES)
def test_a_reset_that_cannot_be_sent_leaves_the_arrays_alone(name: str) -> None:
    with _driver(name, "next_step", False) as driver:
        driver.step(ZEROS)
        driver.refused_reset()
        driver.send([0], [0])
        driver.recv_all()
        driver.refused_reset()
        driver.send_reset([1, 2])
        driver.recv_all()
        driver.reset(None, mask=[True, False, False])
        driver.refused_reset()
        driver.step(ZEROS)


@pytest.mark.parametrize("name", BACKENDS)
def test_partial_batches_leave_the_views_of_the_last_step_alone(name: str) -> None:
    with _driver(name, "next_step", False) as driver:
        driver.step(ZEROS)
        driver.send([0, 2], [0, 0])
        driver.recv_all()
        driver.step(ZEROS)


# -------------------------------------------------------------------- interruptions


@pytest.mark.parametrize("line", [1, 8, 15, 20, 25, 30, 40, 60, 100])
@pytest.mark.parametrize("then", NEXT_CALLS)
@pytest.mark.parametrize("name", BACKENDS)
def test_after_a_ctrl_c_in_step_nothing_old_is_returned_as_new(
    name: str, then: str, line: int
) -> None:
    with _driver(name) as driver:
        driver.step(ZEROS)
        driver.interrupt_step(ZEROS, line, then)
        if not driver.is_closed:
            driver.step(ZEROS)


@pytest.mark.parametrize("name", BACKENDS)
def test_after_a_ctrl_c_at_any_line_a_masked_reset_shows_the_others_as_they_are(name: str) -> None:
    zeros, line, is_interrupted = np.array(ZEROS), 0, True
    with rookery.make_vec([Scripted] * NUM_ENVS, copy=False, **BACKENDS[name].options) as venv:
        venv.reset(seed=0)
        while is_interrupted:
            line += 1
            venv.step(zeros)
            venv.step(zeros)
            try:
                interrupted(partial(venv.step, zeros), line)
                is_interrupted = False
            except KeyboardInterrupt:
                try:
                    obs, _ = venv.reset(options={"reset_mask": np.array([True, False, False])})
                    assert tuple(obs[:, 0]) == venv.call("steps_ever")
                except (rookery.UsageError, rookery.WorkerDied):  # that asks for a reset of all
                    venv.reset(seed=0)
    assert line > 50


class _Tells(Scripted):
    """Has an info only where its action is not 0."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed, options=options)[0], {}

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {"count": self.count} if action else {}


@pytest.mark.parametrize("copy", [True, False])
def test_a_ctrl_c_at_any_line_of_a_step_leaves_no_half_told_info(copy: bool) -> None:
    line, is_interrupted = 0, True
    while is_interrupted:
        line += 1
        with rookery.make_vec([_Tells], backend="serial", copy=copy) as venv:
            venv.reset(seed=0)
            for _ in range(2):  # until all rows are known to be empty
                venv.step(np.array([0]))
            try:
                interrupted(partial(venv.step, np.array([1])), line)
                is_interrupted = False
            except KeyboardInterrupt:
                venv.reset(seed=0)
            assert venv.step(np.array([0]))[4] == {}
            counts = [venv.step(np.array([1]))[4]["count"].item() for _ in range(2)]
            assert counts == ([2, 3] if is_interrupted else [5, 6])
    assert line > 50


@pytest.mark.parametrize("name", WITHOUT_CALLER)
def test_a_step_that_was_interrupted_while_it_was_waited_for_comes_whole(name: str) -> None:
    with _driver(name) as driver:
        for line in (5, 20, 40):
            driver.late_step(ZEROS, line)
            driver.step(ZEROS)


class _Stops:
    """Builds an env whose third step raises KeyboardInterrupt, as a Ctrl-C in it would."""

    def __call__(self) -> Any:
        class Stopped(Scripted):
            def step(self, action: Any) -> Any:
                result = super().step(action)
                if action == 7:
                    raise KeyboardInterrupt
                return result

        return Stopped()


@pytest.mark.parametrize("env", range(NUM_ENVS))
def test_a_ctrl_c_inside_an_env_of_the_calling_thread_asks_for_a_reset(env: int) -> None:
    with rookery.make_vec([_Stops()] * NUM_ENVS, backend="serial") as venv:
        venv.reset(seed=0)
        venv.step(np.zeros(NUM_ENVS, int))
        actions = np.zeros(NUM_ENVS, int)
        actions[env] = 7
        with pytest.raises(KeyboardInterrupt):
            venv.step(actions)
        for call in (venv.step_wait, lambda: venv.step(actions), lambda: venv.call("count")):
            with pytest.raises(rookery.UsageError, match="reset"):
                call()
        obs, _ = venv.reset(seed=5)
        assert obs[:, 3].tolist() == [5, 6, 7] and not obs[:, 1].any()
        obs, *_ = venv.step(np.zeros(NUM_ENVS, int))
        assert obs[:, 1].tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", BACKENDS)
def test_after_a_ctrl_c_in_recv_a_reset_begins_anew(name: str) -> None:
    for line in (5, 20, 40, 60, 80, 110):
        with _driver(name) as driver:
            driver.interrupt_recv(ZEROS, line)
            driver.step(ZEROS)


@pytest.mark.parametrize("name", BACKENDS)
def test_after_a_ctrl_c_in_close_a_second_close_ends_everything(name: str) -> None:
    for line in (1, 5, 10, 20, 35, 60, 100):
        with _driver(name) as driver:
            driver.interrupt_close(line)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_ctrl_c_in_close_ends_the_wait_for_workers_that_were_not_told(name: str) -> None:
    for line in (5, 20, 35, 60):
        venv = rookery.make_vec([Scripted] * NUM_ENVS, **BACKENDS[name].options)
        venv.reset(seed=0)
        with suppress(KeyboardInterrupt):
            interrupted(partial(venv.close, timeout=100_000.0), line)
        venv.close()


@pytest.mark.parametrize("name", BACKENDS)
def test_a_closed_vector_env_refuses_every_call_by_name(name: str) -> None:
    with _driver(name) as driver:
        driver.close()
        venv, zeros = driver.venv, np.array(ZEROS)
        for call in (
            venv.reset,
            lambda: venv.step(zeros),
            venv.step_wait,
            lambda: venv.send(zeros),
        ):
            with pytest.raises(rookery.ClosedError):
                call()


# -------------------------------------------------------------------- forks


@pytest.mark.parametrize("name", BACKENDS)
def test_a_forked_child_is_refused_every_call(name: str) -> None:
    with _driver(name) as driver:
        driver.step(ZEROS)
        driver.fork()
        driver.step(ZEROS)
        driver.call()


@pytest.mark.parametrize("name", BACKENDS)
def test_the_end_of_a_forked_child_harms_nothing(name: str) -> None:
    script = f"""
        import os, sys
        import numpy as np
        import rookery
        from rookery.testing import Scripted
        venv = rookery.make_vec([Scripted] * 3, **{BACKENDS[name].options!r})
        venv.reset(seed=0)
        child = os.fork()
        if child == 0:
            sys.exit(0)
        os.waitpid(child, 0)
        obs, *_ = venv.step(np.zeros(3, int))
        venv.close()
        print(obs[:, 0].tolist())
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[1.0, 1.0, 1.0]"), done.stderr
