"""The command line as its users meet it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import psutil
import pytest
from patience import PATIENCE_S
from programs import output_of, started_program

from rookery.cli import main

# What every algorithm understands, and what makes it learn within so few steps.
FEW = ["--preset", "none", "--total-steps", "128", "--num-envs", "2", "--backend", "serial"]
REPLAY = ["--warmup-steps", "16", "--batch-size", "8"]
QUICK = ["--total-steps", "128", "--num-envs", "2", "--num-steps", "16", "--backend", "serial"]


def _last_json(text: str) -> dict:
    return json.loads(text.strip().splitlines()[-1])


@pytest.fixture
def package_folder(tmp_path: Path, monkeypatch) -> Iterator[None]:
    """Make the temporary folder the current one; forget what is imported and registered there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    registered, modules = set(gym.registry), set(sys.modules)
    yield
    for env_id in set(gym.registry) - registered:
        del gym.registry[env_id]
    for name in ("my_envs", "odd_envs", "failing_envs"):
        if name not in modules:
            sys.modules.pop(name, None)


def test_train_and_eval_end_with_one_json_object(tmp_path: Path, capsys):
    run_dir = str(tmp_path / "run")
    code = main(
        ["train", "ppo", "CartPole-v1", *QUICK, "--run-dir", run_dir, "--learning-rate", "1e-3",
         "--hidden-sizes", "32", "16", "--normalize-obs", "--eval-episodes", "3"]
    )  # fmt: skip
    assert code == 0
    trained = _last_json(capsys.readouterr().out)
    keys = ["run_dir", "steps", "seconds", "steps_per_second", "eval_return_mean"]
    assert list(trained) == [*keys, "eval_return_std"]
    assert (trained["run_dir"], trained["steps"]) == (run_dir, 128)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["ppo"]["hidden_sizes"] == [32, 16]
    assert config["ppo"]["learning_rate"] == 1e-3
    assert config["train"]["num_envs"] == 2

    assert main(["eval", run_dir, "--episodes", "3"]) == 0
    evaluated = _last_json(capsys.readouterr().out)
    assert set(keys) <= set(evaluated)
    assert evaluated["eval_return_mean"] == trained["eval_return_mean"]


@pytest.mark.parametrize(
    ("algorithm", "env", "options"),
    [
        ("a2c", "CartPole-v1", ["--rms-decay", "0.9"]),
        ("impala", "CartPole-v1", ["--collector", "caller", "--rho-clip", "0.9"]),
        ("dqn", "CartPole-v1", [*REPLAY, "--no-dueling", "--prioritized", "--n-step", "2"]),
        ("qrdqn", "CartPole-v1", [*REPLAY, "--num-quantiles", "9"]),
        ("sac", "Pendulum-v1", [*REPLAY, "--hidden-sizes", "16", "--entropy-coef", "0.1"]),
        ("td3", "Pendulum-v1", [*REPLAY, "--policy-delay", "3"]),
    ],
)
def test_every_algorithm_trains_evaluates_and_resumes(tmp_path, capsys, algorithm, env, options):
    run_dir = str(tmp_path / "run")
    told = [*FEW, *options, "--run-dir", run_dir, "--eval-episodes", "3"]
    assert main(["train", algorithm, env, *told]) == 0
    trained = _last_json(capsys.readouterr().out)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["algo"] == algorithm
    assert options[-2].strip("-").replace("-", "_") in config[algorithm]
    assert main(["eval", run_dir, "--episodes", "3"]) == 0
    evaluated = _last_json(capsys.readouterr().out)
    assert evaluated["eval_return_mean"] == trained["eval_return_mean"]
    assert main(["train", "--resume", run_dir, "--total-steps", "256"]) == 0
    assert 256 <= _last_json(capsys.readouterr().out)["steps"] < 300


