"""Callers that kill themselves at some step; run as a program, which forks them.

So what takes long to import is imported once. A line of JSON on standard input asks for a caller:
``point``, an index into CALLER_POINTS, ``method``, by which its workers start, ``traps``, a folder,
``errors``, a file for its standard error, and ``environment``, which is added to its own. It is
answered with a line when the caller has ended: its pid, which is its session's too, and its exit
code, negative for a signal.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from contextlib import ExitStack
from typing import Any

import drive
from counting_envs import Counting
from traps import POINTS, Trap, armed, around

import rookery
from rookery.policy import make_policy

BACKEND, PROCESS = "worker.worker_backend:WorkerBackend", "worker.process:WorkerProcess"
SUPERVISOR = "worker.supervisor:Supervisor"

# Where, and in which operation; "restart" is a step in which a worker ends and is replaced, and
# "collect" the life of a collector.
CALLER_POINTS: list[tuple[str, str, str]] = [
    ("worker.wait.event:Doorbell.__init__", "after", "make"),
    ("worker.start.launch:start_process", "before", "make"),
    ("worker.start.launch:start_process", "after", "make"),
    (f"{PROCESS}.greet", "before", "make"),
    ("half a message", "", "make"),
    (f"{PROCESS}.greet", "after", "make"),
    (f"{BACKEND}.describe", "before", "make"),
    (f"{BACKEND}.describe", "after", "make"),
    ("worker.shared_arrays:Board.allocate", "after", "make"),
    (f"{PROCESS}.assign", "before", "make"),
    ("worker.channel:PipeChannel.send_block", "before", "make"),
    ("worker.channel:PipeChannel.send", "after", "make"),
    ("worker.channel:PipeChannel.send_block", "after", "make"),
    (f"{PROCESS}.assign", "after", "make"),
    ("worker.orders:OrderPart.ask_all", "before", "step"),
    ("worker.orders:OrderPart.ask", "after", "reset"),
    ("worker.orders:OrderPart.ask_all", "after", "step"),
    (f"{BACKEND}.finish", "before", "step_large"),
    (f"{BACKEND}._message_of_order", "before", "step_large"),
    (f"{BACKEND}.begin_call", "before", "call"),
    ("half a message", "", "call"),
    (f"{BACKEND}.begin_call", "after", "call"),
    (f"{BACKEND}.finish_call", "after", "call"),
    (f"{BACKEND}.tell_reset", "before", "reset_with_options"),
    (f"{BACKEND}.tell_reset", "after", "reset_with_options"),
    ("worker.shared_arrays:Board.enlarge_rows", "after", "step_rows"),
    ("worker.shared_arrays:Board.send_larger_rows", "before", "step_rows"),
    (f"{BACKEND}.adopt_larger_rows", "after", "step_rows"),
    (f"{SUPERVISOR}.restart", "before", "restart"),
    (f"{SUPERVISOR}.restart", "after", "restart"),
    (f"{SUPERVISOR}.renew", "before", "restart"),
    (f"{SUPERVISOR}._have", "before", "restart"),
    (f"{SUPERVISOR}.renew", "after", "restart"),
    ("vector.shutdown:_begin_all", "before", "close"),
    ("vector.shutdown:_begin_all", "after", "close"),
    (f"{PROCESS}.stop", "before", "close"),
    (f"{PROCESS}.stop", "after", "close"),
    (f"{BACKEND}.lend", "before", "collect"),
    (f"{PROCESS}.send_block", "before", "collect"),
    (f"{BACKEND}.lend", "after", "collect"),
    ("collect.actor_pool:ActorPool._install", "after", "collect"),
    ("policy.weights:_checksum", "before", "collect"),
    ("collect.actor_pool:ActorPool.collect", "before", "collect"),
    ("collect.actor_pool:ActorPool.collect", "after", "collect"),
    ("collect.actor_pool:_end", "before", "collect"),
]


def live(point: int, method: str, folder: str) -> None:
    """Do everything, up to the step at which this process ends."""
    target, when, operation = CALLER_POINTS[point]
    trap = Trap("caller", folder)
    (POINTS[target] if target in POINTS else around(target, when))(trap.spring)
    if operation == "collect":
        trap.set()
        with rookery.WorkerCollector(
            Counting, make_policy, 4, 2, num_steps=8, start_method=method
        ) as collector:
            collector.collect()
        return
    worker = Trap("before an order", folder)
    with ExitStack() as stack:
        if operation == "restart":
            stack.enter_context(armed(worker))
        _do_all(operation, trap, worker, method)


def _do_all(operation: str, trap: Trap, worker: Trap, method: str) -> None:
    faults = drive.policy("restart" if operation == "restart" else "raise", "kill")
    ledger = drive.Ledger(
        lambda: rookery.make_vec(Counting, 4, "process", 2, faults=faults, start_method=method),
        (2, 3),
        faults.restarts,
    )
    names = list(drive.OPERATIONS)
    place = {"step_rows": names.index("step_large") + 1, "restart": names.index("step")}.get(
        operation, -1
    )
    for i, name in enumerate(names):
        if name == operation or i == place:
            if operation == "restart":
                worker.set()
            trap.set()
        ledger.do(name)


def _begin(wish: dict[str, Any]) -> int:
    """Fork a caller; return its pid."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setsid()
        os.environ.update(wish["environment"])
        os.dup2(os.open(wish["errors"], os.O_WRONLY | os.O_CREAT), 2)
        live(wish["point"], wish["method"], wish["traps"])
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    """Fork callers until nobody asks for one."""
    import torch  # noqa: F401  # which those that collect need, and none is to import again

    for line in sys.stdin:
        pid = _begin(json.loads(line))
        _, status = os.waitpid(pid, 0)
        print(pid, os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
