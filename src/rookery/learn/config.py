"""Settings of the learners, importable without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rookery.common.arguments import check_choice
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


@dataclass(frozen=True, slots=True)
class PPOConfig(Config):
    """Settings of PPO. Every field is a flag of ``rookery train ppo``.

    Attributes:
        num_steps: Steps of every env per rollout.
        num_epochs: Passes over each rollout.
        minibatch_size: Transitions per gradient step.
        gamma: Discount.
        gae_lambda: Lambda of generalised advantage estimation.
        learning_rate: Adam's step size at the start, or a function of the share that is done.
        final_learning_rate: Step size at the end, reached linearly; unset, it stays constant.
        clip_range: How far the probability ratio may leave 1 at the start, or a function likewise.
        final_clip_range: Clip range at the end, reached linearly; unset, it stays constant.
        value_clip_range: How far a value may move from the rollout's; unset, any distance.
        entropy_coef: Weight of the entropy bonus, or a function likewise.
        value_coef: Weight of the value loss.
        max_grad_norm: Longest gradient; longer ones are scaled down.
        normalize_advantage: Whether advantages are standardised per minibatch.
        target_kl: No further epochs once the approximate KL divergence passes this.
        hidden_sizes: Widths of the hidden layers. Unset: 64 64; none if the observation is one
            image or a memory follows.
        activation: tanh or relu.
        image_encoder: Network that reads images: nature (Mnih et al. 2015), or impala (Espeholt et
            al. 2018), which is deeper and takes several times as long.
        initial_log_std: Logarithm of the deviation of continuous actions at the start; of
            state-dependent noise, of the deviations of its matrix.
        state_dependent_noise: Explore by noise that is a function of the state for some steps
            (Raffin et al. 2021), instead of drawing it anew at every step; for Box actions.
        noise_interval: Steps for which such a function is kept; -1 keeps it for num_steps.
        orthogonal_init: Initial weights of towers and heads are orthogonal, those of the actor's
            head a hundredth; without, uniform within 1/sqrt(inputs), as torch's own are.
        normalize_obs: Standardise observations by running statistics.
        normalize_reward: Divide rewards by the running deviation of the return.
        recurrent: Remember the episode, in gated recurrent units (gru) or long short-term memories
            (lstm) behind the hidden layers; there are none of those unless they are asked for.
        memory_size: Units of each memory.
        sequence_length: Steps through which gradients flow back in time; it divides num_steps.
        device: Where torch learns: cpu, cuda, cuda:N or mps. Policies act on the cpu.
        compile: Translate torch networks by torch.compile; needs a C++ compiler.
    """

    num_steps: int = 128
    num_epochs: int = 10
    minibatch_size: int = 256
    gamma: float = 0.99
    gae_lambda: float = 0.95
    learning_rate: Scheduled = 1e-3
    final_learning_rate: float | None = 0.0
    clip_range: Scheduled = 0.2
    final_clip_range: float | None = None
    value_clip_range: float | None = None
    entropy_coef: Scheduled = 0.0
    value_coef: float = 0.5
    max_grad_norm: float = 0.5
    normalize_advantage: bool = True
    target_kl: float | None = None
    hidden_sizes: tuple[int, ...] | None = None
    activation: str = "tanh"
    image_encoder: Literal["nature", "impala"] = "nature"
    initial_log_std: float = 0.0
    state_dependent_noise: bool = False
    noise_interval: int = -1
    orthogonal_init: bool = True
    normalize_obs: bool = False
    normalize_reward: bool = False
    recurrent: Literal["none", "gru", "lstm"] = "none"
    memory_size: int = 64
    sequence_length: int = 16
    device: str = "cpu"
    compile: bool = False

    def __post_init__(self) -> None:
        counts(self, "num_steps", "num_epochs", "minibatch_size", "memory_size", "sequence_length")
        known_memory(self)
        if self.recurrent != "none" and self.num_steps % self.sequence_length:
            raise ConfigError(
                f"sequence_length is {self.sequence_length}; it must divide num_steps, which is "
                f"{self.num_steps}"
            )
        at_least(self, 0, "learning_rate", "clip_range", "entropy_coef", "max_grad_norm")
        shares(self, "gamma", "gae_lambda")
        finite(self, "initial_log_std")
        known_interval(self)
        known_network(self)
        known_device(self)
        flags(self)

    def rows_per_gradient_step(self, num_envs: int) -> int:
        return min(self.minibatch_size, self.num_steps * num_envs)

    def check(self, num_envs: int) -> None:
        rows = self.num_steps * num_envs
        if self.minibatch_size > rows and self.minibatch_size != type(self)().minibatch_size:
            raise ConfigError(
                f"minibatch_size is {self.minibatch_size}, but a rollout of {num_envs} envs with "
                f"num_steps {self.num_steps} has {rows} transitions only"
            )


@dataclass(frozen=True, slots=True)
class ImpalaConfig(Config):
    """Settings of IMPALA. Every field is a flag of ``rookery train impala``.

    Attributes:
        num_steps: Steps of every env per rollout.
        gamma: Discount.
        trace_lambda: Lambda of V-trace; 1 is the paper's.
        rho_clip: Bound on the importance weight of a step.
        c_clip: Bound on the weight that carries corrections back.
        learning_rate: Adam's step size at the start, or a function of the share that is done.
        final_learning_rate: Step size at the end, reached linearly; unset, it stays constant.
        entropy_coef: Weight of the entropy bonus, or a function likewise.
        value_coef: Weight of the value loss.
        max_grad_norm: Longest gradient; longer ones are scaled down.
        normalize_advantage: Whether advantages are standardised per rollout.
        hidden_sizes: Widths of the hidden layers. Unset: 64 64; none if the observation is one
            image or a memory follows.
        activation: tanh or relu.
        image_encoder: Network that reads images: nature (Mnih et al. 2015), or impala (Espeholt et
            al. 2018), which is deeper and takes several times as long.
        normalize_obs: Standardise observations by running statistics.
        recurrent: Remember the episode, in gated recurrent units (gru) or long short-term memories
            (lstm) behind the hidden layers; there are none of those unless they are asked for.
        memory_size: Units of each memory.
        device: Where torch learns: cpu, cuda, cuda:N or mps. Policies act on the cpu.
        compile: Translate torch networks by torch.compile; needs a C++ compiler.
    """

    num_steps: int = 20
    gamma: float = 0.99
    trace_lambda: float = 1.0
    rho_clip: float = 1.0
    c_clip: float = 1.0
    learning_rate: Scheduled = 2e-3
    final_learning_rate: float | None = 0.0
    entropy_coef: Scheduled = 0.01
    value_coef: float = 0.5
    max_grad_norm: float = 0.5
    normalize_advantage: bool = False
    hidden_sizes: tuple[int, ...] | None = None
    activation: str = "tanh"
    image_encoder: Literal["nature", "impala"] = "nature"
    normalize_obs: bool = False
    recurrent: Literal["none", "gru", "lstm"] = "none"
    memory_size: int = 64
    device: str = "cpu"
    compile: bool = False

    def __post_init__(self) -> None:
        counts(self, "num_steps", "memory_size")
        known_memory(self)
        at_least(self, 0, "rho_clip", "c_clip", "learning_rate", "entropy_coef", "max_grad_norm")
        shares(self, "gamma", "trace_lambda")
        known_network(self)
        known_device(self)
        flags(self)


@dataclass(frozen=True, slots=True)
class A2CConfig(Config):
    """Settings of A2C. Every field is a flag of ``rookery train a2c``.

    Attributes:
        num_steps: Steps of every env per rollout, and so per gradient step.
        gamma: Discount.
        gae_lambda: Lambda of generalised advantage estimation; 1 is the n-step advantage.
        learning_rate: RMSProp's step size at the start, or a function of the share that is done.
        final_learning_rate: Step size at the end, reached linearly; unset, it stays constant.
        entropy_coef: Weight of the entropy bonus, or a function likewise.
        value_coef: Weight of the value loss.
        max_grad_norm: Longest gradient; longer ones are scaled down.
        normalize_advantage: Whether advantages are standardised per rollout.
        rms_decay: Decay of RMSProp's mean of squared gradients.
        rms_epsilon: Added to its root.
        hidden_sizes: Widths of the hidden layers. Unset: 64 64; none if the observation is one
            image or a memory follows.
        activation: tanh or relu.
        image_encoder: Network that reads images: nature (Mnih et al. 2015), or impala (Espeholt et
            al. 2018), which is deeper and takes several times as long.
        initial_log_std: Logarithm of the deviation of continuous actions at the start; of
            state-dependent noise, of the deviations of its matrix.
        state_dependent_noise: Explore by noise that is a function of the state for some steps
            (Raffin et al. 2021), instead of drawing it anew at every step; for Box actions.
        noise_interval: Steps for which such a function is kept; -1 keeps it for num_steps.
        orthogonal_init: Initial weights of towers and heads are orthogonal, those of the actor's
            head a hundredth; without, uniform within 1/sqrt(inputs), as torch's own are.
        normalize_obs: Standardise observations by running statistics.
        normalize_reward: Divide rewards by the running deviation of the return.
        recurrent: Remember the episode, in gated recurrent units (gru) or long short-term memories
            (lstm) behind the hidden layers; there are none of those unless they are asked for.
        memory_size: Units of each memory.
        device: Where torch learns: cpu, cuda, cuda:N or mps. Policies act on the cpu.
        compile: Translate torch networks by torch.compile; needs a C++ compiler.
    """

    num_steps: int = 5
    gamma: float = 0.99
    gae_lambda: float = 1.0
    learning_rate: Scheduled = 3e-3
    final_learning_rate: float | None = 0.0
    entropy_coef: Scheduled = 0.0
    value_coef: float = 0.5
    max_grad_norm: float = 0.5
    normalize_advantage: bool = False
    rms_decay: float = 0.99
    rms_epsilon: float = 1e-5
    hidden_sizes: tuple[int, ...] | None = None
    activation: str = "tanh"
    image_encoder: Literal["nature", "impala"] = "nature"
    initial_log_std: float = 0.0
    state_dependent_noise: bool = False
    noise_interval: int = -1
    orthogonal_init: bool = True
    normalize_obs: bool = False
    normalize_reward: bool = False
    recurrent: Literal["none", "gru", "lstm"] = "none"
    memory_size: int = 64
    device: str = "cpu"
    compile: bool = False

    def __post_init__(self) -> None:
        counts(self, "num_steps", "memory_size")
        known_memory(self)
        at_least(self, 0, "learning_rate", "entropy_coef", "max_grad_norm", "rms_epsilon")
        shares(self, "gamma", "gae_lambda", "rms_decay")
        finite(self, "initial_log_std")
        known_interval(self)
        known_network(self)
        known_device(self)
        flags(self)


@dataclass(frozen=True, slots=True)
class ReplayConfig(Config):
    """What the settings of all learners from replay begin with.

    Attributes:
        num_steps: Steps of every env between two calls of the learner.
        updates_per_step: Gradient steps per env step, whatever the number of envs.
        warmup_steps: Env steps before the first gradient step.
        replay_size: Transitions that are kept, over all envs.
        save_replay: Whether checkpoints keep the replay, so that a resumed run is the same run.
        batch_size: Transitions per gradient step.
        gamma: Discount.
        n_step: Rewards that are summed before a value stands in for the rest.
        orthogonal_init: Initial weights behind the encoder are orthogonal, those of the last layer
            of actor or action values a hundredth, and biases zero; without, both are uniform within
            1/sqrt(inputs), as torch's own are.
    """

    num_steps: int = 1
    updates_per_step: float = 1.0
    warmup_steps: int = 1_000
    replay_size: int = 200_000
    save_replay: bool = True
    batch_size: int = 256
    gamma: float = 0.99
    n_step: int = 1
    orthogonal_init: bool = True

    # Subclasses call it by its class: super() does not find its way in a dataclass with slots.
    def __post_init__(self) -> None:
        counts(self, "num_steps", "replay_size", "batch_size", "n_step")
        at_least(self, 0, "updates_per_step", "warmup_steps", "learning_rate", "adam_epsilon")
        shares(self, "gamma", "target_rate")
        known_network(self)
        known_device(self)
        flags(self)

    def rows_per_gradient_step(self, num_envs: int) -> int:
        return self.batch_size

    def check(self, num_envs: int) -> None:
        self.replay_rows(num_envs)

    def replay_rows(self, num_envs: int) -> int:
        """How many steps of every env the replay keeps."""
        rows = self.replay_size // num_envs
        if rows < self.num_steps:
            raise ConfigError(
                f"replay_size is {self.replay_size}; {num_envs} envs with num_steps "
                f"{self.num_steps} need at least {self.num_steps * num_envs}"
            )
        return rows


@dataclass(frozen=True, slots=True)
class DQNConfig(ReplayConfig):
    """Settings of DQN. Every field is a flag of ``rookery train dqn``.

    Those of `ReplayConfig` are among them; what is said of one here counts.

    Attributes:
        double: Let the online network choose the action that the target network values.
        dueling: Learn the state's value and the actions' advantages in separate towers.
        prioritized: Draw transitions by their error.
        priority_exponent: Alpha of prioritised replay; 0 draws all alike.
        priority_correction: Beta of prioritised replay at the start; it reaches 1 at the end.
        learning_rate: Adam's step size at the start, or a function of the share that is done.
        final_learning_rate: Step size at the end, reached linearly; unset, it stays constant.
        target_interval: Gradient steps between two updates of the target network.
        target_rate: How far the target network goes towards the online one; 1 copies it.
        initial_epsilon: Share of random actions at the start.
        final_epsilon: Share of random actions at the end of exploration.
        exploration_fraction: Part of the training in which the share falls, linearly.
        adam_epsilon: Added to the root of Adam's mean of squared gradients.
        max_grad_norm: Longest gradient; longer ones are scaled down.
        hidden_sizes: Widths of the hidden layers. Unset: 128 128; none if the observation is one
            image.
        activation: tanh or relu.
        image_encoder: Network that reads images: nature (Mnih et al. 2015), or impala (Espeholt et
            al. 2018), which is deeper and takes several times as long.
        normalize_obs: Standardise observations by running statistics.
        device: Where torch learns: cpu, cuda, cuda:N or mps. Policies act on the cpu.
        compile: Translate torch networks by torch.compile; needs a C++ compiler.
    """

    num_steps: int = 4
    updates_per_step: float = 0.5
    replay_size: int = 100_000
    batch_size: int = 128
    n_step: int = 3
    double: bool = True
    dueling: bool = True
    prioritized: bool = False
    priority_exponent: float = 0.6
    priority_correction: float = 0.4
    learning_rate: Scheduled = 1e-3
    final_learning_rate: float | None = 0.0
    target_interval: int = 100
    target_rate: float = 1.0
    initial_epsilon: float = 1.0
    final_epsilon: float = 0.05
    exploration_fraction: float = 0.2
    adam_epsilon: float = 1e-5
    max_grad_norm: float = 10.0
    hidden_sizes: tuple[int, ...] | None = None
    activation: str = "relu"
    image_encoder: Literal["nature", "impala"] = "nature"
    normalize_obs: bool = False
    device: str = "cpu"
    compile: bool = False

    def __post_init__(self) -> None:
        ReplayConfig.__post_init__(self)
        counts(self, "target_interval")
        at_least(self, 0, "max_grad_norm")
        shares(self, "initial_epsilon", "final_epsilon", "exploration_fraction")
        shares(self, "priority_exponent", "priority_correction")


@dataclass(frozen=True, slots=True)
class QRDQNConfig(ReplayConfig):
    """Settings of QR-DQN. Every field is a flag of ``rookery train qrdqn``.

    Those of `ReplayConfig` are among them; what is said of one here counts.

    Attributes:
        num_quantiles: Quantiles of the return that are learned of every action.
        huber_limit: Error up to which the quantiles' loss is quadratic; 0 makes it linear all over.
        double: Let the online network choose the action that the target network values.
        prioritized: Draw transitions by their error.
        priority_exponent: Alpha of prioritised replay; 0 draws all alike.
        priority_correction: Beta of prioritised replay at the start; it reaches 1 at the end.
        learning_rate: Adam's step size at the start, or a function of the share that is done.
        final_learning_rate: Step size at the end, reached linearly; unset, it stays constant.
        target_interval: Gradient steps between two updates of the target network.
        target_rate: How far the target network goes towards the online one; 1 copies it.
        initial_epsilon: Share of random actions at the start.
        final_epsilon: Share of random actions at the end of exploration.
        exploration_fraction: Part of the training in which the share falls, linearly.
        adam_epsilon: Added to the root of Adam's mean of squared gradients.
        max_grad_norm: Longest gradient, of a loss that is summed over the quantiles; longer ones
            are scaled down.
        hidden_sizes: Widths of the hidden layers. Unset: 128 128; none if the observation is one
            image.
        activation: tanh or relu.
        image_encoder: Network that reads images: nature (Mnih et al. 2015), or impala (Espeholt et
            al. 2018), which is deeper and takes several times as long.
        normalize_obs: Standardise observations by running statistics.
        device: Where torch learns: cpu, cuda, cuda:N or mps. Policies act on the cpu.
        compile: Translate torch networks by torch.compile; needs a C++ compiler.
    """

    num_steps: int = 4
    updates_per_step: float = 0.5
    replay_size: int = 100_000
    batch_size: int = 128
    n_step: int = 3
    num_quantiles: int = 50
    huber_limit: float = 1.0
    double: bool = True
    prioritized: bool = False
    priority_exponent: float = 0.6
    priority_correction: float = 0.4
    learning_rate: Scheduled = 1e-3
    final_learning_rate: float | None = 0.0
    target_interval: int = 100
    target_rate: float = 1.0
    initial_epsilon: float = 1.0
    final_epsilon: float = 0.05
    exploration_fraction: float = 0.2
    adam_epsilon: float = 1e-5
    max_grad_norm: float = 500.0
    hidden_sizes: tuple[int, ...] | None = None
    activation: str = "relu"
    image_encoder: Literal["nature", "impala"] = "nature"
    normalize_obs: bool = False
    device: str = "cpu"
    compile: bool = False

    def __post_init__(self) -> None:
        ReplayConfig.__post_init__(self)
        counts(self, "target_interval", "num_quantiles")
        at_least(self, 0, "max_grad_norm", "huber_limit")
        shares(self, "initial_epsilon", "final_epsilon", "exploration_fraction")
        shares(self, "priority_exponent", "priority_correction")


@dataclass(frozen=True, slots=True)
class SACConfig(ReplayConfig):
    """Settings of SAC. Every field is a flag of ``rookery train sac``.

    Those of `ReplayConfig` are among them; what is said of one here counts.

    Attributes:
        warmup_steps: Env steps before the first gradient step, with actions drawn uniformly.
        n_step: Rewards, with the entropies between them, that are summed before a value stands in
            for the rest.
        learning_rate: Adam's step size, of actor, critics and entropy coefficient, or a function
            of the share that is done.
        adam_epsilon: Added to the root of Adam's mean of squared gradients.
        target_rate: How far the target critics go towards the critics at every gradient step.
        entropy_coef: Weight of the entropy; unset, learned.
        target_entropy: Entropy that the learned weight aims at; unset, minus the action's size.
        state_dependent_noise: Explore by noise that is a function of the state for some steps
            (Raffin et al. 2021), instead of drawing it anew at every step. Deviations are then
            parameters instead of outputs of the network.
        noise_interval: Steps for which such a function is kept; -1 keeps it for num_steps.
        initial_log_std: Logarithm of those deviations at the start.
        hidden_sizes: Widths of the hidden layers; unset, 64 64.
        activation: tanh or relu.
        image_encoder: Network that reads images: nature (Mnih et al. 2015), or impala (Espeholt et
            al. 2018), which is deeper and takes several times as long.
        normalize_obs: Standardise observations by running statistics.
        device: Where torch learns: cpu, cuda, cuda:N or mps. Policies act on the cpu.
    """

    learning_rate: Scheduled = 1e-3
    adam_epsilon: float = 1e-8
    target_rate: float = 0.005
    entropy_coef: float | None = None
    target_entropy: float | None = None
    state_dependent_noise: bool = False
    noise_interval: int = -1
    initial_log_std: float = -3.0
    hidden_sizes: tuple[int, ...] | None = None
    activation: str = "relu"
    image_encoder: Literal["nature", "impala"] = "nature"
    normalize_obs: bool = False
    device: str = "cpu"

    def __post_init__(self) -> None:
        ReplayConfig.__post_init__(self)
        if self.entropy_coef is not None:
            at_least(self, 0, "entropy_coef")
        finite(self, "initial_log_std")
        known_interval(self)


@dataclass(frozen=True, slots=True)
class TD3Config(ReplayConfig):
    """Settings of TD3. Every field is a flag of ``rookery train td3``.

    Those of `ReplayConfig` are among them; what is said of one here counts.

    Attributes:
        updates_per_step: Gradient steps of the critics per env step, whatever the number of envs.
        warmup_steps: Env steps before the first gradient step, with actions drawn uniformly.
        learning_rate: Adam's step size, of actor and critics, or a function of the share that is
            done.
        adam_epsilon: Added to the root of Adam's mean of squared gradients.
        target_rate: How far the targets go towards actor and critics when these are followed.
        policy_delay: Gradient steps of the critics for one of the actor and of the targets.
        exploration_noise: Deviation of the noise on actions; bounds of actions are -1 and 1 here.
        exploration_noise_kind: normal, drawn at every step by itself; or ornstein-uhlenbeck, which
            wanders from step to step and begins at zero in every episode (theta 0.15, dt 0.01;
            exploration_noise is its sigma, and its deviation grows from a tenth of it to 1.8 times
            of it).
        target_noise: Deviation of the noise on the actions of the targets.
        target_noise_clip: The most that noise may be.
        hidden_sizes: Widths of the hidden layers; unset, 64 64.
        activation: tanh or relu.
        image_encoder: Network that reads images: nature (Mnih et al. 2015), or impala (Espeholt et
            al. 2018), which is deeper and takes several times as long.
        normalize_obs: Standardise observations by running statistics.
        device: Where torch learns: cpu, cuda, cuda:N or mps. Policies act on the cpu.
    """

    learning_rate: Scheduled = 1e-3
    adam_epsilon: float = 1e-8
    target_rate: float = 0.005
    policy_delay: int = 2
    exploration_noise: float = 0.1
    exploration_noise_kind: Literal["normal", "ornstein-uhlenbeck"] = "normal"
    target_noise: float = 0.2
    target_noise_clip: float = 0.5
    hidden_sizes: tuple[int, ...] | None = None
    activation: str = "relu"
    image_encoder: Literal["nature", "impala"] = "nature"
    normalize_obs: bool = False
    device: str = "cpu"

    def __post_init__(self) -> None:
        ReplayConfig.__post_init__(self)
        counts(self, "policy_delay")
        at_least(self, 0, "exploration_noise", "target_noise", "target_noise_clip")
        check_choice(
            "exploration_noise_kind", self.exploration_noise_kind, ("normal", "ornstein-uhlenbeck")
        )
