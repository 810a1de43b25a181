"""The search for settings of an algorithm that learn an env well: Optuna asks, trials answer."""

from __future__ import annotations

import queue
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rookery.errors import RookeryError
from rookery.training.algorithms import BUILT_IN
from rookery.training.settings import TrainSettings
from rookery.tuning.hyperparameters.jobs import Answer, Job, Task
from rookery.tuning.hyperparameters.space import of_run
from rookery.tuning.hyperparameters.study import Question, Study, reason_of
from rookery.worker.cpus import usable_cpus

_ALIKE = 3  # trials that fail for one reason, and no other, end the search
_LOOK_S = 1.0  # how often a wait looks for Ctrl-C where the system does not interrupt it


class AllTrialsFailed(RookeryError):
    """No trial of a search came to its end; the message says why."""


@dataclass
class _Running:
    """What a job is doing.

    Attributes:
        trial: of Optuna; None for a run that confirms.
        number: of the trial.
        seed: of the run.
    """

    trial: Any
    number: int
    seed: int


@dataclass
class Search:
    """Trials until there are enough of them, and runs that confirm the best one.

    Attributes:
        study: whose trials are made.
        trials: how many the study is to have.
        jobs: processes that train at the same time.
        confirmations: further runs with the best trial's settings, each with a seed of its own.
        runs_dir: where the runs of trials are kept; None keeps none.
        tell: is told of every trial that has ended, in a line.
        show: is told of every evaluation, in a line.
    """

    study: Study
    trials: int
    jobs: int = 1
    confirmations: int = 3
    runs_dir: Path | None = None
    tell: Callable[[str], None] = lambda _: None
    show: Callable[[str], None] = lambda _: None
    _answers: queue.Queue[Answer] = field(default_factory=queue.Queue)
    _jobs: list[Job] = field(default_factory=list)
    _running: dict[Job, _Running] = field(default_factory=dict)
    _failed_before: set[int] = field(default_factory=set)

    def run(self) -> None:
        """Make what is missing.

        Ctrl-C ends the trials under way, which are then made once more when the search goes on.

        Raises:
            AllTrialsFailed: several trials failed for the same reason, and none did not.
        """
        self._failed_before = {trial.number for trial in self.study.failed()}
        try:
            self._work(self._next_trial)
            self._require_completed()
            self._work(self._next_confirmation)
        finally:
            self._end()

    def _work(self, next_task: Callable[[], tuple[_Running, Task] | None]) -> None:
        """Keep all jobs at work until nothing is left."""
        while True:
            while len(self._running) < self.jobs and (found := next_task()) is not None:
                running, task = found
                job = self._idle_job()
                self._running[job] = running
                job.give(task)
            if not self._running:
                return
            self._take(self._wait())

    def _idle_job(self) -> Job:
        for job in self._jobs:
            if job not in self._running:
                return job
        self._jobs.append(Job(self._answers, self.jobs))
        return self._jobs[-1]

    def _wait(self) -> Answer:
        while True:
            try:
                return self._answers.get(timeout=_LOOK_S)
            except queue.Empty:
                continue

    def _next_trial(self) -> tuple[_Running, Task] | None:
        self._require_some_success()
        under_way = sum(running.trial is not None for running in self._running.values())
        if len(self.study.made()) + under_way >= self.trials:
            return None
        trial = self.study.ask()
        running = _Running(trial, trial.number, self.study.seed_of(trial.number))
        return running, self._task(self.study.settings(trial), running, f"trial-{trial.number:04}")

    def _next_confirmation(self) -> tuple[_Running, Task] | None:
        best = self.study.completed()[0]
        done = {seed for seed, _ in self.study.confirmed(best.number)}
        done |= {running.seed for running in self._running.values()}
        for again in range(self.confirmations):
            seed = self.study.seed_of(best.number, again)
            if seed not in done:
                running = _Running(None, best.number, seed)
                return running, self._task(self.study.settings(best), running, f"best-{again}")
        return None

    def _task(self, settings: Mapping[str, Any], running: _Running, name: str) -> Task:
        question = self.study.question
        run, own = fitted(question, settings)
        if self.jobs > 1 and "num_workers" not in run:
            run["num_workers"] = max(usable_cpus() // self.jobs, 1)
        return Task(
            question.algo,
            question.env,
            question.env_kwargs,
            question.wrappers,
            question.env_module,
            own,
            run,
            question.total_steps,
            running.seed,
            question.evaluations,
            question.eval_episodes,
            None if self.runs_dir is None else str(self.runs_dir / name),
        )

    # ---------------------------------------------------------------- what jobs say

    def _take(self, answer: Answer) -> None:
        """Do what follows from an answer."""
        job, content = answer
        running = self._running.get(job)
        if content is None:
            self._jobs.remove(job)
            content = {"failed": job.death()}
            job.end()
        if running is None:
            return
        if "evaluation" in content:
            self._take_evaluation(job, running, content)
            return
        del self._running[job]
        if running.trial is None:
            self._take_confirmation(running, content)
        elif "failed" in content:
            self.study.fail(running.trial, content["failed"])
            self.tell(f"trial {running.number} failed: {content['failed']}")
        else:
            self.study.complete(running.trial, content)
            how = "pruned at" if content["ended"] == "pruned" else "reached"
            self.tell(
                f"trial {running.number} {how} {content['mean']:.1f} ± {content['std']:.1f} after "
                f"{content['steps']} steps, {content['seconds']:.0f} s"
            )

    def _take_evaluation(self, job: Job, running: _Running, content: Mapping[str, Any]) -> None:
        what = f"trial {running.number}"
        prune = False
        if running.trial is None:
            what += " again"
        else:
            running.trial.report(content["mean"], content["evaluation"])
            is_last = content["evaluation"] >= self.study.question.evaluations
            prune = not is_last and running.trial.should_prune()
        self.show(f"{what}: {content['mean']:.1f} after {content['steps']} steps")
        job.go_on(prune)

    def _take_confirmation(self, running: _Running, content: Mapping[str, Any]) -> None:
        what = f"trial {running.number} again, seed {running.seed},"
        self.study.confirm(running.number, running.seed, content.get("mean"))
        if "failed" in content:
            self.tell(f"{what} failed: {content['failed']}")
        else:
            self.tell(f"{what} reached {content['mean']:.1f} ± {content['std']:.1f}")

    # ---------------------------------------------------------------- the end

    def _require_some_success(self) -> None:
        """End a search of which all trials fail alike: the settings are not to blame."""
        if self.study.completed() or self.study.pruned():
            return
        failed = [trial for trial in self.study.failed() if trial.number not in self._failed_before]
        if len(failed) < min(_ALIKE, self.trials):
            return
        reasons = [reason_of(trial) for trial in failed]
        if len({alike(reason) for reason in reasons}) == 1 and not self._has_reports():
            raise AllTrialsFailed(
                f"all {len(failed)} trials failed alike, and the search was ended; once the cause "
                f"is gone, the same command goes on: {reasons[-1]}"
            )

    def _has_reports(self) -> bool:
        """Whether a trial that still runs has come to an evaluation."""
        trials = (r.trial for r in self._running.values() if r.trial is not None)
        return any(self.study.has_reports(trial.number) for trial in trials)

    def _require_completed(self) -> None:
        if self.study.completed():
            return
        reasons: dict[str, str] = {}
        for trial in self.study.failed():
            reasons.setdefault(alike(reason_of(trial)), f"{trial.number}: {reason_of(trial)}")
        listed = "; ".join(reasons.values())
        raise AllTrialsFailed(f"no trial of {len(self.study.made())} came to its end: {listed}")

    def _end(self) -> None:
        """End all jobs; trials under way are to be made once more."""
        for job in self._jobs:
            job.ask_to_end()
        for running in self._running.values():
            if running.trial is not None:
                self.study.interrupt(running.number, running.trial.params)
        for job in self._jobs:
            job.end()
        self._jobs.clear()
        self._running.clear()


def alike(reason: str) -> str:
    """What reasons have in common that differ in numbers only."""
    return re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "#", reason)


def fitted(
    question: Question, settings: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of the run and of the algorithm, as a trial has them.

    A rollout that is longer than the steps between two evaluations is cut to them: it would make
    more steps than other trials have. A minibatch larger than the rollout is cut to it.
    """
    run, own = of_run(question.algo, settings)
    num_envs = run.get("num_envs", TrainSettings().num_envs)
    num_steps = own.get("num_steps", BUILT_IN[question.algo][0]().num_steps)
    most = max(question.total_steps // question.evaluations // num_envs, 1)
    if num_steps > most:
        own["num_steps"] = num_steps = most
    if "minibatch_size" in own:
        own["minibatch_size"] = min(own["minibatch_size"], num_steps * num_envs)
    return run, own
