"""Envs that change themselves, keep what they have given away, or have spaces without anything."""

from __future__ import annotations

import enum
import importlib.util
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from patience import PATIENCE_S

import rookery

KINDS = ["serial", "thread", "process"]


class Plain(gym.Env[Any, Any]):
    """Shows how many steps it has made."""

    observation_space: Any = spaces.Box(-9, 99, (1,), np.float64)
    action_space: Any = spaces.Discrete(9)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return self.shown(), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return self.shown(), 0.0, False, False, {}

    def shown(self) -> Any:
        return np.full(1, float(self.count))


def make(kind: str, env: Any, num_envs: int = 2, **options: Any) -> rookery.VectorEnv:
    workers = {} if kind == "serial" else {"num_workers": 1}
    return rookery.make_vec(env, num_envs, backend=kind, **workers, **options)


# ---------------------------------------------------------------- envs that change themselves


class Opening(Plain):
    """Has another ``step`` after each, as a machine of states may be written."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.step = self.opening  # type: ignore[method-assign]
        return super().reset(seed=seed)

    def opening(self, action: Any) -> Any:
        self.step = self.middle  # type: ignore[method-assign]
        return np.full(1, 10.0), 1.0, False, False, {}

    def middle(self, action: Any) -> Any:
        return np.full(1, 20.0), 2.0, False, False, {}


def _ten_times(env: Any) -> None:
    step = env.step

    def patched(action: Any) -> Any:
        obs, *rest = step(action)
        return (10 * obs, *rest)

    env.step = patched


@pytest.mark.parametrize("kind", KINDS)
def test_an_env_may_give_itself_another_step(kind: str) -> None:
    with make(kind, Opening) as venv:
        venv.reset(seed=0)
        shown = [venv.step([0, 0])[0][0, 0] for _ in range(3)]
        venv.reset()
        assert [*shown, venv.step([0, 0])[0][0, 0]] == [10.0, 20.0, 20.0, 10.0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_was_replaced_where_the_env_lives_is_the_one_that_is_made(kind: str) -> None:
    with make(kind, Plain) as venv:
        venv.reset(seed=0)
        venv.apply(_ten_times, [1])
        assert venv.step([0, 0])[0].ravel().tolist() == [1.0, 10.0]


# ---------------------------------------------------------------- infos


class Reusing(Plain):
    """Fills the same array and the same dict with every call."""

    shared: Any = None

    def __init__(self) -> None:
        self.array = np.zeros(2)
        self.nested = {"count": 0}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        obs, _ = super().reset(seed=seed)
        return obs, self._told(-1)

    def step(self, action: Any) -> Any:
        obs, *_ = super().step(action)
        return obs, 0.0, self.count == 3, False, self._told(self.count)

    def _told(self, number: int) -> dict[str, Any]:
        self.array[:] = number
        self.nested["count"] = number
        return {"array": self.array, "nested": self.nested}


class Sharing(Plain):
    """Tells of its action in a dict that all envs of a process have in common."""

    told: dict[str, Any] = {}  # on purpose

    def step(self, action: Any) -> Any:
        obs, *_ = super().step(action)
        self.told["action"] = int(action)
        return obs, 0.0, False, False, {"nested": self.told}


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_episode_ended_with_is_safe_from_the_reset_after_it(kind: str) -> None:
    reference = SyncVectorEnv([Reusing] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    with make(kind, Reusing, autoreset_mode="same_step") as venv:
        for each in (reference, venv):
            each.reset(seed=0)
        for _ in range(4):
            expected, infos = (each.step(np.zeros(2, int))[4] for each in (reference, venv))
            for part in ("final_info", "nested"):
                assert str(infos.get(part)) == str(expected.get(part))
            np.testing.assert_array_equal(infos["array"], expected["array"])


@pytest.mark.parametrize("kind", KINDS)
def test_each_env_has_told_what_was_true_when_it_was_stepped(kind: str) -> None:
    with make(kind, Sharing, 3) as venv:
        venv.reset(seed=0)
        nested = venv.step([5, 6, 7])[4]["nested"]
        assert nested["action"].tolist() == [5, 6, 7]
        venv.infos_per_env = True
        before = venv.step([1, 2, 3])[4]
        venv.step([4, 4, 4])
        assert [info["nested"]["action"] for info in before] == [1, 2, 3]


class KeyedBySet(Plain):
    def step(self, action: Any) -> Any:
        obs, *_ = super().step(action)
        return obs, 0.0, False, False, {"x": 1, frozenset({"goal", "agent", "box"}): 2}


@pytest.mark.parametrize("kind", KINDS)
def test_the_keys_of_an_info_need_not_be_text(kind: str) -> None:
    with make(kind, KeyedBySet) as venv:
        venv.reset(seed=0)
        for _ in range(2):
            infos = venv.step([0, 0])[4]
            assert infos[frozenset({"box", "goal", "agent"})].tolist() == [2, 2]
            assert infos["x"].tolist() == [1, 1]


class Unloadable(Exception):
    """Pickle makes it anew from one argument, which is one too few."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class TellsWhatCannotBeRead(Plain):
    """Returns something unreadable for action 1.

    Args:
        where: "info" or "observation".
    """

    def __init__(self, where: str) -> None:
        self.where = where
        if where == "observation":
            self.observation_space = spaces.Sequence(spaces.Discrete(3))

    def shown(self) -> Any:
        return () if self.where == "observation" else super().shown()

    def step(self, action: Any) -> Any:
        obs, *rest = super().step(action)
        if action == 1 and self.where == "observation":
            obs = (Unloadable("o", 1),)
        elif action == 1:
            rest[-1] = {"error": Unloadable("timeout", 3)}
        return (obs, *rest)


