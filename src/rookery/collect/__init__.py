"""Vector env and policy in, rollouts out."""

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
