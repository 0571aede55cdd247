"""A cheap, cautious look at the language of a query."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["language_warnings"]

# A query is judged by its beginning; the rest of a very long one costs time and changes nothing.
_MAX_CHARACTERS = 4_000
# Compounds stay whole: "non-NATO" is English.
_WORD = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")
_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”|„[^“”]*[“”]|«[^»]*»")
_ENGLISH_WORDS = (
    "the of and to is are was were which what who how why where when that this these those with for from about by on "
    "at not but without other than except any it its i my me we our you your have has had do does did can be been "
    "there or if as"
)
_ENGLISH = frozenset(_ENGLISH_WORDS.split())
# Words that carry a sentence and stand in no English one: titles and names hold articles, seldom these.
_TELLING = {
    "German": "nicht aber ohne kein keine keinen außer welche welcher welches wie für über sind wird oder auch ich",
    "French": "mais pas sans sauf quels quelles quel quelle sont avec pour est qui dans sur je nous",
    "Spanish": "pero sin excepto cuáles qué cuál sobre cómo son para con menos salvo",
    "Italian": "ma non senza tranne quali che sono come eccetto della nella sulla",
    "Dutch": "maar niet zonder geen behalve welke zijn hoe voor over met een",
    "Portuguese": "mas não sem exceto quais são como sobre para com menos uma",
}  # fmt: skip
_ARTICLES = {
    "German": "der das den dem des ein eine einen einer und von mit zu im auf",
    "French": "le la les un une des du de et au aux en",
    "Spanish": "el la los las un una de del y en al",
    "Italian": "il lo la gli un una di del dei e al",
    "Dutch": "de het en van",
    "Portuguese": "o os as um de do da dos das e em no na",
}
_WORDS = {name: (frozenset(_TELLING[name].split()), frozenset(_ARTICLES[name].split())) for name in _TELLING}
_LEAST = 2


def language_warnings(query: str) -> tuple[str, ...]:
    """Return a warning when a query looks like another language than English, else nothing.

    It prefers silence: foreign names, titles and quotations in an English query, and queries of a few
    keywords, are not warned about.

    Args:
        query: the query as given, of any length.

    Returns:
        One sentence for :attr:`Detection.warnings <excise_integrations.types.Detection>`, or an empty tuple.
    """
    text = query[:_MAX_CHARACTERS]
    letters = [c for c in text if c.isalpha()]
    foreign = sum(not _latin(c) for c in letters)
    if len(letters) >= 4 and foreign * 2 > len(letters):
        return (_sentence("is mostly written in another script than Latin"),)
    words = _WORD.findall(unicodedata.normalize("NFC", _QUOTED.sub(" ", text)))
    # A capital inside a query is a name or a title, which says nothing of the language around it.
    plain = {word.lower() for i, word in enumerate(words) if i == 0 or word.islower()}
    if plain & _ENGLISH:
        return ()
    counts = {
        name: (len(plain & telling), len(plain & telling) + len(plain & articles))
        for name, (telling, articles) in _WORDS.items()
    }
    name, (telling_count, count) = max(counts.items(), key=lambda item: item[1])
    if telling_count and count >= _LEAST:
        return (_sentence(f"looks like {name}"),)
    return ()


def _latin(character: str) -> bool:
    return character.isascii() or unicodedata.name(character, "").startswith(
        ("LATIN", "FULLWIDTH LATIN", "FEMININE", "MASCULINE")
    )


def _sentence(what: str) -> str:
    return f"The query {what}; excluded topics are read in English only. Name them with exclude=[...]."
