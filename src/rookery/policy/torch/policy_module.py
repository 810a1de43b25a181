"""A whole policy as one torch module: normaliser, encoder, network, and distribution of actions.

It is what learners differentiate, what is saved, and what is exported. Networks of the user's own
take the encoder's place, or that of encoder and network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

NetworkFactory: TypeAlias = Callable[[Any, Any], nn.Module]
BuildNetwork: TypeAlias = Callable[[int, Sequence[int], ActionLayout, torch.Generator], nn.Module]

HIDDEN_SIZES = (64, 64)


class DistributionHead(nn.Module):
    """The distribution of actions that a network's outputs mean.

    Args:
        layout: of the action space.
        initial_log_std: of every deviation.

    Attributes:
        log_std: float32 ``[num_deviations]``, learned; None where the space needs none.
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
    """Everything from observations to a distribution of actions, and a value.

    Parameters come in the order of encoder, network, ``log_std``: that of the numpy actors.

    Args:
        observation_space: of one env.
        action_space: of one env.
        encoder: the user's own: a callable ``(observation_space) -> nn.Module`` from observations
            to features ``[N, F]``, or several by dotted path of the part that each reads.
        network: the user's own for the whole: a callable ``(observation_space, action_space) ->
            nn.Module`` from observations to outputs ``[N, num_outputs]`` and values ``[N]``, or to
            outputs alone. One that remembers has an int ``memory_width``, takes the memory
            ``[N, memory_width]`` as second argument and returns it as third result.
        build: makes the network behind the encoder from the number of features, the widths of the
            hidden layers, the layout of the actions and a generator. None builds two towers, one
            for the actor and one for the critic.
        image: "nature" or "impala", the network that reads each image.
        hidden_sizes: widths of the towers' layers; None means none before a memory and behind
            an encoder that passes the whole observation through layers, else ``default_sizes``.
        default_sizes: widths of the hidden layers if ``hidden_sizes`` is None.
        activation: "tanh" or "relu", in the towers.
        core: "none", "gru" or "lstm".
        core_size: units of each memory.
        normalize_obs: whether observations are standardised by running statistics.
        initial_log_std: logarithm of the deviations of continuous actions at the start.
        squashed: whether Box actions are squashed into their bounds by tanh, as SAC's are.
        orthogonal_init: whether the initial weights of towers and heads are orthogonal; else they
            are drawn as ``torch.nn.Linear`` does.
        state_dependent_noise: whether the deviation of a Box's actions is a function of what the
            actor's head reads (Raffin et al. 2021); ``build`` must make a network that shows it
            behind its outputs, of the width that ``hidden_sizes`` says.
        noise_interval: steps for which a draw of that noise is kept.
        seed: of the initial weights.

    Attributes:
        layout: of the actions.
        memory_width: numbers remembered of one env; 0 where nothing is.
        has_values: whether the network returns values beside outputs.
        has_action_mask: whether observations tell which actions are legal, by an ``action_mask``.

    Raises:
        ConfigError: a module of the user's gives something else than asked for.
        SpaceError: a space has no built-in encoder or distribution.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        encoder: EncoderFactory | Mapping[str, EncoderFactory] | None = None,
        network: NetworkFactory | None = None,
        build: BuildNetwork | None = None,
        image: str | Callable[..., nn.Module] = "nature",
        hidden_sizes: Sequence[int] | None = None,
        default_sizes: Sequence[int] = HIDDEN_SIZES,
        activation: str = "tanh",
        core: str = "none",
        core_size: int = 64,
        normalize_obs: bool = False,
        initial_log_std: float = 0.0,
        squashed: bool = False,
        orthogonal_init: bool = True,
        state_dependent_noise: bool = False,
        noise_interval: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__()
        for name, part in (("encoder", encoder), ("build", build)):
            if network is not None and part is not None:
                raise ConfigError(
                    f"network= and {name}= exclude each other: a network reads observations by "
                    "itself; give only one of them"
                )
        if network is not None and state_dependent_noise:
            raise ConfigError(
                "state_dependent_noise needs to know what the actor's head reads, which a whole "
                "network of one's own does not tell; leave it out, or give an encoder instead"
            )
        self.layout = action_layout(action_space, squashed=squashed)
        self.has_action_mask = has_action_mask(observation_space, self.layout)
        parts = encoder if isinstance(encoder, Mapping) else {}
        read = read_space(observation_space, self.layout, parts)
        self.normalizer = ObservationNormalizer(read) if normalize_obs else None
        generator = torch.Generator().manual_seed(seed)

        def default(
            num_features: int, widths: Sequence[int], layout: ActionLayout, _: torch.Generator
        ) -> nn.Module:
            return ActorCritic(
                num_features,
                layout.num_outputs - layout.num_latent,
                widths,
                activation,
                core=core,
                core_size=core_size,
                generator=generator,
                is_orthogonal=orthogonal_init,
                shows_latent=layout.num_latent > 0,
            )

        with torch.random.fork_rng(devices=[]):  # modules of the user's draw from the global one
            torch.manual_seed(seed)
            if network is not None:
                self.encoder: nn.Module = nn.Identity()
                made = network(observation_space, action_space)
                self.network = require_module("network", made)
            else:
                if encoder is None or isinstance(encoder, Mapping):
                    built = FeatureEncoder(read, encoder, image, generator)
                    self.encoder, size = built, built.num_features
                else:
                    self.encoder = require_module("encoder", encoder(observation_space))
                    size = count_features(self.encoder, observation_space)
                widths = hidden_sizes
                if widths is None:
                    widths = () if core != "none" else hidden_widths(self.encoder, default_sizes)
                if state_dependent_noise:
                    self.layout = action_layout(
                        action_space,
                        squashed=squashed,
                        num_latent=latent_width(size, widths, core, core_size),
                        noise_interval=noise_interval,
                    )
                self.network = (build or default)(size, widths, self.layout, generator)
            self.memory_width = int(getattr(self.network, "memory_width", 0))
            device = next(self.parameters(), torch.empty(0)).device
            self.head = DistributionHead(self.layout, initial_log_std).to(device)
            self._check(observation_space, device)

    def forward(self, obs: Tree, memory: Tensor | None = None) -> Prediction:
        """Run on observations ``[N, *obs]``, a tree of tensors.

        Args:
            obs: as the env gives them.
            memory: float32 ``[N, memory_width]``, zeros where an episode begins.
        """
        return self.run(self.normalize(obs), memory)

    def normalize(self, obs: Tree) -> Tree:
        """Standardise observations; once for a rollout, whose minibatches `run` then reads."""
        return obs if self.normalizer is None else self.normalizer(obs)

    def run(self, obs: Tree, memory: Tensor | None = None) -> Prediction:
        """Do as `forward` does, on normalised observations."""
        return self._prediction(self._called(obs, memory))

    def _called(self, obs: Tree, memory: Tensor | None) -> Any:
        """Return what the network returns for normalised observations."""
        read = self.encoder(obs)
        return self.network(read, memory) if self.memory_width else self.network(read)

    def _prediction(self, found: Any) -> Prediction:
        """Turn what the network returned into a `Prediction`, with values of 0 if it has none."""
        if isinstance(found, Prediction):
            return found
        if isinstance(found, Tensor):
            return Prediction(found, found.new_zeros(found.shape[0]))
        if not isinstance(found, tuple) or len(found) != 2 + bool(self.memory_width):
            raise ConfigError(
                f"network {type(self.network).__name__} must give outputs, or a tuple of outputs "
                "and value, and of memory where it has a memory_width; it gave a "
                f"{type(found).__name__}"
            )
        return Prediction(*found)

    def unroll(self, obs: Tree, begins: Tensor, memory: Tensor) -> Prediction:
        """Run on L steps of N envs.

        Args:
            obs: normalised, ``[L, N, *obs]``, a tree of tensors.
            begins: bool ``[L, N]``, where an episode begins, so that nothing is remembered.
            memory: float32 ``[N, memory_width]``, before the first step.

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
        """What is remembered where episodes begin: zeros, float32 ``[num_envs, memory_width]``."""
        device = next(self.parameters()).device
        return torch.zeros(num_envs, self.memory_width, device=device)

    def observe(self, obs: Tree, gather: Gather = only_own) -> None:
        """Merge a batch ``[N, *obs]`` of numpy arrays into the normalisation statistics.

        ``gather`` is as for `RunningMoments.update`.
        """
        if self.normalizer is not None:
            self.normalizer.observe(obs, gather)

    def _check(self, observation_space: spaces.Space[Any], device: torch.device) -> None:
        """Run on two made-up observations, so that a wrong network is named here and not later."""
        was_training = self.training
        self.eval()
        memory = torch.zeros(2, self.memory_width, device=device) if self.memory_width else None
        named = as_config_error("network", self.network, observation_space)
        with torch.enable_grad(), named:
            returned = self._called(self.normalize(made_up(observation_space, device)), memory)
            found = self._prediction(returned)
        self.has_values = not isinstance(returned, Tensor)
        self.train(was_training)
        wanted = {"outputs": (2, self.layout.num_outputs), "value": (2,)}
        if self.memory_width:
            wanted["memory"] = (2, self.memory_width)
        for name, shape in wanted.items():
            got = getattr(found, name)
            if not isinstance(got, Tensor) or tuple(got.shape) != shape:
                what = list(got.shape) if isinstance(got, Tensor) else type(got).__name__
                raise ConfigError(
                    f"network {type(self.network).__name__} must give {name} of shape "
                    f"{list(shape)} for 2 observations and action_space {self.layout.space}; it "
                    f"gave {what}"
                )
            if got.dtype != torch.float32:
                raise ConfigError(
                    f"network {type(self.network).__name__} must give {name} in float32; it gave "
                    f"{got.dtype}"
                )
        can_learn = any(parameter.requires_grad for parameter in self.network.parameters())
        if can_learn and not found.outputs.requires_grad:
            raise ConfigError(
                f"network {type(self.network).__name__} gives outputs without gradients, from "
                "which nothing could be learned; does it use detach(), no_grad() or numpy?"
            )
