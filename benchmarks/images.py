"""PPO on Pong's pixels: env steps a second while it learns, networks of the same shape everywhere.

Everybody plays as DQN does (Mnih et al. 2015): 8 envs for 128 steps, then 4 epochs of minibatches
of 256, which are the settings of the RL Zoo and of CleanRL for Atari. The first rollout and update
do not count. SB3 runs on both of its vector envs, with torch's own number of threads, with which it
was faster than with one. CleanRL is its single file ``ppo_atari.py``, which is no package: the
variable CLEANRL_PPO_ATARI says where it lies, and it is given two names that Gymnasium has changed.
"""

from __future__ import annotations

import functools
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks.cases import Case, Effort
from benchmarks.environments import register_atari

NUM_ENVS, NUM_STEPS = 8, 128
UPDATES, QUICK_UPDATES = 9, 2
CLEANRL = "CLEANRL_PPO_ATARI"

_SB3: dict[str, Any] = {
    "n_steps": NUM_STEPS,
    "batch_size": 256,
    "n_epochs": 4,
    "learning_rate": lambda remaining: 2.5e-4 * remaining,
    "clip_range": lambda remaining: 0.1 * remaining,
    "vf_coef": 0.5,
    "ent_coef": 0.01,
}


def _rookery(total_steps: int, seed: int) -> list[float]:
    """Train as ``rookery train ppo ALE/Pong-v5`` does; return when updates were done."""
    import rookery

    with tempfile.TemporaryDirectory() as folder:
        trainer = rookery.Trainer(
            "ALE/Pong-v5",
            algo="ppo",
            preset="auto",
            num_envs=NUM_ENVS,
            total_steps=total_steps,
            seed=seed,
            run_dir=f"{folder}/run",
        )
        with trainer:
            return [time.perf_counter() for _ in trainer]


def _sb3(total_steps: int, seed: int, kind: str) -> list[float]:
    from stable_baselines3 import PPO
    from stable_baselines3.common import vec_env
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env

    class Clock(BaseCallback):
        """Notes when a rollout begins, which is when the update before it is done."""

        times: list[float]

        def _on_training_start(self) -> None:
            self.times = []

        def _on_rollout_start(self) -> None:
            self.times.append(time.perf_counter())

        def _on_step(self) -> bool:
            return True

    register_atari()
    venv: Any = make_atari_env(
        "ale_py:ALE/Pong-v5",  # whose processes register the games for themselves
        NUM_ENVS,
        seed=seed,
        vec_env_cls=getattr(vec_env, kind),
        env_kwargs={"frameskip": 1},
    )
    venv = vec_env.VecFrameStack(venv, 4)
    clock = Clock()
    PPO("CnnPolicy", venv, **_SB3, seed=seed, device="cpu").learn(total_steps, clock)
    ended = time.perf_counter()
    venv.close()
    return [*clock.times[1:], ended]


def _cleanrl(total_steps: int, seed: int) -> list[float]:
    path = os.environ.get(CLEANRL)
    if path is None:
        raise SystemExit(f"{CLEANRL} does not say where CleanRL's ppo_atari.py lies")
    command = [sys.executable, "-u", "-m", __name__, path, "--env-id", "ALE/Pong-v5"]
    command += ["--total-timesteps", str(total_steps), "--seed", str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        times = [time.perf_counter() for line in process.stdout if line.startswith("SPS:")]
    if process.returncode:
        raise SystemExit(f"{path} ended with {process.returncode}")
    return times


def _run_cleanrl() -> None:
    """Run CleanRL's file, under the names it knows; its env skips no frames by itself."""
    import gymnasium
    from gymnasium import wrappers

    def make(env_id: str, **kwargs: Any) -> Any:
        return made(env_id, frameskip=1, **kwargs)

    register_atari()
    made = gymnasium.make
    changed: dict[str, Any] = {
        "GrayScaleObservation": wrappers.GrayscaleObservation,
        "FrameStack": wrappers.FrameStackObservation,
    }
    for name, wrapper in changed.items():
        setattr(wrappers, name, wrapper)
    gymnasium.make = make  # type: ignore[assignment]
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


_TRAINERS: dict[str, Callable[[int, int], list[float]]] = {
    "rookery": _rookery,
    "SB3, Dummy": functools.partial(_sb3, kind="DummyVecEnv"),
    "SB3, Subproc": functools.partial(_sb3, kind="SubprocVecEnv"),
    "CleanRL": _cleanrl,
}

CASES = (
    Case(
        "ppo-pong",
        "PPO, ALE/Pong-v5, 8 envs, while learning",
        "pong",
        NUM_ENVS,
        tuple(_TRAINERS),
    ),
)


def measure(case: Case, contender: str, effort: Effort, repetition: int) -> dict[str, Any]:
    """Train for some updates; the repetition is the seed."""
    updates = QUICK_UPDATES if effort.quick else UPDATES
    size = NUM_ENVS * NUM_STEPS
    times = _TRAINERS[contender](updates * size, repetition + 1)
    return {"steps_per_second": (len(times) - 1) * size / (times[-1] - times[0])}


if __name__ == "__main__":
    _run_cleanrl()
