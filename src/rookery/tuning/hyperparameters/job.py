"""A process that trains trials, one after the other: ``python -m`` with this module.

It reads one JSON object per line from standard input, each a trial, and answers on what was its
standard output with lines: evaluations, after each of which it is told ``go`` or ``prune``, and
how the trial has ended. What an env prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

GO, PRUNE = "go", "prune"


def main() -> None:
    """Train what standard input tells, until it ends."""
    # Ctrl-C reaches all processes of a terminal; whoever started this one decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        answer = run_trial(json.loads(line), sys.stdin, answers)
        _tell(answers, answer)


def run_trial(task: dict[str, Any], verdicts: TextIO, answers: TextIO) -> dict[str, Any]:
    """Train one trial.

    Args:
        task: what `rookery.tuning.hyperparameters.jobs.Task` tells.
        verdicts: gives a line after each evaluation.
        answers: takes a line for each evaluation.

    Returns:
        How it ended: ``{"ended": ...}`` or ``{"failed": reason}``.
    """
    try:
        return _trained(task, verdicts, answers)
    except (BrokenPipeError, EOFError):
        raise SystemExit("whoever asked for trials is gone") from None
    except Exception as error:  # noqa: BLE001 - a trial may fail in any way, and the search goes on
        return {"failed": f"{type(error).__name__}: {error}"}


def _trained(task: dict[str, Any], verdicts: TextIO, answers: TextIO) -> dict[str, Any]:
    from rookery.callbacks import EvaluateEvery
    from rookery.run.algorithms import BUILT_IN
    from rookery.run.callbacks import StopTraining
    from rookery.run.named_wrappers import wrapper_at
    from rookery.run.trainer import Trainer

    every = max(task["total_steps"] // task["evaluations"], 1)
    last: dict[str, Any] = {}

    def report(trainer: Any, update: Any) -> None:
        """Tell of an evaluation, if one was made, and do as is answered."""
        if "eval_return_mean" not in update.metrics:
            return
        mean, std = update.metrics["eval_return_mean"], update.metrics["eval_return_std"]
        if not math.isfinite(mean):
            raise ValueError(f"the mean return of an evaluation was {mean}")
        last.update(mean=mean, std=std, steps=update.steps)
        place = min(update.steps // every, task["evaluations"])
        _tell(answers, {"evaluation": place, **last})
        if _verdict(verdicts) == PRUNE:
            raise StopTraining(PRUNE)

    with _folder(task["run_dir"]) as folder:
        trainer = Trainer(
            task["env"],
            BUILT_IN[task["algo"]][0].from_dict(task["settings"]),
            env_kwargs=task["env_kwargs"],
            wrappers=[wrapper_at(address) for address in task["wrappers"]],
            env_module=task["env_module"],
            callbacks=[EvaluateEvery(every, task["eval_episodes"], keep_best=False), report],
            total_steps=task["total_steps"],
            seed=task["seed"],
            run_dir=str(folder),
            overwrite=task["overwrite"],
            checkpoint_interval_s=1e9,
            save_env_states=False,
            **task["run"],
        )
        with trainer:
            for _ in trainer:
                pass
        ended = "pruned" if trainer.stopped == PRUNE else "complete"
        return {"ended": ended, "seconds": trainer.seconds, **last}


def _verdict(verdicts: TextIO) -> str:
    line = verdicts.readline()
    if not line:
        raise EOFError
    return line.strip()


@contextlib.contextmanager
def _folder(path: str | None) -> Iterator[Path]:
    """The folder of a trial's run: the one that is wanted, or one that is gone afterwards."""
    if path is not None:
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="rookery-trial-", ignore_cleanup_errors=True) as made:
        yield Path(made) / "run"


def _tell(answers: TextIO, answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
