"""Documents of ledgers: their schema, and the documents that are read and refused."""

import copy
import json
from dataclasses import fields

import pytest
from support.events import EVENTS, changed_fields
from support.ledger_case import REPORTS, ledger_of

from fastfedrec.accounting import (
    NOTE_KINDS,
    ZCDP,
    CentralRelease,
    Gaussian,
    Laplace,
    Ledger,
    LocalReports,
    ShuffledReports,
    Unprotected,
)
from fastfedrec.accounting._ledger_format import KINDS, SCHEMA, violation
from fastfedrec.accounting.views import cost_of


def test_json_round_trip():
    ledger = Ledger(delta=1e-7)
    for event in (
        REPORTS,
        REPORTS,
        CentralRelease("c", 0.25),
        Gaussian(3.0, neighboring="replace", sampling="without_replacement", n_users=100, cohort_size=5),
        ZCDP("z", 0.1, neighboring="zero_out", sampling="none"),
        ShuffledReports("s", 1.0, 2, 300, 0.5),
    ):
        ledger.record(event, simulation=True)
    ledger.note("n")
    ledger.record(Unprotected("u"))
    document = json.loads(ledger.to_json())
    # An infinite cost is never null or 0.
    assert document["epsilon"] == dict.fromkeys(document["epsilon"], "infinite")
    copy_of_ledger = Ledger.from_json(ledger.to_json())
    assert copy_of_ledger.events == ledger.events
    assert copy_of_ledger.to_dict() == ledger.to_dict()
    document["events"][0]["kind"] = "Wish"
    with pytest.raises(ValueError, match="'Wish'"):
        Ledger.from_dict(document)


def test_no_field_of_any_event_is_lost():
    """Each kind of event is tested, with a value of each field that differs from its default."""
    assert {type(event) for event in EVENTS} == set(KINDS.values())
    field_names = {field.name for kind in KINDS.values() for field in fields(kind) if field.name != "privacy_unit"}
    assert {name for event in EVENTS for name in changed_fields(event)} == field_names
    ledger = ledger_of(*EVENTS)
    document = ledger.to_dict()
    assert Ledger.from_dict(document, check_costs=False).events == ledger.events
    assert Ledger.from_dict(document).events == ledger.events


# ---- the schema ------------------------------------------------------------------------------------------------------


