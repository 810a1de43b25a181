"""A process that trains one trial after the other; run with ``python -m``.

Each line on standard input is a trial as a JSON object. The process writes a line to its original
standard output for each evaluation, and then reads ``go`` or ``prune``. A last line has the outcome
of the trial. Output of envs goes to standard error.
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
    """Train trials until standard input is closed."""
    # Ctrl-C reaches all processes of a terminal; the parent process handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        answer = run_trial(json.loads(line), sys.stdin, answers)
        _tell(answers, answer)


def run_trial(task: dict[str, Any], verdicts: TextIO, answers: TextIO) -> dict[str, Any]:
    """Train one trial.

    Args:
        task: fields of `rookery.tuning.hyperparameters.jobs.Task`.
        verdicts: stream with a line after each evaluation.
        answers: stream that receives a line for each evaluation.

    Returns:
        The outcome of the trial: ``{"ended": ...}`` or ``{"failed": reason}``.
    """
    try:
        return _trained(task, verdicts, answers)
    except (BrokenPipeError, EOFError):
        raise SystemExit("the parent process is gone") from None
    except Exception as error:  # noqa: BLE001 - a trial may fail in any way; the search continues
        return {"failed": f"{type(error).__name__}: {error}"}


def _trained(task: dict[str, Any], verdicts: TextIO, answers: TextIO) -> dict[str, Any]:
    from rookery.callbacks import EvaluateEvery
    from rookery.run.algorithms import BUILT_IN
    from rookery.run.callbacks import StopTraining
    from rookery.run.families import wrapper_at
    from rookery.run.trainer import Trainer

    every = max(task["total_steps"] // task["evaluations"], 1)
    last: dict[str, Any] = {}

    def report(trainer: Any, update: Any) -> None:
        """Report an evaluation, if there is one, and stop if the answer is to prune."""
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
    """Yield the folder of a trial's run: the given one, or a temporary one."""
    if path is not None:
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="rookery-trial-", ignore_cleanup_errors=True) as made:
        yield Path(made) / "run"


def _tell(answers: TextIO, answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
