"""What a run is told, and what it answers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from rookery.errors import ConfigError
from rookery.worker.faults import FaultPolicy

CollectorName = Literal["caller", "workers", "async"]


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """Settings of a run that are not the learner's.

    Attributes:
        total_steps: Env steps to train for, all envs together; rounded up to whole rollouts.
        num_envs: Environments that run in parallel.
        seed: Root of every random number of the run.
        run_dir: Folder of the run; unset, a fresh one under runs/.
        overwrite: Replace the run that run_dir already holds.
        env_module: Module to import first, which registers the env.
        collector: Where the policy acts: in caller, this process, by turns with the envs; in the
            workers; or async, in workers that do not wait for the learner. auto is async for
            impala and caller for all others.
        max_policy_lag: In async, the most versions that a rollout's weights may be behind.
        backend: Where envs run: in this process, in worker processes, or the faster of the two.
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
        eval_episodes: Episodes of the final evaluation; 0 leaves it out.
        checkpoint_interval_s: Seconds between checkpoints; one is always written at the end.
        save_env_states: Keep the envs' states beside checkpoints, to resume amid episodes.
        video_every: Env steps between two videos of an episode; 0 records none.
    """

    total_steps: int = 100_000
    num_envs: int = 8
    seed: int = 0
    run_dir: str | None = None
    overwrite: bool = False
    env_module: str | None = None
    collector: Literal["auto", "caller", "workers", "async"] = "auto"
    max_policy_lag: int = 4
    backend: Literal["auto", "serial", "process"] = "auto"
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
    checkpoint_interval_s: float = 60.0
    save_env_states: bool = True
    video_every: int = 0

    def __post_init__(self) -> None:
        lowest = {"total_steps": 1, "num_envs": 1, "max_policy_lag": 1}
        lowest |= {"seed": 0, "eval_episodes": 0, "video_every": 0}
        for name, low in lowest.items():
            if getattr(self, name) < low:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least {low}")
        if self.collector not in ("auto", *get_args(CollectorName)):
            known = "'auto', 'caller', 'workers' or 'async'"
            raise ConfigError(f"collector is {self.collector!r}; it must be {known}")
        self.faults()  # complains of what cannot be, before anything starts

    def vector_options(self) -> dict[str, Any]:
        """The settings that `make_vec` takes under the same names."""
        names = ("backend", "num_workers", "start_method", "isolate", "caller_steps")
        options = {name: getattr(self, name) for name in names}
        threads = self.threads_per_worker
        return {**options, "threads_per_worker": threads, "faults": self.faults()}

    def worker_options(self) -> dict[str, Any]:
        """The settings that `WorkerCollector` takes under the same names."""
        return {
            "num_workers": self.num_envs if self.isolate else self.num_workers,
            "start_method": self.start_method,
            "threads_per_worker": self.threads_per_worker,
            "faults": self.faults(),
        }

    def num_evaluation_envs(self, collector: CollectorName, episodes: int) -> int:
        """How many envs play a run's evaluation: those of its training, if they are at hand."""
        return self.num_envs if collector == "caller" else min(self.num_envs, episodes)

    def faults(self) -> FaultPolicy:
        """The settings that are about faults, as `make_vec` takes them."""
        names = ("on_fault", "max_restarts", "step_timeout_s", "reset_timeout_s")
        settings = {name: getattr(self, name) for name in names}
        return FaultPolicy(**settings, max_worker_rss_mb=self.max_worker_rss_mb)


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a training run came to.

    Attributes:
        run_dir: the run's folder.
        steps: env steps trained for.
        seconds: time to start the envs and train, without evaluation.
        steps_per_second: their quotient.
        eval_return_mean: mean return of the final evaluation; None without one.
        eval_return_std: standard deviation of the same.
    """

    run_dir: str
    steps: int
    seconds: float
    steps_per_second: float
    eval_return_mean: float | None
    eval_return_std: float | None

    def to_dict(self) -> dict[str, Any]:
        """Fields by name, as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class EvalResult:
    """What an evaluation came to.

    Attributes:
        run_dir: the run's folder.
        steps: env steps of the counted episodes.
        seconds: time of the evaluation, without start-up.
        steps_per_second: their quotient.
        eval_return_mean: mean return.
        eval_return_std: standard deviation of the returns.
        episodes: number of episodes.
    """

    run_dir: str
    steps: int
    seconds: float
    steps_per_second: float
    eval_return_mean: float
    eval_return_std: float
    episodes: int

    def to_dict(self) -> dict[str, Any]:
        """Fields by name, as plain data."""
        return asdict(self)
