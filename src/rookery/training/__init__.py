"""Collect, update, log, checkpoint: where collectors and learners meet."""

from rookery.training.evaluation import evaluate
from rookery.training.loop import train
from rookery.training.settings import EvalResult, TrainResult, TrainSettings

__all__ = ["EvalResult", "TrainResult", "TrainSettings", "evaluate", "train"]