def test_env_kwargs_and_env_module_reach_the_envs(tmp_path: Path, capsys, package_folder):
    (tmp_path / "my_envs.py").write_text(
        "import gymnasium as gym\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Short(CartPoleEnv):\n"
        "    def __init__(self, limit, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        "        self.limit = limit\n"
        "    def reset(self, **kwargs):\n"
        "        self.count = 0\n"
        "        return super().reset(**kwargs)\n"
        "    def step(self, action):\n"
        "        self.count += 1\n"
        "        obs, reward, _, _, info = super().step(action)\n"
        "        return obs, 1.0, self.count >= self.limit, False, info\n"
        "gym.register('Short-v0', Short)\n"
    )
    arguments = ["train", "ppo", "Short-v0", "--env-module", "my_envs", "--run-dir", "run"]
    options = ["--env-kwargs", '{"limit": 7}', "--eval-episodes", "2", "--num-workers", "1"]
    assert main([*arguments, *options, *QUICK, "--backend", "process"]) == 0
    assert _last_json(capsys.readouterr().out)["eval_return_mean"] == 7.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "ppo", "CartPol-v1"], "CartPole-v1"),
        (["train", "ppo", "CartPole-v1", "--bogus", "1"], "--bogus"),
        (["train", "ppo", "CartPole-v1", "--num-envs", "many"], "--num-envs"),
        (["train", "ppo", "CartPole-v1", "--gamma", "3"], "gamma"),
        (["train", "ppo", "CartPole-v1", "--num-envs", "0"], "num_envs"),
        (["train", "ppo", "CartPole-v1", "--env-kwargs", "[1]"], "--env-kwargs"),
        (["train", "ppo", "CartPole-v1", "--env-kwargs", "{"], "--env-kwargs"),
        (["train", "ppo", "CartPole-v1", "--env-module", "no_such"], "no_such"),
        (["doctor", "CartPole-v1", "--env-module", "no_such"], "cannot import 'no_such'"),
        (["doctor", "no_such:CartPole-v1"], "the module that 'no_such:CartPole-v1' names"),
        (["train", "ppo"], "ENV"),
        (["train", "sarsa", "CartPole-v1"], "sarsa"),
        (["eval", "no/such/folder"], "holds no run"),
        (["train", "--resume", "no/such/folder"], "holds no run"),
        (["train", "--resume"], "--resume"),
        (["train", "dqn", "Pendulum-v1"], "Discrete"),
        (["train", "sac", "CartPole-v1"], "Box"),
        (["train", "ppo", "CartPole-v1", "--collector", "async"], "'caller', 'workers'"),
        (["train", "ppo", "Pendulum-v1", "--collector", "async"], "'caller'"),
        (["train", "impala", "CartPole-v1", "--backend", "serial"], "collector 'caller'"),
        (["fly"], "fly"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.strip().splitlines()
    assert line.startswith("rookery: error: ")
    assert message in line
    assert not (tmp_path / "runs").exists()


def test_an_unsupported_space_is_one_line(tmp_path: Path, capsys, package_folder):
    (tmp_path / "odd_envs.py").write_text(
        "import gymnasium as gym\n"
        "from gymnasium import spaces\n"
        "class Odd(gym.Env):\n"
        "    observation_space = spaces.Box(-1, 1, (2,))\n"
        "    action_space = spaces.Text(3)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        return self.observation_space.sample(), {}\n"
        "    def step(self, action):\n"
        "        return self.observation_space.sample(), 0.0, False, False, {}\n"
        "gym.register('Odd-v0', Odd)\n"
    )
    assert main(["train", "ppo", "Odd-v0", "--env-module", "odd_envs", *QUICK]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "action_space" in line


def test_a_run_is_not_overwritten_by_accident(tmp_path: Path, capsys):
    arguments = ["train", "ppo", "CartPole-v1", *QUICK, "--run-dir", str(tmp_path)]
    assert main([*arguments, "--eval-episodes", "0"]) == 0
    assert _last_json(capsys.readouterr().out)["eval_return_mean"] is None
    assert main(arguments) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main([*arguments, "--overwrite", "--eval-episodes", "0"]) == 0


HELPS = (
    ["--help"],
    ["train", "--help"],
    ["train", "ppo", "--help"],
    ["train", "dqn", "--help"],
    ["eval", "--help"],
    ["--version"],
)


@pytest.fixture(scope="module")
def after_help() -> list[str]:
    """For each of HELPS its exit code, and whether one program has torch and matplotlib by then."""
    code = f"""
import contextlib, os, sys
from rookery.cli import main
for arguments in {HELPS!r}:
    with contextlib.redirect_stdout(open(os.devnull, "w")):
        try:
            code = main(arguments)
        except SystemExit as error:
            code = error.code
    print(code or 0, "torch" in sys.modules, "matplotlib" in sys.modules)
"""
    return output_of(code).splitlines()


@pytest.mark.parametrize("place", range(len(HELPS)), ids=lambda i: " ".join(HELPS[i]))
def test_help_needs_no_torch(after_help: list[str], place: int):
    assert after_help[place] == "0 False False"


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "impala", "dqn", "qrdqn", "sac", "td3"])
def test_help_lists_fifteen_options_and_help_all_every_setting(capsys, algorithm):
    from dataclasses import fields

    from rookery.run import TrainSettings
    from rookery.run.algorithms import BUILT_IN

    with pytest.raises(SystemExit):
        main(["train", algorithm, "--help"])
    text = capsys.readouterr().out
    options = re.findall(r"^\W*(--[a-z][a-z-]+)", text, re.MULTILINE)
    assert 14 <= len(options) <= 15 and options[0] == "--total-steps"
    assert "--help-all" in text.splitlines()[-1]
    with pytest.raises(SystemExit):
        main(["train", algorithm, "--help-all"])
    text = capsys.readouterr().out
    for field in (*fields(BUILT_IN[algorithm][0]), *fields(TrainSettings)):
        assert "--" + field.name.replace("_", "-") in text


