"""The search: trials that end, fail, are pruned or cut short; jobs are played, but for one test."""

from __future__ import annotations

import contextlib
import io
import json
import queue
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna")

import rookery.tuning.hyperparameters.search
from rookery.cli import main
from rookery.run.presets import find_preset
from rookery.tuning.hyperparameters.jobs import Answer, Job, Task, run_trial
from rookery.tuning.hyperparameters.outcome import best_rows, preset_of, require_own
from rookery.tuning.hyperparameters.search import AllTrialsFailed, HyperparameterSearch, fitted
from rookery.tuning.hyperparameters.space import SearchSpace
from rookery.tuning.hyperparameters.study import (
    PRUNERS,
    SAMPLERS,
    Question,
    Study,
    open_study,
    question_in,
)

SPACE = {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}}


def _question(**changes: Any) -> Question:
    names = SearchSpace.of("ppo").to_dict()
    space = {name: value for name, value in {**names, **SPACE}.items() if name in SPACE}
    values = {
        "algo": "ppo", "env": "CartPole-v1", "env_kwargs": {}, "wrappers": (), "env_module": None,
        "base": {"num_steps": 8}, "space": space, "total_steps": 300, "evaluations": 3,
        "eval_episodes": 1, "seed": 0,
    }  # fmt: skip
    return Question(**{**values, **changes})


class Played:
    """Stands for a job: answers as ``play`` says of each task, evaluation by evaluation."""

    play: Callable[[Task], Iterator[dict[str, Any]]]
    tasks: list[Task]

    def __init__(self, answers: queue.Queue[Answer], jobs: int) -> None:
        self._answers = answers

    def give(self, task: Task) -> None:
        self.tasks.append(task)
        self._talk = type(self).play(task)
        self._say(next(self._talk))

    def go_on(self, prune: bool) -> None:
        if prune:
            self._talk.close()
            told = {"ended": "pruned", "mean": 0.0, "std": 0.0, "steps": 100, "seconds": 1.0}
        else:
            told = next(self._talk)
        self._say(told)

    def _say(self, content: dict[str, Any]) -> None:
        self._answers.put(Answer(self, content))  # type: ignore[arg-type]

    def ask_to_end(self) -> None:
        pass

    def end(self) -> None:
        pass


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> type[Played]:
    class Here(Played):
        tasks: list[Task] = []

    monkeypatch.setattr(rookery.tuning.hyperparameters.search, "Job", Here)
    return Here


def reaching(value: Callable[[Task], float]) -> Callable[[Task], Iterator[dict[str, Any]]]:
    """A trial of three evaluations, whose returns are as given."""

    def play(task: Task) -> Iterator[dict[str, Any]]:
        last = {"mean": value(task), "std": 1.0, "steps": 300}
        for evaluation in (1, 2, 3):
            yield {**last, "evaluation": evaluation}
        yield {**last, "ended": "complete", "seconds": 2.0}

    return play


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    with open_study(tmp_path / "study.db", _question(), "tpe", "median") as opened:
        yield opened


def test_the_best_trial_is_run_again_with_seeds_that_no_trial_had(
    study: Study, played: type[Played]
) -> None:
    played.play = reaching(lambda task: task.settings["learning_rate"])  # type: ignore[assignment]
    HyperparameterSearch(study, trials=7, confirmations=2).run()
    assert len(study.made()) == 7 and not study.failed()
    best = study.completed()[0]
    assert best.params["learning_rate"] == max(
        t.settings["learning_rate"] for t in played.tasks[:7]
    )
    assert len({task.seed for task in played.tasks}) == 9
    again = played.tasks[7:]
    assert all(task.settings == {"num_steps": 8, **best.params} for task in again)
    entry = preset_of(study, "tpe", "median")["CartPole-v1"]
    assert entry["reached"] == pytest.approx(best.value, abs=0.01)
    assert entry["run"]["total_steps"] == 300 and "mean over 2 more seeds" in entry["note"]
    assert "7 trials" in entry["source"] and "sampler tpe" in entry["source"]
    assert best_rows(study)[0][0] == str(best.number)
    before = len(played.tasks)
    HyperparameterSearch(study, trials=7, confirmations=2).run()  # nothing is left to do
    assert len(played.tasks) == before


def test_a_trial_that_falls_behind_the_others_is_pruned(study: Study, played: type[Played]) -> None:
    played.play = reaching(lambda task: float(len(played.tasks) <= 6))  # type: ignore[assignment]
    HyperparameterSearch(study, trials=7, confirmations=0).run()
    assert [trial.number for trial in study.pruned()] == [6]


