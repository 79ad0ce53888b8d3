"""Files of train and test data for the command `compare`, and its answer as JSON."""

import json

import numpy as np

from fastfedrec import Interactions
from fastfedrec.cli.main import main


def user_rows():
    """Return train and test rows of 200 users in four groups; some users and items are in one file only."""
    rng = np.random.default_rng(1)
    rows = {}
    for user in range(200):
        # A user prefers the items of one group: every fourth item.
        likes = np.where(np.arange(60) % 4 == user % 4, 0.35, 0.05)
        rows[user] = rng.permutation(np.flatnonzero(rng.random(60) < likes)).tolist() or [user % 60]
    train = {user: row[: max(1, len(row) - 2)] for user, row in rows.items() if user < 190}
    # Item 900 and users from 190 on are in the test file only; users below 20 only in the train file.
    test = {user: [*row[-2:], 900] for user, row in rows.items() if user >= 20}
    return train, test


def lists(rows):
    return "".join(f"{user} {' '.join(map(str, items))} \n" for user, items in rows.items())


def table(rows, separator=","):
    pairs = [("user", "item"), *((user, item) for user, items in rows.items() for item in items)]
    return "".join(f"{user}{separator}{item}\n" for user, item in pairs)


def data_of(rows):
    pairs = [(user, item) for user, items in rows.items() for item in items]
    return Interactions.from_arrays(*map(np.array, zip(*pairs, strict=True)))


def visits(n_users, n_items, n_regions=400):
    """Return pairs of users and sites: most are in one or two regions of a user, the others are popular sites."""
    rng = np.random.default_rng(1)
    users = np.repeat(np.arange(n_users), np.maximum(rng.lognormal(3.2, 0.8, n_users).astype(int), 10))
    n = len(users)
    # A quarter of the visits are in the user's second region.
    region = rng.integers(0, n_regions, (n_users, 2))[users, (rng.random(n) < 0.25).astype(int)]
    # The power makes the first items of a region the popular ones.
    regional_items = region + n_regions * (n_items // n_regions * rng.random(n) ** 2.2).astype(int)
    # A fifth of the visits are at sites that are popular in all regions.
    items = np.where(rng.random(n) < 0.2, (n_items * rng.random(n) ** 3.3).astype(int), regional_items)
    pairs = np.unique(users * n_items + items)
    return pairs // n_items, rng.permutation(n_items)[pairs % n_items]


def options(folder, train="train.txt", test="test.txt"):
    return ["--train", str(folder / train), "--test", str(folder / test), "--quiet"]


def run(capsys, *words):
    assert main(["compare", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refusal(capsys, *words):
    assert main(["compare", *map(str, words)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err
