"""RowWriter: writes infos and free values into the rows, on the side of the envs."""

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
from rookery.shared.infos import Info, InfoForm, copied_info, element
from rookery.shared.row_buffer import LENGTH, ROWS_ONLY, TAIL_IN_MESSAGE, RowBuffer, RowExtras

_MOST_FORMS = 64  # per writer; forms do not help an env whose keys change all the time


class RowSink(Protocol):
    """Receiver of the infos and final observations of a batch; see :class:`RowWriter`."""

    used: set[int]
    has_extras: bool

    def final(self, env_id: int, obs: Any, info: Info) -> Any:
        """Return the end of an episode in a form that the next reset cannot change."""

    def post(self, env_id: int, info: Info, final: Any = None) -> None:
        """Write an env's info, and the result of :meth:`final` if its episode ended."""

    def post_all(
        self,
        env_ids: Sequence[int],
        columns: Mapping[str, npt.NDArray[Any]],
        rest: Mapping[int, Info],
        order: tuple[str, ...],
    ) -> None:
        """Write the infos of some envs at once: shared keys, and keys of single envs."""

    def clear(self, env_id: int) -> None:
        """Empty the row of an env in ``used``."""

    def extras(self) -> RowExtras:
        """Return the values to send beside the rows. Called if ``has_extras``."""


