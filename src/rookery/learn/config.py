"""Settings of the learners, importable without torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, TypeVar

from rookery.env.arguments import known_names, unfit, whole_number
from rookery.env.references import imported, reference
from rookery.errors import ConfigError

C = TypeVar("C", bound="Config")

# A number, or a function of the share of training that is done, from 0 to 1.
Scheduled: TypeAlias = float | Callable[[float], float]


class Config:
    """Settings of one algorithm: a frozen dataclass that JSON can hold.

    Attributes:
        num_steps: steps of every env before each call of the learner.
        hidden_sizes: widths of the hidden layers.
    """

    __slots__ = ()

    num_steps: int
    hidden_sizes: tuple[int, ...] | None

    def to_dict(self) -> dict[str, Any]:
        """Fields by name, as plain data; a function is written as where it can be imported."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {k: {"function": reference(v)} if callable(v) else v for k, v in values.items()}

    def rows_per_gradient_step(self, num_envs: int) -> int:
        """How many transitions one gradient step reads."""
        return self.num_steps * num_envs

    def check(self, num_envs: int) -> None:
        """Complain of settings that do not go with so many envs.

        Raises:
            ConfigError: then.
        """
        return

    @property
    def is_recurrent(self) -> bool:
        """Whether the policy remembers the episode."""
        return getattr(self, "recurrent", "none") != "none"

    @classmethod
    def from_dict(cls: type[C], values: Mapping[str, Any]) -> C:
        """Undo `to_dict`, also after a trip through JSON, which turns tuples into lists.

        Raises:
            ConfigError: there is no such setting, or one has a value that cannot be.
        """
        known_names([field.name for field in fields(cls)], values, f"settings of {cls.__name__}")  # type: ignore[arg-type]
        return cls(**{name: _value(name, value) for name, value in values.items()})


