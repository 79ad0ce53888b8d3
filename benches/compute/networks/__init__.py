"""Benchmarks of `fastfedrec.compute.networks`."""
