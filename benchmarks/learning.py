"""What the presets reach: runs of `rookery train`, and of Stable-Baselines3 with the same settings.

    python -m benchmarks.learning [--algo NAME ...] [--env ID ...] [--seeds N] [--minutes M] [--sb3]

A cell is a preset; its runs have seeds that nothing was tuned with. Runs that are recorded are not
made again unless their settings have changed, so it goes on where it was broken off. The score is
the mean return of 50 episodes with the most probable actions after the last step. Written to
results/learning.json, and as a table to docs/results.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.conditions import read_conditions
from benchmarks.scores import train_by_command
from rookery.training.algorithms import BUILT_IN
from rookery.training.presets import Preset, presets

RESULT = Path(__file__).parent / "results" / "learning.json"
TABLE = Path(__file__).parent.parent / "docs" / "results.md"
FIRST_SEED = 101
EPISODES = 50


def main() -> None:
    """Make the runs that are missing, and write the table."""
    parser = argparse.ArgumentParser(prog="scripts/bench learning")
    parser.add_argument("--algo", nargs="+", choices=list(BUILT_IN), default=list(BUILT_IN))
    parser.add_argument("--env", nargs="+", default=[], help="only these envs")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run later")
    parser.add_argument("--sb3", action="store_true", help="runs of SB3 instead")
    parser.add_argument("--one", nargs=2, metavar=("PRESET", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, seed = options.one
        algo, _, env = name.partition("/")
        print(json.dumps(_sb3(presets(algo)[env], int(seed))))
        return
    runs = json.loads(RESULT.read_text())["runs"] if RESULT.exists() else []
    until = time.monotonic() + 60 * options.minutes
    for preset, seed in _wanted(options):
        key = _key(preset, seed, "SB3" if options.sb3 else "rookery")
        if any(run["key"] == key for run in runs):
            continue
        if time.monotonic() > until:
            break
        found = _in_a_process(preset, seed) if options.sb3 else _rookery(preset, seed)
        runs = [run for run in runs if run["key"][:3] != key[:3]]  # with other settings
        runs.append({"key": key, **found, "conditions": read_conditions()})
        print(*key[:3], {name: round(value, 1) for name, value in found.items()}, flush=True)
        RESULT.write_text(json.dumps({"runs": runs}, indent=1) + "\n")
    TABLE.write_text(_table(runs))


def _wanted(options: argparse.Namespace) -> Iterator[tuple[Preset, int]]:
    cells = [
        preset
        for algo in options.algo
        for preset in presets(algo).values()
        if preset.expected is not None and (not options.env or preset.env in options.env)
    ]
    for seed in range(FIRST_SEED, FIRST_SEED + options.seeds):
        for preset in cells:
            yield preset, seed


def _key(preset: Preset, seed: int, library: str) -> list[Any]:
    settings = {**preset.run, **preset.config.to_dict()}
    return [preset.name, library, seed, json.loads(json.dumps(settings))]


def _rookery(preset: Preset, seed: int) -> dict[str, float]:
    """Run the command that the documentation shows."""
    told = train_by_command([preset.algo, preset.env, "--eval-episodes", str(EPISODES)], seed)
    names = {"steps": "steps", "seconds": "seconds", "eval_return_mean": "return"}
    return {name: told[key] for key, name in names.items()}


# ---------------------------------------------------------------- Stable-Baselines3


def _in_a_process(preset: Preset, seed: int) -> dict[str, float]:
    command = [sys.executable, "-m", __spec__.name, "--one", preset.name, str(seed)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _sb3(preset: Preset, seed: int) -> dict[str, float]:
    """Train SB3 with a preset's settings, in its words, on its DummyVecEnv."""
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    settings: Any = preset.config
    num_envs, steps = preset.run["num_envs"], preset.run["total_steps"]
    normalizes = {
        "norm_obs": getattr(settings, "normalize_obs", False),
        "norm_reward": getattr(settings, "normalize_reward", False),
    }
    venv: Any = make_vec_env(preset.env, num_envs, seed=seed)
    if any(normalizes.values()):
        venv = VecNormalize(venv, gamma=settings.gamma, **normalizes)
    began = time.perf_counter()
    kind = getattr(stable_baselines3, preset.algo.upper())
    model = kind("MlpPolicy", venv, seed=seed, device="cpu", **_in_sb3s_words(preset))
    model.learn(steps)
    seconds = time.perf_counter() - began
    envs: Any = make_vec_env(preset.env, 10, seed=seed + 10_000)
    if any(normalizes.values()):
        envs = VecNormalize(envs, training=False, norm_obs=normalizes["norm_obs"])
        envs.norm_reward, envs.obs_rms = False, venv.obs_rms
    score, _ = evaluate_policy(model, envs, n_eval_episodes=EPISODES)
    return {"steps": model.num_timesteps, "seconds": seconds, "return": float(score)}


