"""Tests of metric names: accepted and refused forms."""

import re
from pathlib import Path

import pytest

from fastfedrec.evaluation import parse_metrics
from fastfedrec.evaluation.metrics.names import KINDS, WITH_CUTOFF, WITHOUT_CUTOFF, Metric

PAGE = Path(__file__).parents[3] / "docs/explanation/evaluation/metrics.md"

# ---- oracle ------------------------------------------------------------------------------------------------------


def test_every_name_is_read_in_either_case():
    names = [f"{kind}@{k}" for kind in WITH_CUTOFF for k in (1, 10, 1000)] + list(WITHOUT_CUTOFF)
    for metric, name in zip(parse_metrics(names), names, strict=True):
        kind, _, cutoff = name.partition("@")
        assert metric == Metric(name, {"hr": "hit"}.get(kind, kind), int(cutoff) if cutoff else None)
    for metric, name in zip(parse_metrics([name.upper() for name in names]), names, strict=True):
        assert (metric.name, metric.kind) == (name.upper(), parse_metrics([name])[0].kind)


def test_metrics_of_ratings_and_of_lists():
    of = {metric.name: metric for metric in parse_metrics(["rmse", "mae", "gini@5", "coverage@5", "ndcg", "mpr"])}
    assert [name for name, metric in of.items() if metric.is_rating_metric] == ["rmse", "mae"]
    assert [name for name, metric in of.items() if metric.is_list_metric] == ["gini@5", "coverage@5"]


def undescribed(kinds, texts):
    """Yield (kind, name of the text) of each text that does not name a kind of metric."""
    for name, text in texts.items():
        yield from ((kind, name) for kind in kinds if not re.search(rf"`{kind}(@k)?`", text, re.IGNORECASE))


def test_every_kind_is_on_the_page_of_metrics_and_in_the_docstring():
    texts = {"docs/explanation/evaluation/metrics.md": PAGE.read_text(), "parse_metrics": parse_metrics.__doc__}
    assert list(undescribed(KINDS, texts)) == [], "describe the kind of metric in these texts"
    assert list(undescribed(["hit", "hits"], {"page": "`hit@k`"})) == [("hits", "page")]


def test_a_repeated_name_counts_once():
    assert [metric.name for metric in parse_metrics(["hr@5", "hit@5", "hr@5"])] == ["hr@5", "hit@5"]


# ---- bad inputs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "recall",
        "ndcg@0",
        "ndcg@-1",
        "ndcg@1.5",
        "auc@5",
        "ndcg@ 5",
        "",
        "hr@05",
        7,
        None,
        "ndcg@2147483648",
        f"gini@{10**30}",
    ],
)
def test_unknown_names(name):
    with pytest.raises(ValueError, match=r"unknown metric .*; known: recall@K"):
        parse_metrics([name])


def test_a_string_and_an_empty_list():
    with pytest.raises(TypeError, match=r"pass \['hr@10'\]"):
        parse_metrics("hr@10")
    with pytest.raises(ValueError, match="at least one metric, got none"):
        parse_metrics([])
    with pytest.raises(TypeError, match="metrics must be a sequence of names, got None; known: recall@K"):
        parse_metrics(None)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("hr", "hr@10"), ("HR20", "hr@20"), ("recall20", "recall@20"), ("recal@20", "recall@20"), ("hr@0", "hr@10"),
        ("auc@10", "auc"), ("ndgc", "ndcg"), ("ndgc@5", "ndcg@5"), ("rms", "rmse"), ("recall@99999999999", "recall@10"),
    ],
)  # fmt: skip
def test_an_unknown_name_suggests_a_name_that_can_be_used(name, meant):
    with pytest.raises(ValueError, match=re.escape(f"unknown metric {name!r} (did you mean {meant!r}?); known:")):
        parse_metrics([name])
    assert parse_metrics([meant])
