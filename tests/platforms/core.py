"""What a platform has to do, as a program: ``core.py CHECK`` in a fresh interpreter.

It is run where a platform is imitated, and runs on that platform itself as well.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rookery
from rookery.shared import SharedBlock
from rookery.testing.faulty import Fault, Faulty
from rookery.worker.channel import PipeChannel
from rookery.worker.pipes import wait
from rookery.worker.protocol import STACK_SIGNAL


def steps() -> None:
    """The same trajectories as with SyncVectorEnv, in every autoreset mode, with new infos."""
    for mode in AutoresetMode:
        ours = rookery.make_vec(
            "CartPole-v1", 5, num_workers=2, backend="process", autoreset_mode=mode
        )
        theirs = SyncVectorEnv([_cart_pole] * 5, autoreset_mode=mode)
        with ours:
            assert np.array_equal(ours.reset(seed=3)[0], theirs.reset(seed=3)[0])
            for i in range(60):
                actions = np.full(5, i % 2)
                one, other = ours.step(actions), theirs.step(actions)
                for mine, expected in zip(one[:4], other[:4], strict=True):
                    assert np.array_equal(mine, expected)
                if mode is AutoresetMode.DISABLED and (one[2] | one[3]).any():
                    options = {"reset_mask": one[2] | one[3]}
                    mine, expected = (
                        ours.reset(options=options)[0],
                        theirs.reset(options=options)[0],
                    )
                    assert np.array_equal(mine, expected)
        theirs.close()


def _cart_pole() -> Any:
    return gym.make("CartPole-v1")


def parts() -> None:
    """Send and recv, large infos for which the rows grow, and large requests and answers."""
    with rookery.make_vec(Wordy, 6, num_workers=2, backend="process") as venv:
        venv.send_reset(seed=0)
        left, busy = 40, 6
        while busy:
            *_, env_ids = venv.recv(min_envs=1)
            busy -= len(env_ids)
            for env_id in env_ids.tolist()[:left]:
                venv.send(np.array([left % 3]), np.array([env_id]))
                left, busy = left - 1, busy + 1
        venv.reset()
        large = "x" * 300_000
        venv.set_attr("label", large)
        assert venv.get_attr("label") == (large,) * 6
        assert venv.reset(options={"large": large})[1]["length"].tolist() == [len(large)] * 6
        assert venv.step(np.zeros(6, int))[4]["text"][0] == "0"


class Wordy(Faulty):
    """Tells ever longer texts."""

    label = ""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        obs, _ = super().reset(seed=seed)
        return obs, {"length": len((options or {}).get("large", ""))}

    def step(self, action: Any) -> Any:
        obs, *rest, _ = super().step(0)
        return (obs, *rest, {"text": str(action) * int(action) * 50 * self.count or "0"})


def pipes() -> None:
    """More pipes than a system waits for at once; blocks and large messages through busy ones."""
    pairs = [Pipe() for _ in range(70)]
    ours, theirs = zip(*pairs, strict=True)
    assert wait(ours, 0) == []
    theirs[66].send_bytes(b"here")
    assert wait(ours) == [ours[66]]

    caller, worker = PipeChannel(ours[0], check=lambda: None), PipeChannel(theirs[0])
    block = SharedBlock(100)
    worker.send(5, b"on its way")
    caller.send_block(block)  # which must not take a byte of that message
    block.memory[7] = 9
    assert worker.receive_block()[7] == 9
    assert caller.receive() == (5, b"on its way")

    patient = PipeChannel(ours[1], check=_give_up)
    _raised(ZeroDivisionError, lambda: patient.send(1, bytes(10_000_000)))
    assert patient.is_torn
    for end in (*theirs, *ours):
        end.close()


def _give_up() -> None:
    raise ZeroDivisionError


def faults() -> None:
    """Workers that die, envs that raise, and an env that hangs."""
    for fault, kind in (
        (Fault.KILL, rookery.errors.WorkerDied),
        (Fault.EXIT, rookery.errors.WorkerDied),
        (Fault.RAISE, KeyError),
    ):
        with _faulty() as venv:
            venv.reset(seed=0)
            error = _raised(kind, lambda venv=venv, fault=fault: venv.step(_to_first(fault)))
            assert error is not None and error.env_ids[0] == 0, error
            venv.reset(seed=0)
            assert venv.step(_to_first(0))[1].tolist() == [1.0] * 4
    with _faulty(faults=rookery.FaultPolicy(step_timeout_s=1.0)) as venv:
        venv.reset(seed=0)
        error = _raised(rookery.errors.WorkerTimeout, lambda: venv.step(_to_first(Fault.HANG)))
        assert "_loop_forever" in str(error) or STACK_SIGNAL is None, error
        venv.reset(seed=0)
    with _faulty(faults=rookery.FaultPolicy("restart")) as venv:
        venv.reset(seed=0)
        *_, truncated, infos = venv.step(_to_first(Fault.KILL))
        assert truncated.tolist() == [True, True, False, False]
        assert infos["_fault"].tolist() == [True, True, False, False]
        for _ in range(3):
            venv.step(_to_first(0))
        assert venv.statistics().envs


def _faulty(**options: Any) -> Any:
    return rookery.make_vec(Faulty, 4, num_workers=2, backend="process", **options)


def _to_first(action: int) -> Any:
    return np.array([action, 0, 0, 0])


def _raised(kind: type[BaseException], function: Any) -> Any:
    try:
        function()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def interrupts() -> None:
    """A handler that raises ends a step, which can be completed; one that does not is no fault."""
    import rookery.worker.entry

    signals = rookery.worker.entry.signal  # as this platform, which may be imitated, has them
    with tempfile.TemporaryDirectory() as folder, _interrupting(folder) as venv:
        venv.reset(seed=0)
        for handler, ends in ((signal.default_int_handler, True), (_Opening(folder), False)):
            before = signals.signal(signal.SIGINT, handler)
            try:
                venv.step(np.array([1, 0]))
                assert not ends
            except KeyboardInterrupt:
                assert ends
                _Opening(folder)()
                venv.step_wait()
            signals.signal(signal.SIGINT, before)
            os.unlink(os.path.join(folder, "open"))
        assert venv.step(np.array([0, 0]))[0].tolist() == [[3], [3]]
        assert venv.get_attr("count") == (3, 3)


def _interrupting(folder: str) -> Any:
    options = {"folder": folder, "caller": os.getpid()}
    return rookery.make_vec(Interrupting, 2, num_workers=2, backend="process", env_kwargs=options)


class _Opening:
    """A handler that raises nothing, and lets the env go on that waits for it."""

    def __init__(self, folder: str) -> None:
        self._file = Path(folder, "open")

    def __call__(self, *_: Any) -> None:
        self._file.touch()


class Interrupting(gym.Env[Any, Any]):
    """Interrupts its caller when the action is 1, and goes on when there is a file."""

    observation_space = gym.spaces.Box(0, 9999, (1,), np.int64)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, folder: str, caller: int, at: int = 0) -> None:
        self._file, self._caller, self._at, self.count = Path(folder, "open"), caller, at, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.array([0]), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        if self.count == self._at and not self._file.exists():
            self._file.touch()
            os.kill(self._caller, signal.SIGINT)
        if action == 1 and not self._at:
            self._await_sleep()
            os.kill(self._caller, signal.SIGINT)
            while not self._file.exists():
                pass
        return np.array([self.count % 9999]), 1.0, self.count % 50 == 0, False, {}

    def _await_sleep(self) -> None:
        """Return once the caller sleeps, or seems never to, where the system cannot tell."""
        caller, in_a_row = psutil.Process(self._caller), 0  # between tries it sleeps for a moment
        for _ in range(20_000):
            in_a_row = in_a_row + 1 if caller.status() == psutil.STATUS_SLEEPING else 0
            if in_a_row == 100:
                return


def ends() -> None:
    """What is closed leaves no process; what a worker's envs have started ends with it."""
    venv = rookery.make_vec(Parent, 2, num_workers=2, backend="process")
    venv.reset(seed=0)
    children = [psutil.Process(pid) for pid in venv.get_attr("child")]
    workers = [psutil.Process(pid) for pid in venv.pids]
    venv.step_async(np.array([1, 0]))
    _raised(rookery.errors.WorkerDied, venv.step_wait)
    assert not psutil.wait_procs(children[:1], 60)[1]
    venv.close()
    assert not psutil.wait_procs(children + workers, 60)[1]


