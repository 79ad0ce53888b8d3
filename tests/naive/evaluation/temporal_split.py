"""Readable twin of fastfedrec.evaluation.temporal_split, over lists of (row, column, time)."""


def entries(interactions):
    """Return [(row, column, time)] of an Interactions."""
    ends = interactions.indptr.tolist()
    rows = [u for u in range(interactions.n_users) for _ in range(ends[u], ends[u + 1])]
    return list(zip(rows, interactions.indices.tolist(), interactions.timestamps.tolist(), strict=True))


def moment(whole, share):
    """Return the time with a test share nearest to the requested one, the later of two; None if there is none."""
    best = None
    for candidate in sorted({time for _, _, time in whole})[1:]:
        distance = abs(sum(time >= candidate for _, _, time in whole) - share * len(whole))
        if best is None or distance <= best[0]:
            best = distance, candidate
    return None if best is None else best[1]


def split(whole, time, new_users, new_items):
    """Return (train, test) at a time."""
    train = [entry for entry in whole if entry[2] < time]
    users, items = {u for u, _, _ in train}, {i for _, i, _ in train}
    test = [(u, i, t) for u, i, t in whole if t >= time and (new_users or u in users) and (new_items or i in items)]
    return train, test
