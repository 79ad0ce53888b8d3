"""Benchmarks of `fastfedrec.audit`."""
