"""Several learners learn the same as one learner with the envs of all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rookery import A2CConfig, DQNConfig, ImpalaConfig, PPOConfig, Rollout, SACConfig, TD3Config
from rookery.learn.off_policy.dqn import DQN
from rookery.learn.off_policy.sac import SAC
from rookery.learn.off_policy.td3 import TD3
from rookery.learn.on_policy.a2c import A2C
from rookery.learn.on_policy.impala import Impala
from rookery.learn.on_policy.ppo import PPO
from rookery.learn.parallel.peers import Alone, Moments, Peers, SharedPieces, average, together

T, B = 8, 6
SPACE = spaces.Box(-3, 3, (3,))
DISCRETE, BOX = spaces.Discrete(3), spaces.Box(-1, 1, (2,))


class Threads(Peers):
    """Learners in threads of this process."""

    def __init__(self, rank: int, size: int, shared: dict[str, Any]) -> None:
        self.rank, self.size, self._shared = rank, size, shared

    def gather(self, value: Any) -> list[Any]:
        self._shared["values"][self.rank] = value
        self._shared["barrier"].wait(60)
        found = list(self._shared["values"])
        self._shared["barrier"].wait(60)
        return found

    def add(self, tensor: torch.Tensor) -> None:
        tensor.copy_(torch.stack(self.gather(tensor.clone())).sum(0))


def together_in_threads(size: int, work: Callable[[Peers], Any]) -> list[Any]:
    """Call ``work`` in as many threads, each with its peers; what it returned, by rank."""
    shared = {"values": [None] * size, "barrier": threading.Barrier(size)}
    found: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            found[rank] = work(Threads(rank, size, shared))
        except BaseException:
            shared["barrier"].abort()
            raise

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _rollout(policy: Any, seed: int, num_invalid: int = 0) -> Rollout:
    rng = np.random.default_rng(seed)
    rows = [rng.normal(size=(B, 3)).astype(np.float32) for _ in range(T + 1)]
    steps = [policy.act(obs) for obs in rows[:T]]
    rollout = Rollout.allocate(T, rows[0], steps[0].action)
    rollout.obs[:] = np.stack(rows[:T])
    rollout.last_obs[:] = rows[T]
    for t, step in enumerate(steps):
        rollout.action[t] = step.action
        rollout.log_prob[t], rollout.value[t] = step.log_prob, step.value
    rollout.reward[:] = rng.normal(size=(T, B))
    rollout.terminated[:] = rng.random((T, B)) < 0.1
    rollout.valid[:] = True
    rollout.valid.reshape(-1)[:num_invalid] = False
    return rollout


def _columns(rollout: Rollout, envs: slice) -> Rollout:
    """Return the rollout of some of the envs."""
    part = Rollout.allocate(T, rollout.obs[0, envs], rollout.action[0, envs])
    for name in (
        "obs",
        "action",
        "log_prob",
        "value",
        "reward",
        "terminated",
        "truncated",
        "valid",
    ):
        getattr(part, name)[:] = getattr(rollout, name)[:, envs]
    for name in ("last_obs", "last_value"):
        getattr(part, name)[:] = getattr(rollout, name)[envs]
    return part


ON_POLICY = {
    "ppo": (PPO, PPOConfig(num_steps=T, minibatch_size=10, num_epochs=2)),
    "ppo, normalised": (
        PPO,
        PPOConfig(num_steps=T, minibatch_size=16, normalize_obs=True, normalize_reward=True),
    ),
    "ppo, until it is far": (
        PPO,
        PPOConfig(num_steps=T, minibatch_size=12, num_epochs=9, target_kl=1e-4),
    ),
    "a2c": (A2C, A2CConfig(num_steps=T, normalize_advantage=True)),
    "impala": (Impala, ImpalaConfig(num_steps=T)),
}


def _learned(kind: Any, config: Any, action_space: Any, peers: Peers, envs: slice, invalid: int):
    policy = kind.make_policy(config, SPACE, action_space, 0)
    learner = kind(policy, config, envs.stop - envs.start, 0, peers)
    other = kind.make_policy(config, SPACE, action_space, 0)
    metrics = [
        learner.update(_columns(_rollout(other, seed, invalid), envs), 0.0) for seed in range(3)
    ]
    return policy.model.parameters.copy(), policy.model.extras(), metrics


@pytest.mark.parametrize("invalid", [0, 5])
@pytest.mark.parametrize("action_space", [DISCRETE, BOX], ids=["discrete", "box"])
@pytest.mark.parametrize("name", ON_POLICY)
def test_learners_from_rollouts_learn_what_one_learns(name, action_space, invalid):
    kind, config = ON_POLICY[name]
    shares = [slice(0, 2), slice(2, 6)]  # of different sizes
    alone, extras, told = _learned(kind, config, action_space, Alone(), slice(0, B), invalid)
    found = together_in_threads(
        2, lambda p: _learned(kind, config, action_space, p, shares[p.rank], invalid)
    )
    assert (found[0][0] == found[1][0]).all()  # to the last bit: nobody sends weights
    for parameters, statistics, metrics in found:
        np.testing.assert_allclose(parameters, alone, rtol=2e-4, atol=2e-6)
        np.testing.assert_allclose(statistics, extras, rtol=1e-6)
        for ours, expected in zip(metrics, told, strict=True):
            names = ("loss", "policy_loss", "value_loss", "entropy", "gradient_norm", "epochs")
            for key in set(names) & expected.keys():
                assert ours[key] == pytest.approx(expected[key], rel=1e-3, abs=1e-5), key


OFF_POLICY = {
    "sac": (SAC, SACConfig(warmup_steps=B, batch_size=12, updates_per_step=0.25), BOX),
    "td3": (TD3, TD3Config(warmup_steps=B, batch_size=12, updates_per_step=0.25), BOX),
    "dqn": (DQN, DQNConfig(warmup_steps=B, batch_size=12, updates_per_step=0.25), DISCRETE),
}


@pytest.mark.parametrize("name", OFF_POLICY)
def test_learners_from_replay_learn_what_one_learns_from_the_same_batches(name, monkeypatch):
    """The batch of one is drawn by rows of the others' batches; noise is left out."""
    kind, config, action_space = OFF_POLICY[name]
    if name == "sac":
        monkeypatch.setattr(
            "rookery.policy.torch.distributions.SquashedGaussian.rsample",
            lambda self, generator=None: _most_probable(self),
        )
    config = replace(config, target_noise=0.0) if name == "td3" else config  # type: ignore[call-arg]
    batches: dict[int, list[Any]] = {}

    def learned(peers: Peers, recorded: list[Any] | None) -> Any:
        policy = kind.make_policy(config, SPACE, action_space, 0)
        learner = kind(policy, config, B, 0, peers)
        draw = learner._sample
        if recorded is None:

            def sample(*args):
                batches.setdefault(peers.rank, []).append(draw(*args))
                return batches[peers.rank][-1]
        else:
            left = iter(recorded)

            def sample(*args):
                return next(left)

        learner._sample = sample
        other = kind.make_policy(config, SPACE, action_space, 0)
        for seed in range(3):
            learner.update(_rollout(other, seed + 10 * peers.rank), 0.0)
        return policy.model.parameters.copy(), learner._gradient_steps

    found = together_in_threads(2, lambda peers: learned(peers, None))
    assert (found[0][0] == found[1][0]).all()
    assert len(batches[0][0].reward) == len(batches[1][0].reward) == 6
    whole = [
        type(first)(
            *(None if a is None else _joined(a, b) for a, b in zip(first, second, strict=True))
        )
        for first, second in zip(batches[0], batches[1], strict=True)
    ]
    steps = found[0][1]
    assert steps == len(whole) > 30
    config = replace(config, updates_per_step=2 * config.updates_per_step, warmup_steps=B // 2)
    alone, count = learned(Alone(), whole)
    assert count == steps
    np.testing.assert_allclose(found[0][0], alone, rtol=1e-3, atol=1e-5)


def _joined(a: Any, b: Any) -> Any:
    if isinstance(a, np.ndarray):
        return np.concatenate([a, b])
    return torch.cat([a, b])


def _most_probable(distribution: Any) -> Any:
    action = distribution.mode()
    return action, distribution.log_prob(action.clamp(-0.999, 0.999))


def test_pieces_are_numbered_as_by_one_who_has_all_envs():
    kept = np.ones((2, 5), np.bool_)
    kept[0, 1] = kept[1, 4] = False
    shares = [slice(0, 2), slice(2, 5)]
    found = together_in_threads(2, lambda peers: SharedPieces(peers, kept[:, shares[peers.rank]]))
    assert found[0].count == found[1].count == 8
    # By time: envs 0 2 3 4, then 0 1 2 3.
    chosen = np.array([7, 0, 5, 4])
    assert found[0].own(chosen).tolist() == [0, 2, 1]
    assert found[1].own(chosen).tolist() == [4]


def test_means_count_rows():
    def work(peers: Peers) -> Any:
        gradient, number = torch.full((2,), 1.0 + peers.rank), torch.tensor(5.0 * peers.rank)
        return average(peers, gradient, {"loss": number}, [3, 1][peers.rank])

    for gradient, scalars in together_in_threads(2, work):
        assert gradient.tolist() == [1.25, 1.25] and float(scalars["loss"]) == 1.25


def test_who_has_no_rows_counts_nothing_even_if_its_mean_is_no_number():
    def work(peers: Peers) -> Any:
        bad = float("nan") if peers.rank else 2.0
        return average(peers, torch.full((2,), bad), {"x": torch.tensor(bad)}, 4 * (not peers.rank))

    for gradient, scalars in together_in_threads(2, work):
        assert gradient.tolist() == [2.0, 2.0] and float(scalars["x"]) == 2.0


def test_moments_of_parts_are_those_of_the_whole():
    x = torch.randn(50, generator=torch.Generator().manual_seed(0)) * 3 + 100
    found = together([Moments.of(x[:7]), Moments.of(x[:0]), Moments.of(x[7:])])
    assert found.num_rows == 50
    assert found.mean == pytest.approx(float(x.mean()))
    assert found.squares == pytest.approx(float(x.var(correction=0)) * 50, rel=1e-4)
