"""Vector envs that step with random actions drawn beforehand; one opener for each contender.

One call of ``step`` counts one step per env, for all contenders. rookery and Gymnasium run in
next-step mode, where the step after an episode's end is its reset; the others reset within the
step. How processes were started does not matter once they run, so peers fork, which is soonest
done.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.cases import CORES, LIMIT, LOOP, Case
from benchmarks.clocks import Effort, Opener, Sample, Work, busy_processes, sample_of
from benchmarks.environments import ATARI_GAMES, MAKERS, draw_actions, register_atari
from benchmarks.limit import measure_limit, processes_of


def measure(case: Case, contender: str, effort: Effort, seed: int) -> Sample:
    """Measure one contender once; meant for a separate process."""
    with busy_processes(case.busy_processes):
        if contender in (LIMIT, LOOP):
            return measure_limit(case, effort, processes_of(case) if contender == LIMIT else 1)
        with CONTENDERS[contender](case) as work:
            return sample_of(work, effort)


def _stepping(
    case: Case, step: Callable[[Any], object], encode: Callable[[Any], Any] = np.asarray
) -> Work:
    batches = itertools.cycle([encode(batch) for batch in draw_actions(case.env, case.num_envs)])
    num_envs = case.num_envs

    def work() -> int:
        step(next(batches))
        return num_envs

    return work


def _exchanging(
    case: Case,
    receive: Callable[[], Any],
    send: Callable[[Any, Any], object],
    encode: Callable[[Any], Any] = np.asarray,
) -> Work:
    """Receives from those that are ready and sends them on."""
    batches = itertools.cycle([encode(batch) for batch in draw_actions(case.env, case.num_envs)])

    def work() -> int:
        env_ids = receive()
        send(next(batches)[env_ids], env_ids)
        return len(env_ids)

    return work


@contextmanager
def _rookery(case: Case, **options: Any) -> Iterator[Work]:
    import rookery

    env: Any = MAKERS[case.env]
    if options["backend"] == "native":
        register_atari()
        env, options["env_kwargs"] = ATARI_GAMES[case.env], _as_dqn()
    elif options["backend"] == "process":
        options["num_workers"] = max(case.num_workers - options["caller_steps"], 1)
    with rookery.make_vec(env, num_envs=case.num_envs, **options) as venv:
        venv.reset(seed=0)
        yield _stepping(case, venv.step)


def _part_of(case: Case) -> int:
    """Return how many envs asynchronous contenders wait for at least."""
    return case.num_envs // 4


@contextmanager
def _rookery_recv(case: Case) -> Iterator[Work]:
    import rookery

    with rookery.make_vec(
        MAKERS[case.env], case.num_envs, backend="process", num_workers=case.num_workers
    ) as venv:
        venv.send_reset(seed=0)
        yield _exchanging(case, lambda: venv.recv(min_envs=_part_of(case))[-1], venv.send)


@contextmanager
def _gymnasium(case: Case, kind: str, **options: Any) -> Iterator[Work]:
    import gymnasium

    venv = getattr(gymnasium.vector, kind)([MAKERS[case.env]] * case.num_envs, **options)
    try:
        venv.reset(seed=0)
        yield _stepping(case, venv.step)
    finally:
        venv.close()


@contextmanager
def _native(case: Case, env_id: str | None = None, **options: Any) -> Iterator[Work]:
    """An env's own batch, as Gymnasium makes it."""
    import gymnasium

    if env_id is None:
        register_atari()
        env_id, options = ATARI_GAMES[case.env], _as_dqn()
    venv = gymnasium.make_vec(
        env_id, case.num_envs, vectorization_mode="vector_entry_point", **options
    )
    try:
        venv.reset(seed=0)
        yield _stepping(case, venv.step)
    finally:
        venv.close()


def _as_dqn() -> dict[str, Any]:
    """Arguments of ALE's batch that make it do what Python's preprocessing does."""
    return {"num_threads": CORES, "reward_clipping": False, "use_fire_reset": False}


def open_sb3(case: Case, kind: str, **options: Any) -> Any:
    """Open an SB3 vector env of one process per env, or of none."""
    from stable_baselines3.common import vec_env

    return getattr(vec_env, kind)([MAKERS[case.env]] * case.num_envs, **options)