@pytest.mark.parametrize("faults", [None, rookery.FaultPolicy("restart")])
@pytest.mark.parametrize("where", ["info", "observation"])
def test_what_cannot_be_read_ends_its_call_and_no_other(where: str, faults: Any) -> None:
    options: Any = {"env_kwargs": {"where": where}, "faults": faults}
    with make("process", TellsWhatCannotBeRead, **options) as venv:
        venv.reset(seed=0)
        with pytest.raises(rookery.WorkerError, match=f"Env 1: its {where} contains") as caught:
            venv.step([0, 1])
        assert (caught.value.env_ids, caught.value.command) == ((1,), "step")
        assert len(venv.step([0, 0])) == 5
        venv.send([0, 1])
        told = [_received(venv) for _ in range(2)]
        assert sorted(told, key=str) == [(1,), [0]]
        with pytest.raises(rookery.UsageError, match="no env has a pending answer"):
            venv.recv()


def _received(venv: rookery.VectorEnv) -> Any:
    try:
        return venv.recv(timeout=PATIENCE_S)[-1].tolist()
    except rookery.WorkerError as error:
        return error.env_ids


class TellsAnything(Plain):
    """Tells of its action as a number, a dict, a text or an array, under one key."""

    def step(self, action: Any) -> Any:
        obs, *rest, _ = super().step(action)
        told: Any = [1, {"y": 2}, "text", np.zeros(2), np.zeros(3)][int(action)]
        return (obs, *rest, {"x": told})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("actions", [(0, 1), (0, 2), (2, 1), (0, 3), (3, 4)])
def test_infos_that_do_not_go_together_end_their_call_and_no_other(
    kind: str, actions: tuple[int, int]
) -> None:
    with make(kind, TellsAnything) as venv:
        venv.reset(seed=0)
        with pytest.raises(rookery.WorkerError, match=r"Env 1: .*infos_per_env") as caught:
            venv.step(actions)
        assert caught.value.env_ids == (1,)
        assert venv.step([0, 0])[4]["x"].tolist() == [1, 1]
        venv.infos_per_env = True
        assert len(venv.step(actions)[4]) == 2


# ---------------------------------------------------------------- spaces without anything


_ONE = spaces.Discrete(1)


