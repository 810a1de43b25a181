"""Discrete and MultiDiscrete: one logit per choice."""

from __future__ import annotations

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt

from rookery.policy.heads.base import ActionHead, Actions, Floats, HeadEvaluation


class CategoricalHead(ActionHead):
    """Discrete: one categorical distribution."""

    def __init__(self, space: spaces.Discrete) -> None:
        self.num_outputs = int(space.n)
        self.start = int(space.start)

    def sample(self, outputs: Floats, log_std: Floats, rng: np.random.Generator) -> Actions:
        return _draw(outputs, rng) + self.start

    def mode(self, outputs: Floats) -> Actions:
        return np.asarray(outputs.argmax(axis=1) + self.start)

    def encode(self, action: Actions) -> npt.NDArray[np.int64]:
        return (action - self.start).astype(np.int64, copy=False).reshape(-1, 1)

    def evaluate(self, outputs: Floats, log_std: Floats, action: Actions) -> HeadEvaluation:
        return _evaluate(outputs, action[:, 0])


class MultiCategoricalHead(ActionHead):
    """MultiDiscrete: independent categoricals, their logits side by side."""

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        self.shape = space.shape
        self.dtype = space.dtype
        self.start = np.ravel(space.start)
        self.sizes = [int(n) for n in np.ravel(space.nvec)]
        self.num_outputs = sum(self.sizes)

    def sample(self, outputs: Floats, log_std: Floats, rng: np.random.Generator) -> Actions:
        return self._action([_draw(part, rng) for part in self._split(outputs)])

    def mode(self, outputs: Floats) -> Actions:
        return self._action([part.argmax(axis=1) for part in self._split(outputs)])

    def encode(self, action: Actions) -> npt.NDArray[np.int64]:
        return np.asarray(action.reshape(len(action), -1) - self.start, np.int64)

    def evaluate(self, outputs: Floats, log_std: Floats, action: Actions) -> HeadEvaluation:
        parts = [_evaluate(part, action[:, k]) for k, part in enumerate(self._split(outputs))]

        def backward(d_log_prob: Floats, d_entropy: Floats) -> tuple[Floats, None]:
            d_parts = [part.backward(d_log_prob, d_entropy)[0] for part in parts]
            return np.concatenate(d_parts, axis=1), None

        log_prob = np.sum([part.log_prob for part in parts], axis=0)
        return HeadEvaluation(log_prob, np.sum([part.entropy for part in parts], axis=0), backward)

    def _split(self, outputs: Floats) -> list[Floats]:
        return np.split(outputs, np.cumsum(self.sizes)[:-1], axis=1)

    def _action(self, choices: list[npt.NDArray[np.int64]]) -> Actions:
        action = np.stack(choices, axis=1) + self.start
        return action.reshape(-1, *self.shape).astype(self.dtype)


def _draw(logits: Floats, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw by the Gumbel-max trick: ``argmax(logits - log(exponential noise))``."""
    noise = rng.standard_exponential(logits.shape)
    np.log(noise, out=noise)
    return np.asarray(np.subtract(logits, noise, out=noise).argmax(axis=1))


def _evaluate(logits: Floats, choice: npt.NDArray[np.int64]) -> HeadEvaluation:
    """Evaluate ``choice``, int64 ``[N]``, under softmax(``logits``)."""
    log_probs = logits - logits.max(axis=1, keepdims=True)
    probs = np.exp(log_probs)
    total = probs.sum(axis=1, keepdims=True)
    probs /= total
    log_probs -= np.log(total)
    entropy = -np.einsum("na,na->n", probs, log_probs)
    rows = np.arange(len(choice))

    def backward(d_log_prob: Floats, d_entropy: Floats) -> tuple[Floats, None]:
        # d log p_c / d z_j = [j = c] - p_j;  d H / d z_j = -p_j * (log p_j + H)
        weight = (log_probs + entropy[:, None]) * d_entropy[:, None]
        weight += d_log_prob[:, None]
        weight *= -probs
        weight[rows, choice] += d_log_prob
        return weight, None

    return HeadEvaluation(log_probs[rows, choice], entropy, backward)
