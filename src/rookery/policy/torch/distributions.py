"""Distributions of actions in torch: from a network's outputs to draws and log probabilities.

Actions are rows ``[N, K]`` as `rookery.policy.actions` encodes them. Every formula uses as few
tensor operations as possible: on minibatches of 256 rows, the call of an operation takes longer
than its arithmetic. Tests compare every distribution with ``torch.distributions``.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rookery.errors import SpaceValueError
from rookery.policy.actions import (
    LOG_STD_RANGE,
    NOISE_FLOOR,
    ActionLayout,
    ActionPart,
    nothing_legal,
    require_mask_shape,
)

_LOG_SQRT_2_PI = 0.5 * math.log(2.0 * math.pi)
_LOG_2 = math.log(2.0)
_TINY = torch.finfo(torch.float32).tiny
_NODES, _WEIGHTS = np.polynomial.hermite.hermgauss(16)


class Distribution(ABC):
    """Base class of distributions of actions, one for each of N observations."""

    @abstractmethod
    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw one action for each row, ``[N, K]``, without gradients."""

    @abstractmethod
    def mode(self) -> Tensor:
        """Return the most probable action of each row, ``[N, K]``."""

    @abstractmethod
    def log_prob(self, action: Tensor) -> Tensor:
        """Return the log probability (density) of actions ``[N, K]``: float32 ``[N]``."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Return the entropy of each row in nats, float32 ``[N]``."""


class Categorical(Distribution):
    """One choice out of A; actions are int64 ``[N, 1]``.

    Args:
        logits: float32 ``[N, A]``, unnormalised log probabilities.
        mask: bool ``[N, A]``, True for legal choices; other choices have probability zero.

    Raises:
        SpaceValueError: a row of the mask has no legal choice.
    """

    def __init__(self, logits: Tensor, mask: Tensor | None = None) -> None:
        if mask is not None:
            _require_a_choice(mask := _as_mask(mask, logits), mask)
            logits = logits.masked_fill(~mask, -torch.inf)
        self._choices = _Choices(logits, has_holes=mask is not None)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        return self._choices.sample(generator)[:, None]

    def mode(self) -> Tensor:
        return self._choices.log_probs.argmax(-1)[:, None]

    def log_prob(self, action: Tensor) -> Tensor:
        return self._choices.log_prob(action[:, 0])

    def entropy(self) -> Tensor:
        return self._choices.entropy()


class MultiCategorical(Distribution):
    """K independent choices; actions are int64 ``[N, K]``.

    The logits of all components form one ``[N, K, max(sizes)]``, padded with impossible choices,
    so that the number of operations does not depend on K.

    Args:
        logits: float32 ``[N, sum(sizes)]``, concatenated logits of the components.
        sizes: number of choices of each component.
        mask: bool ``[N, sum(sizes)]``, True for legal choices; other choices have probability zero.

    Raises:
        SpaceValueError: a component of a row has no legal choice.
    """

    def __init__(self, logits: Tensor, sizes: tuple[int, ...], mask: Tensor | None = None) -> None:
        if mask is not None:
            mask = _as_mask(mask, logits)
            _require_a_choice(mask, _spread(mask, sizes, False))
            logits = logits.masked_fill(~mask, -torch.inf)
        is_ragged = len(set(sizes)) > 1
        spread = _spread(logits, sizes, -torch.inf)
        self._choices = _Choices(spread, has_holes=is_ragged or mask is not None)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        return self._choices.sample(generator)

    def mode(self) -> Tensor:
        return self._choices.log_probs.argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        return self._choices.log_prob(action).sum(-1)

    def entropy(self) -> Tensor:
        return self._choices.entropy().sum(-1)


