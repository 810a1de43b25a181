"""A failure leaves a small file that fails again, in this process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from patience import PATIENCE_S

import rookery
from rookery.cli import main
from rookery.testing import Fault, Faulty
from rookery.vector.crash import CrashReport


class Fragile(gym.Env[Any, Any]):
    """Breaks when the sum of its actions and random numbers, over episodes, passes a limit."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gym.spaces.Dict({"push": gym.spaces.Box(0, 1, (), np.float64)})

    def __init__(self) -> None:
        self.total = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.array([self.total]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.total += float(action["push"]) + self.np_random.random()
        if self.total > 40:
            raise ArithmeticError(f"broke at {self.total!r}")
        return np.array([self.total]), 0.0, bool(self.np_random.random() < 0.2), False, {}


class Wandering(Fragile):
    """Takes the process to another folder when it is made."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        os.chdir(folder)


def test_a_report_stays_in_its_folder_when_an_env_takes_the_process_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    kwargs = {"folder": str(tmp_path / "elsewhere")}
    with rookery.make_vec(Wandering, 1, "serial", env_kwargs=kwargs, crash_dir="crashes") as venv:
        venv.reset(seed=5)
        with pytest.raises(ArithmeticError):
            while True:
                venv.step(venv.action_space.sample())
    assert len(list((tmp_path / "crashes").iterdir())) == 1
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("backend", ["serial", "process"])
def test_a_report_fails_again_with_the_same_error(
    tmp_path: Path, backend: str, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with rookery.make_vec(
        Fragile, 3, backend=backend, autoreset_mode=mode, crash_dir=tmp_path
    ) as venv:
        venv.action_space.seed(0)
        venv.reset(seed=5)
        with pytest.raises(ArithmeticError) as caught:
            while True:
                venv.step(venv.action_space.sample())
    (path,) = tmp_path.iterdir()
    assert f"rookery replay {path}" in str(caught.value)
    with pytest.raises(ArithmeticError) as again:
        CrashReport.load(path).replay()
    assert str(again.value.__cause__) == str(caught.value.__cause__)
    assert main(["replay", str(path)]) == 1
    assert "broke at" in capsys.readouterr().err


class Mortal(Fragile):
    """Draws random numbers; kills its process, or raises, when it is told to.

    Args:
        folder: with a file ``die`` in it, the next reset removes that and kills the process.
    """

    action_space = gym.spaces.Discrete(3)

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.deadly = Path(folder) / "die"

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if self.deadly.exists():
            self.deadly.unlink()
            os._exit(3)
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action == KILL:
            os._exit(3)
        self.total += self.np_random.random()
        if action == RAISE:
            raise ArithmeticError(f"broke at {self.total!r}")
        return np.array([self.total]), 0.0, bool(self.np_random.random() < 0.2), False, {}


NOTHING, KILL, RAISE = 0, 1, 2


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("lost_in", ["step", "reset", "partial"])
@pytest.mark.parametrize("steps", [0, 1, 12])
def test_a_report_after_a_restart_tells_what_the_new_worker_did(
    tmp_path: Path, steps: int, lost_in: str, mode: str
) -> None:
    reports = tmp_path / "reports"
    faults = rookery.FaultPolicy("restart", max_restarts=1)
    options: Any = {"num_workers": 1, "autoreset_mode": mode, "crash_dir": reports}
    with rookery.make_vec(
        Mortal, 2, backend="process", faults=faults, env_kwargs={"folder": str(tmp_path)}, **options
    ) as venv:
        venv.reset(seed=5)
        venv.step([NOTHING, NOTHING])
        if lost_in == "step":
            venv.step([KILL, NOTHING])
        elif lost_in == "reset":
            (tmp_path / "die").touch()
            venv.reset()
        else:  # env 1 is lost while it does nothing, and told with its next step
            venv.send([KILL], [0])
            venv.recv(timeout=PATIENCE_S)
        for _ in range(steps):
            venv.step([NOTHING, NOTHING])
        error = None
        for _ in range(3):  # a step may be but the reset after an episode
            try:
                venv.step([NOTHING, RAISE])
            except ArithmeticError as caught:
                error = caught
                break
    assert error is not None and venv.restarts == 1
    (path,) = reports.iterdir()
    report = CrashReport.load(path)
    assert report.is_whole
    with pytest.raises(ArithmeticError) as again:
        report.replay()
    assert str(again.value.__cause__) == str(error.__cause__)


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_a_report_of_envs_that_were_sent_actions_one_by_one_fails_again(
    tmp_path: Path, backend: str
) -> None:
    with rookery.make_vec(Fragile, 3, backend=backend, crash_dir=tmp_path) as venv:
        venv.action_space.seed(0)
        venv.send_reset(seed=5)
        with pytest.raises(ArithmeticError) as caught:
            while True:
                env_ids = venv.recv(timeout=PATIENCE_S)[-1]
                pushes = venv.action_space.sample()["push"]
                venv.send({"push": pushes[env_ids]}, env_ids)
    (path,) = tmp_path.iterdir()
    with pytest.raises(ArithmeticError) as again:
        CrashReport.load(path).replay()
    assert str(again.value.__cause__) == str(caught.value.__cause__)


def test_even_a_killed_worker_leaves_a_report(tmp_path: Path) -> None:
    with rookery.make_vec(Faulty, 2, backend="process", crash_dir=tmp_path) as venv:
        venv.reset(seed=1)
        venv.step(np.zeros(2, int))
        with pytest.raises(rookery.WorkerDied):
            venv.step(np.array([0, Fault.KILL]))
    (path,) = tmp_path.iterdir()
    report = CrashReport.load(path)
    assert report.env_id == 1 and len(report.events) == 3 and "SIGKILL" in report.error


def test_what_is_no_report_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").write_text("no pickle")
    assert main(["replay", str(tmp_path / "other")]) == 2
    assert main(["replay", str(tmp_path / "missing")]) == 2
    assert "is not a crash report" in capsys.readouterr().err


class Sealed(Fragile):
    """Cannot be sent anywhere, which the recipe of a report would need."""

    def __init__(self, lock: Any = None) -> None:
        super().__init__()
        self.total = 50.0


@pytest.mark.parametrize("what", ["folder", "recipe"])
def test_a_report_that_cannot_be_written_does_not_hide_why_the_env_failed(
    tmp_path: Path, what: str
) -> None:
    folder = tmp_path / "reports"
    kwargs = {"lock": threading.Lock()} if what == "recipe" else {}
    with rookery.make_vec(Sealed, 2, "serial", env_kwargs=kwargs, crash_dir=folder) as venv:
        venv.reset(seed=0)
        if what == "folder":
            folder.rmdir()
            folder.touch()
        with pytest.raises(ArithmeticError, match="broke at") as caught:
            venv.step(venv.action_space.sample())
    assert isinstance(caught.value, rookery.EnvFailed)
    assert f"no crash report could be written to {folder}" in str(caught.value)
    assert not list(tmp_path.glob("**/*.pkl"))


def test_a_report_runs_the_env_that_its_id_stood_for(tmp_path: Path) -> None:
    stock = gym.registry.pop("CartPole-v1")
    try:
        gym.register("CartPole-v1", Sealed)
        with rookery.make_vec("CartPole-v1", 2, "process", crash_dir=tmp_path) as venv:
            venv.reset(seed=0)
            with pytest.raises(ArithmeticError):
                venv.step(venv.action_space.sample())
    finally:
        gym.registry["CartPole-v1"] = stock
    (path,) = tmp_path.iterdir()
    with pytest.raises(ArithmeticError, match="broke at"):
        CrashReport.load(path).replay()


def test_a_report_names_the_id_of_an_env_whose_registration_cannot_be_sent(tmp_path: Path) -> None:
    lock = threading.Lock()
    gym.register("Sealed-v0", lambda: Sealed(lock))
    try:
        with rookery.make_vec("Sealed-v0", 1, "serial", crash_dir=tmp_path) as venv:
            venv.reset(seed=0)
            with pytest.raises(ArithmeticError):
                venv.step(venv.action_space.sample())
        (path,) = tmp_path.iterdir()
        report = CrashReport.load(path)
        assert report.recipe.source == "Sealed-v0"
        with pytest.raises(ArithmeticError, match="broke at"):
            report.replay()
    finally:
        del gym.registry["Sealed-v0"]


def test_a_report_of_an_env_of_a_script_runs_without_the_script(tmp_path: Path) -> None:
    script = """
import gymnasium as gym, rookery
class Breaks(gym.Env):
    observation_space = action_space = gym.spaces.Discrete(3)
    def reset(self, *, seed=None, options=None):
        raise ArithmeticError("broke")
gym.register("Breaks-v0", "__main__:Breaks")
with rookery.make_vec("Breaks-v0", 1, "process", crash_dir="reports") as venv:
    try:
        venv.reset()
    except ArithmeticError:
        print("failed")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "failed\n", done.stderr
    (path,) = (tmp_path / "reports").iterdir()
    with pytest.raises(ArithmeticError, match="broke"):
        CrashReport.load(path).replay()


@pytest.mark.parametrize(
    "data",
    [b"", b"text", b"\x80\x05N.", b"\x80\xff."],
)
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file.pkl"
    path.write_bytes(data)
    with pytest.raises(rookery.UsageError, match=r"file\.pkl is not a crash report"):
        CrashReport.load(path)
    with pytest.raises(rookery.UsageError, match="is not a"):
        CrashReport.load(tmp_path / "missing.pkl")


class Wide(gym.Env[Any, Any]):
    """Has actions of a megabyte, and fails when the first number of one is 1."""

    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    action_space = gym.spaces.Box(0, 1, (2**18,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action[0] == 1:
            raise ArithmeticError("one")
        return np.zeros(1, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("data", [b"cno_such_module\nEnv\n.", b"crookery\nNoSuchEnv\n."])
def test_a_report_of_an_env_that_is_not_found_says_where_to_replay_it(
    tmp_path: Path, data: bytes
) -> None:
    (tmp_path / "file.pkl").write_bytes(data)
    with pytest.raises(rookery.UsageError, match=r"cannot be imported .* replay it where"):
        CrashReport.load(tmp_path / "file.pkl")


def test_large_actions_are_forgotten_before_they_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rookery.vector.crash._MOST_BYTES", 5 * 2**20, raising=False)
    with rookery.make_vec(Wide, 1, "serial", crash_dir=tmp_path) as venv:
        venv.reset(seed=1)
        actions = np.zeros((1, 2**18), np.float32)
        for _ in range(20):
            venv.step(actions)
        with pytest.raises(ArithmeticError):
            venv.step(actions + 1)
    (path,) = tmp_path.iterdir()
    report = CrashReport.load(path)
    assert path.stat().st_size < 6 * 2**20
    assert len(report.events) == 5 and not report.is_whole
    assert report.events[-1].leaves[0][0, 0] == 1  # type: ignore[union-attr]
