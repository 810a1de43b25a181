"""Outbox: where envs leave what has no column of its own."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Protocol

from rookery.env.infos import Info, InfoForm
from rookery.env.slab import BY_HAND, LENGTH, SEE_SLAB, UNCHANGED, News, Slab
from rookery.env.travel import pickled

_MOST_FORMS = 64  # that a batch learns; an env whose keys change all the time gains nothing by it


class Postbox(Protocol):
    """What a batch needs of an outbox; see :class:`Outbox`, which says what each is for."""

    used: set[int]
    has_posted: bool

    def final(self, obs: Any, info: Info) -> Any:
        """Make something, not empty, of the end of an episode, safe from the reset that follows."""

    def post(self, env_id: int, info: Info, final: Any = None) -> None:
        """Take in an env's info, and what :meth:`final` made."""

    def keep(self, env_id: int) -> None:
        """Take in that an env was not concerned."""

    def clear(self, env_id: int) -> None:
        """Forget what an env of ``used`` had posted before."""

    def news(self) -> News:
        """What to tell whoever waits, once ``has_posted``."""


class Outbox:
    """The side of the envs: writes the rows of one buffer.

    Args:
        slab: where.
        buffer: which.
        free: encoded free values of the env at hand, to which its observation's writer appends.
        travels: whether the caller is another process. In the same one loose infos stay objects,
            so that they may hold what cannot be pickled.

    Attributes:
        used: ids of the envs whose rows are not empty.
        has_posted: whether there is something to tell since :meth:`news` was called last.
    """

    def __init__(self, slab: Slab, buffer: int, free: list[bytes], travels: bool) -> None:
        self._slab = slab
        self._travels = travels
        self._buffer = buffer
        self._free = free
        self._known: dict[Any, InfoForm] = {}
        self._new_forms: list[InfoForm] = []
        self._by_hand: list[tuple[int, bytes]] = []
        self._bind()
        self.used: set[int] = set()
        self.has_posted = False

    def _bind(self) -> None:
        slab, b = self._slab, self._buffer
        self._shape = slab.shape
        self._forms, self._loose = slab.forms[b].data, slab.loose[b].data
        self._tail_used, self._tails = slab.tail_used[b].data, slab.tails[b]
        self._fixed = slab.fixed[b].reshape(-1).data

    def final(self, obs: Any, info: Info) -> Any:
        """The last observation and info of an episode, safe from the reset that follows."""
        if self._travels:
            return pickled({"final_obs": obs, "final_info": info})
        return {"final_obs": deepcopy(obs), "final_info": dict(info)}

    def post(self, env_id: int, info: Info, final: Any = None) -> None:
        """Write an env's row: its info, and the free values of its observation.

        Args:
            env_id: whose.
            info: may be empty.
            final: what :meth:`final` made, if an episode ended.
        """
        if self._shape is not self._slab.shape:
            self._bind()
        form_id, rest = self._fix(env_id, info) if info else (0, info)
        loose = b""
        if self._travels:
            loose = (final or b"") + (pickled(rest) if rest else b"")
        elif final or rest:
            self._slab.added[env_id] = [part for part in (final, rest) if part]
        self._forms[env_id] = form_id
        self._loose[env_id] = len(loose)
        self._tail_used[env_id] = self._write_tail(env_id, loose) if loose or self._free else 0
        self.has_posted = True
        self.used.add(env_id)

    def keep(self, env_id: int) -> None:
        """Say that an env's observation is the one before, and that it has no info."""
        self._empty(env_id, UNCHANGED)
        self.has_posted = True
        self.used.add(env_id)

    def clear(self, env_id: int) -> None:
        """Empty a row that was used before."""
        self._empty(env_id, 0)
        self.used.discard(env_id)

    def _empty(self, env_id: int, tail_used: int) -> None:
        if self._shape is not self._slab.shape:
            self._bind()
        self._forms[env_id] = self._loose[env_id] = 0
        self._tail_used[env_id] = tail_used

    def news(self) -> News:
        """What to tell whoever waits, once something was posted."""
        self.has_posted = False
        if not self._new_forms and not self._by_hand:
            return SEE_SLAB
        news = News(tuple(self._new_forms), tuple(self._by_hand))
        self._new_forms, self._by_hand = [], []
        return news

    def _write_tail(self, env_id: int, loose: bytes) -> int:
        """Write free values and loose infos; return what to note as the length."""
        tail = b"".join([*(LENGTH.pack(len(free)) + free for free in self._free), loose])
        self._free.clear()
        if len(tail) > self._shape.tail_bytes:
            self._by_hand.append((env_id, tail))
            return BY_HAND
        self._tails[env_id].data[: len(tail)] = tail
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

    def _learn(self, key: Any, info: Info) -> InfoForm:
        if len(self._known) >= _MOST_FORMS:
            return InfoForm(())
        form = self._known[key] = InfoForm.of(info)
        if form.entries:
            self._new_forms.append(form)
        return form
