"""Additional learners in processes on this machine."""

from __future__ import annotations

import shutil
import tempfile
from multiprocessing import Pipe
from multiprocessing.process import BaseProcess
from pathlib import Path
from pickle import loads
from typing import Any, NamedTuple, NoReturn

from rookery.common.cpus import usable_cpus
from rookery.common.pickling import by_value
from rookery.run.learners.learners import ENDING_S, REASON_S, StartedLearners
from rookery.run.learners.other_learner import LEFT_ALONE, READY, LearnerTask, run
from rookery.run.plan import RunPlan
from rookery.run.settings import CollectorName
from rookery.worker.pipes import PipeEnd, wait
from rookery.worker.start.launch import start_process


class _Other(NamedTuple):
    rank: int
    process: BaseProcess
    pipe: PipeEnd


class LocalLearners(StartedLearners):
    """The first of several learners, which starts the others in local processes.

    Args:
        plan: plan of the run.
        collector: name of the collector.
        policy_seed: seed of the run's policy.
    """

    def __init__(self, plan: RunPlan, collector: CollectorName, policy_seed: int) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="rookery-learners-"))
        self._others: list[_Other] = []
        super().__init__(plan, str(self._folder / "store"))
        self.start_others(plan, collector, policy_seed)

    def start(self, task: LearnerTask) -> None:
        here, there = Pipe()
        with there:
            process = start_process(
                "spawn", max(usable_cpus() // self.share.size, 1), run, (there, by_value(task)),
                f"rookery learner {task.share.rank}",
            )  # fmt: skip
        self._others.append(_Other(task.share.rank, process, here))

    def meet(self) -> None:
        for other in self._others:
            wait([other.pipe, other.process.sentinel])
            said = _last_message(other.pipe)
            if said != READY:
                self._died(other, said)
        for other in self._others:
            other.pipe.send_bytes(b"")
        super().meet()

    def lost(self, error: Exception) -> NoReturn:
        self._is_over = True
        waiting: dict[Any, _Other] = {other.process.sentinel: other for other in self._others}
        while waiting and (ended := wait(list(waiting), REASON_S)):
            for sentinel in ended:
                other = waiting.pop(sentinel)
                said = _last_message(other.pipe)
                if said or other.process.exitcode != LEFT_ALONE:
                    self._died(other, said)
        super().lost(error)

    def _died(self, other: _Other, failure: bytes | None) -> NoReturn:
        if not failure:
            other.process.join(ENDING_S)
        code = other.process.exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended: {code}"
        cause = loads(failure).error() if failure else None
        self.raise_died(other.rank, f" (process {other.process.pid})", how, cause)

    def close(self) -> None:
        super().close()
        for other in self._others:
            other.pipe.close()
        for other in self._others:
            other.process.join(ENDING_S)
            if other.process.is_alive():
                other.process.kill()
                other.process.join()
            other.process.close()
        self._others.clear()
        shutil.rmtree(self._folder, ignore_errors=True)


def _last_message(pipe: PipeEnd) -> bytes | None:
    try:
        return pipe.recv_bytes() if wait([pipe], 0) else None
    except (EOFError, OSError):
        return None
