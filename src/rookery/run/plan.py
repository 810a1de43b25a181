"""RunPlan: envs, algorithm and settings of a run, and their form in config.json."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import gymnasium
import numpy as np

from rookery.common.arguments import (
    checked_wrappers,
    known_names,
    near_names,
)
from rookery.common.env_errors import in_words
from rookery.common.version import __version__
from rookery.env.wrappers.action_mask import ActionMaskFromInfo
from rookery.errors import ConfigError
from rookery.learn.base import Algorithm
from rookery.learn.config_base import Config
from rookery.run.algorithms import (
    BUILT_IN,
    SHAPES,
    BuiltIn,
    Given,
    algorithm_from_dict,
    algorithm_of,
    algorithm_to_dict,
    config_of,
    name_of,
)
from rookery.run.checkpoint.run_dir import RunDirectory
from rookery.run.env_source import EnvSource
from rookery.run.families import family_of
from rookery.run.presets import (
    AUTO,
    NONE,
    Preset,
    find_preset,
    is_file,
    preset_of_run,
    presets,
)
from rookery.run.presets.scaling import scaled
from rookery.run.presets.tuned import Tuned, applied
from rookery.run.request import ARGUMENTS, RunRequest
from rookery.run.settings import TrainSettings

# Settings that a resumed run cannot change: they determine shapes of saved data or random numbers.
_FIXED_SETTINGS = {
    "num_envs", "seed", "run_dir", "overwrite", "env_module", "masks_from_info", "preprocess",
    "frame_stack", "preset", "tuned", "scale_hyperparameters",
}  # fmt: skip
_FIXED_CONFIG = SHAPES | {
    "num_steps", "normalize_reward", "prioritized", "replay_size", "initial_log_std",
    "orthogonal_init",
}  # fmt: skip


@dataclass(frozen=True)
class RunPlan:
    """Envs, algorithm and settings of a run.

    Attributes:
        source: source of the training envs.
        eval_source: source of the evaluation envs.
        algorithm: the algorithm that learns.
        settings: settings of the run.
        notes: lines for the user about settings that a tuned file or scaling determined.
    """

    source: EnvSource
    eval_source: EnvSource
    algorithm: Algorithm
    settings: TrainSettings
    notes: tuple[str, ...] = ()

    @classmethod
    def new(cls, request: RunRequest) -> RunPlan:
        """Create the plan of a new run. ``request.algo`` may also be a `Preset` with changes.

        Raises:
            ConfigError: an argument or setting is invalid.
        """
        env, algo, given = request.env, request.algo, request.settings
        preset, settings = _preset(env, algo, given), given
        if preset is not None:
            settings = {**preset.run, **settings, "preset": preset.name}
        elif settings.get("preset") == AUTO:
            settings = {**settings, "preset": NONE}
        chosen_algo = algo if preset is None else preset.config
        algorithm = algorithm_of(chosen_algo, *request.modules)
        _require_known(settings, algorithm)
        chosen = TrainSettings.from_dict(settings, "settings of a run")
        chosen.check_evaluations()
        outermost = (ActionMaskFromInfo,) if chosen.masks_from_info else ()
        inner = checked_wrappers(request.wrappers or ())
        source = EnvSource(
            env, request.env_kwargs or {}, (*inner, *outermost), chosen.env_module,
            chosen.preprocess, chosen.frame_stack,
        )  # fmt: skip
        chosen, notes = _tuned(chosen, given, algorithm, source)
        algorithm, reasons = _fitted(algorithm, chosen, algo, preset)
        eval_source = source
        if request.eval_env is not None or request.eval_wrappers is not None:
            outer = request.eval_wrappers
            around = None if outer is None else (*outer, *outermost)
            eval_source = source.changed(request.eval_env, None, around)
        return cls(source, eval_source.for_evaluation(), algorithm, chosen, (*notes, *reasons))

    @property
    def title(self) -> str:
        """Title of the run's plots."""
        return f"{name_of(self.algorithm)} on {self.source.name}, seed {self.settings.seed}"

    def describe_settings(self) -> str:
        """Return the source of the settings in one line; empty for a custom algorithm."""
        if not isinstance(self.algorithm, BuiltIn):
            return ""
        plain = f"{self.algorithm.name} without a preset: plain defaults, plus the settings you set"
        return f"{self.source.name}: {self.preset or plain}"

    @property
    def preset(self) -> Preset | None:
        """The preset of the run; None if it uses none or the preset no longer exists."""
        name = self.settings.preset
        if is_file(name):
            return preset_of_run(name_of(self.algorithm), self.source.env, name)
        algo, _, env = name.partition("/")
        return presets(algo).get(env) if algo in BUILT_IN else None

    @property
    def expected_return(self) -> float | None:
        """The published return of the preset; None if the env differs from the preset's env.

        An env with arguments or wrappers counts as different, and so does a custom env that is
        registered under a known name.
        """
        preset, source = self.preset, self.source
        if preset is None or source.env != preset.env:
            return None
        is_changed = bool(source.env_kwargs or source.wrappers)
        is_the_known_one = bool(preset.file) or family_of(source.env) is not None
        return preset.expected if is_the_known_one and not is_changed else None

    def folder(self) -> RunDirectory:
        """Choose the run's folder without creating it."""
        settings = self.settings
        name = f"{self.source.name}-{name_of(self.algorithm)}-{settings.seed}"
        return RunDirectory.plan(settings.run_dir, name, settings.overwrite)

    def to_dict(self) -> dict[str, Any]:
        """Return everything needed to repeat the run, as JSON data."""
        return {
            **algorithm_to_dict(self.algorithm),
            "source": self.source.to_dict(),
            # None: the training envs. Two different lambdas would have the same description.
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
        request: RunRequest = RunRequest(),  # noqa: B008 - it is frozen
        *,
        to_evaluate: bool = False,
    ) -> RunPlan:
        """Read the plan of an existing run.

        Args:
            folder: folder of the run.
            request: arguments that replace those of the run. ``settings`` may contain settings of
                the run and of its algorithm.
            to_evaluate: the run is only evaluated. ``env``, ``env_kwargs`` and ``wrappers`` then
                replace those of the evaluation envs.

        Raises:
            ConfigError: config.json is invalid, a change is not allowed, or config.json could not
                hold an argument and the request lacks it.
        """
        if request.initial is not None:
            raise ConfigError("initial is for new runs; a resumed run has its own weights")
        written = folder.read_config()
        try:
            # Runs written before preprocessing was introduced did none.
            stored = {"preprocess": False, **written["train"]}
            settings = TrainSettings.from_dict(stored, "settings of a run")
            algorithm = algorithm_from_dict(
                written, request.algo, request.modules, imports=True, learns=not to_evaluate
            )
            recorded = written["source"], written["eval_source"]
        except (KeyError, TypeError, ConfigError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else error
            raise ConfigError(f"{folder.config} cannot be understood: {what}") from error
        outermost = (ActionMaskFromInfo,) if settings.masks_from_info else ()
        wrappers, eval_wrappers = (
            None if given is None else (*given, *outermost)
            for given in (request.wrappers, request.eval_wrappers)
        )
        arguments = request.env, request.env_kwargs, wrappers
        if to_evaluate:
            source = EnvSource.from_dict(recorded[1] or recorded[0], *arguments).for_evaluation()
            return cls(source, source, algorithm, settings)
        source = EnvSource.from_dict(recorded[0], *arguments)
        eval_source = _evaluation_source(source, recorded[1], request.eval_env, eval_wrappers)
        plan = cls(source, eval_source.for_evaluation(), algorithm, settings)
        return plan._changed(request.settings) if request.settings else plan

    def _changed(self, changes: Mapping[str, Any]) -> RunPlan:
        """Return a plan with changed settings of the run or of its algorithm."""
        names = {field.name for field in fields(TrainSettings)}
        config = config_of(self.algorithm)
        of_config = _names_in(config)
        known_names(names | of_config, changes, "settings of this run")
        present = {name: getattr(self.settings, name) for name in names}
        present |= {name: getattr(config, name) for name in of_config}
        changes = {name: value for name, value in changes.items() if value != present[name]}
        for name in changes:
            if name in (_FIXED_SETTINGS if name in names else _FIXED_CONFIG):
                raise ConfigError(
                    f"{name} cannot be changed when a run is resumed; start a new run (in Python, "
                    "initial=rookery.load(...) starts it with the weights of this run)"
                )
        run = {name: value for name, value in changes.items() if name in names}
        learner = {name: value for name, value in changes.items() if name not in names}
        algorithm = self.algorithm
        if learner:
            assert isinstance(algorithm, BuiltIn)
            new = type(algorithm.config).from_dict({**algorithm.config.to_dict(), **learner})
            algorithm = BuiltIn(algorithm.name, new, algorithm.modules)
        settings = replace(self.settings, **run)
        if "eval_every" in run or "eval_episodes" in run:
            settings.check_evaluations()
        return replace(self, settings=settings, algorithm=algorithm)


def _names_in(config: Config | None) -> set[str]:
    return set() if config is None else {each.name for each in fields(config)}  # type: ignore[arg-type]


def _evaluation_source(
    source: EnvSource, recorded: Mapping[str, Any] | None, env: Any, wrappers: Any
) -> EnvSource:
    """Return the source of the evaluation envs of an existing run.

    Args:
        source: source of the training envs.
        recorded: the evaluation source in config.json; None if it equals the training source.
        env: replaces the recorded env; None keeps it.
        wrappers: replace the recorded wrappers; None keeps them.

    Raises:
        ConfigError: config.json could not hold the env or a wrapper, and it is not passed again.
    """
    if recorded is None:
        return source if env is None and wrappers is None else source.changed(env, None, wrappers)
    try:
        return EnvSource.from_dict(dict(recorded), env, None if env is None else {}, wrappers)
    except ConfigError as error:
        raise ConfigError(f"evaluations: {error} as eval_env=..., eval_wrappers=...") from error


def _preset(env: Any, algo: Any, settings: Mapping[str, Any]) -> Preset | None:
    """Return the preset that the settings ask for, or None.

    Raises:
        ConfigError: no preset has this name, or ``algo`` is a config or object instead of a name,
            so that it is unclear which settings take precedence.
    """
    if isinstance(algo, Preset):
        return algo
    if isinstance(algo, Given):  # its creator already looked for a preset
        return None
    choice = settings.get("preset", NONE)
    if not isinstance(choice, str) or choice == NONE:
        return None
    if isinstance(algo, str):
        module = settings.get("env_module")
        return find_preset(algo, env, choice, module) if algo in BUILT_IN else None
    name = next((name for name, (kind, _) in BUILT_IN.items() if isinstance(algo, kind)), "ppo")
    raise ConfigError(
        f"preset {choice!r} needs an algorithm given by name, such as algo={name!r}, but algo is "
        f"{in_words(algo)}. Leave out preset to train with that, or pass the name to train with "
        f"the preset's settings"
    )


def _tuned(
    settings: TrainSettings, given: Mapping[str, Any], algorithm: Algorithm, source: EnvSource
) -> tuple[TrainSettings, list[str]]:
    """Return the settings with those of the tuned file, and lines about them for the user.

    Args:
        settings: settings of the run, including those of its preset.
        given: settings that the user passed, which override the tuned file.
        algorithm: algorithm of the run.
        source: envs of the run.
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
    """Return the algorithm with hyperparameters adapted to ``num_envs``, and the reasons.

    Raises:
        ConfigError: ``scale_hyperparameters`` is set for a custom algorithm.
    """
    num_envs, reasons = settings.num_envs, list[str]()
    config = config_of(algorithm)
    base = TrainSettings().num_envs if preset is None else preset.run.get("num_envs", num_envs)
    if settings.scale_hyperparameters:
        if not isinstance(algorithm, BuiltIn) or config is None:
            raise ConfigError(
                "scale_hyperparameters supports only the algorithms of this library; leave it out "
                f"with {in_words(algo)}"
            )
        set_by_user = (
            algo.changes if isinstance(algo, Given) else {} if preset is None else preset.changes
        )
        config, reasons = scaled(config, algorithm.name, base, num_envs, frozenset(set_by_user))
        if not reasons:
            reasons = [f"{algorithm.name}: nothing to scale, the settings are for {base} envs"]
    if preset is not None and config is not None:
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


def _require_known(settings: Mapping[str, Any], algorithm: Algorithm) -> None:
    """Raise for unknown settings; point out settings that belong to the algorithm.

    Raises:
        ConfigError: a name is not a setting of a run.
    """
    known = {field.name for field in fields(TrainSettings)} | ARGUMENTS
    config = config_of(algorithm)
    of_config = _names_in(config)
    for name in settings:
        near = near_names(name, known | of_config, 1)
        if name in known or not near or near[0] not in of_config:
            continue
        example = f"pass algo=rookery.{type(config).__name__}({near[0]}=...)"
        if name in of_config:
            raise ConfigError(f"{name} is a setting of the algorithm: {example}")
        raise ConfigError(
            f"{name!r} is not among the settings of a run; did you mean {near[0]}? That is a "
            f"setting of the algorithm: {example}"
        )
    known_names(known, settings, "settings of a run")


def versions() -> dict[str, str]:
    """Return the versions of Python and the main packages, by name."""
    return {
        "rookery": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "gymnasium": gymnasium.__version__,
    }