def follows(value, schema):
    """Return whether JSON follows a schema: an independent validator of the keywords that the schema uses."""
    if "anyOf" in schema:
        return any(follows(value, part) for part in schema["anyOf"])
    if "const" in schema:
        return json.dumps(value) == json.dumps(schema["const"])
    if "enum" in schema:
        return json.dumps(value) in map(json.dumps, schema["enum"])
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    right = {
        "object": isinstance(value, dict),
        "array": isinstance(value, list),
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "integer": is_number and isinstance(value, int),
        "number": is_number,
        "null": value is None,
    }[schema["type"]]
    if not right or set(schema) - {
        "$schema", "title", "description", "type", "properties", "required", "additionalProperties", "items",
        "uniqueItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    }:  # fmt: skip
        return False
    if schema["type"] == "object":
        known = schema["properties"]
        return set(schema["required"]) <= set(value) <= set(known) and all(follows(value[n], known[n]) for n in value)
    if schema["type"] == "array":
        repeats = schema.get("uniqueItems") and len(set(map(json.dumps, value))) < len(value)
        return not repeats and all(follows(entry, schema["items"]) for entry in value)
    if is_number:
        above = value >= schema.get("minimum", value) and value > schema.get("exclusiveMinimum", value - 1)
        below = value <= schema.get("maximum", value) and value < schema.get("exclusiveMaximum", value + 1)
        return above and below
    return True


def a_document():
    ledger = ledger_of(
        REPORTS,
        REPORTS,
        CentralRelease("c", 0.25, delta=1e-9),
        Gaussian(3.0, neighboring="replace", sampling="without_replacement", n_users=100, cohort_size=5),
        Gaussian(3.0, neighboring="zero_out", sampling="none", trust="entity"),
        Laplace(3.0, neighboring="add_remove", sampling="poisson", sampling_probability=0.5),
        ShuffledReports("s", 1.0, 2, 300, 0.5, neighboring="zero_out"),
        Unprotected("u"),
    )
    ledger.note("n")
    ledger.note("The list of items is public.", "assumption")
    return ledger.to_dict()


def test_what_is_written_follows_the_schema_that_the_pages_offer():
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA  # docs/conf.py writes it as JSON
    for document in (
        a_document(),
        Ledger().to_dict(),
        ledger_of(ZCDP("z", 1.0, neighboring="zero_out", sampling="none")).to_dict(),
    ):
        assert follows(document, SCHEMA)
        assert violation(document, SCHEMA, "ledger") is None


def nested(depth):
    """Return a list within a list and so on, too deep for any recursion."""
    value = []
    for _ in range(depth):
        value = [value]
    return value


def at(document, path, value):
    """Return a copy with one field changed; a value of `...` removes it."""
    changed = copy.deepcopy(document)
    *way, last = path
    node = changed
    for step in way:
        node = node[step]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["events", 0, "times"], -1, r"ledger\.events\[0\]\.times must be of type integer, at least 1 and .*, got -1"),
        (["events", 0, "times"], 0, r"events\[0\]\.times must be of type integer, at least 1 and .*, got 0"),
        (["events", 0, "times"], 0.9, r"events\[0\]\.times must be of type integer, at least 1 and .*, got 0.9"),
        (["events", 0, "times"], True, r"events\[0\]\.times must be of type integer, at least 1 and .*, got True"),
        (["events", 0, "times"], "2", r"events\[0\]\.times must be"),
        (["events", 0, "kind"], "Wish", r"events\[0\]\.kind must be one of .*, got 'Wish'"),
        (["events", 0, "kind"], ["Gaussian"], r"events\[0\]\.kind must be one of"),
        (["events", 0, "kind"], "Gaussian", r"events\[0\]\.fields must have"),
        (["events", 0, "fields", "epsilon"], -2.5, r"events\[0\]\.fields: epsilon must be greater than 0"),
        (["events", 0, "fields", "epsilon"], True, r"events\[0\]\.fields\.epsilon must be of type number, got True"),
        (["events", 0, "fields", "n_users"], 10.5, r"events\[0\]\.fields\.n_users must be of type integer"),
        (["events", 0, "fields", "separable"], "no", r"events\[0\]\.fields\.separable must be of type boolean"),
        (["events", 0, "fields", "mechanism"], None, r"events\[0\]\.fields\.mechanism must be of type string"),
        (["events", 0, "fields", "neighboring"], "none", r"events\[0\]\.fields\.neighboring must be 'replace'"),
        (
            ["events", 1, "fields", "neighboring"],
            "substitute",
            r"events\[1\]\.fields\.neighboring must be 'replace' or",
        ),
        (["events", 1, "fields", "privacy_unit"], "interaction", r"events\[1\]\.fields: .*protects one interaction"),
        (["events", 0, "fields", "shift"], 1, r"events\[0\]\.fields holds 'shift', which this version"),
        (["events", 0, "fields", "n_users"], ..., r"events\[0\]\.fields must have 'n_users'"),
        (["events", 0, "epsilon_per_round", "server"], None, r"epsilon_per_round\.server must be .* got None"),
        (["events", 0, "epsilon_whole_run", "public"], -1.0, r"epsilon_whole_run\.public must be"),
        (["events", 0, "by"], "me", r"events\[0\] holds 'by'"),
        (["events", 0], 3, r"events\[0\] must be of type object, got 3"),
        (["events"], {}, r"ledger\.events must be of type array"),
        (["events", 0, "times"], 2**63, r"events\[0\]\.times must be of type integer, at least 1 and at most"),
        (["epsilon", "server"], 10**400, r"ledger\.epsilon\.server must be of type number, at least 0 or"),
        (["epsilon"], nested(100_000), r"ledger\.epsilon must be of type object"),
        (["notes"], nested(100_000), r"ledger\.notes\[0\] must be of type string"),
        (["neighboring"], "add_remove", r"ledger\.neighboring must be 'replace', got 'add_remove'"),
        (["privacy_unit"], "interaction", r"ledger\.privacy_unit must be 'user'"),
        (["epsilon_unit"], "bits", r"ledger\.epsilon_unit must be 'nats'"),
        (["format"], "fastfedrec ledger 3", r"ledger\.format must be 'fastfedrec ledger 2'"),
        (["delta"], 0, r"ledger\.delta must be of type number, above 0 and below 1, got 0"),
        (["delta"], 1.0, r"ledger\.delta must be"),
        (["delta"], "1e-6", r"ledger\.delta must be"),
        (["delta"], ..., r"ledger must have 'delta'"),
        (["is_simulation"], 1, r"ledger\.is_simulation must be of type boolean"),
        (["notes"], ["n", 1], r"ledger\.notes\[1\] must be of type string"),
        (["notes"], ["n", "n"], r"ledger\.notes\[1\] repeats an earlier entry"),
        (["notes", 1, "kind"], "wish", r"ledger\.notes\[1\] must be of type string or of type object"),
        (["notes", 1, "text"], 3, r"ledger\.notes\[1\] must be of type string or of type object"),
        (["notes"], [{"kind": "choice", "text": "n"}] * 2, r"ledger\.notes\[1\] repeats an earlier entry"),
        (["notes"], "n", r"ledger\.notes must be of type array"),
        (["epsilon", "peers"], 1.0, r"ledger\.epsilon holds 'peers'"),
        (
            ["epsilon", "neighbours"],
            1.0,
            r"ledger\.epsilon states the cost against 'neighbours', which this version cannot",
        ),
        (["epsilon", "third_party"], 1.0, r"ledger\.epsilon states the cost against 'third_party'"),
        (["events", 0, "epsilon_per_round", "neighbours"], 1.0, r"events\[0\]\.epsilon_per_round states the cost"),
        (["comment"], "x", r"ledger holds 'comment'"),
    ],
)
def test_what_would_not_have_been_written_is_refused_by_name(path, value, message):
    document = a_document()
    Ledger.from_dict(document)
    with pytest.raises(ValueError, match=message):
        Ledger.from_dict(at(document, path, value))


