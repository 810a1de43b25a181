"""Metrics as TensorBoard events."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from rookery.errors import MissingExtra
from rookery.run.log.sink import Sink

try:
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]
    from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
    from tensorboard.summary.writer.event_file_writer import (  # type: ignore[import-untyped]
        EventFileWriter,
    )
except ImportError as error:
    raise MissingExtra("TensorBoard events need: pip install 'rookery[train]'") from error


class TensorBoardSink(Sink):
    """Writes scalars with TensorBoard's own writer; torch's wrapper takes two seconds to import.

    Args:
        folder: in which a new file of events is opened.
        resume_step: TensorBoard hides what earlier files hold after this env step; None hides
            nothing.
    """

    def __init__(self, folder: Path, resume_step: int | None = None) -> None:
        self.path = folder
        self._writer = EventFileWriter(str(folder))
        if resume_step is not None:
            start = SessionLog(status=SessionLog.START)
            self._writer.add_event(
                Event(wall_time=time.time(), step=resume_step + 1, session_log=start)
            )
        self._closed = False

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        event = Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        self._writer.add_event(event)

    def close(self) -> None:
        if not self._closed:
            self._writer.close()
            self._closed = True
