"""A worker that ends or stops anywhere is noticed, named, and replaced if the policy says so."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import drive
import pytest
from counting_envs import Counting
from drive import Ledger
from traps import Trap, armed

import rookery

# Point, the operations within which it can be reached.
ORDERS = ("reset", "step", "step_large", "send", "send_reset")
REACHED_IN: dict[str, tuple[str, ...]] = {
    "before anything": ("make",),
    "own group": ("make",),
    "watching the caller": ("make",),
    "before a message comes": ("make",),
    "after a message came": ("make",),
    "like the caller": ("make",),
    "before the build": ("make",),
    "amid the build": ("make",),
    "after the build": ("make",),
    "before a message is sent": ("make", "step_large", "call"),
    "half a message": ("make", "step_large", "call"),
    "after a message was sent": ("make", "step_large", "call"),
    "before the board": ("make",),
    "before a block": ("make", "step"),
    "before a mapping": ("make", "step"),
    "after a mapping": ("make", "step"),
    "after the board": ("make",),
    "before serving": ("make",),
    "order seen": ORDERS,
    "before an order": ORDERS,
    "after an order": ORDERS,
    "before progress": ORDERS,
    "after progress": ORDERS,
    "before busy_s": ORDERS,
    "after busy_s": ORDERS,
    "before status": ORDERS,
    "after status": ORDERS,
    "before answered_at": ("send", "send_reset"),
    "after answered_at": ("send", "send_reset"),
    "before answered": ORDERS,
    "half of answered": ("reset", "step", "step_large"),
    "after answered": ORDERS,
    "before the ring": ORDERS,
    "after the ring": ORDERS,
    "before an answer": ("call", "get_attr"),
    "after an answer": ("call", "get_attr"),
    "before set_attr": ("set_attr",),
    "after set_attr": ("set_attr",),
    "before prepare_reset": ("reset_with_options",),
    "after prepare_reset": ("reset_with_options",),
    "before adopt_larger_rows": ("step",),
    "after adopt_larger_rows": ("step",),
    "before close": ("close",),
    "before env.close": ("close",),
    "after env.close": ("close",),
    "leaving": ("close",),
}
COMMANDS = {
    "step_large": "step",
    "reset_with_options": "reset",
    "send": "step",
    "send_reset": "reset",
    "get_attr": "call",
}
ENLARGING = (
    "before a block",
    "before a mapping",
    "after a mapping",
    "before adopt_larger_rows",
    "after adopt_larger_rows",
)


CALLS = ("set_attr", "call", "get_attr")  # which have no deadline but the one of `call_wait`


def _place(operations: tuple[str, ...], point: str, operation: str) -> int:
    """When to set a trap: before which of the operations."""
    if operation == "step" and point in ENLARGING:
        return operations.index("step_large") + 1
    return operations.index(operation)


def _go_through(trap: Trap, operation: str, on_fault: str, method: str, **options: Any) -> Ledger:
    """Do everything once, with a trap that is set before one of the operations."""
    faults = drive.policy(on_fault, trap.how)
    operations = drive.OPERATIONS
    if trap.how == "stop":
        operations = tuple(name for name in operations if name not in CALLS)
    place = _place(operations, trap.point, operation)

    def make() -> rookery.VectorEnv:
        return rookery.make_vec(
            Counting, 4, "process", 2, faults=faults, start_method=method, **options
        )

    ledger = Ledger(make, (2, 3), faults.restarts)
    with ExitStack() as stack:
        stack.enter_context(armed(trap))
        if trap.how == "stop":
            stack.enter_context(drive.deadlines_pass_when_stopped(trap))
        try:
            for i, name in enumerate(operations[:-1]):
                if i == place:
                    trap.set()
                ledger.do(name)
            if place == len(operations) - 1:
                trap.set()
            ledger.venv.close(**({"timeout": 0.5} if trap.is_set and trap.how == "stop" else {}))
        finally:
            if ledger.venv is not None:
                ledger.venv.close()
    return ledger


def _check(ledger: Ledger, trap: Trap) -> None:
    assert not any(each.is_set for each in trap.all()), "nobody came by"
    for where, error in ledger.errors:
        text = str(error)
        assert "Counting" in text
        if trap.how == "kill":
            assert isinstance(error, rookery.WorkerDied), text
            assert "killed by SIGKILL" in text
            assert error.env_ids
        else:
            assert isinstance(error, rookery.WorkerTimeout), text
        assert error.command in (COMMANDS.get(where, where), "make"), text


PLACES = [
    (point, operation, how, on_fault)
    for point, where in REACHED_IN.items()
    for operation in where
    for how in ("kill", "stop")
    for on_fault in ("raise", "restart")
    if how == "kill" or operation not in CALLS
]


@pytest.mark.parametrize(("point", "operation", "how", "on_fault"), PLACES)
def test_a_worker_that_ends_or_stops_anywhere(
    tmp_path: Path, point: str, operation: str, how: str, on_fault: str
) -> None:
    trap = Trap(point, str(tmp_path), how=how)
    ledger = _go_through(trap, operation, on_fault, "forkserver")
    _check(ledger, trap)
    if operation == "close":
        assert not ledger.errors and not ledger.faults
    elif on_fault == "raise":
        assert len(ledger.errors) == 1 and not ledger.faults
    else:
        assert {where for where, _ in ledger.errors} <= set(drive.MAY_RAISE)
        assert len(ledger.errors) <= 1 and ledger.faults <= 2


# Where the worker that is to follow ends or stops, too; and in which operation its predecessor did.
SUCCESSORS = [
    ("before anything", "step"),
    ("after a message came", "step"),
    ("before the build", "step"),
    ("amid the build", "send"),
    ("half a message", "reset"),
    ("after a message was sent", "step"),
    ("before the board", "step_large"),
    ("before a mapping", "step"),
    ("after the board", "send_reset"),
    ("before set_attr", "step"),
    ("after set_attr", "reset"),
    ("before prepare_reset", "reset_with_options"),
    ("before an order", "reset_with_options"),
    ("after answered", "step"),
    ("before close", "get_attr"),
]


FOLLOWING = [
    (point, operation, how, on_fault)
    for point, operation in SUCCESSORS
    for how in ("kill", "stop")
    for on_fault in ("raise", "restart")
    if how == "kill" or (operation not in CALLS and "set_attr" not in point)
    # Whoever resets after an error has no options to prepare.
    if on_fault == "restart" or point != "before prepare_reset"
]


@pytest.mark.parametrize(("point", "operation", "how", "on_fault"), FOLLOWING)
def test_so_may_the_worker_that_follows(
    tmp_path: Path, point: str, operation: str, how: str, on_fault: str
) -> None:
    second = Trap(point, str(tmp_path), how=how)
    first = "before an answer" if operation in CALLS else "before an order"
    trap = Trap(first, str(tmp_path), how=how, then=second if second.point != first else None)
    ledger = _go_through(trap, operation, on_fault, "forkserver")
    _check(ledger, trap)
    if on_fault == "restart":
        assert {where for where, _ in ledger.errors} <= set(drive.MAY_RAISE)
        assert ledger.faults <= 4


@pytest.mark.parametrize("helper", ["group", "session"])
@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
@pytest.mark.parametrize(
    ("point", "operation"),
    [
        ("amid the build", "make"),
        ("half a message", "make"),
        ("before a block", "make"),
        ("before an order", "step"),
        ("half a message", "step_large"),
        ("before adopt_larger_rows", "step"),
        ("before prepare_reset", "reset_with_options"),
        ("half a message", "call"),
        ("after answered", "send"),
        ("after env.close", "close"),
        ("leaving", "close"),
    ],
)
@pytest.mark.parametrize("on_fault", ["raise", "restart"])
def test_a_process_that_holds_what_the_worker_had_open_hides_no_end(
    tmp_path: Path, on_fault: str, point: str, operation: str, method: str, helper: str
) -> None:
    trap = Trap(point, str(tmp_path), helper=helper)
    ledger = _go_through(trap, operation, on_fault, method)
    _check(ledger, trap)
    if operation != "close":
        assert ledger.errors or ledger.faults or on_fault == "restart"


@pytest.mark.parametrize("mode", ["same_step", "disabled"])
@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
@pytest.mark.parametrize(
    ("point", "operation"),
    [
        ("before an order", "step"),
        ("after an order", "send"),
        ("half of answered", "step"),
        ("after answered", "step_large"),
        ("after the ring", "step"),
        ("half a message", "step_large"),
        ("before adopt_larger_rows", "step"),
        ("after progress", "send_reset"),
    ],
)
@pytest.mark.parametrize("on_fault", ["raise", "restart"])
def test_every_mode_closes_what_was_cut_short(
    tmp_path: Path, on_fault: str, point: str, operation: str, method: str, copy: bool, mode: str
) -> None:
    trap = Trap(point, str(tmp_path))
    ledger = _go_through(trap, operation, on_fault, method, copy=copy, autoreset_mode=mode)
    _check(ledger, trap)
    assert bool(ledger.errors) == (on_fault == "raise")
