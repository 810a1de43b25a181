"""PPO while it learns: env steps a second from the end of the first update to that of the last.

The same work everywhere: envs, steps, epochs, minibatches, networks of the same shape, advantages,
episodes' returns (``Monitor``, ``RecordEpisodeStatistics``) and TensorBoard logs. rookery writes
metrics as JSON, telemetry and checkpoints besides. Torch has its own number of threads, or one.
CleanRL's files are for an older Gymnasium: they are given the names that have changed since, and
run in the next-step mode, in which they notice no end of an episode and learn from resets too.
"""

from __future__ import annotations

import functools
import importlib
import os
import runpy
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.cases import CORES, Case
from benchmarks.clocks import Effort, Sample
from benchmarks.environments import MAKERS, register_atari

CLEANRL = "CLEANRL"
_LEARNING_RATE = 2.5e-4


def measure(case: Case, contender: str, effort: Effort, seed: int) -> Sample:
    """Train for some updates."""
    size = case.num_envs * case.settings["num_steps"]
    updates = 2 if effort.quick else case.settings["updates"]
    with tempfile.TemporaryDirectory() as folder:
        times = CONTENDERS[contender](case, size * updates, seed + 1, folder)
    return {"value": (len(times) - 1) * size / (times[-1] - times[0])}


Times = list[float]  # when updates were done


def _rookery(case: Case, total_steps: int, seed: int, folder: str, own: bool = False) -> Times:
    import rookery

    told = case.settings
    config = rookery.PPOConfig(
        num_steps=told["num_steps"],
        num_epochs=told["num_epochs"],
        minibatch_size=told["minibatch_size"],
        learning_rate=_LEARNING_RATE,
        normalize_obs=told.get("normalizes", False),
        normalize_reward=told.get("normalizes", False),
    )
    options: dict[str, Any] = {"encoder" if case.env == "pong" else "network": own_network(case)}
    with rookery.Trainer(
        told["env_id"],
        algo=config,
        preset="none",
        num_envs=case.num_envs,
        total_steps=total_steps,
        seed=seed,
        run_dir=f"{folder}/run",
        **(options if own else {}),
    ) as trainer:
        return [time.perf_counter() for _ in trainer]


def own_network(case: Case) -> Any:
    """Return a network as a user would write it: two towers, or an encoder of pixels."""
    from torch import nn

    def make_towers(observation_space: Any, action_space: Any) -> nn.Module:
        size = observation_space.shape[0]
        outputs = int(getattr(action_space, "n", 0) or action_space.shape[0])
        return Towers(size, outputs)

    class Towers(nn.Module):
        def __init__(self, size: int, outputs: int) -> None:
            super().__init__()
            self.actor, self.critic = (
                nn.Sequential(
                    nn.Linear(size, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n)
                )
                for n in (outputs, 1)
            )

        def forward(self, obs: Any) -> Any:
            return self.actor(obs), self.critic(obs)[:, 0]

    class Pixels(nn.Module):
        out_features = 512

        def __init__(self, observation_space: Any) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
                nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(),
            )  # fmt: skip

        def forward(self, obs: Any) -> Any:
            return self.layers(obs.float() / 255)

    return Pixels if case.env == "pong" else make_towers


def _sb3(
    case: Case,
    total_steps: int,
    seed: int,
    folder: str,
    kind: str,
    threads: int | None = None,
    library: str = "stable_baselines3",
) -> Times:
    """Train with SB3, or with SBX, which has the same interface."""
    import torch
    from stable_baselines3.common import env_util, vec_env
    from stable_baselines3.common.callbacks import BaseCallback

    class Clock(BaseCallback):
        """Notes when a rollout begins, which is when the update before it is done."""

        times: Times

        def _on_training_start(self) -> None:
            self.times = []

        def _on_rollout_start(self) -> None:
            self.times.append(time.perf_counter())

        def _on_step(self) -> bool:
            return True

    if threads is not None:
        torch.set_num_threads(threads)
    made: dict[str, Any] = {"n_envs": case.num_envs, "seed": seed, "vec_env_cls": _class(kind)}
    told = case.settings
    if case.env == "pong":
        register_atari()
        # The address has processes register the games for themselves.
        venv: Any = env_util.make_atari_env(
            f"ale_py:{told['env_id']}", env_kwargs={"frameskip": 1}, **made
        )
        venv = vec_env.VecFrameStack(venv, 4)
    else:
        venv = env_util.make_vec_env(told["env_id"], **made)
    if told.get("normalizes"):
        venv = vec_env.VecNormalize(venv)
    clock = Clock()
    model = importlib.import_module(library).PPO(
        "CnnPolicy" if case.env == "pong" else "MlpPolicy",
        venv,
        n_steps=told["num_steps"],
        batch_size=told["minibatch_size"],
        n_epochs=told["num_epochs"],
        learning_rate=_LEARNING_RATE,
        tensorboard_log=folder,
        seed=seed,
        device="cpu",
    )
    model.learn(total_steps, clock)
    ended = time.perf_counter()
    venv.close()
    return [*clock.times[1:], ended]


