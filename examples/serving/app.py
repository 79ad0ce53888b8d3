"""A REST service of a saved model that stores and logs nothing about users.

Save a model with ``fit --out model.npz --no-users``, then ``MODEL=model.npz uvicorn app:app --no-access-log``.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import fastapi
import pydantic

import fastfedrec
from fastfedrec.core.threads import one_blas_thread

Id = pydantic.StrictInt | pydantic.StrictStr


class Query(pydantic.BaseModel, extra="forbid"):
    """Items of one user, in the body of a request, since addresses are logged on the way."""

    items: Annotated[list[Id], pydantic.Field(max_length=10_000)]
    exclude: Annotated[list[Id], pydantic.Field(max_length=10_000)] = []
    n: Annotated[int, pydantic.Field(ge=1, le=1_000)] = 10


def create_app(path: str) -> fastapi.FastAPI:
    """Return the service of a saved model."""
    model = fastfedrec.load(path)

    @asynccontextmanager
    async def lifespan(_: fastapi.FastAPI) -> AsyncIterator[None]:
        with one_blas_thread():  # otherwise every request sets and restores this limit
            yield

    app = fastapi.FastAPI(title="fastfedrec", lifespan=lifespan)

    @app.post("/recommend")
    def recommend(query: Query) -> dict[str, Any]:  # without async: requests run on several threads
        try:
            ids, scores = model.recommend_for(query.items, query.n, exclude=[query.exclude], unknown="skip")
        except (TypeError, ValueError) as error:  # for the caller alone: the message may name an item
            raise fastapi.HTTPException(422, str(error)) from None
        known = scores[0] > float("-inf")
        return {"items": ids[0, known].tolist(), "scores": scores[0, known].tolist()}

    @app.get("/privacy")
    def privacy() -> dict[str, Any]:
        return model.ledger_.to_dict()

    @app.get("/health")
    def health() -> dict[str, Any]:
        return {"model": type(model).__name__, "items": model.interactions_.n_items}

    return app


if "MODEL" in os.environ:
    app = create_app(os.environ["MODEL"])
