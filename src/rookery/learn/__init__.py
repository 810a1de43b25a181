"""Rollouts in, new weights out: one file per algorithm, read from top to bottom.

The learners need torch; the configurations do not.
"""

from rookery.learn.config import PPOConfig

__all__ = ["PPOConfig"]
