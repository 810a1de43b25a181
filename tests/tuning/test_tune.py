"""A search from end to end, in as little time as there can be."""

import json

import psutil
import pytest

pytest.importorskip("torch")

from tuning_envs import Hangs, OnlyHere

from rookery.cli import main
from rookery.errors import ConfigError, UsageError
from rookery.learn.config import PPOConfig
from rookery.run.algorithms import OwnModules
from rookery.run.env_source import EnvSource
from rookery.run.presets.tuned import Tuned
from rookery.run.settings import TrainSettings
from rookery.tuning.halving import CandidateFailed
from rookery.tuning.measurer import Measurer
from rookery.tuning.measuring_process import Subject, rollout_steps
from rookery.tuning.memory import Ceiling
from rookery.tuning.search import TuningFailed, TuningInterrupted, tune

SMALL = PPOConfig(num_steps=8, minibatch_size=16, hidden_sizes=(4,))
MB = 2**20
AMPLE = Ceiling(2**40, "a test")


def subject_of(env):
    return Subject(EnvSource(env), None, "ppo", OwnModules(), TrainSettings(num_envs=2))


@pytest.fixture
def no_process_is_left():
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    after = psutil.Process().children(recursive=True)
    assert [child for child in after if child.pid not in before] == []


@pytest.mark.slow
def test_the_command_line_searches_writes_and_trains(tmp_path, monkeypatch, capsys):
    pytest.importorskip("rich")
    monkeypatch.chdir(tmp_path)
    flags = ["--num-envs", "2", "--collector", "caller", "--minutes", "0.01", "--whole-loop"]
    assert main(["tune", "CartPole-v1", *flags, "--hidden-sizes", "4", "--num-steps", "8"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out.splitlines()[-1])
    assert told["num_envs"] == 2 and told["steps_per_second"] > 0 and told["binds"] == "given"
    assert "<- taken" in out and "loop steps/s" in out and "round 1" in err
    assert (tmp_path / "tuned.png").read_bytes().startswith(b"\x89PNG")
    tuned = Tuned.read("tuned.json")
    assert tuned.algo == "ppo" and tuned.env["env"] == "CartPole-v1" and not tuned.interrupted
    assert tuned.figures["loop_steps_per_second"] < tuned.figures["steps_per_second"]
    flags = ["--total-steps", "64", "--eval-episodes", "0", "--run-dir", "run", "--num-steps", "8"]
    assert main(["train", "ppo", "CartPole-v1", "--tuned", "tuned.json", *flags]) == 0
    assert "tuned by tuned.json: num_envs 2, collector caller" in capsys.readouterr().err
    written = json.loads((tmp_path / "run" / "config.json").read_text())["train"]
    assert written["num_envs"] == 2 and written["tuned"] == "tuned.json"


class Canned:
    """Stands for a `Measurer`: answers what ``speed`` says of a candidate's settings, at once."""

    def __init__(self, speed, waits=False):
        self.speed, self.waits, self.orders = speed, waits, []

    def __call__(self, subject, ceiling, deadline_s):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.is_closed = True

    def ask(self, order, seconds=0.0):
        self.orders.append(order)
        if order["do"] == "step":
            return {"env_s": 1e-4, "waits": self.waits}
        if order["do"] == "memory":
            return {
                "one_bytes": 60 * MB, "some_bytes": 140 * MB,
                "some": 9, "caller_bytes": 100 * MB, "row_bytes": 16,
            }  # fmt: skip
        speed = self.speed(order["settings"])
        if isinstance(speed, BaseException):
            raise speed
        settings = order["settings"]
        memory = 100 + 50 * (settings["num_workers"] or 0) + 10 * settings["num_envs"]
        return {
            "steps": int(1000 * speed), "collect_s": 1000.0, "learn_s": 500.0 * order["learns"],
            "windows": [0.9 * speed, speed, 1.1 * speed], "opened_s": 0.1, "grown_bytes": 0,
            "memory_bytes": memory * MB,
        }  # fmt: skip


def measured(canned):
    return [order for order in canned.orders if order["do"] == "measure"]


def search(monkeypatch, speed, algo="ppo", minutes=0.2, **options):
    canned = Canned(speed)
    monkeypatch.setattr("rookery.tuning.search.Measurer", canned)
    monkeypatch.setattr("rookery.tuning.search.usable_cpus", lambda: 2)
    return tune("CartPole-v1", algo, minutes=minutes, **options), canned


def saturating(settings):
    """Two workers are twice as fast, and from 32 envs on no faster."""
    return min(settings["num_envs"], 32) * (200 if settings["collector"] == "workers" else 100)


def test_the_search_takes_the_knee_of_the_fastest_way(monkeypatch):
    outcome, canned = search(monkeypatch, saturating)
    assert outcome.tuned.settings == {
        "num_envs": 32, "collector": "workers", "backend": "process", "num_workers": 2,
        "caller_steps": None,
    }  # fmt: skip
    assert outcome.limits.binds == "cores" and outcome.tuned.figures["steps_per_second"] == 6400
    assert len(canned.orders) > len(outcome.trials) and canned.is_closed
    tried = [order["settings"]["num_envs"] for order in measured(canned)]
    assert tried[0] == 8 and set(tried) == {2, 4, 8, 16, 32, 64, 128}
    assert Tuned.from_dict(json.loads(json.dumps(outcome.tuned.to_dict())), "x") == outcome.tuned


def test_candidates_that_exceed_the_memory_are_not_measured(monkeypatch):
    outcome, canned = search(monkeypatch, lambda s: s["num_envs"] * 100, memory=500 * MB)
    assert max(order["settings"]["num_envs"] for order in measured(canned)) == 32
    refused = [trial for trial in outcome.trials if trial.candidate.num_envs > 32]
    assert refused and all("the memory ceiling is 500 MB" in trial.failure for trial in refused)
    assert outcome.limits.binds == "memory" and outcome.chosen.num_envs == 32


def test_failures_are_lines_and_the_rest_is_searched(monkeypatch):
    def speed(settings):
        if settings["backend"] == "process":
            return CandidateFailed("PicklingError: a lock cannot travel")
        return 100.0

    outcome, _ = search(monkeypatch, speed, num_envs=8)
    assert outcome.tuned.settings["backend"] == "serial"
    failed = [trial.failure for trial in outcome.trials if trial.failure]
    assert failed == ["PicklingError: a lock cannot travel"] * (len(outcome.trials) - 1)


def test_the_error_has_all_reasons_if_every_candidate_fails(monkeypatch):
    with pytest.raises(TuningFailed, match=r"no candidate could be run: it hangs$"):
        search(monkeypatch, lambda settings: CandidateFailed("it hangs"), num_envs=8)


def test_an_interruption_gives_the_best_so_far(monkeypatch):
    def speed(settings):
        return 100.0 if settings["backend"] == "serial" else KeyboardInterrupt()

    outcome, canned = search(monkeypatch, speed)
    assert outcome.tuned.interrupted and outcome.chosen.num_envs == 8 and canned.is_closed
    untried = {trial.failure for trial in outcome.trials[1:]}
    assert untried == {"not tried: the search was interrupted"}
    with pytest.raises(TuningInterrupted):
        search(monkeypatch, lambda settings: KeyboardInterrupt())


def test_the_whole_loop_is_compared_with_scaled_settings(monkeypatch):
    options = {"whole_loop": True, "scale_hyperparameters": True}
    outcome, canned = search(monkeypatch, saturating, **options)
    steps = {o["settings"]["num_envs"]: o["config"]["num_steps"] for o in measured(canned)}
    assert steps[8] == 128 and steps[32] == 32 and all(o["learns"] for o in measured(canned))
    assert outcome.tuned.settings["scale_hyperparameters"] is True
    assert any("num_steps 128 -> 32" in reason for reason in outcome.reasons)
    assert outcome.tuned.figures["compared_by"] == "whole loop"


def test_settings_that_do_not_go_with_so_few_envs_are_no_failure_of_the_rest(monkeypatch):
    large = PPOConfig(num_steps=8, minibatch_size=128)
    outcome, _ = search(monkeypatch, saturating, large)
    by_envs = {trial.candidate.num_envs: trial.failure for trial in outcome.trials}
    assert "minibatch_size is 128" in by_envs[8] and not by_envs[16]


def order(**changes):
    plain = {
        "do": "measure", "config": SMALL.to_dict(), "seconds": 0.1, "learns": False, "step_s": 0.0,
        "settings": {"num_envs": 2, "backend": "serial", "collector": "caller"},
    }  # fmt: skip
    return {**plain, **changes}


@pytest.mark.slow
def test_failing_and_hanging_envs_are_reported_in_one_line(no_process_is_left):
    workers = {"num_envs": 2, "backend": "process", "num_workers": 1, "collector": "workers"}
    with Measurer(subject_of(OnlyHere), AMPLE, deadline_s=600) as measurer:
        with pytest.raises(CandidateFailed, match="there is one display") as caught:
            measurer.ask(order(settings=workers))
        assert "\n" not in str(caught.value)
        found = measurer.ask(order())
        assert found["steps"] > 0 and found["windows"] and found["memory_bytes"] > 0
    measurer = Measurer(subject_of(Hangs), AMPLE, deadline_s=0.5)
    with measurer, pytest.raises(CandidateFailed, match="it hangs"):
        measurer.ask(order())


def test_a_candidate_above_the_memory_ceiling_is_ended(no_process_is_left):
    measurer = Measurer(subject_of(Hangs), Ceiling(1, "a test"), deadline_s=600)
    with measurer, pytest.raises(CandidateFailed, match=r"grew to .* beyond the ceiling"):
        measurer.ask(order())


def test_rollouts_are_cut_so_that_a_slice_holds_some():
    assert rollout_steps(128, 1.0, 0.0) == 8  # nobody knows yet
    assert rollout_steps(5, 1.0, 0.0) == 5
    assert rollout_steps(128, 1.0, 0.001) == 128
    assert rollout_steps(128, 1.0, 0.01) == 25
    assert rollout_steps(128, 1.0, 60.0) == 4
    assert rollout_steps(1, 1.0, 60.0) == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["ppoo", "CartPole-v1"], "did you mean ppo"),
        (["CartPole-v1", "ppo"], "the algorithm comes first: rookery tune ppo CartPole-v1"),
        (["CartPole-v1", "--run-dir", "x"], "run_dir is a setting of rookery train"),
        (["CartPole-v1", "--minuts", "1"], "did you mean --minutes"),
        (["CartPole-v1", "--memory", "lots"], "such as 6G"),
        (["CartPole-v1", "--minutes", "0"], "a finite number above 0"),
        (["CartPole-v1", "--picture", "x.bmp"], r"must end in \.png"),
        (["CartPole-v1", "--output", "none/x.json"], "does not exist"),
        (["CartPole-v7"], "CartPole"),
    ],
)
def test_invalid_arguments_are_an_error_before_envs_start(
    tmp_path, monkeypatch, arguments, complaint
):
    from rookery.cli.tune import run

    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=complaint):
        run(arguments)


def test_settings_of_runs_are_refused_in_python_too():
    with pytest.raises(ConfigError, match="total_steps is a setting of rookery train"):
        tune("CartPole-v1", total_steps=5)


@pytest.mark.parametrize("most", [0, -3, 2.5, "8"])
def test_a_number_of_envs_that_cannot_be_is_refused_before_anything_is_measured(most):
    with pytest.raises(ConfigError, match="max_envs must be a whole number of at least 1"):
        tune("CartPole-v1", max_envs=most)
