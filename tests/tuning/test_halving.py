"""Candidates, halving, the knee and the table, given figures that were never measured."""

import pytest

from rookery.errors import ConfigError
from rookery.tuning.candidates import Candidate, Mode, Possible, candidates, env_counts, outwards
from rookery.tuning.halving import (
    LEAST_S,
    MOST_S,
    CandidateFailed,
    Halving,
    leaders,
    num_rounds,
    slice_seconds,
)
from rookery.tuning.memory import Ceiling, MemoryModel
from rookery.tuning.outcome import COLUMNS, TAKEN, print_trials, rows_of
from rookery.tuning.trials import Slice, Trial, best_of_each, knee, limits_of

SERIAL = Mode("caller", "serial")
WORKERS = Mode("workers", "process", 2)
DOUBLE = Mode("double", "process", 4)
CALLER = Mode("caller", "process", 2)
POSSIBLE = Possible(cpus=4, collectors=("caller", "workers", "double", "served"))


def trial(num_envs, rate, mode=SERIAL, last_round=1, **changes):
    slices = (
        [Slice(int(rate), 1.0, windows=(rate * 0.9, rate, rate * 1.1), **changes)] if rate else []
    )
    return Trial(Candidate(num_envs, mode), slices, last_round)


# ---------------------------------------------------------------- candidates


def test_numbers_of_envs_are_powers_of_two_and_the_run_s_own():
    assert env_counts(8, 4) == [4, 8, 16, 32, 64, 128, 256]
    assert env_counts(10, 4, most=20) == [4, 8, 10, 16, 20]
    assert env_counts(8, 4, most=2) == [2]
    assert 500 in env_counts(500, 1)


def test_the_search_goes_outwards_from_the_run_s_own_number_in_large_steps_first():
    assert outwards([2, 4, 8, 16, 32, 64, 128], 8) == [8, 2, 32, 128, 4, 16, 64]


def test_every_mode_of_a_run_is_tried_once():
    found = candidates([8], POSSIBLE, {})
    modes = [str(candidate.mode) for candidate in found]
    assert modes == [
        "caller, this process",
        "caller, 2 workers",
        "caller, 4 workers",
        "caller, 1 worker and this process",
        "caller, 3 workers and this process",
        "workers, 2 workers",
        "workers, 4 workers",
        "double, 4 workers",
        "double, 8 workers",
        "served, 2 workers",
        "served, 4 workers",
    ]
    assert len(set(found)) == len(found)


def test_candidates_are_settings_that_a_run_takes():
    from rookery.run.algorithms import algorithm_of
    from rookery.run.collection import collector_for
    from rookery.run.settings import TrainSettings

    possible = Possible(2, ("caller", "workers", "async", "double", "served"), waits=True)
    for candidate in candidates([1, 2, 3, 8, 64], possible, {}):
        settings = TrainSettings(**candidate.settings())
        assert collector_for(algorithm_of("dqn"), settings) == candidate.mode.collector
        workers = candidate.mode.num_workers
        assert workers is None or workers <= candidate.num_envs


def test_envs_that_wait_are_tried_with_more_workers_than_cpus():
    waiting = Possible(2, ("workers",), waits=True)
    counts = [c.mode.num_workers for c in candidates([64], waiting, {})]
    assert counts == [2, 4, 8, 16, 32]


def test_settings_of_the_user_are_kept():
    def modes(**fixed):
        return {str(c.mode) for c in candidates([8], POSSIBLE, fixed)}

    assert modes(backend="serial") == {"caller, this process"}
    assert modes(collector="workers", num_workers=3) == {"workers, 3 workers"}
    assert modes(caller_steps=True, num_workers=3) == {"caller, 3 workers and this process"}
    with pytest.raises(ConfigError, match="no run is possible with collector"):
        modes(collector="workers", backend="serial")


def test_faults_to_survive_and_isolation_keep_envs_in_workers():
    guarded = Possible(4, ("caller", "workers"), in_process=False)
    assert all(c.mode.num_workers for c in candidates([8], guarded, {}))
    alone = Possible(4, ("caller", "workers", "double"), in_process=False, isolated=True)
    assert {c.mode.num_workers for c in candidates([8], alone, {})} == {8}


