"""Results of a training run and of an evaluation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TrainResult:
    """Result of a training run.

    Attributes:
        run_dir: the run's folder.
        steps: env steps trained for.
        seconds: time to start the envs and train, without evaluation.
        steps_per_second: ``steps / seconds``.
        eval_return_mean: mean return of the final evaluation; None without one.
        eval_return_std: standard deviation of the returns of the final evaluation; None without
            one.
    """

    run_dir: str
    steps: int
    seconds: float
    steps_per_second: float
    eval_return_mean: float | None
    eval_return_std: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict of plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class EvalResult:
    """Result of an evaluation.

    Attributes:
        run_dir: the run's folder.
        steps: env steps of the counted episodes.
        seconds: time of the evaluation, without start-up.
        steps_per_second: ``steps / seconds``.
        eval_return_mean: mean return.
        eval_return_std: standard deviation of the returns.
        episodes: number of episodes.
    """

    run_dir: str
    steps: int
    seconds: float
    steps_per_second: float
    eval_return_mean: float
    eval_return_std: float
    episodes: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict of plain data."""
        return asdict(self)
