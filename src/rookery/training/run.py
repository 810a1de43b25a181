"""One training run: its parts, and the loop that joins them."""

from __future__ import annotations

import time

import numpy as np

from rookery.errors import WorkerError
from rookery.learn.config import Config
from rookery.rollout import Rollout
from rookery.telemetry.sink import Sink
from rookery.training import state
from rookery.training.algorithms import Algorithm
from rookery.training.clock import Clock
from rookery.training.evaluation import run_episodes
from rookery.training.history import History
from rookery.training.interrupt import Terminated
from rookery.training.journal import Journal
from rookery.training.run_dir import RunDirectory
from rookery.training.settings import TrainResult, TrainSettings
from rookery.training.source import EnvSource
from rookery.training.stage import Stage
from rookery.training.video import VideoRecorder


class Run:
    """One training run.

    Attributes:
        stage: where policy and envs meet.
        policy: who acts; carries the weights.
        learner: changes the weights.
        collector: hands out rollouts.
        history: what became of the episodes.
        run_dir: where everything is written.
        steps: env steps so far, all envs together.
        seconds: of training so far.
        saves: how many checkpoints were written.
    """

    def __init__(
        self,
        stage: Stage,
        source: EnvSource,
        algorithm: Algorithm,
        config: Config,
        settings: TrainSettings,
        run_dir: RunDirectory,
    ) -> None:
        """Build the parts. Settings that cannot be are refused here; nothing is written yet."""
        self.stage, self.settings, self.run_dir = stage, settings, run_dir
        self.title = f"{algorithm.title} on {source.name}, seed {settings.seed}"
        self.policy, self.collector, self._shield = stage.policy, stage.collector, stage.shield
        self.learner = algorithm.learner(self.policy, config, settings.num_envs, settings.seed)
        self.history = History(settings.num_envs)
        self.steps = self.saves = 0
        self.seconds = 0.0
        self._video: VideoRecorder | None = None
        if settings.video_every:
            self._video = VideoRecorder(source, settings.video_every, run_dir.videos, settings.seed)

    def train(self, progress: bool, resumed: bool = False) -> TrainResult:
        """Run the loop, the final evaluation, and leave everything written and closed."""
        sinks = _sinks(self.run_dir, self.settings.total_steps, progress, self.steps, resumed)
        journal = Journal(sinks, self.learner.log_steps, self.steps)
        try:
            with self._shield:
                try:
                    self._loop_until_signal(journal)
                except (KeyboardInterrupt, Terminated) as interrupt:
                    message = f"after {self.steps} steps; see {self.run_dir.checkpoint}"
                    raise type(interrupt)(message) from None
                finally:
                    with self._shield.hold():
                        state.save(self)
        finally:
            journal.close()
            self._draw()
        return self._result()

    def _loop_until_signal(self, journal: Journal) -> None:
        try:
            self._loop(journal)
        except WorkerError:
            # A signal to the whole process group ends the workers too; it is what happened.
            self._shield.check()
            raise

    def _loop(self, journal: Journal) -> None:
        """Collect, learn, log, until the steps are done."""
        settings = self.settings
        clock = Clock(self.stage.meter, self.seconds)
        if self._video:
            self._video.begin(self.steps)
        saved = time.perf_counter()
        while self.steps < settings.total_steps:
            began = time.perf_counter()
            rollout = self.collector.collect()
            with self._shield.hold():
                self._learn(rollout, began, clock, journal)
                if time.perf_counter() - saved > settings.checkpoint_interval_s:
                    state.save(self)
                    saved = time.perf_counter()
            if self._video:
                self._video.maybe_record(self.steps, self.policy)

    def _learn(self, rollout: Rollout, began: float, clock: Clock, journal: Journal) -> None:
        """Hand a rollout, whose collecting began at ``began``, to the learner and to the logs."""
        collected = time.perf_counter()
        metrics = self.learner.update(rollout, self.steps / self.settings.total_steps)
        times = clock.lap(began, collected)
        lag = self.policy.version - rollout.policy_version
        peaks: dict[str, float] = {}
        if self.stage.runs_ahead:
            metrics = {**metrics, "policy_lag_mean": float(lag.mean())}
            peaks = {"policy_lag_max": float(lag.max())}
        self.policy.version += 1
        self.steps += rollout.num_transitions
        self.history.add(self.steps, rollout)
        self.seconds = clock.seconds
        speed = {"seconds": self.seconds, "steps_per_second": self.steps / self.seconds}
        journal.add(self.steps, {**speed, **self.history.metrics()}, metrics, times, peaks)

    def _draw(self) -> None:
        from rookery.telemetry.curve import draw_curve

        draw_curve(self.run_dir.curve, self.history.steps, self.history.returns, self.title)

    def _result(self) -> TrainResult:
        score = None
        if self.settings.eval_episodes:
            episodes, seed = self.settings.eval_episodes, self.settings.seed
            with self.stage.evaluation_envs(episodes) as venv:
                score = run_episodes(venv, self.policy, episodes, seed)
        returns = [] if score is None else score.returns.tolist()  # faults may leave none
        return TrainResult(
            run_dir=str(self.run_dir.path),
            steps=self.steps,
            seconds=self.seconds,
            steps_per_second=self.steps / self.seconds,
            eval_return_mean=float(np.mean(returns)) if returns else None,
            eval_return_std=float(np.std(returns)) if returns else None,
        )


def _sinks(
    run_dir: RunDirectory, total_steps: int, progress: bool, steps: int, resumed: bool
) -> list[Sink]:
    """Open the destinations of metrics; their libraries are loaded here, not before."""
    from rookery.telemetry.jsonl import JSONLSink
    from rookery.telemetry.tensorboard import TensorBoardSink
    from rookery.telemetry.terminal import terminal_sink

    resume_step = steps if resumed else None
    sinks: list[Sink] = [
        JSONLSink(run_dir.metrics, resume_step),
        TensorBoardSink(run_dir.path, resume_step),
    ]
    return [*sinks, terminal_sink(total_steps)] if progress else sinks