def _await_content(file: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not (file.exists() and file.stat().st_size):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "word"),
    [
        pytest.param(signal.SIGINT, 130, "interrupted", id="ctrl-c"),
        pytest.param(signal.SIGTERM, 143, "terminated", id="sigterm", marks=pytest.mark.whole),
    ],
)
def test_a_signal_writes_a_checkpoint_from_which_the_run_goes_on(
    tmp_path: Path, number, code, word, capsys
):
    run_dir = tmp_path / "run"
    command = ["-m", "rookery", "train", "ppo", "CartPole-v1", "--preset", "none"]
    options = ["--total-steps", "1000000000", "--run-dir", str(run_dir), "--backend", "process"]
    metrics = run_dir / "metrics.jsonl"
    with started_program([*command, *options], tmp_path) as process:
        _await_content(metrics, process)
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, err
    assert "Traceback" not in err
    assert f"rookery: {word} after" in err
    assert (run_dir / "checkpoint.pt").exists()
    assert out == ""
    steps = json.loads(metrics.read_text().splitlines()[-1])["step"]
    assert main(["train", "--resume", str(run_dir), "--total-steps", str(steps + 1)]) == 0
    assert _last_json(capsys.readouterr().out)["steps"] == steps + 1024


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, 130, id="ctrl-c", marks=pytest.mark.whole),
        pytest.param(signal.SIGTERM, 143, id="sigterm"),
    ],
)
def test_a_signal_ends_actors_that_run_ahead(tmp_path: Path, number, code, capsys):
    run_dir = tmp_path / "run"
    options = ["--total-steps", "1000000000", "--run-dir", str(run_dir), "--num-workers", "2"]
    command = ["-m", "rookery", "train", "impala", "CartPole-v1"]
    metrics = run_dir / "metrics.jsonl"
    with started_program([*command, *options], tmp_path) as process:
        _await_content(metrics, process)
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) >= 2
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, err
    assert "Traceback" not in err and out == ""
    _, alive = psutil.wait_procs(family, timeout=PATIENCE_S)
    assert alive == []
    steps = json.loads(metrics.read_text().splitlines()[-1])["step"]
    # The signal may have come after an update, and before its metrics.
    assert main(["train", "--resume", str(run_dir), "--total-steps", str(steps + 1000)]) == 0
    captured = capsys.readouterr()
    assert _last_json(captured.out)["steps"] > steps
    assert "they start new episodes" in captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian", "ppo", "CartPole-v1"], "did you mean train?"),
        (["train", "pppo", "CartPole-v1"], "did you mean ppo?"),
        (["train", "PPO", "CartPole-v1"], "did you mean ppo?"),
        (["train", "CartPole-v1", "ppo"], "rookery train ppo CartPole-v1"),
        (["train", "ppo", "CartPole-v1", "--num-env", "3"], "did you mean --num-envs"),
        (["train", "ppo", "CartPole-v1", "--ent-coef", "3"], "did you mean --entropy-coef?"),
        (["train", "dqn", "CartPole-v1", "--n_steps=3"], "mean --num-steps or --n-step?"),
        (["train", "ppo", "CartPole-v1", "--leaning-rate=3"], "did you mean --learning-rate"),
        (["train", "ppo", "CartPole-v1", "--no-normalise-obs"], "--no-normalize-obs"),
        (["eval", "runs/some", "--episode", "3"], "did you mean --episodes?"),
        (["TRAIN", "ppo", "CartPole-v1"], "did you mean train?"),
        (["--verison"], "did you mean --version?"),
        (["train", "--resme", "runs/some"], "did you mean --resume?"),
        (["train", "ppo", "CartPole-v1", "--totl-steps", "5"], "did you mean --total-steps? (see"),
        (["train", "ppo", "CartPole-v1", "-num-envs", "3"], "did you mean --num-envs?"),
        (["train", "ppo", "CartPole-v1", "--collector", "worker"], "did you mean workers?"),
        (["train", "ppo", "CartPole-v1", "--backend=proces"], "did you mean process?"),
        (
            ["train", "ppo", "CartPole-v1", "--start-method", "forksever"],
            "did you mean forkserver?",
        ),
        (["train", "ppo", "CartPole-v1", "--image-encoder", "3"], "it must be nature or impala"),
        (["train", "ppo", "CartPole-v1", "--activation", "tahn"], "did you mean 'tanh'?"),
        (["train", "ppo", "CartPole-v1", "--device", "gpu"], "did you mean cuda?"),
        (["train", "ppo", "CartPole-v1", "--normalize-obs", "True"], "--no-normalize-obs"),
        (
            ["train", "ppo", "CartPole-v1", "--stop-at", "abc"],
            "--stop-at is 'abc'; it must be a number",
        ),
        (
            ["train", "ppo", "CartPole-v1", "--hidden-sizes", "64x64"],
            "whole numbers, such as 64 64",
        ),
        (["train", "ppo", "CartPol-v1"], "Nearest: CartPole-v1"),
        (["train", "ppo", "CartPole-v7"], "CartPole is registered as CartPole-v0, CartPole-v1."),
        (["doctor", "CartPole-v1", "--jsn"], "did you mean --json?"),
        (["doctor", "CartPole-v1", "--deadlin", "3"], "did you mean --deadline?"),
        (["doctor", "ALE/Pong_v5"], "ALE/Pong-v5"),
        (["train", "ppo", ":CartPole-v1"], "':CartPole-v1' names no module before its colon"),
        (["replay", "--file", "report.pkl"], "unknown option --file"),
        (["train", "ppo", "CartPole-v1", "--resume", "runs/some"], "train --resume RUN_DIR"),
        (["train", "ppo", "ALE/Pong_v5"], "ALE/Pong-v5"),
        (["train", "ppo", "MiniGrid-Nowhere-v0"], "package minigrid"),
        (["train", "ppo", "Nowhere-v0"], "--env-module PACKAGE"),
        (["train", "ppo", "rookery.cli:nowhere"], "has no function 'nowhere' either"),
        (["train", "ppo", "no.such:make"], "Cannot import the module that 'no.such:make' names"),
        (["train", "ppo", "Nowhere-v0", "--env-module", "json"], "does not register it"),
        (["train", "ppo", "CartPole-v1", "--run-dir", ""], "run_dir must be the path"),
        (["train", "ppo", "CartPole-v1", "--run-dir", "/dev/null/run"], "run directory /dev/null"),
        (["train", "ppo", "CartPole-v1", "--run-dir", "/proc/run"], "run directory /proc/run"),
        (["train", "ppo", "CartPole-v1", "--stop-at", "3"], "set eval_every"),
        (
            ["train", "ppo", "CartPole-v1", "--eval-every", "9", "--eval-episodes", "0"],
            "set eval_episodes",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_told_with_the_way_out(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    processes = set(psutil.Process().children(recursive=True))
    assert main(arguments) == 2
    assert set(psutil.Process().children(recursive=True)) <= processes
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line and "Error parsing train" not in line
    assert not (tmp_path / "runs").exists()


def test_the_env_may_follow_flags_and_numbers_may_be_none(tmp_path, capsys):
    options = ["--stop-at", "None", "--gamma", "0.9", "--normalize-obs", "--collector", "caller"]
    assert main(["train", "ppo", *QUICK, *options, "CartPole-v1", "--run-dir", str(tmp_path)]) == 0
    assert _last_json(capsys.readouterr().out)["steps"] > 0


def test_the_texts_of_a_minigrid_name_the_wrapper(capsys, tmp_path):
    pytest.importorskip("minigrid")
    env = ["MiniGrid-Empty-5x5-v0", "--no-preprocess"]
    assert main(["train", "ppo", *env, *QUICK, "--run-dir", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "minigrid.wrappers.ImgObsWrapper" in line and "my_module:make_env" in line


@pytest.fixture(scope="module")
def a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("runs") / "run"
    options = ["--eval-episodes", "1", "--eval-every", "64", "--stop-at", "1e6"]
    assert main(["train", "ppo", "CartPole-v1", *QUICK, *options, "--run-dir", str(run_dir)]) == 0
    return run_dir


@pytest.fixture
def short_run(a_run: Path, tmp_path: Path, capsys) -> str:
    """A run of the test's own, which may change it."""
    capsys.readouterr()
    return str(shutil.copytree(a_run, tmp_path / "run"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--leaning-rate", "3"], "did you mean --learning-rate"),
        (["--run-dir", "elsewhere"], "stays in its folder"),
        (["--num-envs", "3"], "num_envs cannot be changed"),
        (["--total-steps", "1"], "the run has made 128 steps already"),
        (["--env-kwargs", "{"], "--env-kwargs"),
        (["--gamma", "2"], "gamma"),
        (["more"], "more"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_change_of_a_run_is_one_line_and_changes_nothing(
    options, message, capsys, short_run
):
    files = [Path(short_run) / name for name in ("config.json", "checkpoint.pt")]
    before = [file.read_bytes() for file in files]
    assert main(["train", "--resume", short_run, *options]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
    assert [file.read_bytes() for file in files] == before


@pytest.mark.parametrize(
    ("options", "where", "name", "value"),
    [
        (["--learning-rate=1e-4"], "ppo", "learning_rate", 1e-4),
        (["--no-save-env-states"], "train", "save_env_states", False),
        (["--stop-at", "7"], "train", "stop_at", 7.0),
        (["--total-steps", "2e2"], "train", "total_steps", 200),
        (["--seed", "0"], "train", "seed", 0),
        (["--env-kwargs", '{"sutton_barto_reward": true}'], "source", "env_kwargs",
         {"sutton_barto_reward": True}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_settings_of_a_run_change_by_their_flags(options, where, name, value, short_run, capsys):
    assert main(["train", "--resume", short_run, *options]) == 0
    config = json.loads((Path(short_run) / "config.json").read_text())
    assert config[where][name] == value
    assert config["train"]["eval_every"] == 64


@pytest.mark.parametrize("sizes", [["32,16"], ["32", "16"], ["(32, 16)"]], ids=str)
def test_sizes_may_be_written_with_commas(sizes, tmp_path, capsys):
    run_dir = tmp_path / "run"
    told = [*QUICK, "--eval-episodes", "0", "--run-dir", str(run_dir), "--hidden-sizes", *sizes]
    assert main(["train", "ppo", "CartPole-v1", *told]) == 0
    assert json.loads((run_dir / "config.json").read_text())["ppo"]["hidden_sizes"] == [32, 16]


def test_the_result_is_json_also_where_a_number_is_none(capsys):
    from rookery.cli.arguments import print_result

    print_result({"mean": float("nan"), "std": float("inf"), "steps": 3})
    assert _last_json(capsys.readouterr().out) == {"mean": None, "std": None, "steps": 3}


def test_a_negative_seed_of_an_evaluation_is_one_line(short_run, capsys):
    assert main(["eval", short_run, "--seed", "-2"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "seed must be a whole number" in line


_ENVS_THAT_FAIL = """
import gymnasium as gym


class Fails(gym.Wrapper):
    def step(self, action):
        raise ValueError("the arm is stuck")  # this line


def failing():
    return Fails(gym.make("CartPole-v1"))


def lacking():
    raise gym.error.DependencyNotInstalled("pip install simulator")
"""


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_where_an_env_failed_is_shown_and_what_it_lacks_is_one_line(
    package_folder: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], backend: str
) -> None:
    (tmp_path / "failing_envs.py").write_text(_ENVS_THAT_FAIL)
    command = ["train", "ppo", "failing_envs:failing", "--backend", backend, "--num-envs", "2"]
    assert main(command) == 1
    lines = capsys.readouterr().err.splitlines()
    assert any("# this line" in line for line in lines)
    assert lines[-1].startswith("rookery: error: Env") and "the arm is stuck" in lines[-1]
    assert main([part.replace("failing_envs:failing", "failing_envs:lacking") for part in command])
    told = capsys.readouterr().err
    assert "Traceback" not in told and "pip install simulator" in told


def _rookery(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "rookery", *arguments]
    return subprocess.run(
        command, stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE_S, **options
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
@pytest.mark.parametrize("command", ["--version", "--help", "doctor CartPole-v1", "watch --once"])
def test_a_standard_output_that_takes_nothing_is_told(tmp_path: Path, command: str):
    arguments = command.split()
    if arguments[0] == "watch":
        assert main(["train", "ppo", "CartPole-v1", *QUICK, "--run-dir", str(tmp_path)]) == 0
        arguments = ["watch", str(tmp_path), "--once"]
    with Path("/dev/full").open("w") as full:
        done = _rookery(*arguments, stdout=full)
    assert done.returncode == 1
    assert done.stderr == (
        "rookery: error: cannot write to standard output: No space left on device\n"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="no folder can be deleted that is in use")
def test_a_current_folder_that_was_deleted_is_told(tmp_path: Path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["doctor", "CartPole-v1"]) == 2
    assert "the current folder was deleted; change to another one" in capsys.readouterr().err
