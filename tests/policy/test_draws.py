"""Acting in numpy against the distributions in torch."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rookery.errors import SpaceValueError
from rookery.policy.actions import action_layout
from rookery.policy.numpy.draws import Draws
from rookery.policy.torch.distributions import distribution

FLAT = {
    "discrete": spaces.Discrete(3, start=4),
    "multi_discrete": spaces.MultiDiscrete([2, 4, 3]),
    "multi_binary": spaces.MultiBinary((2, 2)),
    "box": spaces.Box(-1, 1, (2, 1)),
}
JOINT = spaces.Dict(
    a=spaces.Discrete(3),
    b=spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.MultiBinary(2)]),
    c=spaces.MultiDiscrete([2, 3]),
)
N = 50


def _outputs(layout, seed=0):
    rng = np.random.default_rng(seed)
    outputs = rng.normal(size=(N, layout.num_outputs)).astype(np.float32)
    return outputs, rng.normal(size=layout.num_deviations).astype(np.float32)


def _mask(layout):
    """A random mask with a legal choice in every component."""
    mask = np.random.default_rng(3).random((N, layout.num_choices)) < 0.5
    for part in layout.parts:
        starts = np.cumsum((part.choices.start, *part.sizes))[:-1]
        mask[:, starts] = True
    return mask


def _both(layout, outputs, log_std, mask):
    tensors = [None if a is None else torch.from_numpy(a) for a in (outputs, log_std, mask)]
    return _Bound(layout, outputs, log_std, mask), distribution(layout, *tensors)


class _Bound:
    """Draws of the same outputs, under the same mask."""

    def __init__(self, layout, outputs, log_std, mask):
        self.draws = Draws(layout)
        outputs = outputs if mask is None else self.draws.masked(outputs, mask)
        self.given = (outputs, log_std)

    def sample(self, rng):
        return self.draws.sample(*self.given, rng)

    def mode(self):
        return self.draws.mode(*self.given)

    def log_prob(self, rows):
        return self.draws.log_prob(*self.given, rows)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("squashed", [False, True])
@pytest.mark.parametrize("space", [*FLAT.values(), JOINT], ids=[*FLAT, "joint"])
def test_modes_and_log_probabilities_are_torchs(space, squashed, masked):
    layout = action_layout(space, squashed=squashed)
    mask = _mask(layout) if masked and layout.num_choices else None
    ours, theirs = _both(layout, *_outputs(layout), mask)  # type: ignore[call-arg]
    np.testing.assert_allclose(ours.mode(), theirs.mode(), atol=1e-6)
    rows = ours.sample(np.random.default_rng(0))
    assert rows.dtype == layout.dtype and rows.shape == (N, layout.num_columns)
    for drawn in (rows, theirs.sample(torch.Generator().manual_seed(0)).numpy()):
        log_prob = theirs.log_prob(torch.from_numpy(drawn))
        assert log_prob.isfinite().all()  # nothing illegal was drawn
        np.testing.assert_allclose(ours.log_prob(drawn), log_prob, atol=1e-4, rtol=1e-4)
        assert ours.log_prob(drawn).dtype == np.float32


def test_illegal_choices_are_never_drawn():
    layout = action_layout(FLAT["discrete"])
    outputs = np.tile(np.array([0, 60, 0], np.float32), (5000, 1))
    mask = np.tile([True, False, True], (5000, 1))
    draws = _Bound(layout, outputs, np.empty(0, np.float32), mask)
    rows = draws.sample(np.random.default_rng(0))
    np.testing.assert_allclose(
        np.bincount(rows[:, 0], minlength=3) / 5000, [0.5, 0, 0.5], atol=0.05
    )


@pytest.mark.parametrize("name", ["discrete", "multi_discrete", "multi_binary"])
def test_a_mask_that_allows_nothing_is_refused_with_its_row(name):
    layout = action_layout(FLAT[name])
    mask = _mask(layout)
    mask[7, -3:] = False
    with pytest.raises(SpaceValueError, match="row 7 of the action mask has no legal action"):
        Draws(layout).masked(_outputs(layout)[0], mask)
    with pytest.raises(SpaceValueError, match=rf"must be \[50, {layout.num_choices}\]"):
        Draws(layout).masked(_outputs(layout)[0], mask[:, 1:])


def test_drawing_needs_no_torch():
    code = "import sys, rookery.policy.numpy.draws; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "False", result.stderr
