"""A ledger as a page for a reader who must approve a run: guarantees, observers, assumptions and limits.

All statements follow from the ledger's events and notes.
"""

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import Field, fields
from typing import Any

from fastfedrec.accounting._ledger_words import (
    SUM,
    USELESS_SHARE,
    explain,
    is_delta_too_large,
    is_randomized_by_device,
    large_delta_notes,
    preconditions,
    useful_views,
)
from fastfedrec.accounting._notice import percent, privacy_notice
from fastfedrec.accounting.events import Event, Unprotected
from fastfedrec.accounting.guesses import largest_guess_share
from fastfedrec.accounting.notes import note_kind
from fastfedrec.accounting.views import OBSERVERS, VIEWS, Cost, View, cost_of, stated_cost
from fastfedrec.core.pages import Block, Checks, Meter, Meters, Page, Points, Section, Table
from fastfedrec.core.text import format_epsilon
from fastfedrec.core.version import __version__

__all__ = ["make_report"]

# The adversary of each view, for a reader who knows no privacy theory; the same holds for all texts below.
_OBSERVERS_IN_WORDS: dict[View, str] = {
    "server": "This server runs the training. It sees each message and knows its sender.",
    "shuffled_server": "An honest shuffler removes names, order and times before this server sees the messages. "
    "The line above applies if there is no shuffler.",
    "public": "The public sees releases of the server alone: the model, and results that are computed from it.",
}
_TRUSTED = {
    "local": "No party is trusted if each user's device adds the noise.",
    "shuffle": "The shuffler is trusted: it must break each link between message and sender, and must not collude with "
    "the server.",
    "central": "The server is trusted: it sees the raw data and adds the noise. No guarantee holds against it.",
    "entity": "Each user's entity, such as a hospital, is trusted: it sees the raw data and adds the noise.",
    "aggregator": "An honest share of the nodes is trusted: each node adds a share of the noise, and sends masked "
    "numbers. The server learns only their noisy sum, and is not trusted.",
}
# Honest parties, by the trust of an event.
_HONEST = {
    "shuffle": "the users follow the protocol and do not reveal their messages",
    "aggregator": "the nodes add their share of the noise and do not reveal it to the server",
}
# Trusts of events whose noise or fake messages are made apart from the server.
_OF_DEVICES = ("local", "shuffle", "aggregator")
_DEVICES = (
    "A process that reads all users' data, as fit does outside of a deployment, is a party of its own. No guarantee "
    "holds against its operator."
)
_SHUFFLER = "No guarantee holds against the shuffler, which can see users' data."
_RELATIONS = {
    "replace": "all data of one user are replaced by any others (replace)",
    "zero_out": "all data of one user are removed, and the user is still counted (zero_out)",
    "add_remove": "one user is added or removed (add_remove)",
}
_ACCOUNTANTS = {
    "sum": "sum of the pure epsilons, which holds at delta 0",
    "PLDAccountant": "privacy loss distributions (PLD), discretized upward",
    "RDPAccountant": "Renyi differential privacy (RDP), converted to epsilon and delta",
    "ZCDPAccountant": "zero-concentrated differential privacy (zCDP), converted to epsilon and delta",
    "split": "sum of the figures of parts that share delta, each by its best accountant",
    "none": "no figure",
}
# Sentences on recorded fields that a reader may not know.
_FIELDS = {
    "distance": "The distance is the total-variation distance of the drawn noise from exact noise, which is charged to "
    "delta.",
    "noise_multiplier": "The noise multiplier is the standard deviation of the noise over the sensitivity.",
    "sampling": "The sampling is the method that draws the users of a round.",
    "replace_sensitivity": "The replace sensitivity is the largest distance between the contributions of two users, "
    "over the sensitivity.",
}
_ALWAYS_ASSUMED = (
    "The ledger holds each use of these users' data. A use elsewhere adds to the cost.",
    "A user is one id in the data. A person with several ids has a larger epsilon than stated here: the costs of the "
    "ids add up, and delta increases.",
    "The software ran as published, and no other party saw its memory.",
    "The number of users, the list of items and all settings are public. A note below states each exception.",
)
_NEVER_COVERED = (
    "The participation of a user and the number of users are not hidden.",
    "Scores from raw data, such as accuracy, are not covered. The same holds for settings that were chosen by them.",
    "Exact counts in logs are not covered, such as sizes of the data and durations.",
    "A list of items, entities or feature values that was taken from the data is not covered. An entry that only one "
    "user has reveals that user.",
    "Results for one user are not covered, such as recommendations, on-device factors, or a model file that was saved "
    "with its users.",
    "Conclusions from the data of many users are not covered, such as the popularity of an item.",
    "Timing of operations and attacks on the machine are not covered.",
)
_CHECKS = (
    "The list of items is a public catalogue, or it was chosen privately.",
    "The key of the noise was secret, and no party keeps it.",
    "Each group of users has one ledger, which holds every run on their data.",
    "No setting was chosen by scores on these users' data.",
    "Each person has one id in the data.",
    "The digest above the signature is the one that fastfedrec ledger prints for the released model.",
)
_NODES_CHECK = "No party runs, or can read, more nodes than the assumptions allow to be dishonest."
_SHUFFLER_CHECK = (
    "An independent party runs the shuffler, so that the line of the server that sees each sender does not apply."
)
_DEVICES_CHECK = "The noise was added on the devices of users, and no other machine read the data."
_FAKES_CHECK = "The devices of users added the fake messages, and only the shuffler can link a message with its user."
_REFUSAL = "Do not approve a promise of privacy for this run, because no useful guarantee holds."
_DECISION = (
    "Approve the run if all checks hold and the share of correct guesses is acceptable for each observer that is not "
    "trusted.",
    "Query a share above 90%, a simulation, a delta of one over the number of users or more, and each unclear note.",
)
_HOW_TO_READ = (
    "The observer knows the data of all other users, and decides which of two equally likely histories one user has. A "
    "random guess is correct in 50% of cases. Epsilon (in nats) bounds the factor between the probabilities of any "
    "result for the two histories. Delta is an amount added to this bound; the share of correct guesses includes it."
)
_PARTS = "Notes on single runs and events"
_ONE_PART = "No guarantee holds for the whole ledger. Each note below is about one run or one event alone."
_UNPROTECTED_PARTS = (
    "Some events have noise and figures of their own. Other events reveal the same users' data without protection, so "
    "these figures are no guarantee for a user."
)
_ONE_RUN = "A guarantee of a system is for one run of it. The figures for each observer are for all runs of the ledger."
_OTHER_RELATIONS = (
    'The figures for each observer are for the relation "replace". A guarantee for another relation (zero_out, '
    "add_remove) states a smaller epsilon for the same noise."
)
_SECTIONS = {"guarantee": "Guarantees", "choice": "Choices of the run", "remark": "Remarks without a kind"}
# Up to this share of correct guesses a figure is a guarantee; above it has little use.
_UNSURE_SHARE = 0.9


