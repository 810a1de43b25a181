"""Trainer: a training run as an iterator of updates."""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn

import gymnasium as gym
from gymnasium import Space

from rookery.common.arguments import whole_number
from rookery.errors import (
    ClosedError,
    LearnerDied,
    PicklingError,
    RookeryError,
    UsageError,
    WorkerError,
)
from rookery.learn.base import Algorithm
from rookery.learn.machine import require_machine
from rookery.learn.schedule import check_schedules
from rookery.rollout import Rollout
from rookery.run import checks
from rookery.run.agent import Agent
from rookery.run.algorithms import config_of, is_own
from rookery.run.callbacks import (
    Callback,
    StopTraining,
    callbacks_of,
)
from rookery.run.checkpoint import state
from rookery.run.checkpoint.run_dir import RunDirectory, whole_file
from rookery.run.checks import FiniteRollouts
from rookery.run.collection import collector_for, open_collection, stepped
from rookery.run.env_source import EnvSource
from rookery.run.evaluation import (
    MOST_EPISODE_STEPS,
    EvalResult,
    EvaluationEnvs,
    result_of,
    run_episodes,
)
from rookery.run.interrupt import Interrupts, Terminated
from rookery.run.learners.open_learners import open_learners
from rookery.run.log.advice import advised
from rookery.run.log.clock import Clock
from rookery.run.log.curve import draw_curve
from rookery.run.log.history import History
from rookery.run.log.journal import Journal, checked_sinks, line_at, numbers, sinks_of
from rookery.run.log.jsonl import EvaluationLog
from rookery.run.log.sinks import Sink
from rookery.run.log.telemetry_log import TelemetryLog
from rookery.run.plan import RunPlan
from rookery.run.progress import DueCallbacks, Progress, Schedule, Update, UpdateMetrics
from rookery.run.request import ARGUMENTS, RunRequest, shows_arguments
from rookery.run.settings import CollectorName
from rookery.run.threads import threads_and_memory_for
from rookery.vector.base import VectorEnv

_LEAVE_WEIGHTS_WHOLE = (KeyboardInterrupt, Terminated, WorkerError, LearnerDied)


class Stage(Enum):
    """Stages of a trainer's life; they decide which calls are allowed."""

    OPENING = "starting envs and logs"
    READY = "between two updates"
    COLLECTING = "collecting a rollout"
    LEARNING = "changing the weights"
    CALLING = "calling the callbacks of an update"
    TORN = "closed for learning: an update was interrupted while it changed the weights"
    FINISHED = "the final evaluation was made"
    CLOSED = "closed"


UPDATING = (Stage.COLLECTING, Stage.LEARNING, Stage.CALLING)


