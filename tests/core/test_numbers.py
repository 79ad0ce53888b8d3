"""Every number that anything public takes: of each type it is the same number, or refused by the argument's name."""

import inspect
import re
import warnings
from fractions import Fraction

import numpy as np
import pytest
from support import numbers_calls, numbers_case, numbers_exempt
from support.models import CASES
from support.number_kinds import fingerprint, is_number, kinds_of, wrong_kinds
from support.public_calls import CALLS, resolve
from test_conventions import public_objects

import fastfedrec
from fastfedrec import Key, als, load, nmf, ranking

NUMERIC = re.compile(r"\b(int|float|Fraction)\b")
ARRAYS = re.compile(r"_nested_sequence|_dtype_like")  # NumPy 2.0's types of array-likes and dtype-likes
MODELS = {name: case.kind for name, case in CASES.items()}


def numeric_parameters(target):
    """Names of parameters that are annotated with a number."""
    try:
        parameters = inspect.signature(target).parameters.values()
    except ValueError:  # an exception without a constructor of its own
        return []
    return [p.name for p in parameters if is_numeric(str(p.annotation))]


def is_numeric(annotation):
    """Return whether an annotation has a number, alone or with types that are not arrays."""
    if "Callable" in annotation or (ARRAYS.search(annotation) and not NUMERIC.match(annotation)):
        return False
    return bool(NUMERIC.search(annotation))


def run(target, case, **changed):
    bind, arguments = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return fingerprint(bind(target)(**(arguments | changed)))


def complete(target, case):
    """The case with threads and a round where the callable takes them."""
    bind, arguments = case
    named = inspect.signature(target).parameters
    return bind, {name: number for name, number in (("n_threads", 1), ("round", 2)) if name in named} | arguments


def entry(value, kind):
    """A number, or each of a tuple of numbers, in a type."""
    return tuple(kind(v) for v in value) if isinstance(value, tuple) else kind(value)


def misfits(target, case):
    """Yield (argument, kind, result) for each number that is neither used exactly nor rejected by name."""
    case = complete(target, case)
    expected = run(target, case)
    for name, value in case[1].items():
        whole = value if isinstance(value, tuple) else (value,)
        if not whole or not all(map(is_number, whole)):
            continue
        # Only the types that hold every number of a tuple exactly can be tried.
        labels = set.intersection(*({label for label, _ in kinds_of(v)} for v in whole))
        for label in sorted(labels):
            try:
                result = run(target, case, **{name: entry(value, lambda v, k=label: dict(kinds_of(v))[k])})
            except Exception as error:
                yield name, label, repr(error)
                continue
            if result != expected:
                yield name, label, f"not what Python's {value!r} gives"
        # Values such as NaN, a bool or text must raise an error that names the argument.
        for label, _ in wrong_kinds(whole[0]):
            try:
                run(target, case, **{name: entry(value, lambda v, k=label: dict(wrong_kinds(v))[k])})
                yield name, label, "accepted"
            except (TypeError, ValueError) as error:
                if not re.search(rf"\b{name}\b", str(error)):
                    yield name, label, f"not named: {error!r}"
            except Exception as error:
                yield name, label, repr(error)


# ---- Oracle ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "case"),
    [
        pytest.param(*entry, marks=[pytest.mark.slow] * (entry[0] in numbers_exempt.SLOW), id=entry[0])
        for entry in CALLS
    ],
)
def test_a_number_of_any_type_is_the_same_number(name, case):
    assert list(misfits(resolve(name), case)) == []


def model_case(name, more=False):
    parameters = inspect.signature(MODELS[name]).parameters
    numbers = {p: v.default for p, v in parameters.items() if is_number(v.default) or isinstance(v.default, tuple)}
    # Parameters without a numeric default take their values from the system's case.
    case = CASES[name]
    return numbers_calls.call(**numbers | case.numbers | (case.more_numbers if more else {}))


WITH_MORE = [name for name, case in CASES.items() if case.more_numbers]


@pytest.mark.parametrize(("name", "more"), [(name, False) for name in MODELS] + [(name, True) for name in WITH_MORE])
def test_a_model_keeps_pythons_numbers(name, more):
    assert list(misfits(MODELS[name], model_case(name, more))) == []