def test_trials_that_fail_are_recorded_and_the_search_goes_on(
    study: Study, played: type[Played]
) -> None:
    def play(task: Task) -> Iterator[dict[str, Any]]:
        if len(played.tasks) in (1, 3):
            yield {"failed": "TrainingDiverged: policy_loss were not finite"}
        yield from reaching(lambda _: 1.0)(task)

    played.play = play  # type: ignore[assignment]
    told: list[str] = []
    HyperparameterSearch(study, trials=4, confirmations=0, tell=told.append).run()
    assert [trial.number for trial in study.failed()] == [0, 2]
    assert told[0] == "trial 0 failed: TrainingDiverged: policy_loss were not finite"
    assert len(study.completed()) == 2


def test_a_search_ends_if_all_trials_fail_for_the_same_reason(
    study: Study, played: type[Played]
) -> None:
    def play(task: Task) -> Iterator[dict[str, Any]]:
        yield {"failed": f"EnvFailed: env {len(played.tasks)} has no licence"}

    played.play = play  # type: ignore[assignment]
    with pytest.raises(AllTrialsFailed, match=r"all 3 trials failed alike.* env 3 has no"):
        HyperparameterSearch(study, trials=30).run()
    assert len(played.tasks) == 3
    played.play = reaching(lambda _: 1.0)  # type: ignore[assignment]
    before = [task.settings["learning_rate"] for task in played.tasks]
    HyperparameterSearch(study, trials=5, confirmations=0).run()  # the cause is gone
    assert len(study.completed()) == len(study.made()) == 5 and not study.failed()
    assert [task.settings["learning_rate"] for task in played.tasks[3:6]] == before


@pytest.mark.parametrize("trials", [1, 3])
def test_a_search_that_failed_as_a_whole_is_made_once_more(
    study: Study, played: type[Played], trials: int
) -> None:
    played.play = lambda task: iter([{"failed": "ImportError: no such module"}])  # type: ignore[assignment]
    for _ in range(2):
        with pytest.raises(AllTrialsFailed, match="the same command repeats them"):
            HyperparameterSearch(study, trials=trials).run()
    played.play = reaching(lambda _: 1.0)  # type: ignore[assignment]
    HyperparameterSearch(study, trials=trials, confirmations=0).run()
    assert len(study.completed()) == trials


def test_runs_are_kept_in_folders_that_no_other_study_has(
    tmp_path: Path, played: type[Played]
) -> None:
    played.play = reaching(lambda _: 1.0)  # type: ignore[assignment]
    runs = tmp_path / "runs"
    with open_study(tmp_path / "one.db", _question(), "tpe", "median") as study:
        HyperparameterSearch(study, trials=2, confirmations=1, runs_dir=runs).run()
        for task in played.tasks:
            Path(str(task.run_dir)).mkdir(parents=True)
        HyperparameterSearch(study, trials=3, confirmations=2, runs_dir=runs).run()
        folders = [str(task.run_dir) for task in played.tasks]
        assert len(set(folders)) == len(folders) and not any(t.overwrite for t in played.tasks)
    with open_study(tmp_path / "other.db", _question(), "tpe", "median") as study:
        with pytest.raises(rookery.ConfigError, match=r"holds trial-0000, which this study has"):
            HyperparameterSearch(study, trials=1, runs_dir=runs).run()
        assert not study.made()


def test_a_run_that_was_cut_short_may_be_replaced_by_its_own_study(
    tmp_path: Path, played: type[Played]
) -> None:
    def play(task: Task) -> Iterator[dict[str, Any]]:
        if task.run_dir is not None and task.run_dir.endswith("again-0") and not task.overwrite:
            raise KeyboardInterrupt
        yield from reaching(lambda _: 1.0)(task)

    played.play = play  # type: ignore[assignment]
    with open_study(tmp_path / "one.db", _question(), "tpe", "median") as study:
        with pytest.raises(KeyboardInterrupt):
            HyperparameterSearch(study, trials=1, confirmations=1, runs_dir=tmp_path / "runs").run()
        HyperparameterSearch(study, trials=1, confirmations=1, runs_dir=tmp_path / "runs").run()
        assert played.tasks[-1].overwrite and len(study.confirmed(0)) == 1


