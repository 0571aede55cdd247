from __future__ import annotations

import json
import random
from typing import Any

import pytest
from mining_corpus import corpus

from excise_integrations.errors import InvalidInputError
from excise_integrations.train.descriptions import (
    Document,
    Vocabulary,
    describe,
    is_common_name,
    mentions,
    topic_name,
)
from excise_integrations.train.query_llm import LLMWriter
from excise_integrations.train.query_templates import Group, TemplateWriter

ONE = Group(corpus()[0], (corpus()[1],))
TWO = Group(corpus()[0], (corpus()[1], corpus()[2]))


def document(title: str, text: str = "Nothing here.") -> Document:
    return Document("d", title, text)


# --- names and descriptions -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("title", "text", "name"),
    [
        ("Fountain (Duchamp)", "", "Fountain"),
        ("17 U.S.C. § 103 — Subject matter; compilations", "", "Subject matter"),
        ("DORA Art. 39 — Inspections 1. In order to carry out", "", "Inspections"),
        ("Vector space", "A vector space is a set; each vector space has a basis.", "vector space"),
        ("Thomas Henry Huxley", "Thomas Henry Huxley was a biologist.", "Thomas Henry Huxley"),
        ("One two three four five six seven eight nine", "", None),
        ("1984", "", None),
        ("The Other", "", None),
        ("", "", None),
    ],
)
def test_names(title: str, text: str, name: str | None) -> None:
    assert topic_name(document(title, text)) == name


@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("The Warta is a river in western Poland, a tributary of the Oder.", "rivers in western Poland"),
        ("Wisdom is a 1986 American crime film by Emilio Estevez.", "1980s American crime films by Emilio Estevez"),
        ("X is a disease that affects the skin and has a cure.", "diseases that affect the skin and have a cure"),
        ("X is a disease which is rare and has no cure.", "diseases which are rare and have no cure"),
        ("A mamba is one of the venomous snakes of Africa.", "venomous snakes of Africa"),
        ("Pi is a constant.", None),
        ("There are many kinds.", None),
    ],
)  # fmt: skip
def test_descriptions(text: str, description: str | None) -> None:
    assert describe(document("T", text)) == description


def test_a_description_keeps_only_what_others_share() -> None:
    film = document("T", "Wisdom is a 1986 American crime film directed by Emilio Estevez.")
    same = "Rated X is a film by Emilio Estevez, who directed it."
    assert describe(film, shared_with=[same]) == "1980s American crime films directed by Emilio Estevez"
    assert describe(film, shared_with=[same, "Another film."]) == "1980s American crime films"
    assert describe(film, shared_with=["A river."]) is None


def test_mentions_are_whole_words_in_any_case() -> None:
    assert mentions("Water Ox", "the water oxes of Java")
    assert mentions("rivers", "A River.")
    assert not mentions("Ob", "an oboe, a job")


def test_common_names() -> None:
    assert is_common_name("vector space")
    assert is_common_name("Family separation allowance")
    assert not is_common_name("Platoon Leader")
    assert not is_common_name("Paris")


def test_shared_words_are_rare_shared_and_different() -> None:
    vocabulary = Vocabulary([d.full_text for d in corpus()])
    texts = [corpus()[0].full_text, corpus()[1].full_text + " Gravelly plain."]
    words = vocabulary.shared_words(texts, without=["birch"], count=10)
    assert "gravel" not in vocabulary.shared_words([texts[0], "nothing alike"], without=[])
    assert words == []  # ten of sixty documents share them: too common to tell
    wide = Vocabulary([d.full_text for d in corpus()] + [f"filler {i}" for i in range(100)])
    assert "birch" in wide.shared_words(texts, without=[], count=10)
    assert "birch" not in wide.shared_words(texts, without=["birch"], count=10)


def test_templates_give_nothing_without_names() -> None:
    writer = TemplateWriter(Vocabulary([d.full_text for d in corpus()]))
    nameless = Group(corpus()[0], (document("", "A river in northern Arvalia."),))
    assert writer.write(nameless, tier="T1", form="short", rng=random.Random(0)) is None


# --- a language model -----------------------------------------------------------------------


def answer(query: str = "northern rivers but not the Belsa", **fields: Any) -> str:
    return json.dumps({"query": query, "wanted": "northern rivers", "excluded": ["Belsa"], **fields})


