"""The language of a text, and its words in that language: stop words, stems, pairs of letters. Pure.

English is the rule: it is stemmed by `palaver.recall.terms`, and everything here comes in addition. A text counts as
another language only if enough of its small words belong to that language and fewer to English.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

import Stemmer

Language = Literal["en", "de", "fr", "es", "it", "pt", "zh", "ja", "ko"]
NAMES: dict[str, str] = {
    "en": "English", "de": "German", "fr": "French", "es": "Spanish", "it": "Italian", "pt": "Portuguese",
    "zh": "Chinese", "ja": "Japanese", "ko": "Korean",
}  # fmt: skip
STEMMED: tuple[Language, ...] = ("de", "fr", "es", "it", "pt")
MAX_READ = 2_000  # characters that are enough to recognise a language
MAX_WORD = 64

_ENGLISH = frozenset(
    """a about all also am an and any are as at be been but by can could did do does for from had has have he
        her him his how i if in into is it its just me more my no not of on or our out she so some than that the
        their them then there these they this to too up us was we were what when where which who why will with
        would you your""".split()
)
_STOP_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "de": """aber alle allem allen aller alles als also am an ander andere anderen anderer auch auf aus bei beim
            bin bis bist da dabei damit danach dann daran darauf darüber das dass dazu dein deine deinem deinen
            deiner dem den denn der deren des dessen dich die dies diese diesem diesen dieser dieses dir doch
            dort du durch ein eine einem einen einer eines einmal er es etwas euch euer eure für gegen gewesen
            hab habe haben hat hatte hatten hattest hast hier hin hinter ich ihm ihn ihnen ihr ihre ihrem ihren
            ihrer im immer in ist ja jede jedem jeden jeder jedes jetzt kann kannst kein keine keinem keinen
            keiner können könnte lassen machen man manche mehr mein meine meinem meinen meiner mich mir mit muss
            musste nach nicht nichts noch nun nur ob oder ohne schon sehr sein seine seinem seinen seiner seit
            selbst sich sie sind so soll sollen sollte sondern sonst über um und uns unser unsere unserem
            unseren unserer unter viel vom von vor wann war waren warst warum was weil weiter welche welchem
            welchen welcher welches wem wen wenn wer werde werden wie wieder wieso will wir wird wirst wo wohin
            woher wollen wollte worden wurde wurden würde würden zu zum zur zwar zwischen eigentlich bitte mal
            gern gerne""",
        "fr": """ai aie ait alors après as au aussi autre autres aux avaient avais avait avant avec avez avoir avons
            bien c ça car ce ceci cela celle celui ces cet cette ceux chaque chez comme comment contre d dans de
            depuis des deux donc dont du elle elles en encore entre est et étaient étais était étant été êtes
            être eux fait faire font hors il ils j je jamais l la laquelle le lequel les lesquels leur leurs lui
            m ma mais me même mes moi moins mon n ne ni non nos notre nous on ont ou où par parce pas peu peut
            plus plusieurs pour pourquoi pouvez près qu quand que quel quelle quelles quels qui quoi s sa sans
            se sera serait ses si son sont sous souvent suis sur t ta tant te tes toi ton toujours tous tout
            toute toutes très trop tu un une va vais vas vers vos votre vous y combien déjà quelque quelques
            avons""",
        "es": """a al algo alguna algunas alguno algunos ante antes aquel aquella aquí así aun aunque bien cada casi
            como cómo con contra cual cuál cuales cuáles cualquier cuando cuándo cuanto cuánto cuanta cuánta
            cuantos cuántos cuantas cuántas de del desde donde dónde dos durante e el él ella ellas ellos en
            entre era eran eres es esa esas ese eso esos esta está estaba estado están estar estas este esto
            estos estoy estuve estuvo fue fueron fui ha había habían haber hace hacer hacia han has hasta hay he
            hemos hizo la las le les lo los más me mi mis mí mucho muchos muy nada ni no nos nosotros nuestra
            nuestro nunca o os otra otras otro otros para pero poco por porque pues que qué quien quién quienes
            se sea ser será si sí sido siempre sin sobre solo sólo son soy su sus suya suyo también tampoco tan
            tanto te tendrá tenemos tener tengo ti tiene tienen tienes toda todas todo todos tu tú tus tuve tuvo
            un una uno unos unas usted va vamos voy y ya yo""",
        "it": """a ad agli ai al alla alle allo allora altra altre altri altro anche ancora avere aveva avevo avevi
            avete avuto ben bene c che chi ci ciò col come con cosa così cui d da dagli dai dal dalla dalle
            dallo degli dei del dell della delle dello di dopo dove due e è ed era erano eri essere fa faccio
            fare fatto fra già gli ha hai hanno ho i il in io l la le lei li lo loro lui ma mai me meno mi mia
            mie miei mio molta molte molti molto ne negli nei nel nell nella nelle nello no noi non nostra
            nostri nostro o ogni per perché però più poco poi prima proprio qua qual quale quali quando quanta
            quante quanti quanto quel quella quelle quelli quello questa queste questi questo qui sarà se sei
            sempre senza si sia siamo siete sono sopra sotto sta stata state stati stato sto su sua sue sugli
            sui sul sulla sulle suo suoi t te ti tra tu tua tue tuo tuoi tutta tutte tutti tutto un una uno va
            vi voi vostra vostro""",
        "pt": """a à ainda algo alguém algum alguma algumas alguns ao aos aquela aquele aquilo as às assim até bem
            cada com como contra cujo da das de dela delas dele deles depois desde dessa desse desta deste disse
            disso disto do dois dos duas durante e é ela elas ele eles em enquanto entre era eram és essa essas
            esse esses esta está estamos estão estas estar estava estavam este estes estou eu faz fazer fez fica
            foi foram fui há isso isto já lá lhe lhes lo mais mas me mesmo meu meus mim minha minhas muita
            muitas muito muitos na não nas nem nenhum nessa nesse nesta neste ninguém no nos nós nossa nosso num
            numa nunca o onde os ou outra outras outro outros para pela pelas pelo pelos per por porque porquê
            pois posso pouco qual quais quando quanta quantas quanto quantos que quê quem se seja sem sempre ser
            será seu seus si sido só sob sobre somos sou sua suas também tão te tem têm temos tenho ter teu teus
            teve ti tinha tinham tive toda todas todo todos tu tua tuas tudo um uma umas uns vai vão você vocês
            são estive fiz dia onde aí vos vou""",
    }.items()
}  # fmt: skip
# Words of these lists that English texts contain as well, as words or as parts of names.
_ALSO_ENGLISH = _ENGLISH | frozenset(
    """die war hat man bin den will mal mit gern also dort hier sein dies hab ob um so am an as ai car font
        chez des du en est et il la le les l ma mes moi mon non nos on ont ou pas plus qui sa se sera ses si son
        sont sous sur ta te ten tes ton tous tout tu un une va vas vers y c d j m n s t con de del el era es
        esta ha has he hay la las le les lo los me mi no o os pues que se ser si sin solo son su sus tan te ti
        tu un uno va ya yo a ad ai al come da dal dei di due e fare fa fra i in io li lo lei ma mai me mia mi ne
        no noi o per poi prima qua se sei sia sta state sto su sue sui te ti tra tua un uno va vi voi com do dos
        e ela em era essa faz fez foi lo mas me mini na no nos num o onde os per pro sem ser seu si sob sou te
        tem ter um uma vos more hot""".split()
)
# Words of program code and names: no sign of anything.
_NEVER = frozenset("sans font ed col state per come car des main date a c d e i j l m n o s t y".split())
_LETTERS: dict[str, str] = {"de": "äöüß", "fr": "çèêëîïôûàùœé", "es": "ñ¿¡áíóúé", "it": "èòìàùé", "pt": "ãõçáâêóôíúéà"}
_SURE_LETTERS: dict[str, str] = {"de": "ß", "fr": "œ", "es": "ñ¿¡", "pt": "ãõ"}


def _votes() -> dict[str, tuple[tuple[Language, int], ...]]:
    """Return for each small word the languages that it speaks for: two votes if it is of one language only."""
    found: dict[str, list[Language]] = {}
    for language in STEMMED:
        for word in _STOP_WORDS[language] - _ALSO_ENGLISH - _NEVER:
            found.setdefault(word, []).append(language)
    return {word: tuple((one, 2 if len(of) == 1 else 1) for one in of) for word, of in found.items()}


_SURELY_ENGLISH = _ENGLISH - frozenset().union(*_STOP_WORDS.values())
_VOTES = _votes()
_VOTERS = frozenset(_VOTES)
# They count in a text without any word that is surely English.
_WEAK_VOTERS = frozenset().union(*_STOP_WORDS.values()) & _ALSO_ENGLISH - _ENGLISH - _NEVER
_FOREIGN_LETTERS = re.compile(f"[{''.join(sorted(set(''.join(_LETTERS.values()))))}]")
_ENOUGH = 3  # votes; or fewer, in a text that has no English word and hardly any other

_HANGUL = r"\uac00-\ud7a3"
_KANA = re.compile(r"[\u3040-\u30ff]")
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_SYLLABLES = re.compile(f"[{_HANGUL}]")
_CJK = re.compile(rf"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff{_HANGUL}]")
_WORD = re.compile(r"\w+")


def recognise(text: str) -> Language | None:
    """Return the language of a text. None if it is not clear: then it is treated as English."""
    text = text[:MAX_READ].lower()
    if not text.isascii() and (found := _by_script(text)):
        return found
    return recognise_words(_WORD.findall(text), text)


def recognise_words(words: Sequence[str], text: str = "") -> Language | None:
    """Return the language of these words, in lower case. `text` is what they are from, for its letters."""
    voters = _VOTERS.intersection(words)
    english = 2 * len(_SURELY_ENGLISH.intersection(words))
    if not voters and english and text.isascii():  # most texts
        return "en"
    weak = frozenset() if english else _WEAK_VOTERS.intersection(words)
    votes = _count(voters, weak, text)
    first, second = sorted(votes.values(), reverse=True)[:2]
    best = next(one for one in STEMMED if votes[one] == first)
    own = len(_STOP_WORDS[best].intersection(voters | weak))
    if first <= english or first == second or not _are_enough(first, english, own, len(words)):
        return "en" if english >= max(first, 1) or (not first and not _ENGLISH.isdisjoint(words)) else None
    return best


def _are_enough(votes: int, english: int, voters: int, words: int) -> bool:
    if votes >= _ENOUGH and (voters > 1 or not english):
        return True
    return votes > 1 and not english and 4 * voters >= words


def _count(voters: Iterable[str], weak: Iterable[str], text: str) -> dict[Language, int]:
    votes: dict[Language, int] = dict.fromkeys(STEMMED, 0)
    for word in voters:
        for language, weight in _VOTES[word]:
            votes[language] += weight
    for language in STEMMED:
        votes[language] += len(_STOP_WORDS[language].intersection(weak))
        for letter in () if text.isascii() else set(_FOREIGN_LETTERS.findall(text)):
            votes[language] += (letter in _LETTERS[language]) + (letter in _SURE_LETTERS.get(language, ""))
    return votes


def _by_script(text: str) -> Language | None:
    """Return the language that the letters belong to, if at least a third of the words' letters are of its script."""
    letters = len(_CJK.findall(text))
    if 3 * letters < sum(map(len, _WORD.findall(text))) or not letters:
        return None
    if _SYLLABLES.search(text):
        return "ko"
    return "ja" if _KANA.search(text) else "zh"


