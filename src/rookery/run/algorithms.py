"""Algorithms of a run: built-in ones by name or settings, custom ones, and their description."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium import Space

from rookery.common.arguments import near_names, unfit
from rookery.common.importing import imported, reference
from rookery.errors import ConfigError, MissingExtra
from rookery.learn.base import Algorithm, Learner
from rookery.learn.config import (
    A2CConfig,
    DQNConfig,
    ImpalaConfig,
    PPOConfig,
    QRDQNConfig,
    SACConfig,
    TD3Config,
)
from rookery.learn.config_base import Config
from rookery.learn.parallel.peers import ALONE, Peers
from rookery.policy.base import Policy
from rookery.rollout import Rollout
from rookery.run import checks
from rookery.run.env_source import resolve

# Settings and ``"module:Class"`` of the learner, which is imported when it is used.
BUILT_IN: dict[str, tuple[type[Config], str]] = {
    "ppo": (PPOConfig, "rookery.learn.on_policy.ppo:PPO"),
    "a2c": (A2CConfig, "rookery.learn.on_policy.a2c:A2C"),
    "impala": (ImpalaConfig, "rookery.learn.on_policy.impala:Impala"),
    "dqn": (DQNConfig, "rookery.learn.off_policy.dqn:DQN"),
    "qrdqn": (QRDQNConfig, "rookery.learn.off_policy.qrdqn:QRDQN"),
    "sac": (SACConfig, "rookery.learn.off_policy.sac:SAC"),
    "td3": (TD3Config, "rookery.learn.off_policy.td3:TD3"),
}


class OwnModules(NamedTuple):
    """Parts of an algorithm that the user replaces.

    Attributes:
        encoder: a callable ``(observation_space) -> nn.Module`` from observations to features
            ``[N, F]``, or several by dotted path of the part of a Dict that each reads.
        network: a callable ``(observation_space, action_space) -> nn.Module`` for the whole.
        learner: a subclass of `rookery.learn.base.Learner`, usually of the algorithm's own learner.
    """

    encoder: Any = None
    network: Any = None
    learner: Any = None

    def given(self) -> dict[str, Any]:
        """Return the parts that are not None, by name."""
        return {name: part for name, part in self._asdict().items() if part is not None}

    def networks(self) -> dict[str, Any]:
        """Return the encoder and the network that are not None, by name."""
        return {name: part for name, part in self.given().items() if name != "learner"}

    def check(self) -> None:
        """Raise if a part cannot be used.

        Raises:
            ConfigError: ``encoder`` or ``network`` is not callable, or ``learner`` is not a class
                of learners.
        """
        if self.learner is not None and not _is_learner_class(self.learner):
            raise unfit(
                "learner",
                "a subclass of a learner, such as rookery.learn.on_policy.ppo.PPO",
                self.learner,
            )
        for name, part in self.networks().items():
            by_path = part if isinstance(part, Mapping) and name == "encoder" else {None: part}
            for path, maker in by_path.items():
                called = name if path is None else f"{name}[{path!r}]"
                asked = "observation_space" + ", action_space" * (name == "network")
                if hasattr(maker, "forward") and not isinstance(maker, type):
                    raise ConfigError(
                        f"{called} is a module, a {type(maker).__name__}; pass a callable that "
                        f"makes it, as ({asked}) -> nn.Module, since a run may need several"
                    )
                if not callable(maker):
                    raise unfit(called, f"a callable ({asked}) -> nn.Module", maker)

    def to_dict(self) -> dict[str, str | None]:
        """Return the import address of each part that is given, or None if it has none."""
        return {name: reference(part) for name, part in self.given().items()}


class Given(NamedTuple):
    """The name of an algorithm, and the settings that the user has given.

    A settings object such as `PPOConfig` does not show which of its values are defaults.

    Attributes:
        name: a key of ``BUILT_IN``.
        changes: settings that the user has given, by name.
    """

    name: str
    changes: Mapping[str, Any]


class BuiltIn(Algorithm):
    """An algorithm of this library, with settings and optional custom parts.

    Args:
        name: a key of ``BUILT_IN``.
        config: settings of the algorithm; None means the defaults.
        modules: parts that the user replaces.

    Attributes:
        config: the settings.
        modules: parts that the user replaces.

    Raises:
        ConfigError: ``modules.learner`` belongs to another algorithm.
        MissingExtra: torch is not installed.
    """

    config: Config

    def __init__(
        self, name: str, config: Config | None = None, modules: OwnModules | None = None
    ) -> None:
        self._learner_class = _library_learner(name)
        self.name = name
        self.modules = modules or OwnModules()
        if self.modules.learner is not None:
            _require_learner_of(name, self.modules.learner)
            self._learner_class = self.modules.learner
        self.config = BUILT_IN[name][0]() if config is None else config
        self.num_steps = self.config.num_steps
        self.collectors = self._learner_class.collectors
        self.reads_values = self._learner_class.reads_values
        self.keeps_replay = self._learner_class.keeps_replay
        self.log_steps = self._learner_class.log_steps
        self.latest_metrics = self._learner_class.latest_metrics
        self.summed_metrics = self._learner_class.summed_metrics

    @property
    def makes_own_policy(self) -> bool:
        """True if the user's learner replaces `Learner.make_policy`."""
        return self._learner_class.make_policy is not _library_learner(self.name).make_policy

    def make_policy(
        self, observation_space: Space[Any], action_space: Space[Any], seed: int
    ) -> Policy:
        policy: Policy = self._learner_class.make_policy(
            self.config, observation_space, action_space, seed, **self.modules.networks()
        )
        return policy

    def start(self, policy: Policy, num_envs: int, seed: int, peers: Peers = ALONE) -> None:
        if self.reads_values and peers.rank == 0:
            warn_without_critic(self.name, policy)
        self._learner = self._learner_class(policy, self.config, num_envs, seed, peers)

    def update(self, rollout: Rollout, progress: float) -> dict[str, float]:
        return self._learner.update(rollout, progress)

    def state_dict(self) -> dict[str, Any]:
        return self._learner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._learner.load_state_dict(state)

    def replay_state(self) -> dict[str, Any] | None:
        return self._learner.replay_state()

    def load_replay_state(self, state: dict[str, Any]) -> None:
        self._learner.load_replay_state(state)


