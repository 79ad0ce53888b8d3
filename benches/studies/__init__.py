"""Benchmarks of `fastfedrec.studies`."""
