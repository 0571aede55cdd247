"""Models that answer from a script, for builds over the corpus of tests/train/mining_corpus.py."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable


def fields(prompt: str) -> dict[str, str]:
    return dict(re.findall(r"^(QUERY|WANTED|UNWANTED|FIRST|SECOND|TOPIC|DOCUMENT): (.*)$", prompt, re.MULTILINE))


PADDING = " I am putting together a reading list for a small evening class and would be glad of anything that helps."


def write(prompt: str) -> str:
    """Answer each of the three writing prompts as asked."""
    tail = PADDING if "22 to 50" in prompt else ""
    given = fields(prompt)
    if "that it excludes a second topic" in prompt:
        wanted, first = json.loads(given["WANTED"]), json.loads(given["FIRST"])
        second = json.loads(given["SECOND"]).splitlines()[0]
        if "in one breath" in prompt:
            text = f"{wanted}, neither {first} nor {second}."
        else:
            text = f"{wanted}, but not {first}; my colleague has finished {second} already."
        return answer(text + tail, wanted, first, second)
    if "no word negates" in prompt:
        wanted, topic = json.loads(given["WANTED"]), json.loads(given["UNWANTED"])
        return answer(f"{wanted}; my colleague has finished {topic} already." + tail, wanted, topic)
    title = re.search(r"EXCLUDED 1:\n(.*)\n", prompt)
    trait = re.search(r" is an? (.*?)\. ", prompt)
    assert title
    assert trait
    return answer(f"{trait[1]}, but not {title[1]}." + tail, trait[1], title[1])


def answer(query: str, wanted: str, *excluded: str) -> str:
    return json.dumps({"query": query, "wanted": wanted, "excluded": list(excluded)})


def judge(prompt: str) -> str:
    """Find every query as meant, and no wanted document about an excluded topic."""
    if "TOPIC: " in prompt:
        return json.dumps({"about": False})
    return json.dumps({"wanted": True, "unwanted": [True] * len(json.loads(fields(prompt)["UNWANTED"]))})


class Scripted:
    """Calls a function, counts, and goes by a name."""

    def __init__(self, name: str, function: Callable[[str], str]) -> None:
        self.model_name = name
        self.function = function
        self.prompts: list[str] = []

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return self.function(prompt)


def slow(prompt: str) -> str:
    time.sleep(30)
    return ""
