"""Statistics put together from what was noted: by batches, by the caller's waits, by processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.env.durations import quantiles_s
from rookery.env.stopwatch import (
    COMPARED,
    EPISODES,
    EXTRA,
    RESET_NS,
    RESETS,
    SLOWEST,
    STEP_NS,
    WAIT_NS,
    WatchWords,
)
from rookery.vector.carrier import Carrier
from rookery.vector.statistics import CallerStatistics, CarrierStatistics, EnvStatistics
from rookery.vector.waits import Waits
from rookery.worker.resources import ProcessUse

_NANO = 1e-9


def carriers_observed(
    carriers: Sequence[Carrier], waits: Waits, looks: bool
) -> tuple[CarrierStatistics, ...]:
    """What each carrier did, and what its process uses, or used at the last look."""
    shares = _shares(waits.last)
    return tuple(
        CarrierStatistics(
            pid=carrier.pid,
            node=carrier.node,
            env_ids=carrier.env_ids,
            busy_s=carrier.busy_s,
            in_caller=carrier.steps_in_caller,
            restarts=carrier.restarts,
            restart_causes=carrier.causes,
            straggler_share=shares[i] if len(carriers) > 1 else None,
            straggler_s=waits.behind_s[i] / waits.looks[i] if waits.looks[i] else None,
            **_used(carrier.process_use(looks)),
        )
        for i, carrier in enumerate(carriers)
    )


def caller_observed(use: ProcessUse, waits: Waits) -> CallerStatistics:
    """What the calling process did, and what it uses."""
    return CallerStatistics(waited_s=waits.waited_s, look_s=use.look_s, **_used(use))


def envs_observed(
    watched: WatchWords, carriers: Sequence[Carrier], waits: Waits
) -> tuple[EnvStatistics, ...]:
    """What each env did."""
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
    shares = [1.0] if len(carriers) == 1 else _shares(waits.last)
    envs: list[EnvStatistics] = []
    for worker, carrier in enumerate(carriers):
        batch, own = (
            words[carrier.env_ids.start],
            words[carrier.env_ids.start : carrier.env_ids.stop],
        )
        has_begun = bool(carrier.steps_made or own[:, RESET_NS].any())
        wait_s = float(batch[WAIT_NS]) * _NANO if has_begun else None
        envs += [
            EnvStatistics(
                env_id=env_id,
                worker=worker,
                steps=max(int(carrier.steps_made + words[env_id, EXTRA]), 0),
                wait_s=wait_s,
                straggler_share=_held_up(
                    shares[worker], int(words[env_id, SLOWEST]), int(batch[COMPARED]), carrier
                ),
                **{name: values[env_id] for name, values in counts.items()},
            )
            for env_id in carrier.env_ids
        ]
    return tuple(envs)


def _held_up(
    of_worker: float | None, slowest: int, compared: int, carrier: Carrier
) -> float | None:
    """Of the steps of all envs, the share that an env held up."""
    if of_worker is None:
        return None
    if len(carrier.env_ids) == 1:
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
