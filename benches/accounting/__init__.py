"""Benchmarks of `fastfedrec.accounting`."""