# ---- stop words and stems ------------------------------------------------------------------------------------------


@lru_cache(maxsize=len(STEMMED))
def _stemmer(language: Language) -> Stemmer.Stemmer:
    return Stemmer.Stemmer(_SNOWBALL[language], 0)


_SNOWBALL = {"de": "german", "fr": "french", "es": "spanish", "it": "italian", "pt": "portuguese"}


@lru_cache(maxsize=50_000)
def stem(word: str, language: Language) -> str:
    """Return the stem of a word in lower case, without accents. It is stemmed first: suffixes are known with them."""
    stemmed = _stemmer(language).stemWord(word[:MAX_WORD])
    return stemmed if stemmed.isascii() else without_accents(stemmed)


def without_accents(word: str) -> str:
    letters = unicodedata.normalize("NFKD", word.replace("ß", "ss"))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def is_stop_word(word: str, language: Language) -> bool:
    return word in _STOP_WORDS.get(language, ())


# ---- letters -------------------------------------------------------------------------------------------------------
# Chinese and Japanese are indexed as pairs of letters (`terms`); a word may also be a single letter. Korean has spaces,
# but particles are written together with their nouns.

_PARTICLES = re.compile(
    "(?:에서는|에게서|한테서|으로는|이라고|에서|에게|한테|으로|까지|부터|처럼|보다|이랑|하고|라고|은|는|이|가|을|를|에|의|와|과|도|로|만|랑)$"
)
_KOREAN_WORD = re.compile(f"[{_HANGUL}]+")