class Scripted:
    """Answers in turn and keeps the prompts."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.prompts: list[str] = []

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return self.answers.pop(0)


def write(llm: Any, *, group: Group = ONE, tier: Any = "T1", form: Any = "short", attempts: int = 3) -> Any:
    return LLMWriter(llm, attempts=attempts).write(group, tier=tier, form=form, rng=random.Random(0))


def test_an_answer_becomes_a_query() -> None:
    llm = Scripted(f"```json\n{answer()}\n```")
    draft = write(llm)
    assert (draft.text, draft.wanted, draft.excluded) == (
        "northern rivers but not the Belsa", "northern rivers", ("Belsa",),
    )  # fmt: skip
    assert (draft.tier, draft.form) == ("T1", "short")
    assert "Ambra" in llm.prompts[0]
    assert "Belsa" in llm.prompts[0]


@pytest.mark.parametrize(
    ("wrong", "tier", "why"),
    [
        ("Sure! " + answer(), "T1", "not one JSON object"),
        ("[]", "T1", "top level"),
        (answer(comment="hi"), "T1", "comment"),
        (answer(excluded="Belsa"), "T1", "excluded"),
        (answer(excluded=[]), "T1", "has 0 strings; 1 are needed"),
        (answer(excluded=["belsa"]), "T1", "not an exact substring"),
        (answer(wanted=" "), "T1", "blank"),
        (answer("no Belsa"), "T1", "has 2 words"),
        (answer("rivers like the Ambra but not the Belsa"), "T1", "names the wanted document"),
        (answer("northern rivers but not the Belsa"), "T2", 'the word "not"'),
        (answer("northern rivers, the Belsa doesn't count"), "T2", "negation"),
    ],
)
def test_a_wrong_answer_is_explained_and_asked_again(wrong: str, tier: str, why: str) -> None:
    right = answer("northern rivers; the Belsa I have already paddled")
    llm = Scripted(wrong, right)
    draft = write(llm, tier=tier)
    assert draft.text == "northern rivers; the Belsa I have already paddled"
    assert why in llm.prompts[1]
    assert wrong in llm.prompts[1]
    assert llm.prompts[1].startswith(llm.prompts[0])


def test_two_topics_may_not_overlap() -> None:
    both = answer("northern rivers, neither Belsa nor Corin", excluded=["Belsa", "Corin"])
    assert write(Scripted(both), group=TWO, tier="T3").excluded == ("Belsa", "Corin")
    same = answer("northern rivers, neither Belsa nor Corin", excluded=["Belsa", "Belsa"])
    assert write(Scripted(same), group=TWO, tier="T3", attempts=1) is None


def test_a_group_is_given_up_after_the_attempts() -> None:
    llm = Scripted("no", "no", "no", "no")
    assert write(llm) is None
    assert len(llm.prompts) == 3


def test_an_error_of_the_model_is_raised() -> None:
    def broken(prompt: str) -> str:
        raise ConnectionError("offline")

    with pytest.raises(ConnectionError, match="offline"):
        write(broken)


def test_langchain_and_llama_index_models() -> None:
    models = pytest.importorskip("langchain_core.language_models")
    assert write(models.FakeListChatModel(responses=[answer()])).excluded == ("Belsa",)
    assert write(models.FakeListLLM(responses=[answer()])).excluded == ("Belsa",)
    llms = pytest.importorskip("llama_index.core.llms")

    class Fixed(llms.CustomLLM):  # type: ignore[misc,name-defined]
        @property
        def metadata(self) -> Any:
            return llms.LLMMetadata()

        def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
            return llms.CompletionResponse(text=answer())

        def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
            raise NotImplementedError

    assert write(Fixed()).excluded == ("Belsa",)


def test_content_blocks_are_joined() -> None:
    class Message:
        content = (answer()[:10], {"type": "text", "text": answer()[10:]})

    class Model:
        def invoke(self, prompt: str) -> Any:
            message = Message()
            message.content = list(Message.content)  # type: ignore[assignment]
            return message

    assert write(Model()).excluded == ("Belsa",)


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="no language model"):
        LLMWriter(object())
    with pytest.raises(InvalidInputError, match="attempts=0"):
        LLMWriter(str, attempts=0)
