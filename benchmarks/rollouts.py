"""Rollouts with a policy in the loop: two hidden layers of 64, for actor and critic each.

All contenders store observations, actions, rewards, ends and log probabilities. rookery, SB3 and
TorchRL compute values beside them; rookery and SB3 add advantages; Tianshou and RLlib leave both to
the learner, which is less work. Torch runs on one thread for all contenders: with so few rows, more
are slower. A reset is part of a step, so that every counted step is experience.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from benchmarks.cases import LIMIT, Case
from benchmarks.clocks import Effort, Opener, Sample, Work, sample_of
from benchmarks.environments import MAKERS
from benchmarks.limit import measure_limit, processes_of
from benchmarks.stepping import open_sb3, open_tianshou, torchrl_maker

NUM_STEPS = 128
HIDDEN_SIZES = (64, 64)


def measure(case: Case, contender: str, effort: Effort, seed: int) -> Sample:
    """Collect rollouts for a while and count env steps."""
    if contender == LIMIT:
        return measure_limit(case, effort, processes_of(case))
    import torch

    torch.set_num_threads(1)
    with CONTENDERS[contender](case) as work:
        return sample_of(work, effort)


@contextmanager
def _rookery(case: Case, **options: Any) -> Iterator[Work]:
    import rookery
    from rookery.policy import make_policy

    with rookery.make_vec(
        MAKERS[case.env], num_envs=case.num_envs, autoreset_mode="same_step", **options
    ) as venv:
        spaces = venv.single_observation_space, venv.single_action_space
        policy = make_policy(*spaces, hidden_sizes=HIDDEN_SIZES)
        collector = rookery.SyncCollector(venv, policy, NUM_STEPS)
        yield lambda: collector.collect().num_transitions


@contextmanager
def _rookery_workers_act(case: Case, mode: Any, nodes: int = 0) -> Iterator[Work]:
    """Collect with versions that grow as after an update."""
    import rookery
    from rookery.policy import make_policy

    env = MAKERS[case.env]()
    policy = make_policy(env.observation_space, env.action_space, hidden_sizes=HIDDEN_SIZES)
    env.close()
    if nodes:
        from benchmarks.cluster import a_cluster
    with (
        a_cluster(nodes, case.num_workers // nodes) if nodes else nullcontext(),
        rookery.WorkerCollector(
            MAKERS[case.env], policy, case.num_envs, case.num_workers, NUM_STEPS, mode,
            backend="ray" if nodes else "process",
        ) as collector,
    ):  # fmt: skip

        def work() -> int:
            rollout = collector.collect()
            policy.version += 1
            return rollout.num_transitions

        yield work


@contextmanager
def _sb3(case: Case, kind: str, **options: Any) -> Iterator[Work]:
    from stable_baselines3 import PPO

    venv = open_sb3(case, kind, **options)
    try:
        layers = {"net_arch": list(HIDDEN_SIZES)}
        model: Any = PPO("MlpPolicy", venv, n_steps=NUM_STEPS, policy_kwargs=layers, device="cpu")
        _, callback = model._setup_learn(total_timesteps=1)

        def work() -> int:
            buffer = model.rollout_buffer
            model.collect_rollouts(model.env, callback, buffer, n_rollout_steps=NUM_STEPS)
            return NUM_STEPS * case.num_envs

        yield work
    finally:
        venv.close()


@contextmanager
def _torchrl(case: Case, kind: str, collector: str = "Collector", **more: Any) -> Iterator[Work]:
    import torch
    from torchrl import collectors, envs

    make = torchrl_maker(case)
    total = NUM_STEPS * case.num_envs
    options: dict[str, Any] = {"frames_per_batch": total, "total_frames": -1, **more}
    if collector == "Collector":
        started = {"mp_start_method": "fork"} if kind == "ParallelEnv" else {}
        source: Any = getattr(envs, kind)(case.num_envs, make, **started)
    else:
        share = functools.partial(getattr(envs, kind), case.num_envs // case.num_workers, make)
        source, options["no_cuda_sync"] = [share] * case.num_workers, True
    opened = getattr(collectors, collector)(source, _torchrl_policy(case), **options)
    torch.set_num_threads(1)
    try:
        batches = iter(opened)
        yield lambda: next(batches).numel()
    finally:
        opened.shutdown()


def _torchrl_policy(case: Case) -> Any:
    """Make an actor with a critic, two separate towers, for discrete actions."""
    from tensordict.nn import TensorDictModule, TensorDictSequential
    from torch import distributions, nn
    from torchrl.modules import MLP, ProbabilisticActor, ValueOperator

    env: Any = MAKERS[case.env]()
    size, actions = env.observation_space.shape[0], int(env.action_space.n)
    env.close()

    def tower(outputs: int) -> MLP:
        return MLP(size, outputs, num_cells=list(HIDDEN_SIZES), activation_class=nn.Tanh)

    actor = ProbabilisticActor(
        TensorDictModule(tower(actions), in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits"],
        distribution_class=distributions.Categorical,
        return_log_prob=True,
    )
    return TensorDictSequential(actor, ValueOperator(tower(1), in_keys=["observation"]))


@contextmanager
def _tianshou(case: Case, kind: str) -> Iterator[Work]:
    from tianshou.data import Collector, VectorReplayBuffer

    from benchmarks.training import tianshou_policy

    venv = open_tianshou(case, kind)
    total = NUM_STEPS * case.num_envs
    policy, _ = tianshou_policy(case, HIDDEN_SIZES)
    collector: Any = Collector(policy, venv, VectorReplayBuffer(total, case.num_envs))
    collector.reset()

    def work() -> int:
        collector.collect(n_step=total)
        collector.reset_buffer(keep_statistics=True)
        return total

    try:
        yield work
    finally:
        venv.close()


@contextmanager
def _rllib(case: Case) -> Iterator[Work]:
    """Env runners of RLlib's PPO, a process with its envs for each worker of the others."""
    import logging

    import ray
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.tune.registry import register_env

    name = case.env
    register_env(name, lambda _: MAKERS[name]())
    ray.init(logging_level=logging.ERROR, log_to_driver=False, include_dashboard=False)
    model = DefaultModelConfig(fcnet_hiddens=list(HIDDEN_SIZES), vf_share_layers=False)
    config: Any = (
        PPOConfig()
        .environment(name)
        .env_runners(
            num_env_runners=case.num_workers,
            num_envs_per_env_runner=case.num_envs // case.num_workers,
            rollout_fragment_length=NUM_STEPS,
            batch_mode="truncate_episodes",
        )
        .resources(num_cpus_for_main_process=0)
        .training(train_batch_size_per_learner=NUM_STEPS * case.num_envs)
        .learners(num_learners=0)
        .rl_module(model_config=model)
    )
    group = config.build_algo().env_runner_group

    def work() -> int:
        found = group.foreach_env_runner(
            lambda runner: runner.sample(), local_env_runner=False, timeout_seconds=120
        )
        return sum(len(episode) for episodes in found for episode in episodes)

    try:
        yield work
    finally:
        ray.shutdown()