def make_report(ledger: Any, about: str | None) -> Page:
    """Return the page of a ledger as plain text, which the layout must escape.

    Parameters
    ----------
    ledger : Ledger
        Ledger of one or more runs.
    about : str or None
        Description of the run in one line.

    Returns
    -------
    Page
        Content of the page for approval.
    """
    costs = _costs(ledger.events, ledger.delta)
    tone, verdict = _verdict(ledger, costs)
    notes: dict[str, list[str]] = {}
    for note in ledger.notes:
        notes.setdefault(note_kind(note), []).append(note)
    unprotected = [f'The event "{e.mechanism}" has no protection.' for e in ledger.events if isinstance(e, Unprotected)]
    trusted = {getattr(event, "trust", "") for event in ledger.events}
    parties = [
        *[_DEVICES_CHECK] * any(map(is_randomized_by_device, ledger.events)),
        *[_FAKES_CHECK] * any(event._has_open_messages for event in ledger.events),
        *[_SHUFFLER_CHECK] * ("shuffle" in trusted),
        *[_NODES_CHECK] * ("aggregator" in trusted),
    ]
    decision = _DECISION if useful_views(ledger, costs) and not ledger.is_simulation else (_REFUSAL, *_DECISION[1:])
    points: dict[str, list[str]] = {
        "Trusted parties": _trusted(ledger, costs),
        "Assumptions": [*notes.pop("assumption", []), *_assumed(ledger), *_ALWAYS_ASSUMED],
        "Not covered": [*unprotected, *notes.pop("not covered", []), *_NEVER_COVERED],
        # Further kinds have sections of their own.
        **{_SECTIONS[kind]: texts for kind, texts in sorted(notes.items()) if kind != "guarantee"},
    }
    # A system's nominal figures have their relation in the note, so they follow the ledger's figures.
    budget = [] if ledger.budget is None else [ledger.budget.statement(ledger.events)]
    guarantees = Points(tuple(map(_sentence, [*budget, *notes.get("guarantee", ())])))
    has_other = any(getattr(event, "neighboring", "replace") != "replace" for event in ledger.events)
    claims: list[Section] = []
    if guarantees.texts and _guess_shares(costs):
        claims.append((_SECTIONS["guarantee"], (guarantees, _ONE_RUN, *[_OTHER_RELATIONS] * has_other)))
    elif guarantees.texts:  # such notes are true for a part, and must not read as a guarantee of the whole
        claims.append((_PARTS, (_ONE_PART, guarantees, *[_OTHER_RELATIONS] * has_other)))
    sections: list[Section] = [
        ("Protected data", _protected(ledger, costs) if ledger.events else ("The ledger states no protection.",)),
        ("Figures for each observer", (_meters(costs), _HOW_TO_READ, *_delta_warning(ledger, costs))),
        *claims,
        *((heading, (Points(tuple(map(_sentence, texts))),)) for heading, texts in points.items()),
        ("Checklist", (Checks((*_CHECKS, *parties)), Points(decision))),
        ("Paragraph for a privacy notice", (privacy_notice(ledger, costs),)),
    ]
    return Page(
        "Privacy report", about or "", tone, verdict, tuple(sections),
        (f"Read and accepted, ledger {ledger.digest()}", "Name", "Date", "Signature"),
        (("Recorded events", tuple(_events(ledger))), ("Computation", _computed(ledger, costs))),
        f"Ledger {ledger.digest()}",
    )  # fmt: skip


