import copy
import json
import math
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfedrec.accounting import (
    ZCDP,
    CentralRelease,
    DiscreteGaussianRelease,
    Gaussian,
    Laplace,
    Ledger,
    LocalReports,
    ShuffledReports,
    Unprotected,
    UnsupportedEventError,
)
from fastfedrec.accounting._ledger_format import KINDS, SCHEMA, violation
from fastfedrec.core.text import format_epsilon

REPORTS = LocalReports("binary response", epsilon=2.5, n_reports=100, n_users=50_000, separable=True)


def ledger_of(*events):
    ledger = Ledger()
    for event in events:
        ledger.record(event)
    return ledger


def test_default_run_of_the_paper():
    # docs/explanation/systems/fmf/fmf-ldp.md, figures of the design page on shuffling
    ledger = ledger_of(*[REPORTS] * 20)
    assert ledger.epsilon() == 5000.0
    assert ledger.epsilon("shuffled_server") == pytest.approx(4.18, abs=0.005)
    assert ledger_of(REPORTS).epsilon("shuffled_server") == pytest.approx(0.811, abs=0.0005)
    assert ledger_of(REPORTS).epsilon("shuffled_server", delta=1e-8) == pytest.approx(0.993, abs=0.001)
    server, shuffled = (line for line in ledger.summary().splitlines() if line.startswith("the server,"))
    assert server.split()[-8:-5] == ["2.500", "250.0", "5000"]
    assert shuffled.split()[-6:-3] == ["0.06902", "0.8109", "4.180"]  # rounded up


def test_the_refit_composes():
    once, twice = ledger_of(*[REPORTS] * 10), ledger_of(*[REPORTS] * 20)
    assert once.epsilon("shuffled_server") < twice.epsilon("shuffled_server") < 2 * once.epsilon("shuffled_server")


@given(st.lists(st.tuples(st.floats(1e-3, 50), st.integers(1, 500), st.integers(1, 30)), max_size=5))
def test_epsilons_add_without_a_shuffler(runs):
    ledger = Ledger()
    for epsilon, n_reports, n_rounds in runs:
        for _ in range(n_rounds):
            ledger.record(LocalReports("m", epsilon, n_reports, 10))
    total = pytest.approx(sum(e * k * t for e, k, t in runs))
    assert ledger.epsilon() == ledger.epsilon("shuffled_server") == ledger.epsilon("public") == total


def test_who_is_protected_from_whom():
    central = ledger_of(CentralRelease("discrete Laplace", 0.5))
    assert central.epsilon("server") == central.epsilon("shuffled_server") == math.inf  # it sees the data
    assert central.epsilon("public") == 1.0  # replacing a user is removing one and adding one
    assert ledger_of(CentralRelease("m", 0.5, neighboring="replace")).epsilon("public") == 0.5
    for view in ("server", "shuffled_server", "public", "key_holder"):
        assert ledger_of(Unprotected("gradients")).epsilon(view) == math.inf
        assert ledger_of(REPORTS, Unprotected("gradients")).epsilon(view) == math.inf
        assert Ledger().epsilon(view) == 0
    assert ledger_of(REPORTS).epsilon("key_holder") == math.inf
    assert ledger_of(ShuffledReports("m", 2.5, 100, 50_000)).epsilon("server") == 250.0  # a shuffler it has bribed


def test_reports_that_stay_together_are_not_amplified():
    together = ledger_of(LocalReports("m", 1.0, 100, 50_000))
    assert together.epsilon("shuffled_server") == 100.0


def test_gaussian_for_replacing_a_user():
    noise = Gaussian(2.0, neighboring="add_remove", sampling="none")
    halved = Gaussian(1.0, neighboring="replace", sampling="none")
    assert ledger_of(noise).epsilon("public") == ledger_of(halved).epsilon("public") < math.inf
    both = ledger_of(REPORTS, halved)
    assert both.epsilon("public") > ledger_of(REPORTS).epsilon("public")
    assert both.epsilon("server") == math.inf


