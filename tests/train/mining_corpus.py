"""A small corpus written for the tests, and an encoder that sees nothing but words."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import torch

from excise_integrations.encode.maxsim import TokenVectors
from excise_integrations.encode.windows import WindowPolicy
from excise_integrations.train.descriptions import Document, content_words

CLASSES = {
    "river": ("rivers in northern Arvalia", "flows through birch forest and gravel plains to the Selm Sea", "fish"),
    "cheese": ("cheeses made on the Torvan farms", "ripens on spruce boards and is turned by hand each day", "milk"),
    "dance": ("folk dances from the Ossel valley", "has eight couples who change places to a fiddle", "steps"),
    "castle": ("castles of the dukes of Merrow", "has a round keep, a dry moat and red sandstone walls", "tower"),
    "moth": ("moths found in Quellan orchards", "has grey wings with a pale band and feeds on apple leaves", "larva"),
    "bridge": ("bridges near the port of Daal", "carries two lanes of traffic over granite arches and a lock", "pier"),
}
NAMES = {
    "river": ["Ambra", "Belsa", "Corin", "Dovra", "Elmet", "Farga", "Gilda", "Hesper", "Ilvane", "Jorun"],
    "cheese": ["Karvel", "Lomond Blue", "Mirra", "Nestor", "Ostara", "Pellam", "Quorre", "Rindle", "Sommet", "Tavish"],
    "dance": ["Ulla", "Vaska", "Wendel", "Xerra", "Yolka", "Zandra", "Arkady", "Brisa", "Celka", "Dorset Ring"],
    "castle": ["Eryn", "Folkwin", "Garrow", "Hollin", "Isolde", "Jarrod", "Kestrel", "Lorn", "Mordaunt", "Norbury"],
    "moth": ["Orbel", "Pallid Sedge", "Quince", "Rustic", "Sable", "Tawny", "Umber", "Velvet", "Willow", "Yarrow"],
    "bridge": ["Abbot", "Barge", "Crown", "Delver", "Easter", "Fallow", "Grange", "Hamlet", "Island", "Jubilee"],
}


def corpus() -> list[Document]:
    """Sixty documents, ten of each class; every one has words of its own and words of its class."""
    documents = []
    for kind, (phrase, trait, extra) in CLASSES.items():
        noun, _, rest = phrase.partition(" ")
        singular = {"cheeses": "cheese", "bridges": "bridge", "dances": "dance"}.get(noun, noun[:-1])
        if noun == "folk":
            noun, singular, rest = "folk dances", "folk dance", rest.partition(" ")[2]
        for number, name in enumerate(NAMES[kind]):
            own = " ".join(f"{extra}{kind[:2]}{number}{letter}" for letter in "abcdefghij")
            text = f"The {name} is a {singular} {rest}. It {trait}. Notes on its {extra} speak of {own} alone."
            documents.append(Document(f"{kind}-{number}", name, text))
    return documents


class WordEncoder:
    """One vector per content word, the same for the same word; anything without one gets a vector of its own."""

    def __init__(self, dim: int = 64) -> None:
        self.dim = dim
        self.label = "words@0"
        self.dtype = torch.float32
        self.device = "cpu"
        self.windows = WindowPolicy(200, 1000)
        self.max_tokens = 512
        self._known: dict[str, torch.Tensor] = {}

    def encode_documents(self, texts: Sequence[str], *, progress: Any = None) -> list[TokenVectors]:
        return [self._encode(text) for text in texts]

    def encode_queries(self, texts: Sequence[str], *, batch_size: int = 32) -> list[TokenVectors]:
        return [self._encode(text) for text in texts]

    def _encode(self, text: str) -> TokenVectors:
        words = content_words(text) or [re.sub(r"\s", "", text) or "-"]
        vectors = torch.stack([self._vector(word) for word in words])
        return TokenVectors(vectors, (len(words),))

    def _vector(self, word: str) -> torch.Tensor:
        if word not in self._known:
            seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big") >> 1
            values = torch.randn(self.dim, generator=torch.Generator().manual_seed(seed))
            self._known[word] = torch.nn.functional.normalize(values, dim=0)
        return self._known[word]
