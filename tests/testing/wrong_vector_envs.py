"""Vector envs that are each wrong in one way, of the kinds that are easily overlooked."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rookery


class Right(SyncVectorEnv):  # type: ignore[type-arg]  # older ones give it none
    """Right, with arrays that are always copies."""

    def __init__(self, env_fns: Any, autoreset_mode: Any, copy: bool) -> None:
        super().__init__(env_fns, copy=True, autoreset_mode=autoreset_mode)


class StaleInfo(Right):
    """A key that no env tells any more is returned once more."""

    last: dict[str, Any] = {}

    def step(self, actions: Any) -> Any:
        *rest, info = super().step(actions)
        self.last, merged = info, {**self.last, **info}
        return (*rest, merged)


class WrongMask(Right):
    """The masks of infos say that every env told them."""

    def step(self, actions: Any) -> Any:
        *rest, info = super().step(actions)
        for key in info:
            if key.startswith("_"):
                info[key][:] = True
        return (*rest, info)


class SwappedRows(Right):
    """The first two rewards are exchanged when an episode ends."""

    def step(self, actions: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(actions)
        if terminated.any():
            reward[:2] = reward[1::-1]
        return obs, reward, terminated, truncated, info


class DroppedFinalObs(Right):
    """In the same-step mode the final observation is not told."""

    def step(self, actions: Any) -> Any:
        *rest, info = super().step(actions)
        return (*rest, {k: v for k, v in info.items() if k not in ("final_obs", "_final_obs")})


class FinalObsOfTheNextEpisode(Right):
    """In the same-step mode the final observation is the next episode's first."""

    def step(self, actions: Any) -> Any:
        obs, *rest, info = super().step(actions)
        for i in np.flatnonzero(info.get("_final_obs", [])):
            if isinstance(obs, np.ndarray):
                info["final_obs"][i] = obs[i].copy()
        return (obs, *rest, info)


class SeedOffset(Right):
    """Env i is seeded with seed + i + 1."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return super().reset(seed=seed + 1 if isinstance(seed, int) else seed, options=options)


class OneSeedForAll(Right):
    """Every env is seeded alike."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        same = [seed] * self.num_envs if isinstance(seed, int) else seed
        return super().reset(seed=same, options=options)


