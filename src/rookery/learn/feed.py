"""Minibatches on their way to the network, one ahead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from rookery.learn.batch import Batch


def fed(batches: Iterable[Batch], network: Any) -> Iterator[Batch]:
    """Yield ``batches`` with their features where ``network`` computes.

    Each is sent before the one ahead of it is yielded, so that it travels while that is computed
    with. On the cpu there is no way to go.
    """
    ahead: Batch | None = None
    receive: Any = None
    for batch in batches:
        coming = network.send(batch.features)
        if ahead is not None:
            yield replace(ahead, features=receive())
        ahead, receive = batch, coming
    if ahead is not None:
        yield replace(ahead, features=receive())
