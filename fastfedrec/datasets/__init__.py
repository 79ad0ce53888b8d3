"""Readers of the publishers' own files, and generators."""

from fastfedrec.datasets.generate import generate_implicit
from fastfedrec.datasets.movielens import load_movielens

__all__ = ["generate_implicit", "load_movielens"]
