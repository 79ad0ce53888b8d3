"""Readable twin of fastfedrec.evaluation.metrics.lists: one user at a time, every order of tied rows."""

from naive.evaluation.metrics import set_metrics


def evaluate_lists(lists, train, test, catalogue, kind, cutoff):
    """Return the mean over users of {user: {item: score}} against {user: set of items}; None without a test user."""
    values = []
    for user, test_items in test.items():
        relevant = (test_items & catalogue) - train.get(user, set())
        if user not in train or not relevant:
            continue
        scores = lists.get(user, {})
        # A list without a cut-off is measured against the ideal list of all relevant items.
        values.append(set_metrics.expectation(kind, cutoff or 1000, scores, relevant))
    return sum(values) / len(values) if values else None
