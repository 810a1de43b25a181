"""Walk: a random sequence of calls to a vector env, compared with a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, iterate

from rookery.errors import UsageError
from rookery.testing.comparison import RECV_NAMES, RESET_NAMES, STEP_NAMES, Comparison
from rookery.testing.difference import Difference
from rookery.testing.model import Row, VectorModel

_PATIENCE_S = 60.0  # longer than any step of a test env


class Walk(Comparison):
    """Makes random calls and compares each result with the model's.

    Args:
        make: makes the vector env.
        env_fns: one callable per env.
        autoreset_mode: what happens when an episode ends.
        copy: True if results are copies.
        views_outlive: number of later steps during which a view must not change.
        calls: names and arguments for ``call``.
        attributes: names and values for ``set_attr``.
        rng: random generator that chooses the calls.
    """

    def __init__(
        self,
        make: Callable[..., Any],
        env_fns: Sequence[Callable[[], gym.Env[Any, Any]]],
        autoreset_mode: AutoresetMode,
        copy: bool,
        *,
        views_outlive: int,
        calls: Sequence[tuple[Any, ...]],
        attributes: Mapping[str, Sequence[Any]],
        rng: np.random.Generator,
    ) -> None:
        self._rng = rng
        self._calls, self._attributes = calls, attributes
        self.model = VectorModel(env_fns, autoreset_mode)
        self.model.single_action_space.seed(int(rng.integers(2**31)))
        super().__init__(self.model.num_envs, copy, views_outlive)
        self.note(f"make(autoreset_mode={autoreset_mode.name.lower()!r}, copy={copy})")
        self.venv = make(list(env_fns), autoreset_mode=autoreset_mode, copy=copy)
        self._sent: dict[int, Row] = {}  # expected results of busy envs
        self._num_steps = self._num_env_steps = 0
        self._sent_steps: set[int] = set()

    def go(self, num_operations: int) -> None:
        """Make a seeded reset and ``num_operations`` calls, then close."""
        with closing(self.venv):
            self._spaces()
            self._seeded_reset()
            for _ in range(num_operations):
                self._choose()()
                self.look_back()
            self._receive_all()
            self._close()

    # ---------------------------------------------------------------- choosing

    def _choose(self) -> Callable[[], None]:
        if self._sent:
            options = {self._send: 3, self._receive: 4, self._refused_while_busy: 1}
            return self._drawn(options)
        options = {
            self._step: 12,
            self._seeded_reset: 1,
            self._reset: 1,
            self._reset_with_options: 1,
            self._reset_some: 2,
            self._call: 1 if self._calls else 0,
            self._set_attr: 1 if self._attributes else 0,
            self._render: 1 if self.venv.render_mode is not None else 0,
        }
        if _has(self.venv, "step_async", "step_wait"):
            options |= {self._step_async_and_wait: 6, self._refused_calls: 1}
        if _has(self.venv, "send", "recv", "send_reset"):
            options |= {self._send: 6, self._send_resets: 1}
        if _has(self.venv, "statistics", "pids"):
            options |= {self._statistics: 1}
        if self._ended().any() and self._mode is AutoresetMode.DISABLED:
            options = {self._reset: 1, self._reset_some: 4, self._seeded_reset: 1}
            if _has(self.venv, "send", "recv", "send_reset"):
                options |= {self._send_resets: 2, self._step_ended: 1}
        return self._drawn(options)

    def _drawn(self, options: Mapping[Callable[[], None], int]) -> Callable[[], None]:
        weights = np.array(list(options.values()), float)
        chosen = self._rng.choice(len(options), p=weights / weights.sum())
        return list(options)[chosen]

    @property
    def _mode(self) -> AutoresetMode:
        return self.model.autoreset_mode

    def _ended(self) -> Any:
        return np.array(self.model.ended)

    def _actions(self, count: int) -> Any:
        space = self.model.single_action_space
        return self.model.batched_actions([space.sample() for _ in range(count)])

    def _some(self, candidates: Sequence[int]) -> list[int]:
        chosen = [i for i in candidates if self._rng.random() < 0.5]
        return chosen or [int(self._rng.choice(candidates))]

    # ---------------------------------------------------------------- operations

    def _spaces(self) -> None:
        for name in (
            "single_observation_space",
            "single_action_space",
            "observation_space",
            "action_space",
            "num_envs",
        ):
            self.compare(getattr(self.model, name), getattr(self.venv, name), name)
        mode = self.venv.metadata.get("autoreset_mode")
        self.compare(self._mode, mode, "metadata['autoreset_mode']")

    def _do_reset(self, seed: Any, seeds: Any, options: Any = None, mask: Any = None) -> None:
        expected = self.model.reset(seeds, options, mask)
        self.begin()
        passed = None if options is None else dict(options)
        if mask is not None:
            passed = {**(passed or {}), "reset_mask": mask}
        came = self.venv.reset(seed=seed, options=passed)
        self.take(RESET_NAMES, expected, came)

    def _seeded_reset(self) -> None:
        n = self.model.num_envs
        if self._rng.random() < 0.5:
            seed: Any = int(self._rng.integers(10_000))
            seeds = [seed + i for i in range(n)]
        else:
            seed = seeds = [int(s) for s in self._rng.integers(0, 10_000, n)]
        self.note(f"reset(seed={seed})")
        self._do_reset(seed, seeds)

    def _reset(self) -> None:
        self.note("reset()")
        self._do_reset(None, None)

    def _reset_with_options(self) -> None:
        options = {"word": f"w{self._rng.integers(100)}"}
        self.note(f"reset(options={options})")
        self._do_reset(None, None, options)

    def _reset_some(self) -> None:
        n = self.model.num_envs
        mask = (self._rng.random(n) < 0.5) | self._ended()
        if not mask.any():
            mask[self._rng.integers(n)] = True
        seeds = [int(s) if s % 3 else None for s in self._rng.integers(0, 10_000, n)]
        self.note(f"reset(seed={seeds}, options={{'reset_mask': {mask.tolist()}}})")
        self._do_reset(seeds, seeds, None, mask)

    def _step(self) -> None:
        actions = self._actions(self.model.num_envs)
        self.note(f"step({actions!r})")
        expected = self.model.step(actions)
        self.begin()
        self._take_step(expected, self.venv.step(actions))

    def _take_step(self, expected: Any, came: Any) -> None:
        self._num_steps += 1
        self._num_env_steps += self.model.num_envs
        self.take(STEP_NAMES, expected, came)

    def _step_async_and_wait(self) -> None:
        actions = self._actions(self.model.num_envs)
        self.note(f"step_async({actions!r}); step_wait(timeout={_PATIENCE_S})")
        expected = self.model.step(actions)
        self.begin()
        self.venv.step_async(actions)
        if self._rng.random() < 0.3:
            self.refuses(AlreadyPendingCallError, lambda: self.venv.step_async(actions))
            self.refuses(AlreadyPendingCallError, lambda: self.venv.reset(seed=1))
        self._take_step(expected, self.venv.step_wait(timeout=_PATIENCE_S))

    def _refused_calls(self) -> None:
        self.note("step_wait(), though nothing was begun")
        self.refuses(NoAsyncCallError, lambda: self.venv.step_wait(timeout=_PATIENCE_S))
        if _has(self.venv, "recv"):
            self.note("recv(), though nothing was sent")
            self.refuses(NoAsyncCallError, lambda: self.venv.recv(timeout=_PATIENCE_S))

    def _step_ended(self) -> None:
        actions = self._actions(self.model.num_envs)
        self.note(f"step({actions!r}), though an episode has ended")
        self.begin()
        self.refuses(UsageError, lambda: self.venv.step(actions))
        self.compare(self.model.call("np_random"), self.venv.call("np_random"), "np_random")

    def _call(self) -> None:
        name, *args = self._calls[int(self._rng.integers(len(self._calls)))]
        self.note(f"call({name!r}, *{args})")
        expected = self.model.call(name, *args)
        self.compare(expected, self.venv.call(name, *args), "result")
        if not args:
            self.note(f"get_attr({name!r})")
            self.compare(expected, self.venv.get_attr(name), "result")

    def _set_attr(self) -> None:
        name = str(self._rng.choice(sorted(self._attributes)))
        choices = self._attributes[name]
        values = [choices[i] for i in self._rng.integers(0, len(choices), self.model.num_envs)]
        if self._rng.random() < 0.3 and not isinstance(values[0], (list, tuple)):
            values = [values[0]] * len(values)
            self.note(f"set_attr({name!r}, {values[0]!r})")
            self.venv.set_attr(name, values[0])
        else:
            self.note(f"set_attr({name!r}, {values!r})")
            self.venv.set_attr(name, values)
        self.model.set_attr(name, values)
        self.compare(self.model.call(name), self.venv.get_attr(name), f"get_attr({name!r})")

    def _render(self) -> None:
        self.note("render()")
        expected = tuple(env.render() for env in self.model.envs)
        self.compare(expected, self.venv.render(), "frames")

    # ---------------------------------------------------------------- partial batches

    def _send(self) -> None:
        over = self._ended() & (self._mode is AutoresetMode.DISABLED)
        idle = [i for i in range(self.model.num_envs) if i not in self._sent and not over[i]]
        if not idle:
            self._receive()
            return
        ids = self._some(idle)
        self._rng.shuffle(ids)
        actions = self._actions(len(ids))
        self.note(f"send({actions!r}, {ids})")
        self.begin(ids)
        space = batch_space(self.model.single_action_space, len(ids))
        for i, action in zip(ids, iterate(space, actions), strict=True):
            self._sent[i] = self.model.step_env(i, action)
        self._sent_steps.update(ids)
        self.venv.send(actions, ids)

    def _send_resets(self) -> None:
        ids = self._some(range(self.model.num_envs))
        seeds = [int(s) for s in self._rng.integers(0, 10_000, self.model.num_envs)]
        self.note(f"send_reset(seed={seeds}, env_ids={ids})")
        self.begin(ids)
        for i in ids:
            self._sent[i] = self.model.reset_env(i, seeds[i])
        self.venv.send_reset(seed=seeds, env_ids=ids)

    def _refused_while_busy(self) -> None:
        busy = min(self._sent)
        actions = self._actions(1)
        self.note(f"send({actions!r}, [{busy}]) and step_async(...), though env {busy} is busy")
        self.refuses(AlreadyPendingCallError, lambda: self.venv.send(actions, [busy]))
        batch = self._actions(self.model.num_envs)
        self.refuses(AlreadyPendingCallError, lambda: self.venv.step_async(batch))

    def _receive(self) -> None:
        min_envs = int(self._rng.integers(1, len(self._sent) + 1))
        self.note(f"recv(min_envs={min_envs}, timeout={_PATIENCE_S})")
        came = self.venv.recv(min_envs=min_envs, timeout=_PATIENCE_S)
        received = self.received_ids(came, min_envs, self._sent)
        self._num_env_steps += len(self._sent_steps & set(received))
        self._sent_steps -= set(received)
        expected_batch = self.model.batch([self._sent.pop(i) for i in received])
        self.take(RECV_NAMES, (*expected_batch, came[-1]), came)

    def _receive_all(self) -> None:
        while self._sent:
            self._receive()
            self.look_back()

    # ---------------------------------------------------------------- watching and closing

    def _statistics(self) -> None:
        self.note("statistics(), pids")
        statistics = self.venv.statistics()
        self.compare(self._num_steps, statistics.vector_steps, "statistics().vector_steps")
        self.compare(self._num_env_steps, statistics.env_steps, "statistics().env_steps")
        pids = self.venv.pids
        strangers = [p for p in pids if p == os.getpid() or not psutil.pid_exists(p)]
        if strangers or len(set(pids)) != len(pids):
            self.fail(Difference("pids", "living processes other than this one", pids))

    def _close(self) -> None:
        self.note("close(), twice")
        self.venv.close()
        self.venv.close()
        self.look_back()
        self.model.close()


def _has(venv: Any, *names: str) -> bool:
    return all(hasattr(venv, name) for name in names)
