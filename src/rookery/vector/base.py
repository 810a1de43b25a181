"""What every vector env shares: the public calls and the state machine behind them.

A vector env is a row of shares. A share owns some consecutive envs, in this process or in a worker,
and knows four things: to begin a step, to begin a call, to finish, to stop. Nothing here depends on
where a share lives, and no share knows about another.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from rookery.env import mail
from rookery.env.arrays import BatchArrays
from rookery.env.inbox import Inbox
from rookery.env.seeding import consecutive_seeds
from rookery.env.slab import News, SlabFull, SlabShape
from rookery.errors import (
    ClosedError,
    ConfigError,
    PendingCallError,
    RookeryError,
    WorkerError,
)
from rookery.vector.agreement import ObservationMode, agree
from rookery.vector.crash import CrashRecorder
from rookery.vector.nan import NanWatch
from rookery.vector.options import Options, separated
from rookery.vector.partial import PartialBatches
from rookery.vector.share import Share
from rookery.vector.shutdown import CLOSE_GRACE_S, shut_down
from rookery.vector.statistics import ShareStatistics, Statistics
from rookery.vector.turn import Turn
from rookery.worker.doorbell import Doorbell
from rookery.worker.protocol import Hello

_OWN_CALLS = ("reset", "step", "close")


class VectorEnv(gym.vector.VectorEnv[Any, Any, Any]):
    """Many environments behind one ``gymnasium.vector.VectorEnv``; ``rookery.make_vec`` makes it.

    Attributes:
        num_envs: how many envs.
        single_observation_space: of one env; ``observation_space`` is of the batch.
        single_action_space: of one env; ``action_space`` is of the batch.
        metadata: of the first env, plus ``"autoreset_mode"``.
        autoreset_mode: what happens when an episode ends.
        observation_mode: how the envs' observation spaces were put together.
        backend: ``"serial"`` or ``"process"``.
        num_workers: how many worker processes there are.
        choice: what ``backend="auto"`` chose, and why; None if it was not asked.
        crash_recorder: keeps what the envs are told, for reports of failures; None keeps nothing.
        infos_per_env: True has ``reset`` and ``step`` return infos as a list with one dict for each
            env, in place of Gymnasium's vector form.
    """

    backend: str
    choice: Any = None
    crash_recorder: CrashRecorder | None = None
    infos_per_env: bool = False

    def _adopt(
        self,
        shares: Sequence[Share],
        hellos: Sequence[Hello],
        autoreset_mode: AutoresetMode,
        observation_mode: ObservationMode,
    ) -> None:
        """Take over shares whose envs are built: check their spaces and be ready for a reset."""
        self._shares = tuple(shares)
        self.num_envs = shares[-1].env_ids.stop
        self.metadata = {**hellos[0].metadata, "autoreset_mode": autoreset_mode}
        self.render_mode = hellos[0].render_mode
        self.spec = hellos[0].spec
        spaces = agree(shares, hellos, observation_mode)
        self.single_observation_space = spaces.single_observation_space
        self.single_action_space = spaces.single_action_space
        self.observation_space = spaces.observation_space
        self.action_space = spaces.action_space
        self.autoreset_mode = autoreset_mode
        self.observation_mode = observation_mode
        self._buffer = 0
        self._vector_steps = 0
        self._nan_watch = NanWatch()

    def _ready(self, arrays: BatchArrays, copy: bool, arrivals: Doorbell | None = None) -> None:
        """Take over the arrays that the shares write to; from now on the env can be used.

        Args:
            arrays: of all envs.
            copy: whether results are copied out of them.
            arrivals: the bell that workers ring when an env has answered its mail.
        """
        self._arrays = arrays
        self._copy = copy
        self._num_buffers = arrays.spaces.num_buffers
        self._inbox = Inbox(arrays)
        self._partial = PartialBatches(arrays, self._shares, arrivals, self._inbox)
        self._turn = Turn(self._shares, self._inbox.hear)
        self._owner_pid = os.getpid()
        self._finalizer = weakref.finalize(self, shut_down, self._owner_pid, self._shares)

    # ---------------------------------------------------------------- reset

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Options = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all envs, or those that ``options["reset_mask"]`` selects.

        Args:
            seed: an int means ``seed + i`` for env ``i``; a sequence holds one, or None, for each.
            options: given to every env, without ``"reset_mask"`` (bool ``[num_envs]``); or a list
                with one dict, or None, for each env.

        Returns:
            Observations, batched, and infos in Gymnasium's vector form.

        Raises:
            EnvFailed: when an env raises.
            WorkerDied: when a worker process ends.
        """
        self.reset_async(seed=seed, options=options)
        return self.reset_wait()

    def reset_async(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: Options = None,
    ) -> None:
        """Begin a reset; :meth:`reset_wait` returns its result."""
        self._require_idle("reset")
        seeds = consecutive_seeds(seed, self.num_envs)
        options, mask = separated(options, self.num_envs)
        if self.crash_recorder is not None:
            self.crash_recorder.note_reset(seeds, options, mask)
        buffer = self._next_buffer()
        self._turn.begin(
            "reset",
            [
                tuple(
                    part[ids.start : ids.stop] if isinstance(part, list) else part
                    for part in (buffer, seeds, options, mask)
                )
                for ids in self._ranges()
            ],
        )

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """Wait for the reset that :meth:`reset_async` began."""
        results = self._finish("reset", timeout)
        return self._observations(), self._infos(results)

    # ---------------------------------------------------------------- step

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all envs.

        Args:
            actions: one for each env, batched as ``action_space`` is.

        Returns:
            Observations (batched), rewards float64 ``[num_envs]``, terminated bool ``[num_envs]``,
            truncated bool ``[num_envs]``, infos in Gymnasium's vector form. With ``copy=False`` the
            arrays are views, valid until the step after the next.

        Raises:
            EnvFailed: when an env raises.
            WorkerDied: when a worker process ends.
        """
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        """Begin a step; :meth:`step_wait` returns its result."""
        if self.closed or self._turn.pending is not None or self._partial.in_use:
            self._require_idle("step")
        if self._inbox.wanted is not None:
            self._enlarge_slab()
        self._write_actions(actions)
        if self.crash_recorder is not None:
            self.crash_recorder.note_step(actions)
        self._turn.begin_step(self._next_buffer())

    def step_wait(self, timeout: float | None = None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Wait for the step that :meth:`step_async` began.

        Args:
            timeout: seconds; when they pass, a :class:`WorkerTimeout` is raised and the step goes
                on: this method may be called again.
        """
        results = self._finish("step", timeout)
        self._vector_steps += 1
        arrays, b = self._arrays, self._buffer
        self._nan_watch.note_step(arrays.obs[b])
        reward, terminated, truncated = arrays.reward[b], arrays.terminated[b], arrays.truncated[b]
        obs = self._observations()
        infos = self._infos(results)
        if self._copy:
            return obs, reward.copy(), terminated.copy(), truncated.copy(), infos
        return obs, reward, terminated, truncated, infos

    def _next_buffer(self) -> int:
        self._buffer = (self._buffer + 1) % self._num_buffers
        return self._buffer

    def _observations(self) -> Any:
        """The observations of the present buffer, batched: copies, or views with copy=False."""
        arrays, b = self._arrays, self._buffer
        if arrays.free_obs:
            self._inbox.read_free(b, range(self.num_envs))
            return arrays.observations(b)
        obs = arrays.batched_obs[b]
        if not self._copy:
            return obs
        return obs.copy() if type(obs) is np.ndarray else arrays.observations(b)

    def _infos(self, news: dict[int, News]) -> Any:
        if self.infos_per_env:
            if not news:
                return [{} for _ in range(self.num_envs)]
            return self._inbox.infos_per_env(self._buffer)
        return self._inbox.infos(self._buffer) if news else {}

    def _write_actions(self, actions: Any, env_ids: Any = ...) -> None:
        try:
            self._arrays.write_actions(actions, env_ids)
        except SlabFull as full:
            self._inbox.want(0, full.need_bytes)
            self._enlarge_slab()
            self._arrays.write_actions(actions, env_ids)

    def _enlarge_slab(self) -> None:
        """Put a larger slab in the place of the present one; nothing in it is unread."""
        shape, self._inbox.wanted = self._inbox.wanted, None
        assert shape is not None
        self._partial.quiesce()
        self._partial.settle()
        self._grow_slab(shape)

    def _grow_slab(self, shape: SlabShape) -> None:
        """Make a larger slab and have every share go on with it."""
        raise NotImplementedError

    # ---------------------------------------------------------------- partial batches

    def async_reset(
        self,
        seed: int | Sequence[int | None] | None = None,
        env_ids: Sequence[int] | npt.NDArray[np.integer] | None = None,
    ) -> None:
        """Begin to reset envs one by one; :meth:`recv` returns whoever is ready.

        Args:
            seed: as for :meth:`reset`; a sequence has one for each env of the vector env.
            env_ids: which envs; None means all.

        Raises:
            PendingCallError: when an answer of one of them is still under way.
        """
        self._require_nothing_pending("async_reset")
        ids = self._partial.chosen(env_ids, "async_reset")
        seeds = [consecutive_seeds(seed, self.num_envs)[i] for i in ids.tolist()]
        for value in seeds:
            if value is not None and not 0 <= value < 2**63:
                raise ConfigError(f"async_reset: a seed must lie in 0 to 2**63 - 1, got {value}")
        if self.crash_recorder is not None:
            self.crash_recorder.note_resets(ids, seeds)
        self._partial.tell(ids, mail.RESET, seeds)

    def send(
        self, actions: Any, env_ids: Sequence[int] | npt.NDArray[np.integer] | None = None
    ) -> None:
        """Begin to step some envs; :meth:`recv` returns whoever is ready.

        Args:
            actions: one for each of ``env_ids``, batched as ``action_space`` is.
            env_ids: whose, in the order of ``actions``; None means all, in order.

        Raises:
            PendingCallError: when an answer of one of them is still under way.
        """
        self._require_nothing_pending("send")
        ids = self._partial.chosen(env_ids, "send")
        if self._inbox.wanted is not None and not self._partial.num_busy:
            self._enlarge_slab()
        self._write_actions(actions, ids)
        if self.crash_recorder is not None:
            self.crash_recorder.note_step(actions, ids)
        self._partial.tell(ids, mail.STEP)

    def recv(
        self, min_envs: int = 1, timeout: float | None = None
    ) -> tuple[Any, Any, Any, Any, Any, npt.NDArray[np.int64]]:
        """Wait for envs that were sent something, and take all that are ready.

        Args:
            min_envs: how many to wait for.
            timeout: seconds; when they pass, a :class:`WorkerTimeout` is raised, the envs go on,
                and this method may be called again.

        Returns:
            Observations, rewards, terminated, truncated and infos as from :meth:`step`, but of the
            k envs in ``env_ids``, int64 ``[k]``, whoever was ready first coming first; always
            copies. An env that was reset has reward 0 and no flag.

        Raises:
            NoPendingCallError: when no env was sent anything.
            ConfigError: when fewer than ``min_envs`` were.
            WorkerError: when an env or a worker fails; other envs can still be received.
        """
        self._require_nothing_pending("recv")
        try:
            ids = self._partial.receive(min_envs, timeout)
        except WorkerError as error:
            self._record(error)
            raise
        arrays, b = self._arrays, self._buffer
        if arrays.free_obs:
            self._inbox.read_free(b, ids.tolist())
        infos = self._inbox.infos_per_env if self.infos_per_env else self._inbox.infos
        return (
            arrays.observations(b, ids),
            arrays.reward[b][ids],
            arrays.terminated[b][ids],
            arrays.truncated[b][ids],
            infos(b, ids),
            ids,
        )

    # ---------------------------------------------------------------- calls

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Per env, what its method ``name`` returns, or its attribute ``name``."""
        self.call_async(name, *args, **kwargs)
        return self.call_wait()

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Begin a call of every env's method; :meth:`call_wait` returns the results."""
        self._require_idle("call")
        if name in _OWN_CALLS:
            raise ConfigError(
                f"call({name!r}) would pass by what this vector env knows of its envs; use its "
                f"own {name}()"
            )
        self._turn.begin("call", [(name, args, kwargs)] * len(self._shares))

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait for the call that :meth:`call_async` began."""
        results = self._finish("call", timeout)
        return tuple(value for first_id in sorted(results) for value in results[first_id])

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """The attribute ``name`` of every env."""
        return self.call(name)

    def apply(
        self, function: Callable[[Any], Any], env_ids: Sequence[int] | None = None
    ) -> list[Any]:
        """``function(env)`` of some envs, called where each env lives.

        Args:
            function: gets an env, wrappers and all. It travels by value, as its result does.
            env_ids: which envs; None means all.

        Returns:
            A result for each of ``env_ids``, in their order.
        """
        self._require_idle("apply")
        ids = list(range(self.num_envs)) if env_ids is None else [int(i) for i in env_ids]
        for env_id in ids:
            if not 0 <= env_id < self.num_envs:
                raise ConfigError(f"apply: there is no env {env_id}, only 0 to {self.num_envs - 1}")
        self._turn.begin("apply", [(function, ids)] * len(self._shares))
        results = self._finish("apply", None)
        by_id = dict(pair for pairs in results.values() for pair in pairs)
        return [by_id[env_id] for env_id in ids]

    def set_attr(self, name: str, values: list[Any] | tuple[Any, ...] | Any) -> None:
        """Set an attribute of every env: one value for all, or a list or tuple of one for each."""
        self._require_idle("set_attr")
        if not isinstance(values, (list, tuple)):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ConfigError(f"set_attr got {len(values)} values for {self.num_envs} envs")
        self._turn.begin(
            "set_attr", [(name, values[ids.start : ids.stop]) for ids in self._ranges()]
        )
        self._finish("set_attr", None)

    def render(self) -> tuple[Any, ...]:
        """The rendered frame of every env."""
        return self.call("render")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of every env's generator."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """A copy (in this process: the very one) of every env's generator."""
        return self.get_attr("np_random")

    # ---------------------------------------------------------------- watching

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers."""
        return tuple(
            share.pid for share in self.statistics().shares if share.pid != self._owner_pid
        )

    @property
    def num_workers(self) -> int:
        """How many worker processes there are."""
        return len(self.pids)

    def statistics(self) -> Statistics:
        """What was done so far, as a frozen snapshot; after ``close`` the last one."""
        if self.closed:
            return self._final_statistics
        return Statistics(
            vector_steps=self._vector_steps,
            env_steps=self._vector_steps * self.num_envs,
            shares=tuple(
                ShareStatistics(pid=share.pid, env_ids=share.env_ids, busy_s=share.busy_s)
                for share in self._shares
            ),
        )

    # ---------------------------------------------------------------- the state machine

    def _require_idle(self, call: str) -> None:
        self._require_nothing_pending(call)
        if self._partial.num_busy:
            raise PendingCallError(
                f"{call}: {self._partial.num_busy} envs still have an answer under way; recv() "
                "returns it",
                "recv",
            )
        self._partial.settle()

    def _require_nothing_pending(self, call: str) -> None:
        self._require_open(call)
        self._turn.require_none(call)

    def _require_open(self, call: str) -> None:
        if self.closed:
            raise ClosedError(f"{call}: this vector env is closed")

    def _ranges(self) -> list[range]:
        return [share.env_ids for share in self._shares]

    def _finish(self, call: str, timeout: float | None) -> dict[int, Any]:
        """Finish the call under way; results that are not empty, by the first id of their share."""
        self._require_open(call)
        try:
            return self._turn.finish(call, timeout)
        except RookeryError as error:
            if self._turn.pending is None:  # it is over, not just late
                self._arrays.slab.added.clear()
                self._record(error)
            raise

    def _record(self, error: RookeryError) -> None:
        if self.crash_recorder is not None and isinstance(error, WorkerError) and error.env_ids:
            self.crash_recorder.write(error)

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Close the envs and end the workers; called once, by ``close``.

        Args:
            timeout: seconds to wait for a pending call and for the envs' own closing, 5 by default;
                what is not done by then is terminated.
            terminate: do not wait at all.
        """
        if not hasattr(self, "_finalizer"):
            return
        self._finalizer.detach()
        grace_s = 0.0 if terminate else CLOSE_GRACE_S if timeout is None else timeout
        self._final_statistics = self.statistics()
        self.closed = True
        shares, unfinished = self._shares, self._turn.unfinished
        # Shared memory and semaphores go with the last reference to them.
        del self._arrays, self._inbox, self._partial, self._shares, self._turn
        shut_down(self._owner_pid, shares, unfinished, grace_s)

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