# ---- Invariants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_set_params_converts_too(name):
    _, given = model_case(name)
    model = MODELS[name](**given)
    expected = fingerprint(model.get_params())
    for parameter, value in given.items():
        if is_number(value):
            kind = np.int64 if isinstance(value, int) else np.float16
            model.set_params(**{parameter: kind(value)})
    assert fingerprint(model.get_params()) == expected


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.numpy_numbers])
def test_a_model_with_numpys_parameters_is_fitted_and_saved(name, tmp_path):
    data = numbers_case.rated() if "grid" in inspect.signature(MODELS[name]).parameters else numbers_case.implicit()
    data = numbers_case.rated() if name == "PrivatePrototypes" else data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        # A file can hold only Python's numbers, so saving shows that the constructor converted them.
        model = MODELS[name](**CASES[name].numpy_numbers).fit(data, key=Key.from_seed(1), n_threads=np.int64(1))
    model.save(tmp_path / "model.npz")
    assert load(tmp_path / "model.npz").get_params() == model.get_params()


def trained(make):
    """Train a network's clients for a number of epochs."""
    bind, arguments = make
    return lambda n: bind(None)(**(arguments | {"n_epochs": n}))


R = numbers_case.rated()
#: Arguments that a kernel stores in 32 bits or multiplies by other counts: name, and a call.
COUNTS = {
    "solve_users": ("cg_steps", lambda n: als.solve_users(
        R, np.ones((40, 2)), regularization=1.0, confidence_weight=1.0, solver="cg", cg_steps=n)),
    "fit_nmf": ("n_sweeps", lambda n: nmf.fit_nmf(R, 2, regularization=1.0, n_sweeps=n, key=Key.from_seed(1))),
    "solve_rows_nonnegative": ("max_sweeps", lambda n: nmf.solve_rows_nonnegative(
        R, np.ones((40, 2)), regularization=1.0, max_sweeps=n)),
    "draw_examples": ("negatives", lambda n: numbers_case.draw_examples(
        R, numbers_case.Events.from_interactions(R), [0, 1], n, key=Key.from_seed(1))),
    "draw_contrastive_examples": ("n_negatives", lambda n: numbers_case.draw_contrastive_examples(
        numbers_case.sequences(), [0, 1], n_negatives=n, key=Key.from_seed(1))),
    "sample_unseen": ("n", lambda n: ranking.sample_unseen(R, [0, 1], n, key=Key.from_seed(1), purpose="x")),
    "FedRec": ("t_local", lambda n: fastfedrec.FedRec(t_local=n)),
    "FMFLDP": ("n_reports", lambda n: fastfedrec.FMFLDP(n_reports=n)),
    "TwoTower": ("n_factors", lambda n: numbers_case.TwoTower(numbers_case.features(), n_factors=n)),
    "TwoTower.train_clients": ("n_epochs",
    trained(numbers_case.FUNCTIONS["compute.networks.two_tower.TwoTower.train_clients"])),
    "GRUEncoder.train_clients": ("n_epochs",
    trained(numbers_case.FUNCTIONS["compute.networks.gru.GRUEncoder.train_clients"])),
    "JointNetwork.train_clients": ("n_epochs", trained(
        numbers_case.FUNCTIONS["compute.networks.joint_loss.JointNetwork.train_clients"])),
    "PrivRec": ("local_epochs", lambda n: fastfedrec.PrivRec(local_epochs=n)),
    "FedRec, rho": ("rho", lambda n: fastfedrec.FedRec(rho=n)),
    "DPPopularity": ("n_reports", lambda n: fastfedrec.DPPopularity(trust="local", n_reports=n)),
    "LaplaceRRSVD": ("n_reports", lambda n: fastfedrec.LaplaceRRSVD(n_reports=n)),
}  # fmt: skip


@pytest.mark.parametrize("number", [2**31, 2**32 + 1, 2**62, 2**63 - 1])
@pytest.mark.parametrize("name", COUNTS)
def test_a_count_that_would_wrap_in_a_kernel_is_refused_by_name(name, number):
    argument, function = COUNTS[name]
    with pytest.raises(ValueError, match=rf"\b{argument} must (be|need) at most"):
        function(number)


