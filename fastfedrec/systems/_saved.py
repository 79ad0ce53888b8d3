"""A model file as its class reads it: each field is looked at before use, and none is left over."""

import copy
import math
import os
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastfedrec.accounting import CommunicationLedger, Ledger, RoundTraffic
from fastfedrec.core.check import check_integer, check_real
from fastfedrec.core.model_files import ObjectColumn, as_written, not_a_model, read_model
from fastfedrec.data.csr import check_csr, check_fields
from fastfedrec.data.features import FeatureTable
from fastfedrec.data.ids import axis_ids
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.repeats import ARRAYS, Repeats, file_of
from fastfedrec.rounds.system import ArrayRule

_MOST_BYTES = 2**62  # of a round's traffic
#: Fields of the interactions that every file has, and those that it has where they do.
DATA = ("indptr", "indices", "user_ids", "item_ids", "global_user_ids")
DATA_IF_ANY = ("values", "timestamps")
AXES = ("user", "item")
_REPEATS = ("rule", "above", "is_binary")  # of `Repeats`, beside its arrays


def data_fields(
    data: Interactions, *, with_features: bool
) -> tuple[dict[str, Any], dict[str, np.ndarray | ObjectColumn]]:
    """What the header and the arrays of a file say of interactions; warns of feature columns that none can hold."""
    rows = {f"data.{name}": getattr(data, name) for name in (*DATA, *DATA_IF_ANY)}
    arrays: dict[str, np.ndarray | ObjectColumn] = {name: array for name, array in rows.items() if array is not None}
    names: dict[str, list[str]] = {axis: [] for axis in AXES}
    for axis in AXES if with_features else ():
        for name, column in getattr(data, f"{axis}_features").items():
            if (written := as_written(column)) is not None:
                arrays[f"data.{axis}_feature.{len(names[axis])}"] = written
                names[axis].append(name)
            else:
                warnings.warn(
                    f"{axis}_features[{name!r}] is not saved: it holds what is no number, string, date or tuple of "
                    "numbers and strings; keep it elsewhere, or make lists and sets tuples, and others text",
                    stacklevel=3,
                )
    header: dict[str, Any] = {"catalogue": data.catalogue, "columns": names}
    if (repeats := data._repeats) is not None:  # a split by time of the loaded model's data divides the same rows
        header["repeats"] = {name: getattr(repeats, name) for name in _REPEATS}
        of_rows = {f"data.{file_of(name)}": getattr(repeats, name) for name in ARRAYS}
        arrays |= {name: array for name, array in of_rows.items() if array is not None}
    return header, arrays


