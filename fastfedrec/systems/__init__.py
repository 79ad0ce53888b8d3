"""The systems: a package each, and what all models have in common.

The contract with engines is in `rounds`; deployments on nodes are in `engines`.
"""
