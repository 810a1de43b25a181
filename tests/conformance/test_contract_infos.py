"""The vector form of infos: an array for each key, a mask beside it. Gymnasium's and ours alike."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from contract_backends import Open
from contract_envs import Informer


def _reset_infos(open_any: Open, *per_env: dict[str, Any]) -> dict[str, Any]:
    venv = open_any([partial(Informer, [info]) for info in per_env])
    return venv.reset()[1]


def _step_infos(open_any: Open, *per_env: dict[str, Any]) -> dict[str, Any]:
    venv = open_any([partial(Informer, [{}, info]) for info in per_env])
    assert venv.reset()[1] == {}
    return venv.step(np.zeros(len(per_env), int))[-1]


@pytest.fixture(params=[_reset_infos, _step_infos], ids=["reset", "step"])
def infos_of(request: pytest.FixtureRequest) -> Any:
    """Asks for infos by a reset or a step."""
    return request.param


# A value, and the dtype and the zero of its key's array.
SCALARS: list[tuple[Any, Any, Any]] = [
    (7, np.int64, 0),
    (1.5, np.float64, 0.0),
    (True, np.bool_, False),
    (np.int8(3), np.int8, 0),
    (np.float32(2.5), np.float32, 0.0),
    (np.uint64(2**63), np.uint64, 0),
    ("word", object, None),
    ([1, 2], object, None),
    ((1, 2), object, None),
    ({3}, object, None),
    (None, object, None),
    (np.bool_(True), object, None),
]


def test_a_scalar_gets_the_dtype_of_its_type(open_any: Open, infos_of: Any) -> None:
    told = {f"key {i}": value for i, (value, _, _) in enumerate(SCALARS)}
    infos = infos_of(open_any, {}, told, {})
    assert list(infos) == [name for key in told for name in (key, f"_{key}")]
    for key, (value, dtype, zero) in zip(told, SCALARS, strict=True):
        column, mask = infos[key], infos[f"_{key}"]
        assert column.dtype == dtype and column.shape == (3,), value
        assert column[1] == value
        assert column[0] == zero and type(column[0]) is type(column[2]), value
        assert mask.dtype == np.bool_ and mask.tolist() == [False, True, False], value


ARRAYS = [
    np.arange(3),
    np.ones((2, 2), np.float32),
    np.array(5, np.int16),
    np.array([True, False]),
    np.zeros((0,), np.float64),
]


def test_arrays_are_stacked_with_zeros_where_there_are_none(open_any: Open, infos_of: Any) -> None:
    told = {f"key {i}": value for i, value in enumerate(ARRAYS)}
    infos = infos_of(open_any, told, {}, told)
    for key, value in told.items():
        rows = infos[key]
        assert rows.dtype == value.dtype and rows.shape == (3, *value.shape), key
        assert (rows[0] == value).all() and (rows[2] == value).all(), key
        assert not rows[1].any(), key
        assert infos[f"_{key}"].tolist() == [True, False, True], key


def test_dicts_are_merged_level_by_level(open_any: Open, infos_of: Any) -> None:
    infos = infos_of(
        open_any, {"a": {"b": 1, "c": {"d": "x"}}}, {"a": {"b": 2}}, {"a": {"c": {"d": "y"}}}
    )
    assert list(infos) == ["a", "_a"] and infos["_a"].tolist() == [True, True, True]
    a = infos["a"]
    assert a["b"].tolist() == [1, 2, 0] and a["_b"].tolist() == [True, True, False]
    assert a["_c"].tolist() == [True, False, True]
    assert a["c"]["d"].tolist() == ["x", None, "y"]
    assert a["c"]["_d"].tolist() == [True, False, True]


def test_an_empty_dict_is_marked_but_empty(open_any: Open, infos_of: Any) -> None:
    infos = infos_of(open_any, {"a": {}}, {})
    assert infos["a"] == {} and infos["_a"].tolist() == [True, False]


def test_the_first_env_that_has_a_key_decides_its_dtype(open_any: Open, infos_of: Any) -> None:
    """So says Gymnasium's code; a float after an int loses what follows the point."""
    infos = infos_of(open_any, {}, {"key": 1}, {"key": 2.75})
    assert infos["key"].dtype == np.int64 and infos["key"].tolist() == [0, 1, 2]


def test_values_without_a_common_type_are_kept_if_the_first_is_an_object(
    open_any: Open, infos_of: Any
) -> None:
    infos = infos_of(open_any, {"key": "one"}, {"key": 2}, {"key": None})
    assert infos["key"].dtype == object and infos["key"].tolist() == ["one", 2, None]
    assert infos["_key"].tolist() == [True, True, True]


def test_envs_may_have_different_keys(open_any: Open, infos_of: Any) -> None:
    infos = infos_of(open_any, {"a": 1}, {"b": 2.0}, {"a": 3, "c": "x"})
    assert list(infos) == ["a", "_a", "b", "_b", "c", "_c"]
    assert infos["a"].tolist() == [1, 0, 3] and infos["_a"].tolist() == [True, False, True]
    assert infos["b"].tolist() == [0, 2, 0] and infos["_b"].tolist() == [False, True, False]
    assert infos["c"].tolist() == [None, None, "x"]


def test_infos_without_content_are_an_empty_dict(open_any: Open, infos_of: Any) -> None:
    assert infos_of(open_any, {}, {}, {}) == {}


def test_keys_come_and_go_from_step_to_step(open_any: Open) -> None:
    venv = open_any([partial(Informer, [{}, {"a": 1}, {}, {"a": 2, "b": "x"}])] * 2)
    assert venv.reset()[1] == {}
    steps = [venv.step(np.zeros(2, int))[-1] for _ in range(3)]
    assert [list(infos) for infos in steps] == [["a", "_a"], [], ["a", "_a", "b", "_b"]]
    assert steps[0]["a"].tolist() == [1, 1]


def test_infos_of_one_step_are_not_changed_by_the_next(open_any: Open) -> None:
    venv = open_any([partial(Informer, [{}, {"a": np.zeros(2)}, {"a": np.ones(2)}])] * 2)
    venv.reset()
    first = venv.step(np.zeros(2, int))[-1]
    venv.step(np.zeros(2, int))
    assert not first["a"].any()


def test_what_the_caller_does_to_infos_does_not_come_back(open_any: Open) -> None:
    venv = open_any([partial(Informer, [{}, {"a": np.zeros(2), "n": {"b": 1}}])] * 2)
    venv.reset()
    first = venv.step(np.zeros(2, int))[-1]
    first["a"][:] = 9
    first["n"]["b"][:] = 9
    first["new"] = 1
    second = venv.step(np.zeros(2, int))[-1]
    assert not second["a"].any() and second["n"]["b"].tolist() == [1, 1]
    assert "new" not in second


def test_a_key_that_is_called_final_obs_is_kept_as_objects(open_any: Open, infos_of: Any) -> None:
    infos = infos_of(open_any, {}, {"final_obs": np.zeros(2)})
    assert infos["final_obs"].dtype == object
    assert infos["final_obs"][0] is None and infos["final_obs"][1].tolist() == [0, 0]
