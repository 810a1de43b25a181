"""The allocation of rollouts and their tensors."""

from __future__ import annotations

import numpy as np

from rookery import Rollout
from rookery.common.trees import merge_axes


def test_tensors_share_the_memory_of_the_arrays():
    obs = {"a": np.zeros((2, 3), np.float32), "b": (np.zeros(2, np.uint8),)}
    rollout = Rollout.allocate(4, obs, np.zeros(2, np.int64))
    tensors = rollout.torch()
    rollout.reward[1, 1] = 5.0
    rollout.obs["b"][0][0, 1] = 7
    assert tensors.reward[1, 1] == 5.0
    assert tensors.obs["b"][0][0, 1] == 7
    assert tensors.memory is None and tensors.num_transitions == 8


def test_empty_parts_of_observations_keep_their_rows():
    merged = merge_axes({"none": np.zeros((4, 2, 0)), "x": (np.zeros((4, 2, 3)),)})
    assert merged["none"].shape == (8, 0) and merged["x"][0].shape == (8, 3)
