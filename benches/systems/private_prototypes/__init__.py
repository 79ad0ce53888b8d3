"""Benchmarks of `fastfedrec.systems.private_prototypes`."""
