"""Small networks that act in numpy, over the flat parameters that torch learns.

A torch call costs 2-5 us before any arithmetic, so acting through torch eager takes 150-250 us for
16 envs; this takes about 20, and workers that act so need no torch. Tests hold it to torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt

from rookery.common.trees import Tree
from rookery.policy.actions import ActionLayout, read_space
from rookery.policy.base import NoiseState, SplitPolicy
from rookery.policy.network_policy import NetworkPolicy
from rookery.policy.numpy import mlp
from rookery.policy.numpy.mlp import Features
from rookery.policy.weights import Weights

Floats: TypeAlias = npt.NDArray[np.float32]

# Rows per pass over a whole rollout. For more than 64 rows by 64 x 64 OpenBLAS wakes a second
# thread, which then spins for milliseconds on a core that the envs' workers need. Larger passes
# would save 0.2 us a row.
CHUNK = 64


@dataclass(frozen=True)
class NetworkSpec:
    """A network that numpy can act with. Plain data; it can be sent to another process.

    Attributes:
        observation_space: of one env.
        layout: of the actions.
        shapes: name -> shape of the parameters, in order; names as `PolicyModule` has them.
        activation: "tanh" or "relu", in the towers.
        num_scaled: D, how many numbers of an observation are standardised.
        core: "none", "gru" or "lstm".
        memory_width: numbers that are remembered of one env.
        num_quantiles: of each action's return, whose mean is the action's value; 0 where outputs
            are no quantiles.
    """

    observation_space: spaces.Space[Any]
    layout: ActionLayout
    shapes: dict[str, tuple[int, ...]]
    activation: str
    num_scaled: int
    core: str
    memory_width: int
    num_quantiles: int = 0

    def views(self, flat: Floats) -> dict[str, Floats]:
        """Views by name of flat parameters, without the names' first part."""
        views, start = {}, 0
        for name, shape in self.shapes.items():
            stop = start + math.prod(shape)
            views[name.partition(".")[2]] = flat[start:stop].reshape(shape)
            start = stop
        return views


class NumpyModel:
    """The weights of a network as an actor in another process has them: `Weights` without torch.

    Attributes:
        parameters: float32 ``[size]``.
        mean: float32 ``[D]``, of the observations' numbers.
        scale: float32 ``[D]``, one over their deviation.
        exploration: see `rookery.policy.model.Model`.
    """

    def __init__(
        self, parameters: Floats, mean: Floats, scale: Floats, exploration: npt.NDArray[np.float64]
    ) -> None:
        self.parameters, self.mean, self.scale = parameters, mean, scale
        self.exploration = exploration

    def extras(self) -> npt.NDArray[np.float64]:
        """Mean, scale and exploration, side by side."""
        return np.concatenate([self.mean, self.scale, self.exploration], dtype=np.float64)

    def set_extras(self, extras: npt.NDArray[np.float64]) -> None:
        """Take over what `extras` gave, or `rookery.policy.model.Model.extras`."""
        size = len(self.mean)
        self.mean[...], self.scale[...] = extras[:size], extras[size : 2 * size]
        self.exploration[...] = extras[2 * size :]


class NumpyNetworkPolicy(NetworkPolicy):
    """What policies share that act in numpy.

    Args:
        spec: what the network is.
        model: the weights; they are read where they lie.
        mean: of the observations' numbers, float32 ``[D]``, read where it lies.
        scale: likewise.
        rng: draws the actions.
    """

    def __init__(
        self, spec: NetworkSpec, model: Weights, mean: Floats, scale: Floats, rng: Any
    ) -> None:
        super().__init__(model, spec.observation_space, spec.layout, spec.memory_width, rng)
        self.spec = spec
        self._mean, self._scale = mean, scale
        read = read_space(spec.observation_space, spec.layout)
        self._features = Features(read, *((mean, scale) if len(mean) else ()))
        self._views = views = spec.views(model.parameters)
        self._towers = mlp.Towers.of(views)
        self._activation = mlp.ACTIVATIONS[spec.activation]
        self._deviations = views.get("log_std", np.empty(0, np.float32))
        self._workspace = mlp.Workspace.allocate(self._towers, CHUNK)

    def __reduce__(self) -> tuple[Any, ...]:
        arrays = self.model.parameters, self._mean, self._scale, self.model.exploration
        copies = [np.array(array) for array in arrays]
        state = self.version, self.memory, self.noise_state
        return _rebuilt, (type(self), self.spec, copies, self.rng, *state)

    def _log_std(self) -> Floats:
        return self._deviations


