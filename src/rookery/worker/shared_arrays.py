"""SharedArrays: the shared memory of a vector env, as arrays."""

from __future__ import annotations

from rookery.shared import Column, Layout, SharedBlock
from rookery.shared.arrays import BatchArrays, BatchSpaces
from rookery.shared.slab import SlabShape
from rookery.worker import orders
from rookery.worker.channel import PipeChannel
from rookery.worker.orders import Orders


class SharedArrays:
    """All arrays of a vector env: those of its envs, and the words of :mod:`rookery.worker.orders`.

    Args:
        spaces: the spaces of the envs.
        num_workers: number of workers.

    Attributes:
        arrays: the arrays of the envs; set by :meth:`allocate` and :meth:`receive`.
        orders: the orders to the envs; set by :meth:`allocate` and :meth:`receive`.
    """

    def __init__(self, spaces: BatchSpaces, num_workers: int) -> None:
        self._spaces = spaces
        columns = {**spaces.columns(), **orders.columns(spaces.num_envs, num_workers)}
        self._layout = Layout({name: Column(*column) for name, column in columns.items()})
        self._blocks: list[SharedBlock] = []  # all arrays; then a larger row buffer, if any
        self._slab_shape: SlabShape | None = None

    @classmethod
    def receive(cls, spaces: BatchSpaces, num_workers: int, channel: PipeChannel) -> SharedArrays:
        """Return the arrays that the other end of ``channel`` sends."""
        shared = cls(spaces, num_workers)
        shared._map(channel.receive_block())
        slab_shape: SlabShape | None = channel.decode(channel.receive()[1])
        if slab_shape is not None:
            shared.receive_slab(channel, slab_shape)
        return shared

    def allocate(self) -> None:
        """Allocate the memory."""
        self._blocks = [SharedBlock(self._layout.size_bytes)]
        self._map(self._blocks[0].memory)

    def send(self, channel: PipeChannel) -> None:
        """Give the process at the other end of ``channel`` access to all arrays."""
        channel.send_block(self._blocks[0])
        channel.send(0, channel.encode(self._slab_shape))
        if self._slab_shape is not None:
            self.send_slab(channel)

    def enlarge_slab(self, shape: SlabShape) -> None:
        """Allocate a larger row buffer. Other processes still use the smaller one."""
        for block in self._blocks[1:]:
            block.close()
        layout = self._slab_layout(shape)
        block = SharedBlock(layout.size_bytes)
        self._blocks[1:] = [block]
        self._slab_shape = shape
        self.arrays.slab.enlarge(shape, layout.views(block.memory))

    def send_slab(self, channel: PipeChannel) -> None:
        """Give the process at the other end of ``channel`` access to the larger row buffer."""
        channel.send_block(self._blocks[1])

    def receive_slab(self, channel: PipeChannel, shape: SlabShape) -> None:
        """Use the row buffer that the other end of ``channel`` sends."""
        views = self._slab_layout(shape).views(channel.receive_block())
        self.arrays.slab.bind(shape, views)

    def release(self) -> None:
        """Close the blocks: they cannot be sent any more. Arrays stay valid while they are used."""
        for block in self._blocks:
            block.close()

    def _map(self, memory: object) -> None:
        views = self._layout.views(memory)
        self.arrays = BatchArrays(self._spaces, views)
        self.orders = Orders(views)

    def _slab_layout(self, shape: SlabShape) -> Layout:
        columns = self._spaces.slab_columns(shape)
        return Layout({name: Column(*column) for name, column in columns.items()})
