"""A page about runs: what is known of them in, one HTML file out that needs nothing else."""
