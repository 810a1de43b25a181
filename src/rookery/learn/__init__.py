"""The algorithms: each turns rollouts into new weights of a policy.

Runs, tuning and the command line import this package. Torch is loaded with the first algorithm, and
not for settings. Start reading in `rookery.learn.base`, then in `rookery.learn.on_policy.ppo`.
"""

from rookery.learn.config import (
    A2CConfig,
    DQNConfig,
    ImpalaConfig,
    PPOConfig,
    QRDQNConfig,
    SACConfig,
    TD3Config,
)
from rookery.learn.config_base import Config

__all__ = [
    "A2CConfig",
    "Config",
    "DQNConfig",
    "ImpalaConfig",
    "PPOConfig",
    "QRDQNConfig",
    "SACConfig",
    "TD3Config",
]
