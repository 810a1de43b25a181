"""Histograms of durations: every value has a bucket, and quantiles are exact within one bucket."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.shared.stopwatch import NUM_BUCKETS, bucket_of, lower_bounds_ns, quantiles_s


def _histogram(durations_ns):
    counts = np.zeros(NUM_BUCKETS, np.int64)
    for duration in durations_ns:
        counts[bucket_of(int(duration))] += 1
    return counts


@given(st.integers(0, 2**62))
def test_a_duration_lies_between_the_bounds_of_its_bucket(duration_ns) -> None:
    low, place = lower_bounds_ns(), bucket_of(duration_ns)
    assert low[place] <= duration_ns
    assert place == NUM_BUCKETS - 1 or duration_ns < low[place + 1]


def test_buckets_are_narrow_from_microseconds_to_minutes() -> None:
    low = lower_bounds_ns()
    assert (np.diff(low) > 0).all() and len(low) == NUM_BUCKETS
    assert (low[2:] / low[1:-1]).max() == 1.25
    assert low[1] == 128 and low[-1] > 30 * 60 * 1e9


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.99, 1.0])
def test_quantiles_are_right_within_a_bucket(share) -> None:
    rng = np.random.default_rng(0)
    kinds = [
        rng.lognormal(np.log(3e3), 1.0, 5000),
        rng.uniform(1e6, 2e6, 777),
        np.concatenate([np.full(98, 5e3), np.full(2, 1e8)]),
        np.array([12345.0]),
    ]
    found = quantiles_s(np.stack([_histogram(kind) for kind in kinds]), share)
    for kind, quantile in zip(kinds, found, strict=True):
        exact = np.sort(kind)[int(np.ceil(share * len(kind))) - 1] * 1e-9
        assert exact / 1.25 <= quantile <= exact * 1.25


def test_quantiles_of_empty_histograms_are_nan() -> None:
    assert np.isnan(quantiles_s(np.zeros((1, NUM_BUCKETS), np.int64), 0.5)).all()
