"""The log of a run: metrics, telemetry, evaluations, learning curves and advice.

The trainer imports this package; reports and other commands import its readers and tables. Start
reading at `rookery.run.log.journal`, which writes metrics to the sinks in `rookery.run.log.sinks`.
"""

from rookery.run.log.sinks import Sink

__all__ = ["Sink"]
