"""Contents of the memory that envs and their caller share: arrays, rows of bytes, counters.

Everything from ``env/`` upwards may import it. Start reading at ``arrays.py``, which holds the
arrays of a step; ``block.py`` has the memory itself.
"""

from rookery.shared.block import Layout, SharedBlock

__all__ = ["Layout", "SharedBlock"]
