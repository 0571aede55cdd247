"""The main job in one screen: the same search, frozen and with Excise.

Twelve short documents about electric cars are searched by their frozen late-interaction vectors, then by
Excise over the same vectors. The first query excludes a topic, the second does not: there the two lists are
the same. Needs the extra ``embedded`` and nothing else: no network, no GPU.

    python examples/demo.py
"""

from __future__ import annotations

from excise_integrations import Excise, ExciseResult
from excise_integrations.first_stage.memory import MemoryFirstStage

DOCUMENTS = {
    "model-3": "The Tesla Model 3 is an electric saloon whose single screen shows everything, even the speed.",
    "model-y": "Tesla's Model Y is an electric crossover; in many countries it was the best-selling car of the year.",
    "supercharger": "Tesla opened its Supercharger network, so electric cars of other makers can charge there too.",
    "ioniq-5": "The Hyundai Ioniq 5 is an electric hatchback with an 800-volt battery that charges in 18 minutes.",
    "leaf": "Nissan's Leaf was the first electric car to be built in large numbers; it is cooled by air alone.",
    "id-3": "Volkswagen's ID.3 is an electric car with rear-wheel drive and the size of a Golf.",
    "zoe": "The Renault Zoe is a small electric car for the city that could be bought without its battery.",
    "polestar-2": "The Polestar 2 is an electric fastback from Sweden whose software comes from Google.",
    "winter": "In the cold an electric car loses a good part of its range, because the cabin must be heated.",
    "wallbox": "A wallbox at home charges an electric car overnight and wants a circuit of its own.",
    "hybrid": "A plug-in hybrid drives short trips on electricity and carries a petrol engine for long ones.",
    "bicycle": "Cargo bicycles carry children and shopping through the city and need no parking space.",
}
EXCLUDING = "electric cars, but not Tesla"
ORDINARY = "how long does it take to charge an electric car?"
SHOWN = 6


def show(query: str, stage: MemoryFirstStage, excise: Excise) -> ExciseResult:
    """Search, and print the frozen list beside the one of Excise."""
    frozen = stage.search(query, SHOWN)
    result = excise.search(query, stage)
    detection = result.detection

    print(f"\n  Query: {query}")
    if detection.fired:
        for span in detection.spans:
            print(f"  Excluded: {span.text!r}, characters {span.start} to {span.end} of the query")
    else:
        print("  Excluded: nothing, so the frozen list is returned as it is")
    print(f"\n  {'':2}  {'frozen':<14}{'score':>6}   {'Excise':<14}{'score':>6}  {'evidence':>8}  action")
    for rank, (before, after) in enumerate(zip(frozen, result.candidates, strict=False), start=1):
        verdict = result.verdicts[after.id]
        evidence = "-" if verdict.evidence is None else f"{verdict.evidence:.2f}"
        print(
            f"  {rank:>2}  {before.id:<14}{before.score:>6.2f}   "
            f"{after.id:<14}{verdict.score:>6.2f}  {evidence:>8}  {verdict.action}"
        )
    for gone in result.removed:
        verdict = result.verdicts[gone.id]
        print(
            f"   -  removed: {gone.id} (rank {verdict.first_stage_rank} before, evidence {verdict.evidence:.2f} "
            f"for {detection.spans[verdict.span].text!r})"
        )
    for warning in result.warnings:
        print(f"  Note: {warning}")
    return result


def main() -> None:
    """Run both queries."""
    excise = Excise.from_pretrained("minilm")
    stage = MemoryFirstStage.from_texts(list(DOCUMENTS.values()), ids=list(DOCUMENTS), backbone=excise.backbone)
    show(EXCLUDING, stage, excise)
    show(ORDINARY, stage, excise)


if __name__ == "__main__":
    main()
