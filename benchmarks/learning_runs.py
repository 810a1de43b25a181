"""Single runs for `benchmarks.learning`: by the command line, and by SB3 with the same settings."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rookery.report.read import read_run
from rookery.run.presets import Preset

EPISODES = 50  # of the last evaluation
_MOST_POINTS = 100  # of a curve that is kept


def train_by_command(
    arguments: Sequence[str], seed: int, run_dir: Path | None = None
) -> dict[str, Any]:
    """Run `rookery train`, or go on with the run that was broken off in ``run_dir``.

    Args:
        arguments: of the command, without its seed and folder.
        seed: of the run.
        run_dir: of the run; None keeps none.

    Returns:
        The object that it prints; beside it ``cpu_seconds``, of the command and all its workers,
        with imports and evaluation, and ``curve``. Other children of this process that end
        meanwhile count too. A run that was broken off has no ``cpu_seconds``.
    """
    with tempfile.TemporaryDirectory() as folder:
        run_dir = run_dir or Path(folder) / "run"
        is_broken_off = (run_dir / "checkpoint.pt").exists()
        if is_broken_off:
            words = ["--resume", str(run_dir)]
        else:
            words = [*arguments, "--seed", str(seed), "--run-dir", str(run_dir), "--overwrite"]
        before = children_cpu_seconds()
        command = [sys.executable, "-m", "rookery", "train", *words]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        cpu_seconds = {} if is_broken_off else {"cpu_seconds": children_cpu_seconds() - before}
        curve = curve_of(run_dir)
    return {**json.loads(done.stdout.splitlines()[-1]), **cpu_seconds, "curve": curve}


def children_cpu_seconds() -> float:
    """Processor time of the children of this process that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def curve_of(run_dir: Path) -> dict[str, list[float]]:
    """Env steps and mean return of recent episodes of a run, at most so many points of them."""
    steps, returns = read_run(run_dir).series("episode_return_mean", "step")
    chosen = np.unique(np.linspace(0, max(len(steps) - 1, 0), _MOST_POINTS).round().astype(int))
    chosen = chosen[: len(steps)]
    return {
        "steps": steps[chosen].astype(int).tolist(),
        "returns": returns[chosen].round(2).tolist(),
    }


def train_sb3_in_a_process(preset: Preset, seed: int) -> dict[str, Any]:
    """Train SB3 in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.learning", "--one", preset.name, str(seed)]
    before = children_cpu_seconds()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    cpu_seconds = children_cpu_seconds() - before
    return {**json.loads(done.stdout.splitlines()[-1]), "cpu_seconds": cpu_seconds}


def train_sb3(preset: Preset, seed: int) -> dict[str, float]:
    """Train SB3 with a preset's settings, in its words, on its DummyVecEnv."""
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    settings: Any = preset.config
    num_envs, steps = preset.run["num_envs"], preset.run["total_steps"]
    normalizes: dict[str, Any] = {
        "norm_obs": getattr(settings, "normalize_obs", False),
        "norm_reward": getattr(settings, "normalize_reward", False),
    }
    venv: Any = make_vec_env(preset.env, num_envs, seed=seed)
    if any(normalizes.values()):
        venv = VecNormalize(venv, gamma=settings.gamma, **normalizes)
    began = time.perf_counter()
    kind = getattr(stable_baselines3, preset.algo.upper())
    model = kind("MlpPolicy", venv, seed=seed, device="cpu", **_in_sb3s_words(preset, venv))
    model.learn(steps)
    seconds = time.perf_counter() - began
    envs: Any = make_vec_env(preset.env, 10, seed=seed + 10_000)
    if any(normalizes.values()):
        envs = VecNormalize(envs, training=False, norm_obs=normalizes["norm_obs"])
        envs.norm_reward, envs.obs_rms = False, venv.obs_rms
    score: Any = evaluate_policy(model, envs, n_eval_episodes=EPISODES)[0]
    return {"steps": model.num_timesteps, "seconds": seconds, "return": float(score)}


def _in_sb3s_words(preset: Preset, venv: Any) -> dict[str, Any]:
    """A preset's settings as arguments of SB3's algorithm on its vector env."""
    from torch import nn

    settings: Any = preset.config
    policy: dict[str, Any] = {
        "net_arch": list(settings.hidden_sizes or (64, 64)),
        "activation_fn": {"tanh": nn.Tanh, "relu": nn.ReLU}[settings.activation],
    }
    if getattr(settings, "initial_log_std", 0.0):
        policy["log_std_init"] = settings.initial_log_std
    if not getattr(settings, "orthogonal_init", True):
        policy["ortho_init"] = False
    words: dict[str, Any] = {
        "learning_rate": _falling(settings, "learning_rate"),
        "gamma": settings.gamma,
        "policy_kwargs": policy,
    }
    if getattr(settings, "state_dependent_noise", False):
        words["use_sde"], words["sde_sample_freq"] = True, settings.noise_interval
    if preset.algo in ("ppo", "a2c"):
        names = {
            "num_steps": "n_steps", "gae_lambda": "gae_lambda", "entropy_coef": "ent_coef",
            "value_coef": "vf_coef", "max_grad_norm": "max_grad_norm",
        }  # fmt: skip
        words |= {theirs: getattr(settings, ours) for ours, theirs in names.items()}
        if preset.algo == "ppo":
            words["n_epochs"], words["batch_size"] = settings.num_epochs, settings.minibatch_size
            words["clip_range"] = _falling(settings, "clip_range")
        return words
    words |= {
        "buffer_size": settings.replay_size,
        "batch_size": settings.batch_size,
        "learning_starts": settings.warmup_steps,
        "train_freq": settings.num_steps,
        "gradient_steps": round(settings.num_steps * settings.updates_per_step),
    }
    if preset.algo == "dqn":
        words |= {
            "target_update_interval": round(settings.target_interval / settings.updates_per_step),
            "exploration_fraction": settings.exploration_fraction,
            "exploration_final_eps": settings.final_epsilon,
        }
        return words
    words["tau"] = settings.target_rate
    if preset.algo == "sac":
        words["ent_coef"] = "auto" if settings.entropy_coef is None else settings.entropy_coef
    else:
        words["action_noise"] = _noise(settings, venv.action_space.shape)
    return words


def _noise(settings: Any, shape: tuple[int, ...]) -> Any:
    """What TD3 adds to actions, as an object of SB3."""
    from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise

    wanders = settings.exploration_noise_kind == "ornstein-uhlenbeck"
    zero = np.zeros(shape)
    kind = OrnsteinUhlenbeckActionNoise if wanders else NormalActionNoise
    return kind(zero, zero + settings.exploration_noise)


def _falling(settings: Any, name: str) -> Any:
    """A setting that may fall linearly to another value, as SB3 has schedules."""
    first, last = getattr(settings, name), getattr(settings, f"final_{name}", None)
    if last is None:
        return first
    return lambda remaining: last + (first - last) * remaining
