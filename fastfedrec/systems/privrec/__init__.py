"""PrivRec: the two-tower network trained in cohorts with central noise, its stages, and personalisation.

`compute.networks._client_steps` trains a client and clips its update (`ClientModel._train`), with the kernel of
`mechanisms.clipping`.  `systems.grid_noise` adds noise, and `_cohort` sums over a cohort.
"""

__all__: list[str] = []
