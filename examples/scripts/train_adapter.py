"""Train an exclusion adapter for a backbone of your own, and use it. A tiny run: it shows the way, not the gain.

A useful adapter wants a thousand triples or more; ``excise mine`` makes them from your corpus, and

    excise train adapter --backbone YOUR/CHECKPOINT --triples mined/ --out my-adapter

trains on them, choosing the learning rate. Needs the extras ``embedded`` and ``train``.

    python examples/scripts/train_adapter.py [FOLDER]     # FOLDER: where the adapter goes; else a temporary one
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from excise_integrations import Candidate, Excise
from excise_integrations.encode import Backbone
from excise_integrations.train.exclusion_adapter import AdapterRecipe, train_adapter
from excise_integrations.train.triples import Triple

DATA = Path(__file__).parents[1] / "data"
# The folder of a checkpoint, or its hub id: "lightonai/GTE-ModernColBERT-v1", "colbert-ir/colbertv2.0", …
BACKBONE = "minilm"
RECIPE = AdapterRecipe(rank=4, epochs=1, learning_rate=5e-4, batch_size=8, document_tokens=64, query_tokens=48)


def documents(domain: str) -> dict[str, str]:
    """Return text by id."""
    records = map(json.loads, (DATA / f"{domain}.jsonl").read_text(encoding="utf-8").splitlines())
    return {d["_id"]: f"{d['title']}. {d['text']}" for d in records}


def triples(domain: str) -> list[Triple]:
    """Pair each wanted document with a confusable one that the query excludes."""
    texts = documents(domain)
    judged = map(json.loads, (DATA / "judged.jsonl").read_text(encoding="utf-8").splitlines())
    return [
        Triple(query["query"], tuple(query["excluded"]), texts[wanted], texts[unwanted], f"{domain}/{wanted}")
        for query in judged
        if query["domain"] == domain
        for wanted, unwanted in zip(query["wanted"], query["unwanted"], strict=False)
    ]


def main(folder: Path) -> None:
    """Train on two domains, then search the third with the adapter."""
    data = triples("legal") + triples("regulatory")
    adapter = train_adapter(Backbone.from_pretrained(BACKBONE), data, folder, recipe=RECIPE, command="an example")
    print(f"\n  {len(data)} triples → {adapter.label}: {', '.join(sorted(path.name for path in folder.iterdir()))}")

    excise = Excise.from_pretrained(BACKBONE, adapter=folder)
    query = "exercise for insomnia, excluding tai chi"
    result = excise.rerank(query, [Candidate(name, text) for name, text in documents("review").items()], k=5)
    print(f"\n  {query}\n    adapters {list(result.adapters)}")
    for candidate in result.candidates:
        print(f"    {result.verdicts[candidate.id].rank}  {candidate.text.partition('.')[0]}")
    assert adapter.label in result.adapters
    assert not any("tai chi" in candidate.text.lower() for candidate in result.candidates)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary) / "adapter")
