"""The model behind backend="auto", on imaginary machines: no clock is read here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rookery.vector.auto.plans import (
    Machine,
    Measurement,
    Plan,
    Wishes,
    best_plan,
    make_plans,
    thread_plan,
)

GIB = 2**30
OPEN = Wishes()
TWO = Machine(cpus=2, capacity=2.0, available_bytes=8 * GIB)
MANY = Machine(cpus=64, capacity=64.0, available_bytes=64 * GIB)
ONE = Machine(cpus=1, capacity=1.0, available_bytes=8 * GIB)
QUOTA = Machine(cpus=2, capacity=1.2, available_bytes=8 * GIB)


def _measured(step_us: float, waiting_us: float = 0.0, **other_us: float) -> Measurement:
    """An env on a machine that takes 10 us for a call and 8 us for a round trip."""
    times = {"reading_s": 0.1, "call_s": 10.0, "worker_s": 3.0, "round_trip_s": 8.0, **other_us}
    return Measurement(
        env_s=step_us * 1e-6,
        worker_env_s=step_us * 1e-6,
        waiting_s=waiting_us * 1e-6,
        memory_bytes=50 * 2**20,
        **{name: 1e-6 * value for name, value in times.items()},
    )


def _slower(measured: Measurement, factor: float) -> Measurement:
    times = {name: value for name, value in vars(measured).items() if name.endswith("_s")}
    return replace(measured, **{name: factor * value for name, value in times.items()})


def _best(num_envs: int, measured: Measurement, machine: Machine, wishes: Wishes = OPEN) -> Plan:
    plans = make_plans(num_envs, measured, machine, wishes)
    return best_plan(plans, measured)


def test_cheap_steps_stay_here_and_dear_ones_are_shared() -> None:
    assert _best(8, _measured(1), TWO).backend == "serial"
    plan = _best(8, _measured(300), TWO)
    assert (plan.backend, plan.num_workers, plan.caller_steps) == ("process", 1, True)


@pytest.mark.parametrize("machine", [ONE, TWO, QUOTA, MANY])
@pytest.mark.parametrize("step_us", [1, 3, 10, 30, 300, 3000])
@pytest.mark.parametrize("num_envs", [2, 8, 64])
def test_a_machine_five_times_slower_chooses_alike(
    num_envs: int, step_us: float, machine: Machine
) -> None:
    measured = _measured(step_us)
    fast, slow = (_best(num_envs, each, machine) for each in (measured, _slower(measured, 5)))
    assert replace(slow, predicted_s=0) == replace(fast, predicted_s=0)
    assert slow.predicted_s == pytest.approx(5 * fast.predicted_s)


def test_slow_wake_ups_keep_envs_here_that_would_be_shared_otherwise() -> None:
    measured = _measured(30)
    assert _best(8, measured, TWO).backend == "process"
    assert _best(8, replace(measured, round_trip_s=1e-3), TWO).backend == "serial"
    assert _best(8, replace(_measured(3000), round_trip_s=1e-3), TWO).backend == "process"


@pytest.mark.parametrize("step_us", [1, 30, 3000])
def test_one_cpu_computes_alone(step_us: float) -> None:
    assert _best(8, _measured(step_us), ONE).backend == "serial"


def test_one_cpu_is_enough_to_wait_in_many_places() -> None:
    plan = _best(8, _measured(30, waiting_us=5000), ONE)
    assert plan.num_workers + plan.caller_steps == 8


def test_a_quota_is_no_second_cpu() -> None:
    gain = {
        machine: _best(8, _measured(3000), machine).predicted_s
        / _best(8, _measured(3000), ONE).predicted_s
        for machine in (TWO, QUOTA)
    }
    assert gain[TWO] == pytest.approx(1 / 2, rel=0.05)
    assert gain[QUOTA] == pytest.approx(1 / 1.2, rel=0.05)


def test_many_cpus_take_a_worker_per_env() -> None:
    plan = _best(64, _measured(3000), MANY)
    assert plan.num_workers + plan.caller_steps == 64
    assert _best(8, _measured(3000), MANY).num_workers == 7


def test_many_cpus_do_not_share_what_costs_less_than_asking_for_it() -> None:
    assert _best(64, _measured(0.5), MANY).backend == "serial"


def test_envs_that_wait_get_more_workers_than_there_are_cpus() -> None:
    plan = _best(64, _measured(20, waiting_us=5000), TWO)
    assert plan.num_workers > 16


def test_memory_limits_the_workers() -> None:
    little = replace(TWO, available_bytes=800 * 2**20)
    assert _best(64, _measured(20, waiting_us=5000), little).num_workers <= 8


def test_what_the_caller_reads_of_each_env_cannot_be_shared() -> None:
    large = _measured(100, reading_s=90.0)
    in_worker = replace(large, worker_env_s=10e-6)  # of which 90 are reading
    assert _best(8, in_worker, TWO).backend == "serial"
    assert _best(8, replace(in_worker, env_s=300e-6, worker_env_s=210e-6), TWO).num_workers == 1


def test_values_that_have_to_be_encoded_stay_here() -> None:
    encoded = replace(_measured(8), worker_env_s=20e-6, reading_s=10e-6)
    assert _best(64, encoded, TWO).backend == "serial"


def test_beside_busy_processes_two_get_more_than_one_but_not_twice_as_much() -> None:
    busy = replace(_measured(3000), core_share=2 / 3)  # two others want two cores
    serial, shared = (
        next(plan.predicted_s for plan in make_plans(8, busy, TWO, OPEN) if plan.backend == backend)
        for backend in ("serial", "process")
    )
    assert serial == pytest.approx(8 * 3e-3 / (2 / 3), rel=0.01)
    assert shared == pytest.approx(4 * 3e-3 / (1 / 2), rel=0.01)


def test_wishes_are_kept() -> None:
    for plan in make_plans(8, _measured(300), MANY, Wishes(num_workers=3)):
        assert plan.num_workers in (0, 3)
    for wish in (True, False):
        plans = make_plans(8, _measured(300), MANY, Wishes(caller_steps=wish))
        assert {plan.caller_steps for plan in plans if plan.num_workers} == {wish}


def test_no_plan_has_more_processes_than_envs() -> None:
    for measured in (_measured(300), _measured(3, waiting_us=5000)):
        for plan in make_plans(3, measured, MANY, Wishes(num_workers=7)) + make_plans(
            3, measured, MANY, OPEN
        ):
            assert plan.num_workers + plan.caller_steps <= 3


def test_of_two_plans_as_good_the_smaller_one_is_taken() -> None:
    plans = [Plan("process", 8, False, 1.0), Plan("process", 4, False, 1.01)]
    plans.append(Plan("serial", 0, False, 4.0))
    assert best_plan(plans, _measured(1, round_trip_s=0.0)).num_workers == 4


def test_a_gain_too_small_is_not_worth_a_process() -> None:
    plans = [Plan("process", 1, True, 0.95), Plan("serial", 0, False, 1.0)]
    assert best_plan(plans, _measured(1, round_trip_s=0.0)).backend == "serial"


def test_threads_compute_one_after_the_other_and_wait_together() -> None:
    waits = thread_plan(8, _measured(10, waiting_us=5000), TWO).predicted_s
    assert 5e-3 < waits < 5.5e-3
    computes = thread_plan(8, _measured(5000), TWO).predicted_s
    assert computes > 8 * 5e-3


def test_a_gain_of_a_round_trip_is_not_worth_a_process() -> None:
    plans = [Plan("process", 1, True, 50e-6), Plan("serial", 0, False, 60e-6)]
    assert best_plan(plans, _measured(1, round_trip_s=10.0)).backend == "serial"
    assert best_plan(plans, _measured(1, round_trip_s=5.0)).backend == "process"


def test_beside_others_a_gain_of_a_lost_core_is_not_worth_a_process() -> None:
    busy = replace(_measured(30), core_share=2 / 3)
    assert _best(64, busy, TWO).backend == "process"
    assert _best(64, replace(busy, core_back_s=4e-3), TWO).backend == "serial"
    assert _best(64, replace(busy, core_back_s=4e-3, core_share=1.0), TWO).backend == "process"
    assert _best(64, replace(_measured(3000), core_share=2 / 3), TWO).backend == "process"
