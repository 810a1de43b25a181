"""What a batch notes of its envs' steps, episodes and times, in words that the caller reads.

The words lie among the arrays that envs and caller share. They are written by whoever steps, and
outlive a worker: the batch that takes its place goes on counting where the lost one stopped.

Counts are exact. Times are samples, unless steps and resets are slow: two looks at the clock and a
histogram's entry took 0.9 us on a machine on which a step of CartPole takes 7.5, so that timing
every step would cost 12 %. Of fast envs some first steps of the batch are timed, then every 127th,
and every 7th reset of an env. From 100 us on all are timed, for at most 0.9 %. Both are primes, so
that an env which does something special in every 4th or 10th step meets the clock in all of its
phases.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.shared.durations import NUM_BUCKETS, bucket_of

SPARSELY = 127  # of so many steps of a batch one is timed, where they are short
_RESETS_SPARSELY = 7  # the same of resets
ALWAYS_FROM_S = 100e-6  # per env; from here on every step and reset is timed
_FIRST_TIMED = 2  # the step after so many: the first ones load what envs need

# Words of an env's row. Those of the batch lie in the row of its first env.
EXTRA, EPISODES, RESETS, STEP_NS, RESET_NS, SLOWEST = range(6)
COMPARED, WAIT_NS = range(6, 8)
_NUM_WORDS = 16  # 128 bytes: rows of two workers share no cache line

_WORD: np.dtype[Any] = np.dtype(np.int64)


def columns(num_envs: int) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Name -> (shape, dtype) of all words of ``num_envs`` envs."""
    return {
        "watch.words": ((num_envs, _NUM_WORDS), _WORD),
        "watch.steps": ((num_envs, NUM_BUCKETS), _WORD),
        "watch.resets": ((num_envs, NUM_BUCKETS), _WORD),
    }


class WatchWords:
    """The words of all envs of a vector env.

    Args:
        views: an array for each of :func:`columns`.

    Attributes:
        views: those arrays alone.
        words: int64 ``[n, 16]``: of env i, ``EXTRA`` orders to step beyond its batch's (less those
            that reset it instead), ``EPISODES`` that ended, ``RESETS`` that were not timed,
            nanoseconds of timed steps and resets, and ``SLOWEST``, in how many timed steps of the
            batch it took longest. Of a batch, ``COMPARED`` steps of all its envs in which it was
            seen who took longest, and ``WAIT_NS`` in which it had nothing to do. How many steps it
            made is counted in its progress words.
        steps: int64 ``[n, NUM_BUCKETS]``, how long the timed steps took.
        resets: likewise.
    """

    def __init__(self, views: Mapping[str, Any]) -> None:
        self.views = {name: views[name] for name in columns(0)}
        self.words: npt.NDArray[np.int64] = views["watch.words"]
        self.steps: npt.NDArray[np.int64] = views["watch.steps"]
        self.resets: npt.NDArray[np.int64] = views["watch.resets"]


class Stopwatch:
    """Writes the words of one batch.

    Args:
        watched: the words of all envs.
        ids: the batch's envs.

    Attributes:
        until_timed: steps until the next that is timed; whoever steps counts it down, and calls
            :meth:`end` when it is 0 or less. A call per step would take 0.4 us.
        stepped: the envs to step next, with a look at the clock before and after each where the
            step is to be timed.
        extra: of each env, orders to step it beyond its batch's, less those that reset it instead;
            whoever steps counts them.
        episodes: of each env, how many have ended; likewise.
        resets: of each env, how many were not timed; likewise.
        until_reset_timed: of each env, resets until the next that is timed; whoever resets it
            counts it down, and calls :meth:`note_reset` when it is 0 or less.
    """

    def __init__(self, watched: WatchWords, ids: range) -> None:
        own = slice(ids.start, ids.stop)
        # Through memoryviews, which are written in half the time of numpy's arrays.
        self._words = words = watched.words[own].reshape(-1).data
        width = watched.words.shape[1]
        self.extra, self.episodes = words[EXTRA::width], words[EPISODES::width]
        self.resets, self.until_reset_timed = words[RESETS::width], [1] * len(ids)
        self._step_ns, self._reset_ns = words[STEP_NS::width], words[RESET_NS::width]
        self._slowest = words[SLOWEST::width]
        self._step_counts = watched.steps[own].reshape(-1).data
        self._reset_counts = watched.resets[own].reshape(-1).data
        self._waited_before = words[WAIT_NS]
        self._began: float | None = None
        self._busy_before = 0.0
        self._took = [0] * len(ids)  # nanoseconds of the step that is timed, by env
        self._reset_took = [0] * len(ids)  # of resets since the last one
        self.stepped: list[Any] = []
        self.until_timed = _FIRST_TIMED
        self._apart = 1  # steps of the batch from one that is timed to the next

    def time_steps(self, envs: Sequence[Any]) -> None:
        """Have ``stepped`` step these."""
        self.stepped = self._plain = list(envs)
        self._timed = [_TimedEnv(env, self._took, i) for i, env in enumerate(envs)]

    def begin(self, started: float, busy_s: float) -> None:
        """Note that the batch has something to do, if it is the first time.

        Args:
            started: now, by ``time.perf_counter``.
            busy_s: what the batch was busy before.
        """
        if self._began is None:
            self._began, self._busy_before = started, busy_s

    def end(self, took_s: float, num_envs: int, busy_s: float) -> None:
        """End a step of ``num_envs`` envs that was timed, or after which one is.

        Args:
            took_s: seconds that it took.
            num_envs: how many envs were concerned.
            busy_s: what the batch was busy so far.
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
        """Note how long a reset of env i has taken, and when to time the next one."""
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
    """An env to step, which notes how long that took."""

    def __init__(self, env: Any, took: list[int], i: int) -> None:
        self._env, self._took, self._i = env, took, i

    def step(self, action: Any) -> Any:
        started = time.perf_counter_ns()
        result = self._env.step(action)
        # A coarse clock may show no difference.
        self._took[self._i] = time.perf_counter_ns() - started or 1
        return result
