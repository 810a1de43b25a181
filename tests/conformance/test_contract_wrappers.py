"""Gymnasium's vector wrappers give the same over rookery as over SyncVectorEnv."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from conformance_envs import IS_GYMNASIUM_1_3, DictEnv, ImageEnv
from contract_backends import MODES, NUM_ENVS, Open, cues, scripted
from contract_envs import Cue, Scripted
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers
from trajectories import assert_same

NUM_STEPS = 60
SEED = 13


def _cartpole() -> gym.Env[Any, Any]:
    return gym.make("CartPole-v1")


def _pendulum() -> gym.Env[Any, Any]:
    return gym.wrappers.TimeLimit(gym.make("Pendulum-v1"), 20)


def _double(obs: Any) -> Any:
    return obs * 2


def _wide(space: gym.spaces.Box) -> gym.spaces.Box:
    return gym.spaces.Box(-np.inf, np.inf, space.shape, np.float64)


def _minus_one(venv: Any) -> Any:
    """The lower bound that actions are rescaled to, an array as Gymnasium wants it."""
    return np.full(venv.single_action_space.shape, -1, np.float32)


Wrap = Callable[[Any], Any]

# The env that a wrapper is tried on, and how it is put on.
REWARD_AND_ACTION: dict[str, tuple[Any, Wrap]] = {
    "ClipAction": (_pendulum, wrappers.ClipAction),
    "ClipReward": (_pendulum, lambda v: wrappers.ClipReward(v, -1.0, -0.5)),
    "DictInfoToList": (DictEnv, wrappers.DictInfoToList),
    "NormalizeReward": (_cartpole, wrappers.NormalizeReward),
    "RecordEpisodeStatistics": (_cartpole, wrappers.RecordEpisodeStatistics),
    "RescaleAction": (
        _pendulum,
        lambda v: wrappers.RescaleAction(v, _minus_one(v), -_minus_one(v)),
    ),
    "TransformAction": (_cartpole, lambda v: wrappers.TransformAction(v, lambda a: 1 - a)),
    "TransformReward": (_cartpole, lambda v: wrappers.TransformReward(v, lambda r: r - 0.5)),
    "VectorizeTransformAction": (
        _cartpole,
        lambda v: wrappers.VectorizeTransformAction(
            v, gym.wrappers.TransformAction, func=lambda a: 1 - a, action_space=None
        ),
    ),
    "VectorizeTransformReward": (
        _cartpole,
        lambda v: wrappers.VectorizeTransformReward(
            v, gym.wrappers.TransformReward, func=lambda r: r * 2
        ),
    ),
}
OBSERVATION: dict[str, tuple[Any, Wrap]] = {
    "DtypeObservation": (_cartpole, lambda v: wrappers.DtypeObservation(v, np.float64)),
    "FilterObservation": (DictEnv, lambda v: wrappers.FilterObservation(v, ["position"])),
    "FlattenObservation": (DictEnv, wrappers.FlattenObservation),
    "GrayscaleObservation": (ImageEnv, wrappers.GrayscaleObservation),
    "RescaleObservation": (ImageEnv, lambda v: wrappers.RescaleObservation(v, 0, 1)),
    "ReshapeObservation": (_cartpole, lambda v: wrappers.ReshapeObservation(v, (2, 2))),
    "TransformObservation": (
        _cartpole,
        lambda v: wrappers.TransformObservation(
            v, _double, None, _wide(v.single_observation_space)
        ),
    ),
    "VectorizeTransformObservation": (
        _cartpole,
        lambda v: wrappers.VectorizeTransformObservation(
            v,
            gym.wrappers.TransformObservation,
            func=_double,
            observation_space=_wide(v.single_observation_space),
        ),
    ),
    "VectorizeTransformObservation, in place": (
        _cartpole,
        lambda v: wrappers.VectorizeTransformObservation(
            v, gym.wrappers.TransformObservation, func=_double, observation_space=None
        ),
    ),
}
NORMALIZING: dict[str, tuple[Any, Wrap]] = {
    "NormalizeObservation": (_cartpole, wrappers.NormalizeObservation),
    "a stack of three": (
        _cartpole,
        lambda v: wrappers.NormalizeReward(
            wrappers.NormalizeObservation(wrappers.RecordEpisodeStatistics(v))
        ),
    ),
}


def _run(venv: Any) -> list[Any]:
    """Spaces, a seeded reset, and steps with actions that depend on the space only."""
    venv.action_space.seed(SEED)
    results: list[Any] = [
        [str(venv.single_observation_space), str(venv.action_space)],
        copy.deepcopy(venv.reset(seed=SEED)),
    ]
    for _ in range(NUM_STEPS):
        result = copy.deepcopy(venv.step(venv.action_space.sample()))
        results.append(_without_times(result))
        ended = result[2] | result[3]
        if venv.metadata["autoreset_mode"] is AutoresetMode.DISABLED and ended.any():
            # No mask: Gymnasium takes it out of the options, and wrappers above see none.
            results.append(copy.deepcopy(venv.reset()))
    return results


@functools.cache
def _expected(env: Any, wrap: Wrap, mode: str) -> list[Any]:
    reference = wrap(SyncVectorEnv([env] * NUM_ENVS, autoreset_mode=MODES[mode]))
    results = _run(reference)
    reference.close()
    return results


def _without_times(result: Any) -> Any:
    """An episode's duration differs from run to run."""
    infos = result[-1]
    if isinstance(infos, dict) and "episode" in infos:
        infos["episode"].pop("t")
    return result


