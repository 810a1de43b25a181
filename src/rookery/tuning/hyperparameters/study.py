"""An Optuna study in a file, with its question and its trials."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rookery.errors import ConfigError, MissingExtra
from rookery.run.checkpoint.run_dir import locked
from rookery.tuning.hyperparameters.space import Dimension, SearchSpace

SAMPLERS = ("tpe", "random", "cmaes", "nsgaii")
PRUNERS = ("median", "hyperband", "halving", "none")
_NAME, _QUESTION, _CONFIRMED = "rookery", "question", "confirmed"
_TRIED_AGAIN, _FOLDERS = "tried_again", "folders"
_INTERRUPTED, _REASON = "interrupted", "reason"
_FIRST_TRIALS = 5  # trials that the median pruner never prunes


@dataclass(frozen=True)
class Question:
    """The question of a study, which never changes.

    Attributes:
        algo: name of the algorithm.
        env: gym id, ``"module:Id"`` or ``"module:function"``.
        env_kwargs: keyword arguments of every env.
        wrappers: addresses of the wrappers, ``module:Class``.
        env_module: module to import first, or None.
        base: settings of the algorithm and the run that are not in the space, by name.
        space: search space, as returned by `SearchSpace.to_dict`.
        total_steps: number of env steps of each trial.
        evaluations: number of evaluations of each trial.
        eval_episodes: number of episodes of each evaluation.
        seed: root of the seeds of all trials.
    """

    algo: str
    env: str
    env_kwargs: Mapping[str, Any]
    wrappers: tuple[str, ...]
    env_module: str | None
    base: Mapping[str, Any]
    space: Mapping[str, Any]
    total_steps: int
    evaluations: int
    eval_episodes: int
    seed: int


class Study:
    """A study that is locked by this process; made by `open_study`.

    Args:
        study: Optuna study.
        question: question of the study.
        optuna: the imported package.
    """

    def __init__(self, study: Any, question: Question, optuna: Any) -> None:
        self._study, self.question, self._optuna = study, question, optuna
        self.space = SearchSpace.from_dict(question.algo, question.space)
        self._distributions = {d.name: _distribution(optuna, d) for d in self.space.dimensions}

    def enqueue(self, values: Mapping[str, Any]) -> None:
        """Enqueue settings for the next trial, as far as they lie in the space."""
        self._study.enqueue_trial(self.space.stored(values))

    def ask(self) -> Any:
        """Return a new trial, or an enqueued one; `settings` returns its settings."""
        return self._study.ask(self._distributions)

    def settings(self, trial: Any) -> dict[str, Any]:
        """Return all settings of a trial, including those that are not searched."""
        return {**self.question.base, **self.space.values(trial.params)}

    def seed_of(self, number: int, again: int | None = None) -> int:
        """Return the seed of a trial, or of its confirmation number ``again``."""
        entropy = [self.question.seed, number] + ([] if again is None else [again + 1])
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])

    def complete(self, trial: Any, answer: Mapping[str, Any]) -> None:
        """Record a trial that was completed or pruned."""
        for name in ("std", "steps", "seconds"):
            trial.set_user_attr(name, answer.get(name))
        state = self._optuna.trial.TrialState
        if answer["ended"] == "pruned":
            self._study.tell(trial, state=state.PRUNED)
        else:
            self._study.tell(trial, answer["mean"])

    def fail(self, trial: Any, reason: str) -> None:
        """Record a failed trial with the reason."""
        trial.set_user_attr(_REASON, reason)
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)

    def interrupt(self, number: int, params: Mapping[str, Any]) -> None:
        """Record that a trial was interrupted, and enqueue it again."""
        storage = self._study._storage
        (found,) = [t for t in self._study.get_trials(deepcopy=False) if t.number == number]
        storage.set_trial_user_attr(found._trial_id, _INTERRUPTED, True)
        self._study.tell(number, state=self._optuna.trial.TrialState.FAIL)
        self._study.enqueue_trial(dict(params))

    def interrupt_all(self) -> int:
        """Call `interrupt` for all trials that a dead process left running; return their number."""
        running = self._trials("RUNNING")
        for trial in running:
            self.interrupt(trial.number, trial.params)
        return len(running)

    def try_again(self) -> int:
        """Discard all failed trials and enqueue them again; return their number."""
        failed = self.failed()
        before = self._study.user_attrs.get(_TRIED_AGAIN, [])
        self._study.set_user_attr(_TRIED_AGAIN, [*before, *(trial.number for trial in failed)])
        for trial in failed:
            self._study.enqueue_trial(trial.params)
        return len(failed)

    def made(self) -> list[Any]:
        """Return all trials that were completed, pruned, or failed."""
        ended = self._trials("COMPLETE") + self._trials("PRUNED") + self.failed()
        return sorted(ended, key=lambda trial: trial.number)

    def failed(self) -> list[Any]:
        """Return all failed trials, except those that are repeated."""
        again = self._study.user_attrs.get(_TRIED_AGAIN, [])
        trials = self._trials("FAIL")
        return [t for t in trials if not t.user_attrs.get(_INTERRUPTED) and t.number not in again]

    def completed(self) -> list[Any]:
        """Return all completed trials, the best first."""
        return sorted(self._trials("COMPLETE"), key=lambda trial: -trial.value)

    def pruned(self) -> list[Any]:
        """Return all pruned trials."""
        return self._trials("PRUNED")

    def _trials(self, state: str) -> list[Any]:
        states = (getattr(self._optuna.trial.TrialState, state),)
        return list(self._study.get_trials(deepcopy=False, states=states))

    def has_reports(self, number: int) -> bool:
        """Return whether a trial has been evaluated."""
        trials = self._study.get_trials(deepcopy=False)
        return any(t.number == number and t.intermediate_values for t in trials)

    def confirmed(self, number: int) -> list[tuple[int, float | None]]:
        """Return seed and mean return (None if failed) of each confirmation of a trial."""
        return [tuple(each) for each in self._confirmed().get(str(number), [])]

    def confirm(self, number: int, seed: int, mean: float | None) -> None:
        """Record the mean return of a confirmation of a trial; None if it failed."""
        before = self._confirmed()
        before[str(number)] = [*before.get(str(number), []), [seed, mean]]
        self._study.set_user_attr(_CONFIRMED, before)

    def folders(self) -> list[str]:
        """Return the folders with runs of this study."""
        return list(self._study.user_attrs.get(_FOLDERS, []))

    def keep_in(self, folder: str) -> None:
        """Record a folder with a run of this study."""
        if folder not in self.folders():
            self._study.set_user_attr(_FOLDERS, [*self.folders(), folder])

    def _confirmed(self) -> dict[str, list[Any]]:
        return dict(self._study.user_attrs.get(_CONFIRMED, {}))


def reason_of(trial: Any) -> str:
    """Return the reason why a trial failed."""
    return str(trial.user_attrs.get(_REASON, "for an unknown reason"))


@contextlib.contextmanager
def open_study(file: Path, question: Question, sampler: str, pruner: str) -> Iterator[Study]:
    """Open or create a study, and lock it for this process.

    Args:
        file: SQLite file.
        question: question of a new study; an existing study keeps its own.
        sampler: one of ``SAMPLERS``.
        pruner: one of ``PRUNERS``.

    Raises:
        ConfigError: another process has locked the study, or the file is not a study.
        MissingExtra: Optuna is not installed.
    """
    optuna = require_optuna()
    in_use = f"--study {file} is in use by another process; for parallel trials give --jobs N"
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(Path(f"{file}.lock"), lambda: in_use))
        except OSError as error:
            raise ConfigError(
                f"--study {file} cannot be created: {error.strerror or error}"
            ) from error
        try:
            storage = optuna.storages.RDBStorage(f"sqlite:///{file}")
            study = optuna.create_study(
                storage=storage, study_name=_NAME, direction="maximize", load_if_exists=True
            )
        except Exception as error:
            raise ConfigError(
                f"--study {file} cannot be opened as a study: {_first_line(error)}"
            ) from error
        try:
            asked = _agreed(study, question, file)
            number = len(study.get_trials(deepcopy=False))
            study.sampler = _sampler(optuna, sampler, [asked.seed, number])
            study.pruner = _pruner(optuna, pruner, asked.evaluations)
            yield Study(study, asked, optuna)
        finally:
            storage.remove_session()
            storage.engine.dispose()


def question_in(file: Path) -> Question | None:
    """Return the question of the study in a file; None if the file does not exist.

    Raises:
        ConfigError: the file is not a study.
    """
    if not file.exists():
        return None
    optuna = require_optuna()
    try:
        storage = optuna.storages.RDBStorage(
            f"sqlite:///{file}", skip_compatibility_check=True, skip_table_creation=True
        )
        try:
            study = optuna.load_study(storage=storage, study_name=_NAME)
            return _question(study.user_attrs)
        finally:
            storage.remove_session()
            storage.engine.dispose()
    except Exception as error:
        raise ConfigError(
            f"--study {file} exists, but is not a study of `rookery tune --hyperparameters` "
            f"({_first_line(error)}); choose another file"
        ) from error


def require_optuna() -> Any:
    """Import Optuna and silence its log.

    Raises:
        MissingExtra: Optuna is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise MissingExtra(
            "the search for hyperparameters needs Optuna: pip install 'rookery[train,tune]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _agreed(study: Any, question: Question, file: Path) -> Question:
    """Return the question of a study, after storing it in a new study."""
    if _QUESTION not in study.user_attrs:
        if study.get_trials(deepcopy=False):
            raise ConfigError(
                f"--study {file} contains a study that rookery did not create; choose another file"
            )
        study.set_user_attr(_QUESTION, json.dumps(asdict(question)))
    return _question(study.user_attrs)


def _question(written: Mapping[str, Any]) -> Question:
    stored = json.loads(written[_QUESTION])
    return Question(**{**stored, "wrappers": tuple(stored["wrappers"])})


def _distribution(optuna: Any, dimension: Dimension) -> Any:
    kinds = optuna.distributions
    if dimension.choices is not None:
        return kinds.CategoricalDistribution(dimension.stored_choices())
    kind = kinds.IntDistribution if dimension.whole else kinds.FloatDistribution
    return kind(dimension.low, dimension.high, log=dimension.log)


def _sampler(optuna: Any, name: str, entropy: list[int]) -> Any:
    """Return a sampler whose random numbers differ from those of earlier trials."""
    seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
    samplers = optuna.samplers
    match name:
        case "tpe":
            return samplers.TPESampler(seed=seed)
        case "random":
            return samplers.RandomSampler(seed=seed)
        case "cmaes":  # CMA-ES needs numbers, so choices are sampled at random
            rest = samplers.RandomSampler(seed=seed)
            return samplers.CmaEsSampler(
                seed=seed, independent_sampler=rest, warn_independent_sampling=False
            )
        case "nsgaii":
            return samplers.NSGAIISampler(seed=seed)
    raise AssertionError(name)


def _pruner(optuna: Any, name: str, evaluations: int) -> Any:
    pruners = optuna.pruners
    match name:
        case "median":
            return pruners.MedianPruner(n_startup_trials=_FIRST_TRIALS, n_warmup_steps=1)
        case "hyperband":
            most = max(evaluations, 2)
            return pruners.HyperbandPruner(min_resource=1, max_resource=most, reduction_factor=3)
        case "halving":
            return pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
        case "none":
            return pruners.NopPruner()
    raise AssertionError(name)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
