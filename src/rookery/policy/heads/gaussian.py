"""Box: independent normals around the network's output."""

from __future__ import annotations

import gymnasium.spaces as spaces
import numpy as np

from rookery.policy.heads.base import ActionHead, Actions, Floats, HeadEvaluation

LOG_SQRT_2_PI = 0.5 * float(np.log(2.0 * np.pi))


class GaussianHead(ActionHead):
    """Normals whose deviation does not depend on the observation.

    Actions are clipped to the bounds only on their way to the env: rollouts and log
    probabilities keep the unclipped draw.
    """

    has_log_std = True

    def __init__(self, space: spaces.Box) -> None:
        self.shape = space.shape
        self.dtype = space.dtype
        self.low, self.high = space.low, space.high
        self.num_outputs = int(np.prod(space.shape))

    def sample(self, outputs: Floats, log_std: Floats, rng: np.random.Generator) -> Actions:
        action = rng.standard_normal(outputs.shape, np.float32)
        action *= np.exp(log_std)
        action += outputs
        return action.reshape(-1, *self.shape)

    def mode(self, outputs: Floats) -> Actions:
        return outputs.reshape(-1, *self.shape)

    def encode(self, action: Actions) -> Floats:
        return action.reshape(len(action), -1).astype(np.float32, copy=False)

    def evaluate(self, outputs: Floats, log_std: Floats, action: Actions) -> HeadEvaluation:
        inverse_std = np.exp(-log_std)
        distance = (action - outputs) * inverse_std
        squares = np.square(distance)
        total = log_std.sum() + np.float32(self.num_outputs * LOG_SQRT_2_PI)

        def backward(d_log_prob: Floats, d_entropy: Floats) -> tuple[Floats, Floats]:
            # d log p / d mu = (a - mu) / sigma^2;  d log p / d log sigma = ((a - mu) / sigma)^2 - 1
            d_outputs = distance * inverse_std * d_log_prob[:, None]
            return d_outputs, d_log_prob @ (squares - 1.0) + d_entropy.sum()

        entropy = np.full(len(outputs), total + 0.5 * self.num_outputs, np.float32)
        return HeadEvaluation(-0.5 * squares.sum(axis=1) - total, entropy, backward)

    def to_env(self, action: Actions) -> Actions:
        return np.clip(action, self.low, self.high).astype(self.dtype, copy=False)
