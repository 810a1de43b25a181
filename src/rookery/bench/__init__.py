"""Benchmarks of env throughput, in rookery and in other libraries.

Only ``rookery bench`` imports this package. Start reading at `rookery.bench.sample`, which takes
the samples, and `rookery.bench.throughput`, which evaluates them.
"""
