"""What a training run, and an evaluation, came to."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a training run came to.

    Attributes:
        run_dir: the run's folder.
        steps: env steps trained for.
        seconds: time to start the envs and train, without evaluation.
        steps_per_second: their quotient.
        eval_return_mean: mean return of the final evaluation; None without one.
        eval_return_std: standard deviation of the same.
    """

    run_dir: str
    steps: int
    seconds: float
    steps_per_second: float
    eval_return_mean: float | None
    eval_return_std: float | None

    def to_dict(self) -> dict[str, Any]:
        """Fields by name, as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class EvalResult:
    """What an evaluation came to.

    Attributes:
        run_dir: the run's folder.
        steps: env steps of the counted episodes.
        seconds: time of the evaluation, without start-up.
        steps_per_second: their quotient.
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
        """Fields by name, as plain data."""
        return asdict(self)
