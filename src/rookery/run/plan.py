"""RunPlan: everything that a run is made from, and how config.json tells it."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from rookery.common.arguments import (
    checked_wrappers,
    known_names,
    near_names,
    whole_number,
    without_fraction,
)
from rookery.common.env_errors import in_words
from rookery.env.wrappers.action_mask import ActionMaskFromInfo
from rookery.errors import ConfigError
from rookery.learn.base import Algorithm
from rookery.learn.config_base import Config
from rookery.run.algorithms import (
    BUILT_IN,
    BuiltIn,
    Given,
    OwnModules,
    algorithm_of,
    name_of,
)
from rookery.run.checkpoint.run_dir import RunDirectory
from rookery.run.env_source import EnvSource, resolve
from rookery.run.families import family_of
from rookery.run.presets import AUTO, NONE, Preset, find_preset, is_file, presets
from rookery.run.presets.files import preset_of_run
from rookery.run.presets.scaling import scaled
from rookery.run.presets.tuned import Tuned, applied
from rookery.run.settings import TrainSettings

# What cannot change amid a run: shapes of what was saved, and what all random numbers come from.
_FIXED_SETTINGS = {
    "num_envs", "seed", "run_dir", "overwrite", "env_module", "masks_from_info", "preprocess",
    "frame_stack", "preset", "tuned", "scale_hyperparameters",
}  # fmt: skip
SHAPES = {
    "hidden_sizes", "activation", "normalize_obs", "recurrent", "memory_size", "dueling",
    "num_quantiles", "image_encoder", "state_dependent_noise",
}  # fmt: skip
_FIXED_CONFIG = SHAPES | {
    "num_steps", "normalize_reward", "prioritized", "replay_size", "initial_log_std",
    "orthogonal_init",
}  # fmt: skip


@dataclass(frozen=True)
class RunPlan:
    """What to train, with what, and how.

    Attributes:
        source: the envs.
        eval_source: the envs of evaluations.
        algorithm: what learns.
        settings: of the run.
        notes: what was settled by a tuned file and by scaling, in lines.
    """

    source: EnvSource
    eval_source: EnvSource
    algorithm: Algorithm
    settings: TrainSettings
    notes: tuple[str, ...] = ()

    @classmethod
    def new(
        cls,
        env: Any,
        algo: Any,
        settings: Mapping[str, Any],
        *,
        encoder: Any = None,
        network: Any = None,
        learner: Any = None,
        env_kwargs: Mapping[str, Any] | None = None,
        wrappers: Sequence[Callable[[Any], Any]] = (),
        eval_env: Any = None,
        eval_wrappers: Sequence[Callable[[Any], Any]] | None = None,
    ) -> RunPlan:
        """Make a plan of what a user has said.

        The arguments are those of `Trainer`; ``algo`` may be a `Preset`, too, with changes.

        Raises:
            ConfigError: what cannot be.
        """
        preset = _preset(env, algo, settings)
        given = settings
        if preset is not None:
            settings = {**preset.run, **settings, "preset": preset.name}
            whole_number("num_envs", without_fraction(settings["num_envs"]), 1)
        elif settings.get("preset") == AUTO:
            settings = {**settings, "preset": NONE}
        chosen_algo = algo if preset is None else preset.config
        algorithm = algorithm_of(chosen_algo, encoder, network, learner)
        _require_known(settings, algorithm)
        chosen = TrainSettings.from_dict(settings, "settings of a run")
        chosen.check_evaluations()
        outermost = (ActionMaskFromInfo,) if chosen.masks_from_info else ()
        inner = checked_wrappers(wrappers)
        source = EnvSource(
            env, env_kwargs or {}, (*inner, *outermost), chosen.env_module,
            chosen.preprocess, chosen.frame_stack,
        )  # fmt: skip
        chosen, notes = _tuned(chosen, given, algorithm, source)
        algorithm, reasons = _fitted(algorithm, chosen, algo, preset)
        eval_source = source
        if eval_env is not None or eval_wrappers is not None:
            own = None if eval_wrappers is None else (*eval_wrappers, *outermost)
            eval_source = source.changed(eval_env, None, own)
        return cls(source, eval_source.for_evaluation(), algorithm, chosen, (*notes, *reasons))

    @property
    def title(self) -> str:
        """A short name for pictures."""
        return f"{name_of(self.algorithm)} on {self.source.name}, seed {self.settings.seed}"

    def describe_settings(self) -> str:
        """Where the settings come from, in one line; empty for an algorithm of the user's own."""
        if not isinstance(self.algorithm, BuiltIn):
            return ""
        plain = (
            f"{self.algorithm.name} without a preset: its plain defaults, but for what was given"
        )
        return f"{self.source.name}: {self.preset or plain}"

    @property
    def preset(self) -> Preset | None:
        """Where settings are from that were not given; None if that is no preset any more."""
        name = self.settings.preset
        if is_file(name):
            return preset_of_run(name_of(self.algorithm), self.source.env, name)
        algo, _, env = name.partition("/")
        return presets(algo).get(env) if algo in BUILT_IN else None

    @property
    def expected_return(self) -> float | None:
        """What was published for the preset; None where the env is not the one it is for.

        An env of the user's own under a name that is known is another one, and so is one with
        arguments or wrappers.
        """
        preset, source = self.preset, self.source
        if preset is None or source.env != preset.env:
            return None
        is_changed = bool(source.env_kwargs or source.wrappers)
        is_the_known_one = bool(preset.file) or family_of(source.env) is not None
        return preset.expected if is_the_known_one and not is_changed else None

    def folder(self) -> RunDirectory:
        """Choose the run's folder; nothing is made yet."""
        settings = self.settings
        name = f"{self.source.name}-{name_of(self.algorithm)}-{settings.seed}"
        return RunDirectory.plan(settings.run_dir, name, settings.overwrite)

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to repeat the run, as JSON data."""
        return {
            **algorithm_to_dict(self.algorithm),
            "source": self.source.to_dict(),
            # None: the envs of training; a lambda beside a lambda would look the same
            "eval_source": (
                self.eval_source.to_dict() if self.eval_source.differs_from(self.source) else None
            ),
            "train": asdict(self.settings),
            "versions": versions(),
        }

    @classmethod
    def of_run(
        cls,
        folder: RunDirectory,
        *,
        algo: Any = None,
        encoder: Any = None,
        network: Any = None,
        learner: Any = None,
        env: Any = None,
        env_kwargs: Mapping[str, Any] | None = None,
        wrappers: Sequence[Callable[[Any], Any]] | None = None,
        eval_env: Any = None,
        eval_wrappers: Sequence[Callable[[Any], Any]] | None = None,
        changes: Mapping[str, Any] | None = None,
        to_evaluate: bool = False,
    ) -> RunPlan:
        """Read the plan of a run; what is given replaces what is written.

        Args:
            folder: of the run.
            algo: needed where the algorithm was an object of the user's own.
            encoder: needed where it was the user's own and cannot be imported by its name.
            network: likewise.
            learner: needed if the run had a custom learner that cannot be imported by its name.
            env: needed where it cannot be written down, such as a lambda; so the next two.
            env_kwargs: likewise.
            wrappers: likewise.
            eval_env: likewise, of evaluations.
            eval_wrappers: likewise.
            to_evaluate: nothing is trained: what is given is about the envs of evaluations.
            changes: settings to change, of the run or of its algorithm, by name.

        Raises:
            ConfigError: config.json cannot be understood, or a change cannot be made.
        """
        written = folder.read_config()
        try:
            # Runs that were written before there was preprocessing had none.
            told = {"preprocess": False, **written["train"]}
            settings = TrainSettings.from_dict(told, "settings of a run")
            modules = OwnModules(encoder, network, learner)
            algorithm = _algorithm(written, algo, modules, imports=True, learns=not to_evaluate)
            recorded = written["source"], written["eval_source"]
        except (KeyError, TypeError, ConfigError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else error
            raise ConfigError(f"{folder.config} cannot be understood: {what}") from error
        if wrappers is not None and settings.masks_from_info:
            wrappers = (*wrappers, ActionMaskFromInfo)
        if eval_wrappers is not None and settings.masks_from_info:
            eval_wrappers = (*eval_wrappers, ActionMaskFromInfo)
        if to_evaluate:
            source = EnvSource.from_dict(recorded[1] or recorded[0], env, env_kwargs, wrappers)
            source = source.for_evaluation()
            return cls(source, source, algorithm, settings)
        source = EnvSource.from_dict(recorded[0], env, env_kwargs, wrappers)
        eval_source = _evaluation_source(source, recorded[1], eval_env, eval_wrappers)
        plan = cls(source, eval_source.for_evaluation(), algorithm, settings)
        return plan._changed(changes) if changes else plan

    def _changed(self, changes: Mapping[str, Any]) -> RunPlan:
        """Change settings by name, wherever they belong."""
        names = {field.name for field in fields(TrainSettings)}
        config = getattr(self.algorithm, "config", None)
        of_config = {f.name for f in fields(config)} if isinstance(config, Config) else set()  # type: ignore[arg-type]
        known_names(names | of_config, changes, "settings of this run")
        changes = {k: v for k, v in changes.items() if v != _present(self.settings, config, k)}
        for name in changes:
            if name in (_FIXED_SETTINGS if name in names else _FIXED_CONFIG):
                raise ConfigError(
                    f"{name} cannot be changed amid a run; start another one (in Python, "
                    "initial=rookery.load(...) begins it with the weights of this one)"
                )
        run = {name: value for name, value in changes.items() if name in names}
        learner = {name: value for name, value in changes.items() if name not in names}
        algorithm = self.algorithm
        if learner:
            assert isinstance(algorithm, BuiltIn) and isinstance(config, Config)
            new = type(config).from_dict({**config.to_dict(), **learner})
            algorithm = BuiltIn(algorithm.name, new, algorithm.modules)
        settings = replace(self.settings, **run)
        if "eval_every" in run or "eval_episodes" in run:
            settings.check_evaluations()
        return replace(self, settings=settings, algorithm=algorithm)


def _present(settings: TrainSettings, config: Any, name: str) -> Any:
    """The value that a setting has, of the run or of its algorithm."""
    return getattr(settings, name) if hasattr(settings, name) else getattr(config, name)


def _evaluation_source(
    source: EnvSource, recorded: Mapping[str, Any] | None, env: Any, wrappers: Any
) -> EnvSource:
    """The envs of evaluations of a run that is read back.

    Args:
        source: the envs of training.
        recorded: how config.json tells those of evaluations; None where they are the same.
        env: replaces what is written there.
        wrappers: likewise.

    Raises:
        ConfigError: a part of them could not be written into config.json, and is not given.
    """
    if recorded is None:
        return source if env is None and wrappers is None else source.changed(env, None, wrappers)
    try:
        return EnvSource.from_dict(dict(recorded), env, None if env is None else {}, wrappers)
    except ConfigError as error:
        raise ConfigError(f"evaluations: {error} as eval_env=..., eval_wrappers=...") from error


def agent_algorithm(
    written: Mapping[str, Any], where: Path, algo: Any, modules: OwnModules
) -> Algorithm:
    """Return the algorithm of a checkpoint, without importing what the file names.

    Raises:
        ConfigError: it cannot be understood, or needs what is not given.
    """
    try:
        return _algorithm(written, algo, modules, imports=False, learns=False)
    except (KeyError, TypeError, ConfigError) as error:
        raise ConfigError(f"{where} cannot be understood: {error}") from error


def algorithm_to_dict(algorithm: Algorithm) -> dict[str, Any]:
    """Return what config.json and checkpoints record about an algorithm; `_algorithm` reads it."""
    name, config = name_of(algorithm), getattr(algorithm, "config", None)
    modules = algorithm.modules if isinstance(algorithm, BuiltIn) else OwnModules()
    return {
        "algo": name,
        name: config.to_dict() if isinstance(config, Config) else None,
        "own": modules.to_dict(),
        "learner_makes_policy": isinstance(algorithm, BuiltIn) and algorithm.makes_own_policy,
    }


def _algorithm(
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
            f"its algorithm {name!r} is none of this library's; pass it again: algo=..."
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
                f"its {part} is the user's own ({address or 'a local function'}); pass it again: "
                f"{part}=..."
            )
    return BuiltIn(name, BUILT_IN[name][0].from_dict(written[name]), OwnModules(**parts))


def _preset(env: Any, algo: Any, settings: Mapping[str, Any]) -> Preset | None:
    """The preset that a user asks for, if any.

    Raises:
        ConfigError: there is none of this name; or beside it the algorithm was given with settings
            of its own, of which nobody could tell whether they were meant to win over the preset's.
    """
    if isinstance(algo, Preset):
        return algo
    if isinstance(algo, Given):  # whoever made it has looked for a preset
        return None
    choice = settings.get("preset", NONE)
    if not isinstance(choice, str) or choice == NONE:
        return None
    if isinstance(algo, str):
        module = settings.get("env_module")
        return find_preset(algo, env, choice, module) if algo in BUILT_IN else None
    name = next((name for name, (kind, _) in BUILT_IN.items() if isinstance(algo, kind)), "ppo")
    raise ConfigError(
        f"preset {choice!r} stands for settings of an algorithm that is given by its name, such as "
        f"algo={name!r}, but algo is {in_words(algo)}. Leave preset out to train with that, or "
        f"give the name to train with the preset's settings"
    )


def _tuned(
    settings: TrainSettings, given: Mapping[str, Any], algorithm: Algorithm, source: EnvSource
) -> tuple[TrainSettings, list[str]]:
    """The settings with those of a tuned file among them, and what to say about it.

    Args:
        settings: of the run, with what its preset says.
        given: what the user has said, which wins.
        algorithm: of the run.
        source: its envs.
    """
    if settings.tuned is None:
        return settings, []
    tuned = Tuned.read(settings.tuned)
    name, env = name_of(algorithm), source.to_dict()
    found, lines = applied(tuned, settings.tuned, given, name, env)
    return replace(settings, **found), lines


def _fitted(
    algorithm: Algorithm, settings: TrainSettings, algo: Any, preset: Preset | None
) -> tuple[Algorithm, list[str]]:
    """The algorithm with settings that go with the number of envs, and what was changed, why.

    Raises:
        ConfigError: they are to be scaled, and belong to an algorithm of the user's own.
    """
    num_envs, reasons = settings.num_envs, list[str]()
    config = getattr(algorithm, "config", None)
    base = TrainSettings().num_envs if preset is None else preset.run.get("num_envs", num_envs)
    if settings.scale_hyperparameters:
        if not isinstance(algorithm, BuiltIn) or not isinstance(config, Config):
            raise ConfigError(
                "scale_hyperparameters knows the settings of this library's algorithms only; leave "
                f"it out with {in_words(algo)}"
            )
        said = algo.changes if isinstance(algo, Given) else {} if preset is None else preset.changes
        config, reasons = scaled(config, algorithm.name, base, num_envs, frozenset(said))
        if not reasons:
            reasons = [f"{algorithm.name}: nothing to scale, the settings are for {base} envs"]
    if preset is not None and isinstance(config, Config):
        fitting = preset.fit(config, num_envs)
        if fitting is not config:
            size, steps = preset.settings["minibatch_size"], config.num_steps
            reasons.append(
                f"{preset.name}: minibatch_size is cut from {size} to {steps * num_envs}, the "
                f"transitions of a rollout (num_steps {steps} x num_envs {num_envs})"
            )
        config = fitting
    if not isinstance(algorithm, BuiltIn) or config is algorithm.config:
        return algorithm, reasons
    return BuiltIn(algorithm.name, config, algorithm.modules), reasons


# What `Trainer` takes beside settings: among these a name may have been meant.
OTHER_ARGUMENTS = {
    "env", "algo", "env_kwargs", "wrappers", "callbacks", "sinks", "encoder", "network", "learner",
    "initial", "eval_env", "eval_wrappers", "progress",
}  # fmt: skip


def _require_known(settings: Mapping[str, Any], algorithm: Algorithm) -> None:
    """Refuse names that are no settings of a run; say where one belongs that is the algorithm's.

    Raises:
        ConfigError: for the first.
    """
    known = {field.name for field in fields(TrainSettings)} | OTHER_ARGUMENTS
    config = getattr(algorithm, "config", None)
    own = {f.name for f in fields(config)} if isinstance(config, Config) else set()  # type: ignore[arg-type]
    for name in settings:
        near = near_names(name, known | own, 1)
        if name in known or not near or near[0] not in own:
            continue
        example = f"pass algo=rookery.{type(config).__name__}({near[0]}=...)"
        if name in own:
            raise ConfigError(f"{name} is a setting of the algorithm: {example}")
        raise ConfigError(
            f"{name!r} is not among the settings of a run; did you mean {near[0]}? That is a "
            f"setting of the algorithm: {example}"
        )
    known_names(known, settings, "settings of a run")


def versions() -> dict[str, str]:
    """Of what a run is made with, by name."""
    from rookery import __version__

    return {
        "rookery": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "gymnasium": gymnasium.__version__,
    }
