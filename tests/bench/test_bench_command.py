"""``rookery bench`` with tiny samples; no test depends on speed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from patience import PATIENCE_S

import benchmarks.speed_up
import rookery.cli.bench
from benchmarks.synthetic import COMPUTE, WAIT, synthetic
from rookery.bench.contenders import SERIAL, BenchSubject, Contender
from rookery.bench.sample import SampleFailed, SampleRequest, carried_out, take
from rookery.cli import main
from rookery.env.recipe import EnvRecipe

TINY = ["--rounds", "1", "--seconds", "0.01", "--warm-up", "0.01"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _order(name: str, library: str, options: Any = (), env: Any = "CartPole-v1") -> SampleRequest:
    return SampleRequest(
        BenchSubject("env", EnvRecipe(env)), Contender(name, library, dict(options)), 2, 0, 0
    )


class Chatty(gym.Wrapper):
    """An env that prints to standard output, and fails if ``fails`` is set."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self._fails = fails

    def step(self, action: Any) -> Any:
        print("a step")
        if self._fails:
            raise RuntimeError("no licence")
        return super().step(action)


def test_every_library_steps_the_env_in_this_process() -> None:
    loop = carried_out(_order("loop", "loop"))
    assert loop["wall_s"] > 0 and loop["cpu_s"] >= 0
    for kind, options in (
        ("rookery", {"backend": "serial"}),
        ("gymnasium", {"kind": "SyncVectorEnv"}),
    ):
        assert carried_out(_order(kind, kind, options))["steps_per_second"] > 0


def test_sb3_steps_the_env() -> None:
    pytest.importorskip("stable_baselines3")
    sample = carried_out(_order("sb3", "sb3", {"kind": "DummyVecEnv"}))
    assert sample["steps_per_second"] > 0


@pytest.mark.parametrize("kind", [COMPUTE, WAIT])
def test_synthetic_envs_step(kind: str) -> None:
    order = SampleRequest(synthetic(kind, 1e-4), Contender("loop", "loop"), 2, 0.0, 0.0)
    cost = carried_out(order)
    assert cost["wall_s"] > (1e-4 if kind == WAIT else 0.0)


def test_output_of_an_env_is_ignored_and_its_failure_has_a_reason() -> None:
    serial = {"backend": "serial"}
    assert take(_order("mine", "rookery", serial, Chatty), PATIENCE_S)["steps_per_second"] > 0
    failing = SampleRequest(
        BenchSubject("env", EnvRecipe(Chatty, {"fails": True})),
        Contender("mine", "rookery", serial), 2, 0, 0,
    )  # fmt: skip
    with pytest.raises(SampleFailed, match="no licence"):
        take(failing, PATIENCE_S)


@pytest.mark.slow
def test_the_command_measures_prints_and_writes(folder: Path, capsys: Any) -> None:
    who = ["--contenders", "rookery process", "gymnasium SyncVectorEnv"]
    spawned = ["--num-workers", "1", "--start-method", "spawn"]
    assert main(["bench", "CartPole-v1", "--num-envs", "2", *TINY, *spawned, *who]) == 0
    captured = capsys.readouterr()
    told = json.loads(captured.out.splitlines()[-1])
    names = {SERIAL, "rookery process", "gymnasium SyncVectorEnv"}
    assert set(told["steps_per_second"]["2"]) == names
    assert all(rate > 0 for rate in told["steps_per_second"]["2"].values())
    assert "CartPole-v1, 2 envs; limit" in captured.out and "other programs used" in captured.out
    results = json.loads((folder / "bench-CartPole-v1.json").read_text())
    assert {row["contender"] for row in results["results"][0]["contenders"]} == names
    assert results["settings"]["start_method"] == "spawn"
    assert (folder / "bench-CartPole-v1.png").read_bytes().startswith(b"\x89PNG")


def _played(monkeypatch: pytest.MonkeyPatch, most: int = 10**6) -> None:
    """Replace samples by constants, and raise KeyboardInterrupt after ``most`` of them."""
    taken: list[SampleRequest] = []

    def play(order: SampleRequest, timeout_s: float) -> dict[str, Any]:
        taken.append(order)
        if len(taken) > most:
            raise KeyboardInterrupt
        probed = ("env_s", "worker_env_s", "reading_s", "call_s", "worker_s", "round_trip_s")
        return {
            "steps_per_second": 100.0,
            "wall_s": 1e-3,
            "cpu_s": 1e-3,
            **dict.fromkeys(probed, 1e-3),
        }

    monkeypatch.setattr("rookery.bench.sample.take", play)
    measure = rookery.cli.bench.measure_in_rounds

    def measure_played(*args: Any, **options: Any) -> Any:
        return measure(*args, **options, take=play)

    monkeypatch.setattr(rookery.cli.bench, "measure_in_rounds", measure_played)


def test_ctrl_c_prints_the_results_so_far(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    _played(monkeypatch, most=9)
    assert main(["bench", "CartPole-v1", "--num-envs", "2", *TINY]) == 130
    captured = capsys.readouterr()
    assert captured.out.count("100") >= 5 and "after 9 of " in captured.err
    assert (folder / "bench-CartPole-v1.json").exists()


def test_speed_up_prints_each_point_with_its_prediction(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    _played(monkeypatch)
    arguments = [*TINY, "--num-envs", "4"]
    monkeypatch.setattr(sys, "argv", ["speed_up", *arguments])
    benchmarks.speed_up.main()
    captured = capsys.readouterr()
    told = json.loads(captured.out.splitlines()[-1])
    results = json.loads((folder / "bench-speed-up.json").read_text())
    assert told["points"] == len(results["points"]) >= 12
    assert "4 that compute" in captured.out and "4 threads" in captured.out
    assert results["points"][0]["measured"] == 1.0
    assert list(results["model"][0]["speed_up_by_cores"]) == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "the following arguments are required: env"),
        (["CartPoel-v1"], "No environment is registered as 'CartPoel-v1'"),
        (
            ["CartPole-v1", "--num-envs", "0"],
            "must be a whole number of at least 1, got '0'",
        ),
        (["CartPole-v1", "--contenders", "SB4"], "--contenders 'SB4' is unknown or not installed"),
        (["CartPole-v1", "--output", "x.png"], "--output must end in .json"),
        (["CartPole-v1", "--output", "no/x.json"], "the folder no of --output"),
        (["CartPole-v1", "--seconds", "0"], "--seconds must be a finite number above 0"),
    ],
)
def test_invalid_arguments_are_an_error_of_one_line(
    arguments: list[str], complaint: str, folder: Path, capsys: Any
) -> None:
    assert main(["bench", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


SCRIPT = """
import gymnasium, rookery.cli

class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}
    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}

gymnasium.register("Mine-v0", Mine)
rookery.cli.main(["bench", "Mine-v0", "--num-envs", "2", "--rounds", "1", "--seconds", "0.01",
    "--start-method", "spawn", "--num-workers", "1", "--contenders", "rookery process"])
"""


@pytest.mark.slow
def test_a_script_without_a_main_guard_can_measure_its_env(folder: Path) -> None:
    (folder / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"], capture_output=True, text=True, timeout=PATIENCE_S,
        check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])["steps_per_second"]["2"]
    assert set(told) == {SERIAL, "rookery process"} and all(told.values()), done.stdout