def test_the_most_times_that_a_ledger_can_hold_are_written_read_and_accounted_for():
    document = at(a_document(), ["events", 0, "times"], 2**63 - 1)
    ledger = Ledger.from_dict(document, check_costs=False)
    assert ledger.epsilon("server") >= 2**63 * document["events"][0]["epsilon_per_round"]["server"]
    assert Ledger.from_json(ledger.to_json()).events == ledger.events


@pytest.mark.parametrize(
    "path",
    [["epsilon", "public"], ["events", 0, "epsilon_per_round", "server"], ["events", 1, "epsilon_whole_run", "public"],
     ["events", 6, "epsilon_whole_run", "public"], ["epsilon", "key_holder"]],
)  # fmt: skip
def test_figures_below_what_the_events_cost_are_refused(path):
    document = a_document()
    node = document
    for step in path:
        node = node[step]
    lower = 0.0 if node == "infinite" else node * (1 - 1e-5)
    with pytest.raises(ValueError, match=rf"\.{path[-1]} states .*, and its events cost"):
        Ledger.from_dict(at(document, path, lower))
    assert Ledger.from_dict(at(document, path, lower), check_costs=False).to_dict() == document
    if node != "infinite":
        # A larger figure is valid.
        assert Ledger.from_dict(at(document, path, node * 1.01)).to_dict() == document


