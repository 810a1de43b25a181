"""tuned.json: written, read, refused, and applied to runs."""

import json
from dataclasses import replace

import pytest

from rookery.errors import ConfigError, StorageError
from rookery.run.algorithms import Given
from rookery.run.env_source import EnvSource
from rookery.run.plan import RunPlan
from rookery.run.presets import find_preset
from rookery.run.presets.tuned import Tuned, applied, describe_machine, is_same_machine
from rookery.run.request import RunRequest

CARTPOLE = EnvSource("CartPole-v1", preprocess=True).to_dict()


def tuned_for(settings=None, **changes):
    settings = settings or {
        "num_envs": 32, "collector": "workers", "backend": "process", "num_workers": 2,
        "caller_steps": None,
    }  # fmt: skip
    plain = Tuned(settings, "ppo", CARTPOLE, describe_machine())
    return replace(plain, **changes)


def test_a_file_comes_back_as_it_was_written(tmp_path):
    tuned = tuned_for(versions={"rookery": "1"}, figures={"tried": [1]}, interrupted=True)
    tuned.write(tmp_path / "tuned.json")
    assert Tuned.read(tmp_path / "tuned.json") == tuned
    assert [path.name for path in tmp_path.iterdir()] == ["tuned.json"]


def test_a_file_that_cannot_be_written_is_an_error_of_one_line(tmp_path):
    with pytest.raises(StorageError, match="choose another --output"):
        tuned_for().write(tmp_path / "none" / "deeper" / "tuned.json")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nonsense", "is not JSON"),
        ("[1]", "not a file that rookery tune wrote"),
        ('{"algo": "ppo"}', "not a file that rookery tune wrote"),
        ('{"rookery_tuned": 99}', "format 99"),
        ('{"rookery_tuned": 1}', "is incomplete"),
        ('{"rookery_tuned": 1, "setings": {}}', "did you mean settings"),
    ],
)
def test_an_invalid_file_is_refused_by_name(tmp_path, text, complaint):
    path = tmp_path / "tuned.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint) as caught:
        Tuned.read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_envs": 0},
        {"num_envs": "many"},
        {"collector": "nobody"},
        {"seed": 3},
        {"scale_hyperparameters": 1},
    ],
)
def test_invalid_settings_are_refused(tmp_path, settings):
    path = tmp_path / "tuned.json"
    path.write_text(json.dumps({**tuned_for().to_dict(), "settings": settings}))
    with pytest.raises(ConfigError, match=r"tuned\.json"):
        Tuned.read(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="rookery tune writes it"):
        Tuned.read(tmp_path / "none.json")


def test_applied_settings_are_printed_in_one_line():
    settings, lines = applied(tuned_for(), "t.json", {}, "ppo", CARTPOLE)
    assert settings == tuned_for().settings
    told = "num_envs 32, collector workers, backend process, num_workers 2"
    assert lines == [f"tuned by t.json: {told}"]


def test_given_settings_win_and_are_named():
    settings, (line,) = applied(tuned_for(), "t.json", {"num_envs": 4}, "ppo", CARTPOLE)
    assert "num_envs" not in settings and settings["num_workers"] == 2
    assert "given and kept: num_envs" in line


def test_settings_measured_together_are_ignored_together():
    settings, (line,) = applied(tuned_for(), "t.json", {"backend": "serial"}, "ppo", CARTPOLE)
    assert settings == {"num_envs": 32}
    ignored = "collector, backend, num_workers, caller_steps of the file are ignored"
    assert f"backend serial was given, so {ignored}" in line
    same, _ = applied(tuned_for(), "t.json", {"backend": "process"}, "ppo", CARTPOLE)
    assert same["collector"] == "workers"


@pytest.mark.parametrize("given", [{"on_fault": "restart"}, {"step_timeout_s": 5.0}])
def test_fault_settings_need_worker_processes(given):
    here = {"num_envs": 8, "collector": "caller", "backend": "serial"}
    settings, (line,) = applied(tuned_for(here), "t.json", given, "ppo", CARTPOLE)
    assert settings == {"num_envs": 8} and "needs worker processes" in line


def test_differences_and_an_interruption_are_printed():
    other = {**describe_machine(), "cpus": 77}
    tuned = tuned_for(machine=other, interrupted=True)
    env = EnvSource("Acrobot-v1", preprocess=True).to_dict()
    _, lines = applied(tuned, "t.json", {}, "a2c", env)
    assert "the search was interrupted" in lines[0]
    assert lines[1] == "t.json was tuned for ppo, but this run trains a2c"
    assert "for the env 'CartPole-v1', but this run uses 'Acrobot-v1'" in lines[2]
    assert "on another machine (77 CPUs" in lines[3]
    _, lines = applied(tuned_for(), "t.json", {}, "ppo", {**CARTPOLE, "frame_stack": 4})
    assert lines[1] == "t.json was tuned with other frame_stack of the env (None)"


def test_slightly_less_memory_is_the_same_machine():
    here = describe_machine()
    less = {**here, "memory_bytes": here["memory_bytes"] * 0.97}
    half = {**here, "memory_bytes": here["memory_bytes"] * 0.5}
    assert is_same_machine(here, less) and not is_same_machine(here, half)


def test_flags_win_over_the_file_and_the_file_over_the_preset(tmp_path):
    tuned_for().write(tmp_path / "t.json")
    preset = find_preset("ppo", "CartPole-v1")  # 8 envs
    plan = RunPlan.new(RunRequest("CartPole-v1", preset, settings={"tuned": tmp_path / "t.json"}))
    assert plan.settings.num_envs == 32 and plan.settings.collector == "workers"
    assert plan.settings.total_steps == preset.run["total_steps"]
    flags = {"tuned": tmp_path / "t.json", "num_envs": 2, "collector": "caller"}
    plan = RunPlan.new(RunRequest("CartPole-v1", preset, settings=flags))
    assert plan.settings.num_envs == 2 and plan.settings.collector == "caller"
    assert plan.settings.num_workers is None
    assert plan.algorithm.config.minibatch_size == 64  # cut to the rollout of 2 envs


def test_a_file_may_ask_for_scaling(tmp_path):
    settings = {"num_envs": 32, "scale_hyperparameters": True}
    tuned_for(settings).write(tmp_path / "t.json")
    plan = RunPlan.new(
        RunRequest("CartPole-v1", Given("ppo", {}), settings={"tuned": str(tmp_path / "t.json")})
    )
    assert plan.algorithm.config.num_steps == 32
    assert any("num_steps 128 -> 32" in note for note in plan.notes)
    told = {"tuned": str(tmp_path / "t.json"), "scale_hyperparameters": False}
    assert (
        RunPlan.new(RunRequest("CartPole-v1", "ppo", settings=told)).algorithm.config.num_steps
        == 128
    )
