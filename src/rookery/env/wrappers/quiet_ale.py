"""ALE's env for Gymnasium without the lines that the emulator prints in every process.

The emulator prints them as it is made, before the env has it keep to errors; so it is told here,
earlier, the same. Only what names this module as an entry point imports it, and with it ale_py.
"""

from ale_py import ALEInterface, LoggerMode
from ale_py.env import AtariEnv

ALEInterface.setLoggerMode(LoggerMode.Error)

__all__ = ["AtariEnv"]
