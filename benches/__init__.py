"""asv imports the benchmarks as a package."""
