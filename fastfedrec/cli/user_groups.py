"""--user-groups: figures for groups of tested users."""

import argparse
import csv
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastfedrec.core.text import format_table
from fastfedrec.evaluation import Evaluation

__all__ = ["add_user_groups", "document_by_group", "read_user_groups", "table_by_group"]

_NO_GROUP = "(no group)"


def add_user_groups(command: argparse.ArgumentParser) -> None:
    """Add the argument of the groups of users."""
    command.add_argument(
        "--user-groups", metavar="FILE",
        help="also print the metrics for each group of users: a CSV file with the header user,GROUP and a row for each "
        "user; users without a row are a group of their own",
    )  # fmt: skip


def read_user_groups(arguments: argparse.Namespace) -> dict[str, str] | None:
    """Return the group of each user of --user-groups, or None without it."""
    path = arguments.user_groups
    if path is None:
        return None
    try:
        rows = list(csv.reader(Path(path).read_text(encoding="utf-8-sig").splitlines()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"--user-groups {path} must be CSV text in UTF-8: {error}") from None
    if not rows or len(rows[0]) != 2 or rows[0][0].strip() != "user":
        got = ",".join(rows[0]) if rows else "an empty file"
        raise ValueError(f"--user-groups {path} must begin with the header user,GROUP, got {got!r}; add the header")
    groups: dict[str, str] = {}
    for line, row in enumerate(rows[1:], start=2):
        if len(row) != 2 or not row[0].strip():
            raise ValueError(f"--user-groups {path}, line {line} must be a user and a group, got {','.join(row)!r}")
        user, group = (text.strip() for text in row)
        if groups.setdefault(user, group) != group:
            raise ValueError(f"--user-groups {path}, line {line}: user {user!r} has two groups; leave one out")
    return groups


def table_by_group(results: Mapping[str, Sequence[Evaluation]], groups: Mapping[str, str]) -> str:
    """Return a table of the metrics of each system, as means over its results, in each group."""
    document = document_by_group(results, groups)
    rows = [
        (name, group, f"{figures['n_users']:,}", *(f"{value:.3f}" for value in figures["metrics"].values()))
        for name, of_groups in document.items()
        for group, figures in of_groups.items()
    ]
    metrics = next(figures["metrics"] for of_groups in document.values() for figures in of_groups.values())
    return format_table(("", "group", "users", *metrics), rows)


def document_by_group(results: Mapping[str, Sequence[Evaluation]], groups: Mapping[str, str]) -> dict[str, Any]:
    """Return the users and the metrics of each system in each group; metrics are means over its results."""
    document: dict[str, Any] = {}
    for name, evaluations in results.items():
        parts: dict[str, list[Evaluation]] = {}
        for evaluation in evaluations:
            users = evaluation.user_ids.tolist()
            of_user = {user: groups.get(str(user), _NO_GROUP) for user in users}
            for group, part in evaluation.by_group(of_user).items():
                parts.setdefault(group, []).append(part)
        document[name] = {
            group: {
                "n_users": of_group[0].n_users,
                "metrics": {metric: statistics.fmean(part[metric] for part in of_group) for metric in of_group[0]},
            }
            for group, of_group in sorted(parts.items())
        }
    return document
