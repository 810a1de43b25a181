"""Settings of the process during training."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rookery.run import threads

# Allocates and frees a large block again and again, and counts the pages that the system had to
# make for it, in an interpreter whose memory nothing else has shaped.
_FAULTS = """
import resource
import numpy as np
from rookery.run.threads import freed_memory_kept

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        np.ones(64 * 2**20, np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
with freed_memory_kept():
    faults()
    kept = faults()
print(kept, faults())
"""


@pytest.mark.skipif(threads._glibc() is None, reason="needs glibc, with no settings of the user's")
def test_freed_memory_stays_mapped_and_is_returned_afterwards():
    done = subprocess.run(
        [sys.executable, "-c", _FAULTS], check=True, capture_output=True, text=True
    )
    kept, afterwards = map(int, done.stdout.split())
    assert kept < 1000, "64 MiB ten times are 163 840 pages, or 320 large ones"
    assert afterwards > kept


def test_malloc_settings_of_the_user_are_not_changed(monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1000000")
    assert threads._glibc() is None
    with threads.freed_memory_kept():
        pass