class RowWriter:
    """Writes the rows of one buffer.

    Args:
        rows: row buffer.
        buffer: index of the buffer.
        free: encoded free values of the current env. The writer of its observation appends to it.
        pickles: True if the caller is another process. Otherwise loose infos stay objects, and may
            contain values that cannot be pickled.
        env_ids: ids of envs with rows that may not be empty, because a lost batch wrote them.

    Attributes:
        used: ids of the envs with rows that may not be empty.
        has_extras: True if a row was written after the last call of :meth:`extras`.
    """

    def __init__(
        self, rows: RowBuffer, buffer: int, free: list[bytes], pickles: bool, env_ids: Iterable[int]
    ) -> None:
        self._rows = rows
        self._pickles = pickles
        self._buffer = buffer
        self._free = free
        self._known: dict[Any, InfoForm] = {}
        self._columns: dict[int, dict[str, npt.NDArray[Any]]] = {}  # of a form, by its id
        self._new_forms: list[InfoForm] = []
        self._tails: list[tuple[int, bytes]] = []
        self._bind()
        self.used: set[int] = set(env_ids)
        self.has_extras = False

    def _bind(self) -> None:
        source, b = self._rows, self._buffer
        self._shape = source.shape
        self._forms, self._loose = source.forms[b].data, source.loose[b].data
        self._tail_used, self._tail_rows = source.tail_used[b].data, source.tails[b]
        self._fixed = source.fixed[b].reshape(-1).data
        self._columns.clear()

    def final(self, env_id: int, obs: Any, info: Info) -> Any:
        """Return the last observation and info of an episode, safe from the next reset."""
        if self._pickles:
            return _pickled_info({"final_obs": obs, "final_info": info}, "final")
        # An array's own copy takes a seventh of the time.
        is_plain = type(obs) is np.ndarray and not obs.dtype.hasobject
        return {
            "final_obs": obs.copy() if is_plain else deepcopy(obs),
            "final_info": copied_info(info),
        }

    def post(self, env_id: int, info: Info, final: Any = None) -> None:
        """Write an env's row: its info, and the free values of its observation.

        Args:
            env_id: id of the env.
            info: info of the env; may be empty.
            final: result of :meth:`final`, if an episode ended.
        """
        if self._shape is not self._rows.shape:
            self._bind()
        self.used.add(env_id)  # first, because an interruption may leave the row half written
        form_id, rest = self._write_numbers(env_id, info) if info else (0, info)
        loose = b""
        if self._pickles:
            loose = (final or b"") + (_pickled_info(rest) if rest else b"")
        else:
            self._rows.added[self._buffer].pop(env_id, None)
            if final or rest:
                parts = [final, copied_info(rest) if rest else rest]
                self._rows.added[self._buffer][env_id] = [part for part in parts if part]
        self._forms[env_id] = form_id
        self._loose[env_id] = len(loose)
        self._tail_used[env_id] = self._write_tail(env_id, loose) if loose or self._free else 0
        self.has_extras = True

    def post_all(
        self,
        env_ids: Sequence[int],
        columns: Mapping[str, npt.NDArray[Any]],
        rest: Mapping[int, Info],
        order: tuple[str, ...],
    ) -> None:
        """Replace the infos of some envs at once.

        Args:
            env_ids: ids of the envs.
            columns: keys of all these envs: arrays ``[k, *shape]`` of numbers.
            rest: by env id, keys of single envs.
            order: order of all keys.
        """
        if not columns and not rest and not self.used:
            return
        if self._shape is not self._rows.shape:
            self._bind()
        target, b = self._rows, self._buffer
        rows = slice(env_ids.start, env_ids.stop) if type(env_ids) is range else list(env_ids)
        form_id, left = self._write_columns(rows, columns, order)
        target.forms[b][rows] = form_id
        target.loose[b][rows] = target.tail_used[b][rows] = 0
        for place, env_id in enumerate(env_ids):
            info = {key: element(left[key][place]) for key in left} | dict(rest.get(env_id, ()))
            if info:
                self._post_loose(env_id, {key: info[key] for key in order if key in info})
        if columns or rest:
            self.has_extras = True
            self.used.update(env_ids)
        else:
            self.used.difference_update(env_ids)

    def _post_loose(self, env_id: int, info: Info) -> None:
        """Write a loose info of an env."""
        if not self._pickles:
            self._rows.added[self._buffer][env_id] = [copied_info(info)]
            return
        loose = _pickled_info(info)
        self._loose[env_id] = len(loose)
        self._tail_used[env_id] = self._write_tail(env_id, loose)

    def _write_columns(
        self, rows: Any, columns: Mapping[str, npt.NDArray[Any]], order: tuple[str, ...]
    ) -> tuple[int, dict[str, npt.NDArray[Any]]]:
        """Write columns into the fixed parts; return the form's id and the remaining columns."""
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
            views = self._columns[form.id] = form.columns(self._rows.fixed[self._buffer])
        for name, view in views.items():
            view[rows] = columns[name]
        return form.id, {name: columns[name] for name in columns if name not in views}

    def clear(self, env_id: int) -> None:
        """Empty a row that was used before."""
        if self._shape is not self._rows.shape:
            self._bind()
        self._forms[env_id] = self._loose[env_id] = self._tail_used[env_id] = 0
        self.used.discard(env_id)

    def extras(self) -> RowExtras:
        """Return the values to send beside the rows."""
        self.has_extras = False
        if not self._new_forms and not self._tails:
            return ROWS_ONLY
        extras = RowExtras(tuple(self._new_forms), tuple(self._tails))
        self._new_forms, self._tails = [], []
        return extras

    def _write_tail(self, env_id: int, loose: bytes) -> int:
        """Write free values and loose infos; return the value of ``tail_used``."""
        tail = b"".join([*(LENGTH.pack(len(free)) + free for free in self._free), loose])
        self._free.clear()
        if len(tail) > self._shape.tail_bytes:
            self._tails.append((env_id, tail))
            return TAIL_IN_MESSAGE
        self._tail_rows[env_id].data[: len(tail)] = tail
        return len(tail)

    def _write_numbers(self, env_id: int, info: Info) -> tuple[int, Info]:
        """Write numbers into the fixed part; return the form's id and the remaining info."""
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


def _pickled_info(info: Info, name: str = "info") -> bytes:
    """Pickle an info. A PicklingError names the value that cannot be pickled."""
    try:
        return pickled(info)
    except Exception as error:
        path, part = find_unpicklable(info, name) or (name, info)
        raise PicklingError(
            f"{path} is a {type(part).__qualname__}, which cannot be sent to the calling process "
            f"({describe(error, 200)}). Leave it out of the info, or keep the envs in that process "
            "with backend='serial' or backend='thread'"
        ) from error