@contextmanager
def _sb3(case: Case, kind: str, **options: Any) -> Iterator[Work]:
    venv = open_sb3(case, kind, **options)
    try:
        venv.reset()
        yield _stepping(case, venv.step)
    finally:
        venv.close()


def torchrl_maker(case: Case) -> Callable[[], Any]:
    """Return a function that makes one env of TorchRL, and that can be pickled."""
    return functools.partial(_make_for_torchrl, case.env)


def _make_for_torchrl(name: str) -> Any:
    from torchrl.envs import GymWrapper

    return GymWrapper(MAKERS[name](), categorical_action_encoding=True)


@contextmanager
def _torchrl(case: Case, kind: str, **options: Any) -> Iterator[Work]:
    import torch
    from torchrl import envs

    venv = getattr(envs, kind)(case.num_envs, torchrl_maker(case), **options)
    state = [venv.reset()]

    def step(action: torch.Tensor) -> None:
        _, state[0] = venv.step_and_maybe_reset(state[0].set("action", action))

    try:
        yield _stepping(case, step, torch.as_tensor)
    finally:
        venv.close()


@contextmanager
def _torchrl_pool(case: Case, **options: Any) -> Iterator[Work]:
    import torch
    from torchrl import envs

    makers = [torchrl_maker(case)] * case.num_envs
    venv = envs.AsyncEnvPool(makers, backend="multiprocessing", exchange="shm", **options)
    actions = torch.as_tensor(draw_actions(case.env, case.num_envs, 1)[0])
    venv.async_step_and_maybe_reset_send(venv.reset().set("action", actions))

    def work() -> int:
        _, state = venv.async_step_and_maybe_reset_recv(min_get=_part_of(case))
        venv.async_step_and_maybe_reset_send(state.set("action", actions[: len(state)]))
        return len(state)

    try:
        yield work
    finally:
        venv.close()


def open_tianshou(case: Case, kind: str, **options: Any) -> Any:
    """Open a vector env of Tianshou."""
    from tianshou import env

    return getattr(env, kind)([MAKERS[case.env]] * case.num_envs, **options)


@contextmanager
def _tianshou_async(case: Case, kind: str) -> Iterator[Work]:
    venv = open_tianshou(case, kind, wait_num=_part_of(case))
    actions = draw_actions(case.env, case.num_envs, 1)[0]
    venv.reset()
    ready = [np.arange(case.num_envs)]

    def work() -> int:
        *_, infos = venv.step(actions[ready[0]], ready[0])
        ready[0] = np.array([info["env_id"] for info in infos])
        return len(infos)

    try:
        yield work
    finally:
        while len(venv.waiting_id):  # it refuses to close before all envs have answered
            venv.step(None, None)
        venv.close()


@contextmanager
def _tianshou(case: Case, kind: str) -> Iterator[Work]:
    venv = open_tianshou(case, kind)

    def step(actions: Any) -> None:
        _, _, terminated, truncated, _ = venv.step(actions)
        over = np.flatnonzero(terminated | truncated)
        if len(over):
            venv.reset(over)

    try:
        venv.reset()
        yield _stepping(case, step)
    finally:
        venv.close()


_OF_ENVPOOL: dict[str, tuple[str, dict[str, Any]]] = {
    "acrobot": ("Acrobot-v1", {}),
    "cartpole": ("CartPole-v1", {}),
    "halfcheetah": ("HalfCheetah-v5", {}),
    "hopper": ("Hopper-v5", {}),
    "pong": ("Pong-v5", {"use_fire_reset": False, "repeat_action_probability": 0.25}),
}


@contextmanager
def _envpool(case: Case, parts: int = 1) -> Iterator[Work]:
    import envpool

    name, options = _OF_ENVPOOL[case.env]
    size = case.num_envs // parts
    venv = envpool.make_gymnasium(name, num_envs=case.num_envs, batch_size=size, **options)
    dtype = venv.action_space.dtype

    def encode(actions: Any) -> Any:
        return actions.astype(dtype)

    try:
        if parts == 1:
            venv.reset()
            yield _stepping(case, venv.step, encode)
        else:
            venv.send_reset()
            yield _exchanging(case, lambda: venv.recv()[-1]["env_id"], venv.send, encode)
    finally:
        venv.close()