def _library_learner(name: str) -> type[Learner]:
    """Import the library's learner of an algorithm."""
    try:
        found: type[Learner] = imported(BUILT_IN[name][1])
    except ImportError as error:
        raise MissingExtra(f"{name} needs torch: pip install 'rookery[train]'") from error
    return found


def warn_without_critic(name: str, policy: Any) -> None:
    """Warn if the custom network of an actor-critic algorithm returns no values."""
    module = policy.model.module
    if not module.has_values:
        gym.logger.warn(
            "%s",
            f"network {type(module.network).__name__} returns no values, so {name} learns without "
            "a critic; return a tuple of outputs [N, K] and values [N]",
        )


def _is_learner_class(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, Learner)


def _algorithm_of_learner(learner: type[Learner]) -> str | None:
    """Return the name of the built-in algorithm that a learner derives from, or None."""
    bases = [f"{kind.__module__}:{kind.__qualname__}" for kind in learner.__mro__]
    return next((name for name, (_, address) in BUILT_IN.items() if address in bases), None)


def _require_learner_of(name: str, learner: type[Learner]) -> None:
    """Check that a learner does not derive from the learner of another algorithm.

    Raises:
        ConfigError: it does.
    """
    base = _algorithm_of_learner(learner)
    if base not in (None, name):
        settings = BUILT_IN[base or name][0].__name__
        raise ConfigError(
            f"learner {learner.__name__} is a learner of {base!r}, but algo is {name!r}; pass "
            f"algo={base!r} or algo=rookery.{settings}(...)"
        )


def is_own(algorithm: Algorithm) -> bool:
    """Return True if the user's code learns, so that its results need to be checked."""
    return not isinstance(algorithm, BuiltIn) or algorithm.modules.learner is not None


