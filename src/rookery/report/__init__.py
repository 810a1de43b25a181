"""Reports about finished and running runs: figures, plots, an HTML page and a terminal view.

Only the command line imports this package; a run never does. Start reading at
`rookery.report.read`, which reads the folder of a run, and `rookery.report.figures`, which computes
what all views show.
"""