class Nothing(Plain):
    """Tells which action it was given.

    Args:
        space: of its actions.
    """

    def __init__(self, space: Any) -> None:
        self.action_space = space

    def step(self, action: Any) -> Any:
        obs, *_ = super().step(action)
        return obs, 0.0, False, False, {"action": repr(action)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Dict({}), "{}"),
        (spaces.Tuple(()), "()"),
        (spaces.Dict({"a": _ONE, "e": spaces.Dict({})}), repr({"a": np.int64(0), "e": {}})),
        (spaces.Tuple((spaces.Tuple(()), spaces.Dict({}))), "((), {})"),
    ],
    ids=["dict", "tuple", "nested", "nested-tuple"],
)
def test_actions_of_nothing_are_steps_too(kind: str, space: Any, expected: str) -> None:
    with make(kind, Nothing, env_kwargs={"space": space}) as venv:
        venv.reset(seed=0)
        for count in (1, 2):
            obs, *_, infos = venv.step(venv.action_space.sample())
            assert obs.ravel().tolist() == [count, count]
            assert infos["action"].tolist() == [expected] * 2
        venv.send(venv.action_space.sample())
        assert venv.recv(min_envs=2)[0].ravel().tolist() == [3, 3]


# ---------------------------------------------------------------- what envs raise


class Panic(BaseException):
    """As extensions written in other languages raise."""


