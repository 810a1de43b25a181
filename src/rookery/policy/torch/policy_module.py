"""A whole policy as one torch module: normalizer, encoder, network and distribution of actions.

Learners differentiate this module, checkpoints store it, and exports contain it. A custom encoder
replaces the built-in encoder. A custom network replaces encoder and network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium.spaces as spaces
import torch
from torch import Tensor, nn

from rookery.common.trees import Tree, tree_map
from rookery.errors import ConfigError
from rookery.policy.actions import ActionLayout, action_layout, has_action_mask, read_space
from rookery.policy.torch.distributions import Distribution, distribution
from rookery.policy.torch.encoders import (
    EncoderFactory,
    FeatureEncoder,
    ObservationNormalizer,
    as_config_error,
    count_features,
    made_up,
    require_module,
)
from rookery.policy.torch.networks import ActorCritic, Prediction, latent_width
from rookery.rollout.normalize import Gather, only_own

Encoders: TypeAlias = EncoderFactory | Mapping[str, EncoderFactory]
NetworkFactory: TypeAlias = Callable[[Any, Any], nn.Module]
BuildNetwork: TypeAlias = Callable[[int, Sequence[int], ActionLayout, torch.Generator], nn.Module]

HIDDEN_SIZES = (64, 64)


@dataclass(frozen=True)
class NetworkSettings:
    """Settings of the built-in parts of a `PolicyModule`.

    Attributes:
        image: "nature" or "impala", the network that reads each image.
        hidden_sizes: widths of the towers' hidden layers. None chooses no hidden layers before a
            memory and behind an encoder that passes the whole observation through layers, and
            ``default_sizes`` otherwise.
        default_sizes: widths of the hidden layers if ``hidden_sizes`` is None.
        activation: "tanh" or "relu", in the towers.
        core: "none", "gru" or "lstm".
        core_size: units of each memory.
        normalize_obs: whether to standardize observations by running statistics.
        initial_log_std: initial logarithm of the standard deviations of continuous actions.
        squashed: whether to squash Box actions into their bounds by tanh, as SAC does.
        orthogonal_init: True draws orthogonal initial weights for towers and heads, False draws
            them as ``torch.nn.Linear`` does.
        state_dependent_noise: whether the standard deviation of a Box's actions is a function of
            the input of the actor's head (Raffin et al. 2021). A custom ``build`` must then return
            a network that appends this input, as wide as the last hidden layer, to its outputs.
        noise_interval: number of steps between two draws of state-dependent noise.
    """

    image: str | Callable[..., nn.Module] = "nature"
    hidden_sizes: Sequence[int] | None = None
    default_sizes: Sequence[int] = HIDDEN_SIZES
    activation: str = "tanh"
    core: str = "none"
    core_size: int = 64
    normalize_obs: bool = False
    initial_log_std: float = 0.0
    squashed: bool = False
    orthogonal_init: bool = True
    state_dependent_noise: bool = False
    noise_interval: int = 1

    def widths(self, encoder: nn.Module) -> Sequence[int]:
        """Return the widths of the hidden layers behind ``encoder``."""
        if self.hidden_sizes is not None:
            return self.hidden_sizes
        return () if self.core != "none" else hidden_widths(encoder, self.default_sizes)

    def layout(
        self, action_space: spaces.Space[Any], num_features: int, widths: Sequence[int]
    ) -> ActionLayout:
        """Return the layout of the actions of a network with such features and hidden layers."""
        if not self.state_dependent_noise:
            return action_layout(action_space, squashed=self.squashed)
        return action_layout(
            action_space,
            squashed=self.squashed,
            num_latent=latent_width(num_features, widths, self.core, self.core_size),
            noise_interval=self.noise_interval,
        )

    def actor_critic(
        self,
        num_features: int,
        widths: Sequence[int],
        layout: ActionLayout,
        generator: torch.Generator,
    ) -> ActorCritic:
        """Build two towers, one for the actor and one for the critic."""
        return ActorCritic(
            num_features,
            layout.num_outputs - layout.num_latent,
            widths,
            self.activation,
            core=self.core,
            core_size=self.core_size,
            generator=generator,
            is_orthogonal=self.orthogonal_init,
            shows_latent=layout.num_latent > 0,
        )


class DistributionHead(nn.Module):
    """The distribution of actions for a network's outputs.

    Args:
        layout: layout of the action space.
        initial_log_std: initial value of every learned log standard deviation.

    Attributes:
        log_std: float32 ``[num_deviations]``, learned; None if the action space needs none.
    """

    def __init__(self, layout: ActionLayout, initial_log_std: float = 0.0) -> None:
        super().__init__()
        self.layout = layout
        first = torch.full((layout.num_deviations,), initial_log_std)
        self.log_std = nn.Parameter(first) if len(first) else None

    def forward(self, outputs: Tensor, mask: Tensor | None = None) -> Distribution:
        """Make the distribution for outputs ``[N, num_outputs]`` and masks ``[N, num_choices]``."""
        return distribution(self.layout, outputs, self.log_std, mask)


def hidden_widths(encoder: nn.Module, default: Sequence[int]) -> Sequence[int]:
    """Choose the hidden layers behind an encoder if the user has not set any.

    An encoder that passes all of the observation through its own layers needs none. A
    `FeatureEncoder` of several parts encodes each part alone: without a hidden layer behind it the
    outputs would be a sum of one function per part, which cannot represent, for example, an
    exclusive or of two parts.

    Args:
        encoder: from observations to features.
        default: the widths to use if hidden layers are needed.

    Returns:
        ``default``, or () if no hidden layers are needed.
    """
    has_layers = any(True for _ in encoder.parameters())
    has_parts = isinstance(encoder, FeatureEncoder) and len(encoder.parts) > 1
    return () if has_layers and not has_parts else default


class PolicyModule(nn.Module):
    """Everything from observations to a distribution of actions and a value.

    The parameters are in the order encoder, network, ``log_std``, which the numpy actors expect.

    Args:
        observation_space: observation space of one env.
        action_space: action space of one env.
        encoder: custom encoder: a callable ``(observation_space) -> nn.Module`` that maps
            observations to features ``[N, F]``; or a mapping from the dotted path of each part to
            such a callable.
        network: custom network: a callable ``(observation_space, action_space) -> nn.Module`` that
            maps observations to outputs ``[N, num_outputs]`` and values ``[N]``, or to outputs
            alone. A recurrent network has an int attribute ``memory_width``, takes the memory
            ``[N, memory_width]`` as second argument and returns it as third result.
        build: makes the network behind the encoder from the number of features, the widths of the
            hidden layers, the layout of the actions and a generator. None builds two towers, one
            for the actor and one for the critic.
        seed: seed of the initial weights.
        settings: fields of `NetworkSettings`.

    Attributes:
        layout: layout of the actions.
        memory_width: number of floats remembered per env; 0 without a memory.
        has_values: whether the network returns values beside outputs.
        has_action_mask: whether observations contain an ``action_mask``.

    Raises:
        ConfigError: a custom module has the wrong inputs or outputs.
        SpaceError: a space has no built-in encoder or distribution.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        encoder: Encoders | None = None,
        network: NetworkFactory | None = None,
        build: BuildNetwork | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__()
        chosen = NetworkSettings(**settings)
        if network is not None:
            _require_network_alone(encoder, build, chosen)
        self.layout = action_layout(action_space, squashed=chosen.squashed)
        self.has_action_mask = has_action_mask(observation_space, self.layout)
        parts = encoder if isinstance(encoder, Mapping) else {}
        read = read_space(observation_space, self.layout, parts)
        self.normalizer = ObservationNormalizer(read) if chosen.normalize_obs else None
        generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):  # custom modules draw from the global generator
            torch.manual_seed(seed)
            if network is not None:
                self.encoder: nn.Module = nn.Identity()
                made = network(observation_space, action_space)
                self.network = require_module("network", made)
            else:
                if encoder is None or isinstance(encoder, Mapping):
                    built = FeatureEncoder(read, encoder, chosen.image, generator)
                    self.encoder, size = built, built.num_features
                else:
                    self.encoder = require_module("encoder", encoder(observation_space))
                    size = count_features(self.encoder, observation_space)
                widths = chosen.widths(self.encoder)
                self.layout = chosen.layout(action_space, size, widths)
                make = build or chosen.actor_critic
                self.network = make(size, widths, self.layout, generator)
            self.memory_width = int(getattr(self.network, "memory_width", 0))
            device = next(self.parameters(), torch.empty(0)).device
            self.head = DistributionHead(self.layout, chosen.initial_log_std).to(device)
            self._check(observation_space, device)

    def forward(self, obs: Tree, memory: Tensor | None = None) -> Prediction:
        """Run on observations ``[N, *obs]``, a tree of tensors.

        Args:
            obs: observations as the env returns them.
            memory: float32 ``[N, memory_width]``, zeros for envs that begin an episode.
        """
        return self.run(self.normalize(obs), memory)

    def normalize(self, obs: Tree) -> Tree:
        """Standardize observations.

        Learners call this once per rollout and `run` for each minibatch.
        """
        return obs if self.normalizer is None else self.normalizer(obs)

    def run(self, obs: Tree, memory: Tensor | None = None) -> Prediction:
        """Run on observations that `normalize` returned."""
        return self._prediction(self._called(obs, memory))

    def _called(self, obs: Tree, memory: Tensor | None) -> Any:
        """Call encoder and network on normalized observations."""
        read = self.encoder(obs)
        return self.network(read, memory) if self.memory_width else self.network(read)

    def _prediction(self, found: Any) -> Prediction:
        """Convert a network's result to a `Prediction`, with values of 0 if it has none."""
        if isinstance(found, Prediction):
            return found
        if isinstance(found, Tensor):
            return Prediction(found, found.new_zeros(found.shape[0]))
        if not isinstance(found, tuple) or len(found) != 2 + bool(self.memory_width):
            raise ConfigError(
                f"network {type(self.network).__name__} must return outputs, or a tuple of outputs "
                "and value, and of memory if it has a memory_width; it returned a "
                f"{type(found).__name__}"
            )
        return Prediction(*found)

    def unroll(self, obs: Tree, begins: Tensor, memory: Tensor) -> Prediction:
        """Run on L steps of N envs.

        Args:
            obs: normalized observations ``[L, N, *obs]``, a tree of tensors.
            begins: bool ``[L, N]``, True where an episode begins and the memory is cleared.
            memory: float32 ``[N, memory_width]``, the memory before the first step.

        Returns:
            Outputs ``[L, N, num_outputs]``, values ``[L, N]`` and memories
            ``[L, N, memory_width]`` after every step.
        """
        if isinstance(self.network, ActorCritic):
            features = self.encoder(tree_map(lambda x: x.flatten(0, 1), obs))
            return self.network.unroll(features.reshape(*begins.shape, -1), begins, memory)
        steps = []
        for t, keep in enumerate((~begins).to(memory.dtype)[..., None]):
            steps.append(self.run(tree_map(lambda x, t=t: x[t], obs), memory * keep))
            memory = steps[-1].memory  # type: ignore[assignment]
        return Prediction(*(torch.stack(column) for column in zip(*steps, strict=True)))

    def distribution(self, outputs: Tensor, mask: Tensor | None = None) -> Distribution:
        """Make the distribution for outputs ``[N, num_outputs]``; see `DistributionHead`."""
        found: Distribution = self.head(outputs, mask)
        return found

    def initial_memory(self, num_envs: int) -> Tensor:
        """Return the memory at the start of an episode: zeros ``[num_envs, memory_width]``."""
        device = next(self.parameters()).device
        return torch.zeros(num_envs, self.memory_width, device=device)

    def observe(self, obs: Tree, gather: Gather = only_own) -> None:
        """Merge a batch ``[N, *obs]`` of numpy arrays into the normalisation statistics.

        ``gather`` returns the batch moments of all learners that share these statistics.
        """
        if self.normalizer is not None:
            self.normalizer.observe(obs, gather)

    def _check(self, observation_space: spaces.Space[Any], device: torch.device) -> None:
        """Run on two random observations, so that a wrong network fails here and not later."""
        was_training = self.training
        self.eval()
        memory = torch.zeros(2, self.memory_width, device=device) if self.memory_width else None
        with torch.enable_grad(), as_config_error("network", self.network, observation_space):
            returned = self._called(self.normalize(made_up(observation_space, device)), memory)
            found = self._prediction(returned)
        self.has_values = not isinstance(returned, Tensor)
        self.train(was_training)
        self._require_form(found)
        can_learn = any(parameter.requires_grad for parameter in self.network.parameters())
        if can_learn and not found.outputs.requires_grad:
            raise ConfigError(
                f"network {type(self.network).__name__} returns outputs without gradients and "
                "cannot learn; does it use detach(), no_grad() or numpy?"
            )

    def _require_form(self, found: Prediction) -> None:
        wanted = {"outputs": (2, self.layout.num_outputs), "value": (2,)}
        if self.memory_width:
            wanted["memory"] = (2, self.memory_width)
        for name, shape in wanted.items():
            got = getattr(found, name)
            if not isinstance(got, Tensor) or tuple(got.shape) != shape:
                what = list(got.shape) if isinstance(got, Tensor) else type(got).__name__
                raise ConfigError(
                    f"network {type(self.network).__name__} must return {name} of shape "
                    f"{list(shape)} for 2 observations and action_space {self.layout.space}; it "
                    f"returned {what}"
                )
            if got.dtype != torch.float32:
                raise ConfigError(
                    f"network {type(self.network).__name__} must return {name} in float32; it "
                    f"returned {got.dtype}"
                )


def _require_network_alone(
    encoder: Encoders | None, build: BuildNetwork | None, settings: NetworkSettings
) -> None:
    for name, part in (("encoder", encoder), ("build", build)):
        if part is not None:
            raise ConfigError(
                f"network= and {name}= exclude each other: a network reads observations by "
                "itself; give only one of them"
            )
    if settings.state_dependent_noise:
        raise ConfigError(
            "state_dependent_noise does not support network=, because it needs the input of the "
            "actor's head; leave it out, or give an encoder instead"
        )
