"""RowWriter: where envs leave what has no column of their own, in the rows of the slab."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rookery.common.env_errors import describe
from rookery.common.pickling import find_unpicklable, pickled
from rookery.errors import PicklingError
from rookery.shared.infos import Info, InfoForm, element, kept
from rookery.shared.slab import IN_MESSAGE, LENGTH, SEE_SLAB, News, Slab

_MOST_FORMS = 64  # that a batch learns; an env whose keys change all the time gains nothing by it


class RowSink(Protocol):
    """What a batch needs to leave infos and final observations; see :class:`RowWriter`."""

    used: set[int]
    has_posted: bool

    def final(self, env_id: int, obs: Any, info: Info) -> Any:
        """Make something of the end of an episode that the reset that follows cannot change."""

    def post(self, env_id: int, info: Info, final: Any = None) -> None:
        """Write an env's info, and what :meth:`final` made."""

    def post_all(
        self,
        env_ids: Sequence[int],
        columns: Mapping[str, npt.NDArray[Any]],
        rest: Mapping[int, Info],
        order: tuple[str, ...],
    ) -> None:
        """Write the infos of some envs at once: what all have, and what single ones have."""

    def clear(self, env_id: int) -> None:
        """Empty the row of an env of ``used``."""

    def news(self) -> News:
        """What to tell whoever waits, once ``has_posted``."""


