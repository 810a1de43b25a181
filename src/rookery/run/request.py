"""RunRequest: everything that a user asks of a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from rookery.common.arguments import unfit
from rookery.run.agent import Agent
from rookery.run.algorithms import OwnModules
from rookery.run.log.sinks import Sink
from rookery.run.settings import TrainSettings

if TYPE_CHECKING:
    from rookery.run.callbacks import Callback

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class RunRequest:
    """The arguments of `rookery.train` and `rookery.Trainer`.

    `rookery.resume` and `rookery.evaluate` take them too. There, None keeps what the run used. An
    argument that config.json cannot hold, such as a lambda, is required again.

    Attributes:
        env: env to train on, as for `rookery.make_vec`: gym id, ``"module:Id"``, EnvSpec or
            callable.
        algo: "ppo", "a2c", "impala", "dqn", "qrdqn", "sac" or "td3", a config such as a
            `PPOConfig`, or a custom `Algorithm`.
        env_kwargs: keyword arguments of every env.
        wrappers: callables ``Env -> Env``, applied in the process that runs the env. They wrap the
            env after its preprocessing (``preprocess``, ``frame_stack``).
        callbacks: called as ``callback(trainer, update)`` after each update, in this order, after
            the callbacks that the settings create; see ``rookery.callbacks``. A run does not store
            them.
        sinks: further destinations of metrics: objects with ``write(step, metrics)`` and
            ``close()``. A run does not store them.
        encoder: custom encoder that replaces the built-in one: a callable ``(observation_space) ->
            nn.Module``. The module maps observations, a tree of tensors ``[N, ...]``, to features
            ``[N, F]``. For a Dict observation also a dict that maps dotted paths to encoders.
        network: custom network for the whole policy: a callable ``(observation_space,
            action_space) -> nn.Module``. The module maps observations to outputs and values; see
            docs/networks.md.
        learner: a subclass of the algorithm's learner, such as a subclass of
            `rookery.learn.on_policy.ppo.PPO` with its own ``loss``; see docs/algorithms.md.
        initial: an `Agent` that provides the initial weights of a new run.
        eval_env: env of evaluations and videos; None takes ``env``.
        eval_wrappers: wrappers of evaluation envs; None takes ``wrappers``.
        progress: print the env's preprocessing, the source of the settings, and the progress to
            standard error.
        settings: fields of `rookery.TrainSettings` by name. A resumed run also accepts those of
            its algorithm's config.
    """

    env: Any = None
    algo: Any = None
    env_kwargs: Mapping[str, Any] | None = None
    wrappers: Sequence[Callable[[Any], Any]] | None = None
    callbacks: Sequence[Callback] = ()
    sinks: Sequence[Sink] = ()
    encoder: Any = None
    network: Any = None
    learner: Any = None
    initial: Agent | None = None
    eval_env: Any = None
    eval_wrappers: Sequence[Callable[[Any], Any]] | None = None
    progress: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.initial, Agent | None):
            raise unfit("initial", "an Agent; rookery.load(path) makes one", self.initial)

    @classmethod
    def of(cls, **arguments: Any) -> RunRequest:
        """Create a request from keyword arguments; all that are not its fields are settings."""
        own = {name: value for name, value in arguments.items() if name in ARGUMENTS}
        settings = {name: value for name, value in arguments.items() if name not in ARGUMENTS}
        return cls(**own, settings=settings)

    @property
    def modules(self) -> OwnModules:
        """The parts of the algorithm that the user replaces."""
        return OwnModules(self.encoder, self.network, self.learner)


# Names of the arguments of `Trainer` that are not settings.
ARGUMENTS = {each.name for each in fields(RunRequest)} - {"settings"}
# Those that also make sense for a run that is only evaluated.
OF_EVALUATIONS = {"env", "algo", "env_kwargs", "wrappers", "encoder", "network", "learner"}


def shows_arguments(names: set[str], with_settings: bool) -> Callable[[Function], Function]:
    """Return a decorator for functions that take ``**arguments`` of a `RunRequest`.

    ``help``, editors and the docs then show these arguments, although they are written once.

    Args:
        names: the fields of `RunRequest` to show.
        with_settings: show the fields of `TrainSettings` too.
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        shown = [each for each in fields(RunRequest) if each.name in names]
        shown += fields(TrainSettings) if with_settings else ()
        more = [
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=each.default,
                annotation=each.type,
            )
            for each in shown
            if each.name not in signature.parameters
        ]
        function.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return function

    return decorate
