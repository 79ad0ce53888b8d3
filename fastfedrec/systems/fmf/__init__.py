"""Federated matrix factorisation: with local reports (FMF-LDP) and with a trusted server (DPFMF).

In both systems a user solves for the user's factors and randomizes in `_kernels/systems/fmf/fmf_ldp.pyx`
(`_solve_and_mark`); `compute.als` solves for the factors that are served and for those without privacy.
"""

__all__: list[str] = []
