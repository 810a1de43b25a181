"""Optimisers on one tensor against torch's, and the step that learners take."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rookery.learn.optimizers import Adam, RMSProp, gradient_step


def _gradients(count: int) -> list[torch.Tensor]:
    rng = np.random.default_rng(0)
    scales = 10.0 ** rng.integers(-4, 3, size=count)
    return [torch.from_numpy((rng.normal(size=50) * s).astype(np.float32)) for s in scales]


def test_adams_steps_equal_torch():
    ours = torch.linspace(-1, 1, 50)
    theirs = ours.clone().requires_grad_()
    adam, reference = Adam(ours), torch.optim.Adam([theirs], eps=1e-5)
    for k, gradient in enumerate(_gradients(30)):
        rate = 1e-2 / (k + 1)
        reference.param_groups[0]["lr"] = rate
        theirs.grad = gradient
        reference.step()
        adam.step(gradient, rate)
    np.testing.assert_allclose(ours, theirs.detach(), rtol=1e-5, atol=1e-6)


def test_torchs_form_of_rmsprop_is_that_with_a_mean_that_starts_at_zero():
    ours = torch.linspace(-1, 1, 50)
    theirs = ours.clone().requires_grad_()
    optimizer = RMSProp(ours, epsilon=1e-10, initial=0.0)
    reference = torch.optim.RMSprop([theirs], lr=1e-2, alpha=0.99, eps=1e-5)
    for gradient in _gradients(30):
        theirs.grad = gradient
        reference.step()
        optimizer.step(gradient, 1e-2)
    assert (ours - torch.linspace(-1, 1, 50)).abs().median() > 0.1
    np.testing.assert_allclose(ours, theirs.detach(), atol=5e-3)


@pytest.mark.parametrize("kind", [Adam, RMSProp])
def test_an_optimiser_goes_on_from_its_state(kind):
    gradients = _gradients(6)
    straight, halfway = torch.zeros(50), torch.zeros(50)
    first, second = kind(straight), kind(halfway)
    for gradient in gradients[:3]:
        first.step(gradient, 1e-2)
        second.step(gradient, 1e-2)
    third = kind(halfway)
    third.load_state_dict(second.state_dict())
    for gradient in gradients[3:]:
        first.step(gradient, 1e-2)
        third.step(gradient, 1e-2)
    np.testing.assert_array_equal(straight, halfway)


@pytest.mark.parametrize("loss", [1.0, torch.tensor(1.0)], ids=["number", "tensor"])
def test_a_long_gradient_is_scaled_down_and_its_length_reported_as_it_was(loss):
    parameters = torch.zeros(2)
    seen = []
    optimizer = RMSProp(parameters)
    optimizer.step = lambda gradient, rate: seen.append((gradient.clone(), rate))
    found = gradient_step(optimizer, loss, torch.tensor([3.0, 4.0]), 0.1, 0.5, {"other": 7.0})
    assert found == {"other": 7.0, "loss": 1.0, "gradient_norm": 5.0, "skipped_gradient_steps": 0}
    torch.testing.assert_close(seen[0][0], torch.tensor([0.3, 0.4]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_step_that_is_not_finite_is_left_out(bad, where):
    parameters = torch.ones(2)
    optimizer = Adam(parameters)
    loss = torch.tensor(bad if where == "loss" else 1.0)
    gradient = torch.tensor([1.0, bad if where == "gradient" else 1.0])
    found = gradient_step(optimizer, loss, gradient, 0.1, 0.5)
    assert found["skipped_gradient_steps"] == 1.0
    assert (parameters == 1.0).all() and optimizer.state_dict()["steps"] == 0
