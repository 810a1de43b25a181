"""Orders: how a caller and those who step its envs tell each other what to do and what is done.

The words below lie in memory that both sides see. Each is written by one side alone.

| word | shape | written by | when |
|---|---|---|---|
| ``kind`` | int64 ``[n]`` | caller | before ``asked``: what the env is to do |
| ``buffer`` | int64 ``[n]`` | caller | before ``asked``: which buffer the result goes into |
| ``seed`` | int64 ``[n]`` | caller | before ``asked``: of a reset |
| ``asked`` | int64 ``[n]`` | caller | the number of the last order to the env |
| ``answered`` | int64 ``[n]`` | worker | the number of the last order that the env carried out |
| ``status`` | uint8 ``[n]`` | worker | before ``answered``: where the rest of the answer lies |
| ``answered_at`` | float64 ``[n]`` | worker | before ``answered``: for the order of ``recv`` |
| ``requests`` | int64, per worker | caller | how many requests it has sent through the channel |
| ``progress`` | int64 ``[3]``, per worker | worker | which env is busy, see ``EnvBatch.attach`` |
| ``busy_s`` | float64, per worker | worker | seconds spent stepping |

**An env is busy while** ``asked`` **and** ``answered`` **differ.** While it is busy its rows (of
observations, rewards, flags and infos) belong to its worker, else to the caller. Envs that were
asked with one number are carried out together and answer together: ``step`` gives all envs the same
number, ``send`` gives each its own. Numbers only grow. A worker that has ended answers nothing any
more, and the caller writes ``answered`` in its place.

**Numbers are not written at once**: a worker may look when those of some envs have come, in
whatever order, and those of others have not. So the kind also says whom an order is for. One to
all envs of a worker (``TOGETHER``) may be begun when a single number is seen; it is carried out and
answered for all of them, and a number that comes after its answer is no greater than that. One to
some of them says how many were asked with its number (above ``_COUNT_SHIFT``), and waits until all
are seen.

**Bells are hints.** Whoever changes a word rings afterwards; whoever wakes looks at the words, and
so does, ten times a second, whoever sleeps. A ring too many costs a look, a ring that is lost a
tenth of a second; nothing is counted that is not also written. Who finds the answers there without
having waited takes their ring, so that rings do not add up.

**Memory.** A processor may show the words in another order than they were written (ARM does, x86
does not). So between what an order or an answer consists of and the number that announces it stands
a fence on both sides: the writer fences and then writes the number; the reader sees the number,
fences, and then reads the rest. Numbers are aligned words of eight bytes and are never torn.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rookery.shared.block import make_fence

Ids = npt.NDArray[np.int64]
Column = tuple[tuple[int, ...], np.dtype[Any]]

STEP, RESET = 0, 1  # kinds
SINGLY = 2  # added to a kind: whoever waits, waits for whichever env is first
NOTHING = 4  # a kind: answer, and leave the env as it is
TOGETHER = 8  # added to a kind: all envs of the worker were asked with one number
_KINDS = RESET | NOTHING
_FLAGS = _KINDS | SINGLY
_COUNT_SHIFT = 8
NO_SEED = -1
SEED_IN_MESSAGE = -2  # the env's seed and options came through the channel before the order

DONE = 0  # statuses: all of the answer lies in columns
IN_ROWS = 1  # something is in the rows, too
IN_MESSAGE = 2  # a message with the order's number has the rest: news, or a failure

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
_WORKER_WORDS: dict[str, Column] = {
    "requests": ((1,), _WORD),
    "progress": ((3,), _WORD),
    "busy_s": ((1,), np.dtype(np.float64)),
}


def command_of(kind: int) -> str:
    """The command, "step" or "reset", that an order of some kind carries out."""
    return "reset" if kind & RESET else "step"


def columns(num_envs: int, num_workers: int) -> dict[str, Column]:
    """Name -> (shape, dtype) of all words."""
    words: dict[str, Column] = {
        f"order.{name}": ((num_envs,), dtype) for name, dtype in _ENV_WORDS.items()
    }
    for i in range(num_workers):
        words |= {f"worker{i}.{name}": column for name, column in _WORKER_WORDS.items()}
    return words


class Orders:
    """All orders of a vector env, as its caller sees them.

    Args:
        views: an array for each of :func:`columns`.

    Attributes:
        asked, answered, status, answered_at: see the module.
        received: int64 ``[n]``, of the caller alone: numbers of the answers that were handed out.
        number: the last that an order or request has had.
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
        """Orders in memory of this process alone."""
        words = columns(num_envs, num_workers)
        return cls({name: np.zeros(shape, dtype) for name, (shape, dtype) in words.items()})

    def numbers(self, count: int) -> Ids:
        """As many numbers that no order or request has had, int64 ``[count]``, in order."""
        first = self.number + 1
        self.number += count
        return np.arange(first, self.number + 1)

    def next_number(self) -> int:
        """A number that no order or request has had."""
        self.number += 1
        return self.number

    def ready(self) -> Ids:
        """Ids of the envs whose answer has come and was not handed out."""
        is_ready = (self.asked == self.answered) & (self.asked != self.received)
        ready: Ids = is_ready.nonzero()[0]  # np.flatnonzero takes three times as long
        return ready

    def part(self, env_ids: range, index: int | None) -> OrderPart:
        """The words of some consecutive envs and, unless ``index`` is None, of their worker."""
        return OrderPart(self._views, env_ids, index)


