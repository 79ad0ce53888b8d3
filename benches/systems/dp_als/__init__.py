"""Benchmarks of `fastfedrec.systems.dp_als`."""