# ---------------------------------------------------------------- halving


class Bench:
    """A clock, and candidates whose speed is known; measuring moves the clock on."""

    def __init__(self, speeds, beside_s=0.5):
        self.speeds, self.beside_s, self.now = speeds, beside_s, 0.0
        self.measured = []

    def clock(self):
        return self.now

    def measure(self, candidate, seconds):
        self.measured.append(candidate)
        self.now += seconds + self.beside_s
        speed = self.speeds(candidate, self.now)
        if isinstance(speed, Exception):
            raise speed
        return Slice(int(speed * seconds), seconds)

    def search(self, tried, seconds, **options):
        return Halving(tried, self.measure, seconds, self.clock, **options)


TRIED = [Candidate(n, mode) for n in (8, 16) for mode in (SERIAL, WORKERS, DOUBLE)]


def test_the_best_of_each_number_of_envs_is_measured_longest():
    speeds = {SERIAL: 100, WORKERS: 300, DOUBLE: 200}
    bench = Bench(lambda c, now: speeds[c.mode] * c.num_envs)
    trials = bench.search(TRIED, 60).run()
    for each in trials:
        is_worst = each.candidate.mode == SERIAL
        assert (each.last_round, len(each.slices)) == ((1, 1) if is_worst else (2, 3))
    assert [each.candidate.mode for each in best_of_each(trials)] == [WORKERS, WORKERS]
    assert bench.now < 60 + 12  # the last slice may go over


def test_candidates_take_turns_there_and_back():
    bench = Bench(lambda c, now: 100)
    bench.search(TRIED, 60).run()
    second = bench.measured[6:14]
    assert second[4:] == second[:4][::-1]


def test_the_best_of_each_number_of_envs_are_compared_longest_where_they_come_near() -> None:
    speeds = {4: 50, 8: 97, 16: 100}
    bench = Bench(lambda c, now: speeds[c.num_envs] - (c.mode == SERIAL))
    tried = [Candidate(n, mode) for n in speeds for mode in (SERIAL, WORKERS, DOUBLE, CALLER)]
    trials = bench.search(tried, 120).run()
    final = [each for each in trials if each.last_round == 3]
    assert [each.candidate.num_envs for each in final] == [8, 16]
    slices = final[0].slices
    assert len(slices) == 5 and slices[-1].collect_s > slices[-3].collect_s
    assert knee(best_of_each(trials)) is final[0]
    assert bench.now < 120 + 12


def test_time_is_kept_for_the_final() -> None:
    """The rounds before are cut short, since starting the envs takes most of the time."""
    bench = Bench(lambda c, now: 100 - (c.mode == SERIAL), beside_s=3)
    trials = bench.search(TRIED, 40).run()
    assert len({each.candidate.num_envs for each in trials if each.last_round == 3}) == 2


def test_where_starting_takes_long_the_likeliest_are_tried_with_every_number_of_envs() -> None:
    speeds = {SERIAL: 100, WORKERS: 300, DOUBLE: 200}
    bench = Bench(lambda c, now: speeds[c.mode] * c.num_envs, beside_s=3)
    counts = (8, 2, 32, 128)
    tried = [Candidate(n, mode) for n in counts for mode in (SERIAL, WORKERS, DOUBLE)]
    trials = bench.search(tried, 50).run()
    assert bench.measured[:3] == tried[:3]
    assert bench.measured[3:6] == [Candidate(n, WORKERS) for n in counts[1:]]
    assert not all(each.slices for each in trials)
    assert best_of_each(trials)[-1].candidate == Candidate(128, WORKERS)


def test_where_starting_takes_long_the_search_does_too_as_far_as_it_may() -> None:
    tried = [Candidate(n, mode) for n in (8, 2, 32, 128) for mode in (SERIAL, WORKERS, DOUBLE)]
    for most, all_tried in ((None, False), (60, False), (600, True)):
        told: list[str] = []
        bench = Bench(lambda c, now: c.num_envs, beside_s=6)
        trials = bench.search(tried, 50, most_seconds=most, say=told.append).run()
        assert all(each.slices for each in trials) is all_tried
        assert bench.now < (most or 50) + 12
        assert any("minutes instead of 0.83" in line for line in told) is (most is not None)
        assert (best_of_each(trials)[-1].candidate.num_envs == 128) is all_tried
    assert bench.now < 12 * 6.5 / 0.5 + 12


