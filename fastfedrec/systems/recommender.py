"""The base class of all fitted models: parameters, scores, recommendations, files; and `load`."""

import copy
import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from fastfedrec.accounting import CommunicationLedger, Ledger
from fastfedrec.core.check import check_flag
from fastfedrec.core.html import html_card, html_table
from fastfedrec.core.memory import Arrays, Sizes
from fastfedrec.core.model_files import not_a_model, write_model
from fastfedrec.core.names import HOMES, find
from fastfedrec.core.pages import write_page
from fastfedrec.core.parameters import is_same
from fastfedrec.core.text import did_you_mean
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.item_features import ItemFeatures
from fastfedrec.rounds.deployment import OwnDeployment
from fastfedrec.rounds.stored_fit import StoredFit
from fastfedrec.rounds.system import ArrayRule, DeploymentTerms
from fastfedrec.systems._answers import Answers
from fastfedrec.systems._card import make_card
from fastfedrec.systems._inputs import check_interactions, check_not_negative
from fastfedrec.systems._memory import check_fit, memory_needed
from fastfedrec.systems._missing import refuse_attribute
from fastfedrec.systems._refit import refit
from fastfedrec.systems._saved import SavedField, SavedModel, data_fields
from fastfedrec.systems._transaction import Account, Unfinished
from fastfedrec.systems.claims import note_catalogue, note_large_delta

__all__ = ["Recommender", "load"]


