"""Tests of splits by time, which divide the rows of repeated pairs: each part is merged from its rows."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.evaluation_case import KEY

from fastfedrec import EASE, Interactions, ItemKNN, Key, choose_items
from fastfedrec.cli.main import main
from fastfedrec.data.merging import DUPLICATES
from fastfedrec.data.store import open_interactions, store_interactions
from fastfedrec.datasets import load_adjacency, load_table, store_table
from fastfedrec.evaluation import LeaveOneOut, RandomHoldout, TemporalSplit, UserHoldout, evaluate

RULES = [rule for rule in DUPLICATES if rule != "error"]
AXES = {"user_ids": range(3), "item_ids": range(4)}


@st.composite
def tables(draw):
    """Columns of 2 to 14 rows in any order, with values or without, and at least two times."""
    n = draw(st.integers(2, 14))

    def column(low, high):
        return np.array(draw(st.lists(st.integers(low, high), min_size=n, max_size=n)))

    times = column(0, 6)
    times[:2] = 0, 6
    values = column(-2, 4).astype(float) if draw(st.booleans()) else None
    return column(0, 2), column(0, 3), values, times


def merged(table, rows, rule):
    return Interactions.from_arrays(
        *(None if column is None else column[rows] for column in table), duplicates=rule, **AXES
    )


def entries(data):
    """(user, item): (value, time) of each pair, by ids."""
    users = np.repeat(data.user_ids, data.interactions_per_user()).tolist()
    pairs = zip(users, data.item_ids[data.indices].tolist(), strict=True)
    return dict(zip(pairs, zip(data.values_or_ones().tolist(), data.timestamps.tolist(), strict=True), strict=True))


def assert_same(actual, expected):
    assert entries(actual) == entries(expected)
    assert (actual.values is None) == (expected.values is None)


def assert_parts(table, rule, is_test, train, test):
    """Assert that train is made of its rows, and test too, without pairs that a row rule puts into train."""
    assert_same(train, merged(table, ~is_test, rule))
    actual, expected = entries(test), entries(merged(table, is_test, rule))
    assert actual.items() <= expected.items()
    may_lack = entries(train).keys() if rule in ("first", "last", "earliest") else set()
    assert expected.keys() - actual.keys() <= may_lack


# ---- against the rows ------------------------------------------------------------------------------------------------


@given(tables(), st.integers(1, 6), st.sampled_from(RULES))
@settings(deadline=None)
def test_a_temporal_split_is_that_of_the_rows(table, time, rule):
    data = merged(table, slice(None), rule)
    if data.timestamps.max() < time:  # no row that the rule selects is a test row
        return
    train, test = next(TemporalSplit(time=time).split(data))
    assert_parts(table, rule, table[3] >= time, train, test)


@given(tables(), st.sampled_from(["sum", "mean", "max"]), st.floats(0.05, 0.95))
@settings(deadline=None)
def test_a_share_is_of_rows(table, rule, share):
    split = next(TemporalSplit(share=share).split(merged(table, slice(None), rule)))
    # The split time minimizes the distance to the share; the later time wins a tie.
    counts = [(abs(int((table[3] >= time).sum()) - share * len(table[3])), -time) for time in np.unique(table[3])[1:]]
    assert_parts(table, rule, table[3] >= -min(counts)[1], *split)


@given(tables(), st.sampled_from(["sum", "mean", "max", "latest"]))
@settings(deadline=None)
def test_leave_one_out_takes_the_latest_row(table, rule):
    users, items, values, times = table
    table = users, items, values, times * len(times) + np.arange(len(times))  # no two at one time
    train, test = next(LeaveOneOut(latest=True).split(merged(table, slice(None), rule), key=KEY))
    is_test = np.zeros(len(users), dtype=bool)
    for user in np.unique(users):
        rows = np.flatnonzero(users == user)
        # A user with one row keeps it in train.
        is_test[rows[np.argmax(table[3][rows])]] = len(rows) > 1
    assert_parts(table, rule, is_test, train, test)


@given(tables(), st.integers(0, 2))
@settings(deadline=None)
def test_a_user_holdout_tests_the_latest_rows(table, n_given):
    users, items, values, times = table
    table = users, items, values, times * len(times) + np.arange(len(times))
    data = merged(table, slice(None), "sum")
    if (np.bincount(users) > n_given).sum() < 1 or len(np.unique(users)) < 2:
        return
    train, test, given_part = next(UserHoldout(0.5, n_given, latest=True).split(data, key=KEY))
    for user in test.user_ids:
        rows = np.flatnonzero(users == user)
        rows = rows[np.argsort(table[3][rows])]
        for part, selected in ((given_part, rows[:n_given]), (test, rows[n_given:])):
            actual = {pair: of for pair, of in entries(part).items() if pair[0] == user}
            assert actual == entries(merged(table, selected, "sum"))
    assert not set(train.user_ids) & set(test.user_ids)


@given(tables(), st.integers(1, 6), st.integers(1, 6), st.sampled_from(RULES))
@settings(deadline=None)
def test_a_part_is_split_as_its_rows_are(table, first, second, rule):
    data = merged(table, slice(None), rule)
    later, earlier = max(first, second), min(first, second)
    if data.timestamps.max() < later:
        return
    train = next(TemporalSplit(time=later).split(data)).train
    if not (train.timestamps >= earlier).any():
        return
    assert_same(next(TemporalSplit(time=earlier).split(train)).train, merged(table, table[3] < earlier, rule))


# ---- selections between the table and the split ----------------------------------------------------------------------


@given(tables(), st.permutations(range(3)), st.lists(st.booleans(), min_size=4, max_size=4), st.integers(1, 6))
@settings(deadline=None)
def test_selections_keep_the_rows(table, order, items, time):
    data = merged(table, slice(None), "sum").select_users(order[:2]).select_items(np.array(items))
    selected = np.isin(table[0], order[:2]) & np.array(items)[table[1]]
    before, after = selected & (table[3] < time), selected & (table[3] >= time)
    if before.any() and after.any():
        train, test = next(TemporalSplit(time=time).split(data))
        for part, rows in ((train, before), (test, after)):
            assert entries(part) == entries(merged(table, rows, "sum"))


def test_shards_copies_stores_and_chosen_items_keep_the_rows(tmp_path):
    rng = np.random.default_rng(1)
    table = rng.integers(0, 3, 60), rng.integers(0, 4, 60), rng.integers(1, 6, 60).astype(float), rng.permutation(60)
    data = merged(table, slice(None), "mean")
    expected = entries(merged(table, table[3] < 40, "mean"))
    store_interactions(data, tmp_path / "stored")
    stored = open_interactions(tmp_path / "stored")
    chosen = choose_items(data, 4, epsilon=50.0, key=Key.from_seed(1))
    for copy in (pickle.loads(pickle.dumps(data)), stored, pickle.loads(pickle.dumps(stored)), chosen):
        assert entries(next(TemporalSplit(time=40).split(copy)).train) == expected
    for whole in (data, stored):
        actual = {}
        for shard in pickle.loads(pickle.dumps(whole.shard(2))):
            actual |= entries(next(TemporalSplit(time=40).split(shard)).train)
        assert actual == expected


def test_a_threshold_applies_to_the_rows_of_each_part():
    # Item 7 is played once before the moment and twice after it; item 8 twice and never again.
    data = Interactions.from_arrays([1] * 5, [7, 7, 7, 8, 8], timestamps=[1, 6, 7, 2, 3])
    train, test = next(TemporalSplit(time=5).split(data.binarize(1)))
    assert (train.item_ids[train.indices].tolist(), test.item_ids[test.indices].tolist()) == ([8], [7])
    assert train.values is test.values is None
    rated = Interactions.from_arrays([1, 1, 1], [7, 7, 8], [-1.0, 3.0, 2.0], [1, 6, 2], duplicates="latest")
    train, test = next(TemporalSplit(time=5).split(rated.positive()))
    assert (entries(train), entries(test)) == ({(1, 8): (2.0, 2)}, {(1, 7): (3.0, 6)})
    train = next(TemporalSplit(time=5).split(rated)).train
    assert entries(train) == {(1, 7): (-1.0, 1), (1, 8): (2.0, 2)}


def test_random_splits_keep_pairs_whole_and_data_without_repeats_store_no_rows():
    data = Interactions.from_arrays([1] * 6, [7, 7, 8, 8, 9, 9], timestamps=range(6))
    for splitter in (LeaveOneOut(), RandomHoldout(share=0.5)):
        train, test = next(splitter.split(data, key=KEY))
        assert not set(train.indices) & set(test.indices)
    assert data._repeats is not None
    unique_pairs = Interactions.from_arrays([1, 1], [7, 8], timestamps=[1, 2])
    assert unique_pairs._repeats is None
    assert Interactions.from_arrays([1, 1], [7, 7])._repeats is None  # no split by time is possible
    train, _ = next(TemporalSplit(time=2).split(unique_pairs))
    assert train._repeats is None


# ---- the programs of the report --------------------------------------------------------------------------------------


def test_earlier_rows_stay_in_train():
    f = pd.DataFrame(
        {"user": [1, 1, 1, 2, 2], "item": ["tea", "jam", "tea", "tea", "rum"], "timestamp": [1, 2, 9, 3, 8]}
    )
    for data in (f, Interactions.from_dataframe(f, timestamp="timestamp")):
        train, test = next(TemporalSplit(time=5).split(data))
        assert entries(train) == {(1, "tea"): (1, 1), (1, "jam"): (1, 2), (2, "tea"): (1, 3)}
        assert entries(test) == {(1, "tea"): (1, 9), (2, "rum"): (1, 8)}


def listeners(rng):
    """Generate plays by users who return to songs that they know."""
    n_users, n_plays, n_items = 300, 40, 120
    tastes = rng.integers(0, 4, n_users)
    users, items = np.repeat(np.arange(n_users), n_plays), np.empty(n_users * n_plays, dtype=int)
    for user in range(n_users):
        known = []
        for play in range(n_plays):
            if known and rng.random() < 0.7:
                item = known[rng.integers(len(known))]
            else:
                item = (rng.zipf(1.4) * 4 + tastes[user]) % n_items
            known.append(item)
            items[user * n_plays + play] = item
    return users, items, rng.permutation(len(users))


def test_figures_are_those_of_two_frames_split_by_hand():
    users, items, times = listeners(np.random.default_rng(3))
    frame = pd.DataFrame({"user": users, "item": items, "timestamp": times})
    moment = int(0.8 * len(times))
    by_hand = frame[frame.timestamp < moment], frame[frame.timestamp >= moment]
    split = next(TemporalSplit(share=0.2).split(frame))
    assert split.train.n_interactions == len(by_hand[0].drop_duplicates(["user", "item"]))
    by_hand = [Interactions.from_dataframe(part, timestamp="timestamp") for part in by_hand]
    for model in (EASE(), ItemKNN()):
        actual, expected = (
            evaluate(model.fit(train), train, test, metrics=["recall@10", "ndcg@10"])
            for train, test in ((part.binarize() for part in parts) for parts in (split, by_hand))
        )
        assert (dict(actual), actual.dropped) == (dict(expected), expected.dropped)
        assert actual.n_interactions == expected.n_interactions
    assert actual.dropped["seen_again"] > actual.n_interactions  # users know most test items


def test_earliest_is_the_protocol_of_discovery():
    users, items, times = listeners(np.random.default_rng(4))
    newest_first = np.argsort(-times)
    data = Interactions.from_arrays(
        users[newest_first], items[newest_first], timestamps=times[newest_first], duplicates="earliest"
    )
    first = pd.DataFrame({"user": users, "item": items, "timestamp": times}).sort_values("timestamp")
    first = first.drop_duplicates(["user", "item"], keep="first")
    assert entries(data) == {(u, i): (1.0, t) for u, i, t in first.itertuples(index=False)}
    train, test = next(LeaveOneOut(latest=True).split(data, key=KEY))
    assert entries(test).keys() == {(u, i) for u, i, _ in first.groupby("user").tail(1).itertuples(index=False)}
    assert not entries(train).keys() & entries(test).keys()


# ---- rules by time ---------------------------------------------------------------------------------------------------


def test_earliest_and_latest_go_by_time_and_among_equal_times_by_rows():
    rows = [1] * 5, [7, 7, 7, 8, 8], [3.0, 4.0, 5.0, 1.0, 2.0], [9, 2, 2, 6, 6]
    for rule, expected in {
        "earliest": {(1, 7): (4.0, 2), (1, 8): (1.0, 6)},
        "latest": {(1, 7): (3.0, 9), (1, 8): (2.0, 6)},
        "first": {(1, 7): (3.0, 9), (1, 8): (1.0, 6)},
        "last": {(1, 7): (5.0, 2), (1, 8): (2.0, 6)},
    }.items():
        assert entries(Interactions.from_arrays(*rows, duplicates=rule)) == expected


@pytest.mark.parametrize("rule", ["earliest", "latest"])
def test_rules_by_time_need_times(rule, tmp_path):
    path = tmp_path / "plays.csv"
    path.write_text("user,item\n1,7\n2,8\n")
    (lists := tmp_path / "lists.txt").write_text("1 7\n2 8\n")
    frame = pd.DataFrame({"user": [1, 2], "item": [7, 8]})
    for call in (
        lambda: Interactions.from_arrays([1, 2], [7, 8], duplicates=rule),
        lambda: Interactions.from_dataframe(frame, duplicates=rule),
        lambda: load_table(path, duplicates=rule),
        lambda: store_table(path, tmp_path / "stored", duplicates=rule),
        lambda: load_adjacency(lists, duplicates=rule),
    ):
        with pytest.raises(ValueError, match=f"timestamps must be given for duplicates='{rule}', got none; pass them"):
            call()
    with pytest.raises(ValueError, match=f"must be known for duplicates='{rule}', got 1 that are missing; drop those"):
        Interactions.from_arrays([1, 1, 2], [7, 7, 8], timestamps=[None, 3, None], duplicates=rule)


def test_a_row_of_a_repeated_pair_without_its_time_is_refused():
    data = Interactions.from_arrays([1, 1, 2], [7, 7, 8], timestamps=[None, 3, 4])
    with pytest.raises(ValueError, match=r"1 of 3 .* are missing"):
        TemporalSplit(time=4).split(data)


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_values", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_tables_in_memory_and_on_disk_are_split_alike(rule, has_values, tmp_path, monkeypatch):
    rng = np.random.default_rng(5)
    n = 300
    frame = pd.DataFrame(
        {"user": rng.integers(0, 20, n), "item": rng.integers(0, 9, n), "timestamp": rng.permutation(n)}
    )
    if has_values:
        frame["value"] = rng.integers(1, 6, n) / 2
    frame.to_csv(tmp_path / "plays.csv", index=False)
    loaded = load_table(tmp_path / "plays.csv", duplicates=rule)
    monkeypatch.setattr("fastfedrec.datasets.stored_tables._BLOCK", 64)  # several ranges of users
    stored = store_table(tmp_path / "plays.csv", tmp_path / "stored", duplicates=rule)
    table = frame.user.to_numpy(), frame.item.to_numpy(), frame.value.to_numpy() if has_values else None
    for data in (loaded, stored):
        train, test = next(TemporalSplit(time=200).split(data))
        for part, rows in ((train, frame.timestamp < 200), (test, frame.timestamp >= 200)):
            columns = (None if c is None else c[rows] for c in (*table, frame.timestamp.to_numpy()))
            expected = entries(Interactions.from_arrays(*columns, duplicates=rule))
            if part is train or rule not in ("first", "last", "earliest"):
                assert entries(part) == expected


@pytest.mark.parametrize("damage", ["positions", "indptr", "timestamps", "rule"])
def test_damaged_rows_of_a_store_are_refused(damage, tmp_path):
    folder = tmp_path / "stored"
    store_interactions(Interactions.from_arrays([1, 1, 2], [7, 7, 8], timestamps=[1, 2, 3]), folder)
    if damage == "rule":
        document = folder / "interactions.json"
        document.write_text(document.read_text().replace('"sum"', '"product"'))
    else:
        path = folder / f"repeats_{damage}.npy"
        np.save(path, np.array([5]) if damage == "positions" else np.arange(9))
    with pytest.raises(ValueError, match=r"store the (data|interactions) again"):
        open_interactions(folder)


def test_the_command_line_splits_rows(tmp_path, capsys):
    path = tmp_path / "plays.csv"
    path.write_text("user,item,timestamp\nA,2,1\nA,3,2\nA,2,9\nB,2,3\nB,5,8\n")
    for by, train, test in (
        (["temporal", "--time", "5"], ["A,2,1", "A,3,2", "B,2,3"], ["A,2,9", "B,5,8"]),
        (["leave-one-out", "--latest"], ["A,2,1", "A,3,2", "B,2,3"], ["A,2,9", "B,5,8"]),
    ):
        out = tmp_path / by[0]
        assert main(["split", "--data", str(path), "--by", *by, "--out", str(out)]) == 0
        assert (out / "train.csv").read_text().splitlines()[1:] == train
        assert (out / "test.csv").read_text().splitlines()[1:] == test
    capsys.readouterr()


def test_files_of_the_command_line_are_split_by_rows(tmp_path, capsys):
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"user": rng.integers(0, 9, 200), "item": rng.integers(0, 5, 200), "timestamp": range(200)})
    frame.to_csv(tmp_path / "plays.csv", index=False)
    source = tmp_path / "plays.csv"
    for time, by in ((150, ["temporal", "--time", "150"]), (80, ["temporal", "--time", "80"])):
        assert main(["split", "--data", str(source), "--by", *by, "--out", str(tmp_path / str(time))]) == 0
        source = tmp_path / str(time) / "train.csv"
        assert entries(load_table(source)) == entries(
            Interactions.from_dataframe(frame[frame.timestamp < time], timestamp="timestamp")
        )
    rated = tmp_path / "rated.csv"  # ratings are written merged, by the rule that was chosen
    rated.write_text("user,item,value,timestamp\nA,2,4,1\nA,2,5,9\nB,3,1,2\nB,2,3,8\n")
    out = tmp_path / "rated"
    words = ["split", "--data", str(rated), "--duplicates", "latest", "--by", "k-fold", "--folds", "2"]
    assert main([*words, "--out", str(out)]) == 0
    lines = {line for fold in (1, 2) for line in (out / f"fold-{fold}" / "test.csv").read_text().splitlines()}
    assert lines == {"user,item,value,timestamp", "A,2,5,9", "B,3,1,2", "B,2,3,8"}
    capsys.readouterr()


@pytest.mark.parametrize(("rows", "empty"), [([(1, 3.0), (9, 4.0)], "train"), ([(1, 6.0), (9, 4.0)], "test")])
def test_a_part_that_a_threshold_leaves_empty_is_refused(rows, empty):
    times, values = zip(*rows, strict=True)
    data = Interactions.from_arrays([1, 1], ["tea", "tea"], values, timestamps=times, duplicates="sum").binarize(5)
    for split in (TemporalSplit(time=5), TemporalSplit(share=0.5)):
        with pytest.raises(ValueError, match=f"binarize leaves {empty} empty: .* split first, then binarize {empty}"):
            next(split.split(data))
