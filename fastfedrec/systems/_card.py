"""A fitted model as a page for its readers: purpose, public sizes, parameters, evaluation and privacy."""

import inspect
from collections.abc import Mapping
from typing import Any

from fastfedrec.accounting.report import make_report
from fastfedrec.core.check import check_instance, check_real
from fastfedrec.core.pages import Block, Page, Points, Section, Table

__all__: list[str] = []

# Sections of the ledger's page that are for approval alone.
_FOR_APPROVAL = ("Checklist", "Paragraph for a privacy notice")
# Source of the number of items, by `Interactions.catalogue`; a list from the data has no public size.
_PUBLIC_CATALOGUES = {"public": "public catalogue", "chosen": "list that was chosen privately"}


def make_card(model: Any, purpose: str | None, evaluation: Mapping[str, float] | None) -> Page:
    """Return the card of a fitted model; no size or figure on it is computed from private data."""
    privacy = make_report(model.ledger_, None)
    sections: list[Section] = [
        ("Purpose", _purpose(model, purpose)),
        ("Data", _sizes(model)),
        ("Parameters", _parameters(model)),
        ("Evaluation", _evaluation(model, evaluation)),
        *(section for section in privacy.sections if section[0] not in _FOR_APPROVAL),
        *privacy.details,
    ]
    name = f"Model card: {type(model).__name__}"
    return Page(name, "", privacy.tone, privacy.verdict, tuple(sections), footer=privacy.footer)


def _purpose(model: Any, purpose: str | None) -> tuple[Block, ...]:
    """Return the author's purpose, and the first line of the class's documentation."""
    kind = (inspect.getdoc(type(model)) or "").splitlines()[0]
    if purpose is None:
        return ("The author states no purpose.", kind)
    return (check_instance("purpose", purpose, str, "pass sentences on the use of the model"), kind)


def _sizes(model: Any) -> tuple[Block, ...]:
    """Return the sizes that are public, each with its source."""
    # The number of users in the data is private, even if the ledger states it as an assumption.
    data, n_users = model.interactions_, model.get_params().get("n_users")
    source = _PUBLIC_CATALOGUES.get(data.catalogue)
    items = (f"{data.n_items:,}", source) if source else ("not stated", "The list was taken from the data.")
    users = (f"{n_users:,}", "public parameter n_users") if n_users else ("not stated", "The data are private.")
    rows = (("items", *items), ("users", *users), ("interactions", "not stated", "The data are private."))
    return (
        Table(("size", "number", "source"), rows),
        "This section states public sizes alone. The sections below repeat the numbers in the ledger.",
    )


def _parameters(model: Any) -> tuple[Block, ...]:
    """Return the parameters of the fit."""
    parameters = vars(model).get("_parameters_") or model.get_params()
    if not parameters:
        return ("The model has no parameters.",)
    return (Table(("parameter", "value"), tuple((name, repr(value)) for name, value in parameters.items())),)


def _evaluation(model: Any, evaluation: Mapping[str, float] | None) -> tuple[Block, ...]:
    """Return the metrics that the caller measured, with their protocol."""
    if evaluation is None:
        return ("The author states no evaluation.",)
    check_instance("evaluation", evaluation, Mapping, "pass the result of evaluate, or a dict of metrics")
    evaluated = getattr(evaluation, "model", type(model).__name__)
    if evaluated != type(model).__name__:
        raise ValueError(
            f"evaluation must be of this {type(model).__name__}, got one of {evaluated}; pass the result of "
            "evaluate(model, ...)"
        )
    rows = tuple((str(name), f"{check_real(f'evaluation[{name!r}]', value):.4f}") for name, value in evaluation.items())
    protocol = [
        f"The {name} was: {text}."
        for name in ("split", "protocol")
        if (text := getattr(evaluation, name, None)) is not None
    ]
    covered = "The scores are computed from raw data, and no epsilon covers their publication."
    return (Table(("metric", "value"), rows), Points((*protocol, covered)))
