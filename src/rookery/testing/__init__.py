"""Checks to hold envs and vector envs to, and envs that fail on request."""

from rookery.testing.difference import CheckFailed
from rookery.testing.env_check import check_env
from rookery.testing.faulty import Fault, Faulty, OddError
from rookery.testing.finding import Finding
from rookery.testing.scripted import Scripted
from rookery.testing.vector_check import check_vector_env

__all__ = [
    "CheckFailed",
    "Fault",
    "Faulty",
    "Finding",
    "OddError",
    "Scripted",
    "check_env",
    "check_vector_env",
]