def _class(kind: str) -> Any:
    """One of SB3's classes, or rookery's that stands in for them."""
    if kind == "RookeryVecEnv":
        from rookery.integrations.sb3 import RookeryVecEnv

        return RookeryVecEnv
    from stable_baselines3.common import vec_env

    return getattr(vec_env, kind)


def _tianshou(
    case: Case, total_steps: int, seed: int, folder: str, kind: str, threads: int
) -> Times:
    """Train by Tianshou's own trainer, which says when a collection begins."""
    import torch
    from tianshou import env
    from tianshou.algorithm.modelfree.ppo import PPO
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.trainer import OnPolicyTrainerParams
    from tianshou.utils import TensorboardLogger
    from torch.utils.tensorboard.writer import SummaryWriter

    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    told, times = case.settings, []
    venv: Any = getattr(env, kind)([MAKERS[case.env]] * case.num_envs)
    venv.seed(seed)
    if told.get("normalizes"):
        venv = env.VectorEnvNormObs(venv)
    policy, critic = tianshou_policy(case, (64, 64))
    algorithm: Any = PPO(
        policy=policy,
        critic=critic,
        optim=AdamOptimizerFactory(lr=_LEARNING_RATE),
        max_grad_norm=0.5,
        return_scaling=told.get("normalizes", False),
    )
    size = case.num_envs * told["num_steps"]
    buffer = VectorReplayBuffer(size, case.num_envs)
    algorithm.run_training(
        OnPolicyTrainerParams(
            max_epochs=1,
            epoch_num_steps=total_steps,
            training_collector=Collector(policy, venv, buffer),
            collection_step_num_env_steps=size,
            batch_size=told["minibatch_size"],
            update_step_num_repetitions=told["num_epochs"],
            training_fn=lambda epoch, step: times.append(time.perf_counter()),
            logger=TensorboardLogger(SummaryWriter(folder), update_interval=1),
            verbose=False,
            show_progress=False,
        )
    )
    ended = time.perf_counter()
    venv.close()
    return [*times[1:], ended]


def tianshou_policy(case: Case, sizes: tuple[int, ...]) -> Any:
    """An actor and a critic of Tianshou: two towers, or two that share an encoder of pixels."""
    import torch
    from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
    from tianshou.env.atari.atari_network import DQNet, ScaledObsInputActionReprNet
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
    from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
    from torch import distributions, nn

    env = MAKERS[case.env]()
    shape: Any = env.observation_space.shape
    action_space: Any = env.action_space
    env.close()
    if len(shape) == 3:
        encoder = DQNet(*shape, action_space.n, features_only=True, output_dim_added_layer=512)
        towers = [ScaledObsInputActionReprNet(encoder)] * 2
    else:
        towers = [Net(state_shape=shape, hidden_sizes=sizes, activation=nn.Tanh) for _ in range(2)]
    actor: Any
    critic: Any
    if hasattr(action_space, "n"):
        actor = DiscreteActor(
            preprocess_net=towers[0], action_shape=action_space.n, softmax_output=False
        )
        critic = DiscreteCritic(preprocess_net=towers[1])
        make: Any = lambda logits: distributions.Categorical(logits=logits)  # noqa: E731
    else:
        actor = ContinuousActorProbabilistic(
            preprocess_net=towers[0], action_shape=action_space.shape, unbounded=True
        )
        critic = ContinuousCritic(preprocess_net=towers[1])

        def make(loc_scale: tuple[torch.Tensor, torch.Tensor]) -> Any:
            return distributions.Independent(distributions.Normal(*loc_scale), 1)

    policy = ProbabilisticActorPolicy(
        actor=actor,
        dist_fn=make,
        action_space=action_space,
        action_scaling=not hasattr(action_space, "n"),
        action_bound_method=None if hasattr(action_space, "n") else "clip",
    )
    return policy, critic


def _sample_factory(case: Case, total_steps: int, seed: int, folder: str) -> Times:
    """Train asynchronously, as this library does: it collects while it learns."""
    from sample_factory.algo.runners.runner import AlgoObserver
    from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
    from sample_factory.envs.env_utils import register_env
    from sample_factory.train import make_runner

    class Clock(AlgoObserver):
        """Notes when an iteration of training is done."""

        def on_training_step(self, runner: Any, training_iteration_since_resume: int) -> None:
            times.append(time.perf_counter())

    times: Times = []
    told = case.settings
    register_env(case.env, _make_by_name)
    size = case.num_envs * told["num_steps"]
    options = {
        "algo": "APPO", "env": case.env, "experiment": "run", "train_dir": folder, "device": "cpu",
        "seed": seed, "num_workers": CORES, "num_envs_per_worker": case.num_envs // CORES,
        "worker_num_splits": 2, "rollout": told["num_steps"], "batch_size": told["minibatch_size"],
        "num_batches_per_epoch": size // told["minibatch_size"], "num_epochs": told["num_epochs"],
        "train_for_env_steps": total_steps - 1, "use_rnn": False, "recurrence": 1,
        "actor_critic_share_weights": False, "nonlinearity": "tanh",
        "learning_rate": _LEARNING_RATE,
    }  # fmt: skip
    words = [f"--{name}={value}" for name, value in options.items()]
    words += ["--encoder_mlp_layers", "64", "64"]
    parser, _ = parse_sf_args(words)
    _, runner = make_runner(parse_full_cfg(parser, words))
    runner.register_observer(Clock())
    runner.init()
    runner.run()
    return times