class AutoresetTooEarly(Right):
    """In the next-step mode an env is reset in the step that ends its episode."""

    def step(self, actions: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(actions)
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            for i in np.flatnonzero(self._autoreset_envs):
                self._env_obs[i], _ = self.envs[i].reset()
                self._autoreset_envs[i] = False
        return obs, reward, terminated, truncated, info


class RewardOfTheAutoreset(Right):
    """In the next-step mode the step that resets repeats the reward before it."""

    def step(self, actions: Any) -> Any:
        before, resets = self._rewards.copy(), self._autoreset_envs.copy()
        obs, reward, *rest = super().step(actions)
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            reward[resets] = before[resets]
        return (obs, reward, *rest)


class RewardsInSinglePrecision(Right):
    """Rewards are float32."""

    def step(self, actions: Any) -> Any:
        obs, reward, *rest = super().step(actions)
        return (obs, reward.astype(np.float32), *rest)


class FlagsAsNumbers(Right):
    """Flags are int8."""

    def step(self, actions: Any) -> Any:
        obs, reward, terminated, *rest = super().step(actions)
        return (obs, reward, terminated.astype(np.int8), *rest)


class TruncationAsTermination(Right):
    """An episode that was cut short is said to have ended by itself."""

    def step(self, actions: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(actions)
        return obs, reward, terminated | truncated, np.zeros_like(truncated), info


class MaskIgnored(Right):
    """A reset with a mask resets all envs."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        own = {k: v for k, v in (options or {}).items() if k != "reset_mask"}
        return super().reset(seed=seed, options=own or None)


class MaskTellsOfAll(Right):
    """A reset with a mask shows zeros for the envs that it leaves alone."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        mask = (options or {}).get("reset_mask")
        obs, info = super().reset(seed=seed, options=options)
        if mask is not None and isinstance(obs, np.ndarray):
            obs[~mask] = 0
        return obs, info


class OptionsDropped(Right):
    """Options do not reach the envs."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        mask = (options or {}).get("reset_mask")
        return super().reset(seed=seed, options=None if mask is None else {"reset_mask": mask})


class ActionsInReverse(Right):
    """Env 0 gets the last action."""

    def step(self, actions: Any) -> Any:
        return super().step(actions[::-1])


class CallsInReverse(Right):
    """What the last env returns comes first."""

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return super().call(name, *args, **kwargs)[::-1]


class AttributesAsList(Right):
    """get_attr returns a list."""

    def get_attr(self, name: str) -> Any:
        return list(super().get_attr(name))


class SetsTheFirstOnly(Right):
    """set_attr reaches the first env only."""

    def set_attr(self, name: str, values: Any) -> None:
        first = values[0] if isinstance(values, (list, tuple)) else values
        self.envs[0].set_wrapper_attr(name, first)


class OneFrame(Right):
    """render returns a frame of the first env only."""

    def render(self) -> Any:
        return super().render()[:1]


class CopiesThatChange(Right):
    """What step returned as a copy is overwritten by the next step."""

    def step(self, actions: Any) -> Any:
        *rest, info = super().step(actions)
        self.rewards = getattr(self, "rewards", rest[1])
        self.rewards[:] = rest[1]
        return (rest[0], self.rewards, *rest[2:], info)


class SpaceOfAnotherSize(Right):
    """The batched action space is for one env more."""

    def __init__(self, env_fns: Any, autoreset_mode: Any, copy: bool) -> None:
        super().__init__(env_fns, autoreset_mode, copy)
        from gymnasium.vector.utils import batch_space

        self.action_space = batch_space(self.single_action_space, self.num_envs + 1)


class StepsTwiceAfterAnEnd(Right):
    """The first env makes a step in secret whenever an episode ends."""

    def step(self, actions: Any) -> Any:
        result = super().step(actions)
        if result[2].any():
            self.envs[-1].step(deepcopy(actions[0]))
        return result


class NegativeZero(Right):
    """The reward of a reset is -0.0."""

    def step(self, actions: Any) -> Any:
        obs, reward, *rest = super().step(actions)
        reward[reward == 0.0] = -0.0
        return (obs, reward, *rest)


class ViewsReusedTooEarly(rookery.SerialVectorEnv):
    """With copy=False, the next step already writes over a view."""

    shows = "changed later, by step"

    view: Any = None

    def step(self, actions: Any) -> Any:
        obs, *rest = super().step(actions)
        if isinstance(self.view, np.ndarray) and not self.keeps:
            self.view[...] = obs
        self.view = obs
        return (obs, *rest)

    def __init__(self, env_fns: Any, autoreset_mode: Any, copy: bool) -> None:
        super().__init__(env_fns, copy=copy, autoreset_mode=autoreset_mode)
        self.keeps = copy


class ForgetsAPendingCall(rookery.SerialVectorEnv):
    """A call that comes while another is under way is not refused."""

    shows = "AlreadyPendingCallError"

    def step_async(self, actions: Any) -> None:
        try:
            super().step_async(actions)
        except rookery.PendingCallError:
            return


class ReceivesTwice(rookery.SerialVectorEnv):
    """recv names its first env twice."""

    shows = "each once"

    def recv(self, min_envs: int = 1, timeout: float | None = None) -> Any:
        *rest, info, ids = super().recv(min_envs, timeout)
        return (*rest, info, np.concatenate([ids[:1], ids]))


class ReceivesInAnotherOrder(rookery.SerialVectorEnv):
    """The ids that recv returns are not in the order of its rows."""

    shows = "recv"

    def recv(self, min_envs: int = 1, timeout: float | None = None) -> Any:
        *rest, ids = super().recv(min_envs, timeout)
        return (*rest, ids[::-1])
