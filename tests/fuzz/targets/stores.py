"""Folders of stored interactions: `open_interactions`, and training on the result."""

import functools
import tempfile
from pathlib import Path

from support.data import rated

from fastfedrec import Interactions, Popularity
from fastfedrec.data.store import open_interactions, store_interactions
from fuzz.folders import files_of, folder_changed, packed
from fuzz.target import Target, check_names


@functools.cache
def stores():
    """Return folders of interactions as files by name."""
    numbers, names = rated(12, 40, 1), rated(12, 40, 2, user_ids=[(u, "x") for u in range(12)])
    plays = Interactions.from_arrays([3, 1, 1, 2], ["a", "b", "a", "b"], [5.0, 1.5, 2.0, 3.0], [7, 8, 9, 10])
    plays = plays.with_features(user_features={"age": [20, 30, 40]}, item_features={"genres": [("war",), ("a", "b")]})
    folders = []
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate((numbers, names, plays)):
            path_of_store = Path(folder, str(number))
            store_interactions(data, path_of_store)
            folders.append({path.name: path.read_bytes() for path in path_of_store.iterdir()})
    return folders


def seeds():
    """Return each folder as one input."""
    return list(map(packed, stores()))


def read(content, folder):
    """Open a folder; a refusal names it."""
    store = folder / "store"
    files_of(content, store)
    try:
        return open_interactions(store)
    except (ValueError, TypeError, FileNotFoundError) as error:
        check_names(error, str(store))
        raise


def use(data):
    """Train a model on the data."""
    if data.n_interactions:
        Popularity().fit(fitting(data)).recommend(data.user_ids[:2], 1)


def fitting(data):
    """Return the data without negative values, which these models refuse."""
    return data.positive() if (data.values_or_ones() < 0).any() else data


TARGET = Target(
    read=read, use=use, errors=(ValueError, TypeError, FileNotFoundError), seeds=seeds, mutate=folder_changed,
    max_bytes=2**17,
)  # fmt: skip
