"""Statistics from the counters of batches, the waits of the caller, and the processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.common.resources import ProcessUse
from rookery.shared.stopwatch import (
    COMPARED,
    EPISODES,
    EXTRA,
    RESET_NS,
    RESETS,
    SLOWEST,
    STEP_NS,
    WAIT_NS,
    EnvCounters,
    quantiles_s,
)
from rookery.vector.backend import Backend
from rookery.vector.statistics.snapshot import CallerStatistics, EnvStatistics, WorkerStatistics
from rookery.vector.statistics.waits import Waits

_NANO = 1e-9


def backends_observed(
    backends: Sequence[Backend], waits: Waits, looks: bool
) -> tuple[WorkerStatistics, ...]:
    """Return the statistics of each backend and its process."""
    shares = _shares(waits.last)
    return tuple(
        WorkerStatistics(
            pid=backend.pid,
            node=backend.node,
            env_ids=backend.env_ids,
            busy_s=backend.busy_s,
            in_caller=backend.steps_in_caller,
            restarts=backend.restarts,
            restart_causes=backend.causes,
            straggler_share=shares[i] if len(backends) > 1 else None,
            straggler_s=waits.behind_s[i] / waits.looks[i] if waits.looks[i] else None,
            **_used(backend.process_use(looks)),
        )
        for i, backend in enumerate(backends)
    )


def caller_observed(use: ProcessUse, waits: Waits) -> CallerStatistics:
    """Return the statistics of the calling process."""
    return CallerStatistics(waited_s=waits.waited_s, look_s=use.look_s, **_used(use))


def envs_observed(
    watched: EnvCounters, backends: Sequence[Backend], waits: Waits
) -> tuple[EnvStatistics, ...]:
    """Return the statistics of each env."""
    words = watched.words.copy()
    steps, resets = watched.steps.copy(), watched.resets.copy()
    counts = {
        "episodes": words[:, EPISODES].tolist(),
        "resets": (words[:, RESETS] + resets.sum(axis=1)).tolist(),
        "step_mean_s": _means_s(words[:, STEP_NS], steps),
        "step_p50_s": _known(quantiles_s(steps, 0.5)),
        "step_p99_s": _known(quantiles_s(steps, 0.99)),
        "reset_mean_s": _means_s(words[:, RESET_NS], resets),
        "reset_p99_s": _known(quantiles_s(resets, 0.99)),
    }
    shares = [1.0] if len(backends) == 1 else _shares(waits.last)
    envs: list[EnvStatistics] = []
    for worker, backend in enumerate(backends):
        batch, own = (
            words[backend.env_ids.start],
            words[backend.env_ids.start : backend.env_ids.stop],
        )
        has_begun = bool(backend.steps_made or own[:, RESET_NS].any())
        wait_s = float(batch[WAIT_NS]) * _NANO if has_begun else None
        envs += [
            EnvStatistics(
                env_id=env_id,
                worker=worker,
                steps=max(int(backend.steps_made + words[env_id, EXTRA]), 0),
                wait_s=wait_s,
                straggler_share=_held_up(
                    shares[worker], int(words[env_id, SLOWEST]), int(batch[COMPARED]), backend
                ),
                **{name: values[env_id] for name, values in counts.items()},
            )
            for env_id in backend.env_ids
        ]
    return tuple(envs)


def _held_up(
    of_worker: float | None, slowest: int, compared: int, backend: Backend
) -> float | None:
    """Return the share of the steps in which an env was the slowest of all."""
    if of_worker is None:
        return None
    if len(backend.env_ids) == 1:
        return of_worker
    return of_worker * slowest / compared if compared else None


def _shares(counts: Sequence[int]) -> list[float | None]:
    total = sum(counts)
    return [count / total if total else None for count in counts]


def _means_s(total_ns: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> list[float | None]:
    number = counts.sum(axis=1)
    means = total_ns * _NANO / np.maximum(number, 1)
    return [float(mean) if n else None for mean, n in zip(means, number, strict=True)]


def _known(values: npt.NDArray[np.float64]) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


def _used(use: ProcessUse) -> dict[str, Any]:
    return {name: value for name, value in asdict(use).items() if name != "look_s"}