class SavedModel:
    """What a file says, until all of it has been asked for.

    Parameters
    ----------
    path : path-like
        The file.

    Raises
    ------
    ValueError
        Not a model of this package.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self._path = path
        self._header, self._arrays = read_model(path)
        self.class_name = self.text("class")

    def error(self, field: str, reason: object) -> ValueError:
        """What to raise about a field."""
        return not_a_model(self._path, f"{field}: {reason}")

    # ---- the header ---------------------------------------------------------------------------------------------

    def value(self, name: str, *default: Any) -> Any:
        """A field, once."""
        if name not in self._header and not default:
            raise self.error(name, "it is missing")
        return self._header.pop(name, *default)

    def text(self, name: str, *default: str) -> str:
        """A field that is a string."""
        value = self.value(name, *default)
        if type(value) is not str:
            raise self.error(name, f"must be a string, got {type(value).__name__}")
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        """A field that is a mapping."""
        value = self.value(name)
        if type(value) is not dict:
            raise self.error(name, f"must be a mapping, got {type(value).__name__}")
        return value

    def integer(self, name: str, *, low: int, high: int = _MOST_BYTES) -> int:
        """A field that is a whole number."""
        return check_integer(name, self._number(name, self.value(name)), low=low, high=high)

    def real(self, name: str, *, low: float | None = None) -> float:
        """A field that is a finite number."""
        return check_real(name, self._number(name, self.value(name)), low=low)

    def list_of(self, name: str, length: int) -> list[Any]:
        """A field that is a list."""
        value = self.value(name)
        if type(value) is not list or len(value) != length:
            raise self.error(name, f"must be a list of {length}, got {str(value)[:60]}")
        return value

    def _number(self, name: str, value: Any) -> Any:
        if type(value) not in (int, float):
            raise self.error(name, f"must be a number, got {str(value)[:60]}")
        return value

    def parameters(self, known: list[str]) -> dict[str, Any]:
        """The constructor's arguments; it checks them."""
        given = self.mapping("parameters")
        if unknown := sorted(given.keys() - set(known)):
            raise self.error("parameters", f"a {self.class_name} has no {unknown}")
        # JSON has lists only; a sequence among the parameters is a tuple.
        return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}

    def part(self, name: str) -> "SavedModel":
        """The rest of the file as that of a model within, whose class and parameters a field holds."""
        given = self.mapping(name)
        if given.keys() != {"class", "parameters"} or type(given["class"]) is not str:
            raise self.error(name, f"must have a class and parameters, got {str(given)[:60]}")
        inner = copy.copy(self)
        inner.class_name, inner._header = given["class"], self._header | {"parameters": given["parameters"]}
        self._header, self._arrays = {}, {}
        return inner

    def ledger(self) -> Ledger:
        """What the fit cost."""
        document = self.mapping("ledger")
        try:
            return Ledger.from_dict(document, check_costs=False)
        except Exception as error:
            raise self.error("ledger", error) from error

    def communication(self) -> CommunicationLedger:
        """What each round moved."""
        rounds = self.value("rounds")
        if type(rounds) is not list:
            raise self.error("rounds", f"must be a list, got {type(rounds).__name__}")
        for traffic in rounds:
            if type(traffic) is not list or len(traffic) != 3:
                raise self.error("rounds", f"must have three numbers each, got {str(traffic)[:60]}")
            for number in traffic:
                if type(number) not in (int, float) or not 0 <= number <= _MOST_BYTES:
                    raise self.error("rounds", f"must be numbers of at least 0, got {str(number)[:60]}")
        return CommunicationLedger([RoundTraffic(*traffic) for traffic in rounds])

    # ---- the arrays ---------------------------------------------------------------------------------------------

    def has_array(self, name: str) -> bool:
        """Whether there is one that has not been asked for."""
        return name in self._arrays

    def array(self, name: str, rule: ArrayRule | None = None) -> np.ndarray:
        """An array, once, that keeps a rule; without one, any vector."""
        if name not in self._arrays:
            raise self.error(name, "it is missing")
        array = self._arrays.pop(name)
        violation = rule.violation(array) if rule is not None else None
        if rule is None and array.ndim != 1:
            violation = f"must have 1 dimension, got shape {array.shape}"
        if violation is not None:
            raise self.error(name, violation)
        return array

    def interactions(self) -> Interactions:
        """What the model was fitted on."""
        fields: dict[str, Any] = {name: self.array(f"data.{name}") for name in DATA}
        for name in DATA_IF_ANY:
            fields[name] = self.array(f"data.{name}") if f"data.{name}" in self._arrays else None
        names = self.value("columns", dict.fromkeys(AXES, ()))
        if type(names) is not dict or names.keys() != set(AXES):
            raise self.error("columns", f"must be those of {AXES}, got {str(names)[:60]}")
        for axis, of_axis in names.items():
            if type(of_axis) not in (list, tuple) or not all(type(name) is str for name in of_axis):
                raise self.error("columns", f"must be lists of names, got {str(of_axis)[:60]}")
            if len(set(of_axis)) < len(of_axis):
                raise self.error("columns", f"must be named once each, got {str(of_axis)[:60]}")
            columns = {name: self.array(f"data.{axis}_feature.{number}") for number, name in enumerate(of_axis)}
            fields[f"{axis}_features"] = columns
        try:
            # Of a file that does not say where its items come from: the worst case.
            fields["catalogue"] = self.text("catalogue", "data")
            repeats = self._repeats(len(fields["indices"]))
            return Interactions._trusted(check_fields(fields, aligned=True) | repeats)
        except Exception as error:
            raise self.error("data", error) from error

    def _repeats(self, n_interactions: int) -> dict[str, Repeats]:
        """The rows of pairs that were merged from several; files without repeated pairs have none."""
        if (header := self.value("repeats", None)) is None:
            return {}
        if type(header) is not dict or header.keys() != set(_REPEATS) or type(header["is_binary"]) is not bool:
            raise ValueError(f"repeats must have {', '.join(_REPEATS)}, got {str(header)[:60]}")
        names = {name: f"data.{file_of(name)}" for name in ARRAYS}
        fields: dict[str, Any] = {"values": None} | header
        fields |= {name: self.array(of) for name, of in names.items() if name != "values" or of in self._arrays}
        return {"repeats": Repeats(**fields).check_within(n_interactions)}

    def features(self, side: str, names: Any, n_entries: int) -> FeatureTable:
        """The values of some features, for each of so many entries."""
        if type(names) is not list or not all(type(name) is str for name in names):
            raise self.error("features", f"must be lists of names, got {str(names)[:60]}")
        values = tuple(self.array(f"features.{side}.{number}") for number in range(len(names)))
        table = FeatureTable(
            tuple(names),
            values,
            n_entries,
            self.array(f"features.{side}.indptr", ArrayRule(np.int64, (n_entries * len(names) + 1,))),
            self.array(f"features.{side}.indices", ArrayRule(np.int32, (None,))),
        )
        try:
            check_csr(table.indptr, table.indices, None, table.n_values)
            for vocabulary in values:
                axis_ids("values", vocabulary, None)
        except Exception as error:
            raise self.error(f"features.{side}", error) from error
        return table

    def close(self) -> None:
        """Raise where something was not asked for."""
        if left := sorted([*self._header, *self._arrays]):
            raise self.error(", ".join(left), f"a {self.class_name} has no such field")


def finite_or_none(number: float) -> float | None:
    """A number as JSON has it."""
    return float(number) if math.isfinite(number) else None


def rules_of(dtype: type, **shapes: tuple[int | None, ...]) -> Mapping[str, ArrayRule]:
    """Rules of arrays that have one type, by name."""
    return {name: ArrayRule(dtype, shape) for name, shape in shapes.items()}
