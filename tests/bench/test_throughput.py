"""Results computed from samples: rows, limits, tables and JSON; nothing is measured."""

from __future__ import annotations

import io
import json
from typing import Any

import gymnasium as gym
import pytest

from rookery.bench.conditions import conditions
from rookery.bench.contenders import LOOP, SERIAL, BenchSubject, Contender, contenders_for
from rookery.bench.picture import draw_throughput
from rookery.bench.sample import (
    Measured,
    SampleFailed,
    SampleRequest,
    carried_out,
    measure_in_rounds,
    shuffled,
)
from rookery.bench.throughput import (
    limit_of,
    limits_of,
    ratio_of,
    rows_of,
    table_of,
    to_dict,
)
from rookery.cli.bench import is_disturbed
from rookery.env.recipe import EnvRecipe
from rookery.run.env_source import EnvSource

SUBJECT = BenchSubject("CartPole-v1", EnvRecipe("CartPole-v1"))


def _order(name: str, num_envs: int = 8) -> SampleRequest:
    return SampleRequest(SUBJECT, Contender(name, "rookery"), num_envs, 0.0, 0.0)


def _measured(name: str, *rates: float, num_envs: int = 8, failure: str = "") -> Measured:
    samples = {turn: {"steps_per_second": rate} for turn, rate in enumerate(rates)}
    return Measured(_order(name, num_envs), samples, failure)


def _loop(wall_s: float, cpu_s: float, num_envs: int = 8) -> Measured:
    return Measured(_order(LOOP, num_envs), {0: {"wall_s": wall_s, "cpu_s": cpu_s}})


# ---------------------------------------------------------------- the limit


def test_envs_that_compute_are_bound_by_cores_and_few_envs_by_themselves() -> None:
    assert limit_of(num_envs=8, wall_s=1e-5, cpu_s=1e-5, cores=4) == pytest.approx(400_000)
    assert limit_of(num_envs=2, wall_s=1e-5, cpu_s=1e-5, cores=4) == pytest.approx(200_000)


def test_envs_that_wait_may_all_wait_at_once() -> None:
    assert limit_of(num_envs=8, wall_s=0.01, cpu_s=1e-5, cores=2) == pytest.approx(800)
    assert limit_of(num_envs=8, wall_s=0.01, cpu_s=0.0, cores=2) == pytest.approx(800)
    assert limit_of(num_envs=10_000, wall_s=0.01, cpu_s=1e-5, cores=2) == pytest.approx(200_000)


def test_the_limit_is_of_the_median_step_of_each_number_of_envs() -> None:
    loop = _loop(1e-5, 1e-5)
    loop.samples |= {1: {"wall_s": 2e-5, "cpu_s": 2e-5}, 2: {"wall_s": 9e-5, "cpu_s": 9e-5}}
    limits = limits_of([loop, _loop(1e-5, 1e-5, num_envs=1)], cores=2)
    assert limits[8].steps_per_second == pytest.approx(100_000)
    assert limits[1].steps_per_second == pytest.approx(100_000)
    assert limits_of([Measured(_order(LOOP), failure="it hangs")], cores=2) == {}


# ---------------------------------------------------------------- rows


def test_a_row_has_median_spread_speed_up_and_share() -> None:
    measured = [_loop(1e-5, 1e-5), _measured(SERIAL, 10, 20, 30), _measured("mine", 20, 80, 60)]
    limits = limits_of(measured, cores=1)
    serial, mine = rows_of(measured, limits)
    assert serial.speed_up == 1.0
    assert (mine.median, mine.low, mine.high) == (60, 20, 80)
    assert mine.speed_up == 2.0  # of 2, 4 and 2 in the rounds
    assert mine.share == pytest.approx(60 / 100_000)
    assert mine.samples == (20, 80, 60)


def test_speed_ups_are_of_rounds_that_both_have() -> None:
    assert ratio_of({0: 10, 2: 40}, {1: 1, 2: 10}) == 4.0
    assert ratio_of({0: 10}, {1: 1}) is None


def test_a_contender_that_fails_is_a_row_with_its_reason() -> None:
    measured = [_measured(SERIAL, 10), _measured("mine", failure="ValueError: no licence")]
    rows = rows_of(measured, {})
    assert rows[1].median is None and rows[1].failure == "ValueError: no licence"
    cells = table_of(rows)
    assert cells[0][:4] == (SERIAL, "10", "10 – 10", "1.00x")
    assert cells[1] == ("mine", "–", "", "", "", "failed: ValueError: no licence")


def test_a_failure_in_a_later_round_keeps_earlier_samples() -> None:
    (row,) = rows_of([_measured("mine", 10, failure="it died")], {})
    assert row.median == 10 and row.speed_up is None
    assert table_of([row])[0][-1] == "failed: it died"


