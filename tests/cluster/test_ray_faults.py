"""Errors of envs, workers and options on a cluster, as a user sees them."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from nodes import agents, left_of
from patience import PATIENCE_S
from programs import output_of, started

import rookery
from rookery.errors import ConfigError, EnvFailed, MissingExtra, WorkerDied, WorkerTimeout

ray = pytest.importorskip("ray", reason="Ray has no wheel for this Python or platform")

_OPTIONS: Any = {"backend": "ray", "num_workers": 2, "ray_options": {"num_cpus": 0}}
RAISE, DIE, HANG = 1, 2, 3


class Unruly(gym.Env[Any, Any]):
    """Raises, dies or hangs if its action asks for it."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if action == RAISE:
            raise ValueError("boom")
        if action == DIE:
            os.kill(os.getpid(), signal.SIGKILL)
        if action == HANG:
            time.sleep(10_000)
        return np.ones(2, np.float32), 1.0, False, False, {}


def _stepped(action: int, **options: Any) -> Any:
    """Step four envs twice; in the first step env 1 gets the action."""
    with rookery.make_vec(Unruly, 4, **_OPTIONS, **options) as venv:
        venv.reset(seed=10)
        venv.step(np.zeros(4, np.int64))
        first = venv.step(np.array([0, action, 0, 0]))
        second = venv.step(np.zeros(4, np.int64))
        return first, second, venv.statistics()


def test_an_env_that_raises_is_named_with_its_seed() -> None:
    with pytest.raises(EnvFailed, match=r"Env 1 .*ValueError in step .seed 11.*boom") as caught:
        _stepped(RAISE)
    assert isinstance(caught.value, ValueError)
    assert caught.value.env_ids == (1,)


def test_a_worker_that_dies_is_named_with_its_node() -> None:
    with pytest.raises(
        WorkerDied, match=r"envs 0-1 .*SIGKILL.* on node \S+/\w+ during step of env 1"
    ):
        _stepped(DIE)


def test_an_env_that_hangs_shows_its_stack() -> None:
    with pytest.raises(WorkerTimeout, match=r"(?s)Env 1 .*did not finish its step.*in step"):
        _stepped(HANG, faults=rookery.FaultPolicy(step_timeout_s=1.0))


@pytest.mark.parametrize("action", [RAISE, DIE, HANG])
def test_a_worker_is_replaced_and_the_others_continue(action: int) -> None:
    faults = rookery.FaultPolicy("restart", step_timeout_s=1.0 if action == HANG else None)
    first, second, statistics = _stepped(action, faults=faults)
    assert first[1].tolist() == [0.0, 0.0, 1.0, 1.0]
    assert first[3].tolist() == [True, True, False, False]
    assert first[4]["_fault"].tolist() == [True, True, False, False]
    assert second[1].tolist() == [0.0, 0.0, 1.0, 1.0]
    assert [backend.restarts for backend in statistics.workers] == [1, 0]
    # The next worker continues the counters of its envs.
    assert [env.steps for env in statistics.envs[2:]] == [3, 3]
    assert all(backend.node for backend in statistics.workers)
    assert "node" in str(statistics).splitlines()[2]


def test_envs_can_be_sent_actions_one_by_one() -> None:
    with rookery.make_vec(Unruly, 4, **_OPTIONS) as venv:
        venv.send_reset(seed=0)
        seen: list[int] = []
        while len(seen) < 40:
            *_, ids = venv.recv(min_envs=1, timeout=PATIENCE_S)
            seen += ids.tolist()
            venv.send(np.zeros(len(ids), np.int64), ids)
        assert set(seen) == {0, 1, 2, 3}


