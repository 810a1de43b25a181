"""Rollouts in, new weights out: one file per algorithm, read from top to bottom.

Torch is loaded only where observations hold images.
"""

from rookery.learn.config import A2CConfig, Config, ImpalaConfig, PPOConfig

__all__ = ["A2CConfig", "Config", "ImpalaConfig", "PPOConfig"]