@pytest.mark.parametrize("num_steps", [8, 100, 375, 500, 2048])
@pytest.mark.parametrize("num_envs", [1, 8, 24])
def test_all_trials_make_as_many_steps(num_steps: int, num_envs: int) -> None:
    space = {"num_steps": {"choices": [8, 2048]}}
    question = _question(total_steps=20_000, evaluations=5, base={}, space=space)
    settings = {"num_steps": num_steps, "num_envs": num_envs}
    run, own = fitted(question, settings)
    rollout = run["num_envs"] * own["num_steps"]
    made = -(-20_000 // rollout) * rollout
    assert 20_000 <= made <= 20_400
    assert rollout <= 4_100  # as many evaluations as in others


def test_other_reasons_do_not_end_it_before_its_time(study: Study, played: type[Played]) -> None:
    def play(task: Task) -> Iterator[dict[str, Any]]:
        yield {"failed": ["KeyError: a", "ValueError: b"][len(played.tasks) % 2]}

    played.play = play  # type: ignore[assignment]
    with pytest.raises(AllTrialsFailed, match=r"none of 5 trials was completed.*Value.*KeyError"):
        HyperparameterSearch(study, trials=5).run()


def test_a_trial_that_ctrl_c_cuts_short_is_made_once_more(
    tmp_path: Path, played: type[Played]
) -> None:
    def play(task: Task) -> Iterator[dict[str, Any]]:
        if len(played.tasks) == 2:
            raise KeyboardInterrupt
        yield from reaching(lambda _: 1.0)(task)

    played.play = play  # type: ignore[assignment]
    file = tmp_path / "study.db"
    with open_study(file, _question(), "random", "none") as study:
        with pytest.raises(KeyboardInterrupt):
            HyperparameterSearch(study, trials=3, confirmations=0).run()
        assert len(study.made()) == 1 and not study.failed()
    with open_study(file, _question(), "random", "none") as study:
        assert study.question == _question()
        HyperparameterSearch(study, trials=3, confirmations=0).run()
        assert len(study.completed()) == 3
    cut, again, other = (task.settings["learning_rate"] for task in played.tasks[1:])
    assert cut == again != other
    assert played.tasks[0].settings["learning_rate"] not in (again, other)


def test_a_study_may_go_on_with_any_sampler_and_pruner(
    tmp_path: Path, played: type[Played]
) -> None:
    played.play = reaching(lambda _: 1.0)  # type: ignore[assignment]
    kinds = zip(SAMPLERS, PRUNERS, strict=True)
    for trials, (sampler, pruner) in enumerate(kinds, 1):
        with open_study(tmp_path / "study.db", _question(), sampler, pruner) as study:
            HyperparameterSearch(study, trials=2 * trials, confirmations=0).run()
            assert len(study.made()) == 2 * trials
    assert len({task.settings["learning_rate"] for task in played.tasks}) == 8


def test_a_trial_of_a_process_that_was_killed_is_made_once_more(tmp_path: Path) -> None:
    with open_study(tmp_path / "study.db", _question(), "tpe", "median") as study:
        trial = study.ask()
    with open_study(tmp_path / "study.db", _question(), "tpe", "median") as study:
        assert study.interrupt_all() == 1
        assert study.ask().params == trial.params and not study.made()


def test_a_job_that_dies_is_a_trial_that_failed(study: Study, monkeypatch: Any) -> None:
    """A real process, which receives an invalid task."""

    class Broken(Job):
        def give(self, task: Task) -> None:
            self._write("no JSON")

    monkeypatch.setattr(rookery.tuning.hyperparameters.search, "Job", Broken)
    with pytest.raises(AllTrialsFailed, match=r"exit code 1: .*JSONDecodeError"):
        HyperparameterSearch(study, trials=1).run()


# ---------------------------------------------------------------- a job


def _task(**changes: Any) -> dict[str, Any]:
    values = {
        "algo": "ppo", "env": "CartPole-v1", "env_kwargs": {}, "wrappers": (), "env_module": None,
        "settings": {"num_steps": 16, "num_epochs": 1}, "run": {"num_envs": 2, "backend": "serial"},
        "total_steps": 128, "seed": 1, "evaluations": 2, "eval_episodes": 1,
    }  # fmt: skip
    return asdict(Task(**{**values, **changes}))


def test_a_job_reports_evaluations_and_can_be_pruned() -> None:
    answers = io.StringIO()
    ended = run_trial(_task(), io.StringIO("go\nprune\n"), answers)
    told = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert [each["evaluation"] for each in told] == [1, 2]
    assert ended["ended"] == "pruned" and ended["mean"] == told[-1]["mean"]
    assert ended["steps"] == 128


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"env": "CartPoel-v1"}, "UnknownEnvError: No environment is registered"),
        ({"settings": {"gamma": 2.0}}, r"ConfigError: gamma is 2.0; it must lie in [0, 1]"),
    ],
)
def test_a_job_that_cannot_train_says_why(changes: Any, reason: str) -> None:
    assert run_trial(_task(**changes), io.StringIO(), io.StringIO())["failed"].startswith(reason)


