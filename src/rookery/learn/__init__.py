"""Rollouts in, new weights out: one file per algorithm, read from top to bottom.

Torch is loaded with the first algorithm; settings need none.
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
