"""The measured cases, as data: an amount of work, and the contenders that do it.

A contender is called ``"library: variant"``. Every variant of a library takes part in the first
round. Variants that reach less than half of the library's best are then dropped, so that each
library is compared with its best settings. Contenders in ``ALWAYS`` are never dropped, because
users of these libraries run them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Case:
    """One row of comparisons.

    Attributes:
        name: key in the results.
        title: name in tables and pictures.
        kind: module that measures the case.
        env: key of `environments.MAKERS`.
        num_envs: number of envs.
        contenders: names of the contenders.
        num_workers: number of worker processes, for contenders that let the user choose it.
        busy_processes: number of endless loops that run during the measurement.
        settings: settings of the training run, for the kind ``training``.
        held_out: True if no choice in rookery was made with this case.
        unit: unit of the result, steps/s or s.
    """

    name: str
    title: str
    kind: str
    env: str
    num_envs: int
    contenders: tuple[str, ...]
    num_workers: int = CORES
    busy_processes: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    held_out: bool = False
    unit: str = "steps/s"


LIMIT, LOOP = "limit", "for-loop"
_ROOKERY = ("rookery: auto", "rookery: workers", "rookery: caller_steps")
_PLAIN = (
    "gymnasium: SyncVectorEnv",
    "gymnasium: AsyncVectorEnv",
    "gymnasium: AsyncVectorEnv, max_concurrency",
)
_SB3 = ("SB3: DummyVecEnv", "SB3: SubprocVecEnv")
_OTHERS = (
    "TorchRL: SerialEnv",
    "TorchRL: ParallelEnv",
    "Tianshou: DummyVectorEnv",
    "Tianshou: SubprocVectorEnv",
    "Tianshou: ShmemVectorEnv",
)
_ENVPOOL = ("EnvPool: in step", "EnvPool: half of the envs at a time")
_PUFFERLIB = (
    "PufferLib: Serial",
    "PufferLib: Multiprocessing, a worker for each core",
    "PufferLib: Multiprocessing, a worker for each env",
)
ALWAYS = (
    LIMIT,
    LOOP,
    "gymnasium: AsyncVectorEnv",
    "SB3: SubprocVecEnv",
    "TorchRL: ParallelEnv",
    "Tianshou: SubprocVectorEnv",
)
_USUAL = (LIMIT, LOOP, *_ROOKERY, *_PLAIN, *_SB3)
_EVERYBODY = (*_USUAL, *_OTHERS)
_NATIVE_CARTPOLE = "native: CartPoleVectorEnv of Gymnasium, in numpy"
_NATIVE_ATARI = ("rookery: native", "native: AtariVectorEnv of ALE, in C++")
_RECV = "rookery: recv a quarter of the envs"
_ASYNCHRONOUS = (
    "TorchRL: AsyncEnvPool, 16 envs per worker",
    "TorchRL: AsyncEnvPool, 8 envs per worker",
    "Tianshou: SubprocVectorEnv, wait_num",
    "Tianshou: ShmemVectorEnv, wait_num",
    "PufferLib 3: Multiprocessing, batch_size, 4 workers",
    "PufferLib 3: Multiprocessing, batch_size, 8 workers",
    "PufferLib 3: Multiprocessing, batch_size, 32 workers",
)
_BY_PICKLE = "gymnasium: AsyncVectorEnv without shared memory"


def _stepping(name: str, title: str, env: str, num_envs: int, *more: str, **options: Any) -> Case:
    contenders = options.pop("contenders", _EVERYBODY)
    return Case(name, title, "stepping", env, num_envs, (*contenders, *more), **options)


_STEPPING = (
    _stepping(
        "cartpole-64", "CartPole-v1, 64 envs", "cartpole", 64,
        *_PUFFERLIB, *_ENVPOOL, _NATIVE_CARTPOLE,
    ),
    _stepping("halfcheetah-16", "HalfCheetah-v5, 16 envs", "halfcheetah", 16, *_ENVPOOL),
    _stepping("pong-16", "ALE/Pong-v5, 84x84x4, 16 envs", "pong", 16, *_ENVPOOL, *_NATIVE_ATARI),
    _stepping(
        "waiting-32",
        "an env that waits 2 ms, exponentially distributed, 32 envs in lock-step",
        "uneven sleep",
        32,
        "rookery: threads",
        *_PUFFERLIB,
        num_workers=32,
    ),
    _stepping(
        "waiting-32-async",
        "an env that waits 2 ms, exponentially distributed, 8 or more of 32 envs at a time",
        "uneven sleep",
        32,
        contenders=(LIMIT, LOOP, _RECV, *_ASYNCHRONOUS),
        num_workers=32,
    ),
    _stepping(
        "sequence-8",
        "Sequence observations without compute, 8 envs",
        "sequence",
        8,
        contenders=(LOOP, *_ROOKERY, *_PLAIN[:1], _BY_PICKLE),
    ),
    _stepping(
        "cartpole-8", "CartPole-v1, 8 envs", "cartpole", 8, *_ENVPOOL, _NATIVE_CARTPOLE,
        contenders=_USUAL,
    ),
    _stepping(
        "cartpole-8-busy", "CartPole-v1, 8 envs, every core busy with something else",
        "cartpole", 8, contenders=_USUAL, busy_processes=CORES,
    ),
    _stepping(
        "acrobot-24", "Acrobot-v1, 24 envs", "acrobot", 24, *_ENVPOOL,
        contenders=_USUAL, held_out=True,
    ),
    _stepping(
        "hopper-12", "Hopper-v5, 12 envs", "hopper", 12, *_ENVPOOL,
        contenders=_USUAL, held_out=True,
    ),
    _stepping(
        "minigrid-20",
        "MiniGrid-DoorKey-8x8-v0, 20 envs",
        "minigrid",
        20,
        contenders=(LIMIT, LOOP, *_ROOKERY, _PLAIN[0], _BY_PICKLE),
        held_out=True,
    ),
)  # fmt: skip

_COLLECTORS = (
    "rookery: SyncCollector",
    "rookery: WorkerCollector",
    "rookery: WorkerCollector, async",
    "rookery: WorkerCollector on two nodes",
    *_SB3,
    "TorchRL: Collector, SerialEnv",
    "TorchRL: Collector, ParallelEnv",
    "TorchRL: MultiSyncCollector",
    "TorchRL: MultiSyncCollector, compiled policy",
    "Tianshou: DummyVectorEnv",
    "Tianshou: ShmemVectorEnv",
    "RLlib: env runners",
)
_ROLLOUTS = tuple(
    Case(
        f"rollouts-{env}-{num_envs}",
        f"rollouts of 128 steps with a 2x64 policy, {title}, {num_envs} envs",
        "rollouts",
        env,
        num_envs,
        (LIMIT, *_COLLECTORS),
        held_out=held_out,
    )
    for env, title, num_envs, held_out in (
        ("cartpole", "CartPole-v1", 16, False),
        ("acrobot", "Acrobot-v1", 24, True),
    )
)

_TRAINERS = (
    "rookery: train",
    "rookery: train, custom network",
    *_SB3,
    "SB3: DummyVecEnv, 1 thread",
    "SB3: SubprocVecEnv, 1 thread",
    "SB3 on rookery: RookeryVecEnv, 1 thread",
    "SBX: DummyVecEnv",
    "SBX: SubprocVecEnv",
    "CleanRL: its single file",
    "CleanRL: its single file, 1 thread",
    "Tianshou: DummyVectorEnv, 1 thread",
    "Tianshou: ShmemVectorEnv, 1 thread",
)


def _training(env: str, env_id: str, title: str, updates: int, **settings: Any) -> Case:
    shown = (
        f"PPO on {title}, 8 envs x {settings['num_steps']} steps, "
        f"{settings['num_epochs']} epochs of {settings['minibatch_size']}"
    )
    told = {"env_id": env_id, "updates": updates, **settings}
    more = ("Sample Factory: APPO",) if env == "cartpole" else ()  # its Gymnasium has older others
    return Case(f"ppo-{env}", shown, "training", env, 8, (*_TRAINERS, *more), settings=told)


_TRAINING = (
    _training(
        "cartpole", "CartPole-v1", "CartPole-v1", 12,
        num_steps=128, num_epochs=10, minibatch_size=256,
    ),
    _training(
        "lunarlander", "LunarLander-v3", "LunarLander-v3", 6,
        num_steps=256, num_epochs=10, minibatch_size=512,
    ),
    _training(
        "halfcheetah", "HalfCheetah-v5", "HalfCheetah-v5", 6,
        num_steps=256, num_epochs=10, minibatch_size=512, normalizes=True,
    ),
    _training(
        "pong", "ALE/Pong-v5", "ALE/Pong-v5", 4,
        num_steps=128, num_epochs=4, minibatch_size=256,
    ),
)  # fmt: skip

_OFF_POLICY_CONTENDERS = (
    "rookery: train",
    "rookery: train, custom network",
    "SB3: DummyVecEnv",
    "SB3: DummyVecEnv, 1 thread",
    "SBX: DummyVecEnv",
    "Tianshou: DummyVectorEnv, 1 thread",
)


def _off_policy(
    name: str, title: str, env: str, num_envs: int, *more: str, busy: int = 0, **settings: Any
) -> Case:
    contenders = (*more, *_OFF_POLICY_CONTENDERS)
    return Case(
        name, title, "off_policy", env, num_envs, contenders, settings=settings,
        busy_processes=busy,
    )  # fmt: skip


_CHEETAH: dict[str, Any] = {
    "env_id": "HalfCheetah-v5", "num_steps": 1, "updates_per_step": 1, "batch_size": 256,
    "hidden_sizes": (256, 256), "learning_rate": 3e-4,
}  # fmt: skip
_OFF_POLICY = (
    _off_policy(
        "sac-halfcheetah-1", "SAC on HalfCheetah-v5, 1 env", "halfcheetah", 1, LIMIT,
        algo="sac", **_CHEETAH,
    ),
    _off_policy(
        "sac-halfcheetah-8", "SAC on HalfCheetah-v5, 8 envs", "halfcheetah", 8, LIMIT,
        algo="sac", **_CHEETAH,
    ),
    _off_policy(
        "sac-halfcheetah-1-busy", "SAC on HalfCheetah-v5, 1 env, next to two busy processes",
        "halfcheetah", 1, busy=2, algo="sac", **_CHEETAH,
    ),
    _off_policy(
        "td3-halfcheetah-1", "TD3 on HalfCheetah-v5, 1 env", "halfcheetah", 1, LIMIT,
        algo="td3", **_CHEETAH,
    ),
    _off_policy(
        "dqn-cartpole-4", "DQN on CartPole-v1, 4 envs, an update per 16 steps", "cartpole", 4,
        algo="dqn", env_id="CartPole-v1", num_steps=4, updates_per_step=1 / 16, batch_size=64,
        hidden_sizes=(64, 64), learning_rate=1e-3,
    ),
)  # fmt: skip

_STARTING = (
    Case(
        "start-64",
        "start and reset 64 CartPole-v1 in processes",
        "starting",
        "cartpole",
        64,
        (
            "rookery: workers",
            "rookery: a process for each env",
            "gymnasium: AsyncVectorEnv",
            "SB3: SubprocVecEnv, fork",
            "Tianshou: SubprocVectorEnv",
            "TorchRL: ParallelEnv",
        ),
        unit="s",
    ),
)

CASES: dict[str, Case] = {
    case.name: case for case in (*_STEPPING, *_ROLLOUTS, *_TRAINING, *_OFF_POLICY, *_STARTING)
}
