"""A ledger as a report for a reader who must approve a run: guarantees, adversaries, assumptions and limits.

All statements follow from the ledger's events and remarks.
"""

import math
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from fastfedrec.accounting._ledger_words import explain, preconditions
from fastfedrec.accounting.events import Event, Unprotected
from fastfedrec.accounting.guesses import largest_guess_share
from fastfedrec.accounting.views import VIEWS, Cost, View, cost_of, stated_cost
from fastfedrec.core.text import format_epsilon
from fastfedrec.core.version import __version__

# The adversary of each view, for a reader who knows no privacy theory; the same holds for all texts below.
_WHO: dict[View, str] = {
    "server": "The server that runs the training, and whoever reads along there. It sees every message, and knows who "
    "sent it.",
    "shuffled_server": "The same server, where somebody honest takes name, order and time off every message before the "
    "server sees it. Without that somebody, read the line above instead.",
    "public": "Everybody who sees only what the server releases: the model, and whatever is computed from it.",
    "key_holder": "Whoever has the secret key of the noise can take the noise off. Nothing protects from that.",
}
_TRUSTED = {
    "local": "Nobody: noise is added on each person's own device.",
    "shuffle": "The shuffler: it must break every link between a message and its sender, and must not tell the server.",
    "central": "The server: it sees people's data as they are, and adds the noise. There is no guarantee against it.",
    "entity": "Each person's own entity, such as a hospital: it sees its people's data as they are, and adds noise.",
}
_RELATIONS = {
    "replace": "all data of one person replaced by any others",
    "zero_out": "all data of one person against none, the person still counted",
    "add_remove": "one person added or removed",
}
_ACCOUNTANTS = {
    "sum": "the sum of what each release costs by itself, which holds with delta 0",
    "PLDAccountant": "privacy loss distributions (PLD), discretized toward the larger figure",
    "RDPAccountant": "Renyi differential privacy (RDP), converted to epsilon and delta",
    "ZCDPAccountant": "zero-concentrated differential privacy (zCDP), converted to epsilon and delta",
    "split": "the sum of the figures of parts that share delta, each by the accountant that suits it (composition of "
    "epsilons and deltas)",
    "none": "no figure",
}
_ALWAYS_ASSUMED = (
    "The figures are those of the events that the ledger holds. Every other use of the same people's data costs in "
    "addition, by this software or another, unless it was given the same ledger.",
    "The software ran as it was published, and nobody but its parts saw what it had in memory.",
    "How many people there are, the list of items, and every setting are public, or do not depend on these people's "
    "data, unless a remark below says otherwise.",
)
_NEVER_COVERED = (
    "That a person takes part, and how many people do.",
    "Scores: accuracy, losses and curves that are computed from the data as they are, and any setting that was chosen "
    "by looking at them (hyperparameters, one system rather than another).",
    "Exact counts that are printed or logged beside the model: sizes of the data, durations of a fit.",
    "A list of items (a catalogue), of entities or of values of features that was taken from the data: what one person "
    "alone has gives that person away, whatever the noise.",
    "What stays with a person or is computed for that person alone: a device's own factors and recommendations, and a "
    "model file that was saved with its users.",
    "What several people's data say together, such as what most people like, and what that lets anybody conclude of "
    "others.",
    "Timing of single operations, and the machine on which the software ran.",
)
# Remarks of runs with these words state a limit of the guarantee, and belong to the section on limits.
_UNCOVERED = re.compile(
    r"not cover|not protected|no guarantee|not a guarantee|covered by no|is not hidden|not counted|taken from the data|"
    r"there was no shuffler",
    re.IGNORECASE,
)
# Shares of right guesses: from the first on a figure has no use, and up to the second it is a guarantee.
_USELESS_SHARE, _UNSURE_SHARE = 0.999, 0.9


