"""Processes that train one trial after the other: `Job` in the parent, `main` in the child.

The child, ``python -m rookery.tuning.hyperparameters.jobs``, reads trials from standard input, one
JSON object per line. It writes a line to its original standard output for each evaluation, and then
reads ``go`` or ``prune``. A last line has the outcome of the trial. Output of envs goes to standard
error.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from rookery.common.cpus import usable_cpus
from rookery.common.importing import search_path

GO, PRUNE = "go", "prune"
_END_S = 15.0  # time for a process to exit after SIGTERM
_LAST_LINES = 3  # lines of output of a dead process in the error


@dataclass(frozen=True)
class Task:
    """One training run.

    Attributes:
        algo: name of the algorithm.
        env: gym id, ``"module:Id"`` or ``"module:function"``.
        env_kwargs: keyword arguments of every env.
        wrappers: addresses of the wrappers, ``module:Class``.
        env_module: module to import first, or None.
        settings: settings of the algorithm.
        run: settings of the run.
        total_steps: number of env steps.
        seed: seed of the run.
        evaluations: number of evaluations, evenly spaced.
        eval_episodes: number of episodes of each evaluation.
        run_dir: folder of the run; None for a temporary one.
        overwrite: True if an existing run may be replaced.
    """

    algo: str
    env: str
    env_kwargs: Mapping[str, Any]
    wrappers: tuple[str, ...]
    env_module: str | None
    settings: Mapping[str, Any]
    run: Mapping[str, Any]
    total_steps: int
    seed: int
    evaluations: int
    eval_episodes: int
    run_dir: str | None = None
    overwrite: bool = False


class Answer(NamedTuple):
    """A line that a job wrote.

    Attributes:
        job: the job.
        content: content of the line; None if the process exited.
    """

    job: Job
    content: dict[str, Any] | None


class Job:
    """A process that trains one task at a time.

    Args:
        answers: queue that receives the answers, from a thread.
        jobs: number of jobs, which share the cores.
    """

    def __init__(self, answers: queue.Queue[Answer], jobs: int) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - `end` closes it
        threads = str(max(usable_cpus() // jobs, 1))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rookery.tuning.hyperparameters.jobs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": search_path(), "OMP_NUM_THREADS": threads},
        )
        self._answers = answers
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def give(self, task: Task) -> None:
        """Start a task; its answers arrive in the queue."""
        self._write(json.dumps(asdict(task)))

    def go_on(self, prune: bool) -> None:
        """Answer an evaluation: continue or prune."""
        self._write(PRUNE if prune else GO)

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the reader reports the exit
            print(line, file=self._process.stdin, flush=True)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(Answer(self, json.loads(line)))
        self._answers.put(Answer(self, None))

    def death(self) -> str:
        """Describe why the process exited."""
        code = self._process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        hint = ", which the system sends if memory is exhausted" if code == -9 else ""
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        said = "; ".join(line.strip() for line in lines[-_LAST_LINES:])
        return f"its process exited with {how}{hint}" + (f": {said}" if said else "")

    def ask_to_end(self) -> None:
        """Send SIGTERM, which also ends the envs; `end` waits for the exit."""
        if self._process.poll() is None:
            self._process.terminate()

    def end(self) -> None:
        """End the process, after some seconds by SIGKILL."""
        self.ask_to_end()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        for file in (self._process.stdin, self._process.stdout, self._stderr):
            if file is not None:
                with contextlib.suppress(OSError):  # unread input is lost
                    file.close()


# ---------------------------------------------------------------- the child process


def main() -> None:
    """Train trials until standard input is closed."""
    # Ctrl-C reaches all processes of a terminal; the parent process handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        answer = run_trial(json.loads(line), sys.stdin, answers)
        _write_line(answers, answer)


def run_trial(task: dict[str, Any], verdicts: TextIO, answers: TextIO) -> dict[str, Any]:
    """Train one trial.

    Args:
        task: fields of `Task`.
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
        _write_line(answers, {"evaluation": place, **last})
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


def _write_line(answers: TextIO, answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