class RowWriter:
    """The side of the envs: writes the rows of one buffer.

    Args:
        slab: where.
        buffer: which.
        free: encoded free values of the env at hand, to which its observation's writer appends.
        travels: whether the caller is another process. In the same one loose infos stay objects,
            so that they may hold what cannot be pickled.
        env_ids: whose rows; a batch that was lost may have left something in them.

    Attributes:
        used: ids of the envs whose rows may not be empty.
        has_posted: whether there is something to tell since :meth:`news` was called last.
    """

    def __init__(
        self, slab: Slab, buffer: int, free: list[bytes], travels: bool, env_ids: Iterable[int]
    ) -> None:
        self._slab = slab
        self._travels = travels
        self._buffer = buffer
        self._free = free
        self._known: dict[Any, InfoForm] = {}
        self._columns: dict[int, dict[str, npt.NDArray[Any]]] = {}  # of a form, by its id
        self._new_forms: list[InfoForm] = []
        self._tails: list[tuple[int, bytes]] = []
        self._bind()
        self.used: set[int] = set(env_ids)
        self.has_posted = False

    def _bind(self) -> None:
        slab, b = self._slab, self._buffer
        self._shape = slab.shape
        self._forms, self._loose = slab.forms[b].data, slab.loose[b].data
        self._tail_used, self._tail_rows = slab.tail_used[b].data, slab.tails[b]
        self._fixed = slab.fixed[b].reshape(-1).data
        self._columns.clear()

    def final(self, env_id: int, obs: Any, info: Info) -> Any:
        """The last observation and info of an episode, safe from the reset that follows."""
        if self._travels:
            return _sent({"final_obs": obs, "final_info": info}, "final")
        # An array's own copy takes a seventh of the time.
        is_plain = type(obs) is np.ndarray and not obs.dtype.hasobject
        return {"final_obs": obs.copy() if is_plain else deepcopy(obs), "final_info": kept(info)}

    def post(self, env_id: int, info: Info, final: Any = None) -> None:
        """Write an env's row: its info, and the free values of its observation.

        Args:
            env_id: whose.
            info: may be empty.
            final: what :meth:`final` made, if an episode ended.
        """
        if self._shape is not self._slab.shape:
            self._bind()
        self.used.add(env_id)  # first: an interruption may leave it half written
        form_id, rest = self._fix(env_id, info) if info else (0, info)
        loose = b""
        if self._travels:
            loose = (final or b"") + (_sent(rest) if rest else b"")
        else:
            self._slab.added[self._buffer].pop(env_id, None)
            if final or rest:
                parts = [final, kept(rest) if rest else rest]
                self._slab.added[self._buffer][env_id] = [part for part in parts if part]
        self._forms[env_id] = form_id
        self._loose[env_id] = len(loose)
        self._tail_used[env_id] = self._write_tail(env_id, loose) if loose or self._free else 0
        self.has_posted = True

    def post_all(
        self,
        env_ids: Sequence[int],
        columns: Mapping[str, npt.NDArray[Any]],
        rest: Mapping[int, Info],
        order: tuple[str, ...],
    ) -> None:
        """Write the infos of some envs at once; what they had before is replaced.

        Args:
            env_ids: whose.
            columns: what every one of them has: arrays ``[k, *shape]`` of numbers, one copy each.
            rest: by env id, what single ones have beside that.
            order: of the keys, of all of them.
        """
        if not columns and not rest and not self.used:
            return
        if self._shape is not self._slab.shape:
            self._bind()
        slab, b = self._slab, self._buffer
        rows = slice(env_ids.start, env_ids.stop) if type(env_ids) is range else list(env_ids)
        form_id, left = self._fix_all(rows, columns, order)
        slab.forms[b][rows] = form_id
        slab.loose[b][rows] = slab.tail_used[b][rows] = 0
        for place, env_id in enumerate(env_ids):
            own = {key: element(left[key][place]) for key in left} | dict(rest.get(env_id, ()))
            if own:
                self._post_loose(env_id, {key: own[key] for key in order if key in own})
        if columns or rest:
            self.has_posted = True
            self.used.update(env_ids)
        else:
            self.used.difference_update(env_ids)

    def _post_loose(self, env_id: int, info: Info) -> None:
        """Add what has no form to a row."""
        if not self._travels:
            self._slab.added[self._buffer][env_id] = [kept(info)]
            return
        loose = _sent(info)
        self._loose[env_id] = len(loose)
        self._tail_used[env_id] = self._write_tail(env_id, loose)

    def _fix_all(
        self, rows: Any, columns: Mapping[str, npt.NDArray[Any]], order: tuple[str, ...]
    ) -> tuple[int, dict[str, npt.NDArray[Any]]]:
        """Write columns into the fixed parts of rows; the form's id, and what is left of them."""
        if not columns:
            return 0, {}
        key = (order, *((name, column.dtype, column.shape[1:]) for name, column in columns.items()))
        form = self._known.get(key)
        if form is None:
            first = {name: element(column[0]) for name, column in columns.items()}
            form = self._learn(key, first, order)
        if not form.entries or form.size_bytes > self._shape.fixed_bytes:
            return 0, dict(columns)
        views = self._columns.get(form.id)
        if views is None:
            views = self._columns[form.id] = form.columns(self._slab.fixed[self._buffer])
        for name, view in views.items():
            view[rows] = columns[name]
        return form.id, {name: columns[name] for name in columns if name not in views}

    def clear(self, env_id: int) -> None:
        """Empty a row that was used before."""
        if self._shape is not self._slab.shape:
            self._bind()
        self._forms[env_id] = self._loose[env_id] = self._tail_used[env_id] = 0
        self.used.discard(env_id)

    def news(self) -> News:
        """What to tell whoever waits, once something was posted."""
        self.has_posted = False
        if not self._new_forms and not self._tails:
            return SEE_SLAB
        news = News(tuple(self._new_forms), tuple(self._tails))
        self._new_forms, self._tails = [], []
        return news

    def _write_tail(self, env_id: int, loose: bytes) -> int:
        """Write free values and loose infos; return what to note as the length."""
        tail = b"".join([*(LENGTH.pack(len(free)) + free for free in self._free), loose])
        self._free.clear()
        if len(tail) > self._shape.tail_bytes:
            self._tails.append((env_id, tail))
            return IN_MESSAGE
        self._tail_rows[env_id].data[: len(tail)] = tail
        return len(tail)

    def _fix(self, env_id: int, info: Info) -> tuple[int, Info]:
        """Write the numbers of an info into the fixed part; the form's id, and what is left."""
        key = (*info, *map(type, info.values()))
        form = self._known.get(key) or self._learn(key, info)
        size_bytes = self._shape.fixed_bytes
        if not form.entries or form.size_bytes > size_bytes:
            return 0, info
        if not form.write(info, self._fixed, env_id * size_bytes):
            return 0, info
        if form.is_whole:
            return form.id, {}
        return form.id, {name: value for name, value in info.items() if name not in form.keys}

    def _learn(self, key: Any, info: Info, order: tuple[str, ...] | None = None) -> InfoForm:
        if len(self._known) >= _MOST_FORMS:
            return InfoForm(())
        form = InfoForm.of(info)
        self._known[key] = form = form if order is None else replace(form, order=order)
        if form.entries:
            self._new_forms.append(form)
        return form


def _sent(info: Info, name: str = "info") -> bytes:
    """An info as bytes; PicklingError names what in it cannot travel."""
    try:
        return pickled(info)
    except Exception as error:
        path, part = find_unpicklable(info, name) or (name, info)
        raise PicklingError(
            f"{path} is a {type(part).__qualname__}, which cannot be sent to the calling process "
            f"({describe(error, 200)}). Leave it out of the info, or keep the envs in that process "
            "with backend='serial' or backend='thread'"
        ) from error
