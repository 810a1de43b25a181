"""Losses against numbers worked out by hand, and their gradients against torch's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from rookery.learn import losses


def _array(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_the_clipped_surrogate_gives_the_numbers_worked_out_by_hand():
    # Rows: free; clipped above with a gain; above with a loss, which counts in full; clipped below.
    ratio, advantage = _array(1.1, 1.5, 1.5, 0.5), _array(2, 1, -1, -3)
    loss = losses.clipped_surrogate_loss(ratio, advantage, 0.2)
    assert loss.mean == pytest.approx(-(2.2 + 1.2 - 1.5 - 2.4) / 4)
    np.testing.assert_allclose(loss.gradient, np.array([-2.2, 0, 1.5, 0]) / 4, atol=1e-6)


def test_the_value_loss_gives_the_numbers_worked_out_by_hand():
    loss = losses.value_loss(_array(1, 3), _array(2, 1))
    assert loss.mean == pytest.approx(2.5)
    np.testing.assert_allclose(loss.gradient, [-1.0, 2.0])


def test_the_clipped_value_loss_gives_the_numbers_worked_out_by_hand():
    # Near the old value; moved towards the return past the clip; moved away from it.
    value, old, returns = _array(1.1, 3, -2), _array(1, 1, 0), _array(2, 3, 2)
    loss = losses.clipped_value_loss(value, old, returns, 0.5)
    assert loss.mean == pytest.approx((0.81 + 2.25 + 16) / 3)
    np.testing.assert_allclose(loss.gradient, np.array([-1.8, 0, -8]) / 3, atol=1e-6)


def test_the_gradients_equal_torch():
    rng = np.random.default_rng(0)
    log_ratio, advantage, value, old, returns = (
        rng.normal(size=200).astype(np.float32) for _ in range(5)
    )
    tensors = [torch.from_numpy(array) for array in (advantage, old, returns)]
    by = torch.from_numpy(log_ratio.copy()).requires_grad_()
    ratio = by.exp()
    torch.minimum(tensors[0] * ratio, tensors[0] * ratio.clamp(0.8, 1.2)).mean().neg().backward()
    loss = losses.clipped_surrogate_loss(np.exp(log_ratio), advantage, 0.2)
    np.testing.assert_allclose(loss.gradient, by.grad, atol=1e-6)

    by = torch.from_numpy(value.copy()).requires_grad_()
    near = tensors[1] + (by - tensors[1]).clamp(-0.3, 0.3)
    errors = [(x - tensors[2]).square() for x in (by, near)]
    torch.maximum(*errors).mean().backward()
    loss = losses.clipped_value_loss(value, old, returns, 0.3)
    np.testing.assert_allclose(loss.gradient, by.grad, atol=1e-6)


def test_the_kl_estimate_is_zero_at_home_and_right_elsewhere():
    zeros = _array(0, 0)
    assert losses.approximate_kl(zeros, np.exp(zeros)) == 0.0
    log_ratio = _array(math.log(2), 0)
    expected = (2 - 1 - math.log(2)) / 2
    assert losses.approximate_kl(log_ratio, np.exp(log_ratio)) == pytest.approx(expected, rel=1e-5)


def test_explained_variance():
    returns = _array(1, 2, 3)
    assert losses.explained_variance(returns, returns) == pytest.approx(1.0)
    assert losses.explained_variance(_array(2, 2, 2), returns) == pytest.approx(0.0)
    assert losses.explained_variance(_array(3, 2, 1), returns) == pytest.approx(-3.0)
    assert losses.explained_variance(returns, _array(2, 2, 2)) < 0.0


def test_standardised_values_have_mean_zero_and_deviation_one():
    np.testing.assert_allclose(losses.standardize(_array(1, 3)), [-1, 1], rtol=1e-6)
    assert losses.standardize(_array(5)) == 0.0
