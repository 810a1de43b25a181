"""The settings of a run that are not its algorithm's. They are written down here, and only here."""

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
from rookery.errors import ConfigError
from rookery.worker.fault_policy import FaultPolicy

CollectorName = Literal["caller", "workers", "async", "double", "served"]

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


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """Settings of a run that are not its algorithm's.

    They are the keyword arguments of `rookery.Trainer` and `rookery.train`, flags of
    ``rookery train``, and ``"train"`` in config.json.

    Attributes:
        preset: Where settings come from that are not given: auto, the preset of the algorithm for
            this env or its family, if there is one; none, the plain defaults; the env whose preset
            is meant; or a .json file of presets, such as a search writes. On the command line auto,
            in Python none, which is also the only choice beside settings of the algorithm that are
            given whole.
        tuned: File that rookery tune wrote: how many envs, where they run, where the policy acts.
            What is given wins over it, and it wins over the preset.
        scale_hyperparameters: Move the learner's settings with num_envs, from the number that the
            preset, or the default, has; what is given stays. See docs/tuning.md.
        total_steps: Env steps to train for, all envs together; rounded up to whole rollouts.
        num_envs: Environments that run in parallel.
        num_learners: Processes that learn together, each from its share of the envs, on the mean of
            their gradients.
        seed: Root of every random number of the run.
        run_dir: Folder of the run; unset, a fresh one under runs/.
        overwrite: Replace the run that run_dir already holds.
        env_module: Module to import first, which registers the env.
        preprocess: Whether Atari games and MiniGrid are preprocessed as everybody does it, inside
            of wrappers of one's own; other envs are as they are.
        frame_stack: How many observations the policy sees at once, the latest; unset, 4 of Atari
            games that are preprocessed and 1 of all others.
        collector: Where the policy acts: in caller, this process, by turns with the envs; in the
            workers; async, in workers that do not wait for the learner; double, in this process
            on one half of the envs while the other half steps in workers; or served, in this
            process on whichever envs are ready. auto is async for impala, workers on a cluster, and
            caller for all others.
        max_policy_lag: In async, the most versions that a rollout's weights may be behind.
        backend: Where envs run: in this process, in worker processes, or the faster of the two.
            native trains Atari games by ALE's own batches, and so does auto where they are faster;
            evaluations are made in single envs.
        cluster: Ray cluster on whose nodes the envs run: its address, auto for one that runs on
            this machine already, or local to start Ray here; unset, none. Policies act beside the
            envs there, and other learners learn there. Needs the extra ray.
        num_workers: Worker processes; unset, the CPUs that may be used.
        start_method: How worker processes start; unset, forkserver, or spawn on Windows.
        isolate: One env per worker process, and none ever built in this one.
        caller_steps: Whether this process steps a share of the envs; unset, backend auto decides.
        threads_per_worker: Cap on each worker's BLAS, OpenMP and torch threads.
        on_fault: What a failing env does to the run: end it, or have its worker replaced.
        max_restarts: Replacements of one worker within a minute; one more fault ends the run.
        step_timeout_s: The longest that one env's step may take; unset, for ever.
        reset_timeout_s: The longest that one env's reset may take; unset, for ever.
        max_worker_rss_mb: Replace a worker that grows beyond this; needs on_fault restart.
        eval_episodes: Episodes of each evaluation; 0 leaves out the one at the end, and does not go
            with eval_every.
        eval_every: Env steps between evaluations, the best of which keeps best.pt; 0 makes none
            before the end.
        stop_at: End the run once an evaluation's mean return reaches this; needs eval_every.
        checkpoint_interval_s: Seconds between writings of checkpoint.pt, of which the first comes
            after a tenth of them, and one at the end. Writing takes at most a twentieth of the
            time, or it is done less often.
        checkpoint_every: Env steps between checkpoints that are kept by themselves, in
            checkpoints/; 0 keeps none.
        keep_checkpoints: How many of those are kept, the latest.
        save_env_states: Keep the envs' states beside checkpoint.pt, to resume amid episodes.
        video_every: Env steps between two videos of an episode; 0 records none.
        masks_from_info: Whether infos tell, as action_mask, which actions are legal; the others are
            never taken. A part action_mask of a Dict observation is read without being asked for.
        telemetry_interval_s: Seconds between two looks at what envs, workers and this process do
            and use, each a line of telemetry.jsonl, the first after a tenth of them; 0 looks at
            nothing.
        info_keys: Numbers that envs' infos hold when an episode ends, such as is_success; their
            means over the recent episodes are among the metrics.
    """

    preset: str = "none"
    tuned: str | None = None
    scale_hyperparameters: bool = False
    total_steps: int = 100_000
    num_envs: int = 8
    num_learners: int = 1
    seed: int = 0
    run_dir: str | None = None
    overwrite: bool = False
    env_module: str | None = None
    preprocess: bool = True
    frame_stack: int | None = None
    collector: Literal["auto", "caller", "workers", "async", "double", "served"] = "auto"
    max_policy_lag: int = 4
    backend: Literal["auto", "serial", "process", "native"] = "auto"
    cluster: str | None = None
    num_workers: int | None = None
    start_method: Literal["forkserver", "spawn", "fork"] | None = None
    isolate: bool = False
    caller_steps: bool | None = None
    threads_per_worker: int = 1
    on_fault: Literal["raise", "restart"] = "raise"
    max_restarts: int = 3
    step_timeout_s: float | None = None
    reset_timeout_s: float | None = None
    max_worker_rss_mb: float | None = None
    eval_episodes: int = 20
    eval_every: int = 0
    stop_at: float | None = None
    checkpoint_interval_s: float = 60.0
    checkpoint_every: int = 0
    keep_checkpoints: int = 5
    save_env_states: bool = True
    video_every: int = 0
    masks_from_info: bool = False
    telemetry_interval_s: float = 10.0
    info_keys: tuple[str, ...] = ()

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
        self.faults()  # complains of what cannot be, before anything starts

    def check_evaluations(self) -> None:
        """Complain of evaluations of no episodes; not for runs that were begun with such.

        Raises:
            ConfigError: they are asked for.
        """
        if self.eval_every and not self.eval_episodes:
            raise ConfigError(
                f"eval_every is {self.eval_every}, but with eval_episodes=0 no evaluation is made; "
                "set eval_episodes to 1 or more, or leave out eval_every"
            )

    def _check_cluster(self) -> None:
        """Complain of what is about this machine, where envs are to run on others."""
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
        """The settings that `make_vec` takes under the same names, for single envs."""
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
        """The same for envs of evaluations; on a cluster they use CPUs of those of training."""
        options = self.vector_options()
        if self.cluster is not None:
            options["ray_options"] = {**options["ray_options"], "num_cpus": 0}
        return options

    def worker_options(self) -> dict[str, Any]:
        """The settings that `WorkerCollector` takes under the same names."""
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
        """Make settings of names and values, also after a trip through JSON.

        Args:
            values: by name.
            owner: whose settings they are, for messages.

        Raises:
            ConfigError: there is no such setting, or one has a value that cannot be.
        """
        known_names([field.name for field in fields(cls)], values, owner)
        values = dict(values)
        if isinstance(values.get("info_keys"), list):
            values["info_keys"] = tuple(values["info_keys"])
        for name in ("run_dir", "tuned"):
            if isinstance(values.get(name), PathLike):
                values[name] = str(values[name])
        return cls(**values)

    def faults(self) -> FaultPolicy:
        """The settings that are about faults, as `make_vec` takes them."""
        names = ("on_fault", "max_restarts", "step_timeout_s", "reset_timeout_s")
        settings = {name: getattr(self, name) for name in names}
        return FaultPolicy(**settings, max_worker_rss_mb=self.max_worker_rss_mb)


def is_number(value: Any) -> bool:
    """Whether ``value`` is a number that can be compared with others."""
    kinds = (int, float, np.integer, np.floating)
    return isinstance(value, kinds) and not isinstance(value, bool) and not math.isnan(value)
