"""Targets with a planted fault each, which the fuzzer must find, and one without a fault."""
