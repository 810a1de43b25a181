"""Deliberately bad environments, to test what surrounds them."""

from rookery.testing.faulty import Fault, Faulty, OddError

__all__ = ["Fault", "Faulty", "OddError"]
