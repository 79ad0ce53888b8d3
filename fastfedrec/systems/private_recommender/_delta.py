"""A warning for a delta that allows to publish the data of one user."""


def large_delta_warning(delta: float, n_users: int) -> str:
    """Return a warning if delta is one over the number of users or more, else an empty text."""
    if delta * n_users < 1:
        return ""
    return (
        f"Delta {delta:g} is not below one over the number of users ({n_users:,}). A mechanism that publishes one "
        "user's data would satisfy such a guarantee."
    )