def test_a_job_exits_if_its_parent_is_gone() -> None:
    with pytest.raises(SystemExit, match="is gone"):
        run_trial(_task(), io.StringIO(), io.StringIO())


# ---------------------------------------------------------------- files


def test_a_foreign_database_is_an_error_and_stays_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "theirs.db"
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.execute("create table theirs (x)")
        database.commit()
    before = file.read_bytes()
    with pytest.raises(rookery.ConfigError, match=r"theirs.db exists, but is not a study"):
        question_in(file)
    assert file.read_bytes() == before


def test_a_study_has_one_process_at_a_time(study: Study, tmp_path: Path) -> None:
    with (
        pytest.raises(rookery.ConfigError, match=r"study.db is in use by another process"),
        open_study(tmp_path / "study.db", _question(), "tpe", "median"),
    ):
        raise AssertionError("it was opened twice")


def test_a_file_that_no_search_wrote_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    require_own(file)
    file.write_text(json.dumps({"CartPole-v1": {"source": "rookery tune, before"}}))
    require_own(file)
    for content in ("{", "[]", json.dumps({"CartPole-v1": {"source": "mine"}})):
        file.write_text(content)
        with pytest.raises(rookery.ConfigError, match="exists and was not written by a search"):
            require_own(file)


# ---------------------------------------------------------------- the command


@pytest.mark.slow
def test_the_command_searches_writes_a_preset_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It trains one trial, and confirms it; the second is played."""
    monkeypatch.chdir(tmp_path)
    command = ["tune", "--hyperparameters", "ppo", "CartPole-v1", "--confirm", "1"]
    begun = ["--total-steps", "200", "--evaluations", "2", "--eval-episodes", "1"]
    narrow = {"num_envs": 2, "num_steps": 32, "num_epochs": 1, "backend": "serial"}
    (tmp_path / "space.json").write_text(json.dumps(narrow))
    assert main([*command, *begun, "--trials", "1", "--space", "space.json"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert first["trials"] == 1 and first["study"] == "ppo-CartPole-v1.db"
    Played.play, Played.tasks = reaching(lambda _: -1.0), []  # type: ignore[assignment]
    monkeypatch.setattr(rookery.tuning.hyperparameters.search, "Job", Played)
    assert main([*command, "--trials", "2"]) == 0
    assert len(Played.tasks) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["trials"] == 2
    preset = find_preset("ppo", "CartPole-v1", first["preset"])
    assert preset is not None and preset.source.startswith("rookery tune")
    assert preset.run["num_envs"] == 2 and preset.config.num_steps == 32
    assert main([*command, "--total-steps", "300"]) == 2
    assert "was started with --total-steps 200, but --total-steps is now" in capsys.readouterr().err
    assert main([*command, "--preset", "none"]) == 2
    assert "was started with --preset" in capsys.readouterr().err
    assert main([*command, "--preset", "auto", "--trials", "2"]) == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["pqo", "CartPole-v1"], "unknown algorithm 'pqo'; did you mean ppo?"),
        (
            ["CartPole-v1", "ppo"],
            "comes first: rookery tune --hyperparameters ppo CartPole-v1",
        ),
        (["ppo", "CartPoel-v1"], "No environment is registered as 'CartPoel-v1'"),
        (["ppo", "CartPole-v1", "--trials", "0"], "argument --trials"),
        (["ppo", "CartPole-v1", "--sampler", "tpo"], "argument --sampler: invalid choice: 'tpo'"),
        (["ppo", "CartPole-v1", "--space", "no.json"], "cannot read --space no.json"),
        (["ppo", "CartPole-v1", "--study", "text.db"], "text.db exists, but is not a study"),
        (["ppo", "CartPole-v1", "--tirals", "3"], "did you mean --trials?"),
        (["ppo", "CartPole-v1", "--trials", "x"], "must be a whole number of at least 1, got 'x'"),
        (["ppo", "CartPole-v1", "--output", "mine.txt"], "--output must end in .json"),
        (["ppo", "CartPole-v1", "--output", "no/a.json"], "the folder no of --output"),
    ],
)
def test_invalid_arguments_are_an_error_before_any_file_is_written(
    arguments: list[str], complaint: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.db").write_text("no database")
    assert main(["tune", "--hyperparameters", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line
    assert [path.name for path in tmp_path.iterdir()] == ["text.db"]


def test_without_optuna_the_error_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    assert main(["tune", "--hyperparameters", "ppo", "CartPole-v1"]) == 1
    assert "pip install 'rookery[train,tune]'" in capsys.readouterr().err