class Bernoulli(Distribution):
    """K independent binary components; actions are float32 ``[N, K]``.

    Args:
        logits: float32 ``[N, K]``, log odds of one.
        mask: bool ``[N, 2 * K]``, for each component whether zero is legal and whether one is
            legal.

    Raises:
        SpaceValueError: a component of a row has no legal value.
    """

    def __init__(self, logits: Tensor, mask: Tensor | None = None) -> None:
        self._free: Tensor | None = None
        self._unmasked = self.logits = logits
        if mask is not None:
            pairs = _as_mask(mask, logits.repeat_interleave(2, 1)).view(*logits.shape, 2)
            _require_a_choice(mask, pairs)
            can_be_zero, can_be_one = pairs.unbind(-1)
            self._free = can_be_zero & can_be_one
            certain = logits.masked_fill(~can_be_one, -torch.inf)
            self.logits = certain.masked_fill(~can_be_zero, torch.inf)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        uniform = torch.rand(self.logits.shape, generator=generator, device=self.logits.device)
        return (uniform < torch.sigmoid(self.logits.detach())).to(torch.float32)

    def mode(self) -> Tensor:
        return (self.logits > 0.0).to(torch.float32)

    def log_prob(self, action: Tensor) -> Tensor:
        # log sigmoid(z) is -softplus(-z), and log (1 - sigmoid(z)) is -softplus(z)
        return -F.softplus(torch.where(action > 0.5, -self.logits, self.logits)).sum(-1)

    def entropy(self) -> Tensor:
        z = self._unmasked
        entropies = F.softplus(z) - z * torch.sigmoid(z)
        return (entropies if self._free is None else entropies * self._free).sum(-1)


class Gaussian(Distribution):
    """Independent normals; actions are float32 ``[N, K]``.

    Args:
        mean: float32 ``[N, K]``.
        log_std: float32 ``[K]`` for all observations, or ``[N, K]``.
    """

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean, self.log_std = mean, log_std

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        noise = _noise(self.mean, generator)
        return self.mean.detach() + noise * self.log_std.detach().exp()

    def mode(self) -> Tensor:
        return self.mean

    def log_prob(self, action: Tensor) -> Tensor:
        squares = ((action - self.mean) * torch.exp(-self.log_std)).square()
        constant = self.log_std.sum(-1) + self.mean.shape[1] * _LOG_SQRT_2_PI
        return -0.5 * squares.sum(-1) - constant

    def entropy(self) -> Tensor:
        constant = self.mean.shape[1] * (0.5 + _LOG_SQRT_2_PI)
        return (self.log_std.sum(-1) + constant).expand(len(self.mean))


