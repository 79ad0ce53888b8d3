"""Ledgers as JSON: `Ledger.from_json`, its figures, and writing."""

import functools
import json

from support.data import rated
from support.hostile_files import json_changed
from support.models import MODELS, new

from fastfedrec import Key
from fastfedrec.accounting import Ledger
from fuzz.target import ACCOUNTS_BYTES, Target


def seeds():
    """Return each model's ledger."""
    data = rated(12, 40, 1)
    for model in MODELS.values():
        yield new(model).fit(data, key=Key.from_seed(2)).ledger_.to_json().encode()


@functools.cache
def texts():
    """Return all ledgers as text, which are made once."""
    return [content.decode() for content in seeds()]


def read(content, _folder):
    """Read a ledger."""
    return Ledger.from_json(content.decode("utf-8", "replace"))


def use(ledger):
    """Print the ledger, compute its epsilon, and write and read it again."""
    assert Ledger.from_json(ledger.to_json()).to_dict() == ledger.to_dict()
    assert ledger.epsilon("key_holder") >= 0
    assert ledger.summary()


def mutate(random, content):
    """Change values of the document."""
    return json.dumps(json_changed(random, json.loads(content))).encode()


TARGET = Target(
    read=read, use=use, errors=(ValueError,), seeds=seeds, mutate=mutate, memory_bytes=ACCOUNTS_BYTES,
)  # fmt: skip
