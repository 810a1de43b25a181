"""Policies that evaluate small networks in numpy, with the flat parameters that torch learns.

A torch call costs 2 to 5 us before any arithmetic. Acting for 16 envs takes 150 to 250 us in eager
torch and about 20 us in numpy, and workers need no torch. Tests compare both.
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

# Rows per pass over a whole rollout. For products larger than 64 rows by 64 x 64, OpenBLAS wakes a
# second thread, which spins for milliseconds on a core that the workers need. Larger passes would
# save 0.2 us per row.
CHUNK = 64


@dataclass(frozen=True)
class NetworkSpec:
    """The structure of a network that numpy can evaluate, as plain data that can be pickled.

    Attributes:
        observation_space: observation space of one env.
        layout: layout of the actions.
        shapes: name -> shape of the parameters, in order, with the names of `PolicyModule`.
        activation: "tanh" or "relu", in the towers.
        core: "none", "gru" or "lstm".
        memory_width: number of floats remembered per env; 0 without a memory.
        num_quantiles: number of quantiles per action; the mean of the quantiles is the action's
            value. 0 if the outputs are not quantiles.
    """

    observation_space: spaces.Space[Any]
    layout: ActionLayout
    shapes: dict[str, tuple[int, ...]]
    activation: str
    core: str
    memory_width: int
    num_quantiles: int = 0

    def views(self, flat: Floats) -> dict[str, Floats]:
        """Return views by name of flat parameters; the first part of each name is removed."""
        views, start = {}, 0
        for name, shape in self.shapes.items():
            stop = start + math.prod(shape)
            views[name.partition(".")[2]] = flat[start:stop].reshape(shape)
            start = stop
        return views


class NumpyModel:
    """The weights of a network in an actor of another process: `Weights` without torch.

    Attributes:
        parameters: float32 ``[size]``, all parameters.
        mean: float32 ``[D]``, mean of the observations' numbers.
        scale: float32 ``[D]``, inverse standard deviation of the observations' numbers.
        exploration: settings of the exploration; see `rookery.policy.model.Model`.
    """

    def __init__(
        self, parameters: Floats, mean: Floats, scale: Floats, exploration: npt.NDArray[np.float64]
    ) -> None:
        self.parameters, self.mean, self.scale = parameters, mean, scale
        self.exploration = exploration

    def extras(self) -> npt.NDArray[np.float64]:
        """Return mean, scale and exploration as one array."""
        return np.concatenate([self.mean, self.scale, self.exploration], dtype=np.float64)

    def set_extras(self, extras: npt.NDArray[np.float64]) -> None:
        """Load the result of `extras` or of `rookery.policy.model.Model.extras`."""
        size = len(self.mean)
        self.mean[...], self.scale[...] = extras[:size], extras[size : 2 * size]
        self.exploration[...] = extras[2 * size :]


class NumpyNetworkPolicy(NetworkPolicy):
    """Base class of policies that act in numpy.

    The arrays of ``model``, ``mean`` and ``scale`` are read in place, without a copy.

    Args:
        spec: structure of the network.
        model: the weights.
        mean: float32 ``[D]``, mean of the observations' numbers.
        scale: float32 ``[D]``, inverse standard deviation of the observations' numbers.
        rng: generator of the drawn actions.
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
    """A policy with linear layers: an actor-critic, action values, or SAC's actor.

    If the network has no critic, log probabilities and values are NaN.
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
    """A recurrent policy with a GRU or LSTM memory behind each tower.

    Actor and critic have separate memories and weights. With shared weights, the errors of large
    values would dominate the actor's gradient.
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
    """Compute one step of `rookery.policy.torch.layers.GRU`; states are ``[2, B, H]``."""
    size = state.shape[-1]
    remembered = state @ weight + bias
    gates = _sigmoid(inputs[..., : 2 * size] + remembered[..., : 2 * size])
    reset, update = gates[..., :size], gates[..., size:]
    candidate = np.tanh(inputs[..., 2 * size :] + reset * remembered[..., 2 * size :])
    return np.asarray(candidate + update * (state - candidate))


def _lstm(inputs: Floats, state: Floats, weight: Floats, bias: Floats) -> Floats:
    """Compute one step of `rookery.policy.torch.layers.LSTM`; states are ``[2, B, 2 H]``."""
    hidden, cell = np.split(state, 2, axis=-1)
    enter, forget, candidate, leave = np.split(inputs + hidden @ weight + bias, 4, axis=-1)
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
