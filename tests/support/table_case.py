"""A small table of plays as text, files of tables, and the rows of interactions."""

import numpy as np

PLAYS = 'who,what,stars,when,note\nann,7,4.5,978300760,"loud, long"\nbob,7,0,,\nann,12,3,978302109,"a ""q"""\n'


def table_of(data):
    users = np.repeat(data.user_ids, data.interactions_per_user()).tolist()
    times = [None] * len(users) if data.timestamps is None else data.timestamps.tolist()
    rows = zip(users, data.item_ids[data.indices].tolist(), data.values_or_ones().tolist(), times, strict=True)
    return sorted(rows, key=repr)


def write(tmp_path, text, name="table.csv"):
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path