def _in_sb3s_words(preset: Preset) -> dict[str, Any]:
    """A preset's settings as arguments of SB3's algorithm."""
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
        words["action_noise"] = _noise(preset)
    return words


def _noise(preset: Preset) -> Any:
    """What TD3 adds to actions, as an object of SB3."""
    from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise

    settings: Any = preset.config
    wanders = settings.exploration_noise_kind == "ornstein-uhlenbeck"
    with gym.make(preset.env) as env:
        zero = np.zeros(env.action_space.shape or ())
    kind = OrnsteinUhlenbeckActionNoise if wanders else NormalActionNoise
    return kind(zero, zero + settings.exploration_noise)


def _falling(settings: Any, name: str) -> Any:
    """A setting that may fall linearly to another value, as SB3 has schedules."""
    first, last = getattr(settings, name), getattr(settings, f"final_{name}", None)
    if last is None:
        return first
    return lambda remaining: last + (first - last) * remaining


# ---------------------------------------------------------------- the table

_COLUMNS = (
    "preset", "env steps", "seeds", "return: mean (each)", "published", "seconds",
    "SB3: mean (each)", "SB3: seconds",
)  # fmt: skip


def _table(runs: list[dict[str, Any]]) -> str:
    """All cells that have runs, in Markdown."""
    by_cell: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        name, library, *_ = run["key"]
        by_cell[name][library].append(run)
    lines = [
        "# Results",
        "",
        "What `rookery train ALGORITHM ENV --seed SEED` reaches with its preset, without any other",
        "flag: the mean return of 50 episodes with the most probable actions after the last step,",
        "of seeds that nothing was tuned with. *Published* is what the RL Zoo says of its agents,",
        "one run each, on versions 2 and 3 of these envs. SB3 was run here with the same settings.",
        "Measured by `scripts/bench learning`, which goes on where it was broken off.",
        "",
        f"| {' | '.join(_COLUMNS)} |",
        "|---|---:|---:|---|---:|---:|---|---:|",
    ]
    for algo in BUILT_IN:
        for preset in presets(algo).values():
            cell = by_cell.get(preset.name)
            if cell:
                lines.append(_row(preset, cell["rookery"], cell["SB3"]))
    where = sorted(
        {f"{r['conditions']['processor']}, {r['conditions']['cores']} cores" for r in runs}
    )
    return "\n".join([*lines, "", f"Measured on: {'; '.join(where)}.", ""])


def _row(preset: Preset, ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> str:
    def told(runs: list[dict[str, Any]]) -> tuple[str, str]:
        if not runs:
            return "", ""
        returns = [run["return"] for run in sorted(runs, key=lambda run: run["key"][2])]
        each = ", ".join(f"{value:.0f}" for value in returns)
        seconds = statistics.median(run["seconds"] for run in runs)
        return f"{statistics.mean(returns):.0f} ({each})", f"{seconds:.0f}"

    score, seconds = told(ours)
    expected = "" if preset.expected is None else f"{preset.expected:.0f}"
    cells = [
        preset.name, f"{preset.run['total_steps']:,}", str(len(ours)), score, expected, seconds,
        *told(theirs),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
