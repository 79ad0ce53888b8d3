"""Text tables, also compressed: `load_table` with usual names of columns, and with positions."""

import gzip
import warnings
from pathlib import Path

from fastfedrec.datasets import load_table
from fuzz.target import Target, check_names

SEEDS = (
    b"user,item,rating,timestamp\n1,10,4.5,978300760\n1,11,3,978302109\n2,10,1,978301968\n",
    b"userId\tmovieId\trating\ttimestamp\nann\tx y\t0.5\t2024-05-01\nbob\tz\t5\t2024-05-02T10:00:00Z\n",
    b"1::1193::5::978300760\r\n1::661::3::978302109\r\n",
    b'sep=;\n"user";"item"\n"a ""b""";"c\nd"\n7; 8 \n',
    b"# edges\nuser item\n0 1\n0 2\n\xe9 3\n",
    "user|item|value\n\u00fc|1|-1e3\n".encode("utf-16"),
    gzip.compress(b"user,item\n1,2\n3,4\n", mtime=0),
)
WORDS = (
    b"user", b"item", b"rating", b"timestamp", b"sep=", b"::", b"\r\n", b'""', b'"\n', b"nan", b"inf", b"1e308",
    b"9223372036854775808", b"-0", b"007", b"2024-02-30", b"T24:00:00Z", b"+25:00", b"\xff\xfe", b"\xef\xbb\xbf",
    b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"PAR1", b"# ", b"\0",
)  # fmt: skip


def load(path: Path):
    """Return the interactions by names, or by positions for a table without them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return load_table(path)
        except KeyError:
            return load_table(path, header=False, user=0, item=1, duplicates="sum", missing_ids="drop")


def read(content, folder):
    """Read a table; a refusal names the file."""
    path = folder / "table"
    path.write_bytes(content)
    try:
        return load(path)
    except (ValueError, KeyError) as error:
        # A position that a line does not have is an error of the argument.
        check_names(error, str(path), "item must be")
        raise


def use(data):
    """Check that the interactions are consistent."""
    assert data.n_interactions <= data.n_users * data.n_items
    assert data.positive().n_interactions <= data.n_interactions


TARGET = Target(read=read, use=use, errors=(ValueError, KeyError), seeds=lambda: SEEDS, words=WORDS)