def test_unknown_costs_raise_and_are_not_recorded():
    class Wish:
        mechanism = "good intentions"

    ledger = Ledger()
    with pytest.raises(TypeError, match="must hold events"):
        ledger.record(Wish())
    fixed = Gaussian(1.0, neighboring="add_remove", sampling="without_replacement", n_users=10, cohort_size=1)
    with pytest.raises(UnsupportedEventError, match="no theorem is known here for the cost of replacing a user"):
        ledger.record(fixed)
    with pytest.raises(UnsupportedEventError, match="protects one interaction"):
        ledger.record(CentralRelease("m", 1.0, neighboring="replace", privacy_unit="interaction"))
    assert not ledger.events
    with pytest.raises(ValueError, match="against must be one of 'server', 'shuffled_server', 'public', 'key_holder'"):
        ledger.epsilon("nobody")
    for bad in (0.0, 1.0, -1e-6, math.nan):
        with pytest.raises(ValueError, match="delta must be"):
            Ledger(bad)
        with pytest.raises(ValueError, match="delta must be"):
            ledger.epsilon("public", bad)


def test_amend_makes_the_crowd_smaller_never_larger():
    ledger = ledger_of(REPORTS, REPORTS)
    ledger.amend(REPORTS, 50_000)
    ledger.amend(REPORTS, 60_000)
    assert dict(ledger.events) == {REPORTS: 2}
    ledger.amend(REPORTS, 100)
    assert sorted((e.n_users, n) for e, n in ledger.events.items()) == [(100, 1), (50_000, 1)]
    nobody = ledger_of(REPORTS)
    nobody.amend(REPORTS, 0)
    assert nobody.epsilon("shuffled_server") == 250.0


@pytest.mark.parametrize("honest_fraction", [1.0, 0.01])
def test_where_nobody_honest_was_heard_there_was_no_shuffler(honest_fraction):
    shuffled = ShuffledReports("binary response", 2.5, 100, 60_000, honest_fraction)
    ledger = ledger_of(shuffled)
    ledger.amend(shuffled, round(0.99 / honest_fraction) - (honest_fraction == 1))
    assert [(type(event), event.n_users, n) for event, n in ledger.events.items()] == [(LocalReports, 60_000, 1)]
    assert ledger.epsilon("shuffled_server") == ledger.epsilon("server") == 250.0
    enough = ledger_of(shuffled)
    enough.amend(shuffled, 100)
    assert [(type(event), event.n_users) for event in enough.events] == [(ShuffledReports, 100)]


def test_reports_are_shuffled_only_once_a_batch_has_come():
    local = LocalReports("binary response", epsilon=2.5, n_reports=100, n_users=60_000)  # not separable: no claim yet
    ledger = ledger_of(local, local)
    assert ledger.epsilon("shuffled_server") == ledger.epsilon("server") == 500.0
    ledger.confirm_shuffled(local, 50_000, honest_fraction=0.5)
    shuffled = ShuffledReports("binary response", 2.5, 100, 50_000, 0.5)
    assert dict(ledger.events) == {local: 1, shuffled: 1}
    assert 250.0 < ledger.epsilon("shuffled_server") < 255.0
    ledger.confirm_shuffled(local, 50_000, honest_fraction=0.5)
    assert ledger.epsilon("shuffled_server") == ledger_of(shuffled, shuffled).epsilon("shuffled_server") < 5
    assert ledger.epsilon("server") == 500.0
    with pytest.raises(ValueError, match="the ledger holds no LocalReports"):
        ledger.confirm_shuffled(local, 50_000)


def test_simulation_is_marked_for_good():
    ledger = Ledger()
    ledger.record(REPORTS, simulation=True)
    ledger.record(REPORTS, simulation=False)
    assert ledger.is_simulation
    assert "SIMULATION" in ledger.summary()
    assert "SIMULATION" not in ledger_of(REPORTS).summary()


