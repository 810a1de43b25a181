"""Checks to hold envs and vector envs to, and envs that fail on request."""

from rookery.testing.difference import CheckFailed
from rookery.testing.faulty import Fault, Faulty, OddError
from rookery.testing.scripted import Scripted
from rookery.testing.vector_check import check_vector_env

__all__ = ["CheckFailed", "Fault", "Faulty", "OddError", "Scripted", "check_vector_env"]