class Panics(Plain):
    """Panics in one call.

    Args:
        when: in which.
        log: where it says that it was closed.
    """

    def __init__(self, when: str, log: str) -> None:
        self.when, self.log = when, Path(log)
        if when == "make":
            raise Panic("alarm")

    def act(self) -> None:
        raise Panic("alarm")

    @property
    def level(self) -> int:
        return 0

    @level.setter
    def level(self, value: int) -> None:
        raise Panic("alarm")

    def close(self) -> None:
        with self.log.open("a") as log:
            log.write("closed\n")
        if self.when == "close":
            raise Panic("alarm")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("when", "use"),
    [
        ("make", lambda venv: None),
        ("call of 'act'", lambda venv: venv.call("act")),
        ("call of '_act'", lambda venv: venv.apply(_act)),
        ("setting of 'level'", lambda venv: venv.set_attr("level", 1)),
        ("close", lambda venv: None),
    ],
    ids=["make", "call", "apply", "set_attr", "close"],
)
def test_whatever_is_raised_names_the_env_and_all_are_closed(
    kind: str, when: str, use: Callable[[Any], Any], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    kwargs = {"when": when, "log": str(log)}
    with (
        pytest.raises(rookery.EnvFailed, match=f"Env 0 .*Panic in {when}"),
        make(kind, Panics, 3, env_kwargs=kwargs) as venv,
    ):
        use(venv)
    closed = log.read_text().splitlines() if log.exists() else []
    assert len(closed) == (0 if when == "make" else 3)


def _act(env: Any) -> None:
    env.act()


class Alarm(BaseException):
    """What a handler of a signal raises, to end what takes too long."""


class Slow(Plain):
    """Waits in a step for a signal, which it sends itself."""

    def step(self, action: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return super().step(action)


@pytest.mark.parametrize("kind", [SystemExit, Alarm, TimeoutError])
def test_what_a_signals_handler_raises_is_no_failure_of_the_env(kind: type[BaseException]) -> None:
    def end(number: int, frame: Any) -> None:
        raise kind(7)

    before = signal.signal(signal.SIGTERM, end)
    try:
        with make("serial", Slow) as venv:
            venv.reset(seed=0)
            with pytest.raises(kind) as caught:
                venv.step([0, 0])
            assert type(caught.value) is kind
    finally:
        signal.signal(signal.SIGTERM, before)


class Colour(enum.Enum):
    RED = 1


class WrongColour(Plain):
    """Fails in Python's own code, which is also that of the type of default handlers."""

    def step(self, action: Any) -> Any:
        return Colour(99)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_an_enum_is_a_failure_of_the_env(kind: str) -> None:
    with make(kind, WrongColour) as venv:
        venv.reset(seed=0)
        with pytest.raises(rookery.EnvFailed, match="99 is not a valid Colour"):
            venv.step([0, 0])


# ---------------------------------------------------------------- what cannot travel


def test_a_deferred_argument_of_a_registered_env_stays_where_it_was_built() -> None:
    gym.register("WithLock-v0", entry_point=WithLock, order_enforce=False, disable_env_checker=True)
    try:
        for kind in KINDS:
            deferred = rookery.Deferred(threading.Lock)
            with make(kind, "WithLock-v0", env_kwargs={"lock": deferred}) as venv:
                assert venv.call("holds_a_lock") == (True, True)
                assert isinstance(venv.spec.kwargs["lock"], rookery.Deferred)
    finally:
        del gym.registry["WithLock-v0"]


class WithLock(Plain):
    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def holds_a_lock(self) -> bool:
        return isinstance(self.lock, type(threading.Lock()))


class UnsendableMetadata(Plain):
    def __init__(self) -> None:
        self.metadata = {"render_modes": [], "server": threading.Lock()}


def test_metadata_that_cannot_travel_names_the_culprit() -> None:
    with pytest.raises(rookery.UsageError, match=r"Env 0: .*metadata\['server'\]"):
        make("process", UnsendableMetadata)


def test_a_module_that_no_worker_finds_is_told_with_the_envs_and_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "by_path.py"
    path.write_text("import gymnasium as gym\nclass Env(gym.Env):\n    pass\n")
    spec = importlib.util.spec_from_file_location("loaded_by_path", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "loaded_by_path", module)
    spec.loader.exec_module(module)
    with pytest.raises(
        rookery.WorkerError, match=r"Envs 0-1 .*loaded_by_path.*sys\.path"
    ) as caught:
        make("process", module.Env)
    assert (caught.value.env_ids, caught.value.command) == ((0, 1), "make")


# ---------------------------------------------------------------- odd arguments


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("env_ids", [np.array([False, False, True]), [0.9], "01", 1, {0, 2}])
def test_apply_takes_indices_and_nothing_that_looks_like_them(kind: str, env_ids: Any) -> None:
    with make(kind, Plain, 3) as venv:
        venv.reset(seed=0)
        with pytest.raises(rookery.ConfigError, match="apply: env_ids must be a list"):
            venv.apply(lambda env: setattr(env, "count", 9), env_ids)
        assert venv.get_attr("count") == (0, 0, 0)
        assert venv.apply(_act, []) == []


@pytest.mark.parametrize("kind", KINDS)
def test_nonsense_is_refused_and_changes_nothing(kind: str) -> None:
    with make(kind, Plain) as venv:
        venv.reset(seed=0)
        venv.send([0, 0])
        for nonsense in ("a", 2.5, True, 0):
            with pytest.raises(rookery.ConfigError, match="min_envs must be a whole number"):
                venv.recv(nonsense)  # type: ignore[arg-type]
        with pytest.raises(rookery.UsageError, match=r"answers of .* are pending"):
            venv.reset()
        assert len(venv.recv(2)[-1]) == 2
        for use in (lambda: venv.call(5), lambda: venv.set_attr(5, 1), lambda: venv.apply(5)):
            with pytest.raises(rookery.ConfigError, match=r"(name|function) must be"):
                use()


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_call_that_is_late_names_the_envs(kind: str, tmp_path: Path) -> None:
    with make(kind, Plain) as venv:
        venv.reset(seed=0)
        gate = tmp_path / "open"
        venv.set_attr("gate", str(gate))
        venv.apply(_wait_later)
        venv.call_async("wait")
        with pytest.raises(rookery.WorkerTimeout, match=r"envs \[0, 1\] have not finished"):
            venv.call_wait(timeout=0.0)
        gate.touch()
        assert venv.call_wait() == (None, None)


def _wait_later(env: Any) -> None:
    def wait() -> None:
        import time

        until = time.monotonic() + PATIENCE_S
        while not Path(env.gate).exists() and time.monotonic() < until:
            time.sleep(0.01)

    env.wait = wait


@pytest.mark.filterwarnings("ignore:.*Calling `close` while waiting")
@pytest.mark.parametrize("kind", KINDS)
def test_closing_amid_a_step_ends_it_with_a_word_about_that(kind: str) -> None:
    venv = make(kind, Slow if kind == "serial" else Plain)
    venv.reset(seed=0)
    before = signal.signal(signal.SIGTERM, lambda number, frame: venv.close())
    try:
        with pytest.raises(rookery.ClosedError, match="closed"):
            if kind == "serial":
                venv.step([0, 0])
            else:
                venv.step_async([0, 0])
                signal.raise_signal(signal.SIGTERM)
                venv.step_wait()
    finally:
        signal.signal(signal.SIGTERM, before)
        venv.close()
