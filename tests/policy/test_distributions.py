"""Distributions against torch.distributions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import distributions as reference

from rookery.errors import SpaceValueError
from rookery.policy.actions import action_layout
from rookery.policy.torch.distributions import (
    Bernoulli,
    Categorical,
    Gaussian,
    MultiCategorical,
    SquashedGaussian,
    distribution,
    soft_bound,
)

N = 40
SPACES = {
    "discrete": spaces.Discrete(3, start=4),
    "multi_discrete": spaces.MultiDiscrete([2, 4, 3]),
    "multi_discrete_even": spaces.MultiDiscrete([[3, 3], [3, 3]]),
    "multi_binary": spaces.MultiBinary((2, 2)),
    "box": spaces.Box(-1, 1, (2, 1)),
}
JOINT = spaces.Dict(
    a=spaces.Discrete(3),
    b=spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.MultiBinary(2)]),
    c=spaces.MultiDiscrete([2, 3]),
)


def _numbers(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _references(space, outputs, log_std):
    """Independent distributions of torch's, with the columns of actions each one reads."""
    match space:
        case spaces.Box():
            return [(reference.Normal(outputs, log_std.exp().expand_as(outputs)), slice(None))]
        case spaces.MultiBinary():
            return [(reference.Bernoulli(logits=outputs), slice(None))]
    sizes = np.ravel(space.nvec if isinstance(space, spaces.MultiDiscrete) else space.n).tolist()
    parts = outputs.split(sizes, dim=1)
    return [(reference.Categorical(logits=part), k) for k, part in enumerate(parts)]


def _summed(x):
    return x if x.dim() == 1 else x.sum(1)


@pytest.fixture(params=SPACES)
def case(request):
    space = SPACES[request.param]
    layout = action_layout(space)
    outputs = _numbers(N, layout.num_outputs).requires_grad_()
    log_std = _numbers(layout.num_deviations, seed=2).requires_grad_()
    return space, layout, outputs, log_std


def test_log_probability_entropy_and_gradients_equal_torchs(case):
    space, layout, outputs, log_std = case
    ours = distribution(layout, outputs, log_std)
    action = ours.sample(torch.Generator().manual_seed(0))
    assert action.shape == (N, layout.num_columns) and not action.requires_grad
    parts = _references(space, outputs, log_std)
    log_prob = sum(_summed(part.log_prob(action[:, k])) for part, k in parts)
    entropy = sum(_summed(part.entropy()) for part, _ in parts)
    torch.testing.assert_close(ours.log_prob(action), log_prob, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.entropy(), entropy, atol=1e-5, rtol=1e-5)
    by = _numbers(2, N, seed=3)
    leaves = [outputs, log_std] if layout.num_deviations else [outputs]
    found = torch.autograd.grad(
        (by[0] * ours.log_prob(action) + by[1] * ours.entropy()).sum(), leaves
    )
    expected = torch.autograd.grad((by[0] * log_prob + by[1] * entropy).sum(), leaves)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_the_mode_is_at_least_as_probable_as_a_draw(case):
    _, layout, outputs, log_std = case
    ours = distribution(layout, outputs, log_std)
    drawn = ours.log_prob(ours.sample(torch.Generator().manual_seed(0)))
    assert (ours.log_prob(ours.mode()) >= drawn - 1e-6).all()