class _LostFunction:
    """Stands for a function that was not written down; it is an error to ask it anything."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, progress: float) -> float:
        raise ConfigError(
            f"{self._name} was a lambda or a local function, which config.json cannot hold; pass "
            f"it again: rookery.resume(run_dir, {self._name}=...)"
        )


def _value(name: str, value: Any) -> Any:
    """Undo what `Config.to_dict` and JSON have made of one value."""
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, dict):
        return value
    try:
        return imported(value["function"] or "")
    except (ImportError, AttributeError, ValueError):
        return _LostFunction(name)


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
        hidden_sizes: Widths of the hidden layers; unset, 64 64, or none behind an image network.
        activation: tanh or relu.
        image_encoder: Network that reads images: nature (Mnih et al. 2015), or impala (Espeholt et
            al. 2018), which is deeper and takes several times as long.
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
    normalize_obs: bool = False
    normalize_reward: bool = False
    recurrent: Literal["none", "gru", "lstm"] = "none"
    memory_size: int = 64
    sequence_length: int = 16
    device: str = "cpu"
    compile: bool = False

    def __post_init__(self) -> None:
        _counts(self, "num_steps", "num_epochs", "minibatch_size", "memory_size", "sequence_length")
        _known_memory(self)
        if self.recurrent != "none" and self.num_steps % self.sequence_length:
            raise ConfigError(
                f"sequence_length is {self.sequence_length}; it must divide num_steps, which is "
                f"{self.num_steps}"
            )
        _at_least(self, 0, "learning_rate", "clip_range", "entropy_coef", "max_grad_norm")
        _shares(self, "gamma", "gae_lambda")
        _known_network(self)
        _known_device(self)

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
        hidden_sizes: Widths of the hidden layers; unset, 64 64, or none behind an image network.
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
        _counts(self, "num_steps", "memory_size")
        _known_memory(self)
        _at_least(self, 0, "rho_clip", "c_clip", "learning_rate", "entropy_coef", "max_grad_norm")
        _shares(self, "gamma", "trace_lambda")
        _known_network(self)
        _known_device(self)


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
        rms_epsilon: Added to it under the root.
        hidden_sizes: Widths of the hidden layers; unset, 64 64, or none behind an image network.
        activation: tanh or relu.
        image_encoder: Network that reads images: nature (Mnih et al. 2015), or impala (Espeholt et
            al. 2018), which is deeper and takes several times as long.
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
    rms_epsilon: float = 1e-8
    hidden_sizes: tuple[int, ...] | None = None
    activation: str = "tanh"
    image_encoder: Literal["nature", "impala"] = "nature"
    normalize_obs: bool = False
    normalize_reward: bool = False
    recurrent: Literal["none", "gru", "lstm"] = "none"
    memory_size: int = 64
    device: str = "cpu"
    compile: bool = False

    def __post_init__(self) -> None:
        _counts(self, "num_steps", "memory_size")
        _known_memory(self)
        _at_least(self, 0, "learning_rate", "entropy_coef", "max_grad_norm", "rms_epsilon")
        _shares(self, "gamma", "gae_lambda", "rms_decay")
        _known_network(self)
        _known_device(self)


@dataclass(frozen=True, slots=True)
class DQNConfig(Config):
    """Settings of DQN. Every field is a flag of ``rookery train dqn``.

    Attributes:
        num_steps: Steps of every env between two calls of the learner.
        updates_per_step: Gradient steps per env step, whatever the number of envs.
        warmup_steps: Env steps before the first gradient step.
        replay_size: Transitions that are kept, over all envs.
        save_replay: Whether checkpoints keep the replay, so that a resumed run is the same run.
        batch_size: Transitions per gradient step.
        gamma: Discount.
        n_step: Rewards that are summed before a value stands in for the rest.
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
        hidden_sizes: Widths of the hidden layers; unset, 128 128, or none behind an image
            network.
        activation: tanh or relu.
        image_encoder: Network that reads images: nature (Mnih et al. 2015), or impala (Espeholt et
            al. 2018), which is deeper and takes several times as long.
        normalize_obs: Standardise observations by running statistics.
        device: Where torch learns: cpu, cuda, cuda:N or mps. Policies act on the cpu.
        compile: Translate torch networks by torch.compile; needs a C++ compiler.
    """

    num_steps: int = 4
    updates_per_step: float = 0.5
    warmup_steps: int = 1_000
    replay_size: int = 100_000
    save_replay: bool = True
    batch_size: int = 128
    gamma: float = 0.99
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
        _counts(self, "num_steps", "replay_size", "batch_size", "n_step", "target_interval")
        _at_least(self, 0, "updates_per_step", "warmup_steps", "learning_rate", "max_grad_norm")
        _at_least(self, 0, "adam_epsilon")
        _shares(self, "gamma", "initial_epsilon", "final_epsilon", "exploration_fraction")
        _shares(self, "priority_exponent", "priority_correction", "target_rate")
        _known_network(self)
        _known_device(self)

    def rows_per_gradient_step(self, num_envs: int) -> int:
        return self.batch_size

    def check(self, num_envs: int) -> None:
        self.replay_rows(num_envs)

    def replay_rows(self, num_envs: int) -> int:
        """How many steps of every env the replay keeps."""
        return _replay_rows(self.replay_size, self.num_steps, num_envs)


@dataclass(frozen=True, slots=True)
class QRDQNConfig(Config):
    """Settings of QR-DQN. Every field is a flag of ``rookery train qrdqn``.

    Attributes:
        num_steps: Steps of every env between two calls of the learner.
        updates_per_step: Gradient steps per env step, whatever the number of envs.
        warmup_steps: Env steps before the first gradient step.
        replay_size: Transitions that are kept, over all envs.
        save_replay: Whether checkpoints keep the replay, so that a resumed run is the same run.
        batch_size: Transitions per gradient step.
        gamma: Discount.
        n_step: Rewards that are summed before a value stands in for the rest.
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
        hidden_sizes: Widths of the hidden layers; unset, 128 128, or none behind an image
            network.
        activation: tanh or relu.
        image_encoder: Network that reads images: nature (Mnih et al. 2015), or impala (Espeholt et
            al. 2018), which is deeper and takes several times as long.
        normalize_obs: Standardise observations by running statistics.
        device: Where torch learns: cpu, cuda, cuda:N or mps. Policies act on the cpu.
        compile: Translate torch networks by torch.compile; needs a C++ compiler.
    """

    num_steps: int = 4
    updates_per_step: float = 0.5
    warmup_steps: int = 1_000
    replay_size: int = 100_000
    save_replay: bool = True
    batch_size: int = 128
    gamma: float = 0.99
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
        _counts(self, "num_steps", "replay_size", "batch_size", "n_step", "target_interval")
        _counts(self, "num_quantiles")
        _at_least(self, 0, "updates_per_step", "warmup_steps", "learning_rate", "max_grad_norm")
        _at_least(self, 0, "adam_epsilon", "huber_limit")
        _shares(self, "gamma", "initial_epsilon", "final_epsilon", "exploration_fraction")
        _shares(self, "priority_exponent", "priority_correction", "target_rate")
        _known_network(self)
        _known_device(self)

    def rows_per_gradient_step(self, num_envs: int) -> int:
        return self.batch_size

    def check(self, num_envs: int) -> None:
        self.replay_rows(num_envs)

    def replay_rows(self, num_envs: int) -> int:
        """How many steps of every env the replay keeps."""
        return _replay_rows(self.replay_size, self.num_steps, num_envs)


@dataclass(frozen=True, slots=True)
class SACConfig(Config):
    """Settings of SAC. Every field is a flag of ``rookery train sac``.

    Attributes:
        num_steps: Steps of every env between two calls of the learner.
        updates_per_step: Gradient steps per env step, whatever the number of envs.
        warmup_steps: Env steps before the first gradient step, with actions drawn uniformly.
        replay_size: Transitions that are kept, over all envs.
        save_replay: Whether checkpoints keep the replay, so that a resumed run is the same run.
        batch_size: Transitions per gradient step.
        gamma: Discount.
        n_step: Rewards, with the entropies between them, that are summed before a value stands in
            for the rest.
        learning_rate: Adam's step size, of actor, critics and entropy coefficient, or a function
            of the share that is done.
        adam_epsilon: Added to the root of Adam's mean of squared gradients.
        target_rate: How far the target critics go towards the critics at every gradient step.
        entropy_coef: Weight of the entropy; unset, learned.
        target_entropy: Entropy that the learned weight aims at; unset, minus the action's size.
        hidden_sizes: Widths of the hidden layers; unset, 64 64.
        activation: tanh or relu.
        image_encoder: Network that reads images: nature (Mnih et al. 2015), or impala (Espeholt et
            al. 2018), which is deeper and takes several times as long.
        normalize_obs: Standardise observations by running statistics.
        device: Where torch learns: cpu, cuda, cuda:N or mps. Policies act on the cpu.
    """

    num_steps: int = 1
    updates_per_step: float = 1.0
    warmup_steps: int = 1_000
    replay_size: int = 200_000
    save_replay: bool = True
    batch_size: int = 256
    gamma: float = 0.99
    n_step: int = 1
    learning_rate: Scheduled = 1e-3
    adam_epsilon: float = 1e-8
    target_rate: float = 0.005
    entropy_coef: float | None = None
    target_entropy: float | None = None
    hidden_sizes: tuple[int, ...] | None = None
    activation: str = "relu"
    image_encoder: Literal["nature", "impala"] = "nature"
    normalize_obs: bool = False
    device: str = "cpu"

    def __post_init__(self) -> None:
        _counts(self, "num_steps", "replay_size", "batch_size", "n_step")
        _at_least(self, 0, "updates_per_step", "warmup_steps", "learning_rate", "adam_epsilon")
        _shares(self, "gamma", "target_rate")
        if self.entropy_coef is not None:
            _at_least(self, 0, "entropy_coef")
        _known_network(self)
        _known_device(self)

    def rows_per_gradient_step(self, num_envs: int) -> int:
        return self.batch_size

    def check(self, num_envs: int) -> None:
        self.replay_rows(num_envs)

    def replay_rows(self, num_envs: int) -> int:
        """How many steps of every env the replay keeps."""
        return _replay_rows(self.replay_size, self.num_steps, num_envs)


@dataclass(frozen=True, slots=True)
class TD3Config(Config):
    """Settings of TD3. Every field is a flag of ``rookery train td3``.

    Attributes:
        num_steps: Steps of every env between two calls of the learner.
        updates_per_step: Gradient steps of the critics per env step, whatever the number of envs.
        warmup_steps: Env steps before the first gradient step, with actions drawn uniformly.
        replay_size: Transitions that are kept, over all envs.
        save_replay: Whether checkpoints keep the replay, so that a resumed run is the same run.
        batch_size: Transitions per gradient step.
        gamma: Discount.
        n_step: Rewards that are summed before a value stands in for the rest.
        learning_rate: Adam's step size, of actor and critics, or a function of the share that is
            done.
        adam_epsilon: Added to the root of Adam's mean of squared gradients.
        target_rate: How far the targets go towards actor and critics when these are followed.
        policy_delay: Gradient steps of the critics for one of the actor and of the targets.
        exploration_noise: Deviation of the noise on actions; bounds of actions are -1 and 1 here.
        target_noise: Deviation of the noise on the actions of the targets.
        target_noise_clip: The most that noise may be.
        hidden_sizes: Widths of the hidden layers; unset, 64 64.
        activation: tanh or relu.
        image_encoder: Network that reads images: nature (Mnih et al. 2015), or impala (Espeholt et
            al. 2018), which is deeper and takes several times as long.
        normalize_obs: Standardise observations by running statistics.
        device: Where torch learns: cpu, cuda, cuda:N or mps. Policies act on the cpu.
    """

    num_steps: int = 1
    updates_per_step: float = 1.0
    warmup_steps: int = 1_000
    replay_size: int = 200_000
    save_replay: bool = True
    batch_size: int = 256
    gamma: float = 0.99
    n_step: int = 1
    learning_rate: Scheduled = 1e-3
    adam_epsilon: float = 1e-8
    target_rate: float = 0.005
    policy_delay: int = 2
    exploration_noise: float = 0.1
    target_noise: float = 0.2
    target_noise_clip: float = 0.5
    hidden_sizes: tuple[int, ...] | None = None
    activation: str = "relu"
    image_encoder: Literal["nature", "impala"] = "nature"
    normalize_obs: bool = False
    device: str = "cpu"

    def __post_init__(self) -> None:
        _counts(self, "num_steps", "replay_size", "batch_size", "n_step", "policy_delay")
        _at_least(self, 0, "updates_per_step", "warmup_steps", "learning_rate", "adam_epsilon")
        _at_least(self, 0, "exploration_noise", "target_noise", "target_noise_clip")
        _shares(self, "gamma", "target_rate")
        _known_network(self)
        _known_device(self)

    def rows_per_gradient_step(self, num_envs: int) -> int:
        return self.batch_size

    def check(self, num_envs: int) -> None:
        self.replay_rows(num_envs)

    def replay_rows(self, num_envs: int) -> int:
        """How many steps of every env the replay keeps."""
        return _replay_rows(self.replay_size, self.num_steps, num_envs)


def _replay_rows(replay_size: int, num_steps: int, num_envs: int) -> int:
    rows = replay_size // num_envs
    if rows < num_steps:
        raise ConfigError(
            f"replay_size is {replay_size}; {num_envs} envs with num_steps {num_steps} need at "
            f"least {num_steps * num_envs}"
        )
    return rows


def _at_least(config: Any, low: float, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if callable(value):
            if getattr(config, f"final_{name}", None) not in (None, 0.0):
                raise ConfigError(f"{name} is a function; it says itself where final_{name} is")
            continue
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise unfit(name, "a number", value)
        if not value >= low:  # NaN neither
            raise ConfigError(f"{name} is {value}; it must be at least {low}")


def _counts(config: Any, *names: str) -> None:
    for name in names:
        whole_number(name, getattr(config, name), 1)


def _shares(config: Any, *names: str) -> None:
    for name in names:
        if not 0.0 <= getattr(config, name) <= 1.0:
            raise ConfigError(f"{name} is {getattr(config, name)}; it must lie in [0, 1]")


def _known_network(config: Any) -> None:
    sizes = config.hidden_sizes
    is_tuple = isinstance(sizes, (tuple, list))
    if sizes is not None and not (is_tuple and all(type(n) is int and n > 0 for n in sizes)):
        raise unfit("hidden_sizes", "a tuple of widths, such as (64, 64)", sizes)
    if config.activation not in ("tanh", "relu"):
        raise ConfigError(f"activation is {config.activation!r}; it must be 'tanh' or 'relu'")
    image = config.image_encoder
    if image not in ("nature", "impala"):
        raise ConfigError(f"image_encoder is {image!r}; it must be 'nature' or 'impala'")


def _known_memory(config: Any) -> None:
    if config.recurrent not in ("none", "gru", "lstm"):
        raise ConfigError(f"recurrent is {config.recurrent!r}; it must be 'none', 'gru' or 'lstm'")
    if config.recurrent != "none" and config.compile:
        raise ConfigError(
            f"compile is for networks without memory; leave it out with recurrent="
            f"{config.recurrent!r}"
        )


def _known_device(config: Any) -> None:
    if not re.fullmatch(r"cpu|cuda(:\d+)?|mps", config.device):
        raise ConfigError(
            f"device is {config.device!r}; it must be 'cpu', 'cuda', 'cuda:N' or 'mps'"
        )