def test_json_has_limits_and_all_samples_by_number_of_envs() -> None:
    measured = [
        _loop(1e-5, 1e-5), _measured(SERIAL, 10, 20), _measured(SERIAL, 5, num_envs=64),
    ]  # fmt: skip
    limits = limits_of(measured, cores=1)
    told = json.loads(json.dumps(to_dict(rows_of(measured, limits), limits)))
    assert [each["num_envs"] for each in told] == [8, 64]
    assert told[0]["contenders"][0]["samples"] == [10, 20]
    assert told[0]["limit"]["steps_per_second"] == pytest.approx(100_000)
    assert told[1]["limit"] is None


def test_the_picture_takes_rows_of_all_kinds() -> None:
    measured = [
        _loop(1e-5, 1e-5), _measured(SERIAL, 50_000, 60_000), _measured("mine", failure="$ no"),
    ]  # fmt: skip
    limits = limits_of(measured, cores=1)
    picture = io.BytesIO()
    draw_throughput(picture, "CartPole-v1", rows_of(measured, limits), limits)
    assert picture.getvalue().startswith(b"\x89PNG")


# ---------------------------------------------------------------- rounds


def test_every_round_has_each_contender_once_in_random_order() -> None:
    orders = shuffled(9, 20, seed=0)
    assert all(sorted(order) == list(range(9)) for order in orders)
    assert len({tuple(order) for order in orders}) > 15
    assert orders == shuffled(9, 20, seed=0) != shuffled(9, 20, seed=1)


def test_a_failed_contender_is_not_repeated() -> None:
    taken: list[str] = []

    def take(order: SampleRequest, timeout_s: float) -> dict[str, Any]:
        taken.append(order.contender.name)
        if order.contender.name == "b":
            raise SampleFailed("no licence")
        return {"steps_per_second": 1.0}

    told: list[bool] = []
    measured = measure_in_rounds(
        [_order("a"), _order("b")],
        3,
        1.0,
        take=take,
        report=lambda _, s: told.append(s is not None),
    )
    assert sorted(taken) == ["a", "a", "a", "b"] and told.count(True) == 3 and len(told) == 6
    assert len(measured[0].samples) == 3 and measured[1].failure == "no licence"


def test_samples_before_ctrl_c_are_kept() -> None:
    def take(order: SampleRequest, timeout_s: float) -> dict[str, Any]:
        if len(measured[0].samples) == 2:
            raise KeyboardInterrupt
        return {"steps_per_second": 1.0}

    measured: list[Measured] = []
    with pytest.raises(KeyboardInterrupt):
        measure_in_rounds([_order("a")], 5, 1.0, take=take, into=measured)
    assert len(measured[0].samples) == 2


def test_conditions_name_cores_and_versions() -> None:
    told = json.loads(json.dumps(conditions()))
    assert told["cores"] > 0 and told["versions"]["gymnasium"] == gym.__version__


@pytest.mark.parametrize(("used", "said"), [(3.0, True), (0.2, False)])
def test_a_busy_machine_is_reported(used: float, said: bool) -> None:
    # The load average may still be that of what was measured before.
    assert is_disturbed({"load_average": 3.0, "cores_in_use": used, "cores": 4.0}) is said


# ---------------------------------------------------------------- who is measured


def test_an_env_may_be_a_function_of_a_module() -> None:
    subject = BenchSubject.of(EnvSource("gymnasium.envs.classic_control:MountainCarEnv"))
    assert callable(subject.recipe.source) and subject.batch is None


def test_a_game_is_preprocessed_as_in_training_and_so_is_its_batch() -> None:
    pytest.importorskip("ale_py")
    subject = BenchSubject.of(EnvSource("ALE/Pong-v5", preprocess=True))
    assert subject.batch is not None and subject.recipe.wrappers
    order = SampleRequest(
        subject, Contender("native", "rookery", {"backend": "native"}), 1, 0.0, 0.0
    )
    assert carried_out(order)["steps_per_second"] > 0


def test_envs_with_a_native_batch_have_another_contender() -> None:
    def names(env: Any, **options: Any) -> list[str]:
        return [c.name for c in contenders_for(BenchSubject.of(EnvSource(env, **options)))]

    plain = names("MountainCar-v0")
    assert plain[:3] == [LOOP, SERIAL, "rookery process"] and "rookery native" not in plain
    assert set(names("CartPole-v1")) - set(plain) == {"rookery native"}
    assert names("CartPole-v1", wrappers=[gym.wrappers.FlattenObservation]) == plain
