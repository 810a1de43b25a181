"""Learners in separate processes, which exchange numbers with torch.distributed."""

from __future__ import annotations

import datetime
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psutil
import torch
import torch.distributed as dist
from torch import Tensor

from rookery.errors import ConfigError
from rookery.learn.parallel.peers import PeerLost, Peers

T = TypeVar("T")

# Learners wait while one evaluates or has slow envs. The exit of a learner is noticed at once.
_PATIENCE = datetime.timedelta(days=30)
_TCP = "tcp://"
_LOOPBACK = {"linux": "lo", "darwin": "lo0"}


class ProcessGroup(Peers):
    """The default process group of torch.distributed, with gloo on CPUs and NCCL between GPUs.

    Args:
        rank: Number of this learner.
        size: Number of learners.
        store: The meeting point of the learners: a file for learners on one machine,
            ``"tcp://host:port"`` for several machines, or None if torchrun sets it in the
            environment.

    Attributes:
        store: The meeting point. The first learner replaces port 0 by the port that it listens on.

    Raises:
        ConfigError: this process is in a group already, or torch was built without
            torch.distributed.
    """

    def __init__(self, rank: int, size: int, store: str | None) -> None:
        if not dist.is_available():
            raise ConfigError(
                "several learners need torch.distributed, which this build of torch lacks"
            )
        if dist.is_initialized():
            raise ConfigError(
                "this process is in a group of torch.distributed already; train with one learner, "
                "or call torch.distributed.destroy_process_group() before"
            )
        self.rank, self.size, self.store = rank, size, store
        self._server: Any = None
        if rank == 0 and store is not None and store.startswith(_TCP):
            host, port = _parts(store)
            self._server = dist.TCPStore(  # type: ignore[attr-defined]
                host, port, size, True, _PATIENCE, wait_for_workers=False
            )
            self.store = f"{_TCP}{host}:{self._server.port}"

    def connect(self) -> None:
        """Join the group, and wait until all learners have joined."""
        store, rank, size = self.store, self.rank, self.size
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        with self._noticing():
            if store is None:
                dist.init_process_group(backend, timeout=_PATIENCE)
                return
            found: Any = self._server
            if not store.startswith(_TCP):
                found, device = dist.FileStore(store, size), _LOOPBACK.get(sys.platform)  # type: ignore[attr-defined]
            else:
                host, port = _parts(store)
                found = found or dist.TCPStore(  # type: ignore[attr-defined]
                    host, port, size, False, _PATIENCE
                )
                device = _facing(host)
            with _through(device):
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
        """Return the ``value`` of the first learner; the values of others are ignored."""
        box = [value]
        with self._noticing():
            dist.broadcast_object_list(box, 0)
        return box[0]

    def close(self) -> None:
        """Leave the group, so that calls of other learners fail; a second call does nothing."""
        if dist.is_initialized():
            dist.destroy_process_group()

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # older torch versions raise no more specific type
            raise PeerLost(str(error)) from error


def _parts(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix(_TCP).rpartition(":")
    return host, int(port)


def _facing(host: str) -> str | None:
    """Return the network device that reaches ``host``; None if it is unknown."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))  # sends nothing
        except OSError:
            return None
        own = probe.getsockname()[0]
    for device, addresses in psutil.net_if_addrs().items():
        if any(address.address == own for address in addresses):
            return device
    return None


@contextmanager
def _through(device: str | None) -> Iterator[None]:
    """Let gloo use this network device within the block; the host name may not resolve."""
    name = "GLOO_SOCKET_IFNAME"
    if device is None or name in os.environ:
        yield
        return
    os.environ[name] = device
    try:
        yield
    finally:
        del os.environ[name]
