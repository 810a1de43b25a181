"""Rollouts in, new weights out: one file per algorithm, read from top to bottom.

Torch is loaded with the first algorithm; settings need none.
"""

from rookery.learn.config import A2CConfig, Config, DQNConfig, ImpalaConfig, PPOConfig, SACConfig

__all__ = ["A2CConfig", "Config", "DQNConfig", "ImpalaConfig", "PPOConfig", "SACConfig"]