def test_a_slower_machine_affects_all_candidates():
    speeds = {SERIAL: 100, WORKERS: 103, DOUBLE: 90}
    bench = Bench(lambda c, now: speeds[c.mode] * c.num_envs * 200 / (200 + now))
    best = best_of_each(bench.search(TRIED, 60).run())
    assert [each.candidate.mode for each in best] == [WORKERS, WORKERS]


def test_the_search_ends_when_the_time_is_over_and_says_what_was_not_tried():
    bench = Bench(lambda c, now: 100, beside_s=10)
    trials = bench.search(TRIED, 50).run()
    assert [bool(each.slices) for each in trials] == [True] * 3 + [False] * 3
    assert trials[-1].failure == "not tried: the time was over" and trials[-1].is_skipped


def test_a_failure_is_kept_with_its_reason_and_the_search_goes_on():
    def speed(candidate, now):
        return CandidateFailed("it hangs") if candidate.mode == SERIAL else 100

    told = []
    bench = Bench(speed)
    trials = bench.search(TRIED, 60, say=told.append).run()
    assert trials[0].failure == "it hangs" and not trials[0].is_skipped
    assert trials[3].failure == "as with 8 envs: it hangs" and trials[3].is_skipped
    assert [c for c in bench.measured if c.mode == SERIAL] == [TRIED[0]]
    assert all(each.is_measured for each in trials if each.candidate.mode != SERIAL)
    assert "8 envs: caller, this process: failed, it hangs" in told


def test_what_fails_with_many_envs_is_tried_with_fewer():
    tried = [Candidate(n, SERIAL) for n in (16, 8, 32)]
    bench = Bench(lambda c, now: CandidateFailed("too slow") if c.num_envs > 8 else 100)
    trials = bench.search(tried, 60).run()
    assert [each.is_measured for each in trials] == [False, True, False]
    assert trials[2].is_skipped


def test_a_candidate_that_fails_later_is_dropped():
    def speed(candidate, now):
        has_grown = bench.measured.count(TRIED[0]) == 2
        return CandidateFailed("grew") if has_grown and candidate == TRIED[0] else 100

    bench = Bench(speed)
    trials = bench.search(TRIED[:2], 60).run()
    assert trials[0].slices and not trials[0].is_measured and trials[0].score() == 0


def test_an_interruption_keeps_the_measurements():
    bench = Bench(lambda c, now: KeyboardInterrupt() if len(bench.measured) > 2 else 100)

    def measure(candidate, seconds):
        if len(bench.measured) == 2:
            raise KeyboardInterrupt
        return bench.measure(candidate, seconds)

    search = Halving(TRIED, measure, 60, bench.clock)
    with pytest.raises(KeyboardInterrupt):
        search.run()
    search.leave_out("the search was interrupted")
    assert [each.is_measured for each in search.trials] == [True, True] + [False] * 4
    assert knee(best_of_each(search.trials)) is search.trials[0]


def test_halves_are_taken_among_the_same_number_of_envs():
    trials = [trial(8, 10), trial(8, 30, WORKERS), trial(8, 20, DOUBLE), trial(16, 5)]
    assert leaders(trials, {8: 2, 16: 1}) == trials[1:]
    assert leaders(trials, {8: 1, 16: 1}) == [trials[1], trials[3]]
    assert leaders([trial(8, 0), trial(8, 5, WORKERS)], {8: 2})[0].candidate.mode == WORKERS
    assert num_rounds(trials) == 2 and num_rounds([]) == 1
    assert num_rounds([trial(8, 1)] * 7) == 3


def test_slices_share_a_round_after_what_starting_takes():
    assert slice_seconds(30, 10, 1.0) == 2.0
    assert slice_seconds(1, 10, 1.0) == LEAST_S
    assert slice_seconds(1e6, 10, 1.0) == MOST_S


# ---------------------------------------------------------------- the choice


