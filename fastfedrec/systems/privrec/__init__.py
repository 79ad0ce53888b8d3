"""PrivRec: the two-tower network in cohorts with central noise, its stages, and personalisation.

The network itself is in `compute.networks`.
"""