@pytest.mark.parametrize(("epsilon", "n_reports", "n_users"), [(0.5, 1, 2), (2.0, 3, 8), (3.0, 1, 80), (5.0, 3, 300)])
def test_an_earlier_figure_at_delta_just_below_that_at_delta_0_is_read(epsilon, n_reports, n_users):
    """Version 0.2.0 states this figure, and later versions the larger one at delta 0."""
    ledger = Ledger()
    ledger.record(ShuffledReports("s", epsilon, n_reports, n_users))
    document, view = ledger.to_dict(), "shuffled_server"
    assert document["epsilon"][view] == epsilon * n_reports
    cost = cost_of(ledger.events, view, ledger.delta).epsilon
    assert cost < epsilon * n_reports * (1 - 1e-6)

    def stating(figure):
        changed = copy.deepcopy(document)
        for costs in (
            changed["epsilon"],
            *(changed["events"][0][f"epsilon_{part}"] for part in ("per_round", "whole_run")),
        ):
            costs[view] = figure
        return changed

    with pytest.raises(ValueError, match=r"ledger\.epsilon\.shuffled_server states .* and its events cost"):
        Ledger.from_dict(stating(cost))
    del document["digest"]
    assert Ledger.from_dict(stating(cost)).digest() == ledger.digest()
    with pytest.raises(ValueError, match=r"ledger\.epsilon\.shuffled_server states .* and its events cost"):
        Ledger.from_dict(stating(cost * (1 - 2e-6)))
    document["pure_epsilon"][view] = cost
    with pytest.raises(ValueError, match=r"ledger\.pure_epsilon\.shuffled_server states"):
        Ledger.from_dict(document)


def test_a_document_without_kinds_is_read_and_keeps_its_digest():
    """Versions up to 0.2.0 write each note as a string."""
    ledger = ledger_of(REPORTS)
    for text in ("the list of items was taken from the data: not covered", "diagnostics were kept"):
        ledger.note(text)
    document = json.loads(ledger.to_json())
    assert document["notes"] == [str(note) for note in ledger.notes]
    copied = Ledger.from_dict(document)
    assert [note.kind for note in copied.notes] == ["remark", "remark"]
    assert copied.digest() == document["digest"] == ledger.digest()


def test_kinds_of_notes_are_kept():
    ledger = ledger_of(REPORTS)
    for kind in NOTE_KINDS:
        ledger.note(f"A {kind}.", kind)
    copied = Ledger.from_json(ledger.to_json())
    assert [(note, note.kind) for note in copied.notes] == [(f"A {kind}.", kind) for kind in NOTE_KINDS]
    assert copied.digest() == ledger.digest()


def test_no_event_comes_twice():
    document = a_document()
    document["events"].append(copy.deepcopy(document["events"][2]))
    with pytest.raises(ValueError, match=r"ledger\.events\[7\] repeats ledger\.events\[2\]"):
        Ledger.from_dict(document)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be JSON text"),
        ("[" * 100_000, "must be JSON text"),
        (b"\xff{}", "ledger must be JSON text as written by to_json: 'utf-8' codec"),
        ("[]", "must be an object of JSON, got \\[\\]"),
        ("null", "must be an object of JSON, got None"),
        ('{"delta": 1e-6, "delta": 0.5}', "ledger holds a field twice: 'delta'"),
        ('{"delta": NaN}', "ledger holds NaN, which is no number of JSON"),
        ('{"delta": 1e999}', r"ledger must have"),
        ('{"delta": ' + "9" * 5000 + "}", r"ledger holds a whole number of 5,000 digits"),
        ("{}", "ledger must have"),
    ],
)
def test_text_that_is_no_ledger_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Ledger.from_json(text)
    with pytest.raises(TypeError, match="ledger must be JSON text as written by to_json, got None"):
        Ledger.from_json(None)
    number = Ledger().to_json().replace("1e-06", "1e999")
    with pytest.raises(ValueError, match=r"ledger\.delta must be"):
        Ledger.from_json(number)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["events", 0], ...),  # each total stays above the cost of its events
        (["events", 0, "times"], 1),
        (["events", 3, "fields", "neighboring"], "replace"),
        (["events", 5, "fields", "honest_fraction"], 1.0),
        (["events", 2, "fields", "mechanism"], "another"),
        (["delta"], 1e-3),
        (["notes"], []),
        (["notes", 0], "another"),
        (["notes", 1, "kind"], "not covered"),
        (["digest"], "0" * 64),
    ],
)
def test_a_document_whose_content_was_changed_is_refused(path, value):
    document = at(a_document(), path, value)
    with pytest.raises(
        ValueError, match=r"ledger\.digest must be the digest of the content, [0-9a-f]{64}, got [0-9a-f]{64}"
    ):
        Ledger.from_dict(document)
    with_its_own = document | {"digest": Ledger.from_dict(document, check_costs=False).digest()}
    # Figures of earlier versions can be larger, so larger figures are read.
    Ledger.from_dict(with_its_own)


