"""Drawing actions in numpy: what an actor without torch does with a network's outputs.

The same distributions as in `rookery.policy.distributions`, for acting alone: draws, modes and log
probabilities of rows ``[N, K]``. A test holds them to torch's.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rookery.policy.action_masks import nothing_legal, require_mask_shape
from rookery.policy.actions import LOG_STD_RANGE, ActionLayout, ActionPart

Floats: TypeAlias = npt.NDArray[np.float32]
Rows: TypeAlias = npt.NDArray[Any]
Mask: TypeAlias = "npt.NDArray[np.bool_] | None"

_LOG_SQRT_2_PI = np.float32(0.5 * np.log(2.0 * np.pi))
_TINY = np.finfo(np.float32).tiny
_ZERO = np.float32(0)


class Draws:
    """The distributions of actions that N rows of a network's outputs mean.

    Args:
        layout: of the action space.
        outputs: float32 ``[N, num_outputs]``.
        log_std: float32 ``[num_deviations]``.
        mask: bool ``[N, num_choices]``, the legal choices; the others are never drawn.

    Raises:
        SpaceValueError: the mask has another shape, or leaves nothing to choose.
    """

    def __init__(
        self, layout: ActionLayout, outputs: Floats, log_std: Floats, mask: Mask = None
    ) -> None:
        self._layout = layout
        if mask is not None:
            require_mask_shape(layout, mask, len(outputs))
        self._parts = [_part(part, outputs, log_std, mask) for part in layout.parts]

    def sample(self, rng: np.random.Generator) -> Rows:
        """Draw one action for each row, ``[N, K]``."""
        return self._join([part.sample(rng) for part in self._parts])

    def mode(self) -> Rows:
        """Return the most probable action of each row, ``[N, K]``."""
        return self._join([part.mode() for part in self._parts])

    def log_prob(self, rows: Rows) -> Floats:
        """Return the log probability (density) of actions ``[N, K]``: float32 ``[N]``."""
        pairs = zip(self._parts, self._layout.parts, strict=True)
        first, *others = [part.log_prob(rows[:, place.columns]) for part, place in pairs]
        return np.asarray(sum(others, first), np.float32)

    def _join(self, rows: list[Rows]) -> Rows:
        return rows[0] if len(rows) == 1 else np.concatenate(rows, 1, dtype=self._layout.dtype)


class _Categorical:
    """Independent choices, their logits side by side; rows are int64 ``[N, K]``."""

    def __init__(self, logits: Floats, sizes: tuple[int, ...], mask: Mask) -> None:
        if mask is not None:
            logits = np.where(mask, logits, np.float32(-np.inf))
        ends = np.cumsum(sizes)[:-1]
        self._parts = [logits] if len(sizes) == 1 else np.split(logits, ends, axis=1)
        if mask is not None:
            for part in self._parts:
                _require_a_choice(np.isfinite(part).any(axis=1), mask)

    def sample(self, rng: np.random.Generator) -> Rows:
        return np.stack([_gumbel_max(part, rng) for part in self._parts], axis=1)

    def mode(self) -> Rows:
        return np.stack([part.argmax(axis=1) for part in self._parts], axis=1)

    def log_prob(self, rows: Rows) -> Floats:
        each = np.arange(len(rows))
        total = np.zeros(len(rows), np.float32)
        for k, part in enumerate(self._parts):
            highest = part.max(axis=1)
            scale = np.log(np.exp(part - highest[:, None]).sum(axis=1))
            total += part[each, rows[:, k].astype(np.int64, copy=False)] - highest - scale
        return total


class _Bernoulli:
    """Independent coins, the log odds of one each; rows are float32 ``[N, K]``."""

    def __init__(self, logits: Floats, mask: Mask) -> None:
        self._logits = logits
        if mask is not None:
            pairs = mask.reshape(*logits.shape, 2).astype(bool, copy=False)
            _require_a_choice((pairs[..., 0] | pairs[..., 1]).all(axis=1), mask)
            bounded = np.where(pairs[..., 1], logits, np.float32(-np.inf))
            self._logits = np.where(pairs[..., 0], bounded, np.float32(np.inf))

    def sample(self, rng: np.random.Generator) -> Rows:
        # A logistic draw lies below the logit with probability sigmoid(logit).
        return (rng.logistic(size=self._logits.shape) < self._logits).astype(np.float32)

    def mode(self) -> Rows:
        return (self._logits > 0.0).astype(np.float32)

    def log_prob(self, rows: Rows) -> Floats:
        against = np.where(rows > 0.5, -self._logits, self._logits)
        return np.asarray(-np.logaddexp(_ZERO, against).sum(axis=1))


class _Gaussian:
    """Independent normals; rows are float32 ``[N, K]``."""

    def __init__(self, mean: Floats, log_std: Floats) -> None:
        self._mean, self._log_std = mean, log_std

    def sample(self, rng: np.random.Generator) -> Rows:
        rows = rng.standard_normal(self._mean.shape, np.float32)
        rows *= np.exp(self._log_std)
        rows += self._mean
        return rows

    def mode(self) -> Rows:
        return self._mean

    def log_prob(self, rows: Rows) -> Floats:
        distance = (rows - self._mean) * np.exp(-self._log_std)
        constant = self._log_std + _LOG_SQRT_2_PI
        return np.asarray(-(0.5 * np.square(distance) + constant).sum(axis=1))


class _Squashed:
    """``tanh`` of normals whose deviation is an output too; rows are float32 ``[N, K]``."""

    def __init__(self, outputs: Floats) -> None:
        mean, raw = np.split(outputs, 2, axis=1)
        self._normal = _Gaussian(mean, soft_bound(raw, *LOG_STD_RANGE))

    def sample(self, rng: np.random.Generator) -> Rows:
        return np.tanh(self._normal.sample(rng))

    def mode(self) -> Rows:
        return np.tanh(self._normal.mode())

    def log_prob(self, rows: Rows) -> Floats:
        pre = np.arctanh(np.clip(rows, -1.0 + 1e-6, 1.0 - 1e-6))
        slope = 2.0 * (np.log(2.0) - pre - np.logaddexp(_ZERO, -2.0 * pre))
        return np.asarray(self._normal.log_prob(pre) - slope.sum(axis=1), np.float32)


def soft_bound(x: Floats, low: float, high: float) -> Floats:
    """Keep ``x`` within (low, high); see `rookery.policy.distributions.soft_bound`."""
    below = np.float32(high) - np.logaddexp(_ZERO, np.float32(high) - x)
    return np.asarray(np.float32(low) + np.logaddexp(_ZERO, below - np.float32(low)))


def _part(part: ActionPart, outputs: Floats, log_std: Floats, mask: Mask) -> Any:
    outputs = outputs[:, part.outputs]
    legal = mask[:, part.choices] if mask is not None and part.sizes else None
    match part.kind:
        case "categorical":
            return _Categorical(outputs, part.sizes, legal)
        case "bernoulli":
            return _Bernoulli(outputs, legal)
        case "gaussian":
            return _Gaussian(outputs, log_std[part.deviations])
        case "squashed":
            return _Squashed(outputs)


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
