"""Federated matrix factorisation: with local reports (FMF-LDP) and with a trusted server (DPFMF).

The users' least squares are those of `compute.als`.
"""
