"""Readers of the publishers' own files, and generators."""

from fastfedrec.datasets.movielens import load_movielens

__all__ = ["load_movielens"]
