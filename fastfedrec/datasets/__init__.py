"""Loaders of published data sets and of tables, and generators of synthetic data.

The containers that they return are in `data`; splits are in `evaluation`.
"""

from fastfedrec.datasets.adjacency import load_adjacency
from fastfedrec.datasets.eicu import load_eicu
from fastfedrec.datasets.frappe import load_frappe
from fastfedrec.datasets.generate import generate_implicit
from fastfedrec.datasets.generate_counts import PoissonCounts, generate_counts
from fastfedrec.datasets.generate_sequences import generate_sequences
from fastfedrec.datasets.item_tables import load_item_features
from fastfedrec.datasets.movielens import load_movielens, load_movielens_items, zip_regions
from fastfedrec.datasets.netflix import load_netflix
from fastfedrec.datasets.stored_tables import store_table
from fastfedrec.datasets.tables import load_table

__all__ = [
    "PoissonCounts",
    "generate_counts",
    "generate_implicit",
    "generate_sequences",
    "load_adjacency",
    "load_eicu",
    "load_frappe",
    "load_item_features",
    "load_movielens",
    "load_movielens_items",
    "load_netflix",
    "load_table",
    "store_table",
    "zip_regions",
]

__dir__ = __all__.copy  # dir() lists only the public names
