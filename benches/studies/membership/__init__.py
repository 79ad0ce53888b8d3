"""Benchmarks of `fastfedrec.studies.membership`."""
