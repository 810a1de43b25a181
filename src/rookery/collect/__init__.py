"""Vector env and policy in, rollouts out."""

from rookery.collect.base import Collector
from rookery.collect.sync import SyncCollector

__all__ = ["Collector", "SyncCollector"]
