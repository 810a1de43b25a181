"""Counts and times of envs, and the histograms of their durations.

A batch writes them into shared words of its envs, and the caller reads them. The words outlive a
worker: the batch of the next worker continues counting.

Counts are exact. Times are samples, unless steps and resets are slow. Two readings of the clock and
an entry in a histogram took 0.9 us on a machine on which a step of CartPole takes 7.5 us, so timing
every step would cost 12 %. For fast envs, some of the first steps of a batch are timed, then every
127th step, and every 7th reset of an env. Steps and resets from 100 us on are all timed, for at
most 0.9 %. Both intervals are primes. So an env with a special step every 4th or 10th time is
sampled at all of these steps.

A histogram has logarithmic buckets, four per octave, from 128 ns to 36 minutes. A bucket is at most
a quarter wider than its lower bound, so a quantile is exact within 25 %.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.shared.block import ColumnSizes

SPARSELY = 127  # one of this many fast steps of a batch is timed
_RESETS_SPARSELY = 7  # one of this many fast resets of an env is timed
ALWAYS_FROM_S = 100e-6  # per env; all steps and resets that take longer are timed
_FIRST_TIMED = 2  # untimed steps at the beginning, in which envs load what they need

# Words in the row of an env; COMPARED and WAIT_NS are in the row of the batch's first env.
EXTRA, EPISODES, RESETS, STEP_NS, RESET_NS, SLOWEST = range(6)
COMPARED, WAIT_NS = range(6, 8)
_NUM_WORDS = 16  # 128 bytes: rows of two workers share no cache line

_FIRST_OCTAVE = 7  # 2**7 ns; the first bucket holds all shorter durations
_OCTAVES = 34  # the last bucket holds all longer durations
NUM_BUCKETS = 4 * _OCTAVES + 2
_LAST = NUM_BUCKETS - 1

_WORD: np.dtype[Any] = np.dtype(np.int64)


def columns(num_envs: int) -> ColumnSizes:
    """Return name -> (shape, dtype) of the words of ``num_envs`` envs."""
    return {
        "watch.words": ((num_envs, _NUM_WORDS), _WORD),
        "watch.steps": ((num_envs, NUM_BUCKETS), _WORD),
        "watch.resets": ((num_envs, NUM_BUCKETS), _WORD),
    }


class EnvCounters:
    """Counters and times of all envs of a vector env.

    Args:
        views: an array for each of :func:`columns`.

    Attributes:
        views: these arrays by name.
        words: int64 ``[n, 16]``, one row per env. ``EXTRA``: orders to step this env that were not
            for the whole batch, minus orders that reset it instead of stepping it. ``EPISODES``:
            episodes that ended. ``RESETS``: resets that were not timed. ``STEP_NS`` and
            ``RESET_NS``: nanoseconds of timed steps and resets. ``SLOWEST``: timed steps of the
            batch in which this env took longest. The row of a batch's first env also has
            ``COMPARED``: timed steps in which all envs of the batch were compared, and ``WAIT_NS``:
            nanoseconds without work. The number of steps of a batch is in its progress words.
        steps: int64 ``[n, NUM_BUCKETS]``, histogram of the timed steps.
        resets: int64 ``[n, NUM_BUCKETS]``, histogram of the timed resets.
    """

    def __init__(self, views: Mapping[str, Any]) -> None:
        self.views = {name: views[name] for name in columns(0)}
        self.words: npt.NDArray[np.int64] = views["watch.words"]
        self.steps: npt.NDArray[np.int64] = views["watch.steps"]
        self.resets: npt.NDArray[np.int64] = views["watch.resets"]


class Stopwatch:
    """Counts and times the steps and resets of one batch.

    The batch itself updates the counters below, because a method call per step would take 0.4 us.

    Args:
        counters: counters of all envs.
        ids: ids of the batch's envs.

    Attributes:
        until_timed: steps until the next timed step. The batch counts it down, and calls
            :meth:`end` when it is 0 or less.
        stepped: the envs to step next. They read the clock themselves if the step is timed.
        extra: per env, the word ``EXTRA``.
        episodes: per env, the word ``EPISODES``.
        resets: per env, the word ``RESETS``.
        until_reset_timed: per env, resets until the next timed reset. The batch counts it down, and
            calls :meth:`note_reset` when it is 0 or less.
    """

    def __init__(self, counters: EnvCounters, ids: range) -> None:
        rows = slice(ids.start, ids.stop)
        # Writing through a memoryview takes half the time of writing through a numpy array.
        self._words = words = counters.words[rows].reshape(-1).data
        width = counters.words.shape[1]
        self.extra, self.episodes = words[EXTRA::width], words[EPISODES::width]
        self.resets, self.until_reset_timed = words[RESETS::width], [1] * len(ids)
        self._step_ns, self._reset_ns = words[STEP_NS::width], words[RESET_NS::width]
        self._slowest = words[SLOWEST::width]
        self._step_counts = counters.steps[rows].reshape(-1).data
        self._reset_counts = counters.resets[rows].reshape(-1).data
        self._waited_before = words[WAIT_NS]
        self._began: float | None = None
        self._busy_before = 0.0
        self._took = [0] * len(ids)  # per env, nanoseconds of the timed step
        self._reset_took = [0] * len(ids)  # per env, nanoseconds of resets since the last step
        self.stepped: list[Any] = []
        self.until_timed = _FIRST_TIMED
        self._apart = 1  # steps from one timed step to the next

    def time_steps(self, envs: Sequence[Any]) -> None:
        """Set the envs of the batch."""
        self.stepped = self._plain = list(envs)
        self._timed = [_TimedEnv(env, self._took, i) for i, env in enumerate(envs)]

    def begin(self, started: float, busy_s: float) -> None:
        """Record the time at which the batch first had work.

        Args:
            started: current ``time.perf_counter``.
            busy_s: seconds that the batch was busy before.
        """
        if self._began is None:
            self._began, self._busy_before = started, busy_s

    def end(self, took_s: float, num_envs: int, busy_s: float) -> None:
        """Finish a step that was timed, or that precedes a timed step.

        Args:
            took_s: duration of the step in seconds.
            num_envs: number of envs that were stepped.
            busy_s: seconds that the batch was busy so far.
        """
        if self.until_timed < 0:
            self._note_times(num_envs)
            self._note_wait(busy_s)
            is_slow = took_s >= ALWAYS_FROM_S * num_envs
            self._apart = 1 if is_slow else min(2 * self._apart, SPARSELY)
            self.until_timed = self._apart - 1
        self.stepped = self._plain if self.until_timed else self._timed
        self._reset_took = [0] * len(self._took)

    def note_reset(self, i: int, took_ns: int) -> None:
        """Record the duration of a reset of env i, and decide when to time the next one."""
        is_slow = took_ns >= ALWAYS_FROM_S * 1e9
        self.until_reset_timed[i] = 1 if is_slow else _RESETS_SPARSELY
        self._reset_took[i] += took_ns
        self._reset_ns[i] += took_ns
        self._reset_counts[i * NUM_BUCKETS + bucket_of(took_ns)] += 1

    def _note_times(self, num_envs: int) -> None:
        for i, took in enumerate(self._took):
            if took:
                self._step_ns[i] += took
                self._step_counts[i * NUM_BUCKETS + bucket_of(took)] += 1
        if 1 < num_envs == len(self._took):
            sums = [step + reset for step, reset in zip(self._took, self._reset_took, strict=True)]
            self._slowest[sums.index(max(sums))] += 1
            self._words[COMPARED] += 1
        self._took[:] = [0] * len(self._took)

    def _note_wait(self, busy_s: float) -> None:
        now = time.perf_counter()
        self.begin(now, busy_s)
        waited_s = now - (self._began or now) - (busy_s - self._busy_before)
        self._words[WAIT_NS] = self._waited_before + max(int(waited_s * 1e9), 0)


class _TimedEnv:
    """An env that measures the duration of its steps."""

    def __init__(self, env: Any, took: list[int], i: int) -> None:
        self._env, self._took, self._i = env, took, i

    def step(self, action: Any) -> Any:
        started = time.perf_counter_ns()
        result = self._env.step(action)
        # A coarse clock may show no difference, and 0 means that the env was not stepped.
        self._took[self._i] = time.perf_counter_ns() - started or 1
        return result


def bucket_of(duration_ns: int) -> int:
    """Return the bucket of a duration in whole nanoseconds."""
    bits = duration_ns.bit_length()
    if bits <= _FIRST_OCTAVE:
        return 0
    # The two bits after the leading one are the quarter of the octave.
    return min((bits - 1 - _FIRST_OCTAVE) * 4 + (duration_ns >> (bits - 3) & 3) + 1, _LAST)


def lower_bounds_ns() -> npt.NDArray[np.float64]:
    """Return the lower bound of each bucket in nanoseconds, float64 ``[NUM_BUCKETS]``."""
    places = np.arange(NUM_BUCKETS - 1)
    bounds = 2.0 ** (_FIRST_OCTAVE + places // 4) * (1 + places % 4 / 4)
    return np.concatenate([[0.0], bounds])


_LOW_NS = lower_bounds_ns()
_HIGH_NS = np.append(_LOW_NS[1:], _LOW_NS[-1] * 1.25)


def quantiles_s(counts: npt.NDArray[np.int64], share: float) -> npt.NDArray[np.float64]:
    """Return one quantile of each of several histograms.

    Args:
        counts: int64 ``[n, NUM_BUCKETS]``.
        share: which quantile; 0.5 is the median.

    Returns:
        Seconds, float64 ``[n]``: the middle of the bucket with the quantile. NaN for an empty
            histogram.
    """
    totals = counts.sum(axis=1)
    rank = np.maximum(np.ceil(share * totals), 1)
    places = (counts.cumsum(axis=1) >= rank[:, None]).argmax(axis=1)
    middle = (_LOW_NS[places] + _HIGH_NS[places]) / 2
    return np.where(totals > 0, middle * 1e-9, np.nan)
