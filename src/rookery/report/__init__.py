"""Reading finished and running runs: figures, plots, HTML page, terminal view."""