def _costs(events: Mapping[Event, int], delta: float) -> dict[View, Cost]:
    """Return the cost against each observer; without an effect of a shuffler, the server behind it is left out."""
    costs = {view: stated_cost(events, view, delta) for view in OBSERVERS}
    if costs["shuffled_server"] == costs["server"]:
        del costs["shuffled_server"]
    return costs


def _verdict(ledger: Any, costs: dict[View, Cost]) -> tuple[str, tuple[str, ...]]:
    """Return the tone and the lines of the verdict."""
    if not ledger.events:
        return "none", (
            "No guarantee is stated: the ledger is empty.",
            "No use of users' data was recorded in it, which does not prove that there was none.",
        )
    guess_shares = _guess_shares(costs)
    bounded = useful_views(ledger, costs)
    lines: list[str] = []
    if not guess_shares:
        tone, first = "none", "No guarantee holds: the recorded events bound the knowledge of no observer."
    elif not bounded:
        reason = "delta is too large" if is_delta_too_large(ledger) else "the figures are too large to bound a guess"
        tone, first = "weak", f"No useful guarantee holds: {reason}."
    else:
        tone = "some" if min(guess_shares[view] for view in bounded) <= _UNSURE_SHARE else "loose"
        first, *more = (f"holds against {_with_figure(view, costs[view])}." for view in bounded)
        first = f"A guarantee {first}"
        lines += [f"A guarantee also {text}" for text in more]
        useless = [VIEWS[view] for view in guess_shares if view not in bounded]
        unprotected = [VIEWS[view] for view in (*costs, "key_holder") if view not in guess_shares]
        small = "epsilon or delta" if is_delta_too_large(ledger) else "figure"
        lines += [f"The {small} is too large to bound a guess by {_listed(useless)}."] if useless else []
        lines += [f"No guarantee holds against {_listed(unprotected)}."] if unprotected else []
        lines += [_DEVICES] * any(getattr(event, "trust", "") in _OF_DEVICES for event in ledger.events)
        lines += [_SHUFFLER] * any(event._has_open_messages for event in ledger.events)
    if ledger.is_simulation:
        tone = "none"
        lines.insert(0, f"With a secret key, {first[0].lower()}{first[1:]}" if guess_shares else first)
        first = (
            "This simulation has no guarantee: the noise came from a seed, and a party that can guess the seed can "
            "remove the noise."
        )
    return tone, (first, *lines)


