"""Metrics in Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rookery.errors import MissingExtra
from rookery.run.log.sink import Sink


class WandbSink(Sink):
    """Writes metrics to a run of Weights & Biases, over env steps.

    The run begins with the first metrics, so that a training that could not start leaves none.
    Env steps are a metric of their own, ``env_steps``, which the others are drawn over: what a
    resumed training writes again is taken too, where the service's own count cannot go back.

    Args:
        project: where the run goes.
        **options: what ``wandb.init`` takes, such as ``name``, ``config`` or ``mode``.

    Raises:
        MissingExtra: wandb is not installed.
    """

    def __init__(self, project: str | None = None, **options: Any) -> None:
        try:
            import wandb  # type: ignore[import-not-found,import-untyped,unused-ignore]
        except ImportError as error:
            raise MissingExtra("WandbSink needs wandb: pip install 'rookery[wandb]'") from error
        self._wandb: Any = wandb
        self._options = {"project": project, **options}
        self._run: Any = None

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._run is None:
            self._run = self._wandb.init(**self._options)
            self._run.define_metric("env_steps")
            self._run.define_metric("*", step_metric="env_steps")
        self._run.log({"env_steps": step, **metrics})

    def close(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.finish()
