"""--user-groups: figures for groups of tested users."""

import argparse
import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastfedrec.core.text import format_table
from fastfedrec.core.warn import warn
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
        text = Path(path).read_bytes().decode("utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""))  # line ends in quotes are a part of an id
        rows = [(reader.line_num, row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"--user-groups {path} must be CSV text in UTF-8: {error}") from None
    header = rows[0][1] if rows else []
    if len(header) != 2 or header[0].strip() != "user":
        got = ",".join(header) if rows else "an empty file"
        raise ValueError(f"--user-groups {path} must begin with the header user,GROUP, got {got!r}; add the header")
    groups: dict[str, str] = {}
    for line, row in rows[1:]:
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
    tested = {str(user) for runs in results.values() for run in runs for user in run.user_ids.tolist()}
    if not tested & groups.keys():
        raise ValueError(
            f"--user-groups must have a row for some of the {len(tested):,} tested users, got none of them in "
            f"{len(groups):,} rows; compare its ids with those of the data"
        )
    if n_untested := len(groups.keys() - tested):
        warn(f"--user-groups has {n_untested:,} users without a test, who count in no group", UserWarning)
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
