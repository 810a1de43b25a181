"""One vector env, asked for random things while its workers end and stop at random points."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import drive
import numpy as np
from counting_envs import Counting
from drive import Ledger
from traps import Trap, armed

import rookery
from rookery.vector.specs import split

# Points that a worker passes while it serves, and those that the next one passes first.
_SERVING = (
    "half a message",
    "before a message is sent",
    "after a message was sent",
    "order seen",
    "before an order",
    "after an order",
    "before progress",
    "after progress",
    "after busy_s",
    "before status",
    "after status",
    "before answered",
    "half of answered",
    "after answered",
    "before the ring",
    "after the ring",
    "before an answer",
    "after an answer",
    "after prepare_reset",
)
_STARTING = (
    "before anything",
    "after a message came",
    "before the build",
    "amid the build",
    "half a message",
    "after a message was sent",
    "before the board",
    "before a mapping",
    "after the board",
    "before an order",
    "before the ring",
)
_OPERATIONS = ("reset", "step", "step", "step", "step_large", "reset_with_options", "send")
_CALLS = ("set_attr", "call", "get_attr")


def soak_once(rng: np.random.Generator, num_operations: int = 40) -> dict[str, int]:
    """Make a vector env, ask it for random things under random faults, and close it.

    Args:
        rng: chooses points, policies, start methods, backends and numbers of envs and workers.
        num_operations: how many calls.

    Returns:
        How many ``operations`` there were, ``faults`` (transitions that were closed), ``errors``
        (that were raised) and ``restarts`` (workers that took the place of others).

    Raises:
        AssertionError: when anything comes out that cannot be.
    """
    backend = str(rng.choice(["process", "process", "process", "thread", "serial"]))
    num_envs = int(rng.integers(1, 7))
    num_workers = int(rng.integers(1, num_envs + 1))
    how = str(rng.choice(["kill", "kill", "stop"]))
    on_fault = str(rng.choice(["raise", "restart"]))
    method = str(rng.choice(["forkserver", "forkserver", "spawn", "fork"]))
    options: dict[str, Any] = {
        "copy": bool(rng.integers(2)),
        "autoreset_mode": str(rng.choice(["next_step", "same_step", "disabled"])),
    }
    if backend == "process":
        faults = replace(drive.policy(on_fault, how), max_restarts=10 * num_operations)
        options |= {"faults": faults, "start_method": method}
    if backend != "serial":
        options["num_workers"] = num_workers
    names = [*_OPERATIONS, *(_CALLS if how == "kill" else ())]
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, ExitStack() as stack:
        ids = split(num_envs, num_workers)[int(rng.integers(num_workers))]
        trap = _chain(rng, folder, ids.start, how)
        if backend == "process":
            stack.enter_context(armed(trap))
        if how == "stop":
            stack.enter_context(drive.deadlines_pass_when_stopped(trap))
        ledger = Ledger(
            lambda: rookery.make_vec(Counting, num_envs, backend, **options),
            tuple(ids),
            on_fault == "restart",
            num_envs,
        )
        pids: set[int] = set()
        try:
            ledger.do("make")
            ledger.do("reset")
            pids |= set(ledger.venv.pids)
            for turn in range(num_operations):
                if backend == "process" and turn % 8 == 4:
                    trap.set()
                ledger.do(str(rng.choice(names)))
                pids |= set(ledger.venv.pids)
        finally:
            if ledger.venv is not None:
                ledger.venv.close(timeout=0.5 if how == "stop" else None)
        assert on_fault == "restart" or not ledger.faults
        return {
            "operations": ledger.operations,
            "faults": ledger.faults,
            "errors": len(ledger.errors),
            "restarts": max(len(pids) - num_workers, 0) if backend == "process" else 0,
        }


def _chain(rng: np.random.Generator, folder: str, first_id: int, how: str) -> Trap:
    """A trap, and at times one for the worker that follows."""
    worker = f"rookery-{first_id}"
    first, second = str(rng.choice(_SERVING)), str(rng.choice(_STARTING))
    then = Trap(second, folder, worker, how) if second != first and rng.integers(2) else None
    return Trap(first, folder, worker, how, then=then)


def main() -> None:
    """Soak with random seeds until interrupted; for a try by hand."""
    seed = 0
    while True:
        print(seed, soak_once(np.random.default_rng(seed)), flush=True)
        seed += 1


if __name__ == "__main__":
    main()