def _check(open_ours: Open, env: Any, wrap: Wrap, mode: str) -> None:
    expected = _expected(env, wrap, mode)
    venv = wrap(open_ours([env] * NUM_ENVS, autoreset_mode=MODES[mode]))
    assert_same(_run(venv), expected)
    venv.close()
    assert venv.unwrapped.closed


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("name", list(REWARD_AND_ACTION))
def test_a_wrapper_gives_the_same_as_over_gymnasium(open_ours: Open, name: str, mode: str) -> None:
    _check(open_ours, *REWARD_AND_ACTION[name], mode)


@pytest.mark.parametrize("mode", ["next_step", "disabled"])
@pytest.mark.parametrize("name", list(OBSERVATION))
def test_so_does_a_wrapper_of_observations(open_ours: Open, name: str, mode: str) -> None:
    _check(open_ours, *OBSERVATION[name], mode)


@pytest.mark.parametrize("name", list(NORMALIZING))
def test_so_does_a_wrapper_that_normalizes(open_ours: Open, name: str) -> None:
    _check(open_ours, *NORMALIZING[name], "next_step")


@pytest.mark.parametrize("env", [_cartpole, DictEnv, ImageEnv])
def test_observation_wrappers_refuse_the_same_step_mode(open_any: Open, env: Any) -> None:
    """Some of them could transform ``final_obs``, but their base class refuses before that."""
    venv = open_any([env] * 2, autoreset_mode=MODES["same_step"])
    wraps = [wrap for own, wrap in [*OBSERVATION.values(), *NORMALIZING.values()] if own is env]
    assert wraps
    kind, said = (AssertionError, None) if IS_GYMNASIUM_1_3 else (ValueError, "autoreset_mode")
    for wrap in wraps:
        with pytest.raises(kind, match=said):
            wrap(venv)


def test_images_are_resized_alike(open_ours: Open) -> None:
    pytest.importorskip("cv2")
    _check(open_ours, ImageEnv, lambda v: wrappers.ResizeObservation(v, (5, 6)), "next_step")


def test_tensors_hold_the_same_numbers(open_ours: Open) -> None:
    pytest.importorskip("array_api_compat")
    torch = pytest.importorskip("torch")
    plain = SyncVectorEnv([_cartpole] * NUM_ENVS)
    venv = wrappers.NumpyToTorch(open_ours([_cartpole] * NUM_ENVS))
    assert venv.reset(seed=1)[0].tolist() == plain.reset(seed=1)[0].tolist()
    for _ in range(NUM_STEPS):
        expected = plain.step(np.ones(NUM_ENVS, int))
        actual = venv.step(torch.ones(NUM_ENVS, dtype=torch.int64))
        for ours, theirs in zip(actual[:4], expected[:4], strict=True):
            assert isinstance(ours, torch.Tensor)
            assert ours.numpy().dtype == theirs.dtype and (ours.numpy() == theirs).all()
    plain.close()


def test_statistics_of_a_masked_reset_keep_the_other_episodes(open_ours: Open) -> None:
    """Over Gymnasium's envs the wrapper never sees the mask and forgets all episodes."""
    venv = wrappers.RecordEpisodeStatistics(open_ours(autoreset_mode=MODES["disabled"]))
    venv.reset()
    venv.step(cues(0, 0, 0))
    ended = venv.step(cues(Cue.TERMINATE, 0, 0))[2]
    venv.reset(options={"reset_mask": ended})
    infos = venv.step(cues(0, 0, Cue.TERMINATE))[-1]
    assert infos["episode"]["l"].tolist() == [0, 0, 3]
    assert infos["episode"]["r"].tolist() == [0, 0, 1 + 2 + 3]


def test_attributes_can_be_reached_through_a_wrapper(open_any: Open) -> None:
    venv = wrappers.RecordEpisodeStatistics(open_any())
    assert venv.unwrapped.call("add", 1) == (1, 1, 1)
    assert venv.num_envs == NUM_ENVS
    assert repr(venv) == f"<RecordEpisodeStatistics, {venv.unwrapped}>"


def test_a_wrapper_in_each_env_is_not_a_vector_wrapper(open_any: Open) -> None:
    venv = open_any([lambda: gym.wrappers.RecordEpisodeStatistics(Scripted())] * NUM_ENVS)
    venv.reset()
    venv.step(cues(0, 0, 0))
    infos = venv.step(cues(0, Cue.TERMINATE, 0))[-1]
    assert infos["_episode"].tolist() == [False, True, False]
    assert infos["episode"]["r"].tolist() == [0, 3, 0]
    assert infos["episode"]["l"].tolist() == [0, 2, 0]


def test_a_screen_shows_all_envs(open_any: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cv2")
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    venv = wrappers.HumanRendering(open_any(scripted(render_mode="rgb_array")), (24, 16))
    venv.reset()
    venv.step(cues(0, 0, 0))
    shown = pygame.surfarray.array3d(venv.window)
    assert venv.render_mode == "human"
    assert shown.shape == (24, 16, 3) and shown.any()
    venv.close()


def test_a_video_is_recorded_of_all_envs(open_any: Open, tmp_path: Path) -> None:
    pytest.importorskip("moviepy")
    venv = open_any([lambda: gym.make("CartPole-v1", render_mode="rgb_array")] * 2)
    folder = tmp_path / "videos"
    venv = wrappers.RecordVideo(venv, str(folder), step_trigger=lambda step: step == 1)
    venv.reset(seed=0)
    for _ in range(5):
        venv.step(np.ones(2, int))
    venv.close()
    assert [path.name for path in folder.glob("*.mp4")] == ["rl-video-step-1.mp4"]
