"""Adam against torch's."""

from __future__ import annotations

import numpy as np
import torch

from rookery.learn.adam import Adam


def _gradients(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    scales = 10.0 ** rng.integers(-4, 3, size=count)
    return [(rng.normal(size=50) * scale).astype(np.float32) for scale in scales]


def test_steps_equal_torch():
    ours = np.linspace(-1, 1, 50, dtype=np.float32)
    theirs = torch.from_numpy(ours.copy()).requires_grad_()
    adam, reference = Adam(ours), torch.optim.Adam([theirs], eps=1e-5)
    for k, gradient in enumerate(_gradients(30)):
        rate = 1e-2 / (k + 1)
        reference.param_groups[0]["lr"] = rate
        theirs.grad = torch.from_numpy(gradient)
        reference.step()
        adam.step(gradient, rate)
    np.testing.assert_allclose(ours, theirs.detach(), rtol=1e-5, atol=1e-6)


def test_adam_goes_on_from_its_state():
    gradients = _gradients(6)
    straight, halfway = np.zeros(50, np.float32), np.zeros(50, np.float32)
    first = Adam(straight)
    second = Adam(halfway)
    for gradient in gradients[:3]:
        first.step(gradient, 1e-2)
        second.step(gradient, 1e-2)
    third = Adam(halfway)
    third.load_state_dict(second.state_dict())
    for gradient in gradients[3:]:
        first.step(gradient, 1e-2)
        third.step(gradient, 1e-2)
    np.testing.assert_array_equal(straight, halfway)
