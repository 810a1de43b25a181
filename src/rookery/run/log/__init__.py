"""Where metrics go: one small file per destination. Nothing here knows what is trained."""

from rookery.run.log.sink import Sink

__all__ = ["Sink"]
