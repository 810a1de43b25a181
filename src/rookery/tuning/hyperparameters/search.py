"""The search for settings of an algorithm that learn an env well: Optuna asks, trials answer."""

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

_ALIKE = 3  # trials that fail for one reason, and no other, end the search
_ANY_FOLDER = "trial-*"
_MOST_BEYOND = 1.01  # of the steps of a trial, before rollouts of another size are chosen
_OF_ROLLOUTS = ("num_steps", "num_envs")
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

    def run(self) -> None:
        """Make what is missing.

        Ctrl-C ends the trials under way, which are then made once more when the search goes on. So
        are trials that failed before any came to its end: the settings were not to blame.

        Raises:
            AllTrialsFailed: several trials failed for the same reason, and none did not.
            ConfigError: ``runs_dir`` holds runs of somebody else's.
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
        """Refuse to replace runs that this study has not made.

        Raises:
            ConfigError: ``runs_dir`` holds such runs.
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
                "choose a folder of its own"
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
        failed = self.study.failed()
        if len(failed) < min(_ALIKE, self.trials):
            return
        reasons = [reason_of(trial) for trial in failed]
        if len({alike(reason) for reason in reasons}) == 1 and not self._has_reports():
            raise AllTrialsFailed(
                f"all {len(failed)} trials failed alike, and the search was ended; once the cause "
                f"is gone, the same command makes them once more: {reasons[-1]}"
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
        raise AllTrialsFailed(
            f"no trial of {len(self.study.made())} came to its end; once the cause is gone, the "
            f"same command makes them once more: {listed}"
        )

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


def _folder(number: int) -> str:
    return f"trial-{number:04}"


def fitted(
    question: Question, settings: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of the run and of the algorithm, as a trial has them.

    All trials are to make the same number of steps. So where the size of rollouts is searched, a
    number of them is chosen that fits between two evaluations, and their ``num_steps`` follow, if
    whole rollouts of the given size would lead more than 1 % beyond the last step. No rollout is
    longer than what lies between two evaluations, and no minibatch larger than a rollout.
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
