"""Durations in logarithmic buckets: four to an octave, from 128 ns to 36 minutes; pure.

A bucket is at most a quarter wider than its lower bound, so that a quantile read from it is right
within 25 %, and 138 counts of eight bytes hold the times of any number of steps.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_FIRST_OCTAVE = 7  # 2**7 ns; the first bucket holds all that is shorter
_OCTAVES = 34  # the last bucket holds all that is longer
NUM_BUCKETS = 4 * _OCTAVES + 2
_LAST = NUM_BUCKETS - 1


def bucket_of(duration_ns: int) -> int:
    """The bucket of a duration in whole nanoseconds."""
    bits = duration_ns.bit_length()
    if bits <= _FIRST_OCTAVE:
        return 0
    # The two bits behind the leading one say which quarter of the octave it is.
    return min((bits - 1 - _FIRST_OCTAVE) * 4 + (duration_ns >> (bits - 3) & 3) + 1, _LAST)


def lower_bounds_ns() -> npt.NDArray[np.float64]:
    """Where each bucket begins, float64 ``[NUM_BUCKETS]``, in nanoseconds."""
    places = np.arange(NUM_BUCKETS - 1)
    bounds = 2.0 ** (_FIRST_OCTAVE + places // 4) * (1 + places % 4 / 4)
    return np.concatenate([[0.0], bounds])


_LOW_NS = lower_bounds_ns()
_HIGH_NS = np.append(_LOW_NS[1:], _LOW_NS[-1] * 1.25)


def quantiles_s(counts: npt.NDArray[np.int64], share: float) -> npt.NDArray[np.float64]:
    """A quantile of each of several histograms.

    Args:
        counts: int64 ``[n, NUM_BUCKETS]``.
        share: 0.5 is the median.

    Returns:
        Seconds, float64 ``[n]``: the middle of the bucket with the quantile; NaN where nothing was
        counted.
    """
    totals = counts.sum(axis=1)
    rank = np.maximum(np.ceil(share * totals), 1)
    places = (counts.cumsum(axis=1) >= rank[:, None]).argmax(axis=1)
    middle = (_LOW_NS[places] + _HIGH_NS[places]) / 2
    return np.where(totals > 0, middle * 1e-9, np.nan)