#: Invalid arguments of runs, by the argument that the message must name.
IMPOSSIBLE = [
    ("systems.private_prototypes.private_kmeans.private_kmeans", "epsilon", 1.7e308),
    ("systems.private_prototypes.private_kmeans.private_kmeans", "n_swaps", 2**62),
    ("systems.private_prototypes.private_kmeans.clustering_events", "swap_epsilon", 1.7e308),
    ("systems.private_prototypes.private_kmeans.clustering_events", "grid_epsilon", 1.7e308),
    ("systems.private_prototypes.private_kmeans.clustering_events", "n_swaps", 2**63 - 1),
    ("systems.private_prototypes.private_kmeans.clustering_events", "depth", 2**62),
    ("systems.private_prototypes.private_kmeans.clustering_events", "n_shifts", 2**62),
    ("systems.private_prototypes.private_lloyd.private_lloyd", "n_clusters", 2**62),
    ("systems.private_prototypes.private_lloyd.private_lloyd", "epsilon", 1e-320),
    ("systems.private_prototypes.private_lloyd.lloyd_rounds", "epsilon", 1.7e308),
    ("systems.private_prototypes.private_lloyd.round_epsilons", "n_rounds", 2**31),
    ("mechanisms.bounded_rows.grid_candidates", "n_candidates", 2**62),
    ("mechanisms.bounded_rows.grid_candidates", "epsilon", 1e-320),
    ("mechanisms.bounded_rows.project_rows", "n_dimensions", 2**31),
    ("mechanisms.bounded_rows.public_candidates", "n_candidates", 2**62),
    ("mechanisms.bounded_rows.public_candidates", "n_dimensions", 2**62),
    ("mechanisms.ratings.laplace_rr.SerialLaplaceRR", "epsilon_1", 1e-320),
    ("mechanisms.ratings.laplace_rr.SerialLaplaceRR", "epsilon_2", 1e-320),
    ("mechanisms.ratings.laplace_rr.MixtureLaplaceRR", "epsilon_1", 1e-320),
    ("accounting.calibration.calibrate_epsilon_per_report", "count", 2**62),
    ("accounting.calibration.calibrate_noise_multiplier", "count", 2**62),
    ("datasets.generate.generate_implicit", "n_users", 2**62),
    ("datasets.generate_counts.generate_counts", "n_users", 2**62),
    ("datasets.generate_counts.generate_counts", "n_factors", 2**62),
    ("datasets.generate_sequences.generate_sequences", "n_users", 2**62),
    ("systems.fmf.fmf_ldp_rounds.FMFRounds.initial_state", "n_items", 2**33 + 1),
    ("systems.fmf.fmf_ldp_rounds.FMFRounds.report_stream", "n_threads", 2**62),
    ("compute.sgd.fit_factors", "n_users", 2**62),
    ("compute.sgd.fit_factors", "n_items", 2**62),
    ("compute.sgd.fit_factors", "n_factors", 2**62),
    ("testing.assert_clipped", "n_columns", 2**31),
]


@pytest.mark.parametrize(("name", "argument", "number"), IMPOSSIBLE, ids=lambda value: str(value))
def test_what_is_impossible_is_refused_by_the_callers_own_name(name, argument, number):
    bind, arguments = dict(CALLS)[name]
    with pytest.raises(ValueError, match=rf"\b{argument}\b"):
        bind(resolve(name))(**(arguments | {argument: number}))


@pytest.mark.parametrize(
    ("name", "argument", "number"),
    [(name, *pair) for name, case in CASES.items() for pair in case.impossible],
    ids=lambda value: str(value),
)
def test_a_model_that_is_impossible_is_refused_by_its_own_parameters_name(name, argument, number):
    data = numbers_case.rated() if name in ("LaplaceRRSVD", "PrivatePrototypes") else numbers_case.implicit()
    with pytest.raises(ValueError, match=rf"\b{argument}\b"):
        MODELS[name](**(model_case(name)[1] | {argument: number})).fit(data, key=Key.from_seed(1), n_threads=1)


@pytest.mark.parametrize("name", ["DPALS", "DPFMF", "DPGram", "DPSubspace"])
def test_noise_wider_than_64_bits_hold_names_the_budget(name):
    model = MODELS[name](epsilon=1e-300, delta=1e-12)
    with pytest.raises(ValueError, match="epsilon or delta must be larger"):
        model.fit(numbers_case.implicit(), key=Key.from_seed(1))