CONTENDERS: dict[str, Opener] = {
    "rookery: SyncCollector": functools.partial(_rookery, backend="auto"),
    "rookery: SyncCollector, workers": functools.partial(
        _rookery, backend="process", caller_steps=False
    ),
    "rookery: SyncCollector, caller_steps": functools.partial(
        _rookery, backend="process", caller_steps=True
    ),
    "rookery: WorkerCollector": functools.partial(_rookery_workers_act, mode="sync"),
    "rookery: WorkerCollector, async": functools.partial(_rookery_workers_act, mode="async"),
    "rookery: WorkerCollector on two nodes": functools.partial(
        _rookery_workers_act, mode="sync", nodes=2
    ),
    "SB3: DummyVecEnv": functools.partial(_sb3, kind="DummyVecEnv"),
    "SB3: SubprocVecEnv": functools.partial(_sb3, kind="SubprocVecEnv", start_method="fork"),
    "TorchRL: Collector, SerialEnv": functools.partial(_torchrl, kind="SerialEnv"),
    "TorchRL: Collector, ParallelEnv": functools.partial(_torchrl, kind="ParallelEnv"),
    "TorchRL: MultiSyncCollector": functools.partial(
        _torchrl, kind="SerialEnv", collector="MultiSyncCollector"
    ),
    "TorchRL: MultiSyncCollector, compiled policy": functools.partial(
        _torchrl, kind="SerialEnv", collector="MultiSyncCollector", compile_policy=True
    ),
    "Tianshou: DummyVectorEnv": functools.partial(_tianshou, kind="DummyVectorEnv"),
    "Tianshou: ShmemVectorEnv": functools.partial(_tianshou, kind="ShmemVectorEnv"),
    "RLlib: env runners": _rllib,
}
