"""Infos in columns equal those that Gymnasium's vector envs merge."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from rookery.shared.arrays import BatchArrays, BatchSpaces
from rookery.shared.infos import UnmergeableError, VectorInfos
from rookery.shared.row_buffer import ROWS_ONLY
from rookery.shared.row_reader import RowReader
from rookery.shared.row_writer import RowWriter

NUM_ENVS = 4

values = st.one_of(
    st.booleans(),
    st.integers(-5, 5),
    st.floats(-1, 1),
    st.floats(-1, 1).map(np.float64),
    st.floats(-1, 1, width=32).map(np.float32),
    st.integers(0, 9).map(np.uint8),
    st.sampled_from([np.zeros(2), np.ones((2,), np.int16), np.ones((0,)), np.bool_(True)]),
    st.sampled_from([None, "text", [1, 2]]),
    st.dictionaries(st.sampled_from("xy"), st.integers(0, 3), max_size=2),
)
keys = st.sampled_from(["a", "b", "_a", "__a", "_b", "_", "", "final_obs", "_final_obs", 1, "_1"])
values = st.one_of(values, st.dictionaries(keys, st.integers(0, 3), max_size=2))
infos = st.dictionaries(keys, values, max_size=4)


class Rows:
    """The rows of a vector env with their writers and their reader."""

    def __init__(self, pickles: bool = True, num_batches: int = 2) -> None:
        space = spaces.Discrete(2)
        self.arrays = BatchArrays.in_memory(BatchSpaces(space, space, NUM_ENVS, num_buffers=1))
        buffer = self.arrays.row_buffer
        self.writers = [RowWriter(buffer, 0, [], pickles, ()) for _ in range(num_batches)]
        self.reader = RowReader(self.arrays)

    def send(
        self, infos: list[dict[str, Any]], finals: list[tuple[Any, Any] | None] | None = None
    ) -> list[Any]:
        """Write an info and the end of an episode for each env; return the extras."""
        for env_id, info in enumerate(infos):
            writer = self.writers[env_id % len(self.writers)]
            end = finals and finals[env_id]
            writer.post(env_id, info, writer.final(env_id, *end) if end else None)
        extras = [writer.extras() for writer in self.writers]
        for item in extras:
            self.reader.take_extras(item)
        return extras


def _merged(infos: list[dict[str, Any]]) -> dict[str, Any]:
    return VectorInfos(NUM_ENVS).merge(enumerate(infos), {})


def _same(actual: Any, expected: Any) -> None:
    assert type(actual) is type(expected)
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key in expected:
            _same(actual[key], expected[key])
    elif isinstance(expected, np.ndarray):
        assert actual.dtype == expected.dtype and actual.shape == expected.shape
        if expected.dtype == object:
            for a, e in zip(actual.flat, expected.flat, strict=True):
                _same(a, e)
        else:
            np.testing.assert_array_equal(actual, expected)
    else:
        assert actual == expected


@given(st.lists(st.lists(infos, min_size=NUM_ENVS, max_size=NUM_ENVS), max_size=4), st.booleans())
def test_any_infos_are_merged_as_gymnasium_merges_them(
    steps: list[list[dict[str, Any]]], pickles: bool
) -> None:
    rows = Rows(pickles)
    for step in steps:
        try:
            expected = _merged(step)
        except UnmergeableError:
            continue  # Gymnasium itself cannot merge these
        rows.send(step)
        _same(rows.reader.infos(0), expected)


last_obs = st.sampled_from([np.zeros(2, np.float32), np.int64(1), {"a": np.ones(1)}, None])
ends = st.lists(st.none() | st.tuples(last_obs, infos), min_size=NUM_ENVS, max_size=NUM_ENVS)
some_infos = st.lists(infos | st.just({}), min_size=NUM_ENVS, max_size=NUM_ENVS)
no_infos = st.just([{} for _ in range(NUM_ENVS)])


@given(
    st.lists(st.tuples(some_infos | no_infos, ends), max_size=4),
    st.booleans(),
    st.permutations(range(NUM_ENVS)),
    st.integers(1, NUM_ENVS),
)
def test_ends_of_episodes_are_merged_as_gymnasium_merges_them(
    steps: list[tuple[list[dict[str, Any]], list[Any]]], pickles: bool, order: list[int], some: int
) -> None:
    rows = Rows(pickles)
    for step, finals in steps:
        told: list[list[dict[str, Any]]] = []
        for info, end in zip(step, finals, strict=True):
            final = dict(zip(("final_obs", "final_info"), end, strict=True)) if end else {}
            told.append([final, info])
        rows.arrays.row_buffer.forget_added(range(NUM_ENVS), 0)
        rows.send(step, finals)
        for ids in (list(range(NUM_ENVS)), order[:some]):
            every = [(place, info) for place, i in enumerate(ids) for info in told[i]]
            try:
                expected = VectorInfos(len(ids)).merge(every, {})
            except UnmergeableError:
                continue  # Gymnasium itself cannot merge these
            _same(rows.reader.infos(0, np.array(ids)), expected)
            if ids == list(range(NUM_ENVS)):
                _same(rows.reader.infos(0), expected)


@given(st.lists(infos, min_size=NUM_ENVS, max_size=NUM_ENVS), st.booleans())
def test_each_env_gets_its_own_info_back(step: list[dict[str, Any]], pickles: bool) -> None:
    rows = Rows(pickles)
    rows.send(step)
    for actual, expected in zip(rows.reader.infos_per_env(0), step, strict=True):
        assert actual.keys() == expected.keys()
        for key in expected:
            assert type(actual[key]) is type(expected[key])
            np.testing.assert_equal(actual[key], expected[key])


def _mujoco_info(i: int) -> dict[str, Any]:
    return {"x_position": np.float64(i), "cost": 0.5 * i, "alive": True, "foot": np.full(3, i)}


def test_numbers_are_sent_in_rows_after_the_first_time() -> None:
    rows = Rows()
    first = rows.send([_mujoco_info(i) for i in range(NUM_ENVS)])
    assert all(len(extras.forms) == 1 for extras in first)
    second = rows.send([_mujoco_info(i + 1) for i in range(NUM_ENVS)])
    assert all(extras is ROWS_ONLY for extras in second)
    _same(rows.reader.infos(0), _merged([_mujoco_info(i + 1) for i in range(NUM_ENVS)]))


def test_a_changed_shape_and_a_huge_number_fall_back_without_loss() -> None:
    rows = Rows()
    rows.send([_mujoco_info(i) for i in range(NUM_ENVS)])
    odd = [{**_mujoco_info(i), "foot": np.zeros((2, 2))} for i in range(NUM_ENVS)]
    rows.send(odd)
    _same(rows.reader.infos(0), _merged(odd))
    huge = [{"n": 2**70, "s": "x"} if i == 2 else {"s": "y"} for i in range(NUM_ENVS)]
    rows.send([{"n": i, "s": "x"} for i in range(NUM_ENVS)])
    rows.send(huge)
    assert rows.reader.infos_per_env(0) == huge


def test_infos_that_do_not_fit_come_in_a_message_and_ask_for_larger_rows() -> None:
    rows = Rows()
    step = [{"text": "x" * 1000, "image": np.full((10, 10), i)} for i in range(NUM_ENVS)]
    for _ in range(2):
        extras = rows.send(step)
        assert all(len(item.tails) == NUM_ENVS // 2 for item in extras)
        _same(rows.reader.infos(0), _merged(step))
    wanted = rows.reader.wanted
    assert wanted is not None and wanted.tail_bytes >= 1000 and wanted.fixed_bytes >= 800
    rows.arrays.enlarge_rows_in_memory(wanted)
    assert all(item is ROWS_ONLY for item in rows.send(step))
    _same(rows.reader.infos(0), _merged(step))


def test_infos_of_some_envs_are_in_the_order_asked_for() -> None:
    rows = Rows()
    rows.send([_mujoco_info(i) for i in range(NUM_ENVS)])
    merged = rows.reader.infos(0, np.array([3, 1]))
    assert merged["x_position"].tolist() == [3.0, 1.0]
    rows.send([_mujoco_info(0), {"s": "one"}, {}, {"s": "three"}])
    merged = rows.reader.infos(0, np.array([3, 0, 1]))
    assert merged["s"].tolist() == ["three", None, "one"]
    assert merged["_x_position"].tolist() == [False, True, False]


def test_infos_whose_keys_always_change_still_arrive() -> None:
    rows = Rows()
    for t in range(200):
        rows.send([{f"key{t}": t}] * NUM_ENVS)
        assert rows.reader.infos(0)[f"key{t}"].tolist() == [t] * NUM_ENVS


def test_infos_in_one_process_may_hold_what_cannot_be_pickled() -> None:
    lock = gym.Env()
    lock.handle = (generator := (i for i in range(3)))  # type: ignore[attr-defined]
    rows = Rows(pickles=False)
    rows.send([{"handle": generator, "n": 1}] * NUM_ENVS)
    assert rows.reader.infos(0)["handle"][0] is generator


@pytest.mark.parametrize("pickles", [True, False])
def test_the_last_info_of_an_episode_is_safe_from_the_reset(pickles: bool) -> None:
    rows = Rows(pickles)
    obs, info = np.zeros(2), {"length": 5}
    final = rows.writers[0].final(0, obs, info)
    obs[:] = info["length"] = 9
    rows.writers[0].post(0, {"seed": 1}, final)
    rows.reader.take_extras(rows.writers[0].extras())
    merged = rows.reader.infos(0)
    assert merged["final_obs"][0].tolist() == [0.0, 0.0]
    assert merged["final_info"]["length"][0] == 5
    assert list(merged)[::2] == ["final_obs", "final_info", "seed"]
