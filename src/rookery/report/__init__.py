"""Reports about finished and running runs: figures, plots, an HTML page and a terminal view.

The command line imports this package; a run never does. Start reading at `rookery.report.figures`,
the data that all views show, and `rookery.report.recorded`, which reads the folder of a run.
"""
