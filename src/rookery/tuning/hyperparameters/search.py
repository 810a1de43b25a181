"""The search for hyperparameters: Optuna suggests settings, and trials train with them."""

from __future__ import annotations

import math
import queue
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rookery.common.cpus import usable_cpus
from rookery.errors import ConfigError, RookeryError
from rookery.run.algorithms import BUILT_IN
from rookery.run.settings import TrainSettings
from rookery.tuning.hyperparameters.jobs import Answer, Job, Task
from rookery.tuning.hyperparameters.space import of_run
from rookery.tuning.hyperparameters.study import Question, Study, reason_of

_ALIKE = 3  # number of equal failures, without any success, that ends the search
_ANY_FOLDER = "trial-*"
_MOST_BEYOND = 1.01  # largest tolerated excess over the steps of a trial
_OF_ROLLOUTS = ("num_steps", "num_envs")
_LOOK_S = 1.0  # interval of checks for Ctrl-C on systems where it does not interrupt a wait


class AllTrialsFailed(RookeryError):
    """No trial of a search came to its end; the message says why."""


@dataclass
class _Running:
    """The trial or confirmation that a job runs.

    Attributes:
        trial: Optuna trial; None for a confirmation.
        number: number of the trial.
        seed: seed of the run.
    """

    trial: Any
    number: int
    seed: int


@dataclass
class HyperparameterSearch:
    """A search: the trials of a study, and runs that confirm the best one.

    Attributes:
        study: study that stores the trials.
        trials: number of trials of the whole study.
        jobs: number of processes that train at the same time.
        confirmations: number of further runs with the best settings, with new seeds.
        runs_dir: folder for the runs of trials; None for temporary folders.
        tell: function that receives a line about each finished trial.
        show: function that receives a line about each evaluation.
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

    def run(self) -> None:
        """Run the missing trials and confirmations.

        Ctrl-C ends the running trials; they are repeated when the search continues. If no trial
        succeeded before, failed trials are also repeated, as the settings were not the cause.

        Raises:
            AllTrialsFailed: several trials failed for the same reason, and none succeeded.
            ConfigError: ``runs_dir`` contains runs of another origin.
        """
        self._require_own_folders()
        if not self.study.completed() and not self.study.pruned():
            self.study.try_again()
        try:
            self._work(self._next_trial)
            self._require_completed()
            self._work(self._next_confirmation)
        finally:
            self._end()

    def _work(self, next_task: Callable[[], tuple[_Running, Task] | None]) -> None:
        """Keep all jobs busy until no task is left."""
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
        return running, self._task(self.study.settings(trial), running, _folder(trial.number))

    def _next_confirmation(self) -> tuple[_Running, Task] | None:
        best = self.study.completed()[0]
        done = {seed for seed, _ in self.study.confirmed(best.number)}
        done |= {running.seed for running in self._running.values()}
        for again in range(self.confirmations):
            seed = self.study.seed_of(best.number, again)
            if seed not in done:
                running = _Running(None, best.number, seed)
                name = f"{_folder(best.number)}-again-{again}"
                return running, self._task(self.study.settings(best), running, name)
        return None

    def _task(self, settings: Mapping[str, Any], running: _Running, name: str) -> Task:
        question = self.study.question
        run, own = fitted(question, settings)
        if self.jobs > 1 and "num_workers" not in run:
            run["num_workers"] = max(usable_cpus() // self.jobs, 1)
        run_dir = None if self.runs_dir is None else str(self.runs_dir.absolute() / name)
        is_ours = run_dir in self.study.folders()
        if run_dir is not None:
            self.study.keep_in(run_dir)
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
            run_dir,
            is_ours,
        )

    def _require_own_folders(self) -> None:
        """Check that no run of another study would be replaced.

        Raises:
            ConfigError: ``runs_dir`` contains runs that this study did not make.
        """
        if self.runs_dir is None:
            return
        own = self.study.folders()
        others = [
            folder.name
            for folder in sorted(self.runs_dir.absolute().glob(_ANY_FOLDER))
            if str(folder) not in own
        ]
        if others:
            raise ConfigError(
                f"--runs-dir {self.runs_dir} holds {others[0]}, which this study has not made; "
                "choose another folder"
            )

    # ---------------------------------------------------------------- answers of jobs

    def _take(self, answer: Answer) -> None:
        """Process an answer of a job."""
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
        """Raise if all trials so far failed for the same reason."""
        if self.study.completed() or self.study.pruned():
            return
        failed = self.study.failed()
        if len(failed) < min(_ALIKE, self.trials):
            return
        reasons = [reason_of(trial) for trial in failed]
        running = [each.number for each in self._running.values() if each.trial is not None]
        is_promising = any(map(self.study.has_reports, running))
        if len({alike(reason) for reason in reasons}) == 1 and not is_promising:
            raise AllTrialsFailed(
                f"all {len(failed)} trials failed alike, so the search was stopped; fix the cause, "
                f"then the same command repeats them: {reasons[-1]}"
            )

    def _require_completed(self) -> None:
        if self.study.completed():
            return
        reasons: dict[str, str] = {}
        for trial in self.study.failed():
            reasons.setdefault(alike(reason_of(trial)), f"{trial.number}: {reason_of(trial)}")
        listed = "; ".join(reasons.values())
        raise AllTrialsFailed(
            f"none of {len(self.study.made())} trials was completed; fix the cause, then the "
            f"same command repeats them: {listed}"
        )

    def _end(self) -> None:
        """End all jobs; running trials will be repeated."""
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
    """Replace all numbers in a reason, so that similar reasons become equal."""
    return re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "#", reason)


def _folder(number: int) -> str:
    return f"trial-{number:04}"


def fitted(
    question: Question, settings: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of the run and of the algorithm for a trial.

    All trials should make the same number of steps. If the size of rollouts is searched, and whole
    rollouts would exceed the steps by more than 1 %, ``num_steps`` is changed so that a whole
    number of rollouts fits between two evaluations. Rollouts never exceed the steps between two
    evaluations, and minibatches never exceed a rollout.
    """
    run, own = of_run(question.algo, settings)
    num_envs = run.get("num_envs", TrainSettings().num_envs)
    num_steps = own.get("num_steps", BUILT_IN[question.algo][0]().num_steps)
    total, rollout = question.total_steps, num_steps * num_envs
    every = total / question.evaluations
    is_searched = any(isinstance(question.space.get(name), Mapping) for name in _OF_ROLLOUTS)
    goes_beyond = math.ceil(total / rollout) * rollout > _MOST_BEYOND * total
    if rollout > every or (is_searched and goes_beyond):
        rollouts = max(round(every / rollout), 1)
        own["num_steps"] = num_steps = max(math.ceil(every / rollouts / num_envs), 1)
    if "minibatch_size" in own:
        own["minibatch_size"] = min(own["minibatch_size"], num_steps * num_envs)
    return run, own
