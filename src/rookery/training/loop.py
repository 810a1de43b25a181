"""Training from the first reset to the final evaluation."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np

import rookery
from rookery.collect.sync import SyncCollector
from rookery.env.seeding import env_seeds
from rookery.errors import ConfigError
from rookery.learn.config import PPOConfig
from rookery.learn.ppo import PPO
from rookery.telemetry.sink import Sink
from rookery.training.checkpoint import save_checkpoint
from rookery.training.evaluation import policy_of, run_episodes
from rookery.training.history import History
from rookery.training.interrupt import InterruptShield
from rookery.training.run_dir import RunDirectory
from rookery.training.settings import TrainResult, TrainSettings
from rookery.training.source import EnvSource
from rookery.training.threads import blas_threads_for
from rookery.vector.base import VectorEnv


def train(
    env: Any,
    algo: str | PPOConfig = "ppo",
    *,
    total_steps: int = 100_000,
    num_envs: int = 8,
    seed: int = 0,
    run_dir: str | Path | None = None,
    overwrite: bool = False,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Callable[[Any], Any]] = (),
    env_module: str | None = None,
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
    progress: bool = False,
) -> TrainResult:
    """Train a policy on parallel envs and leave the run in a folder.

    Args:
        env: what `rookery.make_vec` takes: gym id, ``"module:Id"``, EnvSpec or callable.
        algo: "ppo", or a `PPOConfig` with settings of your own.
        total_steps: env steps to train for, all envs together; rounded up to whole rollouts.
        num_envs: environments that run in parallel.
        seed: root of every random number of the run.
        run_dir: the run's folder; None takes a fresh one under ``runs/``.
        overwrite: replace the run that ``run_dir`` already holds.
        env_kwargs: given to every env.
        wrappers: callables ``Env -> Env``, applied where the env lives.
        env_module: module to import first, which registers the env.
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
        progress: show progress on standard error.

    Returns:
        Where the run is, how fast it was, and the final evaluation.

    Raises:
        KeyboardInterrupt: on Ctrl-C, after a checkpoint was written and the envs were closed.
    """
    settings = TrainSettings(
        total_steps=total_steps,
        num_envs=num_envs,
        seed=seed,
        run_dir=None if run_dir is None else str(run_dir),
        overwrite=overwrite,
        env_module=env_module,
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
    )
    source = EnvSource(env, env_kwargs or {}, wrappers, env_module)
    config = _config(algo)
    folder = RunDirectory.plan(run_dir, f"{source.name}-ppo-{seed}", overwrite)
    start = time.perf_counter()
    with source.make(num_envs, **settings.vector_options()) as venv:
        startup_s = time.perf_counter() - start
        run = _Run(venv, source, config, settings, folder, progress)
        with blas_threads_for(config.minibatch_size, config.hidden_sizes or (64,)):
            return run.train(startup_s)


class _Run:
    """One training run; its parts, and the loop that joins them."""

    def __init__(
        self,
        venv: VectorEnv,
        source: EnvSource,
        config: PPOConfig,
        settings: TrainSettings,
        run_dir: RunDirectory,
        progress: bool,
    ) -> None:
        self.venv, self.settings, self.config = venv, settings, config
        self.title = f"PPO on {source.name}, seed {settings.seed}"
        self.policy = policy_of(venv, config, settings.seed)
        self.learner = PPO(self.policy.model, config, venv.num_envs, settings.seed)
        self.collector = SyncCollector(
            venv,
            self.policy,
            config.num_steps,
            seed=env_seeds(settings.seed, venv.num_envs),
            copy=False,
        )
        # The folder is made last: a setting that cannot be leaves none behind.
        self.run_dir = run_dir
        self.run_dir.make()
        self.run_dir.write_config(_describe(source, config, settings))
        self.sinks = _sinks(self.run_dir, settings.total_steps, progress)
        self.history = History(venv.num_envs)
        self.steps = 0
        self.seconds = 0.0

    def train(self, startup_s: float) -> TrainResult:
        """Run the loop, the final evaluation, and leave everything written and closed."""
        self.seconds = startup_s
        try:
            with InterruptShield() as shield:
                try:
                    self._loop(shield)
                except KeyboardInterrupt:
                    message = f"after {self.steps} steps; see {self.run_dir.checkpoint}"
                    raise KeyboardInterrupt(message) from None
                finally:
                    with shield.hold():
                        self._save()
        finally:
            from rookery.telemetry.curve import draw_curve

            for sink in self.sinks:
                sink.close()
            draw_curve(self.run_dir.curve, self.history.steps, self.history.returns, self.title)
        score = None
        if self.settings.eval_episodes:
            episodes, seed = self.settings.eval_episodes, self.settings.seed
            score = run_episodes(self.venv, self.policy, episodes, seed)
        return TrainResult(
            run_dir=str(self.run_dir.path),
            steps=self.steps,
            seconds=self.seconds,
            steps_per_second=self.steps / self.seconds,
            eval_return_mean=float(score.returns.mean()) if score else None,
            eval_return_std=float(score.returns.std()) if score else None,
        )

    def _loop(self, shield: InterruptShield) -> None:
        """Collect, update, log, until the steps are done."""
        start = saved = time.perf_counter() - self.seconds
        while self.steps < self.settings.total_steps:
            before = time.perf_counter()
            rollout = self.collector.collect()
            collected = time.perf_counter()
            with shield.hold():
                metrics = self.learner.update(rollout, self.steps / self.settings.total_steps)
                self.policy.version += 1
                self.steps += rollout.num_transitions
                self.history.add(self.steps, rollout)
                now = time.perf_counter()
                self.seconds = now - start
                times = {"collect_s": collected - before, "learn_s": now - collected}
                self._log({**self.history.metrics(), **metrics, **times})
                if now - saved > self.settings.checkpoint_interval_s:
                    self._save()
                    saved = now

    def _log(self, metrics: dict[str, float]) -> None:
        times = {"seconds": self.seconds, "steps_per_second": self.steps / self.seconds}
        for sink in self.sinks:
            sink.write(self.steps, {**times, **metrics})

    def _save(self) -> None:
        state = {
            "steps": self.steps,
            "seconds": self.seconds,
            "policy_version": self.policy.version,
            "model": self.policy.model.state_dict(),
            "learner": self.learner.state_dict(),
            "rng": self.policy.rng.bit_generator.state,
        }
        save_checkpoint(self.run_dir.checkpoint, state)


def _config(algo: str | PPOConfig) -> PPOConfig:
    if isinstance(algo, PPOConfig):
        return algo
    if algo != "ppo":
        raise ConfigError(f"algo {algo!r} is not known; choose 'ppo' or pass a PPOConfig")
    return PPOConfig()


def _sinks(run_dir: RunDirectory, total_steps: int, progress: bool) -> list[Sink]:
    """Open the destinations of metrics; their libraries are loaded here, not before."""
    from rookery.telemetry.jsonl import JSONLSink
    from rookery.telemetry.tensorboard import TensorBoardSink
    from rookery.telemetry.terminal import terminal_sink

    sinks: list[Sink] = [JSONLSink(run_dir.metrics), TensorBoardSink(run_dir.path)]
    return [*sinks, terminal_sink(total_steps)] if progress else sinks


def _describe(source: EnvSource, config: PPOConfig, settings: TrainSettings) -> dict[str, Any]:
    """Everything needed to repeat the run."""
    train = {name: getattr(settings, name) for name in settings.__dataclass_fields__}
    return {
        "algo": "ppo",
        "source": source.to_dict(),
        "ppo": config.to_dict(),
        "train": train,
        "versions": {
            "rookery": rookery.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "gymnasium": gymnasium.__version__,
        },
    }