class Trainer:
    """Trains a policy, one update at a time.

    ::

        with rookery.Trainer("CartPole-v1", total_steps=50_000) as trainer:
            for update in trainer:
                print(update.steps, update.metrics.get("episode_return_mean"))
            print(trainer.evaluate(episodes=20).eval_return_mean)

    Creating a trainer starts the envs and creates the run's folder. Leaving the ``with`` block
    writes a checkpoint, also after Ctrl-C, SIGTERM or the failure of an env. After any other
    exception the last checkpoint stays as it is. Ctrl-C during an update prints a message and
    takes effect when the update is complete. A second Ctrl-C takes effect at once and writes no
    checkpoint.

    Args:
        env: env to train on, as for `rookery.make_vec`: gym id, ``"module:Id"``, EnvSpec or
            callable.
        algo: "ppo", "a2c", "impala", "dqn", "qrdqn", "sac" or "td3", a config such as a
            `PPOConfig`, or a custom `Algorithm`.
        **arguments: further fields of `rookery.RunRequest`, such as ``callbacks`` and
            ``wrappers``, and fields of `rookery.TrainSettings`, such as ``total_steps``,
            ``num_envs``, ``seed`` and ``run_dir``.

    Attributes:
        plan: envs, algorithm and settings of the run.
        run_dir: folder of the run.
        policy: the acting policy, which holds the weights.
        collection: the envs, the policy in them, and the collector.
        collector: source of rollouts.
        learners: all learner processes, this one included.
        evaluations: evaluations so far, as in evaluations.jsonl.
        progress: steps, schedule, history and other counters, which checkpoints contain.

    Raises:
        ConfigError: a setting is invalid, or another process uses the folder. Nothing was started.
    """

    @shows_arguments(ARGUMENTS, with_settings=True)
    def __init__(self, env: Any, algo: Any = "ppo", **arguments: Any) -> None:
        request = RunRequest.of(env=env, algo=algo, **arguments)
        plan = RunPlan.new(request)
        self._open(plan, plan.folder(), request)
        if request.progress:
            _print_notes(self._note, plan.describe_settings())
        _print_notes(*plan.notes)

    @classmethod
    def resume(cls, run_dir: str | Path, **arguments: Any) -> Trainer:
        """Resume a run from its last checkpoint; see `rookery.resume` for the arguments."""
        request = RunRequest.of(**arguments)
        folder = RunDirectory.existing(run_dir)
        plan, saved = state.read_run(folder, request)
        trainer = cls.__new__(cls)
        trainer._open(plan, folder, request, saved)
        if request.progress:
            _print_notes(trainer._note)
        return trainer

    def _open(
        self,
        plan: RunPlan,
        folder: RunDirectory,
        request: RunRequest,
        saved: dict[str, Any] | None = None,
    ) -> None:
        """Start the run; on an error, close everything that was started.

        ``saved`` is the state of the run to resume, or None for a new run.
        """
        self._stage = Stage.OPENING
        self.plan, self.run_dir = plan, folder
        settings, algorithm = plan.settings, plan.algorithm
        sinks, self.callbacks = checked_sinks(request.sinks), callbacks_of(plan, request.callbacks)
        config = config_of(algorithm)
        require_machine(getattr(config, "device", "cpu"), getattr(config, "compile", False))
        if config is not None:
            config.check(settings.num_envs)
            check_schedules(config)
        collector = collector_for(algorithm, settings)  # the last check before anything starts
        source = stepped(plan.source, settings, collector, saved)
        self._note = source.note()
        self.progress = Progress(
            Schedule(settings.total_steps),
            History(settings.num_envs, episode_keys=plan.source.episode_keys()),
        )
        self._interrupts, self._finite, self._pid = Interrupts(), FiniteRollouts(), os.getpid()
        self._returned_false: tuple[Callback, ...] = ()  # those of which a warning was given
        began = time.perf_counter()
        with ExitStack() as stack:
            stack.enter_context(folder.held(saved is not None or settings.overwrite))
            self._open_learning(stack, source, collector, saved)
            self._evaluation = EvaluationEnvs(
                plan.eval_source, settings.evaluation_options(), self.collection.spaces
            )
            stack.callback(self._evaluation.close)
            if request.initial is not None:
                request.initial.give_weights_to(self.policy, self.spaces)
            self._state = state.RunState(
                folder, plan, self.collection, self.learners, self.progress, saved is not None
            )
            if saved is None:
                folder.clear()
            else:
                self._state.restore(saved, self.callbacks)
            if self.learners.are_several:
                self.learners.bring(self._state.shared())
            folder.write_config(plan.to_dict())
            self._open_logs(saved is not None, request.progress, sinks, collector)
            stack.callback(self._journal.close)
            stack.enter_context(
                threads_and_memory_for(
                    config, self.policy, settings.num_envs, self.learners.share.size
                )
            )
            self._stack = stack.pop_all()
        # Releases processes, files and locks of a trainer that was never closed. It runs before
        # the finalizers of objects that are garbage-collected together with the trainer.
        weakref.finalize(self, _close_in_owner, self._stack, self._pid)
        self._clock = Clock(self.collection.meter, self.seconds + time.perf_counter() - began)
        # A resumed run printed its advice when it started.
        self._first = (
            advised(algorithm, settings.num_envs, self.learners.share.count, self.spaces[0])
            if saved is None
            else None
        )
        self._stage = Stage.READY

    def _open_learning(
        self,
        stack: ExitStack,
        source: EnvSource,
        collector: CollectorName,
        saved: dict[str, Any] | None,
    ) -> None:
        """Start the envs, the policy in them, and the other learners."""
        settings = self.plan.settings
        seed = settings.seed if saved is None else state.policy_seed(saved, settings.seed)
        self.learners = open_learners(self.plan, collector, seed)
        stack.callback(self.learners.close)
        share = self.learners.share
        self.collection = open_collection(
            source, self.plan.algorithm, share.settings(settings), collector, seed,
            self._interrupts.check, share, self.learners.peers,
        )  # fmt: skip
        stack.callback(self.collection.close)
        self.policy, self.collector = self.collection.policy, self.collection.collector
        self.learners.meet()

    def _open_logs(
        self, is_resumed: bool, progress: bool, sinks: Sequence[Sink], collector: CollectorName
    ) -> None:
        """Open logs and sinks; a resumed run drops what was logged after its checkpoint."""
        settings, due = self.plan.settings, self.progress.due
        resumed_at = self.steps if is_resumed else None
        self.evaluations = EvaluationLog(self.run_dir.evaluations, resumed_at)
        line = None if due is None else line_at(self.run_dir.metrics, self.steps)
        # The line of an update with due callbacks is written again, with the metrics they add.
        kept = resumed_at if due is None else self.steps - 1
        self._journal = Journal(
            sinks_of(self.run_dir, settings, progress, kept, sinks),
            getattr(self.plan.algorithm, "log_steps", 0),
            self.steps,
            getattr(self.plan.algorithm, "latest_metrics", Algorithm.latest_metrics),
            getattr(self.plan.algorithm, "summed_metrics", Algorithm.summed_metrics),
        )
        if due is not None:
            self._journal.hold(due.update.metrics, line)
        venv = self.collection.venv
        self._telemetry = TelemetryLog(
            self.run_dir.telemetry,
            settings.telemetry_interval_s,
            self.collector.telemetry,
            resumed_at,
            {
                "collector": collector,
                "is_chosen": venv is not None and venv.choice is not None,
                "max_worker_rss_mb": settings.max_worker_rss_mb,
            },
        )

    # ---------------------------------------------------------------- what callbacks read

    @property
    def steps(self) -> int:
        """Env steps so far, summed over all envs."""
        return self.progress.steps

    @property
    def seconds(self) -> float:
        """Training time so far, in seconds."""
        return self.progress.seconds

    @property
    def stopped(self) -> str:
        """The reason why the run ended early; empty if it did not."""
        return self.progress.stopped

    @property
    def best_return(self) -> float | None:
        """The best mean return of an `EvaluateEvery` so far; None before the first."""
        return self.progress.best_return

    @property
    def history(self) -> History:
        """Returns and lengths of recent episodes."""
        return self.progress.history

    @property
    def is_saved(self) -> bool:
        """True if the checkpoint contains the latest update."""
        return self._state.is_saved

    @property
    def spaces(self) -> tuple[Space[Any], Space[Any]]:
        """Observation space and action space of one env."""
        return self.collection.spaces

    # ---------------------------------------------------------------- updates

    def __iter__(self) -> Trainer:
        return self

    def __next__(self) -> Update:
        """Collect one rollout and learn from it.

        If an interruption stopped the callbacks of the last update, this returns the same update
        again, after calling the remaining callbacks.

        Raises:
            StopIteration: ``total_steps`` are done, or a callback ended the run.
            WorkerError: an env or its worker failed.
            TrainingDiverged: losses, gradients or env data were repeatedly not finite.
        """
        self._require_whole("next")
        self._refuse_during_update("next")
        progress = self.progress
        is_over = progress.stopped or progress.steps >= self.plan.settings.total_steps
        if progress.due is None and is_over:
            raise StopIteration
        self._interrupts.begin()
        stage, self._stage = self._stage, Stage.COLLECTING
        try:
            due = self._update_and_call()
        except StopIteration as stop:  # would end the caller's loop without an error
            raise UsageError(
                "a callback, sink, schedule or algorithm of this run raised StopIteration, maybe "
                "by calling next() on an exhausted iterator; see the traceback above. To end the "
                "run from a callback, raise rookery.StopTraining"
            ) from stop
        finally:
            self._stage = Stage.TORN if self._stage is Stage.LEARNING else stage
        self._interrupts.check()
        progress.due = None
        if self._state.is_time_to_save():
            self.save()
        return due.update

    def _update_and_call(self) -> DueCallbacks:
        """Make an update, unless one has callbacks due, then call callbacks and the journal."""
        try:
            due = self._updated() if self.progress.due is None else self.progress.due
            self._stage = Stage.CALLING
            self._state.changed()
            self._interrupts.check()
            self._call_all(due)
        finally:
            self._write_down()
        return due

    def _write_down(self) -> None:
        """Add the last update to the journal, if it is not there yet."""
        with self._interrupts.deferred():  # a sink never receives half of a line
            if self.progress.due is not None:
                self.progress.due.write(self._journal)

    def _call_all(self, due: DueCallbacks) -> None:
        """Call the due callbacks; after an interruption, the remaining ones stay due."""
        try:
            while due:
                with due.turn() as callback:
                    self._call(callback, due.update)
        except _LEAVE_WEIGHTS_WHOLE:
            raise
        except BaseException:
            self._write_down()
            self.progress.due = None
            raise

    def _call(self, callback: Callback, update: Update) -> None:
        """Call a callback; after `StopTraining` the other callbacks are still called."""
        try:
            if callback(self, update) is False:
                self._warn_of_false(callback)
        except StopTraining as stop:
            self.progress.stopped = str(stop) or "a callback ended the run"

    def _warn_of_false(self, callback: Callback) -> None:
        """Warn once of a callback that returns False, which ends a run of other libraries."""
        if callback not in self._returned_false:
            self._returned_false = (*self._returned_false, callback)
            name = getattr(callback, "__qualname__", type(callback).__qualname__)
            gym.logger.warn(
                "%s",
                f"callback {name} returned False, which does not end the run; to end it, raise "
                "rookery.StopTraining('why')",
            )

    def _updated(self) -> DueCallbacks:
        """Collect and learn; signals are deferred until the update is complete."""
        with self._interrupts.deferred():
            began = time.perf_counter()
            share = self.progress.share
            self.learners.begin(share)
            rollout = self._collect()
            collected = time.perf_counter()
            self._finite.check(rollout)
            self._stage = Stage.LEARNING
            means, of_all_learners = self._learn(rollout, share)
            times = self._clock.lap(began, collected)
            due = self._count(rollout, of_all_learners, means, times)
            self._stage = Stage.CALLING
        self.progress.history.warn_of_missing(self.plan.settings.info_keys)
        if self._first is not None:
            self._first = self._first if self._first.look(rollout) else None
        return due

    def _collect(self) -> Rollout:
        try:
            return self.collector.collect()
        except WorkerError:
            # A signal to the whole process group also kills the workers: report the signal.
            self._interrupts.check()
            raise

    def _learn(self, rollout: Rollout, share: float) -> tuple[Mapping[str, float], Rollout]:
        """Make the gradient steps; return their metrics, and the rollouts of all learners."""
        algorithm = self.plan.algorithm
        try:
            with self.learners.noticing():
                if is_own(algorithm):
                    means: Mapping[str, float] = checks.learn(algorithm, rollout, share)
                else:
                    means = algorithm.update(rollout, share)
                return means, self.learners.everybodys(rollout)
        except LearnerDied:
            self._stage = Stage.COLLECTING  # a gradient step is made by all learners or by none
            raise

    def _count(
        self,
        rollout: Rollout,
        of_all_learners: Rollout,
        means: Mapping[str, float],
        times: Mapping[str, float],
    ) -> DueCallbacks:
        """Add a learned rollout to the progress, and gather the metrics of the update."""
        progress, peaks = self.progress, {}
        if self.collection.runs_ahead:
            lag = self.policy.version - rollout.policy_version
            means = {**means, "policy_lag_mean": float(lag.mean())}
            peaks = {"policy_lag_max": float(lag.max())}
        self._finite.note(means)
        self.policy.version += 1
        progress.steps += of_all_learners.num_transitions
        progress.history.add(progress.steps, of_all_learners)
        progress.seconds = self._clock.seconds
        self._state.changed()
        observed = self._telemetry.look(progress.steps, progress.seconds, times)
        speed = {"seconds": self.seconds, "steps_per_second": self.steps / self.seconds}
        now = {**speed, **progress.history.metrics(), **self._finite.metrics(), **self._faults()}
        metrics = {**now, **observed, **means, **peaks, **times}
        update = Update(self.steps, of_all_learners.num_transitions, metrics)
        progress.due = DueCallbacks(update, self.callbacks, UpdateMetrics(means, times, peaks))
        return progress.due

    def _faults(self) -> dict[str, float]:
        """Return metrics of worker restarts; empty without restarts."""
        statistics = self.collector.statistics()
        if not statistics.restarts:
            return {}
        return {
            "worker_restarts": float(statistics.restarts),
            "lost_transitions": float(statistics.lost_rows),
        }

    # ---------------------------------------------------------------- evaluation

    def evaluate(
        self,
        episodes: int = 20,
        *,
        deterministic: bool = True,
        seed: int | None = None,
        max_episode_steps: int = MOST_EPISODE_STEPS,
    ) -> EvalResult:
        """Play complete episodes with the current weights, in separate envs.

        Evaluation does not change the training that follows.

        Args:
            episodes: number of episodes.
            deterministic: take the most probable actions instead of sampling them.
            seed: seed of the episodes; None takes the run's, so that all evaluations of the run
                use the same seeds.
            max_episode_steps: an episode is cut off after this many steps. It counts with its
                return so far, and a warning is printed.

        Raises:
            WorkerError: faults cut off so many episodes in a row that none could be counted.
        """
        self._require_open("evaluate")
        whole_number("episodes", episodes, 1)
        whole_number("max_episode_steps", max_episode_steps, 1)
        if seed is not None:
            whole_number("seed", seed, 0)
        venv = self._evaluation.of(min(self.plan.settings.num_envs, episodes))
        return self._play(venv, episodes, deterministic, seed, max_episode_steps)

    def final_evaluation(self) -> EvalResult | None:
        """Save the run and evaluate it with ``eval_episodes`` episodes.

        Training cannot continue afterwards, because the evaluation may use its envs.
        """
        self._require_open("final_evaluation")
        self._refuse_during_update("final_evaluation")
        if not self.is_saved:
            self.save()
        self._telemetry.finish(self.steps, self.seconds)  # telemetry covers training only
        self._stage = Stage.FINISHED
        self.progress.stopped = self.stopped or "the final evaluation was made"
        if not self.plan.settings.eval_episodes:
            return None
        score = self._play_at_the_end(self.plan.settings.eval_episodes)
        self.evaluations.add(self.steps, score.eval_return_mean, score.eval_return_std)
        return score

    def _play_at_the_end(self, episodes: int) -> EvalResult:
        venv = self.collection.venv
        is_same = venv is not None and self.plan.eval_source is self.plan.source
        if venv is not None and is_same and self.plan.settings.num_envs <= episodes:
            return self._play(venv, episodes)
        self.collection.close()  # the training envs are no longer needed
        return self.evaluate(episodes)

    def _play(
        self,
        venv: VectorEnv,
        episodes: int,
        deterministic: bool = True,
        seed: int | None = None,
        max_episode_steps: int = MOST_EPISODE_STEPS,
    ) -> EvalResult:
        seed = self.plan.settings.seed if seed is None else seed
        key = next(iter(self.plan.eval_source.episode_keys()), None)
        score = run_episodes(
            venv, self.policy, episodes, seed, deterministic, max_episode_steps, key
        )
        return result_of(score, self.run_dir)

    # ---------------------------------------------------------------- what is kept

    def log(self, update: Update, metrics: Mapping[str, float]) -> None:
        """Add metrics to an update; sinks receive them too. Call this from callbacks.

        Raises:
            ConfigError: a value is not a number.
        """
        update.metrics.update(numbers(metrics))

    def save(self, path: str | Path | None = None) -> Path:
        """Write a checkpoint.

        Args:
            path: file to write, without envs and replay. None writes the run's ``checkpoint.pt``
                with envs and replay, from which the run can be resumed.

        Raises:
            StorageError: the file cannot be written; the previous checkpoint is kept.
        """
        self._require_whole("save")
        with self._interrupts.deferred():
            if path is not None:
                self._state.save_alone(Path(path))
            elif self._stage is not Stage.FINISHED:
                # The final evaluation saved the run, and may have moved its envs since.
                self._state.save()
        self._interrupts.check()
        return self.run_dir.checkpoint if path is None else Path(path)

    def agent(self) -> Agent:
        """Return a copy of the current policy to act with; training does not change the copy."""
        return Agent.of(self.plan.algorithm, self.spaces, self.policy, self.steps)

    # ---------------------------------------------------------------- the end

    def close(self) -> None:
        """Close envs, files and sinks without writing a checkpoint; may be called twice.

        Raises:
            UsageError: called during an update, for example by a callback.
        """
        self._refuse_during_update("close")
        if os.getpid() != self._pid:  # a forked copy owns no processes or files
            self._stage = Stage.CLOSED
            return
        with self._interrupts.deferred():
            try:
                if self._is_open:
                    self._stage = Stage.CLOSED
                    self._telemetry.finish(self.steps, self.seconds)
                    self._draw_curve()
            finally:
                self._stack.close()  # if a second signal interrupts this, another call finishes it
        self._interrupts.check()

    def _draw_curve(self) -> None:
        """Draw the learning curve: returns of episodes and of evaluations."""
        with whole_file(self.run_dir.curve) as file:
            draw_curve(
                file,
                self.progress.history.steps,
                self.progress.history.returns,
                self.plan.title,
                evaluations=self.evaluations.points(),
                expected=self.plan.expected_return,
                expected_label="published for this preset",
            )

    def __reduce__(self) -> NoReturn:
        raise PicklingError(
            "a Trainer cannot be pickled or copied, because it has processes and files. Use "
            "trainer.agent() for a copy of its policy, or rookery.resume(run_dir) for a saved run"
        )

    def __enter__(self) -> Trainer:
        self._interrupts.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any
    ) -> None:
        with self._interrupts.deferred():  # also while the signal handlers are restored
            try:
                is_good = error is None or isinstance(error, _LEAVE_WEIGHTS_WHOLE)
                is_whole = self._stage is not Stage.TORN and not self._interrupts.cut_short
                is_ours = self._is_open and os.getpid() == self._pid
                if is_good and is_ours and is_whole and not self.is_saved:
                    self._write_down()  # the journal is never behind the checkpoint
                    self.save()
            finally:
                try:
                    self._close_after(error)
                finally:
                    self._interrupts.__exit__(kind, error, traceback)
        self._interrupts.check()

    def _close_after(self, error: BaseException | None) -> None:
        """Close; an error of closing does not replace ``error``, which probably caused it."""
        try:
            self.close()
        except RookeryError:
            if error is None:
                raise

    @property
    def _is_open(self) -> bool:
        return self._stage not in (Stage.OPENING, Stage.CLOSED)

    def _refuse_during_update(self, call: str) -> None:
        if self._stage in UPDATING and os.getpid() == self._pid:
            raise UsageError(
                f"{call} was called during an update; to end the run from a callback, raise "
                "rookery.StopTraining"
            )

    def _require_whole(self, call: str) -> None:
        self._require_open(call)
        if self._stage in (Stage.LEARNING, Stage.TORN):
            raise UsageError(
                f"{call}: the last update was interrupted and its weights are incomplete; call "
                f"rookery.resume({str(self.run_dir.path)!r}) to resume from the last checkpoint"
            )

    def _require_open(self, call: str) -> None:
        if os.getpid() != self._pid:
            raise UsageError(
                f"{call}: this trainer belongs to process {self._pid}, and this process is a "
                "forked copy; use it there, or load its checkpoint with rookery.load"
            )
        if not self._is_open:
            raise ClosedError(f"{call}: this trainer is closed; resume the run with rookery.resume")


def _print_notes(*notes: str) -> None:
    """Print the notes that are not empty to standard error."""
    for note in filter(None, notes):
        print(f"rookery: {note}", file=sys.stderr)


def _close_in_owner(stack: ExitStack, pid: int) -> None:
    """Close a trainer's resources, unless this process is a forked copy."""
    if os.getpid() == pid:
        stack.close()
