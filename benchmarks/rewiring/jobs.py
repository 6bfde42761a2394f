"""Jobs of ``rewiring``, with as many bytes as real jobs send. All functions are pure."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from mininet_topos.rewiring.model import Job, sends
from signalbox.models import Model, Parallelism, traffic

SERVERS = 12
FLOAT_BYTES = 4

RESNET_50 = 25_600_000
"""Number of parameters of ResNet-50."""

DENSE_LAYERS, DENSE_WIDTH = 8, 2048
TABLES, ROWS, EMBEDDING, BATCH_PER_SERVER = 64, 20_000, 128, 1024
"""Sizes of ``recommender``'s model. Each training example looks up one row of each table."""

GPT2_SMALL = {
    "layers": 12,
    "hidden": 768,
    "heads": 12,
    "vocabulary": 50_257,
    "sequence": 1024,
    "global_batch": 6,
}
DIVIDED = Parallelism(tensor=2, pipeline=2, data=3)


def recommender() -> Job:
    """Return a recommender: large tables in which rows are looked up, and some dense layers.

    It has two parallelizations. With ``hybrid``, each server has some of the tables. All-to-alls send rows to the
    servers that look them up, and their gradients back, and the gradients of the dense layers are all-reduced. With
    ``data``, every server has the whole model, and all gradients are all-reduced."""
    everyone = [{"name": "all", "ranks": list(range(SERVERS))}]
    dense = DENSE_LAYERS * DENSE_WIDTH**2 * FLOAT_BYTES
    tables = TABLES * ROWS * EMBEDDING * FLOAT_BYTES
    looked_up = BATCH_PER_SERVER * TABLES * EMBEDDING * FLOAT_BYTES
    return {
        "parallelizations": [
            {
                "name": "data",
                "groups": everyone,
                "collectives": [sends("all_reduce", ["all"], dense + tables)],
            },
            {
                "name": "hybrid",
                "groups": everyone,
                "collectives": [sends("all_to_all", ["all"], 2 * looked_up), sends("all_reduce", ["all"], dense, 1)],
            },
        ]
    }


def cnn() -> Job:
    """Return the training of ResNet-50, which all-reduces its gradients."""
    everyone = [{"name": "all", "ranks": list(range(SERVERS))}]
    return {"groups": everyone, "collectives": [sends("all_reduce", ["all"], RESNET_50 * FLOAT_BYTES)]}


def transformer() -> Job:
    """Return the training of GPT-2 small in tensor, pipeline and data parallel (docs/reference/model-traffic.md)."""
    found = traffic(Model.model_validate(GPT2_SMALL), DIVIDED, [f"10.0.0.{1 + rank}" for rank in range(SERVERS)])
    return {
        "groups": [group.model_dump(mode="json") for group in found.groups],
        "collectives": [each.model_dump(mode="json") for each in found.collectives],
        "transfers": [each.model_dump(mode="json") for each in found.transfers],
    }


JOBS: Mapping[str, Callable[[], Job]] = MappingProxyType(
    {"recommender": recommender, "cnn": cnn, "transformer": transformer}
)
