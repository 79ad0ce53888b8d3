"""Ratings and reports for tests of Laplace-RR-SVD."""

GUARANTEED = ["optimal", "mixture", "serial", "laplace"]


def update_of(model, data, key, **options):
    ((rounds, state, _),) = model._plan(data, key)
    return rounds.local_round(state, data, key, 0, **options)
