"""PrivRec: the two-tower network in cohorts with central noise, its stages, personalisation.

What a client trains, and the clip of its update, are in `compute.networks._client_steps` (`ClientModel._train`), by the
kernel of `mechanisms.clipping`; the networks are beside it.  Noise is in `grid_noise`, the cohort's sum in `_cohort`.
"""

__all__: list[str] = []
