"""backend="auto": whatever the env that is tried does, all envs are made."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rookery
from rookery.errors import EnvFailed, PicklingError, WorkerDied, WorkerTimeout
from rookery.vector.auto import choose as auto
from rookery.vector.auto import probe
from rookery.vector.auto.choose import chosen, unmeasured
from rookery.vector.auto.legal_actions import sample
from rookery.vector.auto.plans import Machine, Measurement, Wishes
from rookery.vector.auto.probe import combine, spent, waited_for_core
from rookery.vector.auto.serial_probe import MANY, SerialReport
from rookery.vector.auto.timing import Timing, Usage
from rookery.worker.fault_policy import FaultPolicy

TWO = Machine(cpus=2, capacity=2.0, available_bytes=2**33)
ONE = Machine(cpus=1, capacity=1.0, available_bytes=2**33)


class Steady(gym.Env[Any, Any]):
    """Steps without end; subclasses do something else."""

    observation_space: Any = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space: Any = gym.spaces.Discrete(4)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.act(action)
        return np.zeros(2, np.float32), 0.0, False, False, {}

    def act(self, action: Any) -> None:
        """What a step does."""


class Raises(Steady):
    def act(self, action: Any) -> None:
        raise ValueError("illegal move")


class Exits(Steady):
    def act(self, action: Any) -> None:
        raise SystemExit(3)


class Dies(Steady):
    def act(self, action: Any) -> None:
        os._exit(7)


class Hangs(Steady):
    def act(self, action: Any) -> None:
        time.sleep(1000)


class HangsInReset(Steady):
    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        if seed == 0 and options is None:  # as the probe resets it
            time.sleep(1000)
        return super().reset(seed=seed)


class RefusesToClose(Steady):
    def close(self) -> None:
        raise OSError("cannot be closed")


def _choice(make: Any, num_envs: int = 2, **options: Any) -> Any:
    venv = rookery.make_vec(make, num_envs, **options)
    try:
        venv.reset(seed=[1, *[2] * (num_envs - 1)])
        return venv.choice
    finally:
        venv.close(terminate=True)


@pytest.mark.parametrize("env", [Raises, Exits])
def test_an_env_that_raises_at_any_action_can_be_made(env: Any) -> None:
    choice = _choice(env)
    assert choice.measurement is None
    assert "without a measurement" in choice.reason
    assert "raised" in choice.reason


def test_an_env_that_dies_is_kept_from_this_process() -> None:
    choice = _choice(Dies)
    assert choice.backend == "process"
    assert "exit code 7" in choice.reason


@pytest.mark.parametrize("env", [Hangs, HangsInReset])
def test_an_env_that_hangs_is_given_up(env: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    soon = FaultPolicy(step_timeout_s=0.5, reset_timeout_s=0.5)
    monkeypatch.setattr(probe, "_DEADLINES", soon)
    choice = _choice(env)
    assert choice.backend == "process"
    assert "did not answer in time" in choice.reason


def test_an_env_that_cannot_be_closed_was_measured_all_the_same() -> None:
    with pytest.raises(EnvFailed, match="cannot be closed"):
        rookery.make_vec(RefusesToClose, 2, backend="serial").close()
    venv = rookery.make_vec(RefusesToClose, 2)
    assert venv.choice.measurement is not None
    with pytest.raises(EnvFailed, match="cannot be closed"):
        venv.close()


def test_an_env_that_cannot_travel_stays_here() -> None:
    lock = threading.Lock()

    def make() -> Any:
        with lock:
            return Steady()

    choice = _choice(make)
    assert choice.backend == "serial"
    assert "cannot be sent to a worker" in choice.reason


def test_an_env_that_only_this_process_can_build_stays_here() -> None:
    here = os.getpid()

    def make() -> Any:
        if os.getpid() != here:
            raise RuntimeError("not here")
        return Steady()

    choice = _choice(make)
    assert choice.backend == "serial"
    assert "cannot be built in a worker" in choice.reason


def test_what_is_no_error_of_ours_does_not_fail_the_call_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any) -> Any:
        raise OSError("no room")

    monkeypatch.setattr(auto, "measure", fails)
    choice = _choice(Steady)
    assert choice.backend == "serial"
    assert "no room" in choice.reason


def test_an_interruption_is_no_failure_of_the_env(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(auto, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rookery.make_vec(Steady, 2)


@pytest.mark.parametrize(
    ("error", "machine", "wishes", "expected"),
    [
        (WorkerDied("x"), TWO, Wishes(), ("process", 2, False)),
        (WorkerDied("x"), ONE, Wishes(), ("process", 1, False)),
        (WorkerTimeout("x"), TWO, Wishes(num_workers=5), ("process", 5, False)),
        (EnvFailed("x", command="step"), TWO, Wishes(), ("process", 2, False)),
        (EnvFailed("x", command="step"), TWO, Wishes(None, True), ("process", 1, True)),
        (EnvFailed("x", command="reset"), ONE, Wishes(), ("serial", 0, False)),
        (EnvFailed("x", command="make"), TWO, Wishes(), ("serial", 0, False)),
        (PicklingError("x"), TWO, Wishes(), ("serial", 0, False)),
        (OSError("x"), TWO, Wishes(), ("serial", 0, False)),
    ],
)
def test_the_rule_without_a_measurement(
    error: Exception, machine: Machine, wishes: Wishes, expected: Any
) -> None:
    choice = unmeasured(error, 8, machine, wishes)
    assert (choice.backend, choice.num_workers, choice.caller_steps) == expected
    assert choice.measurement is None


# ---------------------------------------------------------------- masks


class Masked(Steady):
    """Raises on every action but the one that is legal next, which it tells in some way."""

    def __init__(self) -> None:
        self._legal = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._legal = 1
        return self.observation(), self.info()

    def step(self, action: Any) -> Any:
        if action != self._legal:
            raise ValueError(f"action {action} is illegal")
        self._legal = (self._legal + 1) % 4
        return self.observation(), 0.0, False, False, self.info()

    def mask(self) -> Any:
        mask = np.zeros(4, np.int8)
        mask[self._legal] = 1
        return mask

    def observation(self) -> Any:
        return np.zeros(2, np.float32)

    def info(self) -> dict[str, Any]:
        return {}


class InInfo(Masked):
    def info(self) -> dict[str, Any]:
        return {"action_mask": self.mask()}


class InMethod(Masked):
    def action_masks(self) -> Any:
        return self.mask().astype(bool)


class InObservation(Masked):
    observation_space = gym.spaces.Dict(
        {"board": gym.spaces.Discrete(2), "mask": gym.spaces.MultiBinary(4)}
    )

    def observation(self) -> Any:
        return {"board": 0, "mask": self.mask()}


class OfNoAction(Masked):
    def info(self) -> dict[str, Any]:
        return {"action_mask": np.ones(3, np.int8)}


@pytest.mark.parametrize("env", [InInfo, InMethod, InObservation])
def test_only_legal_actions_are_tried(env: Any) -> None:
    measured = _choice(env).measurement
    assert measured is not None
    assert not measured.is_of_resets


def test_with_a_mask_that_does_not_fit_no_action_is_tried() -> None:
    choice = _choice(OfNoAction)
    assert choice.measurement is not None
    assert choice.measurement.is_of_resets
    assert "no legal action was known" in choice.reason


@pytest.mark.parametrize(
    ("space", "mask", "legal"),
    [
        (gym.spaces.Discrete(3), [0, 1, 0], 1),
        (gym.spaces.Discrete(3, start=5), np.array([0, 0, 1], bool), 7),
        (gym.spaces.Discrete(3), [0, 0, 0], None),
        (gym.spaces.Discrete(3), [1, 1], None),
        (gym.spaces.Discrete(3), None, None),
        (gym.spaces.Discrete(3), "none", None),
        (gym.spaces.MultiDiscrete([2, 3]), [0, 1, 0, 0, 1], [1, 2]),
        (gym.spaces.MultiDiscrete([2, 3]), [0, 0, 0, 0, 1], None),
        (gym.spaces.MultiDiscrete([2, 3]), [1, 1, 1], None),
        (gym.spaces.Box(-1, 1, (3,)), [1, 1, 1], None),
    ],
)
def test_actions_drawn_from_masks(space: Any, mask: Any, legal: Any) -> None:
    for _ in range(5):
        action = sample(space, mask)
        assert (action is None) if legal is None else np.array_equal(action, legal)


def test_the_env_that_is_tried_is_no_env_that_is_used(tmp_path: Path) -> None:
    class Notes(Steady):
        def __init__(self) -> None:
            self.steps = 0
            (tmp_path / f"{os.getpid()}").touch()

        def act(self, action: Any) -> None:
            self.steps += 1

    with rookery.make_vec(Notes, 2, num_workers=1) as venv:
        is_used_here = venv.choice.backend == "serial" or venv.choice.caller_steps
        assert is_used_here or str(os.getpid()) not in os.listdir(tmp_path)
        assert venv.get_attr("steps") == (0, 0)


def test_with_isolate_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise AssertionError("measured")

    monkeypatch.setattr(auto, "measure", fails)
    with rookery.make_vec(Steady, 2, isolate=True) as venv:
        assert venv.choice is None


# ---------------------------------------------------------------- what follows from timings


NOTHING = Usage(0.0, 0.0, 0.0, 0, 0)


def _usage(wall_s: float, cpu_s: float, queued_s: float | None, waits: int | None) -> Usage:
    return Usage(wall_s, cpu_s, queued_s, waits, 0)


@pytest.mark.parametrize(
    ("after", "waited_s", "share"),
    [
        (_usage(1.0, 1.0, 0.0, 0), 0.0, 1.0),  # computes alone
        (_usage(1.0, 0.2, 0.0, 100), 0.008, 1.0),  # waits
        (_usage(1.0, 0.4, 0.6, 0), 0.0, 0.4),  # others have the core
        (_usage(1.0, 0.4, 0.2, 3), 0.0, 0.4),  # others, and the host of a virtual machine
        (_usage(1.0, 0.25, 0.25, 100), 0.005, 0.5),  # both
        (_usage(1.0, 0.4, None, 3), 0.0, 0.4),  # the system tells less
        (_usage(1.0, 0.4, None, 100), 0.006, 1.0),
        (_usage(1.0, 0.4, None, None), 0.006, 1.0),
        (_usage(1.0, 0.0, 0.0, 100), 0.01, 1.0),
    ],
)
def test_waiting_is_told_from_being_kept_waiting(
    after: Usage, waited_s: float, share: float
) -> None:
    assert spent(NOTHING, after, 100) == pytest.approx((waited_s, share))


def _timing(**times_us: float) -> Timing:
    names = "asking least_asking stepping answered again reading rereading busy mean_busy cpu"
    zero = {f"{name}_s": 0.0 for name in names.split()}
    return Timing(**zero | {f"{name}_s": us * 1e-6 for name, us in times_us.items()}, calls=100)


MORE = MANY - 1
# A call of 12 us. Each env more takes 1 for writing and 2 for reading; for others 3 and 5.
HERE_ONE = _timing(asking=4, least_asking=3, stepping=6, busy=4, reading=5, rereading=5, cpu=16)
HERE_MANY = _timing(asking=4, stepping=6 + MORE, reading=5 + 2 * MORE, rereading=5 + 2 * MORE)
THERE_ONE = _timing(asking=4, least_asking=3, stepping=8, reading=8, rereading=8)
THERE_MANY = _timing(asking=4, stepping=8 + 3 * MORE, rereading=8 + 5 * MORE)
REPLAYS = HERE_ONE, HERE_MANY, THERE_ONE, THERE_MANY
OWN = _timing(asking=4, stepping=36, busy=34, reading=6, rereading=5, cpu=46)
ALONE = Usage(1.0, 1.0, 0.0, 0, 0)


def test_timings_add_up_to_a_measurement() -> None:
    worker = _timing(
        asking=9, least_asking=5, stepping=60, answered=68, again=1, reading=11, rereading=9,
        busy=44, mean_busy=45,
    )  # fmt: skip
    measured = combine(worker, SerialReport(*REPLAYS, OWN, NOTHING, ALONE), copying_s=0.0)
    assert vars(measured) == pytest.approx(
        {
            "env_s": 33e-6,  # 30 of its own
            "worker_env_s": 33e-6,
            "waiting_s": 0.0,
            "reading_s": 5e-6,
            "call_s": 12e-6,
            "worker_s": 3e-6,
            "round_trip_s": (62 - 45 + 44 - 34 + 11 - 8) * 1e-6,
            "core_share": 1.0,
            "core_back_s": 0.0,
            "memory_bytes": 0,
            "is_of_resets": False,
        }
    )


def test_copies_of_large_batches_are_counted_on_both_sides() -> None:
    report = SerialReport(*REPLAYS, OWN, NOTHING, ALONE)
    small, large = (combine(OWN, report, copying_s) for copying_s in (0.0, 500e-6))
    assert large.env_s - small.env_s == pytest.approx(500e-6)
    assert large.reading_s == pytest.approx(500e-6)
    assert large.worker_env_s == small.worker_env_s


def test_a_few_steps_that_others_have_delayed_are_no_waiting() -> None:
    delayed = _usage(1.0, 0.1, 0.4, 100)  # half of the time is nobody's: 5 ms for each call
    measured = combine(OWN, SerialReport(*REPLAYS, OWN, NOTHING, delayed), copying_s=0.0)
    assert measured.core_share == pytest.approx(0.2)
    assert measured.waiting_s == pytest.approx(0, abs=1e-12)
    inaccurate = replace(OWN, cpu_s=15e-6)  # less than doing nothing took
    measured = combine(OWN, SerialReport(*REPLAYS, inaccurate, NOTHING, ALONE), copying_s=0.0)
    assert measured.env_s == pytest.approx(33e-6)


def test_long_steps_are_measured_in_the_worker_alone() -> None:
    worker = _timing(stepping=20_000, answered=20_010, busy=20_000, mean_busy=20_000)
    after = _usage(2.0, 0.8, 0.0, 100)
    measured = combine(worker, SerialReport(*REPLAYS, None, NOTHING, after), copying_s=0.0)
    assert measured.waiting_s == pytest.approx(12e-3)
    assert measured.worker_env_s == pytest.approx(8e-3, rel=0.01)
    assert measured.waits


@pytest.mark.parametrize(
    ("first", "last", "waited_s"),
    [
        (Usage(0.0, 0.0, 0.5, 9, 7), Usage(2.0, 1.0, 1.3, 9, 207), 0.004),
        (Usage(0.0, 0.0, 0.5, 9, 7), Usage(2.0, 1.0, 0.5, 9, 7), 0.0),  # was never without
        (Usage(0.0, 0.0, 0.5, None, None), Usage(2.0, 1.0, 0.7, None, None), 0.2),
        (Usage(0.0, 0.0, None, 9, 7), Usage(2.0, 1.0, None, 9, 207), 0.015),  # of the serial part
        (Usage(0.0, 0.0, None, None, None), Usage(2.0, 1.0, None, None, None), 0.015),
    ],
)
def test_how_long_a_lost_core_is_gone(first: Usage, last: Usage, waited_s: float) -> None:
    losses = None if first.losses is None else first.losses + 1
    alone = replace(first, wall_s=1.0, cpu_s=0.0)
    after = replace(alone, wall_s=1.05, cpu_s=0.035, losses=losses)
    report = SerialReport(*REPLAYS, OWN, alone, after)
    assert waited_for_core(first, last, report) == pytest.approx(waited_s)


def test_threads_are_named_where_they_would_win_and_never_chosen() -> None:
    waits = Measurement(
        env_s=10e-6, worker_env_s=10e-6, waiting_s=1e-3, reading_s=1e-6, call_s=10e-6,
        worker_s=30e-6, round_trip_s=100e-6, memory_bytes=2**31,
    )  # fmt: skip
    choice = chosen(16, waits, TWO, Wishes())
    assert choice.backend in ("serial", "process")
    assert "backend='thread'" in choice.reason
    computes = chosen(16, Measurement(1e-3, 1e-3, 0.0, 1e-6, 1e-5, 3e-6, 1e-5), TWO, Wishes())
    assert "thread" not in computes.reason
