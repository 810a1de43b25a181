"""Would this env survive parallel training here? Checks that try it, and say the way out."""

from rookery.diagnosis.checkup import examine
from rookery.testing.finding import Finding

__all__ = ["Finding", "examine"]
