"""Learners in processes of their own, which exchange numbers by torch.distributed."""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from rookery.errors import ConfigError
from rookery.learn.peers import PeerLost, Peers

T = TypeVar("T")

# Others wait while one evaluates, or while its envs are slow; one that ends is noticed at once.
_PATIENCE = datetime.timedelta(days=30)
_LOOPBACK = {"linux": "lo", "darwin": "lo0"}


class ProcessGroup(Peers):
    """The default process group of torch.distributed, gloo on CPUs and NCCL between GPUs.

    Args:
        rank: which learner this is.
        size: how many there are.
        store: a file by which they find each other, on this machine; None where torchrun says in
            the environment how they do.

    Raises:
        ConfigError: this process is in a group already, or torch was built without groups.
    """

    def __init__(self, rank: int, size: int, store: str | None) -> None:
        if not dist.is_available():
            raise ConfigError("several learners need torch.distributed, which this torch lacks")
        if dist.is_initialized():
            raise ConfigError(
                "this process is in a group of torch.distributed already; train with one learner, "
                "or call torch.distributed.destroy_process_group() first"
            )
        self.rank, self.size, self._store = rank, size, store

    def connect(self) -> None:
        """Wait for all others."""
        store, rank, size = self._store, self.rank, self.size
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        with self._noticing():
            if store is None:
                dist.init_process_group(backend, timeout=_PATIENCE)
            else:
                with _on_this_machine():
                    found = dist.FileStore(store, size)  # type: ignore[attr-defined]
                    dist.init_process_group(
                        backend, store=found, rank=rank, world_size=size, timeout=_PATIENCE
                    )

    def add(self, tensor: Tensor) -> None:
        with self._noticing():
            dist.all_reduce(tensor)

    def gather(self, value: T) -> list[T]:
        found: list[Any] = [None] * self.size
        with self._noticing():
            dist.all_gather_object(found, value)
        return found

    def hear(self, value: Any) -> Any:
        """What the first learner says: its ``value``; that of others is not looked at."""
        box = [value]
        with self._noticing():
            dist.broadcast_object_list(box, 0)
        return box[0]

    def close(self) -> None:
        """Leave the group; what others wait for fails. Twice is fine."""
        if dist.is_initialized():
            dist.destroy_process_group()

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # torch has no type of its own for it in all its versions
            raise PeerLost(str(error)) from error


@contextmanager
def _on_this_machine() -> Iterator[None]:
    """Within the block, learners meet by the loopback device: the host's name may lead nowhere."""
    device, name = _LOOPBACK.get(sys.platform), "GLOO_SOCKET_IFNAME"
    if device is None or name in os.environ:
        yield
        return
    os.environ[name] = device
    try:
        yield
    finally:
        del os.environ[name]
