"""rookery: many reinforcement-learning environments in parallel, and training on them.

Public names are imported when first used, so that ``import rookery`` needs numpy, gymnasium,
cloudpickle and psutil only.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rookery.common import seeding
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
    from rookery import callbacks
    from rookery.collect.double import DoubleBufferedCollector
    from rookery.collect.served import ServedCollector
    from rookery.collect.sync import SyncCollector
    from rookery.collect.workers import WorkerCollector
    from rookery.env.deferred import Deferred
    from rookery.env.wrappers.action_mask import ActionMaskFromInfo
    from rookery.learn.base import Algorithm
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
    from rookery.rollout.rollout import Rollout
    from rookery.run import (
        Agent,
        StopTraining,
        Trainer,
        Update,
        evaluate,
        load,
        resume,
        train,
    )
    from rookery.vector.base import VectorEnv
    from rookery.vector.make import make_vec
    from rookery.vector.process import ProcessVectorEnv
    from rookery.vector.serial import SerialVectorEnv
    from rookery.worker.fault_policy import FaultPolicy

__version__ = "0.9.0"

_HOMES = {
    "A2CConfig": "rookery.learn.config",
    "DQNConfig": "rookery.learn.config",
    "Deferred": "rookery.env.deferred",
    "DoubleBufferedCollector": "rookery.collect.double",
    "PPOConfig": "rookery.learn.config",
    "FaultPolicy": "rookery.worker.fault_policy",
    "ImpalaConfig": "rookery.learn.config",
    "Policy": "rookery.policy.base",
    "PolicyStep": "rookery.policy.base",
    "ProcessVectorEnv": "rookery.vector.process",
    "Rollout": "rookery.rollout.rollout",
    "QRDQNConfig": "rookery.learn.config",
    "SACConfig": "rookery.learn.config",
    "TD3Config": "rookery.learn.config",
    "SerialVectorEnv": "rookery.vector.serial",
    "ServedCollector": "rookery.collect.served",
    "SyncCollector": "rookery.collect.sync",
    "TorchPolicy": "rookery.policy.torch.torch_policy",
    "VectorEnv": "rookery.vector.base",
    "WorkerCollector": "rookery.collect.workers",
    "ActionMaskFromInfo": "rookery.env.wrappers.action_mask",
    "Agent": "rookery.run",
    "Algorithm": "rookery.learn.base",
    "StopTraining": "rookery.run",
    "Trainer": "rookery.run",
    "Update": "rookery.run",
    "evaluate": "rookery.run",
    "load": "rookery.run",
    "make_vec": "rookery.vector.make",
    "resume": "rookery.run",
    "train": "rookery.run",
}

__all__ = [
    "A2CConfig",
    "ActionMaskFromInfo",
    "Agent",
    "Algorithm",
    "ClosedError",
    "ConfigError",
    "DQNConfig",
    "Deferred",
    "DoubleBufferedCollector",
    "EnvFailed",
    "FaultPolicy",
    "ImpalaConfig",
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
    "SACConfig",
    "SerialVectorEnv",
    "ServedCollector",
    "SharedMemoryError",
    "SpaceError",
    "SpaceTypeError",
    "SpaceValueError",
    "StopTraining",
    "StorageError",
    "SyncCollector",
    "TD3Config",
    "TorchPolicy",
    "Trainer",
    "TrainingDiverged",
    "UnknownEnvError",
    "Update",
    "UsageError",
    "VectorEnv",
    "WorkerCollector",
    "WorkerDied",
    "WorkerError",
    "WorkerTimeout",
    "callbacks",
    "evaluate",
    "load",
    "make_vec",
    "resume",
    "seeding",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "callbacks":
        return importlib.import_module("rookery.callbacks")
    if name not in _HOMES:
        raise AttributeError(f"module 'rookery' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOMES))
