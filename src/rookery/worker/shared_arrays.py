"""Board: the shared blocks of a vector env, as arrays."""

from __future__ import annotations

from rookery.shared import Column, Layout, SharedBlock
from rookery.shared.arrays import BatchArrays, BatchSpaces
from rookery.shared.row_buffer import RowShape
from rookery.worker import orders
from rookery.worker.channel import PipeChannel
from rookery.worker.orders import Orders


class Board:
    """All arrays of a vector env: those of its envs, and the words of :mod:`rookery.worker.orders`.

    Args:
        spaces: of the envs.
        num_workers: how many workers there are.

    Attributes:
        arrays: of the envs, once there is memory.
        orders: to the envs, likewise.
    """

    def __init__(self, spaces: BatchSpaces, num_workers: int) -> None:
        self._spaces = spaces
        columns = {**spaces.columns(), **orders.columns(spaces.num_envs, num_workers)}
        self._layout = Layout({name: Column(*column) for name, column in columns.items()})
        self._blocks: list[SharedBlock] = []  # all of it, and larger rows if there is one
        self._row_shape: RowShape | None = None

    @classmethod
    def receive(cls, spaces: BatchSpaces, num_workers: int, channel: PipeChannel) -> Board:
        """The board that the other end of ``channel`` sends."""
        board = cls(spaces, num_workers)
        board._map(channel.receive_block())
        row_shape: RowShape | None = channel.decode(channel.receive()[1])
        if row_shape is not None:
            board.receive_larger_rows(channel, row_shape)
        return board

    def allocate(self) -> None:
        """Make memory for it."""
        self._blocks = [SharedBlock(self._layout.size_bytes)]
        self._map(self._blocks[0].memory)

    def send(self, channel: PipeChannel) -> None:
        """Give the process at the other end of ``channel`` access."""
        channel.send_block(self._blocks[0])
        channel.send(0, channel.encode(self._row_shape))
        if self._row_shape is not None:
            self.send_larger_rows(channel)

    def enlarge_rows(self, shape: RowShape) -> None:
        """Make larger rows; everybody else still has the smaller one."""
        for block in self._blocks[1:]:
            block.close()
        layout = self._row_layout(shape)
        block = SharedBlock(layout.size_bytes)
        self._blocks[1:] = [block]
        self._row_shape = shape
        self.arrays.row_buffer.enlarge(shape, layout.views(block.memory))

    def send_larger_rows(self, channel: PipeChannel) -> None:
        """Give a process access to the larger rows."""
        channel.send_block(self._blocks[1])

    def receive_larger_rows(self, channel: PipeChannel, shape: RowShape) -> None:
        """Use the larger rows that the other end of ``channel`` sends."""
        views = self._row_layout(shape).views(channel.receive_block())
        self.arrays.row_buffer.bind(shape, views)

    def release(self) -> None:
        """Nobody will be sent anything any more. Arrays stay valid as long as somebody has them."""
        for block in self._blocks:
            block.close()

    def _map(self, memory: object) -> None:
        views = self._layout.views(memory)
        self.arrays = BatchArrays(self._spaces, views)
        self.orders = Orders(views)

    def _row_layout(self, shape: RowShape) -> Layout:
        columns = self._spaces.row_columns(shape)
        return Layout({name: Column(*column) for name, column in columns.items()})
