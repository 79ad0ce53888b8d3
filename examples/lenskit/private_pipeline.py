"""A component of LensKit that scores items by any model of fastfedrec, in LensKit's own pipeline."""

from typing import Any

import numpy as np
from lenskit.data import Dataset, ItemList, QueryInput, RecQuery, Vocabulary, from_interactions_df
from lenskit.pipeline import Component, Pipeline, topn_pipeline
from lenskit.training import Trainable, TrainingOptions
from pydantic import BaseModel

import fastfedrec
from fastfedrec import Interactions, Key, datasets


class SystemConfig(BaseModel):
    """Name of the model's class, and the arguments of its constructor."""

    system: str = "DPGram"
    parameters: dict[str, Any] = {}


class SystemScorer(Component[ItemList], Trainable):
    """Scores by a model, which `model_` holds after the training, with its ledger."""

    config: SystemConfig

    def train(self, data: Dataset, options: TrainingOptions = TrainingOptions()) -> None:  # noqa: B008
        """Fit the model; the noise comes from entropy, never from the seed of the options."""
        if hasattr(self, "model_") and not options.retrain:
            return
        # The items are those of the interactions, so the ledger states that no guarantee covers the list of items.
        frame = data.interaction_table(format="pandas", original_ids=True)
        interactions = Interactions.from_dataframe(frame, user="user_id", item="item_id")
        self.model_ = getattr(fastfedrec, self.config.system)(**self.config.parameters).fit(interactions)
        self.items_ = Vocabulary(interactions.item_ids, "item", reorder=False)

    def __call__(self, query: QueryInput, items: ItemList) -> ItemList:
        """Return the items with scores; unknown users and items have NaN."""
        user, scores = RecQuery.create(query).user_id, np.full(len(items), np.nan)
        numbers = items.numbers(vocabulary=self.items_, missing="negative")
        if user in self.model_.interactions_.user_ids:
            scores[numbers >= 0] = self.model_.score_items([user])[0][numbers[numbers >= 0]]
        return ItemList(items, scores=scores)


def private_pipeline(epsilon: float) -> Pipeline:
    """Return a pipeline with a private model."""
    return topn_pipeline(SystemScorer(system="DPGram", parameters={"epsilon": epsilon}), n=10)


if __name__ == "__main__":
    table = datasets.generate_implicit(2_000, 300, key=Key.from_seed(1)).to_dataframe()
    pipeline = private_pipeline(4.0)
    pipeline.train(from_interactions_df(table.rename(columns={"user": "user_id", "item": "item_id"})))
    print(pipeline.run("recommender", query=table["user"][0]).to_df())
    print(pipeline.node("scorer").component.model_.ledger_.summary())
