"""Settings of the algorithms, importable without torch.

A setting that several algorithms have is documented once, in the base class that they share. An
algorithm declares it again if its default differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

from rookery.common.arguments import check_choice
from rookery.common.docstrings import with_inherited_attributes
from rookery.errors import ConfigError
from rookery.learn.config_base import (
    Config,
    Scheduled,
    at_least,
    counts,
    finite,
    flags,
    known_device,
    known_interval,
    known_memory,
    known_network,
    shares,
)

Kind = TypeVar("Kind", bound=type[Any])


def _listed(*topics: str) -> Callable[[Kind], Kind]:
    """Let ``--help``, config.json and ``help`` list the fields of a dataclass in this order."""

    def order(kind: Kind) -> Kind:
        found = {field.name: field for field in fields(kind)}
        names = [*" ".join(topics).split(), *found]
        kind.__dataclass_fields__ = {name: found[name] for name in names}
        return with_inherited_attributes(kind)

    return order


# ---------------------------------------------------------------- shared by several algorithms


@dataclass(frozen=True, kw_only=True)
class CommonConfig(Config):
    """Settings of every algorithm.

    Attributes:
        num_steps: Steps of every env between two calls of the learner.
        gamma: Discount factor.
        learning_rate: Adam's step size at the start, or a function of the progress from 0 to 1.
        hidden_sizes: Widths of the hidden layers; unset, 64 64.
        activation: tanh or relu.
        image_encoder: Network that reads images: nature (Mnih et al. 2015), or impala (Espeholt et
            al. 2018), which is deeper and takes several times as long.
        normalize_obs: Standardise observations with running statistics.
        device: Where torch learns: cpu, cuda, cuda:N or mps. Policies act on the cpu.
    """

    num_steps: int
    gamma: float = 0.99
    learning_rate: Scheduled = 1e-3
    hidden_sizes: tuple[int, ...] | None = None
    activation: str = "tanh"
    image_encoder: Literal["nature", "impala"] = "nature"
    normalize_obs: bool = False
    device: str = "cpu"

    def __post_init__(self) -> None:
        counts(self, "num_steps")
        at_least(self, 0, "learning_rate")
        shares(self, "gamma")
        known_network(self)
        known_device(self)
        flags(self)


@dataclass(frozen=True, kw_only=True)
class OneNetworkConfig(CommonConfig):
    """Settings of the algorithms that train one network with one optimizer.

    Attributes:
        final_learning_rate: Step size at the end, reached linearly; unset, it stays constant.
        max_grad_norm: Maximum norm of a gradient; larger gradients are scaled down.
        compile: Compile torch networks with torch.compile; needs a C++ compiler.
    """

    final_learning_rate: float | None = 0.0
    max_grad_norm: float
    compile: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 0, "max_grad_norm")


@dataclass(frozen=True, kw_only=True)
class StateDependentNoiseConfig(CommonConfig):
    """Settings of the exploration of continuous actions by normal distributions.

    Attributes:
        initial_log_std: Logarithm of the initial standard deviation of continuous actions. With
            state-dependent noise, it applies to the entries of the noise matrix.
        state_dependent_noise: Explore Box actions with noise that is a function of the state and
            stays the same function for several steps (Raffin et al. 2021), instead of drawing
            independent noise at every step.
        noise_interval: Steps before a new noise function is drawn; -1 means num_steps.
    """

    initial_log_std: float = 0.0
    state_dependent_noise: bool = False
    noise_interval: int = -1

    def __post_init__(self) -> None:
        super().__post_init__()
        finite(self, "initial_log_std")
        known_interval(self)


@dataclass(frozen=True, kw_only=True)
class InitialWeightsConfig(CommonConfig):
    """Settings of the initial weights.

    Attributes:
        orthogonal_init: Draw orthogonal initial weights for the layers after the encoder. Those of
            the last layer of the actor, or of the action values, are scaled by 0.01. If off,
            weights are uniform within 1/sqrt(inputs), the default of torch.
    """

    orthogonal_init: bool = True


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(OneNetworkConfig):
    """Settings of the algorithms that learn from the latest rollout: PPO, A2C and IMPALA.

    Attributes:
        num_steps: Steps of every env per rollout.
        entropy_coef: Weight of the entropy bonus, or a function of the progress from 0 to 1.
        value_coef: Weight of the value loss.
        normalize_advantage: Standardise the advantages of each gradient step.
        hidden_sizes: Widths of the hidden layers. Unset: 64 64, or no layers if the observation is
            one image or the network is recurrent.
        recurrent: Recurrent layers after the hidden layers: none, gru (gated recurrent units) or
            lstm (long short-term memory). With them, hidden layers exist only if hidden_sizes is
            set.
        memory_size: Units of each recurrent layer.
    """

    entropy_coef: Scheduled = 0.0
    value_coef: float = 0.5
    max_grad_norm: float = 0.5
    normalize_advantage: bool = False
    recurrent: Literal["none", "gru", "lstm"] = "none"
    memory_size: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        counts(self, "memory_size")
        known_memory(self)
        at_least(self, 0, "entropy_coef")


@dataclass(frozen=True, kw_only=True)
class AdvantageConfig(ActorCriticConfig, StateDependentNoiseConfig, InitialWeightsConfig):
    """Settings of the algorithms with generalised advantage estimation: PPO and A2C.

    Attributes:
        gae_lambda: Lambda of generalised advantage estimation; 1 gives the n-step advantage.
        normalize_reward: Divide rewards by the running standard deviation of the return.
    """

    gae_lambda: float
    normalize_reward: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        shares(self, "gae_lambda")


@dataclass(frozen=True, kw_only=True)
class ReplayConfig(InitialWeightsConfig):
    """Settings of the algorithms that learn from a replay buffer.

    Attributes:
        updates_per_step: Gradient steps per env step, regardless of the number of envs.
        warmup_steps: Env steps before the first gradient step.
        replay_size: Transitions that the replay buffer keeps, over all envs.
        save_replay: Save the replay buffer in checkpoints, so that a resumed run gives the same
            results as an uninterrupted one.
        batch_size: Transitions per gradient step.
        n_step: Number of rewards that are summed before the estimated value of the next state is
            added.
        target_rate: Step of the target networks towards the online networks at each update, as a
            fraction of the distance; 1 copies the weights.
        adam_epsilon: Number added to the square root of Adam's mean of squared gradients.
    """

    num_steps: int = 1
    updates_per_step: float = 1.0
    warmup_steps: int = 1_000
    replay_size: int = 200_000
    save_replay: bool = True
    batch_size: int = 256
    n_step: int = 1
    target_rate: float
    adam_epsilon: float
    activation: str = "relu"

    def __post_init__(self) -> None:
        super().__post_init__()
        counts(self, "replay_size", "batch_size", "n_step")
        at_least(self, 0, "updates_per_step", "warmup_steps", "adam_epsilon")
        shares(self, "target_rate")

    def rows_per_gradient_step(self, num_envs: int) -> int:
        return self.batch_size

    def check(self, num_envs: int) -> None:
        self.replay_rows(num_envs)

    def replay_rows(self, num_envs: int) -> int:
        """Return the number of steps of every env that the replay buffer keeps."""
        rows = self.replay_size // num_envs
        if rows < self.num_steps:
            raise ConfigError(
                f"replay_size is {self.replay_size}; {num_envs} envs with num_steps "
                f"{self.num_steps} need at least {self.num_steps * num_envs}"
            )
        return rows


@dataclass(frozen=True, kw_only=True)
class ActionValueConfig(ReplayConfig, OneNetworkConfig):
    """Settings of the algorithms that learn action values: DQN and QR-DQN.

    Attributes:
        double: Double Q-learning: the online network chooses an action, and the target network
            estimates its value.
        prioritized: Prioritised replay: draw transitions with larger errors more often.
        priority_exponent: Alpha of prioritised replay; 0 draws all transitions equally often.
        priority_correction: Beta of prioritised replay at the start; it reaches 1 at the end.
        target_interval: Gradient steps between two updates of the target network.
        initial_epsilon: Fraction of random actions at the start.
        final_epsilon: Fraction of random actions at the end of exploration.
        exploration_fraction: Part of the training during which the fraction of random actions
            decreases linearly.
        hidden_sizes: Widths of the hidden layers. Unset: 128 128, or no layers if the observation
            is one image.
    """

    num_steps: int = 4
    updates_per_step: float = 0.5
    replay_size: int = 100_000
    batch_size: int = 128
    n_step: int = 3
    double: bool = True
    prioritized: bool = False
    priority_exponent: float = 0.6
    priority_correction: float = 0.4
    target_interval: int = 100
    target_rate: float = 1.0
    initial_epsilon: float = 1.0
    final_epsilon: float = 0.05
    exploration_fraction: float = 0.2
    adam_epsilon: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        counts(self, "target_interval")
        shares(self, "initial_epsilon", "final_epsilon", "exploration_fraction")
        shares(self, "priority_exponent", "priority_correction")


@dataclass(frozen=True, kw_only=True)
class TwinCriticConfig(ReplayConfig):
    """Settings of the algorithms with an actor and two critics: SAC and TD3.

    Attributes:
        learning_rate: Adam's step size, or a function of the progress from 0 to 1.
        warmup_steps: Env steps before the first gradient step, with actions drawn uniformly.
        target_rate: Step of the target networks towards the online networks at each update, as a
            fraction of the distance.
    """

    target_rate: float = 0.005
    adam_epsilon: float = 1e-8


# ---------------------------------------------------------------- one class per algorithm


@_listed(
    "num_steps num_epochs minibatch_size gamma gae_lambda learning_rate final_learning_rate",
    "clip_range final_clip_range value_clip_range entropy_coef value_coef max_grad_norm",
    "normalize_advantage target_kl hidden_sizes activation image_encoder initial_log_std",
    "state_dependent_noise noise_interval orthogonal_init normalize_obs normalize_reward",
    "recurrent memory_size sequence_length",
)
@dataclass(frozen=True, kw_only=True)
class PPOConfig(AdvantageConfig):
    """Settings of PPO. Every field is a flag of ``rookery train ppo``.

    Attributes:
        num_epochs: Passes over each rollout.
        minibatch_size: Transitions per gradient step.
        clip_range: Maximum distance of the probability ratio from 1, at the start of training, or a
            function of the progress from 0 to 1.
        final_clip_range: Clip range at the end, reached linearly; unset, it stays constant.
        value_clip_range: Maximum change of a value in an update, as in OpenAI Baselines; unset,
            values are not clipped.
        target_kl: Skip the remaining epochs once the approximate KL divergence exceeds this.
        sequence_length: Steps through which gradients flow back in time in a recurrent network;
            must divide num_steps.
    """

    num_steps: int = 128
    num_epochs: int = 10
    minibatch_size: int = 256
    gae_lambda: float = 0.95
    learning_rate: Scheduled = 3e-4
    final_learning_rate: float | None = None
    clip_range: Scheduled = 0.2
    final_clip_range: float | None = None
    value_clip_range: float | None = None
    normalize_advantage: bool = True
    target_kl: float | None = None
    sequence_length: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        counts(self, "num_epochs", "minibatch_size", "sequence_length")
        if self.recurrent != "none" and self.num_steps % self.sequence_length:
            raise ConfigError(
                f"sequence_length is {self.sequence_length}; it must divide num_steps, which is "
                f"{self.num_steps}"
            )
        at_least(self, 0, "clip_range")

    def rows_per_gradient_step(self, num_envs: int) -> int:
        return min(self.minibatch_size, self.num_steps * num_envs)

    def check(self, num_envs: int) -> None:
        rows = self.num_steps * num_envs
        if self.minibatch_size > rows and self.minibatch_size != type(self)().minibatch_size:
            raise ConfigError(
                f"minibatch_size is {self.minibatch_size}, but a rollout of {num_envs} envs with "
                f"num_steps {self.num_steps} has only {rows} transitions"
            )


@_listed(
    "num_steps gamma trace_lambda rho_clip c_clip learning_rate final_learning_rate entropy_coef",
    "value_coef max_grad_norm normalize_advantage hidden_sizes activation image_encoder",
    "normalize_obs recurrent memory_size",
)
@dataclass(frozen=True, kw_only=True)
class ImpalaConfig(ActorCriticConfig):
    """Settings of IMPALA. Every field is a flag of ``rookery train impala``.

    Attributes:
        trace_lambda: Lambda of V-trace; the paper uses 1.
        rho_clip: Upper bound of the importance weight of a step.
        c_clip: Upper bound of the weight that carries corrections back in time.
    """

    num_steps: int = 20
    trace_lambda: float = 1.0
    rho_clip: float = 1.0
    c_clip: float = 1.0
    learning_rate: Scheduled = 2e-3
    entropy_coef: Scheduled = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 0, "rho_clip", "c_clip")
        shares(self, "trace_lambda")


@_listed(
    "num_steps gamma gae_lambda learning_rate final_learning_rate entropy_coef value_coef",
    "max_grad_norm normalize_advantage rms_decay rms_epsilon hidden_sizes activation image_encoder",
    "initial_log_std state_dependent_noise noise_interval orthogonal_init normalize_obs",
    "normalize_reward recurrent memory_size",
)
@dataclass(frozen=True, kw_only=True)
class A2CConfig(AdvantageConfig):
    """Settings of A2C. Every field is a flag of ``rookery train a2c``.

    Attributes:
        num_steps: Steps of every env per rollout, and so per gradient step.
        learning_rate: RMSProp's step size at the start, or a function of the progress from 0 to 1.
        rms_decay: Decay of RMSProp's mean of squared gradients.
        rms_epsilon: Number added to the square root of RMSProp's mean of squared gradients.
    """

    num_steps: int = 5
    gae_lambda: float = 1.0
    learning_rate: Scheduled = 3e-3
    rms_decay: float = 0.99
    rms_epsilon: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 0, "rms_epsilon")
        shares(self, "rms_decay")


@_listed(
    "num_steps updates_per_step warmup_steps replay_size save_replay batch_size gamma n_step",
    "orthogonal_init double dueling prioritized priority_exponent priority_correction",
    "learning_rate final_learning_rate target_interval target_rate initial_epsilon final_epsilon",
    "exploration_fraction adam_epsilon max_grad_norm hidden_sizes activation image_encoder",
    "normalize_obs",
)
@dataclass(frozen=True, kw_only=True)
class DQNConfig(ActionValueConfig):
    """Settings of DQN. Every field is a flag of ``rookery train dqn``.

    Attributes:
        dueling: Learn the value of the state and the advantages of the actions in separate streams.
    """

    dueling: bool = True
    max_grad_norm: float = 10.0


@_listed(
    "num_steps updates_per_step warmup_steps replay_size save_replay batch_size gamma n_step",
    "orthogonal_init num_quantiles huber_limit double prioritized priority_exponent",
    "priority_correction learning_rate final_learning_rate target_interval target_rate",
    "initial_epsilon final_epsilon exploration_fraction adam_epsilon max_grad_norm hidden_sizes",
    "activation image_encoder normalize_obs",
)
@dataclass(frozen=True, kw_only=True)
class QRDQNConfig(ActionValueConfig):
    """Settings of QR-DQN. Every field is a flag of ``rookery train qrdqn``.

    Attributes:
        num_quantiles: Quantiles of the return that are learned for every action.
        huber_limit: Error up to which the quantile loss is quadratic; 0 makes it linear everywhere.
        max_grad_norm: Maximum norm of a gradient; larger gradients are scaled down. The loss is a
            sum over the quantiles.
    """

    num_quantiles: int = 50
    huber_limit: float = 1.0
    max_grad_norm: float = 500.0

    def __post_init__(self) -> None:
        super().__post_init__()
        counts(self, "num_quantiles")
        at_least(self, 0, "huber_limit")


@_listed(
    "num_steps updates_per_step warmup_steps replay_size save_replay batch_size gamma n_step",
    "orthogonal_init learning_rate adam_epsilon target_rate entropy_coef target_entropy",
    "state_dependent_noise noise_interval initial_log_std hidden_sizes activation image_encoder",
    "normalize_obs",
)
@dataclass(frozen=True, kw_only=True)
class SACConfig(TwinCriticConfig, StateDependentNoiseConfig):
    """Settings of SAC. Every field is a flag of ``rookery train sac``.

    Attributes:
        n_step: Number of rewards that are summed, together with the entropies between them, before
            the estimated value of the next state is added.
        entropy_coef: Weight of the entropy; unset, it is learned.
        target_entropy: Entropy that the learned weight aims at; unset, minus the number of
            components of an action.
        state_dependent_noise: Explore with noise that is a function of the state and stays the
            same function for several steps (Raffin et al. 2021), instead of drawing independent
            noise at every step. Standard deviations are then parameters instead of outputs of the
            network.
        initial_log_std: Logarithm of the initial standard deviations of state-dependent noise.
    """

    entropy_coef: float | None = None
    target_entropy: float | None = None
    initial_log_std: float = -3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.entropy_coef is not None:
            at_least(self, 0, "entropy_coef")


@_listed(
    "num_steps updates_per_step warmup_steps replay_size save_replay batch_size gamma n_step",
    "orthogonal_init learning_rate adam_epsilon target_rate policy_delay exploration_noise",
    "exploration_noise_kind target_noise target_noise_clip hidden_sizes activation image_encoder",
    "normalize_obs",
)
@dataclass(frozen=True, kw_only=True)
class TD3Config(TwinCriticConfig):
    """Settings of TD3. Every field is a flag of ``rookery train td3``.

    Attributes:
        updates_per_step: Gradient steps of the critics per env step, regardless of the number of
            envs.
        policy_delay: Gradient steps of the critics for each gradient step of the actor and each
            update of the target networks.
        exploration_noise: Standard deviation of the noise on actions, which are scaled to [-1, 1].
        exploration_noise_kind: normal (independent at every step) or ornstein-uhlenbeck (correlated
            over time, zero at the start of every episode, with theta 0.15 and dt 0.01). For the
            latter, exploration_noise is sigma, and the standard deviation grows from 0.1 to 1.8
            times sigma.
        target_noise: Standard deviation of the noise on the target actions.
        target_noise_clip: Maximum absolute value of the noise on the target actions.
    """

    policy_delay: int = 2
    exploration_noise: float = 0.1
    exploration_noise_kind: Literal["normal", "ornstein-uhlenbeck"] = "normal"
    target_noise: float = 0.2
    target_noise_clip: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        counts(self, "policy_delay")
        at_least(self, 0, "exploration_noise", "target_noise", "target_noise_clip")
        check_choice(
            "exploration_noise_kind", self.exploration_noise_kind, ("normal", "ornstein-uhlenbeck")
        )
