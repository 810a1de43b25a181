"""Collectors: they let a policy act in envs and return rollouts.

``run``, ``tuning`` and users may import this folder. Start reading in ``base.py`` (the interface)
and ``sync.py`` (the plain collector).
"""

from rookery.collect.base import Collector, CollectorStatistics
from rookery.collect.double import DoubleBufferedCollector
from rookery.collect.served import ServedCollector
from rookery.collect.sync import SyncCollector
from rookery.collect.workers import WorkerCollector

__all__ = [
    "Collector",
    "CollectorStatistics",
    "DoubleBufferedCollector",
    "ServedCollector",
    "SyncCollector",
    "WorkerCollector",
]
