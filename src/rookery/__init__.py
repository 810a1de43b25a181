"""rookery: many reinforcement-learning environments in parallel, and training on them.

Public names are imported when first used, so that ``import rookery`` needs numpy, gymnasium,
cloudpickle and psutil only.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rookery.common import seeding
from rookery.common.version import __version__ as __version__
from rookery.errors import (
    ClosedError,
    ConfigError,
    EnvFailed,
    LearnerDied,
    MissingExtra,
    NoPendingCallError,
    PendingCallError,
    PicklingError,
    RookeryError,
    SharedMemoryError,
    SpaceError,
    SpaceTypeError,
    SpaceValueError,
    StorageError,
    TrainingDiverged,
    UnknownEnvError,
    UsageError,
    WorkerDied,
    WorkerError,
    WorkerTimeout,
)

if TYPE_CHECKING:
    from rookery import callbacks, collect, learn, policy, rollout, testing
    from rookery.collect.base import Collector, CollectorStatistics
    from rookery.collect.double import DoubleBufferedCollector
    from rookery.collect.served import ServedCollector
    from rookery.collect.sync import SyncCollector
    from rookery.collect.workers import WorkerCollector
    from rookery.env.deferred import Deferred
    from rookery.env.wrappers.action_mask import ActionMaskFromInfo
    from rookery.learn.base import Algorithm, Learner
    from rookery.learn.config import (
        A2CConfig,
        DQNConfig,
        ImpalaConfig,
        PPOConfig,
        QRDQNConfig,
        SACConfig,
        TD3Config,
    )
    from rookery.policy.base import Policy, PolicyStep
    from rookery.policy.factory import make_policy
    from rookery.policy.torch.torch_policy import TorchPolicy
    from rookery.rollout.rollout import Rollout
    from rookery.run.agent import Agent
    from rookery.run.callbacks import StopTraining
    from rookery.run.checkpoint.agents import load
    from rookery.run.evaluation import EvalResult
    from rookery.run.log.sinks import Sink
    from rookery.run.loop import TrainResult, evaluate, resume, train
    from rookery.run.progress import Update
    from rookery.run.request import RunRequest
    from rookery.run.settings import TrainSettings
    from rookery.run.trainer import Trainer
    from rookery.vector.auto.choose import Choice
    from rookery.vector.base import VectorEnv
    from rookery.vector.make import make_vec
    from rookery.vector.process import ProcessVectorEnv
    from rookery.vector.serial import SerialVectorEnv
    from rookery.vector.statistics.snapshot import (
        CallerStatistics,
        EnvStatistics,
        Statistics,
        WorkerStatistics,
    )
    from rookery.vector.thread import ThreadVectorEnv
    from rookery.worker.fault_policy import FaultPolicy

# The module of each name. A test compares this table with the imports above, which type checkers
# read, and with `__all__`.
_HOMES = {
    "Collector": "rookery.collect.base",
    "CollectorStatistics": "rookery.collect.base",
    "DoubleBufferedCollector": "rookery.collect.double",
    "ServedCollector": "rookery.collect.served",
    "SyncCollector": "rookery.collect.sync",
    "WorkerCollector": "rookery.collect.workers",
    "Deferred": "rookery.env.deferred",
    "ActionMaskFromInfo": "rookery.env.wrappers.action_mask",
    "Algorithm": "rookery.learn.base",
    "Learner": "rookery.learn.base",
    "A2CConfig": "rookery.learn.config",
    "DQNConfig": "rookery.learn.config",
    "ImpalaConfig": "rookery.learn.config",
    "PPOConfig": "rookery.learn.config",
    "QRDQNConfig": "rookery.learn.config",
    "SACConfig": "rookery.learn.config",
    "TD3Config": "rookery.learn.config",
    "Policy": "rookery.policy.base",
    "PolicyStep": "rookery.policy.base",
    "make_policy": "rookery.policy.factory",
    "TorchPolicy": "rookery.policy.torch.torch_policy",
    "Rollout": "rookery.rollout.rollout",
    "Agent": "rookery.run.agent",
    "load": "rookery.run.checkpoint.agents",
    "StopTraining": "rookery.run.callbacks",
    "Sink": "rookery.run.log.sinks",
    "evaluate": "rookery.run.loop",
    "resume": "rookery.run.loop",
    "train": "rookery.run.loop",
    "EvalResult": "rookery.run.evaluation",
    "TrainResult": "rookery.run.loop",
    "RunRequest": "rookery.run.request",
    "TrainSettings": "rookery.run.settings",
    "Trainer": "rookery.run.trainer",
    "Update": "rookery.run.progress",
    "Choice": "rookery.vector.auto.choose",
    "VectorEnv": "rookery.vector.base",
    "make_vec": "rookery.vector.make",
    "ProcessVectorEnv": "rookery.vector.process",
    "SerialVectorEnv": "rookery.vector.serial",
    "CallerStatistics": "rookery.vector.statistics.snapshot",
    "EnvStatistics": "rookery.vector.statistics.snapshot",
    "Statistics": "rookery.vector.statistics.snapshot",
    "WorkerStatistics": "rookery.vector.statistics.snapshot",
    "ThreadVectorEnv": "rookery.vector.thread",
    "FaultPolicy": "rookery.worker.fault_policy",
}
_SUBMODULES = ("callbacks", "collect", "learn", "policy", "rollout", "testing")

__all__ = [
    "A2CConfig",
    "ActionMaskFromInfo",
    "Agent",
    "Algorithm",
    "CallerStatistics",
    "Choice",
    "ClosedError",
    "Collector",
    "CollectorStatistics",
    "ConfigError",
    "DQNConfig",
    "Deferred",
    "DoubleBufferedCollector",
    "EnvFailed",
    "EnvStatistics",
    "EvalResult",
    "FaultPolicy",
    "ImpalaConfig",
    "Learner",
    "LearnerDied",
    "MissingExtra",
    "NoPendingCallError",
    "PPOConfig",
    "PendingCallError",
    "PicklingError",
    "Policy",
    "PolicyStep",
    "ProcessVectorEnv",
    "QRDQNConfig",
    "Rollout",
    "RookeryError",
    "RunRequest",
    "SACConfig",
    "SerialVectorEnv",
    "ServedCollector",
    "SharedMemoryError",
    "Sink",
    "SpaceError",
    "SpaceTypeError",
    "SpaceValueError",
    "Statistics",
    "StopTraining",
    "StorageError",
    "SyncCollector",
    "TD3Config",
    "ThreadVectorEnv",
    "TorchPolicy",
    "TrainResult",
    "TrainSettings",
    "Trainer",
    "TrainingDiverged",
    "UnknownEnvError",
    "Update",
    "UsageError",
    "VectorEnv",
    "WorkerCollector",
    "WorkerDied",
    "WorkerError",
    "WorkerStatistics",
    "WorkerTimeout",
    "callbacks",
    "collect",
    "evaluate",
    "learn",
    "load",
    "make_policy",
    "make_vec",
    "policy",
    "resume",
    "rollout",
    "seeding",
    "testing",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"rookery.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'rookery' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOMES) | set(_SUBMODULES))
