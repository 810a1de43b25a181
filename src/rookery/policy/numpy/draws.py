"""Distributions of actions in numpy: draws, modes and log probabilities of rows ``[N, K]``.

They are the distributions of `rookery.policy.torch.distributions`, for actors without torch. Tests
compare both.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rookery.policy.actions import (
    LOG_STD_RANGE,
    NOISE_FLOOR,
    ActionLayout,
    ActionPart,
    Kind,
    nothing_legal,
    require_mask_shape,
)
from rookery.policy.base import NoiseState

Floats: TypeAlias = npt.NDArray[np.float32]
Rows: TypeAlias = npt.NDArray[Any]

_LOG_SQRT_2_PI = np.float32(0.5 * np.log(2.0 * np.pi))
_TINY = np.finfo(np.float32).tiny
_ZERO = np.float32(0)
_NOISE_FLOOR = np.float32(NOISE_FLOOR)


class Draws:
    """Distributions of actions for the outputs of a network.

    A policy creates one instance. Drawing 8 rows takes 10 us, while the envs wait.

    Every method takes ``outputs``, float32 ``[N, num_outputs]``. All except `masked` take
    ``log_std``, float32 ``[num_deviations]``.

    Args:
        layout: layout of the action space.
    """

    def __init__(self, layout: ActionLayout) -> None:
        self._layout = layout
        self._parts: list[Any] = [
            _StateDependent(part) if part.is_state_dependent else _FAMILIES[part.kind](part)
            for part in layout.parts
        ]
        # Shortcut for the common case of one part.
        self._only: Any = self._parts[0] if len(self._parts) == 1 else None
        self._maskable = [
            family for family, part in zip(self._parts, layout.parts, strict=True) if part.sizes
        ]

    def masked(self, outputs: Floats, mask: npt.NDArray[np.bool_]) -> Floats:
        """Return outputs with which illegal choices have probability zero.

        Args:
            outputs: outputs for all choices; this array is not changed.
            mask: bool ``[N, num_choices]``, the legal choices.

        Raises:
            SpaceValueError: the mask has another shape, or a row without a legal choice.
        """
        require_mask_shape(self._layout, mask, len(outputs))
        outputs = outputs.copy()
        for part in self._maskable:
            part.apply_mask(outputs, mask)
        return outputs

    def sample(self, outputs: Floats, log_std: Floats, rng: np.random.Generator) -> Rows:
        """Draw one action for each row, ``[N, K]``."""
        if self._only is not None:
            return self._only.sample(outputs, log_std, rng)  # type: ignore[no-any-return]
        return self._join([part.sample(outputs, log_std, rng) for part in self._parts])

    def explore(
        self,
        outputs: Floats,
        log_std: Floats,
        noise: NoiseState | None,
        rng: np.random.Generator,
    ) -> tuple[Rows, NoiseState]:
        """Draw actions ``[N, K]`` with state-dependent noise that is kept for some steps.

        Args:
            outputs: float32 ``[N, num_outputs]``.
            log_std: float32 ``[num_deviations]``.
            noise: noise from the last call; None for the first call.
            rng: generator of new noise, which replaces noise older than the layout's interval and
                noise for another number of rows.

        Returns:
            The actions and the noise for the next call.
        """
        shape = (len(outputs), self._layout.num_latent, self._layout.num_columns)
        if noise is None or noise.values.shape != shape or noise.age >= self._layout.noise_interval:
            noise = NoiseState(rng.standard_normal(shape, np.float32), 0)
        rows: Rows = self._only.sample_with(outputs, log_std, noise.values)
        return rows, NoiseState(noise.values, noise.age + 1)

    def mode(self, outputs: Floats, log_std: Floats) -> Rows:
        """Return the most probable action of each row, ``[N, K]``."""
        return self._join([part.mode(outputs, log_std) for part in self._parts])

    def log_prob(self, outputs: Floats, log_std: Floats, rows: Rows) -> Floats:
        """Return the log probability (density) of actions ``[N, K]``: float32 ``[N]``."""
        first, *others = [part.log_prob(outputs, log_std, rows) for part in self._parts]
        return np.asarray(sum(others, first), np.float32)

    def _join(self, rows: list[Rows]) -> Rows:
        return rows[0] if len(rows) == 1 else np.concatenate(rows, 1, dtype=self._layout.dtype)


class _Categorical:
    """Independent choices with concatenated logits; rows are int64 ``[N, K]``."""

    def __init__(self, part: ActionPart) -> None:
        self._outputs, self._columns, self._choices = part.outputs, part.columns, part.choices
        self._ends = np.cumsum(part.sizes)[:-1]

    def sample(self, outputs: Floats, log_std: Floats, rng: np.random.Generator) -> Rows:
        if not len(self._ends):
            return _gumbel_max(outputs[:, self._outputs], rng)[:, None]
        return np.stack([_gumbel_max(logits, rng) for logits in self._logits(outputs)], axis=1)

    def mode(self, outputs: Floats, log_std: Floats) -> Rows:
        return np.stack([each.argmax(axis=1) for each in self._logits(outputs)], axis=1)

    def log_prob(self, outputs: Floats, log_std: Floats, rows: Rows) -> Floats:
        rows = rows[:, self._columns]
        each = np.arange(len(rows))
        total = np.zeros(len(rows), np.float32)
        for k, logits in enumerate(self._logits(outputs)):
            highest = logits.max(axis=1)
            scale = np.log(np.exp(logits - highest[:, None]).sum(axis=1))
            total += logits[each, rows[:, k].astype(np.int64, copy=False)] - highest - scale
        return total

    def apply_mask(self, outputs: Floats, mask: Rows) -> None:
        """Set the logits of illegal choices to minus infinity."""
        legal = mask[:, self._choices]
        for component in self._split(legal):
            _require_a_choice(component.any(axis=1), legal)
        outputs[:, self._outputs][~legal] = -np.inf

    def _logits(self, outputs: Floats) -> list[Floats]:
        """Return the logits ``[N, choices]`` of each component."""
        return self._split(outputs[:, self._outputs])

    def _split(self, columns: Rows) -> list[Rows]:
        return np.split(columns, self._ends, axis=1) if len(self._ends) else [columns]


class _Bernoulli:
    """Independent binary components with log odds as outputs; rows are float32 ``[N, K]``."""

    def __init__(self, part: ActionPart) -> None:
        self._outputs, self._columns, self._choices = part.outputs, part.columns, part.choices

    def sample(self, outputs: Floats, log_std: Floats, rng: np.random.Generator) -> Rows:
        # A logistic draw is below the logit with probability sigmoid(logit).
        logits = outputs[:, self._outputs]
        return (rng.logistic(size=logits.shape) < logits).astype(np.float32)

    def mode(self, outputs: Floats, log_std: Floats) -> Rows:
        return (outputs[:, self._outputs] > 0.0).astype(np.float32)

    def log_prob(self, outputs: Floats, log_std: Floats, rows: Rows) -> Floats:
        logits = outputs[:, self._outputs]
        against = np.where(rows[:, self._columns] > 0.5, -logits, logits)
        return np.asarray(-np.logaddexp(_ZERO, against).sum(axis=1))

    def apply_mask(self, outputs: Floats, mask: Rows) -> None:
        """Set the log odds to plus or minus infinity if only one of zero and one is legal."""
        logits, legal = outputs[:, self._outputs], mask[:, self._choices]
        pairs = legal.reshape(*logits.shape, 2)
        _require_a_choice((pairs[..., 0] | pairs[..., 1]).all(axis=1), legal)
        logits[~pairs[..., 1]] = -np.inf
        logits[~pairs[..., 0]] = np.inf


class _Gaussian:
    """Independent normals; rows are float32 ``[N, K]``."""

    def __init__(self, part: ActionPart) -> None:
        self._outputs, self._columns = part.outputs, part.columns
        self._deviations = part.deviations

    def sample(self, outputs: Floats, log_std: Floats, rng: np.random.Generator) -> Rows:
        return _normal_sample(outputs[:, self._outputs], log_std[self._deviations], rng)

    def mode(self, outputs: Floats, log_std: Floats) -> Rows:
        return outputs[:, self._outputs]

    def log_prob(self, outputs: Floats, log_std: Floats, rows: Rows) -> Floats:
        mean, log_std = outputs[:, self._outputs], log_std[self._deviations]
        return _log_prob(mean, log_std, rows[:, self._columns])


class _Squashed:
    """``tanh`` of normals with outputs for mean and deviation; rows are float32 ``[N, K]``."""

    def __init__(self, part: ActionPart) -> None:
        self._outputs, self._columns = part.outputs, part.columns

    def sample(self, outputs: Floats, log_std: Floats, rng: np.random.Generator) -> Rows:
        return np.tanh(_normal_sample(*self._mean_and_log_std(outputs), rng))

    def mode(self, outputs: Floats, log_std: Floats) -> Rows:
        return np.tanh(self._mean_and_log_std(outputs)[0])

    def log_prob(self, outputs: Floats, log_std: Floats, rows: Rows) -> Floats:
        return _squashed_log_prob(*self._mean_and_log_std(outputs), rows[:, self._columns])

    def _mean_and_log_std(self, outputs: Floats) -> tuple[Floats, Floats]:
        mean, raw = np.split(outputs[:, self._outputs], 2, axis=1)
        return mean, soft_bound(raw, *LOG_STD_RANGE)


class _StateDependent:
    """Normals with state-dependent noise ``latent @ E``, or ``tanh`` of such normals.

    The stored noise of E is standard normal and is multiplied by the current standard deviations
    when it is used. Actions therefore follow the distribution of `log_prob` even after the weights
    changed.
    """

    def __init__(self, part: ActionPart) -> None:
        self._outputs, self._columns, self._latent = part.outputs, part.columns, part.latent
        self._is_squashed = part.kind == "squashed"

    def sample_with(self, outputs: Floats, log_std: Floats, noise: Floats) -> Rows:
        """Return actions for the noise of E: standard normal, float32 ``[N, H, K]``."""
        latent = outputs[:, None, self._latent]
        weights = noise * np.exp(self._by_latent(log_std))
        return self._squash(outputs[:, self._outputs] + np.matmul(latent, weights)[:, 0])

    def sample(self, outputs: Floats, log_std: Floats, rng: np.random.Generator) -> Rows:
        return self._squash(_normal_sample(*self._mean_and_log_std(outputs, log_std), rng))

    def mode(self, outputs: Floats, log_std: Floats) -> Rows:
        return self._squash(outputs[:, self._outputs])

    def log_prob(self, outputs: Floats, log_std: Floats, rows: Rows) -> Floats:
        normal = self._mean_and_log_std(outputs, log_std)
        if self._is_squashed:
            return _squashed_log_prob(*normal, rows[:, self._columns])
        return _log_prob(*normal, rows[:, self._columns])

    def _mean_and_log_std(self, outputs: Floats, log_std: Floats) -> tuple[Floats, Floats]:
        """See `rookery.policy.torch.distributions.state_dependent_log_std`."""
        squares = np.square(outputs[:, self._latent])
        variance = squares @ np.exp(np.float32(2) * self._by_latent(log_std))
        return outputs[:, self._outputs], np.float32(0.5) * np.log(variance + _NOISE_FLOOR)

    def _by_latent(self, log_std: Floats) -> Floats:
        return log_std.reshape(self._latent.stop - self._latent.start, -1)

    def _squash(self, rows: Rows) -> Rows:
        return np.tanh(rows) if self._is_squashed else rows


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


def normal_log_prob(squares: Floats, log_std: Floats) -> Floats:
    """Return the log density of independent normals, float32 ``[N]``.

    Args:
        squares: float32 ``[N, K]``, squared distances from the mean in standard deviations.
        log_std: logarithm of the standard deviations, float32 ``[K]`` or ``[N, K]``.
    """
    constant = log_std.sum(axis=-1) + np.float32(squares.shape[1]) * _LOG_SQRT_2_PI
    return np.asarray(np.float32(-0.5) * squares.sum(axis=1) - constant)


def _log_prob(mean: Floats, log_std: Floats, rows: Rows) -> Floats:
    return normal_log_prob(np.square((rows - mean) * np.exp(-log_std)), log_std)


def _squashed_log_prob(mean: Floats, log_std: Floats, rows: Rows) -> Floats:
    pre = np.arctanh(np.clip(rows, -1.0 + 1e-6, 1.0 - 1e-6))
    slope = 2.0 * (np.log(2.0) - pre - np.logaddexp(_ZERO, -2.0 * pre))
    density = _log_prob(mean, log_std, pre)
    return np.asarray(density - slope.sum(axis=1), np.float32)


def soft_bound(x: Floats, low: float, high: float) -> Floats:
    """Keep ``x`` within (low, high); see `rookery.policy.torch.distributions.soft_bound`."""
    below = np.float32(high) - np.logaddexp(_ZERO, np.float32(high) - x)
    return np.asarray(np.float32(low) + np.logaddexp(_ZERO, below - np.float32(low)))


def _gumbel_max(logits: Floats, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw by the Gumbel-max trick: ``argmax(logits - log(exponential noise))``."""
    noise = rng.standard_exponential(logits.shape)
    # The logarithm of zero would turn illegal choices into NaN.
    np.log(np.maximum(noise, _TINY, out=noise), out=noise)
    return np.asarray(np.subtract(logits, noise, out=noise).argmax(axis=1))


def _require_a_choice(some: Any, mask: Any) -> None:
    if not some.all():
        row = int(some.argmin())
        raise nothing_legal(row, mask[row].tolist())
