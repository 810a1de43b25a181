"""Mirror: the rows of one worker's envs, in arrays that exist once on each of two machines.

Caller and worker share no memory, so each side has its own arrays, and rows are copied as bytes.
Orders go from the caller to the worker, and answers come back. As in shared memory, the numbers
that announce orders and answers are written last; see :mod:`rookery.worker.orders`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rookery.shared import stopwatch
from rookery.shared.arrays import written_by_caller, written_by_envs
from rookery.worker.orders import IN_MESSAGE, IN_ROWS, OrderPart

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_ORDER = ("order.kind", "order.buffer", "order.seed")
_WORKER_WORDS = ("progress", "busy_s")


class OrderRows(NamedTuple):
    """Orders to some envs.

    Attributes:
        places: int64 ``[k]``, places of the envs among the envs of the worker.
        numbers: int64 ``[k]``, numbers of the orders.
        rows: the other words of the orders, and the actions.
    """

    places: Array
    numbers: Array
    rows: Bytes


class AnswerRows(NamedTuple):
    """Answers of some envs to one order.

    Attributes:
        number: number of the order.
        buffer: buffer with the results.
        places: int64 ``[k]``, places of the envs among the envs of the worker.
        tail_bytes: number of bytes used in the tails of the row buffer. None if the rows are
            unused.
        rows: the results.
    """

    number: int
    buffer: int
    places: Array
    tail_bytes: int | None
    rows: Bytes


class WordRows(NamedTuple):
    """Counters and times of a worker and of its envs.

    Attributes:
        progress: the worker's progress words, see :mod:`rookery.worker.orders`.
        busy_s: seconds that the worker was busy.
        counters: by name of a column, places of the rows that have changed, and these rows.
    """

    progress: tuple[int, ...]
    busy_s: float
    counters: dict[str, tuple[Array, Bytes]]


class Mirror:
    """Packs and unpacks the rows of some consecutive envs.

    Args:
        views: the arrays by name.
        part: the words of the orders to these envs.
        index: index of the worker.
        added: bits to add to the kinds of incoming orders.
    """

    def __init__(
        self, views: Mapping[str, Array], part: OrderPart, index: int, added: int = 0
    ) -> None:
        self.part = part
        self._added = added
        self._envs = slice(part.env_ids.start, part.env_ids.stop)
        self._worker_words = [views[f"worker{index}.{name}"] for name in _WORKER_WORDS]
        self._columns: dict[str, Array] = {}
        self.bind(views)
        self._sent = part.asked.copy()  # by env, number of the last order that was sent
        self._reported = part.answered.copy()  # by env, number of the last answer that was packed
        self._counters = {name: view.copy() for name, view in self._counter_columns()}

    def bind(self, views: Mapping[str, Array]) -> None:
        """Use these arrays, for example after the row buffer was enlarged."""
        for name, view in views.items():
            if not name.startswith("worker"):
                self._columns[name] = view[self._envs]
        # Looked up once, because every step needs them.
        columns = self._columns
        actions = [view for name, view in columns.items() if written_by_caller(name)]
        self._order_columns = [*(columns[name] for name in _ORDER), *actions]
        self._result_columns = [
            [view for name, view in columns.items() if written_by_envs(name, buffer)]
            for buffer in range(sum(name.startswith("form") for name in columns))
        ]

    # ---------------------------------------------------------------- all rows

    def snapshot(self) -> Bytes:
        """Return all rows, to be loaded on the other side."""
        everywhere = slice(None)
        return _packed([*self._columns.values(), *self._worker_words], everywhere)

    def load(self, snapshot: Bytes) -> None:
        """Load the snapshot of the other side."""
        _unpack(snapshot, [*self._columns.values(), *self._worker_words], slice(None))
        self.part.kind |= self._added
        self._sent[:], self._reported[:] = self.part.asked, self.part.answered
        for name, view in self._counter_columns():
            self._counters[name][...] = view

    # ---------------------------------------------------------------- orders

    def orders(self) -> OrderRows | None:
        """Return the orders that were not :meth:`sent`, or None."""
        part = self.part
        is_new = (part.asked != self._sent) & (part.asked != part.answered)
        places = is_new.nonzero()[0]
        if not len(places):
            return None
        numbers = part.asked[places]
        return OrderRows(places, numbers, _packed(self._order_columns, places))

    def sent(self, orders: OrderRows) -> None:
        """Mark orders as sent."""
        self._sent[orders.places] = orders.numbers

    def take_orders(self, orders: OrderRows) -> None:
        """Write the orders of the other side."""
        _unpack(orders.rows, self._order_columns, orders.places)
        self.part.kind[orders.places] |= self._added
        if self.part.fence is not None:
            self.part.fence()
        self.part.asked[orders.places] = orders.numbers

    # ---------------------------------------------------------------- answers

    def has_answers(self) -> bool:
        """Return True if an env has answered after the last call of :meth:`answers`."""
        return bool(self.part.answered.tobytes() != self._reported.tobytes())

    def answers(self) -> list[AnswerRows]:
        """Return the answers after the last call, in the order of their orders."""
        part = self.part
        answered = part.answered.copy()
        places = (answered != self._reported).nonzero()[0]
        if part.fence is not None:
            part.fence()
        groups = []
        for number in np.unique(answered[places]).tolist():
            group = places[answered[places] == number]
            buffer = int(part.buffer[group[0]])
            tail_bytes = None
            if part.status[group[0]] in (IN_ROWS, IN_MESSAGE):
                tail_bytes = max(int(self._columns[f"tail_used{buffer}"][group].max()), 0)
            columns = self._answer_columns(buffer, tail_bytes)
            rows = _packed(columns, group)
            groups.append(AnswerRows(number, buffer, group, tail_bytes, rows))
            self._reported[group] = number
        return groups

    def take_answers(self, answers: AnswerRows) -> None:
        """Write the answers of the other side."""
        part, places = self.part, answers.places
        _unpack(answers.rows, self._answer_columns(answers.buffer, answers.tail_bytes), places)
        part.answered_at[places] = time.perf_counter()  # the clocks of two machines differ
        if part.fence is not None:
            part.fence()
        part.answered[places] = answers.number

    def _answer_columns(self, buffer: int, tail_bytes: int | None) -> list[Array]:
        columns = self._columns
        written = [*self._result_columns[buffer]]
        # If any env has something in its row, the caller reads the rows of all envs.
        names = ["order.status", f"form{buffer}", f"tail_used{buffer}", f"loose{buffer}"]
        written += [columns[name] for name in names]
        if tail_bytes is not None:
            written += [columns[f"fixed{buffer}"], columns[f"tail{buffer}"][:, :tail_bytes]]
        return written

    # ---------------------------------------------------------------- counters and times

    def words(self) -> WordRows:
        """Return the words of the worker, and the counters that changed after the last call."""
        changed = {}
        for name, view in self._counter_columns():
            before = self._counters[name]
            places = (view != before).any(axis=1).nonzero()[0]
            if len(places):
                before[places] = view[places]
                changed[name] = places, _packed([before], places)
        return WordRows(tuple(self.part.progress), float(self.part.busy_s[0]), changed)

    def take_words(self, words: WordRows) -> None:
        """Write the counters and times of the other side."""
        for place, value in enumerate(words.progress):
            self.part.progress[place] = value
        self.part.busy_s[0] = words.busy_s
        for name, (places, rows) in words.counters.items():
            _unpack(rows, [self._columns[name]], places)

    def _counter_columns(self) -> list[tuple[str, Array]]:
        return [(name, self._columns[name]) for name in stopwatch.columns(0)]


def _packed(columns: Sequence[Array], rows: Any) -> Bytes:
    """Return some rows of columns as bytes, one column after the other."""
    return np.frombuffer(b"".join([column[rows].tobytes() for column in columns]), np.uint8)


def _unpack(data: Bytes, columns: Sequence[Array], rows: Any) -> None:
    """Write packed rows into columns of the same shapes and dtypes."""
    begin = 0
    for column in columns:
        shape = column[rows].shape
        count = int(np.prod(shape))
        part = np.frombuffer(data, column.dtype, count, begin) if count else np.empty(0)
        column[rows] = part.reshape(shape)
        begin += count * column.dtype.itemsize
