"""The model of the package `implicit` with the ALS solver of fastfedrec.

The class, `fit`, `recommend`, `similar_items` and `save` are part of `implicit`.  The program compares the
factors of both solvers from the same start, and prints the seconds of each on this machine.
"""

import time

import numpy as np
import scipy.sparse
from implicit.cpu.als import AlternatingLeastSquares

from fastfedrec import Interactions, Key, als, datasets


def least_squares(confidences, factors, other_factors, regularization, num_threads=0):
    """Solve one half step in place, with the signature that `implicit` calls.

    The values of `implicit` are confidences c, and entries that are not stored have confidence 1.  The solver takes
    c - 1, the addition to that 1.
    """
    added = confidences.data - 1
    if added.size and not (added > 0).all():
        raise ValueError(
            f"confidences must be greater than 1, got {confidences.data.min():g}; remove entries of confidence 1, "
            "and disliked items, which this solver does not support"
        )
    interactions = Interactions.from_scipy(
        scipy.sparse.csr_array((added, confidences.indices, confidences.indptr), shape=confidences.shape)
    )
    factors[:] = als.solve_users(
        interactions,
        other_factors,
        regularization=regularization,
        confidence_weight=1.0,
        use_values=True,
        n_threads=num_threads,
    )


class FastALS(AlternatingLeastSquares):
    """`implicit`'s model; `use_cg` has no effect, because every half step is solved exactly."""

    @property
    def solver(self):
        """Return the function that `fit` calls for each half step."""
        return least_squares


def generated(n_users=6_000, n_items=3_000):
    """Return a generated matrix of confidences."""
    return 20 * datasets.generate_implicit(n_users, n_items, key=Key.from_seed(1)).to_scipy()


def fitted(model_class, confidences, **arguments):
    """Return a model fitted from one fixed start, and the seconds of its fit."""
    rng = np.random.default_rng(0)
    model = model_class(random_state=0, **arguments)
    model.user_factors, model.item_factors = (
        rng.random((n, model.factors), dtype=np.float32) * 0.01 for n in confidences.shape
    )
    start = time.perf_counter()
    model.fit(confidences, show_progress=False)
    return model, time.perf_counter() - start


def main():
    """Fit both models, and print the comparison."""
    confidences = generated()
    arguments = {"factors": 32, "regularization": 0.1, "iterations": 5, "num_threads": 1}
    fitted(FastALS, confidences, **arguments | {"iterations": 1})  # the first call loads libraries
    ours, our_seconds = fitted(FastALS, confidences, **arguments)
    theirs, their_seconds = fitted(AlternatingLeastSquares, confidences, use_cg=False, **arguments)
    difference = np.abs(ours.item_factors - theirs.item_factors).max() / np.abs(theirs.item_factors).max()
    print(f"largest difference of an item factor: {difference:.1e} of the largest factor")
    print(f"seconds: {our_seconds:.2f} with our solver, {their_seconds:.2f} with theirs")
    users = np.arange(3)
    print("the same five items:", (ours.recommend(users, confidences[users], N=5)[0]
                                   == theirs.recommend(users, confidences[users], N=5)[0]).all())  # fmt: skip


if __name__ == "__main__":
    main()
