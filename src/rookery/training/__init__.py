"""Collect, update, log, checkpoint: where collectors and learners meet."""

from rookery.training.evaluation import evaluate
from rookery.training.settings import EvalResult, TrainResult, TrainSettings
from rookery.training.start import resume, train

__all__ = ["EvalResult", "TrainResult", "TrainSettings", "evaluate", "resume", "train"]
