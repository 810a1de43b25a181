"""RookeryVecEnv: envs stepped by rookery, as a Stable-Baselines3 ``VecEnv``.

    make_vec_env("CartPole-v1", n_envs=8, vec_env_cls=RookeryVecEnv)

Workers do not import SB3, because it imports torch, which takes two seconds and 200 MB. Functions
for the envs are nested functions, which are pickled by value. So are parts of SB3 that envs
contain, such as its Monitor.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from copy import deepcopy
from functools import partial
from operator import methodcaller
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from rookery.common.pickling import whole
from rookery.errors import ConfigError, MissingExtra, NoPendingCallError, PicklingError
from rookery.vector.base import VectorEnv
from rookery.vector.make import make_vec

try:
    import stable_baselines3
    from stable_baselines3.common.preprocessing import check_for_nested_spaces
    from stable_baselines3.common.vec_env import VecEnv
    from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices
except ImportError as error:
    raise MissingExtra("RookeryVecEnv needs: pip install 'rookery[sb3]'") from error

Env = gym.Env[Any, Any]

_CUT = "TimeLimit.truncated"
_ARRAY_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class RookeryVecEnv(VecEnv):
    """A drop-in for ``SubprocVecEnv`` and ``DummyVecEnv`` on top of :func:`rookery.make_vec`.

    Observations have the dtype of their space and rewards are float32, as in ``DummyVecEnv``, so
    that training gives identical results. Returned arrays are never modified later.

    Args:
        env_fns: one callable per env.
        start_method: start method of worker processes; None means the best one of the platform.
            A main guard is not needed.
        **options: further arguments of :func:`rookery.make_vec`: ``backend``, ``num_workers``,
            ``isolate``, ``caller_steps``, ``faults``, ... The default ``backend="auto"`` builds the
            first env a second time, in a worker, to measure it.

    Attributes:
        vector_env: the underlying :class:`rookery.VectorEnv`. Its ``choice`` shows the choice of
            ``backend="auto"``.

    Raises:
        UsageError: an argument is invalid.
        WorkerError: an env could not be built.
        NotImplementedError: raised by SB3 for nested dict or tuple observation spaces.
    """

    vector_env: VectorEnv

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        start_method: str | None = None,
        **options: Any,
    ) -> None:
        if "autoreset_mode" in options:
            raise ConfigError("autoreset_mode: SB3 requires same-step resets; leave it out")
        wrappers = (_adapter(), *options.pop("wrappers", ()))
        make = partial(
            make_vec,
            list(env_fns),
            start_method=start_method,
            autoreset_mode="same_step",
            wrappers=wrappers,
            **options,
        )
        self._pickled_whole: Callable[[], AbstractContextManager[None]] = partial(
            whole, stable_baselines3
        )
        try:
            with self._pickled_whole():
                self.vector_env = venv = make()
        except PicklingError:  # some parts of SB3 cannot be pickled by value
            self._pickled_whole = nullcontext
            self.vector_env = venv = make()
        try:
            check_for_nested_spaces(venv.single_observation_space)
            venv.infos_per_env = True
            self._refuse_shared_envs()
            backends = venv.statistics().workers
            self._local_ids = [i for b in backends if b.pid == os.getpid() for i in b.env_ids]
            self._takes_arrays = isinstance(venv.single_action_space, _ARRAY_SPACES)
            super().__init__(venv.num_envs, venv.single_observation_space, venv.single_action_space)
        except BaseException:
            venv.close()
            raise

    # ---------------------------------------------------------------- reset and step

    def reset(self) -> Any:
        """Reset all envs, with the seeds and options set since the last reset.

        A pending step is finished and its result dropped.

        Returns:
            Observations ``[num_envs, *shape]``; a dict or tuple of them for such spaces.
        """
        self._drop_pending()
        obs, infos = self.vector_env.reset(
            seed=self._seeds, options=[options or None for options in self._options]
        )
        self.reset_infos = self._owned(infos)
        self._reset_seeds()
        self._reset_options()
        return obs

    def step_async(self, actions: Any) -> None:
        """Start a step of every env.

        Args:
            actions: one action per env.
        """
        if not self._takes_arrays:
            space = self.action_space
            batch: Any = create_empty_array(space, self.num_envs)
            actions = concatenate(space, actions, batch)
        self.vector_env.step_async(actions)

    def step_wait(
        self,
    ) -> tuple[Any, npt.NDArray[np.float32], npt.NDArray[np.bool_], list[dict[str, Any]]]:
        """Wait for the step; envs whose episode ended are already reset.

        Returns:
            Observations ``[num_envs, *shape]``, rewards float32 ``[num_envs]``, dones bool
            ``[num_envs]``, and a dict for each env, with ``"TimeLimit.truncated"`` and, if its
            episode ended, ``"terminal_observation"``.
        """
        obs, rewards, terminated, truncated, merged = self.vector_env.step_wait()
        infos = self._owned(merged)
        dones = terminated | truncated
        for info in infos:
            info[_CUT] = False
        for env_id in dones.nonzero()[0].tolist():
            cut = bool(truncated[env_id] and not terminated[env_id])
            infos[env_id] = self._close_episode(env_id, infos[env_id], cut)
        return obs, rewards.astype(np.float32), dones, infos

    def close(self) -> None:
        """Close the envs and end the workers; a second call has no effect."""
        with warnings.catch_warnings():  # as in SB3, a pending step is no reason to warn
            warnings.filterwarnings("ignore", message=".*Calling `close` while waiting")
            self.vector_env.close()

    def _close_episode(self, env_id: int, info: dict[str, Any], cut: bool) -> dict[str, Any]:
        """Return the info of the last step, and store that of the reset that followed."""
        final = {**info.pop("final_info"), "terminal_observation": info.pop("final_obs"), _CUT: cut}
        del info[_CUT]
        self.reset_infos[env_id] = info
        return final

    def _owned(self, infos: Any) -> list[dict[str, Any]]:
        """Return infos that envs cannot modify; infos from workers are copies already."""
        for env_id in self._local_ids:
            if infos[env_id]:
                infos[env_id] = deepcopy(infos[env_id])
        return list(infos)

    def _drop_pending(self) -> None:
        # The call may be a step that the caller dropped, or was interrupted by Ctrl-C.
        for wait in (self.vector_env.step_wait, self.vector_env.reset_wait):
            with suppress(NoPendingCallError):
                wait()

    # ---------------------------------------------------------------- single envs

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Return an attribute of some envs, from the outermost wrapper that has it."""
        return self._apply(methodcaller("get_wrapper_attr", attr_name), indices)

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute of some envs, on the outermost wrapper."""
        self._apply(lambda env: setattr(env, attr_name, value), indices)

    def has_attr(self, attr_name: str) -> bool:
        """Return whether every env has an attribute; its value need not be picklable."""

        def has(env: Env) -> bool:
            try:
                env.get_wrapper_attr(attr_name)
            except AttributeError:
                return False
            return True

        return all(self._apply(has))

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: VecEnvIndices = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """Call a method of some envs, of the outermost wrapper that has it."""
        if indices is None:  # three times as fast; action masks need it in every step
            self.vector_env.call_async(method_name, *method_args, **method_kwargs)
            return list(self.vector_env.call_wait())

        def call(env: Env) -> Any:
            return env.get_wrapper_attr(method_name)(*method_args, **method_kwargs)

        return self._apply(call, indices)

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        """Return one bool per env: True if ``wrapper_class`` is among its wrappers."""

        def is_wrapped(env: Env) -> bool:
            while isinstance(env, gym.Wrapper):
                if isinstance(env, wrapper_class):
                    return True
                env = env.env
            return False

        return self._apply(is_wrapped, indices)

    def get_images(self) -> Sequence[npt.NDArray[np.uint8] | None]:
        """Return the rendered frame of every env; None for envs that do not render arrays."""
        if self.render_mode != "rgb_array":
            warnings.warn(
                f"get_images needs envs with render_mode='rgb_array'; theirs is {self.render_mode}",
                stacklevel=2,
            )
            return [None] * self.num_envs
        return self._apply(methodcaller("render"))

    def _apply(self, function: Callable[[Any], Any], indices: VecEnvIndices = None) -> list[Any]:
        ids = range(self.vector_env.num_envs)
        if indices is None:
            chosen: Any = None
        else:
            chosen = [indices] if isinstance(indices, (int, np.integer)) else indices
            chosen = [ids[i] for i in chosen]
        with self._pickled_whole():
            return self.vector_env.apply(function, chosen)

    def _refuse_shared_envs(self) -> None:
        owners: dict[tuple[int, int], int] = {}
        places = self.vector_env.apply(lambda env: (os.getpid(), id(env.unwrapped)))
        for env_id, place in enumerate(places):
            if place in owners:
                raise ConfigError(
                    f"env_fns[{owners[place]}] and env_fns[{env_id}] return the same env, so each "
                    "would step the other's. Return a new env at each call, not one made before."
                )
            owners[place] = env_id


def _adapter() -> Callable[[Any], Any]:
    """Return a wrapper that adapts envs that SB3 accepts, but rookery does not."""

    def adapt(env: Any) -> Any:
        if not isinstance(env, gym.Env):  # an env of the old gym library
            from stable_baselines3.common.vec_env.patch_gym import _patch_env

            env = _patch_env(env)
        layer = env
        while takes_options(layer) and isinstance(layer, gym.Wrapper):
            layer = layer.env
        if not takes_options(layer):
            reset_without_options(env)
        return env

    def takes_options(layer: Env) -> bool:
        try:
            parameters = inspect.signature(layer.reset).parameters.values()
        except (TypeError, ValueError):  # compiled code may lack a signature
            return True
        return any(p.name == "options" or p.kind is p.VAR_KEYWORD for p in parameters)

    def reset_without_options(env: Any) -> None:
        # SB3 passes options only if there are any, so such envs work with SB3.
        reset = env.reset

        def reset_with_what_is_given(**arguments: Any) -> Any:
            return reset(**{k: v for k, v in arguments.items() if v is not None})

        env.reset = reset_with_what_is_given

    return adapt
