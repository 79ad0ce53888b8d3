"""The model of the package `implicit` with the ALS solver of fastfedrec: the class, its arguments and methods stay.

The program compares the factors of both solvers from the same start, and prints the seconds of each on this machine.
"""

import time

import numpy as np
from implicit.cpu.als import AlternatingLeastSquares

from fastfedrec import Key, als, datasets


def least_squares(confidences, factors, other_factors, regularization, num_threads=0):
    """Solve one half step in place, with the signature that `implicit` calls."""
    # `implicit` gives confidence 1 to entries that are not stored.  The solver takes c - 1, the addition to that 1.
    added = confidences.copy()
    added.data -= 1
    if added.data.size and not (added.data > 0).all():
        raise ValueError(
            f"confidences must be greater than 1, got {confidences.data.min():g}; remove entries of confidence 1, "
            "and disliked items, which this solver does not support"
        )
    weights = {"regularization": regularization, "confidence_weight": 1.0, "use_values": True}
    als.solve_users(added, other_factors, **weights, out=factors, n_threads=num_threads)


class FastALS(AlternatingLeastSquares):
    """`implicit`'s model; `use_cg` has no effect, because every half step is solved exactly."""

    solver = staticmethod(least_squares)  # `fit` calls it for each half step


def generated(n_users=6_000, n_items=3_000):
    """Return a generated matrix of confidences."""
    return 20 * datasets.generate_implicit(n_users, n_items, key=Key.from_seed(1)).to_scipy()


def fitted(model_class, confidences, **arguments):
    """Return a model fitted from one fixed start, and the seconds of its fit."""
    rng, model = np.random.default_rng(0), model_class(random_state=0, **arguments)
    sizes = [(n, model.factors) for n in confidences.shape]
    model.user_factors, model.item_factors = (rng.random(size, dtype=np.float32) * 0.01 for size in sizes)
    start = time.perf_counter()
    model.fit(confidences, show_progress=False)
    return model, time.perf_counter() - start


def main():
    """Fit both models, and print the comparison."""
    confidences, arguments = generated(), {"factors": 32, "iterations": 5, "num_threads": 1}
    ours, our_seconds = fitted(FastALS, confidences, **arguments)
    theirs, their_seconds = fitted(AlternatingLeastSquares, confidences, use_cg=False, **arguments)
    difference = np.abs(ours.item_factors - theirs.item_factors).max() / np.abs(theirs.item_factors).max()
    print(f"largest difference of an item factor: {difference:.1e} of the largest factor")
    print(f"seconds: {our_seconds:.2f} with fastfedrec, {their_seconds:.2f} with implicit")


if __name__ == "__main__":
    main()
