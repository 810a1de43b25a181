"""Checks of envs and vector envs for users, and envs that fail on request.

Users, tests and `rookery doctor` import this folder. Start reading in ``env_check.py`` (one env) or
``vector_check.py`` (vector envs).
"""

from rookery.testing.difference import CheckFailed
from rookery.testing.env_check import check_env
from rookery.testing.faulty import Fault, Faulty, OddError
from rookery.testing.scripted import Scripted
from rookery.testing.trial import Finding
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
