"""Alarms, forks and stopped processes are POSIX's."""

from __future__ import annotations

import sys

collect_ignore_glob = ["test_*.py"] if sys.platform == "win32" else []
