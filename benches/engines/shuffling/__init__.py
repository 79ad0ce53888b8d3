"""Benchmarks of `fastfedrec.engines.flower`."""