def test_the_knee_is_the_fewest_envs_that_come_near_the_highest_throughput():
    best = [trial(8, 500), trial(16, 940), trial(32, 960), trial(64, 1000), trial(128, 700)]
    assert knee(best).candidate.num_envs == 32
    assert knee([]) is None


def test_the_whole_loop_may_have_another_knee():
    fast = Trial(Candidate(8, SERIAL), [Slice(1000, 1.0, learn_s=9.0)], 1)
    slow = Trial(Candidate(4, SERIAL), [Slice(800, 1.0, learn_s=1.0)], 1)
    assert knee([slow, fast]).candidate.num_envs == 8
    assert knee([slow, fast], whole_loop=True).candidate.num_envs == 4
    assert fast.loop_rate == 100 and fast.rate == 1000


def test_dropped_candidates_are_not_compared_with_finalists():
    lucky, steady = trial(8, 999), trial(8, 500, WORKERS, last_round=3)
    slower = trial(8, 400, DOUBLE, last_round=3)
    assert best_of_each([lucky, slower, steady]) == [steady]


def test_a_dropped_candidate_returns_if_others_turn_out_slower():
    steady = [Candidate(8, Mode("caller", "process", n)) for n in range(1, 5)]
    lucky = [Candidate(8, Mode("workers", "process", n)) for n in range(1, 5)]
    rates = dict(zip(steady, (310, 320, 330, 340), strict=True))

    def speed(candidate, now):
        return rates.get(candidate) or (400 if bench.measured.count(candidate) == 1 else 10)

    bench = Bench(speed)
    trials = bench.search(steady + lucky, 120).run()
    assert [each.candidate for each in best_of_each(trials)] == [steady[3]]
    assert trials[3].last_round == 3 and len(trials[3].slices) == 3  # left out of round 2


def limits(best, chosen, **options):
    memory = MemoryModel(100 * 2**20, 50 * 2**20, 10 * 2**20)
    ceiling = Ceiling(2**30, "a test")
    return limits_of(best, chosen, 2, ceiling, memory, **options)


def test_the_limit_that_binds_is_named():
    few, some, more = trial(8, 500), trial(16, 1000), trial(32, 1010)
    assert limits([few, some, more], some).binds == "cores"
    assert limits([few, some], some).binds == "search"
    assert limits([few, some], some, does_not_fit=True).binds == "memory"
    assert limits([trial(64, 1000)], trial(64, 1000)).binds == "memory"  # 92 fit, not 128
    assert limits([some], some, is_given=True).binds == "given"
    assert limits([few, some], some).by_memory == 92
    assert "memory carries about 92 envs: 10 MB each" in limits([few, some], some).lines[1]


def test_limits_report_a_missing_memory_model():
    best = [trial(8, 500)]
    found = limits_of(best, best[0], 2, Ceiling(2**30, "a test"), None)
    assert found.by_memory is None and "could not be measured" in found.lines[1]


# ---------------------------------------------------------------- the table


def test_the_table_has_one_row_for_each_trial(capsys: pytest.CaptureFixture[str]):
    failed = trial(16, 0, WORKERS)
    failed.failure = "EnvFailed: no [red]server[/red]"
    skipped = trial(32, 0, WORKERS)
    skipped.failure, skipped.is_skipped = "as with 16 envs: that", True
    leaking = trial(8, 1000, memory_bytes=2**30, grown_bytes=2**29)
    chosen = trial(4, 1000, memory_bytes=2**30)
    rows = rows_of([failed, skipped, leaking, chosen], chosen.candidate)
    assert all(len(row) == len(COLUMNS) for row in rows)
    assert [row[1] for row in rows] == ["4", "8", "16", "32"]
    assert rows[0] == ("caller, this process", "4", "1,000", "900 - 1,100", "", "1 GB", TAKEN)
    assert rows[1][-1] == "memory grew by 512 MB in 1,000 steps, maybe a leak"
    assert rows[2][-1] == "failed: EnvFailed: no [red]server[/red]"
    assert rows[3][-1] == "as with 16 envs: that"
    pytest.importorskip("rich")
    print_trials([failed, skipped, leaking, chosen], chosen.candidate)
    text = capsys.readouterr().out
    assert "[red]server[/red]" in text and "loop steps/s" not in text and TAKEN in text