def single_letters(text: str) -> list[str]:
    """Return the Chinese letters of a text, each once."""
    return list(dict.fromkeys(_HAN.findall(text)))


def korean_terms(text: str) -> list[str]:
    """Return the words of a Korean text without their particles; of longer ones, all pairs of syllables."""
    found: list[str] = []
    for word in _KOREAN_WORD.findall(text):
        noun = _PARTICLES.sub("", word) or word
        found += [noun] if len(noun) <= 2 else [noun[i : i + 2] for i in range(len(noun) - 1)]
    return list(dict.fromkeys(found))


# Words of questions and small words, which do not say what a question is about. The longest come first.
_CJK_SMALL = {
    "zh": re.compile(
        "什么时候|为什么|怎么样|什么|怎么|哪里|哪儿|哪个|哪天|哪些|哪家|哪位|多少|多久|几点|几个|几次|是不是|有没有|我们|你们|他们|"
        "告诉|记得|曾经|一下|我的|你的|[谁吗呢的了是在我你他她它和与把被给过着吧啊想要去有没不就都也很到请问叫哪几]"
    ),
    "ja": re.compile(
        "ことがありますか|でしたっけ|ましたっけ|だったっけ|ていますか|ていました|でしょうか|でしたか|ましたか|ますか|ですか|だっけ|"
        "ください|いくつ|いくら|どうして|どんな|どこ|いつ|だれ|なぜ|どの|どれ|どう|なに|なん|です|ます|ました|でした|だった|"
        "という|について|私たち|[私僕俺何誰]|(?<=[\u30a0-\u30ff\u3400-\u9fff])[はがをにのとでもへやか](?:は|も)?|[？?]"
    ),
    "ko": re.compile(
        "언제|어디(?:에서|서|로|에)?|누구(?:를|와|랑)?|누가|무엇(?:을|이)?|무슨|뭐(?:라고|를|야|지)?|뭘|어떤|어떻게|얼마나|얼마|왜|몇|"
        "(?<![\uac00-\ud7a3])(?:나는|내가|나의|내|제가|저는|제|우리(?:는|가)?|너|그)(?![\uac00-\ud7a3])|"
        "(?:했|였|었|았|됐|갔|샀|왔)(?:지|나요|어요|습니까|었지|더라)|인가요|입니까|있나요|하나요|하지|[？?]"
    ),
}


def drop_small_words(text: str, language: Language) -> str:
    """Remove what a question in Chinese, Japanese or Korean has besides its subject."""
    return _CJK_SMALL[language].sub(" ", text) if language in _CJK_SMALL else text
