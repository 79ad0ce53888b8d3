"""Federated matrix factorisation: with local reports (FMF-LDP) and with a trusted server (DPFMF).

A user solves for its own factors where it randomizes, in `_kernels/systems/fmf/fmf_ldp.pyx` (`_solve_and_mark`), which
both systems' rounds call; the factors that are served, and those without privacy, are solved by `compute.als`.
"""

__all__: list[str] = []
