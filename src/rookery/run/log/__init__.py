"""Where metrics go: one small file per destination. Nothing here knows what is trained."""

from rookery.run.log.sinks import Sink

__all__ = ["Sink"]
