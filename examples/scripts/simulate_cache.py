"""How often the cache of re-embedded documents is hit, by its size and by how unequal your queries are.

The cache is the package's own, and so are its keys, its order of eviction and its bookkeeping; the encoder is a fake,
since what a vector holds changes no hit. Queries come as a Zipf stream: the r-th most frequent one with a
probability proportional to 1 / r**s. Every query has a shortlist of its own, drawn at random from the documents, which
is the hard case: the shortlists of a real collection share more. Only queries that exclude something count, since no
other re-embeds anything.

    python examples/scripts/simulate_cache.py            # small
    python examples/scripts/simulate_cache.py --full     # the table of docs/sizing.md, some minutes
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from excise_integrations.encode import TokenVectors
from excise_integrations.encode.cache import VectorCache
from excise_integrations.encode.windows import SHORT_CONTEXT

# Bytes of bookkeeping per document in the cache.
OVERHEAD = 768


def fake_encoder(tokens: int, dim: int) -> Any:
    """Stand in for a backbone in bfloat16 whose documents all have the same number of token vectors."""
    vectors = TokenVectors(torch.zeros(tokens, dim, dtype=torch.bfloat16), (tokens,))
    return SimpleNamespace(
        label="fake",
        dtype=torch.bfloat16,
        device="cpu",
        windows=SHORT_CONTEXT,
        max_tokens=512,
        encode_documents=lambda texts: [vectors] * len(texts),
    )


def stream(queries: int, exponent: float, requests: int, rng: random.Random) -> list[int]:
    """Draw requests, each the number of a query, 0 the most frequent."""
    weights = list(itertools.accumulate(rank**-exponent for rank in range(1, queries + 1)))
    return rng.choices(range(queries), cum_weights=weights, k=requests)


def hit_rate(
    share: float,
    exponent: float,
    *,
    documents: int,
    queries: int,
    requests: int,
    k: int,
    tokens: int = 16,
    dim: int = 128,
    seed: int = 0,
) -> float:
    """Return the share of candidates that were not encoded again, over the second half of the stream.

    Args:
        share: of the documents, how many the cache has room for, in [0, 1].
        exponent: Zipf exponent s, at least 0; 0 makes all queries equally frequent.
        documents, queries: how many there are of each.
        requests: length of the stream; its first half fills the cache and is not counted.
        k: candidates per query.
        tokens, dim: token vectors of a document, and their dimension.
        seed: of the shortlists and the stream.
    """
    rng = random.Random(seed)
    shortlists = [rng.sample(range(documents), k) for _ in range(queries)]
    # What the cache counts: bfloat16 vectors and its bookkeeping.
    cache, encoder = VectorCache(int(share * documents * (tokens * dim * 2 + OVERHEAD))), fake_encoder(tokens, dim)
    order = stream(queries, exponent, requests, rng)
    before = cache.stats()
    for turn, query in enumerate(order):
        if turn == requests // 2:
            before = cache.stats()
        cache.encode([f"document {number}" for number in shortlists[query]], encoder)
    after = cache.stats()
    hits, misses = after.hits - before.hits, after.misses - before.misses
    return hits / (hits + misses)


def table(shares: Sequence[float], exponents: Sequence[float], **counts: int) -> str:
    """Return a Markdown table of hit rates: a row per cache size, a column per exponent."""
    rows = ["| cache has room for | " + " | ".join(f"s = {s}" for s in exponents) + " |", "|---" * (len(exponents) + 1)]
    rows[-1] += "|"
    for share in shares:
        cells = " | ".join(f"{hit_rate(share, s, **counts):.2f}" for s in exponents)
        rows.append(f"| {share:.0%} of the documents | {cells} |")
    return "\n".join(rows)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Hit rate of the cache under a Zipf stream of queries.")
    parser.add_argument("--full", action="store_true", help="the table of docs/sizing.md")
    if parser.parse_args().full:
        # k is half a percent of the documents, as 100 is of 20,000; only such ratios matter.
        print(
            table(
                (0.02, 0.1, 0.25, 0.5, 1.0), (0.6, 0.8, 1.0, 1.2), documents=2_000, queries=5_000, requests=4_000, k=10
            )
        )
    else:
        print(table((0.1, 0.5), (0.6, 1.2), documents=500, queries=200, requests=200, k=10))


if __name__ == "__main__":
    main()
