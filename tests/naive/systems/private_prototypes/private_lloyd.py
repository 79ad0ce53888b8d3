"""One round without noise, user by user, in integers."""

STEPS = 4096


def limited(differences, farthest):
    """Return a user's steps on the grid, with a total of at most `farthest`."""
    steps = [round(STEPS * d) for d in differences]
    total = sum(abs(s) for s in steps)
    if total <= farthest:
        return steps
    return [(1 if s > 0 else -1) * (abs(s) * farthest // total) for s in steps]


def sums(points, centers, farthest, unit):
    """Return for each centre the sums of its users' steps, and their number in units."""
    out = [[0] * (len(centers[0]) + 1) for _ in centers]
    for point in points:
        away = [sum((a - b) ** 2 for a, b in zip(point, center, strict=True)) for center in centers]
        nearest = away.index(min(away))
        differences = [a - b for a, b in zip(point, centers[nearest], strict=True)]
        for f, step in enumerate(limited(differences, farthest)):
            out[nearest][f] += step
        out[nearest][-1] += unit
    return out