def _guess_shares(costs: dict[View, Cost]) -> dict[View, float]:
    """Return the largest share of correct guesses of each observer with a figure."""
    return {view: largest_guess_share(*cost[:2]) for view, cost in costs.items() if math.isfinite(cost.epsilon)}


def _with_figure(view: View, cost: Cost) -> str:
    """Return a view in words, with its figure."""
    supposed = "if it exists: " if view == "shuffled_server" else ""
    return f"{VIEWS[view]} ({supposed}epsilon {format_epsilon(cost.epsilon)} at delta {cost.delta:g})"


def _protected(ledger: Any, costs: dict[View, Cost]) -> tuple[Block, ...]:
    """Return the section on the privacy unit and the neighbouring relation."""
    if not _guess_shares(costs):
        has_noise = any(not isinstance(event, Unprotected) for event in ledger.events)
        return ("No data are protected.", *[_UNPROTECTED_PARTS] * has_noise)
    return (
        "The unit of protection is a user with all of the user's items, ratings and times. The guarantee compares the "
        'run with a run in which this whole history was replaced by any other (the neighbouring relation "replace"). '
        "The smaller epsilon is, the closer are the probabilities of each result in both runs.",
    )


def _meters(costs: dict[View, Cost]) -> Meters:
    """Return the figures of all observers."""
    shares = _guess_shares(costs)
    rows = []
    for view, (epsilon, delta, _) in costs.items():
        share = shares.get(view, 1.0)
        empty = ", which is no bound" if share >= USELESS_SHARE else ""
        words = f"at most {percent(share)} correct guesses{empty}" if view in shares else "no bound on guesses"
        figure = f"epsilon {format_epsilon(epsilon)}" if view in shares else "no guarantee"
        name = VIEWS[view][0].upper() + VIEWS[view][1:]
        detail = f"delta {delta:g}" if view in shares else ""
        rows.append(Meter(name, _OBSERVERS_IN_WORDS[view], figure, detail, share, words))
    return Meters(("observer", "epsilon", "delta", "correct guesses", "description"), tuple(rows))


def _delta_warning(ledger: Any, costs: dict[View, Cost]) -> tuple[Block, ...]:
    """Return the number of users for which delta has a meaning, or a warning if it has none for the stated number."""
    if not any(cost.delta and math.isfinite(cost.epsilon) for cost in costs.values()):
        return ()
    if large := large_delta_notes(ledger):
        # A note of the ledger is in its own section.
        return tuple(str(note) for note in large if note not in ledger.notes)
    return (f"Delta {ledger.delta:g} needs far fewer than {1 / ledger.delta:,.0f} users.",)


def _trusted(ledger: Any, costs: dict[View, Cost]) -> list[str]:
    """Return the parties that one must trust, for the mechanisms of the run."""
    if not any(math.isfinite(cost.epsilon) for cost in costs.values()):
        return ["No trusted party is stated, because there is no guarantee."]
    mechanisms_by_trust: dict[str, list[str]] = {}
    for event in ledger.events:
        if hasattr(event, "trust"):
            mechanisms_by_trust.setdefault(event.trust, []).append(event.mechanism)
    lines = [
        _TRUSTED[trust] if len(mechanisms_by_trust) == 1 else f"{_TRUSTED[trust]} This applies to {_listed(names)}."
        for trust, names in mechanisms_by_trust.items()
    ]
    if messages := [event.mechanism for event in ledger.events if event._has_open_messages]:
        lines.append(f"The shuffler is trusted with the data: it sees the sender of {_listed(messages)}.")
    if "local" in mechanisms_by_trust and "shuffled_server" in costs:
        lines.append('The line "behind a shuffler" holds only if there is a shuffler, which is then trusted.')
    return lines or ["No party is trusted, because no data were sent or released."]


