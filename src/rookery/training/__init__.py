"""Collect, update, log, checkpoint: where collectors and algorithms meet."""

from rookery.training.agent import Agent, load
from rookery.training.callbacks import StopTraining
from rookery.training.results import EvalResult, TrainResult
from rookery.training.run import evaluate, resume, train
from rookery.training.settings import TrainSettings
from rookery.training.trainer import Trainer
from rookery.training.update import Update

__all__ = [
    "Agent",
    "EvalResult",
    "StopTraining",
    "TrainResult",
    "TrainSettings",
    "Trainer",
    "Update",
    "evaluate",
    "load",
    "resume",
    "train",
]
