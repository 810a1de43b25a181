"""ALE's Gymnasium env without the lines that the emulator prints in every process.

The emulator prints them when it is created, before the env sets its log level. Importing this
module sets the log level first. It is imported only as an entry point of envs, since it imports
ale_py.
"""

from ale_py import ALEInterface, LoggerMode
from ale_py.env import AtariEnv

ALEInterface.setLoggerMode(LoggerMode.Error)

__all__ = ["AtariEnv"]