def _open_pufferlib(case: Case, kind: str, **options: Any) -> Any:
    from pufferlib import emulation, vector

    def make(*_: Any, **given: Any) -> Any:
        return emulation.GymnasiumPufferEnv(env_creator=MAKERS[case.env], **given)

    return vector.make(make, num_envs=case.num_envs, backend=getattr(vector, kind), **options)


@contextmanager
def _pufferlib(case: Case, kind: str, **options: Any) -> Iterator[Work]:
    venv = _open_pufferlib(case, kind, **options)
    try:
        venv.reset(seed=0)
        yield _stepping(case, venv.step)
    finally:
        venv.close()


@contextmanager
def _pufferlib_async(case: Case, **options: Any) -> Iterator[Work]:
    venv = _open_pufferlib(
        case, "Multiprocessing", batch_size=_part_of(case), zero_copy=False, overwork=True,
        **options,
    )  # fmt: skip
    actions = draw_actions(case.env, case.num_envs, 1)[0][: _part_of(case)]

    def work() -> int:
        venv.recv()
        venv.send(actions)
        return len(actions)

    try:
        venv.async_reset(0)
        yield work
    finally:
        venv.close()


CONTENDERS: dict[str, Opener] = {
    "rookery: auto": functools.partial(_rookery, backend="auto"),
    "rookery: workers": functools.partial(_rookery, backend="process", caller_steps=False),
    "rookery: views": functools.partial(
        _rookery, backend="process", caller_steps=False, copy=False
    ),
    "rookery: caller_steps": functools.partial(_rookery, backend="process", caller_steps=True),
    "rookery: serial": functools.partial(_rookery, backend="serial"),
    "rookery: threads": functools.partial(_rookery, backend="thread"),
    "rookery: native": functools.partial(_rookery, backend="native"),
    "rookery: recv a quarter of the envs": _rookery_recv,
    "gymnasium: SyncVectorEnv": functools.partial(_gymnasium, kind="SyncVectorEnv"),
    "gymnasium: AsyncVectorEnv": functools.partial(_gymnasium, kind="AsyncVectorEnv"),
    "gymnasium: AsyncVectorEnv, max_concurrency": functools.partial(
        _gymnasium, kind="AsyncVectorEnv", max_concurrency=CORES
    ),
    "gymnasium: AsyncVectorEnv without shared memory": functools.partial(
        _gymnasium, kind="AsyncVectorEnv", shared_memory=False
    ),
    "native: CartPoleVectorEnv of Gymnasium, in numpy": functools.partial(
        _native, env_id="CartPole-v1"
    ),
    "native: AtariVectorEnv of ALE, in C++": _native,
    "SB3: DummyVecEnv": functools.partial(_sb3, kind="DummyVecEnv"),
    "SB3: SubprocVecEnv": functools.partial(_sb3, kind="SubprocVecEnv", start_method="fork"),
    "TorchRL: SerialEnv": functools.partial(_torchrl, kind="SerialEnv"),
    "TorchRL: ParallelEnv": functools.partial(_torchrl, kind="ParallelEnv", mp_start_method="fork"),
    **{
        f"Tianshou: {kind}": functools.partial(_tianshou, kind=kind)
        for kind in ("DummyVectorEnv", "SubprocVectorEnv", "ShmemVectorEnv")
    },
    "PufferLib: Serial": functools.partial(_pufferlib, kind="Serial"),
    "PufferLib: Multiprocessing, a worker for each core": functools.partial(
        _pufferlib, kind="Multiprocessing", num_workers=CORES
    ),
    "PufferLib: Multiprocessing, a worker for each env": functools.partial(
        _pufferlib, kind="Multiprocessing"
    ),
    "TorchRL: AsyncEnvPool, 16 envs per worker": functools.partial(
        _torchrl_pool, envs_per_worker=16
    ),
    "TorchRL: AsyncEnvPool, 8 envs per worker": functools.partial(_torchrl_pool, envs_per_worker=8),
    **{
        f"Tianshou: {kind}, wait_num": functools.partial(_tianshou_async, kind=kind)
        for kind in ("SubprocVectorEnv", "ShmemVectorEnv")
    },
    **{
        f"PufferLib 3: Multiprocessing, batch_size, {count} workers": functools.partial(
            _pufferlib_async, num_workers=count
        )
        for count in (4, 8, 32)
    },
    "EnvPool: in step": _envpool,
    "EnvPool: half of the envs at a time": functools.partial(_envpool, parts=2),
}
