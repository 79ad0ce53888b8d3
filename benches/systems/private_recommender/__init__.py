"""Benchmarks of `fastfedrec.systems.private_recommender`."""
