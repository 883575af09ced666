"""The language of a passage, and its terms. English is the rule, and stays as it is."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from bench.languages import HALVES, LANGUAGES, read_others, read_pairs
from hypothesis import given
from hypothesis import strategies as st

from palaver.recall.dates import When
from palaver.recall.languages import STEMMED, Language, recognise
from palaver.recall.query import MAX_STEMS, Query, parse
from palaver.recall.terms import asked_terms, english_passages, index_passages, passages, segments, terms

NOW = datetime(2026, 11, 18, tzinfo=UTC)


def asked(text: str) -> Query:
    return parse(text, [], NOW)


@pytest.mark.parametrize(
    "text",
    [
        "What did Caroline do in Paris?", "He will die if he has no hat.", "I met Van der Berg in Los Angeles.",
        "Der Spiegel is a magazine that I read.", "We ate pasta al dente at La Scala.", "No, more of the same.",
        "body { font-family: Arial, sans-serif; margin: 0 auto; }", "for i in range(10): d[i] = s.e(c)", "Ed Sheeran",
        "The café in Zürich was naïve about its façade.", "It was the war that made the man.",
    ],
)  # fmt: skip
def test_english_and_program_code_have_no_terms_but_those_of_english(text: str) -> None:
    assert recognise(text) in ("en", None)
    assert index_passages(text) == (english_passages(text), True)


@pytest.mark.parametrize("language", LANGUAGES)
def test_most_questions_are_recognised(language: Language) -> None:
    """Of the written pairs; a short question may be without a word that says anything."""
    questions = [pair.question for half in HALVES for pair in read_pairs(language, half)]
    found = [recognise(question) for question in questions]
    assert found.count(language) >= 0.7 * len(questions)
    assert sum(one not in (language, None) for one in found) <= 0.05 * len(questions)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_data_is_as_large_as_it_should_be(language: Language) -> None:
    pairs = [pair for half in HALVES for pair in read_pairs(language, half)]
    assert len(pairs) == len({pair.turn for pair in pairs}) == (60 if language in STEMMED else 30)
    assert not {pair.turn for pair in pairs} & set(read_others(language))


@given(st.text(max_size=2_000))
def test_the_terms_of_a_language_come_after_those_of_english(text: str) -> None:
    """So passages keep their numbers, and whatever was found before is found still."""
    ours, plain = passages(text), english_passages(text)
    assert len(ours) == len(plain) == sum(bool(terms(one)) for one in segments(text))
    assert all(one == other or one.startswith(f"{other} ") for one, other in zip(ours, plain, strict=True))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ich muss noch die Rechnungen bezahlen.", "Die Rechnung ist noch nicht da."),
        ("Nous avons deux réunions.", "La réunion est dans une heure."),
        ("¿Qué canciones me gustan?", "Esa canción es muy buena."),
        ("Dove sono le nostre amiche?", "La nostra amica è qui."),
        ("Quais são as minhas cidades?", "A minha cidade é muito bonita."),
        ("회의는 언제야?", "회의를 열 시에 시작해."),
        ("我的狗在哪里？", "他们家有一只狗。"),
        ("犬はどこですか？", "私は犬を飼っています。"),
    ],
)
def test_a_word_is_found_in_another_form(one: str, other: str) -> None:
    wanted = {stem for term in asked_terms(one, recognise(one)) for stem in (term.stem, *term.others)}
    assert wanted & set(passages(other)[0].split(" "))


def test_a_question_in_another_language_is_without_its_small_words() -> None:
    assert asked("Wann habe ich die Rechnung bezahlt?").stems == ("rechnung", "bezahlt")
    assert asked("¿Cuándo es mi cita con los médicos?").stems == ("cita", "medico")
    assert asked("我的狗叫什么名字？").stems == ("狗", "名字")


def test_english_questions_have_no_other_stems() -> None:
    assert asked("When did I pay the bills?").others == {}
    assert asked("When did I pay the bills?").language == "en"


def test_a_question_that_does_not_say_its_language_has_the_stems_of_all() -> None:
    query = asked("Rechnungen bezahlen")
    assert query.language is None
    assert query.is_english
    assert set(query.others["rechnungen"]) >= {"rechnung"}


def test_a_long_question_has_a_bounded_number_of_stems() -> None:
    for text in (
        " ".join(f"Wortungen{n}" for n in range(300)),
        "Ich habe " + " ".join(f"Rechnungen{n}en" for n in range(300)),
    ):
        assert len(asked(text).all_stems) <= MAX_STEMS


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("Was habe ich gestern gekauft?", When(2026, 11, 17, 1)),
        ("Was habe ich vor drei Wochen gesagt?", When(2026, 10, 25, 7)),
        ("Qu'ai-je fait le 3 mars ?", When(None, 3, 3)),
        ("Qu'est-ce que j'ai dit il y a deux jours ?", When(2026, 11, 16, 1)),
        ("¿Qué compré en mayo de 2024?", When(2024, 5, None)),
        ("¿Qué hice la semana pasada?", When(2026, 11, 5, 14)),
        ("Cosa ho mangiato due settimane fa?", When(2026, 11, 1, 7)),
        ("O que eu fiz em 05/03/2024?", When(2024, 3, 5)),
        ("O que eu comprei ontem?", When(2026, 11, 17, 1)),
        ("昨天我买了什么？", When(2026, 11, 17, 1)),
        ("2024年3月5日我去了哪里？", When(2024, 3, 5)),
        ("三天前我吃了什么？", When(2026, 11, 15, 1)),
        ("先週、私は何を買いましたか？", When(2026, 11, 5, 14)),
        ("3월 5일에 내가 어디에 갔지?", When(None, 3, 5)),
    ],
)
def test_dates_are_found_in_other_languages(text: str, when: When) -> None:
    assert asked(text).dates == (when,)


def test_english_questions_have_the_dates_of_english() -> None:
    assert asked("What did we say about Mars, and on 3/5/2024?").dates == ()


@pytest.mark.parametrize(
    ("text", "cue"),
    [
        ("Fasse unser Gespräch zusammen", "overview"),
        ("Résume notre conversation", "overview"),
        ("¿Puedes hacer un resumen de lo que hablamos?", "overview"),
        ("Fammi un riassunto di quello che abbiamo detto", "overview"),
        ("Faça um resumo da nossa conversa", "overview"),
        ("总结一下我们的对话", "overview"),
        ("Welche Bücher habe ich gelesen?", "collects"),
        ("Combien de livres ai-je lus ?", "collects"),
        ("¿Cuántas veces he ido al médico?", "collects"),
        ("Quanti libri ho letto?", "collects"),
        ("Quantos livros eu li?", "collects"),
        ("我读过哪些书？", "collects"),
        ("Was hast du mir empfohlen?", "asks_assistant"),
        ("Qu'est-ce que tu m'as conseillé ?", "asks_assistant"),
        ("¿Qué me recomendaste ayer?", "asks_assistant"),
        ("Che cosa mi hai consigliato?", "asks_assistant"),
        ("O que você me sugeriu?", "asks_assistant"),
        ("Was habe ich gestern gekauft?", "recollects"),
    ],
)
def test_cues_are_found_in_other_languages(text: str, cue: str) -> None:
    assert getattr(asked(text), cue)


def test_a_request_to_sum_up_names_no_topic() -> None:
    assert not asked("Fasse bitte unser Gespräch zusammen").topic
    assert asked("Fasse zusammen, was wir über den Garten gesagt haben").topic
    assert not asked("总结一下我们的对话").topic
