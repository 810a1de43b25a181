"""Drawing actions in numpy: what an actor without torch does with a network's outputs.

The same distributions as in `rookery.policy.distributions`, for acting alone: draws, modes and log
probabilities of rows ``[N, K]``. A test holds them to torch's.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rookery.policy.action_masks import nothing_legal, require_mask_shape
from rookery.policy.actions import LOG_STD_RANGE, ActionLayout, ActionPart, Kind

Floats: TypeAlias = npt.NDArray[np.float32]
Rows: TypeAlias = npt.NDArray[Any]
Mask: TypeAlias = "npt.NDArray[np.bool_] | None"

_LOG_SQRT_2_PI = np.float32(0.5 * np.log(2.0 * np.pi))
_TINY = np.finfo(np.float32).tiny
_ZERO = np.float32(0)


class Draws:
    """The distributions of actions that a network's outputs mean, N rows at a time.

    Made once for a policy: actions are drawn while envs wait, and 8 rows are drawn in 10 us.

    Every method takes ``outputs``, float32 ``[N, num_outputs]``; ``log_std``, float32
    ``[num_deviations]``; and ``mask``, bool ``[N, num_choices]``, the legal choices, of which the
    others are never drawn. Each raises SpaceValueError where the mask has another shape, or leaves
    nothing to choose.

    Args:
        layout: of the action space.
    """

    def __init__(self, layout: ActionLayout) -> None:
        self._layout = layout
        self._parts = [_FAMILIES[part.kind](part) for part in layout.parts]

    def sample(
        self, outputs: Floats, log_std: Floats, rng: np.random.Generator, mask: Mask = None
    ) -> Rows:
        """Draw one action for each row, ``[N, K]``."""
        self._check(mask, outputs)
        return self._join([part.sample(outputs, log_std, rng, mask) for part in self._parts])

    def mode(self, outputs: Floats, log_std: Floats, mask: Mask = None) -> Rows:
        """Return the most probable action of each row, ``[N, K]``."""
        self._check(mask, outputs)
        return self._join([part.mode(outputs, log_std, mask) for part in self._parts])

    def log_prob(self, outputs: Floats, log_std: Floats, rows: Rows, mask: Mask = None) -> Floats:
        """Return the log probability (density) of actions ``[N, K]``: float32 ``[N]``."""
        self._check(mask, outputs)
        first, *others = [part.log_prob(outputs, log_std, rows, mask) for part in self._parts]
        return np.asarray(sum(others, first), np.float32)

    def _check(self, mask: Mask, outputs: Floats) -> None:
        if mask is not None:
            require_mask_shape(self._layout, mask, len(outputs))

    def _join(self, rows: list[Rows]) -> Rows:
        return rows[0] if len(rows) == 1 else np.concatenate(rows, 1, dtype=self._layout.dtype)


class _Categorical:
    """Independent choices, their logits side by side; rows are int64 ``[N, K]``."""

    def __init__(self, part: ActionPart) -> None:
        self._outputs, self._columns, self._choices = part.outputs, part.columns, part.choices
        self._ends = np.cumsum(part.sizes)[:-1]

    def sample(
        self, outputs: Floats, log_std: Floats, rng: np.random.Generator, mask: Mask
    ) -> Rows:
        chosen = [_gumbel_max(logits, rng) for logits in self._logits(outputs, mask)]
        return chosen[0][:, None] if len(chosen) == 1 else np.stack(chosen, axis=1)

    def mode(self, outputs: Floats, log_std: Floats, mask: Mask) -> Rows:
        return np.stack([each.argmax(axis=1) for each in self._logits(outputs, mask)], axis=1)

    def log_prob(self, outputs: Floats, log_std: Floats, rows: Rows, mask: Mask) -> Floats:
        rows = rows[:, self._columns]
        each = np.arange(len(rows))
        total = np.zeros(len(rows), np.float32)
        for k, logits in enumerate(self._logits(outputs, mask)):
            highest = logits.max(axis=1)
            scale = np.log(np.exp(logits - highest[:, None]).sum(axis=1))
            total += logits[each, rows[:, k].astype(np.int64, copy=False)] - highest - scale
        return total

    def _logits(self, outputs: Floats, mask: Mask) -> list[Floats]:
        """Of each component ``[N, choices]``; of illegal choices minus infinity."""
        logits = outputs[:, self._outputs]
        if mask is None:
            return self._split(logits)
        components = self._split(np.where(mask[:, self._choices], logits, np.float32(-np.inf)))
        for component in components:
            _require_a_choice(np.isfinite(component).any(axis=1), mask[:, self._choices])
        return components

    def _split(self, logits: Floats) -> list[Floats]:
        return np.split(logits, self._ends, axis=1) if len(self._ends) else [logits]


class _Bernoulli:
    """Independent coins, the log odds of one each; rows are float32 ``[N, K]``."""

    def __init__(self, part: ActionPart) -> None:
        self._outputs, self._columns, self._choices = part.outputs, part.columns, part.choices

    def sample(
        self, outputs: Floats, log_std: Floats, rng: np.random.Generator, mask: Mask
    ) -> Rows:
        # A logistic draw lies below the logit with probability sigmoid(logit).
        logits = self._logits(outputs, mask)
        return (rng.logistic(size=logits.shape) < logits).astype(np.float32)

    def mode(self, outputs: Floats, log_std: Floats, mask: Mask) -> Rows:
        return (self._logits(outputs, mask) > 0.0).astype(np.float32)

    def log_prob(self, outputs: Floats, log_std: Floats, rows: Rows, mask: Mask) -> Floats:
        logits = self._logits(outputs, mask)
        against = np.where(rows[:, self._columns] > 0.5, -logits, logits)
        return np.asarray(-np.logaddexp(_ZERO, against).sum(axis=1))

    def _logits(self, outputs: Floats, mask: Mask) -> Floats:
        logits = outputs[:, self._outputs]
        if mask is None:
            return logits
        legal = mask[:, self._choices]
        pairs = legal.reshape(*logits.shape, 2).astype(bool, copy=False)
        _require_a_choice((pairs[..., 0] | pairs[..., 1]).all(axis=1), legal)
        bounded = np.where(pairs[..., 1], logits, np.float32(-np.inf))
        return np.where(pairs[..., 0], bounded, np.float32(np.inf))


class _Gaussian:
    """Independent normals; rows are float32 ``[N, K]``."""

    def __init__(self, part: ActionPart) -> None:
        self._outputs, self._columns = part.outputs, part.columns
        self._deviations = part.deviations

    def sample(
        self, outputs: Floats, log_std: Floats, rng: np.random.Generator, mask: Mask
    ) -> Rows:
        return _normal_sample(outputs[:, self._outputs], log_std[self._deviations], rng)

    def mode(self, outputs: Floats, log_std: Floats, mask: Mask) -> Rows:
        return outputs[:, self._outputs]

    def log_prob(self, outputs: Floats, log_std: Floats, rows: Rows, mask: Mask) -> Floats:
        mean, log_std = outputs[:, self._outputs], log_std[self._deviations]
        return _normal_log_prob(mean, log_std, rows[:, self._columns])


class _Squashed:
    """``tanh`` of normals whose deviation is an output too; rows are float32 ``[N, K]``."""

    def __init__(self, part: ActionPart) -> None:
        self._outputs, self._columns = part.outputs, part.columns

    def sample(
        self, outputs: Floats, log_std: Floats, rng: np.random.Generator, mask: Mask
    ) -> Rows:
        return np.tanh(_normal_sample(*self._mean_and_log_std(outputs), rng))

    def mode(self, outputs: Floats, log_std: Floats, mask: Mask) -> Rows:
        return np.tanh(self._mean_and_log_std(outputs)[0])

    def log_prob(self, outputs: Floats, log_std: Floats, rows: Rows, mask: Mask) -> Floats:
        pre = np.arctanh(np.clip(rows[:, self._columns], -1.0 + 1e-6, 1.0 - 1e-6))
        slope = 2.0 * (np.log(2.0) - pre - np.logaddexp(_ZERO, -2.0 * pre))
        density = _normal_log_prob(*self._mean_and_log_std(outputs), pre)
        return np.asarray(density - slope.sum(axis=1), np.float32)

    def _mean_and_log_std(self, outputs: Floats) -> tuple[Floats, Floats]:
        mean, raw = np.split(outputs[:, self._outputs], 2, axis=1)
        return mean, soft_bound(raw, *LOG_STD_RANGE)


_FAMILIES: dict[Kind, Any] = {
    "categorical": _Categorical,
    "bernoulli": _Bernoulli,
    "gaussian": _Gaussian,
    "squashed": _Squashed,
}


def _normal_sample(mean: Floats, log_std: Floats, rng: np.random.Generator) -> Rows:
    rows = rng.standard_normal(mean.shape, np.float32)
    rows *= np.exp(log_std)
    rows += mean
    return rows


def _normal_log_prob(mean: Floats, log_std: Floats, rows: Rows) -> Floats:
    distance = (rows - mean) * np.exp(-log_std)
    constant = log_std + _LOG_SQRT_2_PI
    return np.asarray(-(0.5 * np.square(distance) + constant).sum(axis=1))


def soft_bound(x: Floats, low: float, high: float) -> Floats:
    """Keep ``x`` within (low, high); see `rookery.policy.distributions.soft_bound`."""
    below = np.float32(high) - np.logaddexp(_ZERO, np.float32(high) - x)
    return np.asarray(np.float32(low) + np.logaddexp(_ZERO, below - np.float32(low)))


def _gumbel_max(logits: Floats, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw by the Gumbel-max trick: ``argmax(logits - log(exponential noise))``."""
    noise = rng.standard_exponential(logits.shape)
    # The logarithm of zero would make illegal choices nan.
    np.log(np.maximum(noise, _TINY, out=noise), out=noise)
    return np.asarray(np.subtract(logits, noise, out=noise).argmax(axis=1))


def _require_a_choice(some: Any, mask: Any) -> None:
    if not some.all():
        row = int(some.argmin())
        raise nothing_legal(row, mask[row].tolist())