def test_summary_says_what_was_proved_of_each_event():
    noise = {name: Gaussian(1.0, neighboring=name, sampling="none") for name in ("replace", "add_remove", "zero_out")}
    assert "proved for" not in ledger_of(noise["replace"]).summary()
    assert "proved for adding or removing a user (add_remove)" in ledger_of(noise["add_remove"]).summary()
    assert "proved for a user's data against none (zero_out)" in ledger_of(noise["zero_out"]).summary()
    sketched = ShuffledReports("s", 1.0, 2, 300, neighboring="zero_out")
    assert "proved for a user's data against none (zero_out)" in ledger_of(sketched).summary()
    assert "proved for" not in ledger_of(REPORTS).summary()


def test_summary_states_what_it_rests_on():
    assert "if no two reports can be linked" in ledger_of(REPORTS).summary()
    assert "if no two reports can be linked" not in ledger_of(LocalReports("m", 1.0, 10, 100)).summary()
    assert "it sees the data" in ledger_of(CentralRelease("m", 1.0)).summary()
    assert "no noise" in ledger_of(Unprotected("u")).summary()
    assert "all of it" in ledger_of(REPORTS, CentralRelease("m", 1.0)).summary()
    assert "all of it" not in ledger_of(REPORTS).summary()
    ledger = ledger_of(REPORTS)
    ledger.note("remember this")
    ledger.note("remember this")
    assert ledger.summary().count("remember this") == 1


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
    assert document["epsilon"] == dict.fromkeys(document["epsilon"], "infinite")  # never null, nor 0
    again = Ledger.from_json(ledger.to_json())
    assert again.events == ledger.events
    assert again.to_dict() == ledger.to_dict()
    document["events"][0]["kind"] = "Wish"
    with pytest.raises(ValueError, match="'Wish'"):
        Ledger.from_dict(document)


SAMPLED = {"neighboring": "add_remove", "sampling": "poisson", "sampling_probability": 0.25}
OF_ENTITY = {"count": 3, "trust": "entity", "distance": 1e-9}
EVERYTHING = [
    LocalReports("m", 1.5, 3, 40, separable=True),
    ShuffledReports("m", 1.5, 3, 40, 0.5, neighboring="zero_out", n_candidates=2),
    Gaussian(1.5, "m", **SAMPLED, **OF_ENTITY),
    Gaussian(1.5, "m", neighboring="replace", sampling="without_replacement", n_users=100, cohort_size=5),
    Laplace(1.5, "m", **SAMPLED, **OF_ENTITY),
    CentralRelease("m", 0.5, delta=1e-9, **SAMPLED, **OF_ENTITY),
    CentralRelease("m", 0.5, neighboring="replace", sampling="without_replacement", n_users=100, cohort_size=5),
    ZCDP("m", 0.1, neighboring="zero_out", sampling="none", **OF_ENTITY),
    DiscreteGaussianRelease(14.0, 10, "m", neighboring="zero_out", sampling="none", **OF_ENTITY),
    Unprotected("m"),
]


def test_no_field_of_any_event_is_lost():
    """Each kind of event, and each field with another value than it has by itself."""
    assert {type(event) for event in EVERYTHING} == set(KINDS.values())
    others = {field.name for kind in KINDS.values() for field in fields(kind) if field.name != "privacy_unit"}
    told = {f.name for event in EVERYTHING for f in fields(event) if getattr(event, f.name) != f.default}
    assert told == others
    ledger = ledger_of(*EVERYTHING)
    assert Ledger.from_json(ledger.to_json()).events == ledger.events


