"""Mirror: one worker's share of a board, of which another machine has a copy.

Two boards that share no memory are kept alike by what is written on one side and read on the other:
orders go from the caller's to the worker's, answers come back. What travels are rows of columns,
as one piece of bytes; the numbers that announce them are written last, as on a board that is
shared, see :mod:`rookery.worker.orders`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rookery.shared import stopwatch
from rookery.shared.arrays import written_by_caller, written_by_envs
from rookery.worker.orders import IN_MESSAGE, IN_SLAB, OrderPart

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_ORDER = ("order.kind", "order.buffer", "order.seed")
_WORKER_WORDS = ("progress", "busy_s")


class OrderRows(NamedTuple):
    """What some envs are to do.

    Attributes:
        places: int64 ``[k]``, of the envs among the worker's.
        numbers: int64 ``[k]``.
        rows: the rest of the orders, and the actions.
    """

    places: Array
    numbers: Array
    rows: Bytes


class AnswerRows(NamedTuple):
    """What some envs that were asked together have done.

    Attributes:
        number: of the order.
        buffer: where results lie.
        places: int64 ``[k]``, of the envs among the worker's.
        tail_bytes: how much of the slab's tails is used; None if the slab holds nothing.
        rows: the results.
    """

    number: int
    buffer: int
    places: Array
    tail_bytes: int | None
    rows: Bytes


class WordRows(NamedTuple):
    """What a worker notes of itself and of its envs' times.

    Attributes:
        progress: see :mod:`rookery.worker.orders`.
        busy_s: likewise.
        watched: by name of a column, places of rows that have changed, and these rows.
    """

    progress: tuple[int, ...]
    busy_s: float
    watched: dict[str, tuple[Array, Bytes]]


class Mirror:
    """The rows of some consecutive envs on a board, to be packed and unpacked.

    Args:
        views: the board's arrays, by name.
        part: the words of these envs.
        index: of their worker.
        added: to the kinds of orders that are taken.
    """

    def __init__(
        self, views: Mapping[str, Array], part: OrderPart, index: int, added: int = 0
    ) -> None:
        self.part = part
        self._added = added
        self._envs = slice(part.env_ids.start, part.env_ids.stop)
        self._worker_words = [views[f"worker{index}.{name}"] for name in _WORKER_WORDS]
        self._columns: dict[str, Array] = {}
        self.follow(views)
        self._sent = part.asked.copy()  # numbers of orders that were sent, or were there before
        self._told = part.answered.copy()  # likewise of answers
        self._watched = {name: view.copy() for name, view in self._watched_columns()}

    def follow(self, views: Mapping[str, Array]) -> None:
        """Go on with these arrays, where they are others than before: a larger slab."""
        for name, view in views.items():
            if not name.startswith("worker"):
                self._columns[name] = view[self._envs]
        # Sorted out once: every step needs them.
        columns = self._columns
        actions = [view for name, view in columns.items() if written_by_caller(name)]
        self._order_columns = [*(columns[name] for name in _ORDER), *actions]
        self._result_columns = [
            [view for name, view in columns.items() if written_by_envs(name, buffer)]
            for buffer in range(sum(name.startswith("form") for name in columns))
        ]

    # ---------------------------------------------------------------- all of it

    def snapshot(self) -> Bytes:
        """All there is, for a board that is to become like this one."""
        everywhere = slice(None)
        return _packed([*self._columns.values(), *self._worker_words], everywhere)

    def become(self, snapshot: Bytes) -> None:
        """Become what another board was."""
        _unpack(snapshot, [*self._columns.values(), *self._worker_words], slice(None))
        self.part.kind |= self._added
        self._sent[:], self._told[:] = self.part.asked, self.part.answered
        for name, view in self._watched_columns():
            self._watched[name][...] = view

    # ---------------------------------------------------------------- orders

    def orders(self) -> OrderRows | None:
        """What envs were asked that was not :meth:`sent`; None if nothing."""
        part = self.part
        news = (part.asked != self._sent) & (part.asked != part.answered)
        places = news.nonzero()[0]
        if not len(places):
            return None
        numbers = part.asked[places]
        return OrderRows(places, numbers, _packed(self._order_columns, places))

    def sent(self, orders: OrderRows) -> None:
        """Take in that orders are on their way; sending them twice does no harm."""
        self._sent[orders.places] = orders.numbers

    def take_orders(self, orders: OrderRows) -> None:
        """Write down what envs were asked on the other side."""
        _unpack(orders.rows, self._order_columns, orders.places)
        self.part.kind[orders.places] |= self._added
        if self.part.fence is not None:
            self.part.fence()
        self.part.asked[orders.places] = orders.numbers

    # ---------------------------------------------------------------- answers

    def has_answers(self) -> bool:
        """Whether an env has answered since the last time."""
        return bool(self.part.answered.tobytes() != self._told.tobytes())

    def answers(self) -> list[AnswerRows]:
        """What envs have answered since the last time, those that were asked first first."""
        part = self.part
        answered = part.answered.copy()
        places = (answered != self._told).nonzero()[0]
        if part.fence is not None:
            part.fence()
        groups = []
        for number in np.unique(answered[places]).tolist():
            own = places[answered[places] == number]
            buffer = int(part.buffer[own[0]])
            tail_bytes = None
            if part.status[own[0]] in (IN_SLAB, IN_MESSAGE):
                tail_bytes = max(int(self._columns[f"tail_used{buffer}"][own].max()), 0)
            columns = self._answer_columns(buffer, tail_bytes)
            groups.append(AnswerRows(number, buffer, own, tail_bytes, _packed(columns, own)))
            self._told[own] = number
        return groups

    def take_answers(self, answers: AnswerRows) -> None:
        """Write down what envs have done on the other side."""
        part, places = self.part, answers.places
        _unpack(answers.rows, self._answer_columns(answers.buffer, answers.tail_bytes), places)
        part.answered_at[places] = time.perf_counter()  # clocks of two machines differ
        if part.fence is not None:
            part.fence()
        part.answered[places] = answers.number

    def _answer_columns(self, buffer: int, tail_bytes: int | None) -> list[Array]:
        columns = self._columns
        written = [*self._result_columns[buffer]]
        # Where any env has told something, rows of all are read: those without say that they are.
        names = ["order.status", f"form{buffer}", f"tail_used{buffer}", f"loose{buffer}"]
        written += [columns[name] for name in names]
        if tail_bytes is not None:
            written += [columns[f"fixed{buffer}"], columns[f"tail{buffer}"][:, :tail_bytes]]
        return written

    # ---------------------------------------------------------------- what is counted and timed

    def words(self) -> WordRows:
        """What the worker notes of itself, and what has changed of what it notes of envs."""
        watched = {}
        for name, view in self._watched_columns():
            before = self._watched[name]
            places = (view != before).any(axis=1).nonzero()[0]
            if len(places):
                before[places] = view[places]
                watched[name] = places, _packed([before], places)
        return WordRows(tuple(self.part.progress), float(self.part.busy_s[0]), watched)

    def take_words(self, words: WordRows) -> None:
        """Write down what the worker on the other side has noted."""
        for place, value in enumerate(words.progress):
            self.part.progress[place] = value
        self.part.busy_s[0] = words.busy_s
        for name, (places, rows) in words.watched.items():
            _unpack(rows, [self._columns[name]], places)

    def _watched_columns(self) -> list[tuple[str, Array]]:
        return [(name, self._columns[name]) for name in stopwatch.columns(0)]


def _packed(columns: Sequence[Array], rows: Any) -> Bytes:
    """Some rows of columns as bytes, one column after the other."""
    return np.frombuffer(b"".join([column[rows].tobytes() for column in columns]), np.uint8)


def _unpack(data: Bytes, columns: Sequence[Array], rows: Any) -> None:
    """Put rows back into columns of the same kind."""
    begin = 0
    for column in columns:
        shape = column[rows].shape
        count = int(np.prod(shape))
        part = np.frombuffer(data, column.dtype, count, begin) if count else np.empty(0)
        column[rows] = part.reshape(shape)
        begin += count * column.dtype.itemsize
