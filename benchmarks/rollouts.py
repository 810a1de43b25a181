"""Rollouts with a policy in the loop: two hidden layers of 64, 128 steps of 16 or 64 CartPoles.

Every contender computes values and log probabilities, fills its rollout storage and computes
advantages where its collector does so. Torch runs on one thread for everybody: with batches of 16,
more threads are slower. The limit is that of plain loops without a policy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from benchmarks.cases import Case, Effort
from benchmarks.contenders import open_sb3
from benchmarks.environments import MAKERS
from benchmarks.limit import measure_limit
from benchmarks.stepping import steps_per_second

HIDDEN_SIZES = (64, 64)

Collect = Callable[[], int]  # collects a rollout and returns how many env steps it was


@contextmanager
def _rookery(case: Case, **options: Any) -> Iterator[Collect]:
    import rookery
    from rookery.policy import make_policy

    if options.get("num_workers") == "case":
        options["num_workers"] = case.num_workers
    # As in SB3, a reset is part of a step here, so that every counted step is experience.
    venv = rookery.make_vec(
        MAKERS[case.env], num_envs=case.num_envs, autoreset_mode="same_step", **options
    )
    try:
        policy = make_policy(
            venv.single_observation_space, venv.single_action_space, hidden_sizes=HIDDEN_SIZES
        )
        collector = rookery.SyncCollector(venv, policy, case.num_steps)
        yield lambda: collector.collect().num_transitions
    finally:
        venv.close()


@contextmanager
def _rookery_workers_act(case: Case, mode: Any, learns: bool = False) -> Iterator[Collect]:
    """Collect with versions that grow as after an update, or with updates by IMPALA."""
    import rookery
    from rookery.learn.impala import Impala
    from rookery.policy import make_policy
    from rookery.training.threads import blas_threads_for

    env = MAKERS[case.env]()
    policy = make_policy(env.observation_space, env.action_space, hidden_sizes=HIDDEN_SIZES)
    env.close()
    config = rookery.ImpalaConfig(num_steps=case.num_steps, hidden_sizes=HIDDEN_SIZES)
    learner = Impala(policy, config, case.num_envs)
    with (
        rookery.WorkerCollector(
            MAKERS[case.env], policy, case.num_envs, case.num_workers, case.num_steps, mode
        ) as collector,
        blas_threads_for(config.rows_per_gradient_step(case.num_envs), HIDDEN_SIZES),
    ):

        def collect() -> int:
            rollout = collector.collect()
            if learns:
                learner.update(rollout)
            policy.version += 1
            return rollout.num_transitions

        yield collect


@contextmanager
def _sb3(case: Case, kind: str, **options: Any) -> Iterator[Collect]:
    from stable_baselines3 import PPO

    venv = open_sb3(case, kind, **options)
    try:
        model = PPO(
            "MlpPolicy",
            venv,
            n_steps=case.num_steps,
            policy_kwargs={"net_arch": list(HIDDEN_SIZES)},
            device="cpu",
        )
        _, callback = model._setup_learn(total_timesteps=1)

        def collect() -> int:
            model.collect_rollouts(
                model.env, callback, model.rollout_buffer, n_rollout_steps=case.num_steps
            )
            return case.num_steps * case.num_envs

        yield collect
    finally:
        venv.close()


@contextmanager
def _torchrl(case: Case) -> Iterator[Collect]:
    import torch
    from torchrl.collectors import MultiSyncCollector
    from torchrl.envs import GymWrapper, SerialEnv

    def make() -> GymWrapper:
        return GymWrapper(MAKERS[case.env](), categorical_action_encoding=True)

    num_envs = case.num_envs // case.num_workers
    collector = MultiSyncCollector(
        [functools.partial(SerialEnv, num_envs, make)] * case.num_workers,
        _torchrl_policy(),
        frames_per_batch=case.num_steps * case.num_envs,
        total_frames=-1,
        no_cuda_sync=True,
    )
    torch.set_num_threads(1)
    try:
        batches = iter(collector)
        yield lambda: next(batches).numel()
    finally:
        collector.shutdown()


def _torchrl_policy() -> Any:
    """Make an actor with a critic, two separate towers, for CartPole."""
    from tensordict.nn import TensorDictModule, TensorDictSequential
    from torch import distributions, nn
    from torchrl.modules import MLP, ProbabilisticActor, ValueOperator

    def tower(outputs: int) -> MLP:
        return MLP(4, outputs, num_cells=list(HIDDEN_SIZES), activation_class=nn.Tanh)

    actor = ProbabilisticActor(
        TensorDictModule(tower(2), in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits"],
        distribution_class=distributions.Categorical,
        return_log_prob=True,
    )
    return TensorDictSequential(actor, ValueOperator(tower(1), in_keys=["observation"]))


COLLECTORS: dict[str, Callable[[Case], AbstractContextManager[Collect]]] = {
    "rookery workers": functools.partial(
        _rookery, backend="process", caller_steps=False, num_workers="case"
    ),
    "rookery caller_steps": functools.partial(_rookery, backend="process", caller_steps=True),
    "rookery auto": functools.partial(_rookery, backend="auto"),
    "rookery WorkerCollector": functools.partial(_rookery_workers_act, mode="sync"),
    "rookery WorkerCollector, async": functools.partial(_rookery_workers_act, mode="async"),
    "rookery WorkerCollector, IMPALA": functools.partial(
        _rookery_workers_act, mode="sync", learns=True
    ),
    "rookery WorkerCollector, async, IMPALA": functools.partial(
        _rookery_workers_act, mode="async", learns=True
    ),
    "SB3 PPO, Dummy": functools.partial(_sb3, kind="DummyVecEnv"),
    "SB3 PPO, Subproc": functools.partial(_sb3, kind="SubprocVecEnv", start_method="fork"),
    "TorchRL MultiSync": _torchrl,
}

_CARTPOLE = ("limit", *(name for name in COLLECTORS if not name.endswith("IMPALA")))

CASES = (
    Case(
        "rollouts-16",
        "rollouts with a 2x64 policy, CartPole-v1, 16 envs",
        "cartpole",
        16,
        _CARTPOLE,
        num_workers=2,
    ),
    Case(
        "rollouts-64",
        "rollouts with a 2x64 policy, CartPole-v1, 64 envs",
        "cartpole",
        64,
        _CARTPOLE,
        num_workers=2,
    ),
    Case(
        "rollouts-uneven-32",
        "rollouts of 5 steps while learning, env that sleeps for exp(2 ms), 32 envs on 32 workers",
        "uneven sleep",
        32,
        (
            "rookery workers",
            "rookery WorkerCollector, IMPALA",
            "rookery WorkerCollector, async, IMPALA",
        ),
        num_workers=32,
        num_steps=5,
    ),
)


def measure(case: Case, contender: str, effort: Effort, repetition: int) -> dict[str, Any]:
    """Collect rollouts for a while and count env steps."""
    import torch

    if contender == "limit":
        return measure_limit(case, effort)
    torch.set_num_threads(1)
    with COLLECTORS[contender](case) as collect:
        steps_per_second(collect, effort.warmup_s)
        return {"steps_per_second": steps_per_second(collect, effort.measure_s)}
