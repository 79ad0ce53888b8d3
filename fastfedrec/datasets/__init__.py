"""Readers of the publishers' own files, and generators."""

from fastfedrec.datasets.frappe import load_frappe
from fastfedrec.datasets.generate import generate_implicit
from fastfedrec.datasets.movielens import load_movielens
from fastfedrec.datasets.movielens_folds import load_movielens_folds
from fastfedrec.datasets.netflix import load_netflix
from fastfedrec.datasets.tables import load_table

__all__ = [
    "generate_implicit",
    "load_frappe",
    "load_movielens",
    "load_movielens_folds",
    "load_netflix",
    "load_table",
]