_FOREVER = "import threading; threading.Event().wait()"


class Parent(Faulty):
    """Has a child process; action 1 ends the worker."""

    def __init__(self) -> None:
        super().__init__()
        self.child = subprocess.Popen([sys.executable, "-c", _FOREVER]).pid

    def step(self, action: Any) -> Any:
        if action:
            os._exit(7)
        return super().step(0)


def collects() -> None:
    """A policy that acts in the workers, in both modes, also after a worker was lost."""
    from rookery.policy import make_policy

    for mode in ("sync", "async"):
        with rookery.make_vec("CartPole-v1", 1, backend="serial") as venv:
            policy = make_policy(venv.single_observation_space, venv.single_action_space, seed=0)
        collector = rookery.WorkerCollector(
            "CartPole-v1", policy, num_envs=4, num_workers=2, num_steps=8, mode=mode,
            faults=rookery.FaultPolicy("restart"),
        )  # fmt: skip
        with collector:
            collector.reset(seed=0)
            for i in range(4):
                rollout = collector.collect()
                assert rollout.reward.shape[0] == 8
                if i == 1:
                    psutil.Process(collector.pids[0]).kill()


def trains() -> None:
    """PPO with several learners, which writes its files, is resumed, and whose agent acts."""
    with tempfile.TemporaryDirectory() as folder:
        run = os.path.join(folder, "R\u00fcn mit Leerzeichen")
        options = {"num_envs": 4, "num_workers": 2, "backend": "process", "seed": 0}
        rookery.train("CartPole-v1", "ppo", total_steps=2048, run_dir=run, **options)
        agent = rookery.load(run)
        assert agent.act(np.zeros(4, np.float32)) in (0, 1)
        rookery.resume(run, total_steps=4096)


def stops() -> None:
    """Ctrl-C amid a rollout ends a run when the update is complete, with a checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        run = os.path.join(folder, "run")
        options = {"folder": folder, "caller": os.getpid(), "at": 100}
        _raised(
            KeyboardInterrupt,
            lambda: rookery.train(
                Interrupting, "ppo", total_steps=10**9, run_dir=run, num_envs=2, num_workers=1,
                backend="process", seed=0, env_kwargs=options,
            ),
        )  # fmt: skip
        rookery.load(run)  # it can be acted with


CHECKS = (steps, parts, pipes, faults, interrupts, ends, collects, trains, stops)

if __name__ == "__main__":
    names = sys.argv[1:] or [check.__name__ for check in CHECKS]
    for check in CHECKS:
        if check.__name__ in names:
            check()
            print(check.__name__, "done")
