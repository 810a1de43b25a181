"""Settings of a run, apart from the hyperparameters of its algorithm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from os import PathLike
from typing import Any, Literal, get_args

import numpy as np

from rookery.common.arguments import (
    check_choice,
    check_flag,
    known_names,
    unfit,
    whole_number,
    without_fraction,
)
from rookery.common.docstrings import with_inherited_attributes
from rookery.errors import ConfigError
from rookery.worker.fault_policy import FaultPolicy

CollectorName = Literal["caller", "workers", "async", "double", "served"]

# The lowest value of each integer setting.
_LOWEST = {
    "total_steps": 1,
    "num_envs": 1,
    "num_learners": 1,
    "max_policy_lag": 1,
    "seed": 0,
    "eval_episodes": 0,
    "eval_every": 0,
    "checkpoint_every": 0,
    "keep_checkpoints": 1,
    "video_every": 0,
}


@dataclass(frozen=True)
class PresetSettings:
    """Origin of the settings that the user leaves out.

    Attributes:
        preset: Source of default settings: auto (the preset of the algorithm for this env or its
            family, if one exists), none (the plain defaults), the id of an env that has a preset,
            or a .json file of presets, such as a search for hyperparameters writes. The default
            is auto on the command line and none in Python. With a complete config object, only none
            is allowed.
        tuned: File written by rookery tune: number of envs, backend and collector. Settings that
            you pass override this file, and the file overrides the preset.
        scale_hyperparameters: Scale the hyperparameters with num_envs, relative to the num_envs of
            the preset or of the defaults. Hyperparameters that you pass are not scaled. See
            docs/tuning.md.
    """

    preset: str = "none"
    tuned: str | None = None
    scale_hyperparameters: bool = False


@dataclass(frozen=True)
class ScheduleSettings:
    """Length, seed and learners of a run.

    Attributes:
        total_steps: Env steps to train for, summed over all envs; rounded up to whole rollouts.
        num_learners: Number of learner processes. Each learns from its share of the envs, and all
            apply the mean of their gradients.
        seed: Seed from which all random numbers of the run are derived.
    """

    total_steps: int = 100_000
    num_learners: int = 1
    seed: int = 0


@dataclass(frozen=True)
class EnvSettings:
    """Number of envs, and their preprocessing.

    Attributes:
        num_envs: Number of envs that run in parallel.
        env_module: Module to import first, which registers the env.
        preprocess: Apply the standard preprocessing to Atari and MiniGrid envs before your own
            wrappers. Other envs are not changed.
        frame_stack: Number of latest observations that the policy receives together; unset, 4 for
            preprocessed Atari games and 1 for all other envs.
        masks_from_info: Read a mask of legal actions from infos, under the key action_mask. Illegal
            actions are never taken. A part of a Dict observation that is named action_mask is
            always used as the mask.
    """

    num_envs: int = 8
    env_module: str | None = None
    preprocess: bool = True
    frame_stack: int | None = None
    masks_from_info: bool = False


@dataclass(frozen=True)
class CollectionSettings:
    """Placement of the envs and of the acting policy.

    Attributes:
        backend: Where envs run: in this process (serial), in worker processes (process), or in the
            faster of the two (auto). native trains Atari games with ALE's vectorized env, and auto
            does so where it is faster. Evaluations always use single envs.
        collector: Where the policy acts: in this process, after all envs have stepped (caller); in
            the workers (workers); in workers that do not wait for the learner (async); in this
            process on one half of the envs while the other half steps in workers (double); or in
            this process on the envs that are ready (served). auto is async for impala, workers on
            a cluster, and caller otherwise.
        max_policy_lag: With async, the maximum age of the weights that collected a rollout, in
            policy versions.
        num_workers: Number of worker processes; unset, the number of available CPUs.
        start_method: Start method of worker processes; unset, forkserver, or spawn on Windows.
        isolate: Run one env per worker process, and never build an env in this process.
        caller_steps: Let this process step a share of the envs; unset, backend auto decides.
        threads_per_worker: Maximum number of BLAS, OpenMP and torch threads of each worker.
        cluster: Ray cluster that runs the envs: its address, auto for a cluster that already runs
            on this machine, or local to start Ray here; unset, no cluster. Policies act next to the
            envs, and additional learners also run on the cluster. Needs the extra ray.
    """

    backend: Literal["auto", "serial", "process", "native"] = "auto"
    collector: Literal["auto", "caller", "workers", "async", "double", "served"] = "auto"
    max_policy_lag: int = 4
    num_workers: int | None = None
    start_method: Literal["forkserver", "spawn", "fork"] | None = None
    isolate: bool = False
    caller_steps: bool | None = None
    threads_per_worker: int = 1
    cluster: str | None = None


@dataclass(frozen=True)
class FaultSettings:
    """Reactions to envs that fail, hang or grow.

    Attributes:
        on_fault: Reaction to a failing env: raise ends the run, restart replaces its worker.
        max_restarts: Maximum number of restarts of one worker within a minute. A further fault
            ends the run.
        step_timeout_s: Time limit of one env step in seconds; unset, no limit.
        reset_timeout_s: Time limit of one env reset in seconds; unset, no limit.
        max_worker_rss_mb: Replace a worker whose memory exceeds this many MB; needs on_fault
            restart.
    """

    on_fault: Literal["raise", "restart"] = "raise"
    max_restarts: int = 3
    step_timeout_s: float | None = None
    reset_timeout_s: float | None = None
    max_worker_rss_mb: float | None = None

    def faults(self) -> FaultPolicy:
        """Return the fault settings in the form that `make_vec` accepts."""
        names = [each.name for each in fields(FaultSettings)]
        return FaultPolicy(**{name: getattr(self, name) for name in names})


@dataclass(frozen=True)
class EvaluationSettings:
    """Evaluations and videos.

    Attributes:
        eval_episodes: Number of episodes of each evaluation. 0 skips the final evaluation, and
            cannot be combined with eval_every.
        eval_every: Env steps between evaluations; best.pt keeps the best policy. 0 evaluates only
            at the end.
        stop_at: End the run when the mean return of an evaluation reaches this; needs eval_every.
        video_every: Env steps between two videos of an episode; 0 records none.
    """

    eval_episodes: int = 20
    eval_every: int = 0
    stop_at: float | None = None
    video_every: int = 0

    def check_evaluations(self) -> None:
        """Raise if ``eval_every`` is set but evaluations have 0 episodes.

        ``__post_init__`` leaves this out, because older runs may have such settings.

        Raises:
            ConfigError: ``eval_every`` is set and ``eval_episodes`` is 0.
        """
        if self.eval_every and not self.eval_episodes:
            raise ConfigError(
                f"eval_every is {self.eval_every}, but with eval_episodes=0 no evaluation is made; "
                "set eval_episodes to 1 or more, or leave out eval_every"
            )


@dataclass(frozen=True)
class SavingSettings:
    """Folder and checkpoints of a run.

    Attributes:
        run_dir: Folder of the run; unset, a new folder under runs/.
        overwrite: Replace the run that run_dir already holds.
        checkpoint_interval_s: Seconds between checkpoints in checkpoint.pt. The first is written
            after a tenth of this time, the last at the end of the run. The interval is extended if
            writing would take more than a twentieth of the time.
        checkpoint_every: Env steps between the additional checkpoints in checkpoints/; 0 writes
            none.
        keep_checkpoints: Number of latest checkpoints to keep in checkpoints/.
        save_env_states: Save the envs' states next to checkpoint.pt, so that a resumed run
            continues its episodes.
    """

    run_dir: str | None = None
    overwrite: bool = False
    checkpoint_interval_s: float = 60.0
    checkpoint_every: int = 0
    keep_checkpoints: int = 5
    save_env_states: bool = True


@dataclass(frozen=True)
class LogSettings:
    """Measurements and metrics.

    Attributes:
        telemetry_interval_s: Seconds between measurements of envs, workers and this process. Each
            measurement adds a line to telemetry.jsonl. The first is made after a tenth of this
            time. 0 disables them.
        info_keys: Keys of numbers in the infos at the end of an episode, such as is_success. The
            metrics contain their means over the recent episodes.
    """

    telemetry_interval_s: float = 10.0
    info_keys: tuple[str, ...] = ()


@with_inherited_attributes
@dataclass(frozen=True)
class TrainSettings(
    LogSettings,
    SavingSettings,
    EvaluationSettings,
    FaultSettings,
    CollectionSettings,
    EnvSettings,
    ScheduleSettings,
    PresetSettings,
):  # a dataclass takes the fields of its last base first
    """Settings of a run, apart from the hyperparameters of its algorithm.

    They are the keyword arguments of `rookery.Trainer` and `rookery.train`, flags of
    ``rookery train``, and ``"train"`` in config.json.
    """

    def __post_init__(self) -> None:
        for name, low in _LOWEST.items():
            number = whole_number(name, without_fraction(getattr(self, name)), low)
            object.__setattr__(self, name, number)  # the dataclass is frozen
        if not isinstance(self.preset, str):
            raise unfit("preset", "'auto', 'none' or the name of one", self.preset)
        flags = ("overwrite", "isolate", "save_env_states", "preprocess", "scale_hyperparameters")
        for name in flags:
            check_flag(name, getattr(self, name))
        if self.frame_stack is not None:
            whole_number("frame_stack", self.frame_stack, 1)
        for name in ("checkpoint_interval_s", "telemetry_interval_s"):
            if not is_number(getattr(self, name)) or getattr(self, name) < 0:
                raise unfit(name, "a number of seconds", getattr(self, name))
        if self.stop_at is not None and not is_number(self.stop_at):
            raise unfit("stop_at", "a number, or None", self.stop_at)
        if self.stop_at is not None and not (self.eval_every and self.eval_episodes):
            raise ConfigError(
                f"stop_at is {self.stop_at}, but no evaluation is made before the end that could "
                "reach it; set eval_every (and eval_episodes) too"
            )
        keys: Any = self.info_keys
        if isinstance(keys, str):
            raise ConfigError(f"info_keys is {keys!r}; it must be a tuple, ({keys!r},)")
        check_choice("collector", self.collector, ("auto", *get_args(CollectorName)))
        self._check_cluster()
        self.faults()  # raises on invalid fault settings before anything starts

    def _check_cluster(self) -> None:
        """Raise if settings for local envs are combined with a cluster."""
        if self.cluster is None:
            return
        if not isinstance(self.cluster, str):
            raise unfit("cluster", "an address, 'auto', 'local' or None", self.cluster)
        here = {
            f"backend={self.backend!r}": self.backend != "auto",
            f"collector={self.collector!r}": self.collector in ("double", "served"),
            "isolate=True": self.isolate,
            "caller_steps=True": self.caller_steps,
            "start_method": self.start_method is not None,
        }
        for what, is_given in here.items():
            if is_given:
                raise ConfigError(f"{what} is for envs on this machine; leave it out with cluster")

    def vector_options(self) -> dict[str, Any]:
        """Return the arguments of `make_vec` that the settings determine, for single envs."""
        options: dict[str, Any] = {
            "num_workers": self.num_workers,
            "threads_per_worker": self.threads_per_worker,
            "faults": self.faults(),
        }
        if self.cluster is not None:
            return {**options, **self._on_cluster()}
        names = ("backend", "start_method", "isolate", "caller_steps")
        options |= {name: getattr(self, name) for name in names}
        if self.backend == "native":
            options["backend"] = "auto"
        return options

    def evaluation_options(self) -> dict[str, Any]:
        """Return the arguments of `make_vec` for evaluation envs.

        On a cluster, evaluation envs share the CPUs of the training envs.
        """
        options = self.vector_options()
        if self.cluster is not None:
            options["ray_options"] = {**options["ray_options"], "num_cpus": 0}
        return options

    def worker_options(self) -> dict[str, Any]:
        """Return the arguments of `WorkerCollector` that the settings determine."""
        options = {
            "num_workers": self.num_envs if self.isolate else self.num_workers,
            "threads_per_worker": self.threads_per_worker,
            "faults": self.faults(),
        }
        if self.cluster is not None:
            return {**options, **self._on_cluster()}
        return {**options, "start_method": self.start_method}

    def _on_cluster(self) -> dict[str, Any]:
        return {"backend": "ray", "ray_options": {"address": self.cluster}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], owner: str) -> TrainSettings:
        """Create settings from a mapping, which may come from JSON.

        Args:
            values: maps the name of each setting to its value.
            owner: name of the settings' origin in error messages.

        Raises:
            ConfigError: a name is unknown, or a value is invalid.
        """
        known_names([field.name for field in fields(cls)], values, owner)
        values = dict(values)
        if isinstance(values.get("info_keys"), list):
            values["info_keys"] = tuple(values["info_keys"])
        for name in ("run_dir", "tuned"):
            if isinstance(values.get(name), PathLike):
                values[name] = str(values[name])
        return cls(**values)


# The settings of each topic, in the order in which ``rookery train --help-all`` lists them.
TOPICS: dict[str, type[Any]] = {
    "preset": PresetSettings,
    "schedule": ScheduleSettings,
    "envs": EnvSettings,
    "collection": CollectionSettings,
    "faults": FaultSettings,
    "evaluation": EvaluationSettings,
    "saving": SavingSettings,
    "log": LogSettings,
}


def is_number(value: Any) -> bool:
    """Return True if ``value`` is a number other than NaN; a bool is not a number."""
    kinds = (int, float, np.integer, np.floating)
    return isinstance(value, kinds) and not isinstance(value, bool) and not math.isnan(value)