def test_shards_of_one_round_hide_together():
    parts = [Ledger(), Ledger()]
    for part, n_users in zip(parts, (20_000, 30_000), strict=True):
        for _ in range(20):
            part.record(LocalReports("binary response", 2.5, 100, n_users, separable=True), simulation=n_users > 20_000)
    parts[1].note("the list of items was taken from the data")
    joined = Ledger.of_shards(parts)
    assert joined.events == ledger_of(*[REPORTS] * 20).events
    assert joined.is_simulation
    assert joined.notes == parts[1].notes
    other = Ledger(delta=1e-3)
    other.events = parts[0].events
    with pytest.raises(ValueError, match="at the same delta"):
        Ledger.of_shards([parts[0], other])
    parts[1].record(REPORTS)
    with pytest.raises(ValueError, match="the same events"):
        Ledger.of_shards(parts)
    with pytest.raises(ValueError, match="must not be empty"):
        Ledger.of_shards([])


@given(st.floats(0.05, 4), st.integers(1, 40), st.integers(2, 3000), st.integers(1, 5))
@settings(max_examples=10)
def test_a_shuffler_never_costs_more(epsilon, n_reports, n_users, times):
    ledger = ledger_of(*[LocalReports("m", epsilon, n_reports, n_users, separable=True)] * times)
    assert ledger.epsilon("shuffled_server") <= ledger.epsilon("server") * (1 + 1e-9)


@given(st.floats(1e-6, 1e6))
def test_shown_figures_never_understate(epsilon):
    assert float(format_epsilon(epsilon)) >= epsilon * (1 - 2e-9)
    assert float(format_epsilon(epsilon)) <= epsilon * 1.0011 + 1e-9


# ---- the document ---------------------------------------------------------------------------------------------------

SCHEMA_FILE = Path(__file__).parents[2] / "docs" / "reference" / "ledger.schema.json"


def follows(value, schema):
    """Whether JSON follows a schema: a validator of its own, of the words that the schema uses."""
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
    return ledger.to_dict()


def test_what_is_written_follows_the_schema_that_the_pages_offer():
    assert json.loads(SCHEMA_FILE.read_text()) == SCHEMA
    for document in (
        a_document(),
        Ledger().to_dict(),
        ledger_of(ZCDP("z", 1.0, neighboring="zero_out", sampling="none")).to_dict(),
    ):
        assert follows(document, SCHEMA)
        assert violation(document, SCHEMA, "ledger") is None


def nested(depth):
    """A list within a list within a list, which no recursion can walk through."""
    value = []
    for _ in range(depth):
        value = [value]
    return value


def at(document, path, value):
    """A copy with one place changed; a value of `...` takes it out."""
    changed = copy.deepcopy(document)
    *way, last = path
    place = changed
    for step in way:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
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
        (["notes"], "n", r"ledger\.notes must be of type array"),
        (["epsilon", "peers"], 1.0, r"ledger\.epsilon holds 'peers'"),
        (["epsilon", "neighbours"], 1.0, r"ledger\.epsilon states what 'neighbours' see, which this version cannot"),
        (["epsilon", "third_party"], 1.0, r"ledger\.epsilon states what 'third_party' see"),
        (["events", 0, "epsilon_per_round", "neighbours"], 1.0, r"events\[0\]\.epsilon_per_round states what"),
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
    place = document
    for step in path:
        place = place[step]
    lower = 0.0 if place == "infinite" else place * (1 - 1e-5)
    with pytest.raises(ValueError, match=rf"\.{path[-1]} states .*, and its events cost"):
        Ledger.from_dict(at(document, path, lower))
    assert Ledger.from_dict(at(document, path, lower), check_costs=False).to_dict() == document
    if place != "infinite":
        assert Ledger.from_dict(at(document, path, place * 1.01)).to_dict() == document  # more is no lie


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


def test_ledgers_of_0_1_0_are_read():
    """They had no format, and null where nothing is guaranteed."""
    now = a_document()
    old = json.loads(json.dumps(now).replace('"infinite"', "null"))
    del old["format"]
    assert Ledger.from_dict(old).to_dict() == now
    with pytest.raises(ValueError, match=r"ledger must have 'format'"):
        Ledger.from_dict(at(now, ["format"], ...))  # 0.1.0 did not write "infinite"
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