class Recommender(Answers):
    """A model of users and items, by external ids.

    Attributes
    ----------
    interactions_ : Interactions
        Data of the fit, after `fit`; each row belongs to its user.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the fit for each user, and of earlier fits of this model that did not finish.
    """

    _registry: ClassVar[dict[str, type["Recommender"]]] = {}

    #: Fitted arrays that `save` writes; without a declaration, those of the class `_serves`.
    _saved: ClassVar[tuple[str, ...]] = ()

    #: Further fields of a file's header, and attributes that a file does not hold.
    _saved_fields: ClassVar[tuple[SavedField, ...]] = ()

    #: Arrays of `_saved` that files of version 0.1.0 lack; they are then read as zeros, which mean "unknown".
    _not_in_0_1_0: ClassVar[tuple[str, ...]] = ()

    #: Whether fits record their rounds in `communication_`.
    _communicates: ClassVar[bool] = False

    #: Whether the model serves users that it was not fitted on, each with the released arrays and the user's row only.
    serves_others: ClassVar[bool] = True
    _instead: ClassVar[str] = "fit it again with the others, or use a model that learns of items"

    #: Conditions of runs with data on nodes, or the deployment of a system with a separate server; None for a model
    #: without such runs.  The noise is drawn as in one process.
    _deployment: ClassVar[DeploymentTerms | type[OwnDeployment] | None] = None

    #: Remedy in the error of a fit that needs too much memory.
    _needs_less: ClassVar[str] = "fit fewer items, or fewer factors if the model has any"

    #: Attribute by constructor argument, if a method has the argument's name.
    _attributes: ClassVar[dict[str, str]] = {}

    interactions_: Interactions
    ledger_: Ledger
    communication_: CommunicationLedger

    _unfinished_: tuple[Unfinished, ...] = ()  # fits that failed, with their costs

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Recommender._registry[cls.__name__] = cls
        if "_serves" in vars(cls) and "_saved" not in vars(cls):
            cls._saved = cls._serves.arrays()

    # ---- parameters, with scikit-learn's interface --------------------------------------------------------------

    def __post_init__(self) -> None:
        """Check the parameters together at the end of every constructor, and so once in every fit."""
        self._check_parameters()

    def _check_parameters(self) -> None:
        """Raise if some parameters do not match each other; the declaration of each one has checked it alone."""

    @classmethod
    @functools.cache  # a fit needs it three times, and an inherited constructor takes .2 ms to inspect
    def _parameter_names(cls) -> list[str]:
        """Return the names of the constructor's arguments."""
        return [p.name for p in inspect.signature(cls).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments.

        Parameters
        ----------
        deep : bool
            Without effect; scikit-learn's tools pass it.

        Returns
        -------
        dict
            Name to value.
        """
        return {name: getattr(self, self._attributes.get(name, name)) for name in self._parameter_names()}

    def __sklearn_tags__(self) -> Any:
        # Only scikit-learn calls this method, so it is installed.
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def set_params(self, **parameters: Any) -> Self:
        """Change constructor arguments, after a check.

        Parameters
        ----------
        **parameters : object
            Name to value.

        Returns
        -------
        Recommender
            This model.
        """
        unknown = sorted(set(parameters) - set(self._parameter_names()))
        if unknown:
            known = self._parameter_names()
            meant = did_you_mean(unknown[0], known)
            raise ValueError(f"unknown parameters {unknown}{meant}; {type(self).__name__} has {known}")
        new = type(self)(**(self.get_params() | parameters)).get_params()
        # The new constructor call has checked all values, so that an invalid one changes nothing.
        vars(self).update({self._attributes.get(name, name): new[name] for name in parameters})
        return self

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({arguments})"

    def _facts(self) -> dict[str, Any]:
        """Return the rows that a notebook shows below the parameters."""
        if "interactions_" not in vars(self):
            return {"data": "not fitted"}
        return {"data": repr(self.interactions_).strip("<>"), "privacy": repr(self.ledger_).strip("<>")}

    def _repr_html_(self) -> str:
        parameters = html_table(("parameter", "value"), [(name, repr(v)) for name, v in self.get_params().items()])
        return html_card(type(self).__name__, self._facts(), *[parameters] * bool(self.get_params()))

    # ---- state --------------------------------------------------------------------------------------------------

    def _unfitted(self) -> Self:
        """Return a new model with these parameters and the costs of unfinished fits, for `fit` to work on."""
        fresh = type(self)(**self.get_params())
        parameters = {self._attributes.get(name, name) for name in self._parameter_names()}
        # A caller may have set attributes, and they are kept; names that begin or end with _ belong to the package.
        names = {name for name in vars(self) if not name.startswith("_") and not name.endswith("_")} - parameters
        # GridSearchCV (1.9) sets this attribute before a fit, and deletes it afterwards.
        names |= {"_parent_callback_ctx"} & vars(self).keys()
        vars(fresh).update({name: getattr(self, name) for name in names})
        if self._unfinished_:
            fresh._unfinished_ = self._unfinished_
        return fresh

    @property
    def _is_private(self) -> bool:
        """Return whether an error may depend on public numbers only, which excludes the number of interactions."""
        return True

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        """Return the large arrays of each step of a fit; empty for a class that does not declare its memory."""
        return ()

    memory_needed = memory_needed
    _check_memory = check_fit

    def _open_account(
        self, ledger: Ledger, data: Interactions, *, simulation: bool, stored: StoredFit | None = None
    ) -> Ledger:
        """Open the account and return the ledger that a fit writes to, before the fit reads users' data."""
        self._account_ = Account(ledger, self._unfinished_, simulation=simulation, stored=stored)
        note_catalogue(ledger, data)
        if delta := getattr(self, "delta", 0.0):
            note_large_delta(ledger, delta, getattr(self, "n_users", None) or data.n_users)
        return ledger

    def _copied_parameters(self) -> dict[str, Any]:
        """Return a deep copy of the parameters; raise if a value cannot be copied."""
        copied = {}
        for name, value in self.get_params().items():
            try:
                copied[name] = copy.deepcopy(value)
            except Exception as error:
                raise TypeError(
                    f"`{name}` must be a value that can be copied, got {value!r}, which cannot ({error}); "
                    "pass a list, dict or array"
                ) from error
        return copied

    def _finish(self, parameters: dict[str, Any] | None = None) -> None:
        """Mark the model as fitted; methods use these parameters (None: the current ones) from here on."""
        self._parameters_ = self._copied_parameters() if parameters is None else parameters

    if not TYPE_CHECKING:  # a type checker would accept every attribute
        __getattr__ = refuse_attribute

    def _fitted(self) -> Self:
        """Return the model with the parameters of its fit, even if `set_params` has changed them."""
        if "interactions_" not in vars(self):
            raise RuntimeError(f"this {type(self).__name__} is not fitted yet; call fit(interactions) first")
        then = vars(self).get("_parameters_", {})  # empty in a callback during the fit
        changed = {
            attribute: value
            for name, value in then.items()
            if not is_same(getattr(self, attribute := self._attributes.get(name, name)), value)
        }
        if not changed:
            return self
        model = copy.copy(self)
        vars(model).update(changed)
        return model

    refit = refit

    def with_users(self, interactions: InteractionsLike) -> Self:
        """Serve other users with the released arrays, without another fit and at no cost to any user.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            The users' data, over the same items and in the form that `fit` takes; a user may have no items.

        Returns
        -------
        Recommender
            A new model for these users.

        Raises
        ------
        TypeError
            The model serves only the users of its fit.
        ValueError
            The items differ from the model's, there is no user, or a model of counts got a value below 0.
        """
        model = self._fitted()
        if not self.serves_others:
            raise TypeError(f"{type(model).__name__} serves only the users it was fitted on; {self._instead}")
        items = model.interactions_.item_ids
        data = check_interactions(interactions, may_be_empty=True, min_users=1, item_ids=items)
        if not hasattr(model, "predict"):  # models of ratings predict, and their values may be negative
            check_not_negative(model, data)
        return model._serving(model._as_fitted(data))

    def _bring(self, read_rows: Callable[[], InteractionsLike]) -> Self:
        # A model that cannot serve other users raises before it reads the rows.
        rows: Any = read_rows() if self.serves_others else None
        return self.with_users(rows)

    def _as_fitted(self, data: Interactions) -> Interactions:
        """Return rows in the form that `fit` uses."""
        return data.binarize()

    def _serving(self, data: Interactions) -> Self:
        """Return a copy that serves these users with the released arrays.

        A subclass sets the arrays that depend on users' rows, each on its own row and no other.
        """
        items = self.interactions_.item_ids
        if data.item_ids is not items and not np.array_equal(data.item_ids, items):
            raise ValueError(
                f"interactions must have the {len(items)} items the model was fitted on, in their order, got "
                f"{data.n_items} others; build them with item_ids=model.interactions_.item_ids"
            )
        model = copy.copy(self)
        model.interactions_ = data
        return model

    def _objection_to_nodes(self) -> str | None:
        """Return why `fit` with these parameters needs all data in one place, or None."""
        return None

    def save(self, path: str | os.PathLike[str], *, include_users: bool = True) -> None:
        """Write the fitted model to one file, without pickle and without keys.

        Parameters
        ----------
        path : path-like
            File to write; an existing file is replaced after the new one is complete, and only a regular file is.
        include_users : bool
            Whether to write users' data as well: ids, interactions with values and timestamps, user factors, and the
            columns of user and item features (with a warning if a file cannot hold one).  No guarantee covers this
            part, so only the file's owner can read the file.  With False the file holds the server's knowledge, which
            may be given away (including the features that the model learned from), and serves users by the
            rows that `with_users` supplies.  A pickle always holds the users.

        Raises
        ------
        RuntimeError
            The model is not fitted.
        ValueError
            `path` is a link, a folder or a device.
        """
        model = self._fitted()
        data = model.interactions_
        if not check_flag("include_users", include_users):
            # The type of ids or values may depend on one user, even in an empty array.
            data = data.select_users(np.empty(0, dtype=np.int64))
            data = data._replace(user_ids=np.empty(0, dtype=np.int64), values=None, timestamps=None, repeats=None)
        fields, arrays = data_fields(data, with_features=include_users)
        arrays |= model._fitted_arrays(include_users)
        header = {"class": type(model).__name__, "parameters": model._saved_parameters()} | fields | model._header()
        write_model(path, self._as_saved(header), arrays, private=include_users)

    def card(
        self,
        path: str | os.PathLike[str],
        *,
        purpose: str | None = None,
        evaluation: Mapping[str, float] | None = None,
    ) -> None:
        """Write a model card: purpose, public sizes, parameters, evaluation, and the ledger's guarantee and limits.

        Only the ledger and `evaluation` have numbers from private data.

        Parameters
        ----------
        path : path-like
            Path that ends in ``.html`` (one file without scripts) or ``.md``.
        purpose : str or None
            Sentences on the intended use.
        evaluation : Evaluation, mapping of str to float, or None
            Metrics of `fastfedrec.evaluation.evaluate`, or of another test; the card states that no epsilon covers
            them.

        Raises
        ------
        RuntimeError
            The model is not fitted.
        TypeError, ValueError
            The purpose is no text, a metric is no finite number, or the path has another ending or is no ordinary file.
        """
        self._fitted()
        write_page(path, make_card(self, purpose, evaluation))

    def _as_saved(self, header: dict[str, Any]) -> dict[str, Any]:
        """Return the header of the file; a wrapper that `_fitted` unwraps adds its own fields."""
        return header

    def _saved_parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments in the form that a file stores: of item features, only their digest."""
        arguments = self.get_params()
        return {name: value.digest if isinstance(value, ItemFeatures) else value for name, value in arguments.items()}

    def _fitted_arrays(self, include_users: bool) -> dict[str, np.ndarray]:
        """Return the arrays of a file, with no user-side rows unless they are included."""
        whole = {name: getattr(self, name) for name in self._saved}
        return {
            f"model.{name}": array if include_users or not name.startswith("user_") else array[:0]
            for name, array in whole.items()
        }

    def _header(self) -> dict[str, Any]:
        """Return the fields of the file's header, which `_read_header` reads."""
        rounds = {"rounds": [astuple(traffic) for traffic in self.communication_.rounds]} if self._communicates else {}
        fields = {f.name: f.write(getattr(self, f"{f.name}_")) for f in self._saved_fields if f.write is not None}
        return {"ledger": self.ledger_.to_dict()} | rounds | fields

    def _read_header(self, saved: SavedModel) -> None:
        """Read the fields that `_header` added, and those that the rules of the arrays depend on."""
        self.ledger_ = saved.ledger()
        if self._communicates:
            self.communication_ = saved.communication()
        for field in self._saved_fields:
            setattr(self, f"{field.name}_", field.read(saved))

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        """Return type, shape and range of the arrays of `_saved`; an array without a rule is a vector of ids."""
        return self._serves.rules(self)

    def _disagreement(self) -> str | None:
        """Return why saved arrays do not match each other, or None if they do."""
        return self._served().disagreement()

    @classmethod
    def _from_saved(cls, saved: SavedModel) -> Self:
        model = cls(**saved.parameters(cls._parameter_names()))
        model.interactions_ = saved.interactions()
        model._read_header(saved)
        rules = model._saved_rules()
        for name in cls._saved:
            rule = rules.get(name)
            if rule is not None and name in cls._not_in_0_1_0 and not saved.has_array(f"model.{name}"):
                array: np.ndarray = np.zeros([n or 0 for n in rule.shape], rule.dtype)
            else:
                array = saved.array(f"model.{name}", rule)
            setattr(model, name, array)
        if reason := model._disagreement():
            raise saved.error("arrays", reason)
        saved.close()
        model._finish()
        return model


def load(path: str | os.PathLike[str]) -> Recommender:
    """Read a model written by its ``save``.

    Parameters
    ----------
    path : path-like
        File that `save` wrote.

    Returns
    -------
    Recommender
        A model of the saved class, ready to score and recommend.

    Raises
    ------
    ValueError
        The file is not a model of this package.
    """
    saved = SavedModel(path)
    name = saved.class_name
    if name in HOMES:
        find(name)  # a class registers itself when its module is imported
    kind = Recommender._registry.get(name)
    if kind is None or inspect.isabstract(kind) or not hasattr(kind, "_serves"):
        raise ValueError(
            f"path {os.fsdecode(path)!r} holds a {name!r}, which this version does not know; load it "
            "with the version that wrote it, or a later one"
        )
    try:
        return kind._from_saved(saved)
    except Exception as error:  # a constructor's message does not name the file
        raise (error if str(error).startswith("path ") else not_a_model(path, error)) from error
