"""Where arrays live: the layout of a block, and the block itself."""

from rookery.memory.block import SharedBlock
from rookery.memory.layout import Column, Layout

__all__ = ["Column", "Layout", "SharedBlock"]
