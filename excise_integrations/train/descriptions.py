"""What a document is called and what it is, read from its title and first sentence.

Names become the excluded topics of mined queries, descriptions the wanted ones.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .corpus_frames import _plural

__all__ = ["Document", "Vocabulary", "content_words", "describe", "is_common_name", "mentions", "topic_name"]

_STOP = """
a about above after all also an and any are as at be because been before being below between both but by can could did
do does doing down during each few for from further had has have having he her here hers him his how i if in into is it
its itself just like many may more most much must no nor not of off often on once one only or other our out over own
same she should since so some such than that the their them then there these they this those through to too two under
until up upon use used uses using usually very was we were what when where which while who whom why will with within
would you your
"""
STOP_WORDS = frozenset(_STOP.split())
_WORD = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")
_PREFIX = re.compile(r"^.{1,40}?\s[—–]\s")
_CLASS = re.compile(
    r"\b(?:is|was|are|were|refers to|means) (?P<article>an?|one of the|any of various|any of several) "
    r"(?P<rest>[^\W_][^.;:()\n]{8,200})"
)
# The head of a noun phrase ends before these.
_AFTER_HEAD = re.compile(
    r"\s(?:in|of|by|from|that|which|who|whose|whom|where|when|for|on|at|to|with|within|without|about|near|and|or|"
    r"between|among|during|under|over|into|through|than|as|used|found|located|situated|directed|written|produced|"
    r"published|released|based|caused|characterized|characterised|known|called|named|made|developed|set|born|built|"
    r"starring|involving|containing|consisting|having|affecting|using|featuring|belonging|occurring|resulting|"
    r"originating|descended|ranging|describing|relating|referring|living|working|dealing|covering|serving|intended|"
    r"designed|composed|founded|created|spoken|native|held|involved|associated|defined|formed|given|related|marked|"
    r"concerned|similar|most|usually|typically|primarily|mainly|often|generally)\b"
)
_ADJECTIVE = re.compile(r"(?:al|ous|ic|ive|ful|ary|ible|able|ish|ern|ed|ese|ian|an)$")
_CUT = re.compile(r"\s(?:that|which|who|whose|where|when|while|because|and|or|but|as|is|are|was|were)\s")
_EMPTY_HEADS = frozenset(
    {"form", "group", "kind", "member", "name", "number", "one", "part", "series", "set", "term", "type"}
)
_DANGLING = re.compile(
    r"(?:\s(?:in|of|by|from|for|on|at|to|with|within|about|near|and|or|between|among|the|a|an|its|their|his|her|as|"
    r"into|that|which|who|whose|where|when|is|are|was|were|be|been|more|most|one|two|other|such|also|both|either|not|"
    r"often|part|many|some|any|all|several|this|these|those|[^\W\d_]+ly|[^\W\d_]\.?))+$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Document:
    """A document of a corpus.

    Args:
        id: unique within the corpus.
        title: may be blank.
        text: what follows the title.
    """

    id: str
    title: str
    text: str

    @property
    def full_text(self) -> str:
        """Title, line break, text: how a suite's documents are searched."""
        return f"{self.title}\n{self.text}" if self.title.strip() else self.text


def topic_name(document: Document, *, max_words: int = 8) -> str | None:
    """Return what a query would call the document's topic.

    A bracket at the end of the title, a citation before a dash and everything from a numbered
    sentence on are left out; a common noun is written small.

    Args:
        document: a document with a title.
        max_words: longer names are no names.

    Returns:
        The name, or None when the title gives none.
    """
    title = re.sub(r"\s*\([^)]*\)\s*$", "", document.title.strip())
    title = _PREFIX.sub("", title)
    title = re.split(r"\s\d+\.\s|\s\(\w\)\s|;\s", title)[0].strip(" .,;:-–—?!\"'“”")
    words = _WORD.findall(title)
    if not words or len(words) > max_words or len(title) < 3 or title.isdigit() or re.search(r"[{}\[\]\n]", title):
        return None
    if not any(w.casefold() not in STOP_WORDS and not w.isdigit() for w in words):
        return None
    first = words[0]
    small = title[:1].lower() + title[1:]
    if first[1:].islower() and title != small:
        # "Vector space" is small when the text writes it so in the middle of a sentence.
        inside = re.findall(rf"(?<=[a-z,] )({re.escape(title)}|{re.escape(small)})\b", document.text)
        elsewhere = not inside and title[1:].islower() and re.search(rf"\b{re.escape(small)}", document.text)
        if small in inside or elsewhere:
            return small
    return title


