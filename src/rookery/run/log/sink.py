"""What every destination of metrics does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Sink(Protocol):
    """A destination of metrics; any object with these two methods is one."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of one update; ``step`` counts env steps."""

    def close(self) -> None:
        """Flush and let go; closing twice is fine."""
