"""An Optuna study in a file: what was asked, which trials were made, which is next."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rookery.common.arguments import not_a_choice
from rookery.errors import ConfigError, MissingExtra
from rookery.tuning.hyperparameters.space import Dimension, SearchSpace

SAMPLERS = ("tpe", "random", "cmaes", "nsgaii")
PRUNERS = ("median", "hyperband", "halving", "none")
_NAME, _QUESTION, _CONFIRMED = "rookery", "question", "confirmed"
_TRIED_AGAIN, _FOLDERS = "tried_again", "folders"
_INTERRUPTED, _REASON = "interrupted", "reason"
_FIRST_TRIALS = 5  # which the median pruner lets come to their end


@dataclass(frozen=True)
class Question:
    """What a study asks; it is the same as long as the study lives.

    Attributes:
        algo: name of the algorithm.
        env: gym id, ``"module:Id"`` or ``"module:function"``.
        env_kwargs: given to every env.
        wrappers: their addresses, ``module:Class``.
        env_module: to import first.
        base: settings that the space does not have, by name; the algorithm's and the run's.
        space: of the search, as `SearchSpace.to_dict` has it.
        total_steps: of each trial.
        evaluations: of each trial.
        eval_episodes: of each evaluation.
        seed: from which those of all trials follow.
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
    """A study that one process at a time has; made by `open_study`.

    Args:
        study: Optuna's.
        question: what it asks.
        optuna: the package.
    """

    def __init__(self, study: Any, question: Question, optuna: Any) -> None:
        self._study, self.question, self._optuna = study, question, optuna
        self.space = SearchSpace.from_dict(question.algo, question.space)
        self._distributions = {d.name: _distribution(optuna, d) for d in self.space.dimensions}

    def enqueue(self, values: Mapping[str, Any]) -> None:
        """Have some settings tried next, as far as they lie in the space."""
        self._study.enqueue_trial(self.space.stored(values))

    def ask(self) -> Any:
        """A new trial, or one that waits since it was interrupted; `settings` reads it."""
        return self._study.ask(self._distributions)

    def settings(self, trial: Any) -> dict[str, Any]:
        """All settings of a trial, those included of which nothing was searched."""
        return {**self.question.base, **self.space.values(trial.params)}

    def seed_of(self, number: int, again: int | None = None) -> int:
        """The seed of a trial's run; with ``again`` one of those with which it is confirmed."""
        entropy = [self.question.seed, number] + ([] if again is None else [again + 1])
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])

    def complete(self, trial: Any, answer: Mapping[str, Any]) -> None:
        """Take in how a trial ended that did not fail."""
        for name in ("std", "steps", "seconds"):
            trial.set_user_attr(name, answer.get(name))
        state = self._optuna.trial.TrialState
        if answer["ended"] == "pruned":
            self._study.tell(trial, state=state.PRUNED)
        else:
            self._study.tell(trial, answer["mean"])

    def fail(self, trial: Any, reason: str) -> None:
        """Record why a trial failed."""
        trial.set_user_attr(_REASON, reason)
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)

    def interrupt(self, number: int, params: Mapping[str, Any]) -> None:
        """Record that a trial was interrupted, and have it made once more."""
        storage = self._study._storage
        (found,) = [t for t in self._study.get_trials(deepcopy=False) if t.number == number]
        storage.set_trial_user_attr(found._trial_id, _INTERRUPTED, True)
        self._study.tell(number, state=self._optuna.trial.TrialState.FAIL)
        self._study.enqueue_trial(dict(params))

    def interrupt_all(self) -> int:
        """Do so with all trials that seem to run: whoever ran them is gone."""
        running = self._trials("RUNNING")
        for trial in running:
            self.interrupt(trial.number, trial.params)
        return len(running)

    def try_again(self) -> int:
        """Have all trials that failed made once more, as if they had never been."""
        failed = self.failed()
        before = self._study.user_attrs.get(_TRIED_AGAIN, [])
        self._study.set_user_attr(_TRIED_AGAIN, [*before, *(trial.number for trial in failed)])
        for trial in failed:
            self._study.enqueue_trial(trial.params)
        return len(failed)

    def made(self) -> list[Any]:
        """All trials that have ended by themselves."""
        ended = self._trials("COMPLETE") + self._trials("PRUNED") + self.failed()
        return sorted(ended, key=lambda trial: trial.number)

    def failed(self) -> list[Any]:
        """Those of them that failed, but for those that are made once more."""
        again = self._study.user_attrs.get(_TRIED_AGAIN, [])
        trials = self._trials("FAIL")
        return [t for t in trials if not t.user_attrs.get(_INTERRUPTED) and t.number not in again]

    def completed(self) -> list[Any]:
        """Trials that came to their end, the best first."""
        return sorted(self._trials("COMPLETE"), key=lambda trial: -trial.value)

    def pruned(self) -> list[Any]:
        """Trials that were given up early."""
        return self._trials("PRUNED")

    def _trials(self, state: str) -> list[Any]:
        states = (getattr(self._optuna.trial.TrialState, state),)
        return list(self._study.get_trials(deepcopy=False, states=states))

    def has_reports(self, number: int) -> bool:
        """Whether a trial has come to an evaluation."""
        trials = self._study.get_trials(deepcopy=False)
        return any(t.number == number and t.intermediate_values for t in trials)

    def confirmed(self, number: int) -> list[tuple[int, float | None]]:
        """Further runs with a trial's settings: seed and mean return, None of those that failed."""
        return [tuple(each) for each in self._confirmed().get(str(number), [])]

    def confirm(self, number: int, seed: int, mean: float | None) -> None:
        """Keep what a further run with the settings of a trial has reached."""
        before = self._confirmed()
        before[str(number)] = [*before.get(str(number), []), [seed, mean]]
        self._study.set_user_attr(_CONFIRMED, before)

    def folders(self) -> list[str]:
        """Where runs of this study are kept."""
        return list(self._study.user_attrs.get(_FOLDERS, []))

    def keep_in(self, folder: str) -> None:
        """Note a folder in which a run of this study is kept."""
        if folder not in self.folders():
            self._study.set_user_attr(_FOLDERS, [*self.folders(), folder])

    def _confirmed(self) -> dict[str, list[Any]]:
        return dict(self._study.user_attrs.get(_CONFIRMED, {}))


