"""Callbacks of a `rookery.Trainer`: called as ``callback(trainer, update)`` after each update."""

from rookery.run.callbacks import Callback, CheckpointEvery, EvaluateEvery, RecordVideo

__all__ = ["Callback", "CheckpointEvery", "EvaluateEvery", "RecordVideo"]
