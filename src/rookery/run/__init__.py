"""Training runs: settings, plan, trainer, callbacks, evaluation and trained agents.

The command line and the optional packages import this package, and so does ``import rookery`` when
one of its names is used. Start reading at `rookery.run.loop`, which has `train`, `resume` and
`evaluate`.
"""

from rookery.run.agent import Agent
from rookery.run.callbacks import StopTraining
from rookery.run.checkpoint.agents import load
from rookery.run.evaluation import EvalResult
from rookery.run.loop import TrainResult, evaluate, resume, train
from rookery.run.progress import Update
from rookery.run.settings import TrainSettings
from rookery.run.trainer import Trainer

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
