"""Readable twin of data.interactions: a dict of dicts, {user: {item: value}}, without meaning of insertion order."""

MERGE = {
    None: sum, "sum": sum, "mean": lambda values: sum(values) / len(values), "first": lambda values: values[0],
    "last": lambda values: values[-1], "max": max,
}  # fmt: skip


def from_rows(users, items, values=None, duplicates=None):
    table = {}
    for row, (user, item) in enumerate(zip(users, items, strict=True)):
        value = 1.0 if values is None else float(values[row])
        table.setdefault(user, {}).setdefault(item, []).append(value)
    return {user: {item: MERGE[duplicates](values) for item, values in row.items()} for user, row in table.items()}


def newest(users, items, timestamps, duplicates=None):
    """Return {(user, item): timestamp}: the latest time, or with "first" and "last" the time of the selected row."""
    out = {}
    for pair, time in zip(zip(users, items, strict=True), timestamps, strict=True):
        if duplicates == "first" and pair in out:
            continue
        out[pair] = time if duplicates == "last" or pair not in out else max(out[pair], time)
    return out


def in_order(ids):
    """Sort ascending if the ids are comparable, and by first appearance otherwise."""
    distinct = list(dict.fromkeys(ids))
    try:
        return sorted(distinct)
    except TypeError:
        return distinct


def filter_core(table, user_ids, item_ids, low_user, low_item):
    """Remove one violating user or item at a time until none remains: (table, user ids, item ids)."""
    users, items = list(user_ids), list(item_ids)
    table = {user: dict(table.get(user, {})) for user in users}
    while True:
        poor_user = next((u for u in users if len(table[u]) < low_user), None)
        poor_item = next((i for i in items if sum(i in row for row in table.values()) < low_item), None)
        if poor_user is not None:
            users.remove(poor_user)
            del table[poor_user]
        elif poor_item is not None:
            items.remove(poor_item)
            for row in table.values():
                row.pop(poor_item, None)
        else:
            return table, users, items


def top_items(table, item_ids, n):
    """Keep the most used items in their original order; ties go to the earlier item."""
    counts = [sum(item in row for row in table.values()) for item in item_ids]
    best = sorted(range(len(item_ids)), key=lambda j: (-counts[j], j))[:n]
    return [item_ids[j] for j in sorted(best)]


def binarize(table, threshold):
    return {user: {item: 1.0 for item, value in row.items() if value > threshold} for user, row in table.items()}


def restrict(table, user_ids, item_ids):
    return {user: {i: v for i, v in table.get(user, {}).items() if i in item_ids} for user in user_ids}


def find_fault(indptr, indices, values, n_items, rising=True):
    """Return the first fault of compressed rows, and its row or entry; rows are checked before entries."""
    if indptr[0] != 0:
        return "start", 0
    for row in range(len(indptr) - 1):
        if indptr[row + 1] < indptr[row]:
            return "decrease", row
    if indptr[-1] != len(indices):
        return "end", len(indptr) - 1
    for row in range(len(indptr) - 1):
        for k in range(indptr[row], indptr[row + 1]):
            if not 0 <= indices[k] < n_items:
                return "column", k
            if rising and k > indptr[row] and indices[k] <= indices[k - 1]:
                return "order", k
            if values is not None and not (-float("inf") < values[k] < float("inf")):
                return "value", k
    return "no_fault", 0
