"""Where arrays live: the layout of a block, and the block itself."""

from rookery.shared.block import SharedBlock
from rookery.shared.layout import Column, Layout

__all__ = ["Column", "Layout", "SharedBlock"]