def test_a_document_states_its_figures_at_delta_and_at_delta_0():
    ledger = ledger_of(REPORTS, REPORTS)
    document = ledger.to_dict()
    assert document["epsilon"]["server"] == ledger.epsilon("server") < document["pure_epsilon"]["server"] == 500.0
    with pytest.raises(ValueError, match=r"ledger\.pure_epsilon\.server states 499, and its events cost 500"):
        Ledger.from_dict(at(document, ["pure_epsilon", "server"], 499))
    assert a_document()["pure_epsilon"]["server"] == "infinite"
    older = {name: part for name, part in document.items() if name not in ("pure_epsilon", "digest")}
    older["epsilon"] = document["pure_epsilon"] | {"key_holder": "infinite"}  # versions before summed pure costs
    assert Ledger.from_dict(older).to_dict() == document


def test_ledgers_of_0_1_0_are_read():
    """These ledgers have no format, and null for no guarantee."""
    now = a_document()
    old = json.loads(json.dumps(now).replace('"infinite"', "null"))
    for name in ("format", "pure_epsilon", "digest"):
        del old[name]
    assert Ledger.from_dict(old).to_dict() == now
    with pytest.raises(ValueError, match=r"ledger must have 'format'"):
        # Version 0.1.0 did not write "infinite".
        Ledger.from_dict(at(now, ["format"], ...))
    with pytest.raises(ValueError, match=r"ledger\.epsilon\.public states 0, and its events cost inf"):
        Ledger.from_dict(at(old, ["epsilon", "public"], 0.0))


@pytest.mark.parametrize(
    "event",
    [
        Gaussian(1e-200, neighboring="replace", sampling="none"),
        Gaussian(1e155, neighboring="add_remove", sampling="none"),
        Gaussian(1e-200, neighboring="add_remove", sampling="poisson", sampling_probability=1e-3),
        Gaussian(5e-324, neighboring="add_remove", sampling="none", count=10**12),
        Laplace(5e-324, neighboring="add_remove", sampling="none"),
        CentralRelease("m", 38.0, sampling="poisson", sampling_probability=1e-16),
        CentralRelease("m", 1.7e308),
        CentralRelease("m", 800.0, delta=1e-300),
        ZCDP("z", 1.7e308, neighboring="add_remove", sampling="none"),
        LocalReports("binary response", 1e300, 10**12, 10**12, separable=True),
        ShuffledReports("binary response", 711.0, 100, 50_000),
        ShuffledReports("binary response", 1e300, 100, 50_000, neighboring="zero_out"),
    ],
)
def test_a_ledger_with_an_extreme_event_is_saved_read_and_printed(event):
    ledger = Ledger()
    for _ in range(2):
        ledger.record(event)
    text = ledger.to_json()
    assert Ledger.from_json(text).to_json() == text
    assert event.mechanism in ledger.summary()
    for view in ("server", "shuffled_server", "public"):
        assert ledger.epsilon(view) >= 0


def test_a_ledger_mixes_extreme_and_usual_events():
    ledger = Ledger()
    ledger.record(Gaussian(1.0, neighboring="replace", sampling="none", trust="entity"))
    ledger.record(CentralRelease("m", 1e300, neighboring="replace", trust="entity"))
    assert ledger.epsilon("public") >= 1e300
    assert Ledger.from_json(ledger.to_json()).to_json() == ledger.to_json()
