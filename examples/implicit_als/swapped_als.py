"""The model of the package `implicit`, with our kernel in the place of its solver.

Everything else stays theirs: the class, its arguments, `fit`, `recommend`, `similar_items`, `save`.  Run it to see
that both give the same factors from the same start, and how long each takes on this machine.
"""

import time

import numpy as np
import scipy.sparse
from implicit.cpu.als import AlternatingLeastSquares

from fastfedrec import Interactions, Key, als, datasets


def least_squares(confidences, factors, other_factors, regularization, num_threads=0):
    """One half step in place, with the signature that `implicit` calls.

    Their values are confidences c, and all that is not stored has confidence 1; ours are what an interaction adds to
    that 1, so c - 1.
    """
    added = confidences.data - 1
    if added.size and not (added > 0).all():
        raise ValueError(
            f"confidences must be greater than 1, got {confidences.data.min():g}; drop the entries that say nothing, "
            "and disliked items, which this solver does not know"
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
        """What `fit` calls for each half step."""
        return least_squares


def generated(n_users=6_000, n_items=3_000):
    """A matrix of confidences."""
    return 20 * datasets.generate_implicit(n_users, n_items, key=Key.from_seed(1)).to_scipy()


def fitted(model_class, confidences, **arguments):
    """A model from one fixed start, and the seconds that its fit took."""
    rng = np.random.default_rng(0)
    model = model_class(random_state=0, **arguments)
    model.user_factors, model.item_factors = (
        rng.random((n, model.factors), dtype=np.float32) * 0.01 for n in confidences.shape
    )
    start = time.perf_counter()
    model.fit(confidences, show_progress=False)
    return model, time.perf_counter() - start


def main():
    """Fit both, compare."""
    confidences = generated()
    arguments = {"factors": 32, "regularization": 0.1, "iterations": 5, "num_threads": 1}
    fitted(FastALS, confidences, **arguments | {"iterations": 1})  # what is loaded at the first call
    ours, our_seconds = fitted(FastALS, confidences, **arguments)
    theirs, their_seconds = fitted(AlternatingLeastSquares, confidences, use_cg=False, **arguments)
    apart = np.abs(ours.item_factors - theirs.item_factors).max() / np.abs(theirs.item_factors).max()
    print(f"largest difference of an item factor: {apart:.1e} of the largest factor")
    print(f"seconds: {our_seconds:.2f} with our solver, {their_seconds:.2f} with theirs")
    users = np.arange(3)
    print("the same five items:", (ours.recommend(users, confidences[users], N=5)[0]
                                   == theirs.recommend(users, confidences[users], N=5)[0]).all())  # fmt: skip


if __name__ == "__main__":
    main()