class SquashedGaussian(Distribution):
    """``a = tanh(u)`` of normals ``u`` with observation-dependent standard deviations.

    Haarnoja et al. (2018), appendix C, equation 21. The log standard deviation is bounded softly,
    as in Chua et al. (2018), appendix A.1: within the range it is nearly the network's output, and
    outside the gradient still leads back.

    Args:
        outputs: float32 ``[N, 2 * K]``: means, then unbounded log standard deviations.
        log_std: float32 ``[N, K]``, log standard deviations to use without bounds. The outputs are
            then the means alone. None takes them from the outputs.
    """

    def __init__(self, outputs: Tensor, log_std: Tensor | None = None) -> None:
        if log_std is None:
            self.mean, raw = outputs.chunk(2, dim=-1)
            self.log_std = soft_bound(raw, *LOG_STD_RANGE)
        else:
            self.mean, self.log_std = outputs, log_std

    def rsample(self, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw actions ``[N, K]`` and log probabilities ``[N]``, both with gradients."""
        noise = _noise(self.mean, generator)
        pre = self.mean + noise * self.log_std.exp()
        return torch.tanh(pre), self._log_prob(pre, noise)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        noise = _noise(self.mean, generator)
        return torch.tanh(self.mean.detach() + noise * self.log_std.detach().exp())

    def mode(self) -> Tensor:
        """Return the squashed mean, as is usual; the true mode of the density is further out."""
        return torch.tanh(self.mean)

    def log_prob(self, action: Tensor) -> Tensor:
        """Return the log density; actions at the bounds are moved inwards by 1e-6."""
        pre = torch.atanh(action.clamp(-1.0 + 1e-6, 1.0 - 1e-6))
        return self._log_prob(pre, (pre - self.mean) * torch.exp(-self.log_std))

    def entropy(self) -> Tensor:
        """Return ``H(u) + E[log(1 - tanh(u)^2)]``, with Gauss-Hermite quadrature."""
        nodes, weights = (self.mean.new_tensor(a) for a in (_NODES, _WEIGHTS / _WEIGHTS.sum()))
        pre = self.mean[..., None] + (2**0.5 * self.log_std.exp())[..., None] * nodes
        return (self.log_std + 0.5 + _LOG_SQRT_2_PI + _log_slope(pre) @ weights).sum(-1)

    def _log_prob(self, pre: Tensor, noise: Tensor) -> Tensor:
        density = -0.5 * noise.square() - self.log_std - _LOG_SQRT_2_PI
        return (density - _log_slope(pre)).sum(-1)


class Joint(Distribution):
    """Independent distributions for the parts of a Dict or Tuple; actions float32 ``[N, K]``.

    Args:
        parts: distributions of the parts.
        columns: columns of each part's actions.
    """

    def __init__(self, parts: list[Distribution], columns: list[slice]) -> None:
        self.parts, self.columns = parts, columns

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        return torch.cat([part.sample(generator).float() for part in self.parts], dim=1)

    def mode(self) -> Tensor:
        return torch.cat([part.mode().float() for part in self.parts], dim=1)

    def log_prob(self, action: Tensor) -> Tensor:
        pairs = zip(self.parts, self.columns, strict=True)
        return torch.stack([part.log_prob(action[:, place]) for part, place in pairs]).sum(0)

    def entropy(self) -> Tensor:
        return torch.stack([part.entropy() for part in self.parts]).sum(0)


def distribution(
    layout: ActionLayout,
    outputs: Tensor,
    log_std: Tensor | None = None,
    mask: Tensor | None = None,
) -> Distribution:
    """Make the distribution of actions for a network's outputs.

    Args:
        layout: layout of the action space.
        outputs: float32 ``[N, num_outputs]``.
        log_std: float32 ``[num_deviations]``; None if the layout has no deviations.
        mask: bool ``[N, num_choices]``, True for legal choices.

    Raises:
        SpaceValueError: the mask has another shape, or a row without a legal choice.
    """
    if mask is not None:
        require_mask_shape(layout, mask, outputs.shape[0])
    if len(layout.parts) == 1:
        return _of_part(layout.parts[0], outputs, log_std, mask)
    parts = [
        _of_part(
            part,
            outputs[:, part.outputs],
            None if log_std is None else log_std[part.deviations],
            mask[:, part.choices] if mask is not None and part.sizes else None,
        )
        for part in layout.parts
    ]
    return Joint(parts, [part.columns for part in layout.parts])


def state_dependent_log_std(latent: Tensor, log_std: Tensor) -> Tensor:
    """Return the log standard deviation of ``latent @ E`` for normal E: float32 ``[N, K]``.

    Raffin et al. (2021), section 3: the variance is ``latent^2 @ std^2``. No gradient flows into
    the latent state, so that the features are trained for the mean alone.

    Args:
        latent: float32 ``[N, H]``, latent state.
        log_std: float32 ``[H * K]``, log standard deviations of the entries of E.
    """
    squares = latent.detach().square()
    variance = squares @ torch.exp(2.0 * log_std.view(latent.shape[1], -1))
    return 0.5 * torch.log(variance + NOISE_FLOOR)


def soft_bound(x: Tensor, low: float, high: float) -> Tensor:
    """Bound ``x`` softly to (low, high), with a gradient everywhere."""
    return low + F.softplus(high - F.softplus(high - x) - low)


def _of_part(
    part: ActionPart, outputs: Tensor, log_std: Tensor | None, mask: Tensor | None
) -> Distribution:
    if part.is_state_dependent:
        assert log_std is not None
        log_std = state_dependent_log_std(outputs[:, part.latent], log_std)
        mean = outputs[:, part.outputs]
        return (
            Gaussian(mean, log_std) if part.kind == "gaussian" else SquashedGaussian(mean, log_std)
        )
    match part.kind:
        case "categorical" if len(part.sizes) == 1:
            return Categorical(outputs, mask)
        case "categorical":
            return MultiCategorical(outputs, part.sizes, mask)
        case "bernoulli":
            return Bernoulli(outputs, mask)
        case "gaussian":
            # log_std is None if all continuous parts of the action space are empty.
            return Gaussian(outputs, outputs.new_empty(0) if log_std is None else log_std)
        case "squashed":
            return SquashedGaussian(outputs)


class _Choices:
    """Categorical choices with logits ``[..., A]``, which may include minus infinity."""

    def __init__(self, logits: Tensor, has_holes: bool) -> None:
        self.log_probs = torch.log_softmax(logits, dim=-1)
        self._has_holes = has_holes

    def sample(self, generator: torch.Generator | None) -> Tensor:
        """Draw by the Gumbel-max trick, ``argmax(log_probs - log(exponential noise))``."""
        noise = torch.empty_like(self.log_probs).exponential_(generator=generator)
        # Noise may be rounded to zero. Its logarithm would turn illegal choices into NaN.
        return (self.log_probs.detach() - noise.clamp_min_(_TINY).log_()).argmax(-1)

    def log_prob(self, choice: Tensor) -> Tensor:
        return self.log_probs.gather(-1, choice.long()[..., None]).squeeze(-1)

    def entropy(self) -> Tensor:
        # Zero times minus infinity is NaN. Below this bound, probabilities are zero anyway.
        finite = self.log_probs.clamp_min(-1e4) if self._has_holes else self.log_probs
        return -(self.log_probs.exp() * finite).sum(-1)


def _as_mask(mask: Tensor, logits: Tensor) -> Tensor:
    if mask.shape != logits.shape:
        raise SpaceValueError(f"the mask must be {list(logits.shape)}, not {list(mask.shape)}")
    return mask.to(torch.bool)


def _require_a_choice(mask: Tensor, legal: Tensor) -> None:
    """Raise an error if ``legal``, bool ``[N, ..., A]``, has no True in a component."""
    if torch.compiler.is_compiling():  # an exported program cannot raise
        return
    some = legal.any(-1)
    if not bool(some.all()):
        row = int((~some).nonzero()[0, 0])
        raise nothing_legal(row, mask[row].tolist())


def _spread(x: Tensor, sizes: tuple[int, ...], fill: float | bool) -> Tensor:
    """Pad ``[N, sum(sizes)]`` to ``[N, K, max(sizes)]``."""
    longest = max(sizes)
    if x.shape[1] != longest * len(sizes):
        whole = x.new_full((x.shape[0], longest * len(sizes)), fill)
        # Tensors created during export belong to the exported program and must not be cached.
        places = _places.__wrapped__ if torch.compiler.is_compiling() else _places
        x = whole.index_copy(1, places(sizes, x.device), x)
    return x.view(x.shape[0], len(sizes), longest)


@functools.lru_cache(maxsize=64)
def _places(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    places = [k * max(sizes) + choice for k, size in enumerate(sizes) for choice in range(size)]
    return torch.tensor(places, device=device)


def _noise(like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(like.shape, generator=generator, device=like.device)


def _log_slope(pre: Tensor) -> Tensor:
    """Return ``log(1 - tanh(u)^2)`` as the stable ``2 (log 2 - u - softplus(-2 u))``."""
    return 2.0 * (_LOG_2 - pre - F.softplus(-2.0 * pre))
