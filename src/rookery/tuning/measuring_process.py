"""The measuring process: it opens a run's envs, lets the real policy act, and reports the speed.

It is a separate process, so that an env that hangs, crashes or uses too much memory costs only the
current candidate. The first line on standard input describes the run; each further line is an order
as JSON. Answers are lines of JSON on the original standard output. Output of envs goes to standard
error.
"""

from __future__ import annotations

import base64
import json
import math
import os
import pickle
import sys
import threading
import time
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any, TextIO

import numpy as np
import psutil

from rookery.common.pickling import pickled_for_workers
from rookery.common.process_tree import with_children
from rookery.env.recipe import make_recipes
from rookery.learn.base import Algorithm
from rookery.run.algorithms import BUILT_IN, BuiltIn, OwnModules, config_of
from rookery.run.collection import Collection, collector_for, open_collection, stepped
from rookery.run.env_source import EnvSource
from rookery.run.settings import TrainSettings
from rookery.run.threads import threads_and_memory_for
from rookery.tuning.memory import memory_of
from rookery.vector.auto.probe import measure as measure_env

WINDOW_S = 0.1  # rollouts are combined into windows of at least this length
_LEAST_STEPS = 4  # in a measured rollout
_FIRST_STEPS = 8  # in a rollout of unknown duration
_ROLLOUTS = 4  # least number of rollouts in a slice
_TRIED_STEPS = 20  # before memory is measured
_MOST_ENVS = 9  # largest number of envs in a memory measurement


@dataclass(frozen=True)
class Subject:
    """The run to measure.

    Attributes:
        source: source of the envs.
        algorithm: custom algorithm; None for a built-in one.
        name: name of the algorithm.
        modules: custom modules of the network.
        settings: settings of the run.
    """

    source: EnvSource
    algorithm: Algorithm | None
    name: str
    modules: OwnModules
    settings: TrainSettings

    def build(self, config: dict[str, Any] | None, num_steps: int | None) -> Algorithm:
        """Return the algorithm with the given config and, unless None, rollout length."""
        if self.algorithm is not None:
            return self.algorithm
        own = BUILT_IN[self.name][0].from_dict(config or {})
        if num_steps is not None and not own.is_recurrent:
            own = replace(own, num_steps=num_steps)  # type: ignore[type-var]
        return BuiltIn(self.name, own, self.modules)


def pack(subject: Subject) -> str:
    """Return the first line for standard input.

    Raises:
        Exception: any error of pickling.
    """
    path = base64.b64encode(json.dumps(sys.path).encode()).decode()
    return f"{path} {base64.b64encode(pickled_for_workers(subject)).decode()}\n"


def _unpack(line: str) -> Subject:
    path, pickled = line.split()
    known = set(sys.path)
    sys.path += [place for place in json.loads(base64.b64decode(path)) if place not in known]
    subject: Subject = pickle.loads(base64.b64decode(pickled))
    return subject


