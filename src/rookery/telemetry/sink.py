"""What every destination of metrics does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping


class Sink(ABC):
    """A destination of metrics."""

    @abstractmethod
    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of one update; ``step`` counts env steps."""

    @abstractmethod
    def close(self) -> None:
        """Flush and let go; closing twice is fine."""