class Table(NamedTuple):
    """Rows under a header."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Points(NamedTuple):
    """Points of a list."""

    texts: tuple[str, ...]


class Meters(NamedTuple):
    """For each adversary: name, explanation, epsilon and delta as text, share of right guesses, and it in words."""

    rows: "tuple[tuple[str, str, str, str, float, str], ...]"


Block = str | Table | Points | Meters


@dataclass(frozen=True)
class Report:
    """The content of a page."""

    # Description of the run; may be empty.
    about: str
    # "none" (no guarantee), "weak" (figures without use), "loose" (a small guarantee) or "some": the best of all views.
    tone: str
    # The first line, and the lines that must be read with it.
    verdict: tuple[str, ...]
    # Headings, and the blocks of each section.
    sections: tuple[tuple[str, tuple[Block, ...]], ...]
    # Digest of the ledger's content.
    digest: str


def make_report(ledger: Any, about: str | None) -> Report:
    """Return the report of a ledger as plain text, which the layout must escape."""
    costs = {view: stated_cost(ledger.events, view, ledger.delta) for view in VIEWS}
    tone, verdict = _verdict(ledger, costs)
    uncovered = [note for note in ledger.notes if _UNCOVERED.search(note)]
    other_notes = [note for note in ledger.notes if note not in uncovered]
    unprotected = [f"Without any protection: {e.mechanism}." for e in ledger.events if isinstance(e, Unprotected)]
    assumed = [*_ALWAYS_ASSUMED, *_assumed(ledger)]
    sections: list[tuple[str, tuple[Block, ...]]] = [
        ("What is protected", _protected(ledger)),
        ("From whom, and how much", (_meters(costs), _HOW_TO_READ, *_delta_warning(ledger, costs))),
        ("Whom one must trust", (Points(tuple(_trusted(ledger, costs))),)),
        ("What the figures rest on", (Points(tuple(map(_sentence, assumed))),)),
        ("What is not covered", (Points(tuple(map(_sentence, [*unprotected, *uncovered, *_NEVER_COVERED]))),)),
        ("What was done", (*_events(ledger),)),
    ]
    if other_notes:
        sections.append(("Remarks of the runs", (Points(tuple(map(_sentence, other_notes))),)))
    sections.append(("How the figures were found", _computed(ledger, costs)))
    return Report(about or "", tone, verdict, tuple(sections), ledger.digest())


_HOW_TO_READ = (
    "The guesses are those of somebody who knows everything about everybody else, has two candidates for the whole "
    "history of one person, one of them true and both as likely before, and looks at all that the adversary sees. A "
    "coin is right in 50% of such cases. Epsilon is in nats; delta is a chance with which the promise may fail."
)


def _verdict(ledger: Any, costs: dict[View, Cost]) -> tuple[str, tuple[str, ...]]:
    """Return the tone and the lines of the verdict."""
    if not ledger.events:
        return "none", (
            "No guarantee is stated: the ledger is empty.",
            "No use of people's data was recorded in it, which does not prove that there was none.",
        )
    guess_shares = {view: largest_guess_share(*cost[:2]) for view, cost in costs.items() if math.isfinite(cost.epsilon)}
    bounded = [view for view, share in guess_shares.items() if share < _USELESS_SHARE]
    lines = []
    if not guess_shares:
        tone, first = "none", "No guarantee: nothing here protects anybody's data from anybody."
    elif not bounded:
        tone = "weak"
        first = "No useful guarantee: the figures are so large that they bound nothing."
    else:
        tone = "some" if min(guess_shares[view] for view in bounded) <= _UNSURE_SHARE else "loose"
        first = f"Guaranteed against {_listed([_with_figure(view, costs[view]) for view in bounded])}."
        useless = [VIEWS[view] for view in guess_shares if view not in bounded]
        unprotected = [VIEWS[view] for view in costs if view not in guess_shares]
        lines += [f"Against {_listed(useless)}: a figure that bounds nothing."] if useless else []
        lines += [f"No guarantee against {_listed(unprotected)}."] if unprotected else []
    if ledger.is_simulation:
        tone = "none"
        lines.insert(0, f"With noise that nobody can guess: {first[0].lower()}{first[1:]}" if guess_shares else first)
        first = "Simulation, no guarantee: the noise came from a seed, and whoever can guess the seed can take it off."
    return tone, (first, *lines)


def _with_figure(view: View, cost: Cost) -> str:
    """Return a view in words, with its figure."""
    supposed = "if there is one: " if view == "shuffled_server" else ""
    return f"{VIEWS[view]} ({supposed}epsilon {format_epsilon(cost.epsilon)} at delta {cost.delta:g})"


def _protected(ledger: Any) -> tuple[Block, ...]:
    """Return the section on the privacy unit and the neighbouring relation."""
    if not ledger.events:
        return ("Nothing is stated.",)
    return (
        "The unit is a person: everything that this person has in the data together, every item, rating and time, and "
        "not one entry of it.",
        "The promise compares what really ran with a run in which this one person's whole history had been any other "
        '(the neighbouring relation "replace"). Whatever the adversary sees, it must have been nearly as likely with '
        "the other history; epsilon and delta say how nearly.",
    )


def _meters(costs: dict[View, Cost]) -> Meters:
    """Return the figures of all views."""
    rows = []
    for view, (epsilon, delta, _) in costs.items():
        is_none = math.isinf(epsilon)
        share = 1.0 if is_none else largest_guess_share(epsilon, delta)
        # A percentage with one decimal, rounded up so that it is never below the bound.
        shown = math.ceil(share * 1000 - 1e-9) / 10
        empty = ", which bounds nothing" if share >= _USELESS_SHARE else ""
        words = "no bound" if is_none else f"at most {shown:.1f}%{empty}"
        rows.append(
            (
                VIEWS[view][0].upper() + VIEWS[view][1:],
                _WHO[view],
                "no guarantee" if is_none else format_epsilon(epsilon),
                "" if is_none else f"{delta:g}",
                share,
                words,
            )
        )
    return Meters(tuple(rows))


def _delta_warning(ledger: Any, costs: dict[View, Cost]) -> tuple[Block, ...]:
    """Return a warning if delta is not below one over the number of users."""
    n_users = max((getattr(event, "n_users", None) or 0 for event in ledger.events), default=0)
    is_needed = any(cost.delta and math.isfinite(cost.epsilon) for cost in costs.values())
    if not (n_users and is_needed and ledger.delta * n_users >= 1):
        return ()
    return (
        f"Delta {ledger.delta:g} is not below one over the number of people ({n_users:,}): a mechanism that gives one "
        "person's data away to everybody would keep such a promise.",
    )


def _trusted(ledger: Any, costs: dict[View, Cost]) -> list[str]:
    """Return the parties that one must trust, for the mechanisms of the run."""
    if not any(math.isfinite(cost.epsilon) for cost in costs.values()):
        return ["The question does not arise: there is no guarantee."]
    mechanisms_by_trust: dict[str, list[str]] = {}
    for event in ledger.events:
        if hasattr(event, "trust"):
            mechanisms_by_trust.setdefault(event.trust, []).append(event.mechanism)
    lines = [
        _TRUSTED[trust] if len(mechanisms_by_trust) == 1 else f"For {_listed(names)}. {_TRUSTED[trust]}"
        for trust, names in mechanisms_by_trust.items()
    ]
    if "local" in mechanisms_by_trust and costs["shuffled_server"].epsilon < costs["server"].epsilon:
        lines.append('For the line "behind a shuffler" alone, a shuffler that must exist. ' + _TRUSTED["shuffle"])
    return lines or ["Nobody is named: nothing was sent or released."]


def _assumed(ledger: Any) -> list[str]:
    """Return the assumptions of the figures that depend on the ledger."""
    lines = [] if ledger.budget is None else [ledger.budget.statement(ledger.events)]
    lines += preconditions(ledger.events, ledger.is_simulation, ledger.delta)
    if not ledger.is_simulation:
        lines.append("The noise came from a secret key of the operating system's randomness, which nobody has kept.")
    if any(getattr(event, "sampling", "none") != "none" for event in ledger.events):
        lines.append("Who was drawn for each round stays secret.")
    if any(getattr(event, "honest_fraction", 1.0) < 1 for event in ledger.events):
        shares = sorted({e.honest_fraction for e in ledger.events if hasattr(e, "honest_fraction")})
        lines.append(f"At least {100 * shares[0]:g}% of the people follow the protocol and do not tell what they sent.")
    if any(getattr(event, "trust", "") == "central" for event in ledger.events):
        lines.append(
            "The server adds the noise before anything leaves it, and gives away nothing else that it received."
        )
    return lines


def _events(ledger: Any) -> list[Block]:
    """Return the section on the recorded events, with their figures and fields."""
    blocks: list[Block] = []
    for number, (event, times) in enumerate(ledger.events.items(), start=1):
        rounds = "once" if times == 1 else f"{times:,} times"
        blocks.append(f"{number}. {event.mechanism}, {rounds}{event._details()}. {_what_happened(event)}")
        rows = []
        for view in VIEWS:
            cost = stated_cost({event: times}, view, ledger.delta)
            figure = "no guarantee" if math.isinf(cost.epsilon) else format_epsilon(cost.epsilon)
            rows.append((VIEWS[view], figure, explain(event, view, cost)))
        facts = [
            (field.name.replace("_", " "), _fact(getattr(event, field.name)))
            for field in fields(event)
            if field.name not in ("mechanism", "neighboring") and getattr(event, field.name) is not None
        ]
        if relation := getattr(event, "neighboring", None):
            facts.append(("proved for", _RELATIONS[relation]))
        blocks += [
            Table(("protected from", "epsilon, by itself", "by"), tuple(rows)),
            Table(("as recorded", ""), tuple(facts)),
        ]
    return blocks or ["Nothing was recorded."]


def _what_happened(event: Event) -> str:
    """Return the first line of the docstring of an event's class."""
    return (type(event).__doc__ or type(event).__name__).strip().splitlines()[0]


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
            "no guarantee" if math.isinf(cost.epsilon) else format_epsilon(cost.epsilon),
            f"{cost.delta:g}" if math.isfinite(cost.epsilon) else "",
            _ACCOUNTANTS[cost.accountant],
            format_epsilon(cost_of(ledger.events, view, 0.0).epsilon) if math.isfinite(cost.epsilon) else "",
        )
        for view, cost in costs.items()
    ]
    versions = [f"fastfedrec {__version__}", f"Python {platform.python_version()}"]
    versions += [f"{name} {metadata.version(name)}" for name in ("numpy", "scipy")]
    return (
        "Every figure is computed anew from the recorded events, whatever a file stated, and is an upper bound: its "
        "digits are rounded up. Where several accountants apply, the least of their bounds counts. Costs of all events "
        "are added up for one and the same person. Each event may use the outputs of all earlier ones. Figures with a "
        "delta hold for events that were not chosen by releases; the sum at delta 0 holds for these too.",
        Table(("protected from", "epsilon", "delta", "found by", "epsilon at delta 0"), tuple(rows)),
        f"Computed by {_listed(versions)}, which need not be the versions that ran the training.",
        f"The ledger's content has the SHA-256 digest {ledger.digest()}: of format, delta, events, marks and remarks, "
        "and of nothing that is computed from them. Ledger.digest() of the same content is the same. The digest shows "
        "which ledger was read; that the ledger tells the truth is as good as who kept it.",
    )


def _listed(texts: Sequence[str]) -> str:
    """Return texts as an enumeration."""
    return texts[0] if len(texts) == 1 else f"{'; '.join(texts[:-1])}; and {texts[-1]}" if texts else ""


def _sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    text = f"{text[0].upper()}{text[1:]}" if text else text
    return text if text.endswith((".", "!", "?")) else f"{text}."
