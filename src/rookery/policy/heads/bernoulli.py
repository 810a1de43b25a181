"""MultiBinary: independent coins, one logit each."""

from __future__ import annotations

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt

from rookery.policy.heads.base import ActionHead, Actions, Floats, HeadEvaluation


class BernoulliHead(ActionHead):
    """A coin per component; the logit is the log odds of one."""

    def __init__(self, space: spaces.MultiBinary) -> None:
        self.shape = space.shape
        self.num_outputs = int(np.prod(space.shape))

    def sample(self, outputs: Floats, log_std: Floats, rng: np.random.Generator) -> Actions:
        # A logistic draw lies below the logit with probability sigmoid(logit).
        return self._action(rng.logistic(size=outputs.shape) < outputs)

    def mode(self, outputs: Floats) -> Actions:
        return self._action(outputs > 0.0)

    def encode(self, action: Actions) -> Floats:
        return action.reshape(len(action), -1).astype(np.float32)

    def evaluate(self, outputs: Floats, log_std: Floats, action: Actions) -> HeadEvaluation:
        softplus = np.logaddexp(np.float32(0), outputs)
        ones = np.exp(outputs - softplus)

        def backward(d_log_prob: Floats, d_entropy: Floats) -> tuple[Floats, None]:
            # d log p / d z = a - sigmoid(z);  d H / d z = -z * sigmoid(z) * (1 - sigmoid(z))
            d_outputs = (action - ones) * d_log_prob[:, None]
            d_outputs -= outputs * ones * (1.0 - ones) * d_entropy[:, None]
            return d_outputs, None

        log_prob = (action * outputs - softplus).sum(axis=1)
        return HeadEvaluation(log_prob, (softplus - outputs * ones).sum(axis=1), backward)

    def _action(self, ones: npt.NDArray[np.bool_]) -> Actions:
        return ones.astype(np.int8).reshape(-1, *self.shape)