def _assumed(ledger: Any) -> list[str]:
    """Return the assumptions of the figures that depend on the ledger."""
    lines = preconditions(ledger)
    if any(getattr(event, "sampling", "none") != "none" for event in ledger.events):
        lines.append("The sample of users of each round stays secret.")
    for trust, words in _HONEST.items():
        shares = [e.honest_fraction for e in ledger.events if hasattr(e, "honest_fraction") and e.trust == trust]
        if min(shares, default=1.0) < 1:
            lines.append(f"At least {100 * min(shares):g}% of {words}.")
        elif shares:
            lines.append(f"All of {words}.")
    if any(getattr(event, "trust", "") == "central" for event in ledger.events):
        lines.append("The server adds the noise before a release, and releases no other part of its data.")
    return lines


def _events(ledger: Any) -> list[Block]:
    """Return the section on the recorded events, with their figures and fields."""
    if not ledger.events:
        return ["The ledger records no event."]
    figures, recorded = [], []
    for event, times in ledger.events.items():
        costs = _costs({event: times}, ledger.delta)
        finite = [view for view, cost in costs.items() if math.isfinite(cost.epsilon)]
        for view in finite:
            figures.append(
                (event.mechanism, VIEWS[view], format_epsilon(costs[view].epsilon), explain(event, view, costs[view]))
            )
        if not finite:
            figures.append((event.mechanism, "no observer", "no guarantee", event._exposure("public")))
        recorded.append((event.mechanism, f"{times:,}", "; ".join(_facts(event))))
    known = {field.name for event in ledger.events for field in fields(event) if _is_stated(event, field)}
    return [
        *[SUM] * (sum(ledger.events.values()) > 1),
        Table(("event", "protected from", "epsilon of all its times", "protection"), tuple(figures)),
        Table(("event", "times", "as recorded"), tuple(recorded)),
        *[" ".join(text for name, text in _FIELDS.items() if name in known)] * bool(known & set(_FIELDS)),
    ]


def _is_stated(event: Event, field: Field[Any]) -> bool:
    """Return whether a field of an event has another value than its default and than "none"."""
    value = getattr(event, field.name)
    return field.name not in ("mechanism", "neighboring") and value != field.default and value != "none"


def _facts(event: Event) -> list[str]:
    """Return the kind, the relation and the fields of an event in words, without fields that have their default."""
    facts = [type(event).__name__]
    facts += [
        f"{field.name.replace('_', ' ')} {_fact(getattr(event, field.name))}"
        for field in fields(event)
        if _is_stated(event, field)
    ]
    relation = getattr(event, "neighboring", None)
    return facts + ([f"proved if {_RELATIONS[relation]}"] if relation else [])


def _fact(value: Any) -> str:
    """Return the value of a field in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)


def _computed(ledger: Any, costs: dict[View, Cost]) -> tuple[Block, ...]:
    """Return the section on the accountants, the versions and the digest."""
    from importlib import metadata  # slow to import

    rows = [
        (
            VIEWS[view],
            format_epsilon(cost.epsilon),
            f"{cost.delta:g}",
            _ACCOUNTANTS[cost.accountant],
            format_epsilon(cost_of(ledger.events, view, 0.0).epsilon),
        )
        for view, cost in costs.items()
        if math.isfinite(cost.epsilon)
    ]
    versions = [f"fastfedrec {__version__}", f"Python {platform.python_version()}"]
    versions += [f"{name} {metadata.version(name)}" for name in ("numpy", "scipy")]
    table = Table(("protected from", "epsilon", "delta", "accountant", "epsilon at delta 0"), tuple(rows))
    return (
        "Each figure is an upper bound for one user, computed anew from the recorded events and rounded up. If several "
        "accountants apply, the smallest bound counts. Each event may use the outputs of all earlier ones.",
        *[table] * bool(rows),
        f"The figures were computed with {', '.join(versions)}. The training may have used other versions.",
        f"The SHA-256 digest of the ledger is {ledger.digest()}. It covers format, delta, events, marks and notes. It "
        "identifies the ledger, but it is no signature of its author.",
    )


def _listed(texts: Sequence[str]) -> str:
    """Return texts as an enumeration."""
    return texts[0] if len(texts) == 1 else f"{'; '.join(texts[:-1])}; and {texts[-1]}" if texts else ""


def _sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    text = f"{text[0].upper()}{text[1:]}" if text else text
    return text if text.endswith((".", "!", "?")) else f"{text}."