@pytest.mark.parametrize("name", ["FedRec", "FedRecPlusPlus"])
def test_responses_that_say_nothing_are_refused_by_name(name):
    # With equal probabilities of keeping and adding an item, a response is independent of the data.
    given = {"filling": "randomized_response", "keep_probability": 0.5}
    assert MODELS[name](**given, add_probability=0.25).channel.epsilon > 0
    with pytest.raises(ValueError, match="keep_probability must differ from add_probability"):
        MODELS[name](**given, add_probability=0.5)


@pytest.mark.parametrize("wrong", [None, "a secret", 7, np.uint64(3)], ids=repr)
@pytest.mark.parametrize(
    ("name", "case"), [pytest.param(*entry, id=entry[0]) for entry in CALLS if "key" in entry[1][1]]
)
def test_what_is_no_key_is_refused_by_name(name, case, wrong):
    bind, arguments = case
    target = resolve(name)
    if wrong is None and "None" in str(inspect.signature(target).parameters["key"].annotation):
        wrong = "none"  # None is allowed
    with pytest.raises(TypeError, match=r"\bkey must be Key, got"):
        bind(target)(**(arguments | {"key": wrong}))


def exempt(name):
    return any(
        name == known or name.startswith(f"{known}.") for group in numbers_exempt.EXEMPT.values() for known in group
    )


def uncovered(objects, called, models):
    """Yield (name, parameters) of functions of a number that are neither called nor exempt."""
    for name, value in objects:
        target = getattr(value, "__func__", value)
        if isinstance(target, property):
            continue
        short = name.removeprefix("fastfedrec.")
        wanted = set(numeric_parameters(target)) - numbers_exempt.OMITTED.get(short, set())
        given = set().union(*called.get(short, []), ["n_threads", "round"] if short in called else [])
        if inspect.isclass(target) and target.__name__ in models:
            given |= models[target.__name__]
        elif short not in called and short.rsplit(".", 1)[-1] in ("fit", "serve", "recommend", "personalize"):
            continue  # n_threads of Fit.resolve, and arguments that test_recommender and test_model of PrivRec cover
        if wanted - given and not (exempt(short) and short not in called):
            yield short, sorted(wanted - given)


def inherited_methods():
    """(names, method) of every public method that public classes have from a class of a private module."""
    names = {}
    for name, value in public_objects():
        for method, function in inspect.getmembers(value) if inspect.isclass(value) else []:
            plain = getattr(function, "__func__", function)
            if not method.startswith("_") and inspect.isfunction(plain):
                parts = plain.__module__.split(".")
                if parts[0] == "fastfedrec" and any(part.startswith("_") for part in parts):
                    names.setdefault(plain, []).append(f"{name.removeprefix('fastfedrec.')}.{method}")
    return [(result, method) for method, result in names.items()]


def called_parameters():
    called = {}
    for name, (_, arguments) in CALLS:
        called.setdefault(name, []).append(set(arguments))
    return called


def test_everything_public_that_takes_a_number_is_called():
    models = {name: {"stage1_options"}.union(*(model_case(name, more)[1] for more in (False, True))) for name in MODELS}
    missing = list(uncovered(public_objects(), called_parameters(), models))
    assert not missing, f"no call in tests/support/numbers_case.py (of a system: in its case.py) gives {missing}"


def test_what_public_classes_inherit_is_called():
    called = called_parameters()
    for names, method in inherited_methods():
        given = set().union(*(entry for name in names for entry in called.get(name, [])), ["n_threads", "round"])
        missing = set(numeric_parameters(method)) - given
        assert not missing or method.__name__ in numbers_exempt.CALLED_BY_ENGINES, (names, missing)


def test_a_new_function_is_missed():
    def new(size: int, scale: float = 1.0):
        return size * scale

    # A function without any call is missed, and so is the remaining parameter of one that is called.
    assert list(uncovered([("fastfedrec.new", new)], {}, {})) == [("new", ["scale", "size"])]
    assert list(uncovered([("fastfedrec.new", new)], {"new": [{"size"}]}, {})) == [("new", ["scale"])]


def test_a_wrapped_number_is_seen():
    # The control: a function with arithmetic that overflows in NumPy's types.
    def wraps(n):
        return Fraction(n) * Fraction(n) if not isinstance(n, bool) else 0

    with np.errstate(over="ignore"):
        result = {(label, what) for _, label, what in misfits(wraps, numbers_calls.call(n=100))}
    assert ("int8", "not what Python's 100 gives") in result
    assert ("bool", "accepted") in result
    assert ("nan", "not named: ValueError('cannot convert NaN to integer ratio')") in result