def test_infos_that_grow_make_the_rows_grow() -> None:
    def make() -> Any:
        class Talkative(Unruly):
            def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
                self.steps = getattr(self, "steps", 0) + 1
                obs, *rest, _ = super().step(action)
                return obs, *rest, {"text": "x" * 200 * self.steps}  # type: ignore[return-value]

        return Talkative()

    with rookery.make_vec(make, 3, **_OPTIONS) as venv:
        venv.reset(seed=0)
        for steps in range(1, 60):
            *_, infos = venv.step(np.zeros(3, np.int64))
            assert [len(text) for text in infos["text"]] == [200 * steps] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ray_options": {"num_cpu": 1}}, "did you mean 'num_cpus'"),
        ({"ray_options": {"resources": {"TPU": 1}}}, "No node .* 1 TPU"),
        ({"ray_options": 3}, "ray_options must be a dict"),
        ({"ray_options": {"num_cpus": -1}}, r"\['num_cpus'\] must be a number >= 0"),
        ({"ray_options": {"num_cpus": "2"}}, r"\['num_cpus'\] must be a number"),
        ({"ray_options": {"num_cpus": float("nan")}}, r"\['num_cpus'\] must be a number"),
        ({"ray_options": {"memory": "x"}}, r"\['memory'\] must be a number"),
        ({"ray_options": {"resources": []}}, r"\['resources'\] must be a dict"),
        ({"ray_options": {"resources": {"x": "y"}}}, r"\['resources'\]\['x'\] must be a number"),
        ({"ray_options": {"runtime_env": "x"}}, r"\['runtime_env'\] must be a dict"),
        ({"ray_options": {"address": 3}}, r"\['address'\] must be a string"),
        (
            {"ray_options": {"address": "10.255.255.1:6379"}},
            "this process has joined the one at",
        ),
        ({"ray_options": {"accelerator_type": "A100"}}, "No node .* accelerator_type:A100"),
        ({"ray_options": {"label_selector": {"zone": "mars"}}}, "No node .*'zone': 'mars'"),
        (
            {"ray_options": {"scheduling_strategy": "bogus"}},
            "Ray does not accept these",
        ),
        ({"ray_options": {"runtime_env": {"pip": 3}}}, "Ray does not accept these"),
        ({"isolate": True}, "isolate=True is for backend='process', not for 'ray'"),
        ({"start_method": "spawn"}, "start_method is for backend='process', not for 'ray'"),
        ({"num_workers": 0}, "num_workers"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        rookery.make_vec(Unruly, 2, backend="ray", **options)


def test_options_for_a_cluster_need_one() -> None:
    with pytest.raises(ConfigError, match="ray_options are for backend='ray', not for 'process'"):
        rookery.make_vec(Unruly, 2, backend="process", ray_options={"num_cpus": 1})


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'rookery\[ray\]'"):
        rookery.make_vec(Unruly, 2, backend="ray")


def test_an_argument_that_cannot_be_pickled_is_named_without_advice_to_fork() -> None:
    with pytest.raises(rookery.PicklingError, match="env_kwargs\\['lock'\\]") as caught:
        rookery.make_vec(Unruly, 2, backend="ray", env_kwargs={"lock": threading.Lock()})
    assert "fork" not in str(caught.value)


def test_a_vector_env_that_is_forgotten_is_closed() -> None:
    venv = rookery.make_vec(Unruly, 2, **_OPTIONS)
    assert len(agents()) == 2
    del venv
    gc.collect()
    assert left_of(agents, PATIENCE_S) == []


def test_the_thread_that_calls_ray_ends_with_the_last_vector_env() -> None:
    def threads() -> list[str]:
        gc.collect()
        return [thread.name for thread in threading.enumerate() if thread.name == "rookery-ray"]

    for _ in range(2):
        with rookery.make_vec(Unruly, 2, **_OPTIONS) as venv:
            venv.reset(seed=0)
            with rookery.make_vec(Unruly, 2, **_OPTIONS):
                assert len(threads()) == 1
            assert len(threads()) == 1 and venv.step([0, 0])[1].tolist() == [1.0, 1.0]
        del venv
        assert left_of(threads, PATIENCE_S) == []


def test_closing_twice_and_after_ray_was_shut_down_does_nothing() -> None:
    script = (
        "import rookery, ray\n"
        f"ray.init(address={ray.get_runtime_context().gcs_address!r}, log_to_driver=False)\n"
        f"venv = rookery.make_vec('CartPole-v1', 2, **{_OPTIONS!r})\n"
        "venv.reset(seed=0)\n"
        "ray.shutdown()\n"
        "venv.close(); venv.close()\n"
        "assert not ray.is_initialized()\n"
        "print('fine')\n"
    )

    assert "fine" in output_of(script)


_IN_ITS_OWN_RAY = """
import os, sys
import numpy as np, ray, rookery

def made(n=2, **options):
    return rookery.make_vec("CartPole-v1", n, backend="ray", num_workers=2, **options)

def said(function):
    try:
        function()
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0][:150], flush=True)
    else:
        print("nothing", flush=True)

actions = np.zeros(2, np.int64)
"""


def test_two_vector_envs_of_one_program_share_the_cpus_of_a_ray_that_was_started_for_one() -> None:
    script = _IN_ITS_OWN_RAY + (
        "first, second = made(), made()\n"
        "for venv in (first, second):\n"
        "    venv.reset(seed=0)\n"
        "    venv.step(actions)\n"
        "    venv.close()\n"
        "print('both')\n"
    )
    assert "both" in output_of(script)


@pytest.mark.parametrize("policy", ["None", "rookery.FaultPolicy('restart')"])
@pytest.mark.parametrize("again", ["", "ray.init('local', log_to_driver=False)"])
def test_when_ray_was_shut_down_the_envs_are_lost_and_closing_is_silent(
    policy: str, again: str
) -> None:
    script = _IN_ITS_OWN_RAY + (
        f"venv = made(faults={policy})\n"
        "venv.reset(seed=0)\n"
        "ray.shutdown()\n"
        f"{again}\n"
        "said(lambda: venv.step(actions))\n"
        "said(venv.close)\n"
    )
    lines = output_of(script).splitlines()
    assert lines[0].startswith(("WorkerDied", "WorkerError"))
    assert lines[1] == "nothing"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
def test_a_fork_of_a_process_that_uses_ray_cannot_use_it() -> None:
    script = _IN_ITS_OWN_RAY + (
        "venv = made()\n"
        "venv.reset(seed=0)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    said(lambda: venv.step(actions))\n"
        "    said(made)\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "said(lambda: venv.step(actions))\n"
        "said(venv.close)\n"
    )
    lines = output_of(script).splitlines()
    assert [line.split()[0] for line in lines] == [
        "UsageError",
        "ConfigError",
        "nothing",
        "nothing",
    ]
    assert "was forked" in lines[1]


def test_without_an_address_ray_is_started_here_beside_any_other() -> None:
    other = ray.get_runtime_context().gcs_address
    script = (
        "import ray, rookery\n"
        "venv = rookery.make_vec('CartPole-v1', 3, backend='ray', num_workers=3)\n"
        f"assert ray.get_runtime_context().gcs_address != {other!r}\n"
        "assert ray.cluster_resources()['CPU'] >= 3\n"
        "print(venv.reset(seed=0)[0].shape)\n"
        "venv.close()\n"
    )
    assert "(3, 4)" in output_of(script)


def test_a_cluster_that_does_not_answer_is_named() -> None:
    script = (
        "import rookery\n"
        "rookery.make_vec('CartPole-v1', 3, backend='ray', ray_options={'address': '127.0.0.1:1'})"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ConfigError: Could not join a Ray cluster at '127.0.0.1:1'" in done.stderr


_PROGRAM = """
import signal, sys
import numpy as np, ray, rookery

ray.init(address={address!r}, log_to_driver=False, logging_level="ERROR")
venv = rookery.make_vec("CartPole-v1", 2, **{options!r})
venv.reset(seed=0)
print("ready", flush=True)
while True:
    venv.step(np.zeros(2, np.int64))
"""


@pytest.mark.parametrize("end", ["interrupt", "kill"])
def test_a_killed_or_interrupted_program_leaves_nothing(end: str, tmp_path: Path) -> None:
    address = ray.get_runtime_context().gcs_address
    with started(_PROGRAM.format(address=address, options=_OPTIONS), tmp_path) as program:
        assert program.stdout is not None and program.stderr is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGINT if end == "interrupt" else signal.SIGKILL)
        program.wait(PATIENCE_S)
        if end == "interrupt":
            assert "KeyboardInterrupt" in program.stderr.read()
    assert left_of(agents, PATIENCE_S) == []