def describe(document: Document, *, max_words: int = 11, shared_with: Sequence[str] = ()) -> str | None:
    """Return what the document's first sentence says its topic is, as a plural noun phrase without the name.

    Args:
        document: a document whose text opens like an encyclopedia's, "The Warta is a river in Poland".
        max_words: the phrase is cut at a clause before it gets longer.
        shared_with: texts that it shall fit too: what distinguishes the document from them is left out.

    Returns:
        "rivers in Poland", or None when there is no such sentence or nothing of it is shared.
    """
    found = _CLASS.search(document.text[:400])
    if found is None or found.start() > 250:
        return None
    rest = found["rest"]
    end = _AFTER_HEAD.search(rest)
    comma = rest.find(",")
    stop = min((p for p in (end.start() if end else -1, comma, len(rest)) if p > 0), default=0)
    head, tail = rest[:stop].strip(), rest[stop:]
    if not head or len(head.split()) > 6 or not re.fullmatch(r"[^\W\d_]+", head.split()[-1]):
        return None
    if re.match(r"\s*(?:,|(?:and|or) )", tail) and (" " not in head or _ADJECTIVE.search(head)):
        # "formal or informal name": the head comes later.
        return None
    head = re.sub(r"\b(1[5-9]\d|20\d)\d\b", r"\g<1>0s", head)
    phrase = head if found["article"] in ("one of the", "any of various", "any of several") else _pluralise(head)
    detail = _detail(tail, max_words - len(head.split()))
    for text in shared_with:
        words = set(content_words(text))
        if content_words(head)[-1:] and not _stems(content_words(head)[-1:]) & _stems(words):
            return None
        own = content_words(detail)
        if len(words.intersection(own)) * 2 < len(own):
            detail = ""
    if not detail and (" " not in phrase or head.split()[-1] in _EMPTY_HEADS):
        return None
    return _agree(f"{phrase} {detail}".strip())


def mentions(name: str, text: str) -> bool:
    """Whether a text names a topic, in any case and as whole words; a plural "s" at the end counts too."""
    stem = re.sub(r"(?i)(?<=\w{3})s$", "", name.casefold())
    return re.search(rf"(?<!\w){re.escape(stem)}(?:s|es|['’]s)?(?!\w)", text.casefold()) is not None


def content_words(text: str) -> list[str]:
    """Return the words that carry meaning, in lower case, in order."""
    return [w for w in (w.casefold() for w in _WORD.findall(text)) if w not in STOP_WORDS and len(w) > 2]


def is_common_name(name: str) -> bool:
    """Whether a name is a common noun phrase ("family allowance") and not somebody's or something's own name."""
    words = name.split()
    return name[:1].islower() or (len(words) > 1 and not any(w[:1].isupper() for w in words[1:]))


class Vocabulary:
    """How rare each word of a corpus is.

    Args:
        texts: the documents.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._documents = 0
        self._count: Counter[str] = Counter()
        for text in texts:
            self._documents += 1
            self._count.update(set(content_words(text)))

    def shared_words(self, texts: Sequence[str], *, without: Iterable[str], count: int = 4) -> list[str]:
        """Return the words that best tell what all of some documents are about.

        Args:
            texts: at least one document.
            without: words that must not be among them.
            count: at most this many.

        Returns:
            Words that occur in every text and in at most a tenth of the corpus, the most telling
            ones, in the order of the first text.
        """
        common = set.intersection(*(set(content_words(t)) for t in texts)) - set(without)
        common = {w for w in common if not any(c.isdigit() for c in w)}
        rare = {w: math.log(self._documents / self._count[w]) for w in common if self._count[w]}
        told: list[str] = []
        for word in sorted((w for w in rare if rare[w] >= math.log(10)), key=lambda w: (-rare[w], w)):
            # "lease" and "leases" say one thing.
            if len(told) < count and not any(word[:5] == other[:5] for other in told):
                told.append(word)
        order = content_words(texts[0])
        return sorted(told, key=order.index)


def _pluralise(head: str) -> str:
    words = head.split()
    last = words[-1]
    if last.endswith("s") and not last.endswith(("ss", "us", "is")):
        return head
    if last.endswith("man") and last not in ("human", "german"):
        return " ".join([*words[:-1], last[:-3] + "men"])
    return " ".join([*words[:-1], _plural(last)])


def _stems(words: Iterable[str]) -> set[str]:
    return {word[:-1] if word.endswith("s") else word for word in words}


def _agree(phrase: str) -> str:
    """Put the verb after "that", "which" or "who" in the plural."""

    def plural(found: re.Match[str]) -> str:
        verb = found["verb"]
        if verb in ("is", "was", "has"):
            return found["who"] + {"is": "are", "was": "were", "has": "have"}[verb]
        if verb.endswith("ies"):
            return found["who"] + verb[:-3] + "y"
        if verb.endswith(("sses", "shes", "ches", "xes", "zes")):
            return found["who"] + verb[:-2]
        return found["who"] + verb[:-1]

    phrase = re.sub(r"(?P<who>\band )(?P<verb>is|was|has)\b", plural, phrase)
    return re.sub(r"(?P<who>\b(?:that|which|who) (?:[a-z]+ly )?)(?P<verb>[a-z]+[^\Ws]s|is|was|has)\b", plural, phrase)


def _detail(tail: str, budget: int) -> str:
    """What follows the head, cut where a clause ends within the budget of words."""
    if re.match(r",|(?:and|or) ", tail.lstrip(" ")):
        # A second head would have to be put in the plural too.
        return ""
    words = tail.split(",")[0].split()
    kept = words[: max(budget, 0)]
    if len(words) > len(kept):
        cuts = list(_CUT.finditer(" " + " ".join(kept)))
        if cuts and cuts[-1].start() > 12:
            kept = " ".join(kept)[: cuts[-1].start() - 1].split()
        else:
            # Half a name is worse than none.
            following = words[len(kept)]
            while kept and following[:1].isupper() and kept[-1][:1].isupper():
                following = kept.pop()
    tail = " ".join(kept)
    while _DANGLING.search(" " + tail):
        tail = _DANGLING.sub("", " " + tail).strip()
    return tail if len(tail.split()) > 1 else ""