def main() -> None:
    """Execute orders until standard input is closed."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    orders: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read_orders, args=(orders,), daemon=True).start()
    subject = _unpack(orders.get())
    _send(answers, {"ready": True})
    while True:
        order = json.loads(orders.get())
        try:
            result = _obey(subject, order, answers)
        except Exception as error:  # noqa: BLE001  envs may raise anything
            result = {"failed": _in_short(error)}
        _send(answers, result)


def _read_orders(orders: SimpleQueue[str]) -> None:
    """Forward orders; exit when standard input is closed, as the parent process is gone."""
    for line in sys.stdin:
        orders.put(line)
    os._exit(0)


def _send(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _in_short(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}".rstrip(": ")


def _obey(subject: Subject, order: dict[str, Any], answers: TextIO) -> dict[str, Any]:
    def stage(name: str) -> None:
        _send(answers, {"stage": name})

    if order["do"] == "step":
        return _step(subject, stage)
    if order["do"] == "memory":
        return _memory(subject, stage, int(order["most_bytes"]))
    return _measure(subject, order, stage)


# ---------------------------------------------------------------- step time and memory


def _step(subject: Subject, stage: Any) -> dict[str, Any]:
    """Measure the step time of one env, and whether it mostly waits."""
    stage("measuring one env")
    source = replace(subject.source, in_batch=False)
    arguments = source.arguments()
    (recipe,) = make_recipes(arguments["env"], 1, arguments["env_kwargs"], arguments["wrappers"])
    threads = subject.settings.threads_per_worker
    found = measure_env(recipe, 8, True, subject.settings.start_method, threads)
    return {"env_s": found.worker_env_s + found.waiting_s, "waits": found.waits}


def _memory(subject: Subject, stage: Any, most_bytes: int) -> dict[str, Any]:
    """Measure the memory of a worker with one env, and of one with several."""
    caller_bytes = memory_of([psutil.Process()])
    source = replace(subject.source, in_batch=False)
    stage("measuring the memory of one env")
    one, row_bytes = _worker_memory(subject, source, 1)
    some = int(min(max(most_bytes // max(one, 1), 2), _MOST_ENVS))
    stage(f"measuring the memory of {some} envs")
    several, _ = _worker_memory(subject, source, some)
    return {
        "one_bytes": one,
        "some_bytes": several,
        "some": some,
        "caller_bytes": caller_bytes,
        "row_bytes": row_bytes,
    }


def _worker_memory(subject: Subject, source: EnvSource, num_envs: int) -> tuple[int, int]:
    """Return the bytes of a worker after some steps, and of one observation."""
    options = {**subject.settings.vector_options(), "backend": "process", "num_workers": 1}
    options |= {"caller_steps": False, "isolate": False}
    with source.make(num_envs, **options) as venv:
        venv.action_space.seed(0)
        obs, _ = venv.reset(seed=0)
        for _ in range(_TRIED_STEPS):
            obs = venv.step(venv.action_space.sample())[0]
        size = memory_of(psutil.Process(pid) for pid in venv.pids)
        return size, _size_of(obs) // num_envs


def _size_of(obs: Any) -> int:
    """Return the bytes of nested arrays."""
    if isinstance(obs, dict):
        return sum(map(_size_of, obs.values()))
    if isinstance(obs, tuple):
        return sum(map(_size_of, obs))
    return int(np.asarray(obs).nbytes)


# ---------------------------------------------------------------- a candidate


def _measure(subject: Subject, order: dict[str, Any], stage: Any) -> dict[str, Any]:
    """Measure one candidate: collect, and learn if the order says so."""
    settings = replace(subject.settings, **order["settings"])
    learns, seconds = bool(order["learns"]), float(order["seconds"])
    algorithm = subject.build(order["config"], None)
    if not learns:
        steps = rollout_steps(algorithm.num_steps, seconds, order["step_s"])
        algorithm = subject.build(order["config"], steps)
    config = config_of(algorithm)
    if config is not None and learns:
        config.check(settings.num_envs)
    collector = collector_for(algorithm, settings)
    source = stepped(subject.source, settings, collector)
    began = time.perf_counter()
    stage("starting the envs")
    collection = open_collection(source, algorithm, settings, collector, settings.seed, _nothing)
    try:
        with threads_and_memory_for(config, collection.policy, settings.num_envs):
            stage("collecting the first rollout")
            _rollout(collection, algorithm, learns)
            opened_s = time.perf_counter() - began
            at_first = memory_of(with_children(os.getpid()))
            stage("collecting")
            result = _collect(collection, algorithm, learns, seconds)
        size_bytes = memory_of(with_children(os.getpid()))
    finally:
        stage("closing the envs")
        collection.close()
    grown = 0 if learns and algorithm.keeps_replay else size_bytes - at_first
    return {**result, "opened_s": opened_s, "memory_bytes": size_bytes, "grown_bytes": grown}


def rollout_steps(num_steps: int, seconds: float, step_s: float) -> int:
    """Return the length of a measured rollout, short enough that a slice has several.

    Args:
        num_steps: rollout length of the run.
        seconds: duration of the slice.
        step_s: time of a step of all envs, in seconds; 0 if unknown.
    """
    if not step_s:
        return min(num_steps, _FIRST_STEPS)
    return max(
        min(num_steps, math.ceil(seconds / (_ROLLOUTS * step_s))), min(_LEAST_STEPS, num_steps)
    )


def _collect(
    collection: Collection, algorithm: Algorithm, learns: bool, seconds: float
) -> dict[str, Any]:
    steps, collect_s, learn_s = 0, 0.0, 0.0
    windows: list[float] = []
    in_window, window_s = 0, 0.0
    end = time.perf_counter() + seconds
    while not steps or time.perf_counter() < end:
        made, collecting, learning = _rollout(collection, algorithm, learns)
        steps, collect_s, learn_s = steps + made, collect_s + collecting, learn_s + learning
        in_window, window_s = in_window + made, window_s + collecting
        if window_s >= WINDOW_S:
            windows.append(in_window / window_s)
            in_window, window_s = 0, 0.0
    windows = windows or [steps / collect_s]  # the slice may be shorter than a window
    return {"steps": steps, "collect_s": collect_s, "learn_s": learn_s, "windows": windows}


def _rollout(
    collection: Collection, algorithm: Algorithm, learns: bool
) -> tuple[int, float, float]:
    """Collect one rollout; return its steps, and the seconds of collecting and learning."""
    began = time.perf_counter()
    rollout = collection.collector.collect()
    collected = time.perf_counter()
    if learns:
        algorithm.update(rollout, 0.0)
    learned = time.perf_counter()
    collection.policy.version += 1
    steps = int(rollout.num_transitions)
    return steps, collected - began, learned - collected if learns else 0.0


def _nothing() -> None:
    """Do nothing between steps; the parent process ends this one."""
