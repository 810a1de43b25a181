"""Scripts as users write them, run as users run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

from rookery import ConfigError
from rookery.common.cpus import usable_cpus
from rookery.worker.start.launch import resolve_start_method

# No main guard; an env class, a registration, wrappers and lambdas in the script.
SCRIPT = """
import gymnasium as gym, numpy as np, rookery
print("started")

class Counter(gym.Env):
    observation_space = gym.spaces.Box(0, 100, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    def __init__(self, step=1):
        self.count, self.by = 0, step
    def reset(self, *, seed=None, options=None):
        self.count = 0
        return np.zeros(1, np.float32), {}
    def step(self, action):
        self.count += self.by
        return np.full(1, self.count, np.float32), 1.0, False, False, {}

gym.register("Counter-v0", entry_point=Counter)
gym.register("Lambda-v0", entry_point=lambda: Counter(7))
for source, kwargs, last in [
    (Counter, {}, 3),
    ("Counter-v0", {"step": 2}, 6),
    (gym.spec("Counter-v0"), {}, 3),
    ("Lambda-v0", {}, 21),
    (lambda: gym.make("Counter-v0", step=5), {}, 15),
]:
    venv = rookery.make_vec(
        source, 3, backend="process", num_workers=2, start_method=METHOD, env_kwargs=kwargs,
        wrappers=[lambda env: gym.wrappers.TimeLimit(env, 10)],
    )
    venv.reset(seed=0)
    for _ in range(3):
        obs = venv.step(np.zeros(3, int))[0]
    assert obs.tolist() == [[last]] * 3, (source, obs)
    venv.close()
print("done")
"""

HOW = ("file", "module", "command", "stdin")


def _run(arguments: list[str], **options: object) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "method"),
    [
        ("file", "fork"),  # which has the script as it is, and imports nothing
        *((how, "forkserver") for how in HOW),
        *((how, "spawn") for how in ("file", "stdin")),  # from a script that can be found, or not
        *(pytest.param(how, "spawn", marks=pytest.mark.whole) for how in ("module", "command")),
        *(pytest.param(how, "fork", marks=pytest.mark.whole) for how in HOW if how != "file"),
    ],
)
def test_a_script_without_main_guard_starts_once_and_works(
    tmp_path: Path, method: str, how: str
) -> None:
    script = SCRIPT.replace("METHOD", repr(method))
    (tmp_path / "script.py").write_text(script)
    arguments = {
        "file": ["script.py"],
        "module": ["-m", "script"],
        "command": ["-c", script],
        "stdin": [],
    }[how]
    out = _run(arguments, cwd=tmp_path, input=script if how == "stdin" else None)
    assert out == "started\ndone\n"


def test_workers_and_import_rookery_load_no_learning_library(tmp_path: Path) -> None:
    script = """
import sys, rookery
venv = rookery.make_vec("CartPole-v1", 2, backend="process")
heavy = {"torch", "tensorboard", "matplotlib", "rich", "tyro", "pandas", "scipy"}
def loaded(env):
    import sys
    heavy = {"torch", "tensorboard", "matplotlib", "rich", "tyro"}
    env.unwrapped.loaded = sorted(heavy & set(sys.modules))
    return env
venv.close()
venv = rookery.make_vec("CartPole-v1", 2, backend="process", wrappers=[loaded])
print(venv.get_attr("loaded"), sorted(heavy & set(sys.modules)))
venv.close()
"""
    (tmp_path / "script.py").write_text(script)
    assert _run(["script.py"], cwd=tmp_path) == "([], []) []\n"


def test_a_fork_server_has_imported_all_that_a_worker_needs_of_rookery(tmp_path: Path) -> None:
    script = """
import subprocess, sys, numpy, rookery
from rookery.worker.start import launch
def loaded(env):
    import sys
    env.unwrapped.loaded = [name for name in sys.modules if name.startswith("rookery")]
    return env
venv = rookery.make_vec(
    "CartPole-v1", 2, backend="process", num_workers=1, start_method="forkserver", wrappers=[loaded]
)
venv.reset()
venv.step(numpy.zeros(2, int))
loaded = venv.get_attr("loaded")[0]
venv.close()
names = "; ".join(f"import {n}" for n in ["rookery.worker.start.forkserver_main", *launch._PRELOAD])
names += "; import sys; print(*sys.modules)"
server = subprocess.check_output([sys.executable, "-c", names])
print(sorted(set(loaded) - set(server.decode().split())))
"""
    (tmp_path / "script.py").write_text(script)
    assert _run(["script.py"], cwd=tmp_path) == "[]\n"


def test_the_threads_of_numerical_libraries_are_capped_before_they_load(tmp_path: Path) -> None:
    pytest.importorskip("threadpoolctl")
    script = """
import rookery
def report(env):
    from threadpoolctl import threadpool_info
    env.unwrapped.threads = sorted({pool["num_threads"] for pool in threadpool_info()})
    return env
for method in ("forkserver", "spawn"):
    for cap in (1, 2):
        with rookery.make_vec("CartPole-v1", 2, backend="process", num_workers=1, wrappers=[report],
                              start_method=method, threads_per_worker=cap) as venv:
            print(method, cap, venv.get_attr("threads")[0])
"""
    (tmp_path / "script.py").write_text(script)
    lines = _run(["script.py"], cwd=tmp_path).splitlines()
    # No library takes more threads than there are CPUs.
    wanted = {cap: min(cap, usable_cpus()) for cap in (1, 2)}
    assert lines == [
        f"{m} {cap} [{wanted[cap]}]" for m in ("forkserver", "spawn") for cap in (1, 2)
    ]


def test_environment_variables_set_late_reach_the_workers(tmp_path: Path) -> None:
    script = """
import os, rookery
def report(env):
    env.unwrapped.seen = (os.environ.get("LATE"), os.getcwd())
    return env
def seen():
    with rookery.make_vec("CartPole-v1", 1, backend="process", wrappers=[report]) as venv:
        return venv.get_attr("seen")[0]
first = seen()
os.environ["LATE"] = "yes"
os.mkdir("inner"); os.chdir("inner")
late, folder = seen()
print(first[0], late, os.path.basename(folder))
"""
    (tmp_path / "script.py").write_text(script)
    assert _run(["script.py"], cwd=tmp_path) == "None yes inner\n"


def test_the_callers_use_of_multiprocessing_is_unchanged(tmp_path: Path) -> None:
    script = """
import multiprocessing, rookery
def answer(queue):
    queue.put(__name__)
if __name__ == "__main__":
    venv = rookery.make_vec("CartPole-v1", 2, backend="process")
    for method in ("spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.SimpleQueue()
        child = context.Process(target=answer, args=(queue,))
        child.start()
        print(queue.get())
        child.join()
    venv.close()
"""
    (tmp_path / "script.py").write_text(script)
    assert _run(["script.py"], cwd=tmp_path) == "__mp_main__\n__mp_main__\n"


@pytest.mark.slow
def test_a_daemonic_process_may_start_workers_and_workers_may_start_workers(tmp_path: Path) -> None:
    script = """
import multiprocessing, gymnasium as gym, rookery
class Nested(gym.Env):
    def __init__(self):
        self.inner = rookery.make_vec("CartPole-v1", 2, backend="process", num_workers=2)
        self.observation_space = self.inner.observation_space
        self.action_space = self.inner.action_space
    def reset(self, *, seed=None, options=None):
        return self.inner.reset(seed=seed)
    def step(self, action):
        obs, reward, *_ = self.inner.step(action)
        return obs, float(reward.sum()), False, False, {}
    def close(self):
        self.inner.close()
def work():
    venv = rookery.make_vec(Nested, 2, backend="process", num_workers=2)
    venv.reset(seed=1)
    print(venv.step(venv.action_space.sample())[1].tolist())
    venv.close()
if __name__ == "__main__":
    for method in ("spawn", "fork"):
        child = multiprocessing.get_context(method).Process(target=work, daemon=True)
        child.start()
        child.join()
        assert child.exitcode == 0
"""
    (tmp_path / "script.py").write_text(script)
    assert _run(["script.py"], cwd=tmp_path) == "[2.0, 2.0]\n" * 2


def test_an_unknown_start_method_raises() -> None:
    with pytest.raises(ConfigError, match="start_method must be one of"):
        resolve_start_method("thread")