def reason_of(trial: Any) -> str:
    """Why a trial failed."""
    return str(trial.user_attrs.get(_REASON, "for an unknown reason"))


@contextlib.contextmanager
def open_study(file: Path, question: Question | None, sampler: str, pruner: str) -> Iterator[Study]:
    """Open a study, or make one, and have it for this process alone.

    Args:
        file: SQLite.
        question: of a new study; None takes the one that is there.
        sampler: one of ``SAMPLERS``.
        pruner: one of ``PRUNERS``.

    Raises:
        ConfigError: another process has it; it is no such study; or it asks something else.
        MissingExtra: Optuna is not installed.
    """
    optuna = require_optuna()
    with _held(file):
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
    """What the study in a file asks; None if there is no such file.

    Raises:
        ConfigError: as `open_study`.
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
            f"--study {file} is there, and is no study of `rookery tune --hyperparameters` "
            f"({_first_line(error)}); choose another file"
        ) from error


def require_optuna() -> Any:
    """Import Optuna, which is to say nothing by itself.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise MissingExtra(
            "the search for hyperparameters needs Optuna: pip install 'rookery[train,tune]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _agreed(study: Any, question: Question | None, file: Path) -> Question:
    """What a study asks, which a new one is told."""
    if _QUESTION not in study.user_attrs:
        if question is None or study.get_trials(deepcopy=False):
            raise ConfigError(f"--study {file} holds a study of somebody else's")
        study.set_user_attr(_QUESTION, json.dumps(asdict(question)))
    return _question(study.user_attrs)


def _question(written: Mapping[str, Any]) -> Question:
    told = json.loads(written[_QUESTION])
    return Question(**{**told, "wrappers": tuple(told["wrappers"])})


@contextlib.contextmanager
def _held(file: Path) -> Iterator[None]:
    """Have a study for this process alone."""
    try:
        from filelock import FileLock, Timeout
    except ImportError as error:
        raise MissingExtra("training needs filelock: pip install 'rookery[train]'") from error
    lock = FileLock(f"{file}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ConfigError(
            f"--study {file} is in use by another process; more trials at once are --jobs N"
        ) from None
    except OSError as error:
        raise ConfigError(f"--study {file} cannot be made: {error.strerror or error}") from error
    try:
        yield
    finally:
        # The locked file stays: without it two others could lock two files of one name.
        lock.release()


def _distribution(optuna: Any, dimension: Dimension) -> Any:
    kinds = optuna.distributions
    if dimension.choices is not None:
        return kinds.CategoricalDistribution(dimension.stored_choices())
    kind = kinds.IntDistribution if dimension.whole else kinds.FloatDistribution
    return kind(dimension.low, dimension.high, log=dimension.log)


def _sampler(optuna: Any, name: str, entropy: list[int]) -> Any:
    """A sampler, which goes on with other random numbers than those of the trials before."""
    seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
    samplers = optuna.samplers
    match name:
        case "tpe":
            return samplers.TPESampler(seed=seed)
        case "random":
            return samplers.RandomSampler(seed=seed)
        case "cmaes":  # choices are drawn by themselves, for which it has no numbers
            rest = samplers.RandomSampler(seed=seed)
            return samplers.CmaEsSampler(
                seed=seed, independent_sampler=rest, warn_independent_sampling=False
            )
        case "nsgaii":
            return samplers.NSGAIISampler(seed=seed)
    raise not_a_choice("--sampler", name, SAMPLERS)


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
    raise not_a_choice("--pruner", name, PRUNERS)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
