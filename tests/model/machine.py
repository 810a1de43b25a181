"""A state machine that draws what happens next, on one backend."""

from __future__ import annotations

from typing import Any, ClassVar

import hypothesis
from driver import Driver
from fault_model import DEADLY, HANGS, SOFT
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from model_backends import BACKENDS, NUM_ENVS

from rookery.testing import Fault

SEEDS = st.integers(0, 1000)
PLAIN = st.sampled_from([0, 0, 0, 1, 2, Fault.END, Fault.TRUNCATE])
ACTIONS = st.tuples(*[PLAIN] * NUM_ENVS)
SOME = st.sets(st.integers(0, NUM_ENVS - 1), min_size=1).map(sorted)
LINES = st.integers(1, 150)
NEXT_CALLS = ["wait", "reset", "masked reset", "step", "call", "close"]  # after an interruption
STEP_TIMEOUT_S = 10.0  # of vector envs whose envs may hang


class Machine(RuleBasedStateMachine):
    """What a program, its envs, its user and its machine can do to a vector env.

    Attributes:
        backend_name: which backend; subclasses say it.
        start_methods: of the workers.
        hangs: whether envs may hang; a step of theirs ends with its deadline.
        totals: what all runs together have counted.
    """

    backend_name: ClassVar[str]
    start_methods: ClassVar[tuple[str | None, ...]] = (*[None] * 9, "spawn")
    hangs: ClassVar[tuple[bool, ...]] = (*[False] * 9, True)
    totals: ClassVar[dict[str, int]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.driver: Any = None

    @precondition(lambda self: self.driver is None or self.driver.is_closed)
    @rule(
        mode=st.sampled_from(["next_step", "same_step", "disabled"]),
        copy=st.booleans(),
        restarts=st.booleans(),
        hangs=st.integers(0, 99),
        start_method=st.integers(0, 99),
        seed=SEEDS,
    )
    def open(
        self, mode: str, copy: bool, restarts: bool, hangs: int, start_method: int, seed: int
    ) -> None:
        backend = BACKENDS[self.backend_name]
        can_hang = self.hangs[hangs % len(self.hangs)]
        self.driver = Driver(
            backend,
            mode,
            copy,
            restarts=restarts and backend.can_restart,
            step_timeout_s=STEP_TIMEOUT_S if can_hang and backend.can_restart else None,
            start_method=self.start_methods[start_method % len(self.start_methods)],
            counts=self.totals,
        )
        self.driver.reset(seed)

    def teardown(self) -> None:
        if self.is_open():
            self.driver.venv.close()

    @invariant()
    def what_was_returned_has_not_changed(self) -> None:
        if self.driver is not None:
            self.driver.look_back()

    def is_open(self) -> bool:
        return self.driver is not None and not self.driver.is_closed

    def is_idle(self) -> bool:
        return self.is_open() and self.driver.is_idle

    def can_step(self) -> bool:
        return self.is_open() and self.driver.can_step

    def can_step_idle(self) -> bool:
        return self.can_step() and self.is_idle()

    def has_workers(self) -> bool:
        return self.is_idle() and self.driver.backend.has_processes

    def has_dead_worker(self) -> bool:
        """Whether a worker is dead that nobody will restart."""
        return self.is_open() and bool(self.driver.down) and not self.driver.model.restarts

    def can_send_deadly(self) -> bool:
        """Whether workers step envs, none of which is to be reset."""
        return self.has_workers() and self.can_step() and not any(self.driver.model.ended)

    def can_wait_for_ever(self) -> bool:
        return self.has_workers() and self.can_step() and not self.driver.has_deadline

    # ---------------------------------------------------------------- what a program does

    @precondition(lambda self: self.is_open() and not self.driver.sent)
    @rule(
        seed=SEEDS | st.none(),
        word=st.sampled_from(["a", "bb"]) | st.none(),
        mask=st.tuples(*[st.booleans()] * NUM_ENVS) | st.none(),
    )
    def reset(self, seed: int | None, word: str | None, mask: Any) -> None:
        if mask is not None:
            failed = self.driver.model.failed
            mask = [chosen or i in failed for i, chosen in enumerate(mask)]
            mask = mask if any(mask) else None
        self.driver.reset(seed, word, mask)

    @precondition(can_step)
    @rule(actions=ACTIONS, in_two=st.booleans())
    def step(self, actions: Any, in_two: bool) -> None:
        self.driver.step(actions, in_two)

    @precondition(lambda self: self.is_idle() and not self.can_step())
    @rule(actions=ACTIONS)
    def step_ended(self, actions: Any) -> None:
        self.driver.step(actions)

    @precondition(lambda self: self.is_open() and not self.driver.down)
    @rule(ids=SOME, actions=ACTIONS, data=st.data())
    def send(self, ids: Any, actions: Any, data: Any) -> None:
        driver = self.driver
        over = driver.model.ended if driver.mode.name == "DISABLED" else [False] * NUM_ENVS
        ids = [i for i in ids if i not in driver.sent and not over[i]]
        if not ids:
            return
        actions = list(actions[: len(ids)])
        if not driver.model.restarts and data.draw(st.integers(0, 4)) == 0:
            actions[0] = data.draw(st.sampled_from(SOFT))
        driver.send(data.draw(st.permutations(ids)), actions)

    @precondition(lambda self: self.is_open() and not self.driver.down)
    @rule(ids=SOME)
    def send_reset(self, ids: Any) -> None:
        ids = [i for i in ids if i not in self.driver.sent]
        if ids:
            self.driver.send_reset(ids)

    @precondition(lambda self: self.is_open() and bool(self.driver.sent))
    @rule(min_envs=st.integers(1, NUM_ENVS))
    def recv(self, min_envs: int) -> None:
        # Who is ready is a matter of time, and what is drawn next must not be.
        self.driver.recv(min(min_envs, len(self.driver.sent)))
        self.driver.recv_all()

    @precondition(lambda self: self.is_open() and not self.driver.down)
    @rule()
    def misuse(self) -> None:
        self.driver.misuse()

    @precondition(is_idle)
    @rule()
    def call(self) -> None:
        self.driver.call()

    @precondition(is_idle)
    @rule(values=st.tuples(*[st.sampled_from(["a", 1, None, ("x", 2)])] * NUM_ENVS))
    def set_attr(self, values: Any) -> None:
        self.driver.set_attr(values)

    @precondition(is_idle)
    @rule()
    def statistics(self) -> None:
        self.driver.statistics()

    @precondition(has_workers)
    @rule()
    def refused_reset(self) -> None:
        self.driver.refused_reset()

    # ---------------------------------------------------------------- what envs do

    @precondition(can_step)
    @rule(actions=ACTIONS, env=st.integers(0, NUM_ENVS - 1), data=st.data())
    def step_that_fails(self, actions: Any, env: int, data: Any) -> None:
        kinds = [kind for kind in (SOFT, DEADLY, HANGS) if self.driver.allowed(kind, env)]
        actions = list(actions)
        actions[env] = data.draw(st.sampled_from([fault for kind in kinds for fault in kind]))
        self.driver.step(actions)

    @precondition(can_send_deadly)
    @rule(actions=ACTIONS, env=st.integers(0, NUM_ENVS - 1), fault=st.sampled_from(DEADLY))
    def send_that_kills(self, actions: Any, env: int, fault: Fault) -> None:
        actions = list(actions)
        ids = self.driver.model.workers[-1]
        actions[ids[env % len(ids)]] = fault
        self.driver.send_that_kills(actions)

    # ---------------------------------------------------------------- what comes from outside

    @precondition(has_workers)
    @rule(data=st.data())
    def kill(self, data: Any) -> None:
        workers = len(self.driver.model.workers)
        self.driver.kill(data.draw(st.integers(0, workers - 1)))

    @precondition(has_dead_worker)
    @rule(name=st.sampled_from(["call", "set_attr", "step"]))
    def call_dead(self, name: str) -> None:
        if name != "step" or self.driver.can_step:
            self.driver.call_dead(name)

    @precondition(can_wait_for_ever)
    @rule(actions=ACTIONS, interrupt_at=LINES | st.none())
    def late_step(self, actions: Any, interrupt_at: int | None) -> None:
        self.driver.late_step(actions, interrupt_at)

    @precondition(is_idle)
    @rule()
    def fork(self) -> None:
        self.driver.fork()

    @precondition(can_step_idle)
    @rule(actions=ACTIONS, line=LINES, then=st.sampled_from(NEXT_CALLS))
    def interrupt_step(self, actions: Any, line: int, then: str) -> None:
        self.driver.interrupt_step(actions, line, then)

    @precondition(is_idle)
    @rule(line=LINES)
    def interrupt_reset(self, line: int) -> None:
        self.driver.interrupt_reset(line)

    @precondition(can_step_idle)
    @rule(actions=ACTIONS, line=LINES)
    def interrupt_recv(self, actions: Any, line: int) -> None:
        self.driver.interrupt_recv(actions, line)

    # ---------------------------------------------------------------- the end

    @precondition(is_open)
    @rule(how=st.sampled_from(["close", "drop", "interrupted"]), line=LINES)
    def end(self, how: str, line: int) -> None:
        if how == "close":
            self.driver.close()
        elif how == "drop":
            self.driver.drop()
        else:
            self.driver.interrupt_close(line)


def run_machine(
    machine: type[Machine], max_examples: int, steps: int, seed: int | None = None
) -> None:
    """Run a machine; without a seed, always the same way.

    What fails is not made smaller: that would take hours, and the failure tells what led to it.
    """
    if seed is not None:
        machine = hypothesis.seed(seed)(machine)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=seed is None,
            # Explaining traces lines, which the interruptions do too.
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=list(HealthCheck),
        ),
    )


def machine_on(backend_name: str) -> type[Machine]:
    """The machine for one backend."""
    return type(f"MachineOn_{backend_name}", (Machine,), {"backend_name": backend_name})