def test_generators_decide_the_draws(case):
    _, layout, outputs, log_std = case
    ours = distribution(layout, outputs, log_std)
    before = torch.random.get_rng_state()
    one, same, other = (ours.sample(torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert (one == same).all() and (one != other).any()
    assert (torch.random.get_rng_state() == before).all()


def test_choices_are_drawn_as_often_as_is_probable():
    probs = torch.tensor([0.2, 0.3, 0.5])
    draws = Categorical(probs.log().expand(20_000, 3)).sample(torch.Generator().manual_seed(0))
    np.testing.assert_allclose(np.bincount(draws[:, 0]) / 20_000, probs, atol=0.02)
    logits = torch.tensor([0.4, 0.6, 0.1, 0.2, 0.7]).log().expand(20_000, 5)
    draws = MultiCategorical(logits, (2, 3)).sample(torch.Generator().manual_seed(0))
    np.testing.assert_allclose(np.bincount(draws[:, 0]) / 20_000, [0.4, 0.6], atol=0.02)
    np.testing.assert_allclose(np.bincount(draws[:, 1]) / 20_000, [0.1, 0.2, 0.7], atol=0.02)
    coins = Bernoulli(torch.logit(torch.tensor([0.1, 0.8])).expand(20_000, 2))
    draws = coins.sample(torch.Generator().manual_seed(0))
    np.testing.assert_allclose(draws.mean(0), [0.1, 0.8], atol=0.02)


def test_normals_are_drawn_with_their_deviation():
    mean, log_std = torch.tensor([1.0, -2.0]), torch.tensor([-1.0, 0.5])
    normal = Gaussian(mean.expand(20_000, 2), log_std)
    draws = normal.sample(torch.Generator().manual_seed(0))
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.05)
    np.testing.assert_allclose(draws.std(0), log_std.exp(), atol=0.05)


# -- masks ----------------------------------------------------------------------------------------


def _legal_choices():
    mask = torch.rand(N, 9, generator=torch.Generator().manual_seed(5)) < 0.5
    mask[:, [0, 3, 7]] = True
    return mask


def test_masked_choices_have_no_probability_and_what_is_left_is_torchs():
    mask, sizes = _legal_choices(), (2, 4, 3)
    logits = _numbers(N, 9).requires_grad_()
    ours = MultiCategorical(logits, sizes, mask)
    left = logits.masked_fill(~mask, -1e30)  # of which torch makes a probability of zero
    parts = [reference.Categorical(logits=part) for part in left.split(sizes, dim=1)]
    for seed in range(20):
        action = ours.sample(torch.Generator().manual_seed(seed))
        starts = torch.tensor([0, 2, 6])
        assert mask.gather(1, action + starts).all()
        log_prob = sum(part.log_prob(action[:, k]) for k, part in enumerate(parts))
        torch.testing.assert_close(ours.log_prob(action), log_prob, atol=1e-5, rtol=1e-5)
    entropy = sum(part.entropy() for part in parts)
    torch.testing.assert_close(ours.entropy(), entropy, atol=1e-5, rtol=1e-5)
    assert mask.gather(1, ours.mode() + starts).all()
    (gradient,) = torch.autograd.grad((ours.entropy() + ours.log_prob(action)).sum(), logits)
    assert gradient.isfinite().all() and (gradient[~mask] == 0).all()


def test_an_illegal_choice_has_probability_zero():
    mask = torch.tensor([[True, False, True]]).expand(2000, 3)
    ours = Categorical(torch.tensor([[0.0, 50.0, 0.0]]).expand(2000, 3), mask)
    draws = ours.sample(torch.Generator().manual_seed(0))
    assert set(draws.ravel().tolist()) == {0, 2}
    assert ours.log_prob(torch.ones(2000, 1, dtype=torch.int64)).exp().eq(0).all()
    torch.testing.assert_close(ours.entropy(), torch.full((2000,), float(np.log(2))))


def test_a_mask_can_force_zero_or_one():
    logits = _numbers(2000, 3).requires_grad_()
    mask = torch.tensor([True, True, True, False, False, True]).expand(2000, 6)
    ours = Bernoulli(logits, mask)
    draws = ours.sample(torch.Generator().manual_seed(0))
    assert (draws[:, 1] == 0).all() and (draws[:, 2] == 1).all()
    assert 0 < draws[:, 0].mean() < 1
    assert (ours.mode()[:, 1:] == torch.tensor([0.0, 1.0])).all()
    free = Bernoulli(logits[:, :1])
    torch.testing.assert_close(ours.log_prob(draws), free.log_prob(draws[:, :1]))
    torch.testing.assert_close(ours.entropy(), free.entropy())
    (gradient,) = torch.autograd.grad((ours.log_prob(draws) + ours.entropy()).sum(), logits)
    assert gradient.isfinite().all() and (gradient[:, 1:] == 0).all()
    illegal = torch.tensor([[0.0, 1.0, 1.0]]).expand(2000, 3)
    assert (ours.log_prob(illegal) == -torch.inf).all()


@pytest.mark.parametrize("name", ["discrete", "multi_discrete", "multi_binary"])
def test_a_mask_that_allows_nothing_is_refused_with_its_row(name):
    layout = action_layout(SPACES[name])
    mask = torch.ones(5, layout.num_choices, dtype=torch.bool)
    outputs = _numbers(5, layout.num_outputs)
    distribution(layout, outputs, mask=mask)
    mask[3, -3:] = False
    with pytest.raises(SpaceValueError, match="row 3 of the action mask has no legal action"):
        distribution(layout, outputs, mask=mask)
    with pytest.raises(SpaceValueError, match=rf"must be \[5, {layout.num_choices}\]"):
        distribution(layout, outputs, mask=mask[:, 1:])


def test_masks_may_be_numbers_as_in_infos():
    ours = Categorical(torch.zeros(1, 3), torch.tensor([[1, 0, 1]], dtype=torch.int8))
    torch.testing.assert_close(ours.entropy(), torch.tensor([float(np.log(2))]))


@pytest.mark.parametrize("name", ["discrete", "multi_discrete", "multi_binary"])
def test_extreme_logits_stay_finite(name):
    layout = action_layout(SPACES[name])
    outputs = torch.full((1, layout.num_outputs), -200.0)
    outputs[0, 0] = 200.0
    outputs.requires_grad_()
    ours = distribution(layout, outputs)
    action = ours.sample(torch.Generator().manual_seed(0))
    (gradient,) = torch.autograd.grad(ours.entropy().sum() + ours.log_prob(action).sum(), outputs)
    assert ours.entropy().isfinite().all() and gradient.isfinite().all()


# -- squashed -------------------------------------------------------------------------------------


def _squashed(outputs):
    """Torch's form of it, in float64; its log deviations are those given."""
    ours = SquashedGaussian(outputs)
    normal = reference.Normal(ours.mean.double(), ours.log_std.double().exp())
    theirs = reference.TransformedDistribution(normal, reference.TanhTransform(cache_size=1))
    return ours, theirs


def test_a_squashed_normal_has_torchs_density():
    outputs = _numbers(N, 6) * 0.5
    ours, theirs = _squashed(outputs)
    action, log_prob = ours.rsample(torch.Generator().manual_seed(0))
    expected = theirs.log_prob(action.double()).sum(1).float()
    torch.testing.assert_close(log_prob, expected, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(ours.log_prob(action), expected, atol=1e-3, rtol=1e-3)
    assert (action.abs() < 1).all()
    torch.testing.assert_close(ours.mode(), torch.tanh(outputs[:, :3]))


def test_squashed_draws_carry_gradients_and_plain_ones_none():
    outputs = _numbers(N, 4).requires_grad_()
    ours = SquashedGaussian(outputs)
    action, log_prob = ours.rsample(torch.Generator().manual_seed(0))
    (gradient,) = torch.autograd.grad(action.sum() + log_prob.sum(), outputs)
    assert gradient.isfinite().all() and (gradient != 0).all()
    plain = ours.sample(torch.Generator().manual_seed(0))
    assert not plain.requires_grad
    torch.testing.assert_close(plain, action.detach())


def test_the_gradient_of_a_squashed_draw_is_that_of_torch():
    outputs = (_numbers(N, 4) * 0.3).requires_grad_()
    ours, theirs = _squashed(outputs)
    action, log_prob = ours.rsample(torch.Generator().manual_seed(0))
    noise = torch.randn(N, 2, generator=torch.Generator().manual_seed(0)).double()
    same = torch.tanh(theirs.base_dist.loc + noise * theirs.base_dist.scale)
    expected = theirs.log_prob(same).sum()
    found = torch.autograd.grad(log_prob.sum() + action.sum(), outputs, retain_graph=True)[0]
    wanted = torch.autograd.grad(expected + same.sum(), outputs)[0]
    torch.testing.assert_close(found, wanted, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("log_std", [-3.0, -0.5, 0.5])
def test_the_entropy_of_a_squashed_normal_matches_draws(log_std):
    outputs = torch.tensor([[0.7, log_std]]).expand(200_000, 2)
    ours = SquashedGaussian(outputs)
    _, log_prob = ours.rsample(torch.Generator().manual_seed(0))
    assert ours.entropy()[0] == pytest.approx(-float(log_prob.mean()), abs=0.02)


def test_every_deviation_has_a_gradient():
    raw = torch.tensor([-60.0, -21.0, -5.0, 0.0, 2.0, 30.0], requires_grad=True)
    bounded = soft_bound(raw, -20.0, 2.0)
    assert ((bounded >= -20.0) & (bounded <= 2.0)).all()
    assert (bounded[1:] > bounded[:-1]).all()
    assert bounded[2].item() == pytest.approx(-5.0, abs=0.01)
    (gradient,) = torch.autograd.grad(bounded.sum(), raw)
    assert (gradient > 0).all()


def test_actions_at_the_bounds_have_a_finite_density():
    ours = SquashedGaussian(torch.zeros(1, 2))
    assert ours.log_prob(torch.ones(1, 1)).isfinite().all()
    action, log_prob = SquashedGaussian(torch.tensor([[40.0, 0.0]])).rsample()
    assert action == 1.0 and log_prob.isfinite().all()


# -- joint ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("squashed", [False, True])
def test_a_joint_distribution_is_the_product_of_its_parts(squashed):
    layout = action_layout(JOINT, squashed=squashed)
    outputs = _numbers(N, layout.num_outputs)
    log_std = None if squashed else _numbers(2, seed=2)
    mask = _legal_choices()[:, [0, 1, 2, 3, 3, 3, 3, 0, 1, 7, 2, 8]]
    joint = distribution(layout, outputs, log_std, mask)
    rows = joint.sample(torch.Generator().manual_seed(0))
    assert rows.shape == (N, 7) and rows.dtype == torch.float32
    box, end = (outputs[:, 3:7], 7) if squashed else (outputs[:, 3:5], 5)
    number = SquashedGaussian(box) if squashed else Gaussian(box, log_std)
    parts = [
        (Categorical(outputs[:, :3], mask[:, :3]), rows[:, :1]),
        (number, rows[:, 1:3]),
        (Bernoulli(outputs[:, end : end + 2], mask[:, 3:7]), rows[:, 3:5]),
        (MultiCategorical(outputs[:, end + 2 :], (2, 3), mask[:, 7:]), rows[:, 5:]),
    ]
    log_prob = sum(part.log_prob(columns) for part, columns in parts)
    torch.testing.assert_close(joint.log_prob(rows), log_prob)
    torch.testing.assert_close(joint.entropy(), sum(part.entropy() for part, _ in parts))
    mode = torch.cat([part.mode().float() for part, _ in parts], dim=1)
    torch.testing.assert_close(joint.mode(), mode)
    action = layout.to_env(layout.decode(rows.numpy()))
    one = {"a": action["a"][0], "b": tuple(b[0] for b in action["b"]), "c": action["c"][0]}
    assert JOINT.contains(one)
