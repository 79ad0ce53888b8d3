"""Swaps in a loop, and the exponential mechanism's weights by its definition."""

import math


def swap_losses(distances, chosen):
    out = []
    for c in range(len(chosen)):
        row = []
        for candidate in range(len(distances[0])):
            after = [*chosen[:c], candidate, *chosen[c + 1 :]]
            row.append(sum(min(int(user[i]) for i in after) for user in distances))
        out.append(row)
    return out


def grid_distance(point, candidate, radius):
    """Return a squared distance as one of 65,536 levels."""
    squared = sum((a - b) ** 2 for a, b in zip(point, candidate, strict=True))
    return min(math.floor(squared * 65535 / (2 * radius) ** 2 + 0.5), 65535)


def probabilities(losses, epsilon, sensitivity):
    weights = [math.exp(-epsilon * (loss - min(losses)) / sensitivity) for loss in losses]
    return [w / sum(weights) for w in weights]
