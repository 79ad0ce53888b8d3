"""A small table of plays as text, and files of tables."""

PLAYS = 'who,what,stars,when,note\nann,7,4.5,978300760,"loud, long"\nbob,7,0,,\nann,12,3,978302109,"a ""q"""\n'


def write(tmp_path, text, name="table.csv"):
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path
