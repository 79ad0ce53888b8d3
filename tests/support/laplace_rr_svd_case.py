"""Ratings and reports for tests of Laplace-RR-SVD."""

GUARANTEED = ["optimal", "mixture", "serial", "laplace"]


def update_of(model, data, key, **options):
    return model.local_round(model.initial_state(data, key), data, key, 0, **options)
