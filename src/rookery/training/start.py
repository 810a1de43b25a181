"""Start a run, or go on with one."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np

import rookery
from rookery.errors import ConfigError
from rookery.learn.config import Config
from rookery.policy.network import require_machine
from rookery.training import state
from rookery.training.algorithms import ALGORITHMS, Algorithm, algorithm_of
from rookery.training.run import Run
from rookery.training.run_dir import RunDirectory
from rookery.training.settings import TrainResult, TrainSettings
from rookery.training.source import EnvSource
from rookery.training.stage import open_stage
from rookery.training.threads import blas_threads_for, torch_threads_for


def train(
    env: Any,
    algo: str | Config = "ppo",
    *,
    total_steps: int = 100_000,
    num_envs: int = 8,
    seed: int = 0,
    run_dir: str | Path | None = None,
    overwrite: bool = False,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Callable[[Any], Any]] = (),
    env_module: str | None = None,
    collector: Literal["auto", "caller", "workers", "async"] = "auto",
    max_policy_lag: int = 4,
    backend: Literal["auto", "serial", "process"] = "auto",
    num_workers: int | None = None,
    start_method: Literal["forkserver", "spawn", "fork"] | None = None,
    isolate: bool = False,
    caller_steps: bool | None = None,
    threads_per_worker: int = 1,
    on_fault: Literal["raise", "restart"] = "raise",
    max_restarts: int = 3,
    step_timeout_s: float | None = None,
    reset_timeout_s: float | None = None,
    max_worker_rss_mb: float | None = None,
    eval_episodes: int = 20,
    checkpoint_interval_s: float = 60.0,
    save_env_states: bool = True,
    video_every: int = 0,
    progress: bool = False,
) -> TrainResult:
    """Train a policy on parallel envs and leave the run in a folder.

    Args:
        env: what `rookery.make_vec` takes: gym id, ``"module:Id"``, EnvSpec or callable.
        algo: "ppo", "a2c", "impala", "dqn" or "sac", or settings of your own such as a `PPOConfig`.
        total_steps: env steps to train for, all envs together; rounded up to whole rollouts.
        num_envs: environments that run in parallel.
        seed: root of every random number of the run.
        run_dir: the run's folder; None takes a fresh one under ``runs/``.
        overwrite: replace the run that ``run_dir`` already holds.
        env_kwargs: given to every env.
        wrappers: callables ``Env -> Env``, applied where the env lives.
        env_module: module to import first, which registers the env.
        collector: "caller": the policy acts in this process, by turns with the envs. "workers": it
            acts in the workers, see `rookery.WorkerCollector`. "async": so it does, and the workers
            do not wait for the learner. "auto": "async" for IMPALA, "caller" for all others.
        max_policy_lag: in "async", the most versions that a rollout's weights may be behind.
        backend: see `rookery.make_vec`, as for the next five.
        num_workers: worker processes.
        start_method: how worker processes start.
        isolate: one env per worker process.
        caller_steps: whether the calling process steps a share of the envs.
        threads_per_worker: cap on numerical threads in workers.
        on_fault: see `rookery.FaultPolicy`, as for the next four.
        max_restarts: replacements of one worker within a minute.
        step_timeout_s: the longest that one env's step may take.
        reset_timeout_s: the longest that one env's reset may take.
        max_worker_rss_mb: replace a worker that grows beyond this.
        eval_episodes: episodes of the final evaluation; 0 leaves it out.
        checkpoint_interval_s: seconds between checkpoints; one is always written at the end.
        save_env_states: keep the envs' states beside checkpoints, to `resume` amid episodes.
        video_every: env steps between two videos of an episode; 0 records none.
        progress: show progress on standard error.

    Returns:
        Where the run is, how fast it was, and the final evaluation.

    Raises:
        KeyboardInterrupt: on Ctrl-C, after a checkpoint was written and the envs were closed.
        SystemExit: on SIGTERM, likewise; its code is 143.
    """
    settings = TrainSettings(
        total_steps=total_steps,
        num_envs=num_envs,
        seed=seed,
        run_dir=None if run_dir is None else str(run_dir),
        overwrite=overwrite,
        env_module=env_module,
        collector=collector,
        max_policy_lag=max_policy_lag,
        backend=backend,
        num_workers=num_workers,
        start_method=start_method,
        isolate=isolate,
        caller_steps=caller_steps,
        threads_per_worker=threads_per_worker,
        on_fault=on_fault,
        max_restarts=max_restarts,
        step_timeout_s=step_timeout_s,
        reset_timeout_s=reset_timeout_s,
        max_worker_rss_mb=max_worker_rss_mb,
        eval_episodes=eval_episodes,
        checkpoint_interval_s=checkpoint_interval_s,
        save_env_states=save_env_states,
        video_every=video_every,
    )
    source = EnvSource(env, env_kwargs or {}, wrappers, env_module)
    algorithm, config = algorithm_of(algo)
    folder = RunDirectory.plan(run_dir, f"{source.name}-{algorithm.name}-{seed}", overwrite)

    def begin(run: Run) -> None:
        # The folder is made last: a setting that cannot be leaves none behind.
        folder.make()
        folder.write_config(_describe(source, algorithm, config, settings))

    return _train(source, algorithm, config, settings, folder, begin, progress)


def resume(
    run_dir: str | Path,
    *,
    total_steps: int | None = None,
    env: Any = None,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Callable[[Any], Any]] | None = None,
    progress: bool = False,
) -> TrainResult:
    """Go on with a run from its last checkpoint, as if it had never stopped.

    Weights, optimiser, schedules, statistics, generators, counters and replay are taken over, and
    so are the envs amid their episodes, where their states can be saved. Where they cannot, they
    start new episodes, and a line on standard error says why. Metrics after the checkpoint are
    dropped, because they come again.

    Resume runs that you trust: the envs' states are pickles, and loading them executes code.

    Args:
        run_dir: folder that `train` wrote.
        total_steps: a new end of the run; None takes the run's own. Schedules follow it.
        env: what to train on; None takes the run's env. Needed where that was a lambda.
        env_kwargs: likewise.
        wrappers: likewise.
        progress: show progress on standard error.

    Returns:
        What `train` returns, for the whole run.

    Raises:
        ConfigError: there is no run in the folder, or no checkpoint of it.
    """
    folder = RunDirectory.existing(run_dir)
    written = folder.read_config()
    settings = TrainSettings(**written["train"])
    if total_steps is not None:
        settings = replace(settings, total_steps=total_steps)
    source = EnvSource.from_dict(written["source"], env, env_kwargs, wrappers)
    algorithm = ALGORITHMS[written["algo"]]
    config = algorithm.config.from_dict(written[algorithm.name])
    if not folder.checkpoint.is_file():
        raise ConfigError(f"{folder.path} holds no checkpoint to resume from")

    def begin(run: Run) -> None:
        for note in state.restore(run):
            print(f"rookery: resuming at {run.steps} steps: {note}", file=sys.stderr)
        folder.write_config({**written, "train": asdict(settings)})

    return _train(source, algorithm, config, settings, folder, begin, progress, resumed=True)


def _train(
    source: EnvSource,
    algorithm: Algorithm,
    config: Any,
    settings: TrainSettings,
    folder: RunDirectory,
    begin: Callable[[Run], None],
    progress: bool,
    resumed: bool = False,
) -> TrainResult:
    """Build the envs and the run, let ``begin`` prepare it, and train."""
    require_machine(getattr(config, "device", "cpu"), getattr(config, "compile", False))
    collector = algorithm.collector(config, settings)  # complains before anything starts
    seed = state.policy_seed(folder, settings.seed) if resumed else settings.seed
    start = time.perf_counter()
    with open_stage(source, algorithm, config, settings, collector, seed) as stage:
        startup_s = time.perf_counter() - start
        run = Run(stage, source, algorithm, config, settings, folder)
        begin(run)
        run.seconds += startup_s
        rows = config.rows_per_gradient_step(settings.num_envs)
        widths = config.hidden_sizes or (64,)
        with blas_threads_for(rows, widths), torch_threads_for(run.policy.is_recurrent):
            return run.train(progress, resumed)


def _describe(
    source: EnvSource, algorithm: Algorithm, config: Config, settings: TrainSettings
) -> dict[str, Any]:
    """Everything needed to repeat the run."""
    return {
        "algo": algorithm.name,
        "source": source.to_dict(),
        algorithm.name: config.to_dict(),
        "train": asdict(settings),
        "versions": {
            "rookery": rookery.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "gymnasium": gymnasium.__version__,
        },
    }
