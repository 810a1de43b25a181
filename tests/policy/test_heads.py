"""Action distributions against torch.distributions and torch's gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import distributions

from rookery import SpaceError
from rookery.policy.heads import action_head

SPACES = {
    "discrete": spaces.Discrete(3, start=4),
    "multi_discrete": spaces.MultiDiscrete([2, 3], start=[1, 0]),
    "multi_discrete_2d": spaces.MultiDiscrete([[2, 3], [2, 2]]),
    "multi_binary": spaces.MultiBinary((2, 2)),
    "box": spaces.Box(-1, 1, (2, 1)),
    "box_float64": spaces.Box(-1, 1, (3,), np.float64),
}


def _reference(space, outputs, log_std, action):
    """Log probability and entropy by torch.distributions, for actions in the space's own terms."""
    flat = torch.from_numpy(np.asarray(action).reshape(len(action), -1))
    if isinstance(space, spaces.Box):
        normal = distributions.Normal(outputs, log_std.exp().expand_as(outputs))
        return normal.log_prob(flat).sum(1), normal.entropy().sum(1)
    if isinstance(space, spaces.MultiBinary):
        coin = distributions.Bernoulli(logits=outputs)
        return coin.log_prob(flat.float()).sum(1), coin.entropy().sum(1)
    sizes = np.ravel(space.nvec if isinstance(space, spaces.MultiDiscrete) else space.n)
    parts = [distributions.Categorical(logits=p) for p in outputs.split(sizes.tolist(), dim=1)]
    choice = flat - torch.from_numpy(np.ravel(space.start))
    log_probs = [part.log_prob(choice[:, k]) for k, part in enumerate(parts)]
    return sum(log_probs), sum(part.entropy() for part in parts)


@pytest.fixture(params=SPACES)
def case(request):
    space = SPACES[request.param]
    head = action_head(space)
    rng = np.random.default_rng(1)
    outputs = rng.normal(size=(40, head.num_outputs)).astype(np.float32)
    log_std = rng.normal(size=head.num_outputs if head.has_log_std else 0).astype(np.float32)
    return space, head, outputs, log_std, head.sample(outputs, log_std, rng)


def test_actions_are_in_the_space_once_they_are_made_to_fit(case):
    space, head, outputs, _, action = case
    for drawn in (action, head.mode(outputs)):
        for one in head.to_env(drawn):
            value = int(one) if isinstance(space, spaces.Discrete) else one
            assert space.contains(value)


def test_log_probability_and_entropy_equal_torch(case):
    space, head, outputs, log_std, action = case
    evaluation = head.evaluate(outputs, log_std, head.encode(action))
    expected = _reference(space, torch.from_numpy(outputs), torch.from_numpy(log_std), action)
    np.testing.assert_allclose(evaluation.log_prob, expected[0], atol=1e-5)
    np.testing.assert_allclose(evaluation.entropy, expected[1], atol=1e-5)
    assert evaluation.log_prob.dtype == evaluation.entropy.dtype == np.float32


def test_gradients_equal_torch(case):
    space, head, outputs, log_std, action = case
    weights = np.random.default_rng(2).normal(size=(2, len(outputs))).astype(np.float32)
    tensors = [torch.from_numpy(array).requires_grad_() for array in (outputs, log_std)]
    log_prob, entropy = _reference(space, *tensors, action)
    by = torch.from_numpy(weights)
    (by[0] * log_prob + by[1] * entropy).sum().backward()
    evaluation = head.evaluate(outputs, log_std, head.encode(action))
    d_outputs, d_log_std = evaluation.backward(*weights)
    np.testing.assert_allclose(d_outputs, tensors[0].grad, atol=1e-4, rtol=1e-4)
    if head.has_log_std:
        np.testing.assert_allclose(d_log_std, tensors[1].grad, atol=1e-4, rtol=1e-4)


def test_the_mode_is_the_most_probable_draw(case):
    _, head, outputs, log_std, action = case
    mode = head.evaluate(outputs, log_std, head.encode(head.mode(outputs)))
    drawn = head.evaluate(outputs, log_std, head.encode(action))
    assert (mode.log_prob >= drawn.log_prob - 1e-6).all()


def test_draws_follow_the_probabilities():
    head = action_head(spaces.Discrete(3))
    logits = np.log(np.tile([0.2, 0.3, 0.5], (20_000, 1))).astype(np.float32)
    draws = head.sample(logits, np.empty(0, np.float32), np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(draws) / len(draws), [0.2, 0.3, 0.5], atol=0.02)


def test_a_box_action_is_clipped_only_on_its_way_to_the_env():
    head = action_head(spaces.Box(-1, 1, (1,)))
    far = np.full((5, 1), 7.0, np.float32)
    assert (head.mode(far) == 7.0).all()
    assert (head.to_env(head.mode(far)) == 1.0).all()


def test_extreme_logits_stay_finite():
    for name in ("discrete", "multi_binary"):
        head = action_head(SPACES[name])
        outputs = np.full((1, head.num_outputs), -200.0, np.float32)
        outputs[0, 0] = 200.0
        action = head.sample(outputs, np.empty(0, np.float32), np.random.default_rng(0))
        evaluation = head.evaluate(outputs, np.empty(0, np.float32), head.encode(action))
        one = np.ones(1, np.float32)
        assert np.isfinite([evaluation.log_prob, evaluation.entropy]).all()
        assert np.isfinite(evaluation.backward(one, one)[0]).all()


@pytest.mark.parametrize(
    "space", [spaces.Text(3), spaces.Dict(a=spaces.Discrete(2)), spaces.Box(0, 9, (2,), np.int64)]
)
def test_an_unsupported_action_space_is_named(space):
    with pytest.raises(SpaceError, match="no built-in policy acts in action_space"):
        action_head(space)
