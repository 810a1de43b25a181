"""EnvBatch: steps some envs into given arrays. The only stepping and autoreset code there is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode

from rookery.env import mail
from rookery.env.arrays import BatchArrays
from rookery.env.deferred import Workshop
from rookery.env.failure import env_failed
from rookery.env.outbox import Outbox, Postbox
from rookery.env.recipe import EnvRecipe
from rookery.env.slab import News
from rookery.env.spaces import writer
from rookery.errors import EnvFailed, UsageError

IDLE = 0  # progress words; env i is i + 1 while it steps and -(i + 1) while it is reset


class EnvBatch:
    """Envs ``first_id``, ``first_id + 1``, ... of a vector env.

    Args:
        recipes: one for each env, in order; they are built here and now.
        first_id: the index of the first of them in the vector env.

    Attributes:
        envs: the envs.
        busy_s: seconds spent stepping so far.

    Raises:
        EnvFailed: when an env cannot be built.
    """

    def __init__(self, recipes: Sequence[EnvRecipe], first_id: int) -> None:
        self.envs: list[gym.Env[Any, Any]] = []
        self.busy_s = 0.0
        self._ids = range(first_id, first_id + len(recipes))
        self._names = [recipe.name for recipe in recipes]
        self._workshop = Workshop()
        self._seeds: list[int | None] = [None] * len(recipes)
        self._ended = [False] * len(recipes)  # the episode is over and its env not yet reset
        self._steps = 0  # of the whole batch; an episode's steps are a difference of these
        self._reset_at: Any = [0] * len(recipes)
        self._next_seeds: dict[int, int | None] = {}  # for the next reset of env i, if unseeded
        self._latest = 0  # the buffer last written
        for i, recipe in enumerate(recipes):
            try:
                self.envs.append(recipe.build(self._workshop))
            except (Exception, SystemExit) as error:
                self.close()
                raise self._failure(error, i, "make") from error

    def attach(
        self,
        arrays: BatchArrays,
        autoreset_mode: AutoresetMode,
        progress: Any = None,
        *,
        travels: bool = False,
        outbox: Postbox | None = None,
    ) -> None:
        """Say where results go and what happens when an episode ends.

        Args:
            arrays: for observations, rewards and flags.
            autoreset_mode: what happens when an episode ends.
            progress: int64 ``[3]``, where the busy env, the steps of the batch and the number of
                letters answered are noted for whoever watches.
            travels: whether the caller is another process.
            outbox: where infos of all buffers go; None means into the slab of ``arrays``.
        """
        self._arrays = arrays
        self._reset_at = arrays.reset_at[self._ids.start : self._ids.stop].data
        self._progress = [IDLE, 0, 0] if progress is None else progress
        self._mode = autoreset_mode
        self._env_steps = [env.step for env in self.envs]
        space = arrays.spaces.observation_space
        self._free: list[bytes] = []
        self._write_obs = [
            [writer(space, iter(columns), self._free, i, "observation") for i in self._ids]
            for columns in arrays.obs
        ]
        self._outboxes: list[Postbox] = [
            outbox or Outbox(arrays.slab, b, self._free, travels) for b in range(len(arrays.obs))
        ]
        # Writing a scalar through a memoryview takes 28 ns, through numpy indexing 65 ns.
        self._outcomes: list[list[Any]] = [
            [column.data for column in columns]
            for columns in zip(arrays.reward, arrays.terminated, arrays.truncated, strict=True)
        ]

    def step(self, buffer: int, only: int | None = None) -> News | None:
        """Step every env with the action noted for it; results go into buffer ``buffer``.

        In the next-step mode an env whose episode has ended is reset instead, its action ignored.

        Args:
            buffer: where to write.
            only: id of the one env to step; None means all.

        Returns:
            What to tell of infos and free values; None if there are none.

        Raises:
            EnvFailed: when an env raises; the envs after it were not stepped.
            UsageError: in the disabled mode, when an ended episode's env was not reset; then no env
                was stepped.
        """
        started = time.perf_counter()
        ids = self._counted(only)
        ended, same_step = self._ended, self._mode is AutoresetMode.SAME_STEP
        reward: Any
        rewards, terminateds, truncateds = self._outcomes[buffer]
        actions = self._arrays.read_actions(ids.start, ids.stop)
        writers, progress = self._write_obs[buffer], self._progress
        outbox, free, final = self._outboxes[buffer], self._free, None
        used = outbox.used
        self._latest = buffer
        free.clear()
        for i, env_id in enumerate(ids, ids.start - self._ids.start):
            action = next(actions)
            progress[0] = env_id + 1
            try:
                if ended[i]:
                    obs, info = self._start_episode(i)
                    reward, terminated, truncated = 0.0, False, False
                else:
                    obs, reward, terminated, truncated, info = self._env_steps[i](action)
                    if terminated or truncated:
                        ended[i] = True
                        if same_step:
                            final = outbox.final(obs, info)
                            obs, info = self._start_episode(i)
                writers[i](obs)
                rewards[env_id] = reward
                terminateds[env_id] = terminated
                truncateds[env_id] = truncated
                if info or free or final:
                    outbox.post(env_id, info, final)
                    final = None
                elif used and env_id in used:
                    outbox.clear(env_id)
            except EnvFailed:
                raise
            except (Exception, SystemExit) as error:
                raise self._failure(error, i, "step", action) from error
        progress[0] = IDLE
        self.busy_s += time.perf_counter() - started
        return outbox.news() if outbox.has_posted else None

    def reset(
        self,
        buffer: int,
        seeds: Sequence[int | None],
        options: Sequence[dict[str, Any] | None] | dict[str, Any] | None,
        mask: Sequence[bool] | None = None,
    ) -> News | None:
        """Reset the envs; results go into buffer ``buffer``.

        Args:
            buffer: where to write.
            seeds: one for each env of this batch.
            options: given to every env's reset; a sequence has one for each env of this batch.
            mask: which envs of this batch to reset, None means all. The others keep their state
                and their last observation.

        Returns:
            What to tell of infos and free values; None if there are none.

        Raises:
            EnvFailed: when an env raises.
        """
        outbox = self._outboxes[buffer]
        self._free.clear()
        for i, env_id in enumerate(self._ids):
            if mask is not None and not mask[i]:
                self._carry_over(env_id, buffer)
                continue
            own = options if options is None or isinstance(options, dict) else options[i]
            self._reset_row(buffer, i, seeds[i], own)
        self._latest = buffer
        self._progress[0] = IDLE
        return outbox.news() if outbox.has_posted else None

    @property
    def mail(self) -> mail.Mailbox:
        """What single envs are told."""
        return self._arrays.mail

    def unanswered(self) -> list[int]:
        """Ids of the envs that were told something by mail, the first told first."""
        return self._arrays.mail.unanswered(self._ids)

    def obey(self, env_id: int) -> News | None:
        """Do what an env was told by mail; results go into the buffer that was written last.

        Raises:
            EnvFailed: when the env raises.
            UsageError: when its episode had ended and it was not reset, in the disabled mode.
        """
        arrays, buffer, progress = self._arrays, self._latest, self._progress
        progress[2] += 1
        kind = arrays.mail.kind[env_id]
        if kind == mail.STEP:
            return self.step(buffer, env_id)
        seed = int(arrays.mail.seed[env_id]) if kind == mail.SEEDED_RESET else None
        self._free.clear()
        self._reset_row(buffer, env_id - self._ids.start, seed)
        for column in (arrays.reward, arrays.terminated, arrays.truncated):
            column[buffer][env_id] = 0
        progress[0] = IDLE
        return self._outboxes[buffer].news()

    def begin_episodes(self, buffer: int, env_ids: Sequence[int]) -> News | None:
        """Reset some envs, unseeded, and leave the rows of the others alone."""
        outbox = self._outboxes[buffer]
        self._free.clear()
        for env_id in env_ids:
            self._reset_row(buffer, env_id - self._ids.start)
        self._progress[0] = IDLE
        return outbox.news() if outbox.has_posted else None

    def resume(self, latest: int, seeds: Sequence[int | None]) -> None:
        """Stand in for a batch that was lost: all episodes are over, none of the envs is reset.

        Args:
            latest: the buffer that the lost batch wrote last.
            seeds: for the next reset of each env, should it be given none.
        """
        self._latest = latest
        self._ended = [True] * len(self.envs)
        self._next_seeds = dict(enumerate(seeds))

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Per env, what its method ``name`` returns, or its attribute ``name``.

        The outermost wrapper that has the name answers, as in Gymnasium.
        """
        results = []
        for i, env in enumerate(self.envs):
            try:
                attribute = env.get_wrapper_attr(name)
                results.append(attribute(*args, **kwargs) if callable(attribute) else attribute)
            except Exception as error:
                raise self._failure(error, i, f"call of {name!r}") from error
        return results

    def apply(
        self, function: Callable[[gym.Env[Any, Any]], Any], env_ids: Sequence[int]
    ) -> list[tuple[int, Any]]:
        """For those of ``env_ids`` that are of this batch: id and ``function(env)``."""
        results = []
        for env_id in env_ids:
            if env_id not in self._ids:
                continue
            i = env_id - self._ids.start
            try:
                results.append((env_id, function(self.envs[i])))
            except Exception as error:
                name = getattr(function, "__name__", repr(function))
                raise self._failure(error, i, f"call of {name!r}") from error
        return results

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        """Set the attribute ``name`` of each env, where ``set_wrapper_attr`` finds it."""
        for i, (env, value) in enumerate(zip(self.envs, values, strict=True)):
            try:
                env.set_wrapper_attr(name, value)
            except Exception as error:
                raise self._failure(error, i, f"setting of {name!r}") from error

    def close(self) -> None:
        """Close all envs, then the deferred arguments; the first error is raised at the end."""
        errors = []
        envs, self.envs = self.envs, []
        for i, env in enumerate(envs):
            try:
                env.close()
            except Exception as error:
                errors.append(self._failure(error, i, "close"))
        self._workshop.close()
        if errors:
            raise errors[0]

    def _counted(self, only: int | None) -> range:
        """Ids of the envs to step, whose steps are counted."""
        ids = self._ids if only is None else range(only, only + 1)
        if self._mode is AutoresetMode.DISABLED:
            self._require_episodes(ids)
        if only is None:
            self._steps = self._progress[1] = self._steps + 1
        else:
            self._reset_at[only - self._ids.start] -= 1  # the others' counts stay as they are
        return ids

    def _require_episodes(self, ids: range) -> None:
        over = [env_id for env_id in ids if self._ended[env_id - self._ids.start]]
        if over:
            raise UsageError(
                f"Envs {over} were stepped after their episodes had ended. With "
                "autoreset_mode='disabled', reset them first: reset(options={'reset_mask': mask})."
            )

    def _start_episode(
        self, i: int, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if self._next_seeds:
            planned = self._next_seeds.pop(i, None)
            seed = planned if seed is None else seed
        if seed is not None:
            self._seeds[i] = seed
        self._progress[0] = -(self._ids[i] + 1)
        self._ended[i] = False
        self._reset_at[i] = self._steps
        try:
            return self.envs[i].reset(seed=seed, options=options)
        except (Exception, SystemExit) as error:
            raise self._failure(error, i, "reset") from error

    def _reset_row(
        self, buffer: int, i: int, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> None:
        """Reset an env and write what it shows and tells into its row."""
        obs, info = self._start_episode(i, seed, options)
        try:
            self._write_obs[buffer][i](obs)
            self._outboxes[buffer].post(self._ids[i], info)
        except Exception as error:
            raise self._failure(error, i, "reset") from error

    def _carry_over(self, env_id: int, buffer: int) -> None:
        for new, old in zip(self._arrays.obs[buffer], self._arrays.obs[self._latest], strict=True):
            new[env_id] = old[env_id]
        self._outboxes[buffer].keep(env_id)

    def _failure(self, error: BaseException, i: int, command: str, action: Any = None) -> EnvFailed:
        stepped = command in ("step", "reset")
        return env_failed(
            error,
            env_name=self._names[i],
            env_id=self._ids[i],
            command=command,
            seed=self._seeds[i],
            steps_since_reset=self._steps - self._reset_at[i] if stepped else None,
            last_action=action,
        )