class NumpyPolicy(SplitPolicy, NumpyNetworkPolicy):
    """Acts with towers of linear layers, those of an actor-critic, of action values, or of SAC.

    Where the network has no critic, log probabilities and values are NaN.
    """

    def sample(self, obs: Tree, deterministic: bool = False) -> npt.NDArray[Any]:
        shows_latent = self.layout.num_latent > 0
        outputs = mlp.act(self._towers, self._activation, self._features(obs), shows_latent)
        if self.spec.num_quantiles:
            outputs = outputs.reshape(len(outputs), -1, self.spec.num_quantiles).mean(axis=2)
        return self.layout.pack(self._choose(self._masked(outputs, obs), deterministic))

    def assess(self, obs: Tree, action: npt.NDArray[Any]) -> tuple[Floats, Floats]:
        outputs, value, _ = self._predict(obs)
        if self._towers.critic is None:
            return value, value
        outputs, rows = self._masked(outputs, obs), self.layout.unpack(action)
        return self._draws.log_prob(outputs, self._log_std(), rows), value

    def _predict(self, obs: Tree) -> tuple[Floats, Floats, Floats | None]:
        x = self._features(obs)
        outputs = np.empty((len(x), self.layout.num_outputs), np.float32)
        value = np.full(len(x), np.nan, np.float32)
        if self._towers.critic is None:
            return outputs, value, None
        num_heads = outputs.shape[1] - self.layout.num_latent
        for start in range(0, len(x), CHUNK):
            rows = slice(start, start + CHUNK)
            part = x[rows]
            workspace = self._workspace
            if len(part) != CHUNK:
                workspace = mlp.Workspace.allocate(self._towers, len(part))
            outputs[rows, :num_heads], value[rows], read = mlp.forward(
                self._towers, self._activation, part, workspace
            )
            if num_heads < outputs.shape[1]:
                outputs[rows, num_heads:] = read[-1][0]
        return outputs, value, None


class NumpyRecurrentPolicy(NumpyNetworkPolicy):
    """Acts with a memory behind each tower, gated recurrent units or long short-term memories.

    Actor and critic remember apart, as they share no weights either: through shared ones the
    errors of large values would drown what the actor has to learn.
    """

    def _predict(self, obs: Tree) -> tuple[Floats, Floats, Floats | None]:
        x: Any = self._features(obs)
        for weight, bias in self._towers.layers:
            x = x @ weight + bias
            self._activation(x, out=x)
        advance = _CORES[self.spec.core]
        views = self._views
        before = self._memory_of(x.shape[-2]).reshape(x.shape[-2], 2, -1).swapaxes(0, 1)
        inputs = x @ views["core.input.weight"] + views["core.input.bias"]
        after = advance(inputs, before, views["core.memory.weight"], views["core.memory.bias"])
        weight, bias = self._towers.actor
        actor, critic = after[..., : len(weight)]
        outputs = actor @ weight + bias
        if self.layout.num_latent:
            outputs = np.concatenate([outputs, actor], axis=1)
        value = (critic @ views["critic.weight"])[:, 0] + views["critic.bias"]
        memory = after.swapaxes(0, 1).reshape(len(actor), -1)
        return outputs, value, np.asarray(memory, np.float32)


def _gru(inputs: Floats, state: Floats, weight: Floats, bias: Floats) -> Floats:
    """One step of `rookery.policy.torch.layers.GRU`; states are ``[2, B, H]``."""
    size = state.shape[-1]
    remembered = state @ weight + bias
    gates = _sigmoid(inputs[..., : 2 * size] + remembered[..., : 2 * size])
    reset, update = gates[..., :size], gates[..., size:]
    candidate = np.tanh(inputs[..., 2 * size :] + reset * remembered[..., 2 * size :])
    return np.asarray(candidate + update * (state - candidate))


def _lstm(inputs: Floats, state: Floats, weight: Floats, bias: Floats) -> Floats:
    """One step of `rookery.policy.torch.layers.LSTM`; states are ``[2, B, 2 H]``."""
    shown, cell = np.split(state, 2, axis=-1)
    enter, forget, candidate, leave = np.split(inputs + shown @ weight + bias, 4, axis=-1)
    cell = _sigmoid(forget) * cell + _sigmoid(enter) * np.tanh(candidate)
    return np.concatenate([_sigmoid(leave) * np.tanh(cell), cell], axis=-1)


_CORES = {"gru": _gru, "lstm": _lstm}


def numpy_policy(
    spec: NetworkSpec, model: Weights, mean: Floats, scale: Floats, rng: np.random.Generator
) -> NumpyNetworkPolicy:
    """Make the policy for ``spec``; see `NumpyNetworkPolicy` for the arguments."""
    kind = NumpyRecurrentPolicy if spec.memory_width else NumpyPolicy
    return kind(spec, model, mean, scale, rng)


def _rebuilt(
    kind: type[NumpyNetworkPolicy],
    spec: NetworkSpec,
    arrays: list[Any],
    rng: np.random.Generator,
    version: int,
    memory: Floats | None,
    noise_state: NoiseState | None,
) -> NumpyNetworkPolicy:
    parameters, mean, scale, exploration = arrays
    policy = kind(spec, NumpyModel(parameters, mean, scale, exploration), mean, scale, rng)
    policy.version, policy.memory, policy.noise_state = version, memory, noise_state
    return policy


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(np.float32(0.5) * (np.tanh(np.float32(0.5) * x) + np.float32(1.0)))