class Order(NamedTuple):
    """What some envs of one backend are to do.

    Attributes:
        kind: STEP or RESET, plus SINGLY.
        buffer: where results go.
        numbers: one for all of them, or int64 ``[k]``.
        env_ids: which envs, int64 ``[k]``; None means all of the backend's.
        seeds: of a reset, one word for all of them, or ``[k]``.
    """

    kind: int
    buffer: int
    numbers: Any
    env_ids: Any = None
    seeds: Any = NO_SEED


class Group(NamedTuple):
    """Envs of one worker that were asked together.

    Attributes:
        number: of the order.
        kind: STEP, RESET or NOTHING.
        singly: SINGLY if somebody waits for any env, else 0.
        buffer: where results go.
        env_ids: which envs; None means all of the worker's.
    """

    number: int
    kind: int
    singly: int
    buffer: int
    env_ids: list[int] | None


_new = tuple.__new__  # what Group() calls; on the way of every step, calling it costs 0.3 us less


class OrderPart:
    """The words of some consecutive envs, as whoever steps them sees them.

    Args:
        views: an array for each of :func:`columns`.
        env_ids: which envs.
        index: of the worker; None means that there is none, and no words of one.

    Attributes:
        env_ids: which envs.
        asked, answered, status, kind, buffer, seed, answered_at: arrays of these envs alone.
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
        self._kind_of_all = self._buffer_of_all = -1  # as this side has written them last
        self._status_of_all = -1  # likewise
        self._asked, self._answered = self.asked.data, self.answered.data
        self._groups: list[Group] = []  # that wait, and were seen at the last look
        columns: Any = (self.status, self.answered_at, self.answered)
        self._columns = [column.data for column in columns], columns

    # ---------------------------------------------------------------- the caller's side

    def ask(self, order: Order) -> None:
        """Give an order; giving it twice is giving it once."""
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
        """Give all envs an order, which has no seeds."""
        if kind != self._kind_of_all or buffer != self._buffer_of_all:
            self.kind.fill(kind | TOGETHER)
            self.buffer.fill(buffer)
            self._kind_of_all, self._buffer_of_all = kind, buffer
        if self.fence is not None:
            self.fence()
        self.asked.fill(number)

    def turn_into_resets(self, env_ids: Sequence[int], number: int) -> None:
        """Have envs whose worker has ended be reset by the next one, in place of what was asked."""
        places = [i - self.env_ids.start for i in env_ids]
        self._kind_of_all = -1
        self.kind[places] = (self.kind[places] & SINGLY) | RESET | len(places) << _COUNT_SHIFT
        self.seed[places] = NO_SEED
        self.asked[places] = number

    def ask_again(self, env_ids: Sequence[int], number: int) -> None:
        """Have the next worker carry out what envs were asked when their worker ended."""
        places = [i - self.env_ids.start for i in env_ids]
        self._kind_of_all = -1
        self.kind[places] = (self.kind[places] & _FLAGS) | len(places) << _COUNT_SHIFT
        self.asked[places] = number

    def answer_for_lost(self, env_ids: Sequence[int]) -> None:
        """Answer, in place of a worker that has ended, what some of its envs were asked."""
        places = [i - self.env_ids.start for i in env_ids]
        self.status[places] = IN_ROWS
        self.answered_at[places] = time.perf_counter()
        self.answered[places] = self.asked[places]

    def is_busy(self) -> bool:
        """Whether an env has not answered."""
        # Comparing bytes takes 0.2 us, numpy's comparisons and any() take 3.
        return bool(self.asked.tobytes() != self.answered.tobytes())

    def busy_ids(self) -> list[int]:
        """Ids of the envs that have not answered."""
        start = self.env_ids.start
        return [start + i for i in np.flatnonzero(self.asked != self.answered).tolist()]

    def last_order(self, env_id: int) -> tuple[str, int]:
        """The last order to an env: "step" or "reset", and its number."""
        place = env_id - self.env_ids.start
        return command_of(int(self.kind[place])), int(self.asked[place])

    # ---------------------------------------------------------------- the side of the envs

    def next_group(self) -> Group | None:
        """The envs that were asked first, of those that have not answered; None if all have."""
        number = self._asked[0]
        if number > self._answered[0]:  # less while the number of a finished order is on its way
            if self.fence is not None:
                self.fence()
            kind = self._kinds[0]
            if kind & TOGETHER:  # the usual case; the other envs' numbers may be on their way
                return _new(Group, (number, kind & _KINDS, kind & SINGLY, self._buffers[0], None))
        while self._groups:
            group = self._groups.pop()
            place = group.env_ids[0] - self.env_ids.start  # type: ignore[index]
            if self._asked[place] == group.number != self._answered[place]:
                return group  # else an interruption has come between, and a reset after it
        self._groups = self._waiting_groups()
        return self._groups.pop() if self._groups else None

    def _waiting_groups(self) -> list[Group]:
        """All groups that wait and are seen whole, those that were asked first last."""
        numbers = self.asked.copy()
        # The numbers of an order to all that was answered may be on their way: they are no news.
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
        """The seed words of a group's envs."""
        if group.env_ids is None:
            return list(self.seed.tolist())
        return list(self.seed[[i - self.env_ids.start for i in group.env_ids]].tolist())

    def answer(self, group: Group, status: int) -> None:
        """Say that a group's envs have done as they were asked."""
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
