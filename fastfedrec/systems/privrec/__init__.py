"""PrivRec: the two-tower network in cohorts with central noise, its stages, personalisation; and NCF.

The network itself is in `compute.networks`.
"""
