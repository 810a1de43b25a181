"""Orders: words in shared memory with which a caller gives orders and its workers answer them.

Both sides see all words, and each word is written by one side only.

| word | shape | written by | when |
|---|---|---|---|
| ``kind`` | int64 ``[n]`` | caller | before ``asked``: what the env should do |
| ``buffer`` | int64 ``[n]`` | caller | before ``asked``: which buffer the result is written to |
| ``seed`` | int64 ``[n]`` | caller | before ``asked``: seed of a reset |
| ``asked`` | int64 ``[n]`` | caller | the number of the last order to the env |
| ``answered`` | int64 ``[n]`` | worker | the number of the last order that the env carried out |
| ``status`` | uint8 ``[n]`` | worker | before ``answered``: where the rest of the answer is |
| ``answered_at`` | float64 ``[n]`` | worker | before ``answered``: for the order of ``recv`` |
| ``requests`` | int64, per worker | caller | number of requests sent through the channel |
| ``progress`` | int64 ``[3]``, per worker | worker | which env is busy, see ``EnvBatch.attach`` |
| ``busy_s`` | float64, per worker | worker | seconds spent stepping |

**An env is busy while** ``asked`` **and** ``answered`` **differ.** Its rows (observations, rewards,
flags and infos) then belong to its worker, and to the caller otherwise. Envs that were asked with
one number are carried out together and answer together: ``step`` gives all envs the same number,
``send`` gives each env its own. Numbers only grow. If a worker has exited, the caller writes
``answered`` in its place.

**The numbers of an order are not written at once.** A worker may look when some of them have been
written, in any order, and others have not. So the kind also says which envs the order is for. An
order to all envs of a worker (``TOGETHER``) may be begun when a single number is seen. It is
carried out and answered for all envs, and a number that appears after its answer is not greater
than the answer. An order to some envs contains their count (above ``_COUNT_SHIFT``) and waits until
all of its numbers are seen.

**Events are hints.** A process that changes a word sets the event afterwards. A process that wakes
up reads the words, and a sleeping process reads them ten times a second anyway. Setting an event
too often costs a look, and a lost event costs a tenth of a second. Nothing depends on how often an
event was set. A process that finds the answers without waiting resets the event, so that sets do
not add up.

**Memory.** A processor may show the words in another order than they were written (ARM does, x86
does not). So both sides have a memory fence between the content of an order or answer and the
number that announces it. The writer writes the content, fences, and then writes the number. The
reader sees the number, fences, and then reads the content. Numbers are aligned words of eight
bytes and are never read half written.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rookery.shared.block import ColumnSizes, make_fence, zeros

Ids = npt.NDArray[np.int64]

STEP, RESET = 0, 1  # kinds
SINGLY = 2  # added to a kind: the caller waits for the first env that answers
NOTHING = 4  # a kind: answer without stepping the env
TOGETHER = 8  # added to a kind: all envs of the worker have this number
_KINDS = RESET | NOTHING
_FLAGS = _KINDS | SINGLY
_COUNT_SHIFT = 8
NO_SEED = -1
SEED_IN_MESSAGE = -2  # seed and options were sent through the channel before the order

DONE = 0  # statuses: all of the answer is in columns
IN_ROWS = 1  # the row buffer contains a part
IN_MESSAGE = 2  # a message with the order's number contains the rest, or a failure

_WORD: np.dtype[Any] = np.dtype(np.int64)
_ENV_WORDS: dict[str, np.dtype[Any]] = {
    "kind": _WORD,
    "buffer": _WORD,
    "seed": _WORD,
    "asked": _WORD,
    "answered": _WORD,
    "status": np.dtype(np.uint8),
    "answered_at": np.dtype(np.float64),
}
_WORKER_WORDS: ColumnSizes = {
    "requests": ((1,), _WORD),
    "progress": ((3,), _WORD),
    "busy_s": ((1,), np.dtype(np.float64)),
}


def command_of(kind: int) -> str:
    """Return the command, "step" or "reset", of an order of a kind."""
    return "reset" if kind & RESET else "step"


def columns(num_envs: int, num_workers: int) -> ColumnSizes:
    """Return name -> (shape, dtype) of all words."""
    words: ColumnSizes = {
        f"order.{name}": ((num_envs,), dtype) for name, dtype in _ENV_WORDS.items()
    }
    for i in range(num_workers):
        words |= {f"worker{i}.{name}": column for name, column in _WORKER_WORDS.items()}
    return words


class Orders:
    """All orders of a vector env, for its caller.

    Args:
        views: an array for each of :func:`columns`.

    Attributes:
        asked, answered, status, answered_at: words of all envs, see the module.
        received: numbers of the answers that the caller has returned, int64 ``[n]``. Not shared.
        number: the last number that was given to an order or request.
    """

    def __init__(self, views: Mapping[str, Any]) -> None:
        self._views = views
        self.asked, self.answered = views["order.asked"], views["order.answered"]
        self.status, self.answered_at = views["order.status"], views["order.answered_at"]
        self.received = np.zeros_like(self.asked)
        self.fence = make_fence()
        self.number = 0

    @classmethod
    def in_memory(cls, num_envs: int, num_workers: int) -> Orders:
        """Return orders in memory of this process, which is not shared."""
        return cls(zeros(columns(num_envs, num_workers)))

    def numbers(self, count: int) -> Ids:
        """Return new numbers for orders or requests, int64 ``[count]``, ascending."""
        first = self.number + 1
        self.number += count
        return np.arange(first, self.number + 1)

    def next_number(self) -> int:
        """Return a new number for an order or request."""
        self.number += 1
        return self.number

    def ready(self) -> Ids:
        """Return the ids of the envs with an answer that was not returned yet."""
        is_ready = (self.asked == self.answered) & (self.asked != self.received)
        ready: Ids = is_ready.nonzero()[0]  # np.flatnonzero takes three times as long
        return ready

    def part(self, env_ids: range, index: int | None) -> OrderPart:
        """Return the words of consecutive envs and, unless ``index`` is None, of their worker."""
        return OrderPart(self._views, env_ids, index)


class Order(NamedTuple):
    """An order to some envs of one backend.

    Attributes:
        kind: STEP or RESET, plus SINGLY.
        buffer: number of the buffer that results are written to.
        numbers: one number for all envs, or int64 ``[k]``.
        env_ids: the envs, int64 ``[k]``; None means all envs of the backend.
        seeds: seed words of a reset: one word for all envs, or ``[k]``.
    """

    kind: int
    buffer: int
    numbers: Any
    env_ids: Any = None
    seeds: Any = NO_SEED


class Group(NamedTuple):
    """Envs of one worker that were asked together.

    Attributes:
        number: number of the order.
        kind: STEP, RESET or NOTHING.
        singly: SINGLY if the caller waits for the first env that answers, else 0.
        buffer: number of the buffer that results are written to.
        env_ids: the envs; None means all envs of the worker.
    """

    number: int
    kind: int
    singly: int
    buffer: int
    env_ids: list[int] | None


_new = tuple.__new__  # saves 0.3 us per step compared with Group()


class OrderPart:
    """The words of consecutive envs and of their worker, for one backend and its worker.

    Args:
        views: an array for each of :func:`columns`.
        env_ids: the envs.
        index: index of the worker; None if the envs have no worker.

    Attributes:
        env_ids: the envs.
        asked, answered, status, kind, buffer, seed, answered_at: arrays of these envs.
        requests, progress, busy_s: memoryviews of the worker's words.
    """

    def __init__(self, views: Mapping[str, Any], env_ids: range, index: int | None) -> None:
        self.env_ids = env_ids
        envs = slice(env_ids.start, env_ids.stop)
        part = {name: views[f"order.{name}"][envs] for name in _ENV_WORDS}
        self.asked, self.answered, self.status = part["asked"], part["answered"], part["status"]
        self.kind, self.buffer, self.seed = part["kind"], part["buffer"], part["seed"]
        self.answered_at = part["answered_at"]
        words: list[Any] = (
            [[0], [0, 0, 0], [0.0]]
            if index is None
            else [views[f"worker{index}.{name}"].data for name in _WORKER_WORDS]
        )
        self.requests, self.progress, self.busy_s = words
        self.fence = make_fence()
        self._kinds, self._buffers = self.kind.data, self.buffer.data
        self._kind_of_all = self._buffer_of_all = -1  # as written last by this side
        self._status_of_all = -1  # as written last by this side
        self._asked, self._answered = self.asked.data, self.answered.data
        self._groups: list[Group] = []  # waiting groups that were seen at the last look
        columns: Any = (self.status, self.answered_at, self.answered)
        self._columns = [column.data for column in columns], columns

    # ---------------------------------------------------------------- the caller's side

    def ask(self, order: Order) -> None:
        """Give an order. Giving it again has no further effect."""
        kind, buffer, numbers, env_ids, seeds = order
        if env_ids is None:
            if kind & RESET:
                self.seed[:] = seeds
            self.ask_all(kind, buffer, numbers)
            return
        if not len(env_ids):
            return
        places = np.asarray(env_ids) - self.env_ids.start
        # Either all envs have one number, or each has its own.
        is_one = isinstance(numbers, int) or numbers[0] == numbers[-1]
        self._kind_of_all = -1
        self.kind[places] = kind | (len(places) if is_one else 1) << _COUNT_SHIFT
        self.buffer[places] = buffer
        self.seed[places] = seeds
        if self.fence is not None:
            self.fence()
        self.asked[places] = numbers

    def ask_all(self, kind: int, buffer: int, number: int) -> None:
        """Give an order without seeds to all envs."""
        if kind != self._kind_of_all or buffer != self._buffer_of_all:
            self.kind.fill(kind | TOGETHER)
            self.buffer.fill(buffer)
            self._kind_of_all, self._buffer_of_all = kind, buffer
        if self.fence is not None:
            self.fence()
        self.asked.fill(number)

    def turn_into_resets(self, env_ids: Sequence[int], number: int) -> None:
        """Replace the orders of envs that have lost their worker by resets for the next worker."""
        places = [i - self.env_ids.start for i in env_ids]
        self._kind_of_all = -1
        self.kind[places] = (self.kind[places] & SINGLY) | RESET | len(places) << _COUNT_SHIFT
        self.seed[places] = NO_SEED
        self.asked[places] = number

    def ask_again(self, env_ids: Sequence[int], number: int) -> None:
        """Repeat the orders of envs that have lost their worker, for the next worker."""
        places = [i - self.env_ids.start for i in env_ids]
        self._kind_of_all = -1
        self.kind[places] = (self.kind[places] & _FLAGS) | len(places) << _COUNT_SHIFT
        self.asked[places] = number

    def answer_for_lost(self, env_ids: Sequence[int]) -> None:
        """Answer the orders of envs in place of a worker that has exited."""
        places = [i - self.env_ids.start for i in env_ids]
        self.status[places] = IN_ROWS
        self.answered_at[places] = time.perf_counter()
        self.answered[places] = self.asked[places]

    def is_busy(self) -> bool:
        """Return whether an env has not answered."""
        # Comparing bytes takes 0.2 us, numpy's comparisons and any() take 3.
        return bool(self.asked.tobytes() != self.answered.tobytes())

    def busy_ids(self) -> list[int]:
        """Return the ids of the envs that have not answered."""
        start = self.env_ids.start
        return [start + i for i in np.flatnonzero(self.asked != self.answered).tolist()]

    def last_order(self, env_id: int) -> tuple[str, int]:
        """Return the last order to an env: "step" or "reset", and its number."""
        place = env_id - self.env_ids.start
        return command_of(int(self.kind[place])), int(self.asked[place])

    # ---------------------------------------------------------------- the worker's side

    def next_group(self) -> Group | None:
        """Return the group that was asked first and has not answered, or None."""
        number = self._asked[0]
        if number > self._answered[0]:  # smaller while the number of a finished order arrives
            if self.fence is not None:
                self.fence()
            kind = self._kinds[0]
            if kind & TOGETHER:  # the usual case; other envs' numbers may not have arrived
                return _new(Group, (number, kind & _KINDS, kind & SINGLY, self._buffers[0], None))
        while self._groups:
            group = self._groups.pop()
            place = group.env_ids[0] - self.env_ids.start  # type: ignore[index]
            if self._asked[place] == group.number != self._answered[place]:
                return group  # otherwise it was interrupted and replaced by a reset
        self._groups = self._waiting_groups()
        return self._groups.pop() if self._groups else None

    def _waiting_groups(self) -> list[Group]:
        """Return the waiting groups with all numbers seen. The one asked first is last."""
        numbers = self.asked.copy()
        # Numbers of an answered order to all envs may still arrive. They are not greater.
        places = (numbers > self.answered).nonzero()[0].tolist()
        if not places:
            return []
        if self.fence is not None:
            self.fence()
        start, by_number = self.env_ids.start, dict[int, list[int]]()
        for place, number in zip(places, numbers[places].tolist(), strict=True):
            by_number.setdefault(number, []).append(start + place)
        groups = []
        for number in sorted(by_number, reverse=True):
            env_ids = by_number[number]
            place = env_ids[0] - start
            kind, buffer = self._kinds[place], self._buffers[place]
            if kind & TOGETHER:
                return [Group(number, kind & _KINDS, kind & SINGLY, buffer, None)]
            count = kind >> _COUNT_SHIFT
            if count > 1 and np.count_nonzero(numbers == number) < count:
                continue
            groups.append(Group(number, kind & _KINDS, kind & SINGLY, buffer, env_ids))
        return groups

    def seeds(self, group: Group) -> list[int]:
        """Return the seed words of a group's envs."""
        if group.env_ids is None:
            return list(self.seed.tolist())
        return list(self.seed[[i - self.env_ids.start for i in group.env_ids]].tolist())

    def answer(self, group: Group, status: int) -> None:
        """Write that a group's envs have carried out their order."""
        if group.env_ids is None:
            if status != self._status_of_all:
                self.status.fill(status)
                self._status_of_all = status
            if group.singly:
                self.answered_at.fill(time.perf_counter())
            if self.fence is not None:
                self.fence()
            self.answered.fill(group.number)
            return
        places: Any = [i - self.env_ids.start for i in group.env_ids]
        # One element is written in 30 ns through a memoryview; a list of places costs 2 us.
        status_of, answered_at, answered = self._columns[len(places) > 1]
        places = places if len(places) > 1 else places[0]
        self._status_of_all = -1
        status_of[places] = status
        answered_at[places] = time.perf_counter()
        if self.fence is not None:
            self.fence()
        answered[places] = group.number
