"""Benchmarks of `fastfedrec.engines.aggregation`."""
