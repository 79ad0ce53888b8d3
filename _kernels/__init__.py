"""Compiled kernels: they trust their inputs; the modules of `fastfedrec` check, allocate and wrap."""