def algorithm_of(
    algo: Any, encoder: Any = None, network: Any = None, learner: Any = None
) -> Algorithm:
    """Return the algorithm that the user asked for.

    Args:
        algo: a name, settings such as a `PPOConfig`, or an object with the methods of `Algorithm`.
        encoder: see `OwnModules`.
        network: see `OwnModules`; not together with ``encoder``.
        learner: see `OwnModules`.

    Raises:
        ConfigError: ``algo`` is unknown, or the parts do not fit it.
    """
    modules = OwnModules(encoder, network, learner)
    modules.check()
    if isinstance(algo, Given):
        return BuiltIn(algo.name, BUILT_IN[algo.name][0].from_dict(algo.changes), modules)
    if isinstance(algo, str) and algo in BUILT_IN:
        return BuiltIn(algo, None, modules)
    for name, (kind, _) in BUILT_IN.items():
        if isinstance(algo, kind):
            return BuiltIn(name, algo, modules)
    missing = [name for name in _NEEDED if not hasattr(algo, name)]
    if not missing and not isinstance(algo, type):
        if modules.given():
            raise ConfigError(
                f"{' and '.join(modules.given())}: a custom algorithm makes its own policy and "
                "learns by itself; pass this to the algorithm's constructor instead"
            )
        checks.check_settings(algo)
        return algo  # type: ignore[no-any-return]
    if _is_learner_class(algo):
        base = _algorithm_of_learner(algo) or "ppo"
        raise ConfigError(
            f"algo {algo.__name__} is a class of learners; pass algo={base!r} (or a "
            f"{BUILT_IN[base][0].__name__}) and learner={algo.__name__}"
        )
    if isinstance(algo, type):
        raise ConfigError(
            f"algo {algo.__name__} is a class; pass an object of it, {algo.__name__}(...)"
        )
    near = near_names(str(algo), BUILT_IN, 1)
    hint = f"did you mean {near[0]!r}? C" if near else "c"
    raise ConfigError(
        f"algo {algo!r} is not known; {hint}hoose from {', '.join(map(repr, BUILT_IN))}, or pass "
        "settings such as rookery.PPOConfig(), or an object with the attributes "
        f"{', '.join(_NEEDED)} (see rookery.Algorithm)"
    )


_NEEDED = ("num_steps", "make_policy", "start", "update", "state_dict", "load_state_dict")


def config_of(algorithm: Algorithm) -> Config | None:
    """Return the settings of an algorithm; None for a custom one, unless it has a `Config`."""
    config = getattr(algorithm, "config", None)
    return config if isinstance(config, Config) else None


def name_of(algorithm: Algorithm) -> str:
    """Return the name of an algorithm for folders and titles."""
    return getattr(algorithm, "name", "") or type(algorithm).__name__.lower()


# Settings that determine the shapes of weights.
SHAPES = {
    "hidden_sizes", "activation", "normalize_obs", "recurrent", "memory_size", "dueling",
    "num_quantiles", "image_encoder", "state_dependent_noise",
}  # fmt: skip


def agent_algorithm(
    written: Mapping[str, Any], where: Path, algo: Any, modules: OwnModules
) -> Algorithm:
    """Create the algorithm that a checkpoint describes, without importing custom networks.

    Raises:
        ConfigError: the description is invalid, or needs an argument that is missing.
    """
    try:
        return algorithm_from_dict(written, algo, modules, imports=False, learns=False)
    except (KeyError, TypeError, ConfigError) as error:
        raise ConfigError(f"{where} cannot be understood: {error}") from error


def algorithm_to_dict(algorithm: Algorithm) -> dict[str, Any]:
    """Describe an algorithm for config.json and checkpoints; see `algorithm_from_dict`."""
    name, config = name_of(algorithm), config_of(algorithm)
    modules = algorithm.modules if isinstance(algorithm, BuiltIn) else OwnModules()
    return {
        "algo": name,
        name: None if config is None else config.to_dict(),
        "own": modules.to_dict(),
        "learner_makes_policy": isinstance(algorithm, BuiltIn) and algorithm.makes_own_policy,
    }


def algorithm_from_dict(
    written: Mapping[str, Any], algo: Any, modules: OwnModules, *, imports: bool, learns: bool
) -> Algorithm:
    """Rebuild an algorithm from what `algorithm_to_dict` recorded.

    Args:
        written: the record.
        algo: replaces the recorded algorithm, if it is not None.
        modules: parts that the user gives again.
        imports: whether recorded parts may be imported.
        learns: whether the algorithm will learn. To act, it needs a custom learner only if that
            one makes the policy.
    """
    if algo is not None:
        return algorithm_of(algo, *modules)
    name = written["algo"]
    if name not in BUILT_IN:
        raise ConfigError(
            f"its algorithm {name!r} is not built into this library; pass it again: algo=..."
        )
    modules.check()
    parts = modules._asdict()
    for part, address in written["own"].items():
        if part == "learner" and not learns and not written["learner_makes_policy"]:
            continue
        if parts[part] is None and imports and address is not None:
            parts[part] = resolve(address)
        if parts[part] is None:
            raise ConfigError(
                f"its {part} is custom ({address or 'a local function'}); pass it again: {part}=..."
            )
    return BuiltIn(name, BUILT_IN[name][0].from_dict(written[name]), OwnModules(**parts))
