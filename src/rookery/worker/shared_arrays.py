"""SharedArrays: the shared memory of a vector env, as arrays."""

from __future__ import annotations

from rookery.shared import Layout, SharedBlock
from rookery.shared.arrays import BatchArrays, BatchSpaces
from rookery.shared.row_buffer import RowShape
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
        self._layout = Layout({**spaces.columns(), **orders.columns(spaces.num_envs, num_workers)})
        self._blocks: list[SharedBlock] = []  # all arrays; then a larger row buffer, if any
        self._row_shape: RowShape | None = None

    @classmethod
    def receive(cls, spaces: BatchSpaces, num_workers: int, channel: PipeChannel) -> SharedArrays:
        """Return the arrays that the other end of ``channel`` sends."""
        shared = cls(spaces, num_workers)
        shared._map(channel.receive_block())
        row_shape: RowShape | None = channel.decode(channel.receive()[1])
        if row_shape is not None:
            shared.receive_larger_rows(channel, row_shape)
        return shared

    def allocate(self) -> None:
        """Allocate the memory."""
        self._blocks = [SharedBlock(self._layout.size_bytes)]
        self._map(self._blocks[0].memory)

    def send(self, channel: PipeChannel) -> None:
        """Give the process at the other end of ``channel`` access to all arrays."""
        channel.send_block(self._blocks[0])
        channel.send(0, channel.encode(self._row_shape))
        if self._row_shape is not None:
            self.send_larger_rows(channel)

    def enlarge_rows(self, shape: RowShape) -> None:
        """Allocate a larger row buffer. Other processes still use the smaller one."""
        for block in self._blocks[1:]:
            block.close()
        layout = Layout(self._spaces.row_columns(shape))
        block = SharedBlock(layout.size_bytes)
        self._blocks[1:] = [block]
        self._row_shape = shape
        self.arrays.row_buffer.enlarge(shape, layout.views(block.memory))

    def send_larger_rows(self, channel: PipeChannel) -> None:
        """Give the process at the other end of ``channel`` access to the larger row buffer."""
        channel.send_block(self._blocks[1])

    def receive_larger_rows(self, channel: PipeChannel, shape: RowShape) -> None:
        """Use the row buffer that the other end of ``channel`` sends."""
        layout = Layout(self._spaces.row_columns(shape))
        views = layout.views(channel.receive_block())
        self.arrays.row_buffer.bind(shape, views)

    def release(self) -> None:
        """Close the blocks: they cannot be sent any more. Arrays stay valid while they are used."""
        for block in self._blocks:
            block.close()

    def _map(self, memory: object) -> None:
        views = self._layout.views(memory)
        self.arrays = BatchArrays(self._spaces, views)
        self.orders = Orders(views)
