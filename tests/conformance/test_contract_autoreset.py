"""The end of an episode in the three autoreset modes, for Gymnasium's vector envs and ours."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from conformance_envs import DictEnv
from contract_backends import BACKENDS, MODES, NUM_ENVS, Open, cues, params, scripted
from contract_envs import Cue, Informer
from trajectories import assert_same

import rookery

ENDINGS = [Cue.TERMINATE, Cue.TRUNCATE, Cue.END_BOTH_WAYS]


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("cue", ENDINGS, ids=lambda cue: cue.name.lower())
def test_flags_and_reward_are_those_of_the_last_step(open_any: Open, cue: Cue, mode: str) -> None:
    venv = open_any(autoreset_mode=MODES[mode])
    venv.reset()
    venv.step(cues(0, 0, 0))
    _, reward, terminated, truncated, _ = venv.step(cues(0, cue, 0))
    assert reward.tolist() == [2, 2, 2]
    assert terminated.tolist() == [False, cue != Cue.TRUNCATE, False]
    assert truncated.tolist() == [False, cue != Cue.TERMINATE, False]


# ---------------------------------------------------------------- next_step


@pytest.mark.parametrize("cue", ENDINGS, ids=lambda cue: cue.name.lower())
def test_next_step_returns_the_final_observation_and_then_the_reset(
    open_any: Open, cue: Cue
) -> None:
    venv = open_any(autoreset_mode=MODES["next_step"])
    venv.reset()
    obs, *_, infos = venv.step(cues(0, cue, 0))
    assert obs.tolist() == [[1, 1], [1, 1], [1, 1]]
    assert "final_obs" not in infos and "final_info" not in infos

    obs, reward, terminated, truncated, infos = venv.step(cues(0, cue, 0))
    assert obs.tolist() == [[2, 1], [0, 2], [2, 1]]
    assert reward.tolist() == [2, 0, 2]
    assert not terminated.any() and not truncated.any()
    assert infos["_resets"].tolist() == [False, True, False]
    assert infos["_count"].tolist() == [True, False, True]
    assert venv.step(cues(0, 0, 0))[0].tolist() == [[3, 1], [1, 2], [3, 1]]


def test_next_step_resets_without_seed_and_options(open_any: Open) -> None:
    venv = open_any(autoreset_mode=MODES["next_step"])
    venv.reset(seed=4, options={"level": 1})
    venv.step(cues(Cue.TERMINATE, 0, 0))
    venv.step(cues(0, 0, 0))
    assert venv.get_attr("seeds") == ([4, None], [5], [6])
    assert venv.get_attr("options")[0] == [{"level": 1}, None]


def test_a_reset_in_between_takes_the_place_of_the_automatic_one(open_any: Open) -> None:
    """With ``shared_memory=False``, AsyncVectorEnv forgets that, and resets a second time."""
    venv = open_any(autoreset_mode=MODES["next_step"])
    venv.reset()
    venv.step(cues(Cue.TERMINATE, 0, 0))
    venv.reset()
    assert venv.step(cues(0, 0, 0))[0].tolist() == [[1, 2]] * 3


# ---------------------------------------------------------------- same_step


@pytest.mark.parametrize("cue", ENDINGS, ids=lambda cue: cue.name.lower())
def test_same_step_returns_the_reset_and_keeps_the_end_in_the_infos(
    open_any: Open, cue: Cue
) -> None:
    venv = open_any(autoreset_mode=MODES["same_step"])
    venv.reset()
    obs, reward, *_, infos = venv.step(cues(0, cue, cue))
    assert obs.tolist() == [[1, 1], [0, 2], [0, 2]]
    assert reward.tolist() == [1, 1, 1]
    assert infos["_final_obs"].tolist() == [False, True, True]
    assert infos["final_obs"].dtype == object and infos["final_obs"][0] is None
    assert [row.tolist() for row in infos["final_obs"][1:]] == [[1, 1], [1, 1]]
    assert infos["_final_info"].tolist() == [False, True, True]
    assert infos["final_info"]["count"].tolist() == [0, 1, 1]
    assert infos["final_info"]["_count"].tolist() == [False, True, True]
    assert infos["resets"].tolist() == [0, 2, 2]
    assert infos["_resets"].tolist() == [False, True, True]
    assert infos["_count"].tolist() == [True, False, False]
    assert venv.step(cues(0, 0, 0))[0].tolist() == [[2, 1], [1, 2], [1, 2]]


def test_final_observations_are_the_envs_own_objects_in_same_step(open_any: Open) -> None:
    venv = open_any([DictEnv] * 2, autoreset_mode=MODES["same_step"])
    venv.reset(seed=0)
    while True:
        *_, terminated, truncated, infos = venv.step(venv.action_space.sample())
        if (terminated | truncated).any():
            break
    for final, ended in zip(infos["final_obs"], terminated | truncated, strict=True):
        assert (final is not None) == ended
        assert final is None or final["position"].shape == (3,)


def test_a_final_info_that_is_empty_is_still_marked(open_any: Open) -> None:
    venv = open_any([partial(Informer, [{}, {}], ends_at=1)] * 2, autoreset_mode=MODES["same_step"])
    venv.reset()
    infos = venv.step(np.array([0, 0]))[-1]
    assert infos["final_info"] == {}
    assert infos["_final_info"].tolist() == [True, True]


# ---------------------------------------------------------------- disabled


def test_disabled_returns_the_end_and_waits_for_a_reset(open_any: Open) -> None:
    venv = open_any(autoreset_mode=MODES["disabled"])
    venv.reset()
    obs, *_, infos = venv.step(cues(Cue.TERMINATE, 0, 0))
    assert obs.tolist() == [[1, 1]] * 3 and "final_obs" not in infos
    obs, _ = venv.reset(options={"reset_mask": np.array([True, False, False])})
    assert obs.tolist() == [[0, 2], [1, 1], [1, 1]]
    assert venv.step(cues(0, 0, 0))[0].tolist() == [[1, 2], [2, 1], [2, 1]]


def test_disabled_has_a_full_reset_too(open_any: Open) -> None:
    venv = open_any(autoreset_mode=MODES["disabled"])
    venv.reset()
    venv.step(cues(Cue.TERMINATE, Cue.TRUNCATE, 0))
    assert venv.reset()[0].tolist() == [[0, 2]] * 3
    assert venv.step(cues(0, 0, 0))[0].tolist() == [[1, 2]] * 3


@pytest.mark.parametrize("name", params(name for name in BACKENDS if name != "AsyncVectorEnv"))
def test_disabled_refuses_to_step_an_ended_episode(name: str) -> None:
    """AsyncVectorEnv means to, but never notes the end; it steps the ended env."""
    venv = BACKENDS[name](scripted(), autoreset_mode=MODES["disabled"])
    venv.reset()
    venv.step(cues(0, Cue.TERMINATE, 0))
    with pytest.raises((AssertionError, rookery.UsageError), match="reset"):
        venv.step(cues(0, 0, 0))
    venv.close()


# ---------------------------------------------------------------- many episodes


@pytest.mark.parametrize("mode", list(MODES))
def test_rewards_add_up_to_the_same_returns_in_every_mode(open_any: Open, mode: str) -> None:
    venv = open_any([lambda: gym.make("CartPole-v1")] * NUM_ENVS, autoreset_mode=MODES[mode])
    venv.reset(seed=3)
    returns: list[list[float]] = [[] for _ in range(NUM_ENVS)]
    running = np.zeros(NUM_ENVS)
    while min(map(len, returns)) < 3:
        _, reward, terminated, truncated, _ = venv.step(np.ones(NUM_ENVS, int))
        running += reward
        ended = terminated | truncated
        for i in np.flatnonzero(ended):
            returns[i].append(running[i])
            running[i] = 0
        if mode == "disabled" and ended.any():
            venv.reset(options={"reset_mask": ended})
    assert [episodes[:3] for episodes in returns] == _plain_returns(3)


def _plain_returns(num_episodes: int) -> list[list[float]]:
    """The same of a loop over single envs."""
    all_returns = []
    for seed in range(3, 3 + NUM_ENVS):
        env, returns = gym.make("CartPole-v1"), []
        for episode in range(num_episodes):
            env.reset(seed=seed if episode == 0 else None)
            total, is_over = 0.0, False
            while not is_over:
                _, reward, terminated, truncated, _ = env.step(1)
                total, is_over = total + float(reward), terminated or truncated
            returns.append(total)
        all_returns.append(returns)
    return all_returns


def test_same_step_equals_next_step_with_the_reset_rows_left_out(open_any: Open) -> None:
    def experience(mode: str) -> list[list[Any]]:
        venv = open_any(autoreset_mode=MODES[mode])
        venv.reset()
        rows: list[list[Any]] = [[] for _ in range(NUM_ENVS)]
        was_over = np.zeros(NUM_ENVS, bool)
        counts = [0] * NUM_ENVS
        for _ in range(12):
            actions = np.array([int(n % (i + 2) == i + 1) for i, n in enumerate(counts)])
            obs, reward, terminated, _, infos = venv.step(actions)
            for i in range(NUM_ENVS):
                if mode == "next_step" and was_over[i]:
                    continue
                last = infos["final_obs"][i] if mode == "same_step" and terminated[i] else obs[i]
                rows[i].append([last.tolist(), reward[i], bool(terminated[i])])
                counts[i] += 1
            was_over = terminated
        return [row[:6] for row in rows]

    assert_same(experience("same_step"), experience("next_step"))
