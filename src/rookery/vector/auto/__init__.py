"""The choice that ``backend="auto"`` makes."""