def _make_by_name(name: str, *_: Any, **__: Any) -> Any:
    """Make an env where Sample Factory wants one."""
    return MAKERS[name]()


def _cleanrl(
    case: Case, total_steps: int, seed: int, folder: str, threads: int | None = None
) -> Times:
    """Run CleanRL's file as a program, which says after each update how fast it was."""
    files = {"pong": "ppo_atari.py", "halfcheetah": "ppo_continuous_action.py"}
    if CLEANRL not in os.environ:
        raise SystemExit(f"{CLEANRL} does not say where CleanRL's files lie")
    told = case.settings
    size = case.num_envs * told["num_steps"]
    path = Path(os.environ[CLEANRL]) / files.get(case.env, "ppo.py")
    options = {
        "env-id": told["env_id"],
        "total-timesteps": total_steps,
        "num-envs": case.num_envs,
        "num-steps": told["num_steps"],
        "num-minibatches": size // told["minibatch_size"],
        "update-epochs": told["num_epochs"],
        "learning-rate": _LEARNING_RATE,
        "seed": seed,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-u", "-m", __name__, str(threads or 0), str(path), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stdout is not None
        times = [time.perf_counter() for line in process.stdout if line.startswith("SPS:")]
    if process.returncode:
        raise SystemExit(f"{path} ended with {process.returncode}")
    return times


def _run_cleanrl() -> None:
    """Run CleanRL's file, under the names it knows; its games skip no frames by themselves."""
    import gymnasium
    import torch
    from gymnasium import wrappers
    from stable_baselines3.common import atari_wrappers

    def make(env_id: str, **kwargs: Any) -> Any:
        own: dict[str, Any] = {"frameskip": 1} if env_id.startswith("ALE") else {}
        return made(env_id, **own, **kwargs)

    def transform(env: Any, function: Any) -> Any:
        return transformed(env, function, env.observation_space)

    threads, path = int(sys.argv[1]), sys.argv[2]
    if threads:
        torch.set_num_threads(threads)
    if "atari" in path:
        register_atari()
    made, transformed = gymnasium.make, wrappers.TransformObservation
    changed: dict[str, Any] = {
        "GrayScaleObservation": wrappers.GrayscaleObservation,
        "FrameStack": wrappers.FrameStackObservation,
        "TransformObservation": transform,
    }
    for name, wrapper in changed.items():
        setattr(wrappers, name, wrapper)
    gymnasium.make = make  # type: ignore[assignment]
    utilities: Any = types.ModuleType("cleanrl_utils")  # whose wrappers are those of SB3
    utilities.atari_wrappers = atari_wrappers
    sys.modules |= {"cleanrl_utils": utilities, "cleanrl_utils.atari_wrappers": atari_wrappers}
    sys.argv = sys.argv[2:]
    runpy.run_path(path, run_name="__main__")


CONTENDERS: dict[str, Callable[[Case, int, int, str], Times]] = {
    "rookery: train": _rookery,
    "rookery: train, custom network": functools.partial(_rookery, own=True),
    "SB3: DummyVecEnv": functools.partial(_sb3, kind="DummyVecEnv"),
    "SB3: SubprocVecEnv": functools.partial(_sb3, kind="SubprocVecEnv"),
    "SB3: DummyVecEnv, 1 thread": functools.partial(_sb3, kind="DummyVecEnv", threads=1),
    "SB3: SubprocVecEnv, 1 thread": functools.partial(_sb3, kind="SubprocVecEnv", threads=1),
    "SB3 on rookery: RookeryVecEnv, 1 thread": functools.partial(
        _sb3, kind="RookeryVecEnv", threads=1
    ),
    "SBX: DummyVecEnv": functools.partial(_sb3, kind="DummyVecEnv", library="sbx"),
    "SBX: SubprocVecEnv": functools.partial(_sb3, kind="SubprocVecEnv", library="sbx"),
    "CleanRL: its single file": _cleanrl,
    "CleanRL: its single file, 1 thread": functools.partial(_cleanrl, threads=1),
    "Sample Factory: APPO": _sample_factory,
    "Tianshou: DummyVectorEnv, 1 thread": functools.partial(
        _tianshou, kind="DummyVectorEnv", threads=1
    ),
    "Tianshou: ShmemVectorEnv, 1 thread": functools.partial(
        _tianshou, kind="ShmemVectorEnv", threads=1
    ),
}

if __name__ == "__main__":
    _run_cleanrl()
