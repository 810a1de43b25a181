"""RowReader: where the caller finds what has no column of its own, in the rows of the slab."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.common.env_errors import describe
from rookery.errors import WorkerError
from rookery.shared.arrays import BatchArrays
from rookery.shared.infos import (
    Info,
    InfoForm,
    UnmergeableError,
    merge_columns,
    merge_loose,
)
from rookery.shared.slab import IN_MESSAGE, LENGTH, UNCHANGED, News, SlabShape

Array = npt.NDArray[Any]


class RowReader:
    """The caller's side: reads rows. What cannot be read is a WorkerError that names the env.

    Args:
        arrays: whose slab it reads; decoded free values go into their ``free_obs``.

    Attributes:
        wanted: a larger shape of the slab, if something did not fit.
    """

    def __init__(self, arrays: BatchArrays) -> None:
        self._slab = arrays.slab
        self._num_envs = arrays.spaces.num_envs
        self._free_forms = arrays.free_obs_forms
        self._values = arrays.free_obs
        self._forms: dict[int, InfoForm] = {}
        self._tails: dict[int, bytes] = {}  # by env, where it did not fit into the row
        self._columns: dict[tuple[int, int], list[tuple[str, str, Array]]] = {}
        self._told = np.ones(self._num_envs, np.bool_)
        self._decodes = not arrays.keeps_objects
        self._overflows = 0
        self._shape = arrays.slab.shape
        self.wanted: SlabShape | None = None

    def knows(self, env_id: int, buffer: int) -> bool:
        """Whether the form of an env's info was told."""
        form_id = int(self._slab.forms[buffer][env_id])
        return not form_id or form_id in self._forms

    def hear(self, news: News) -> None:
        """Take in what a batch tells; before anything of it is read."""
        for form in news.forms:
            self._forms[form.id] = form
            self.want(form.size_bytes, 0)
        for env_id, tail in news.tails:
            self._tails[env_id] = tail
            self.want(0, len(tail))

    def want(self, fixed_bytes: int, tail_bytes: int) -> None:
        """Ask for a slab with room for this, if it is worth the memory."""
        shape = (self.wanted or self._slab.shape).grown(fixed_bytes, tail_bytes)
        if shape != self._slab.shape:
            self._overflows += 1
            if self._slab.may_grow(shape, self._num_envs, self._overflows):
                self.wanted = shape

    def want_actions(self, action_bytes: int) -> None:
        """Ask for a slab with room for the free values of these actions."""
        self.wanted = (self.wanted or self._slab.shape).grown(0, 0, action_bytes)

    # ---------------------------------------------------------------- free values

    def read_free(self, buffer: int, env_ids: Iterable[int]) -> None:
        """Decode the free values of the observations of some envs into the lists of values."""
        if not self._decodes:
            return
        tail_used, tails = self._slab.tail_used[buffer].tolist(), self._slab.tails[buffer]
        for env_id in env_ids:
            used = tail_used[env_id]
            if used == UNCHANGED:
                for values in self._values:  # what was handed out may have been changed
                    values[env_id] = deepcopy(values[env_id])
                continue
            view = memoryview(self._tails[env_id]) if used == IN_MESSAGE else tails[env_id].data
            at = 0
            for form, values in zip(self._free_forms, self._values, strict=True):
                (length,) = LENGTH.unpack_from(view, at)
                start, at = at + LENGTH.size, at + LENGTH.size + length
                try:
                    values[env_id] = form.decode(view[start:at])
                except Exception as error:
                    raise _unreadable(env_id, "observation", error) from error

    # ---------------------------------------------------------------- infos

    def infos(self, buffer: int, env_ids: Array | None = None) -> Info:
        """The infos of some envs in Gymnasium's vector form.

        Args:
            buffer: which was written.
            env_ids: int64 ``[k]``, whose; None means all. The arrays are in their order.
        """
        forms, loose = self._slab.forms[buffer], self._slab.loose[buffer]
        if env_ids is not None:
            forms, loose = forms[env_ids], loose[env_ids]
        # Comparing bytes takes 0.4 us, numpy's all() and any() take 7.
        are_alike = forms.tobytes() == forms[:1].tobytes() * len(forms)
        are_loose = loose.tobytes() != bytes(8 * len(loose))
        added = self._slab.added[buffer]
        if not are_alike or added or are_loose:
            ids = range(self._num_envs) if env_ids is None else env_ids.tolist()
            try:
                # Ends of episodes of envs whose infos are empty: 3 us, by the general way 5.
                if env_ids is None and are_alike and not are_loose and not forms[0]:
                    return merge_loose(added, {}, self._num_envs)
                return self._mixed(buffer, ids)
            except UnmergeableError as error:
                raise _unmergeable(ids[error.place], error.__cause__) from error.__cause__
        merged: Info = {}
        if not forms[0]:
            return merged
        told = self._told if env_ids is None else np.ones(len(forms), np.bool_)
        for key, mask_key, column in self._columns_of(buffer, int(forms[0])):
            merged[key] = column.copy() if env_ids is None else column[env_ids]
            merged[mask_key] = told.copy()
        return merged

    def infos_per_env(self, buffer: int, env_ids: Iterable[int] | None = None) -> list[Info]:
        """The infos of some envs, one dict for each."""
        per_env: list[Info] = []
        for env_id in range(self._num_envs) if env_ids is None else env_ids:
            info: Info = {}
            for part in [*self._loose(buffer, env_id), *self._fixed(buffer, env_id)]:
                info.update(part)
            per_env.append(info)
        return per_env

    def _mixed(self, buffer: int, ids: Sequence[int]) -> Info:
        """Merge infos of differing forms, and loose ones."""
        forms = self._slab.forms[buffer].tolist()
        loose = self._loose_by_place(buffer, ids)
        places_of: dict[int, list[int]] = {}
        for place, env_id in enumerate(ids):
            if forms[env_id]:
                places_of.setdefault(forms[env_id], []).append(place)
        if not places_of:
            return merge_loose(loose, {}, len(ids))
        groups = []
        for form_id, places in places_of.items():
            rows = [ids[place] for place in places]
            columns = self._columns_of(buffer, form_id)
            groups.append((places, {key: column[rows] for key, _, column in columns}))
        order: dict[Any, None] = {}
        for place in sorted({*(places[0] for places in places_of.values()), *loose}):
            form_id = forms[ids[place]]
            own, infos = (self._forms[form_id].order if form_id else ()), loose.get(place, [])
            # What a form has no place for comes last, and its keys are among those of the form.
            for info in infos[:-1] if form_id and not self._forms[form_id].is_whole else infos:
                order.update(dict.fromkeys(info))
            order.update(dict.fromkeys(own))
        merged = merge_columns(groups, len(ids))
        if merged is None or any(
            key in merged for infos in loose.values() for info in infos for key in info
        ):
            # Whose value comes first decides the type of a column.
            merged = {}
            for place, env_id in enumerate(ids):
                loose[place] = loose.get(place, []) + self._fixed(buffer, env_id)
        merged = merge_loose(loose, merged, len(ids))
        known = [key for key in order if key in merged]
        return {name: merged[name] for key in known for name in (key, f"_{key}")}

    def _loose_by_place(self, buffer: int, ids: Sequence[int]) -> dict[int, list[Info]]:
        """The loose infos of some envs, by their place in ``ids``; without those that have none."""
        lengths, added = self._slab.loose[buffer].tolist(), self._slab.added[buffer]
        return {
            place: self._loose(buffer, env_id)
            for place, env_id in enumerate(ids)
            if lengths[env_id] or env_id in added
        }

    def _fixed(self, buffer: int, env_id: int) -> list[Info]:
        form_id = int(self._slab.forms[buffer][env_id])
        if not form_id:
            return []
        return [self._forms[form_id].read(self._slab.fixed[buffer][env_id].data, 0)]

    def _loose(self, buffer: int, env_id: int) -> list[Info]:
        infos = list(self._slab.added[buffer].get(env_id, ()))
        length = int(self._slab.loose[buffer][env_id])
        if not length:
            return infos
        used = int(self._slab.tail_used[buffer][env_id])
        tail = self._tails[env_id] if used == IN_MESSAGE else None
        if tail is None:
            tail = self._slab.tails[buffer][env_id].data[used - length : used].tobytes()
        pickles = io.BytesIO(tail[-length:])
        try:
            while pickles.tell() < length:
                infos.append(pickle.load(pickles))
        except Exception as error:
            raise _unreadable(env_id, "info", error) from error
        return infos

    def _columns_of(self, buffer: int, form_id: int) -> list[tuple[str, str, Array]]:
        """Key, key of its mask, and a view of the column, for each entry of a form."""
        if self._shape is not self._slab.shape:
            self._shape = self._slab.shape
            self._columns.clear()
        columns = self._columns.get((buffer, form_id))
        if columns is None:
            views = self._forms[form_id].columns(self._slab.fixed[buffer])
            columns = [(key, f"_{key}", view) for key, view in views.items()]
            self._columns[buffer, form_id] = columns
        return columns


def _unmergeable(env_id: int, error: BaseException | None) -> WorkerError:
    """What to raise because an env's info does not go with those of the others."""
    return WorkerError(
        f"Env {env_id}: its info cannot be put together with those of the other envs: "
        f"{type(error).__name__}: {error}. In Gymnasium's form each key becomes one array, so all "
        "envs must give it the same kind of value, arrays of one shape. venv.infos_per_env = True "
        "returns one dict for each env",
        env_ids=(env_id,),
    )


def _unreadable(env_id: int, what: str, error: Exception) -> WorkerError:
    """What to raise because a value cannot be made again here; its type has raised anything."""
    return WorkerError(
        f"Env {env_id}: its {what} holds something that cannot be rebuilt in this process: "
        f"{type(error).__name__}: {describe(error, 500)}. It can be pickled but not unpickled; "
        "give its type a __reduce__ that makes it again, or leave it out",
        env_ids=(env_id,),
    )
