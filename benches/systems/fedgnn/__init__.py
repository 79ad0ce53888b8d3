"""Benchmarks of `fastfedrec.systems.fedgnn`."""
