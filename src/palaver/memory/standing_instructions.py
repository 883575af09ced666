"""Standing instructions and preferences, found by rule. Pure.

Precision comes first: a missed wish is repeated, an invented one spoils every answer. A rule reads only the beginning
of a sentence, where an English imperative stands; narration, questions and reported speech are skipped. The rules know
English; other languages need a model.

The caller passes only the text of a participant's own user turn: never a tool result, an attachment or a client's
own history.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from palaver.core.strides import between_strides

MAX_TEXT = 300  # characters of one instruction
MAX_READ = 20_000  # characters of a text that are read: half from its beginning, half from its end

Kind = Literal["instruction", "preference"]


@dataclass(frozen=True, slots=True)
class Standing:
    """One sentence that should hold for later turns as well."""

    kind: Kind
    text: str


def standing(text: str) -> list[Standing]:
    """Return the sentences of `text` that state a standing instruction or preference, in order, each once.

    Quoted lines and fenced code are not the participant's own words, and are skipped.
    """
    found: dict[str, Standing] = {}
    for sentence in sentences(own_words(text)):
        between_strides()
        wish = _found(sentence)
        if wish:
            found.setdefault(wish.text.casefold(), wish)
    return list(found.values())


# ---- sentences -----------------------------------------------------------------------------------------------------

_FENCE = re.compile(r"```.*?(?:```|\Z)", re.S)
_QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.M)
_BULLET = re.compile(r"^\s*(?:[-*•·]|\d{1,3}[.)])\s+")
# Only the first of several marks is tried, and once: the time is linear in their number.
_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’)\]]*+(?=\s)|[。！？।؟]+|\n+")
_ABBREVIATION = re.compile(r"(?:\b(?:mr|mrs|ms|dr|prof|st|vs|etc|e\.g|i\.e|no|approx|inc|ltd|jr|sr)|\b[a-z])\.$", re.I)
_SPACE = re.compile(r"\s+")


def own_words(text: str) -> str:
    """Remove quoted lines, fenced code and the middle of a huge text; make apostrophes straight."""
    if len(text) > MAX_READ:
        text = text[: MAX_READ // 2] + "\n" + text[-MAX_READ // 2 :]
    return _QUOTED_LINE.sub("", _FENCE.sub("\n", text)).replace("’", "'")


def sentences(text: str) -> Iterator[str]:
    """Split into sentences, with single spaces and without bullets. A dot after an abbreviation does not end one."""
    start = 0
    for end in _END.finditer(text):
        if end.group()[0] == "." and _ABBREVIATION.search(text[max(start, end.start() - 8) : end.start() + 1]):
            continue
        yield from _tidy(text[start : end.end()])
        start = end.end()
    yield from _tidy(text[start:])


def _tidy(piece: str) -> Iterator[str]:
    piece = _SPACE.sub(" ", _BULLET.sub("", piece)).strip()
    if any(letter.isalnum() for letter in piece):
        yield piece


def shorten(text: str, limit: int) -> str:
    """Cut `text` to `limit` characters, with an ellipsis."""
    text = _SPACE.sub(" ", text).strip()
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


# ---- words in the rules -------------- -------------------------------------------------------------------------------


def _any(words: str) -> str:
    """Return a pattern for any of these words. An underscore stands for a space."""
    return "(?:" + "|".join(word.replace("_", " ") for word in words.split()) + r")\b"


def _not(words: str) -> str:
    """Return a pattern that fails before any of these words."""
    return f"(?!{_any(words)})"


# Verbs for things that an assistant is asked to do, or not to do.
_DO = _any(
    """add address answer apologi[sz]e ask assume avoid begin bring_up call check cite combine comment confirm consider
    convert default describe disclose document double-check draft end explain follow format generate give highlight
    include indent keep label limit link list maintain make mark mention name offer order output prefer present print
    prioriti[sz]e proofread propose provide put quote recommend refer refuse remember remind repeat reply report
    respond return reveal round say send share show sign sort speak specify spell start stick stop suggest summari[sz]e
    tailor talk tell test translate treat type use verify wait warn wrap write"""
)
_DOING = _any(
    """adding addressing answering apologi[sz]ing asking assuming beginning being bringing_up calling citing converting
    ending explaining formatting giving including linking making mentioning offering pretending providing putting
    quoting recommending referring reminding repeating replying responding saying sending sharing showing sounding
    speaking starting suggesting summari[sz]ing talking telling_me translating treating using wrapping writing"""
)
# Properties of an answer.
_STYLE = _any(
    """abbreviations acronyms answers? apologies bullet_points? bullets? buzzwords capitals case celsius citations clock
    code comments? currency dashes dates? disclaimers dollars em_dashes e-?mails? emojis? emoticons? english euros
    examples? exclamation_marks? explanations? fahrenheit features footnotes format formats formatting grammar headers?
    headings? imperial jargon kilomet(?:er|re)s language links? lists? markdown messages? metric miles names? notation
    paragraphs? pounds pronouns quotes? repl(?:y|ies) responses? semicolons sentences? slang small_talk sources
    spellings? style summar(?:y|ies) syntax tables? time tone type_hints types? units? vocabulary words?"""
)
_MANNER = _any(
    """blunt brief careful_with casual clear concise confidential consistent critical detailed direct encouraging formal
    friendly funny gentle honest informal neutral objective patient plain polite precise private professional quiet
    secret serious short simple specific strict succinct terse thorough"""
)
_HOLDS = _any(
    """from_now_on from_here_on(?:_out)? from_this_point(?:_on|_forward)? going_forward moving_forward henceforth
    in_(?:the_)?future"""
)
_OFTEN = _any("whenever every_time each_time any_?time")
_SAY = _any(
    """answer ask bring_up cite give mention need paste post quote recommend reply report request respond say send share
    start suggest talk tell type upload use want write"""
)
_POLITE = "(?:(?:please|kindly|just|also|then) )*"
_DUTY = "(?:you (?:should|must|can|need to|have to|are to) )?"
_IMPERATIVE = (
    rf"{_POLITE}{_DUTY}(?:(?:do not|don't|always|never|only|ever) )*(?:please )?"
    rf"(?:{_DO}|be {_MANNER}|(?:stop|quit|refrain from) {_DOING})"
)
# After these words a sentence is a statement, not a request.
_SUBJECT = _any(
    """i i'm i'll i've i'd we we'll we're we've he he's she she's they they're they'll it it's the a an my our his her
    their this that there you you'll you're all everything nothing everyone nobody only_i life things years releases
    versions"""
)
_TELLS = r"[\w']+ (?:[\w']+ )?" + _any("is are was were will would has have might may can")
_NOT_A_NAME = _not(
    """when whenever if later crazy old paranoid biased back tomorrow tonight today soon now anytime any maybe asap on
    at in a an the by for from to once after before cynical naive stupid silly weird picky lazy lucky selfish what
    whatever again every names over and or but not this that spoiled sentimental nosy jealous s[ck]eptical also never
    always still written spelled already missing \\w+_(?:is|was)"""
)
_CONDITION = _any(
    """asthmatic blind celiac coeliac colou?r[-_]?blind deaf diabetic dyslexic epileptic gluten-free gluten-intolerant
    h(?:a)?emophiliac halal hard_of_hearing hypertensive kosher lactose-intolerant left-handed pescatarian pregnant
    teetotal vegan vegetarian visually_impaired wheelchair_user"""
)
_FOOD = _any(
    """alcohol aspirin beef caffeine dairy eggs gluten ibuprofen lactose meat milk nuts penicillin pork shellfish
    sugar"""
)
_VERY = f"(?:{_any('very really severely deathly highly also still a_bit quite mildly strictly mostly currently')} )*"
_I_AM = "(?:i'm|i am|im)"
_I_WOULD = "(?:i'd|i would)"
_DO_NOT = "(?:do not|don't)"

# ---- the rules -----------------------------------------------------------------------------------------------------

# Idioms and narration that begin like an imperative.
_ALWAYS_IDIOM = _not(
    """a an the been was is in on here there so nice good great happy fun love loved wanted something believe dream
    look_forward look_on got glad had up down my stay trust follow_your be_yourself be_kind be_there be_my \\w+ed
    \\w+ing"""
)
_NEVER_IDIOM = _not(
    """mind again a an the been had have_i in was is say_never say_die give_up stop too thought knew saw felt came went
    got met took made found told before ever quite really heard seen lose let_go underestimate know doubt forget_that
    forget_how look_back fails? gets? gonna would will did not once \\w+ed \\w+ing"""
)
_DO_NOT_IDIOM = _not(
    """say_that say_it stop tell_me ask_me_how ask_me_why wait make_me_laugh make_me_cry make_fun start keep_me
    keep_going mention_it be give_up give_in consider remind_me"""
)
_NOT_FOR_ANSWERS = _not(
    "comment word name time type case code date answer reply response message example quote link list"
)
_WHEN_FREE = _not("""have_time have_a have_some get can like want need feel are_ready""")

# Each rule matches at the beginning of a sentence, after pleasantries.
_INSTRUCTION_RULES = (
    rf"always {_ALWAYS_IDIOM}\w+",
    rf"never {_NEVER_IDIOM}\w+",
    r"never,? ever \w",
    # For all later answers.
    rf"{_HOLDS},? (?:please )?(?!{_SUBJECT}|{_TELLS})\w",
    rf"{_HOLDS},? {_IMPERATIVE}",
    rf"{_HOLDS},? (?:i want|i need|i expect|{_I_WOULD} like) you to\b",
    rf"(?:for|in) (?:all|every|any) (?:future |later |your |other )?{_STYLE},? {_IMPERATIVE}",
    rf"(?:as a (?:general )?rule|by default|in general|generally|unless i say otherwise),? {_IMPERATIVE}",
    rf"(?:{_IMPERATIVE}|let's \w+).*, always\W*$",
    rf"let's .*\b{_HOLDS}\W*$",
    rf"(?!{_SUBJECT}|{_TELLS})[\w-]+ [^?]*\b{_HOLDS}\W*$",
    # On a certain occasion.
    rf"(?:{_OFTEN}|when|if) (?:i|you|we) {_SAY}[^?]*?, {_IMPERATIVE}",
    rf"{_OFTEN} (?:i|you|we|i'm|you're|i've|you've) {_WHEN_FREE}[^?]*?, {_IMPERATIVE}",
    rf"(?!stop\b){_DO} [^?]*\b(?:{_OFTEN} (?:i|you {_DO})|(?:when|if) i {_SAY})",
    # Not to do, no longer to do.
    rf"{_DO_NOT} (?:you )?(?:ever |always )?{_DO_NOT_IDIOM}{_DO}",
    rf"{_DO_NOT} ever {_not('give quit stop let change forget lose doubt feel think')}\w+",
    rf"{_DO_NOT} forget to (?:always \w|{_any('use include add cite sign convert mention format round')})",
    rf"{_DO_NOT} (?:ever )?{_any('sugar-?coat lecture patroni[sz]e flatter hedge ramble over-?explain swear')}",
    rf"(?:stop|quit|refrain from) {_DOING}",
    rf"{_any('skip drop omit leave_out leave_off cut cut_out spare_me lose ditch')} "
    rf"(?:the|all|any|your) (?:\w+ )?{_STYLE}",
    rf"you {_DO_NOT} (?:need|have) to {_DO}.*\b(?:every time|each time|always)\b",
    r"i (?:never|don't ever) want (?:to (?:see|hear|read)|you to)\b",
    rf"no (?:more )?(?:\w+ )?{_NOT_FOR_ANSWERS}{_STYLE}"
    rf"(?:,? (?:please|at all|in (?:your|the) {_STYLE}|any ?more|thanks))?\W*$",
    # How to address the person.
    rf"(?:you (?:can|may|should|could) )?(?:just )?call me {_NOT_A_NAME}[\"']?\w",
    r"(?:you (?:can|may|should|could) )?(?:address|refer to) me (?:as|by|with|using)\b",
    rf"refer to {_not('page section chapter the_manual the_docs the_attached')}[^,?]* as\b",
    # How to answer.
    rf"keep (?:it|things|everything|the|this|that|your|all|my|every|{_STYLE})\b[^,?]*?"
    rf"(?<= )(?:{_MANNER}|{_any('under below within separate off_the_record')}|to (?:one|two|three|a|at most|the|\d))",
    r"keep (?:this|that|it|everything|all)\b[^,?]*\b(?:between us|to yourself)\b",
    rf"(?:only |just )?use (?:only )?{_not('your of this that these those it')}[^,?]*?\b{_STYLE}",
    rf"only {_DO} {_not('matters counts is was')}\w",
    rf"(?:your|all|every|each|any)(?: of)?(?: your| the)?(?: future)? {_STYLE}(?: (?:of|in|to) \w+)? "
    rf"{_any('should must need_to needs_to have_to has_to')}",
    r"(?:round|convert|spell|capitali[sz]e|format|number|sign|treat) (?:every|all|each|any|my|everything)\b",
    rf"(?:give|show|write|list|quote|express|put|report)(?: me)? "
    rf"{_any('all every everything any prices amounts dates times numbers measurements distances temperatures your')}"
    r"[^,?]* (?:in|as|with|using) [^,?]+",
    r"(?:ask|check with|confirm with|warn|tell|consult)(?: me)? (?:before|first)\b",
    rf"stick (?:to|with) {_not('it me us that your him her')}\w+",
    rf"(?:reply|respond|answer|write|speak|talk)(?: to me| back| everything)?(?: only)? (?:in|like|as if|as though) "
    rf"{_not('this that the_box the_form the_blank')}",
    rf"be (?:(?:a bit |a little )?more |less |very |as |always |extremely )?{_MANNER}"
    rf"(?: as possible| with me| in your {_STYLE}| and [\w ]+| when [\w ,]+)*(?:,? please)?\W*$",
    rf"avoid {_not('at me him her the_area the_traffic the_highway the_road')}\w+(?: [\w'/-]+){{0,12}}\W*$",
    r"make sure (?:that )?(?:you|to) (?:always|never) \w",
    rf"make sure (?:that )?(?:you|to) "
    rf"{_not('keep make tell say call send wait remember share talk name order check')}{_DO}",
    rf"(?:it's|it is) important (?:to me )?that you (?:always |never )?{_DO}",
    r"treat (?:every|all|any|my|each|anything|everything)\b",
    rf"let's (?:always {_DO}|keep (?:the|our|it|things|this|your) .*\b{_MANNER}|(?:stick to|use) .*\b{_STYLE})",
    # Said as a wish or a duty.
    rf"you (?:should|must|need to|have to) (?:always|never|only) {_DO}",
    rf"you (?:shouldn't|mustn't|should not|must not|may not) (?:ever )?{_DO}",
    rf"(?:you're|you are) to (?:always |never |only )?{_DO}",
    rf"(?:i want|i need|i expect|{_I_WOULD} (?:like|love))(?: for)? you to (?:please )?(?:"
    rf"(?:always|never|only|not (?:ever )?)(?: to)? \w|be (?:more |less )?{_MANNER}"
    rf"|{_any('keep remember remind call address refer treat avoid stop stick assume')}"
    r"|(?:answer|reply|respond|write|speak|talk)(?: to me)? (?:only )?in\b"
    r"|ask(?: me)? (?:first|before)|explain your|use (?:only|more|less|fewer))",
    rf"{_I_WOULD} (?:really )?(?:appreciate it|be grateful|like it) if you "
    rf"{_any('kept used didn.t did_not stopped avoided always never could_(?:always|keep|use|stop|avoid)')}",
    rf"{_I_WOULD} rather (?:that )?you\b",
    rf"(?:{_I_WOULD}|i) prefer (?:it )?(?:if|when|that) you\b",
    rf"{_I_WOULD} prefer you\b",
    rf"remember to (?:always |never )?{_DO}",
    r"remember(?:,|:| that) (?:all|every|each|any|(?:in|for) this project)\b",
)
_PREFERENCE_RULES = (
    rf"{_any('remember keep_in_mind bear_in_mind note take_note be_aware don.t_forget for_future_reference fyi')}"
    r"[,:]?(?: that)? (?:i|i'm|i've|i'd|my|we|our|we're)\b(?!')"
    rf"(?! {_any('am_always am_here always here proud love got told said asked mentioned saw was were went had')})",
    rf"i(?:'d| would)?(?: {_any('do usually generally always typically really still much strongly definitely also')}| "
    rf"{_any('personally tend_to normally mostly')})* prefer\b"
    rf"(?! not to {_any('think talk say remember')}| (?:if|when|that|it when|it if) you\b"
    rf"| it (?:here|there|that way)\W*$"
    rf"| (?:the|that|this) (?:\w+ )?{_any('one first second third last other latter former version')})",
    rf"my name(?:'s| is|:) {_NOT_A_NAME}\w",
    rf"i go by {_NOT_A_NAME}{_not('bus car train foot bike plane it there my_gut how instinct')}[\w\"']+",
    r"(?:my (?:preferred )?pronouns are|i use \w+/\w+(?:/\w+)? pronouns)\b",
    r"my time ?zone is\b",
    rf"{_I_AM} {_VERY}(?:allergic|intolerant) to\b(?! (?:work|mondays|nonsense|drama))",
    rf"{_I_AM} {_VERY}[\w-]+ intolerant\b",
    r"i have an? (?:(?:severe|bad|serious|mild|life-threatening) )?[\w-]+(?: [\w-]+)? (?:allergy|intolerance)\b",
    rf"{_I_AM} {_VERY}(?:an? )?(?:strict |lifelong |devout )?{_CONDITION}(?! (?:to|friendly))",
    r"i (?:don't|do not|can't|cannot|never) (?:eat|drink) "
    rf"{_not('and_drive another right_now tonight today that this it enough like as_much until before yet')}"
    r"(?!(?:any ?more|much)\W*$)",
    rf"i (?:can't|cannot|don't|do not|shouldn't) (?:have|take) (?:any )?{_FOOD}",
    rf"{_I_AM} on an? [\w-]+(?: [\w-]+)? diet\b",
    r"i only (?:eat|drink|wear|read|use|fly|buy)\b",
    rf"my (?:favou?rite|preferred) {_not('part memory moment thing memories time day bit scene line aspect one')}"
    r"[\w-]+(?: [\w-]+)? (?:is|are)\b",
    rf"i (?:really |usually )?(?:like|want|need) (?:my|your|all|the|every|all(?: of)? (?:your|my)) {_STYLE} \w",
    rf"i (?:really )?{_DO_NOT} (?:like|want|need) "
    rf"(?:{_any('any too_many so_many long short overly very fancy your the seeing reading')} )*{_STYLE}",
    rf"i (?:really )?{_any('hate love like dislike can.t_stand don.t_like appreciate prefer')}(?: it)? when you "
    rf"(?:always |never )?{_not('make keep start')}{_DO}",
    r"i (?:can )?(?:only speak|speak only|only read|only understand)\b",
)


@cache
def _rules() -> tuple[tuple[Literal["instruction", "preference"], re.Pattern[str]], ...]:
    """Compile the rules at their first use: that takes longer than opening a store."""
    return (
        *(("preference", re.compile(rule, re.I)) for rule in _PREFERENCE_RULES),
        *(("instruction", re.compile(rule, re.I)) for rule in _INSTRUCTION_RULES),
    )


# Words that may stand before an imperative without changing it.
_OPENING = re.compile(
    "^(?:"
    + _any(
        """actually again also and another_thing anyway btw but by_the_way cool finally first fyi good great heads_up
        hello hey hi important just just_so_you_know kindly lastly no oh ok okay one_more_thing please pls ps quick_note
        quick_thing reminder right so so_you_know sure thank_you thanks well yes"""
    )
    + r"(?: (?:there|assistant|again|all)\b)?[,:;.!—–-]*\s+)+",
    re.I,
)
_TOPIC = re.compile(r"^(?:for|in|with|on) [\w-]+(?: [\w-]+)?, (?=i (?:\w+ )?prefer|always|never|use|please)", re.I)
_NO = re.compile(r"^no\b[^,]", re.I)
_REQUEST = re.compile(r"^(?:can|could|would|will) you (?:please |kindly |just |maybe )*(?:from now on,? )?", re.I)
_REPORTED = re.compile(
    r"\b(?:he|she|they|who|someone|everyone|people|i|we|it|(?:my|his|her|their|our|the) [\w-]+|[A-Z]\w*)"
    r" (?:always )?"
    + _any(
        """admitted asked_(?:me|us|him|her|them) begged claimed insisted joked replied said says shouted swore tells
        told_(?!you) whispered wrote yelled"""
    )
)
# "I prefer X, can you help me with that?": the part before the question is a statement.
_QUESTION = re.compile(
    r"[,;]? (?:(?:and|but|so) )?(?:(?:can|could|would|will|should|do|does|is|are) (?:you|i|we|it|that|there|this)"
    r"|how|what|which|why|where|who|any ideas?)\b",
    re.I,
)
_CLAUSE = re.compile(r"(?:[,;]|\s[-—–])\s+(?:(?:and|but|so|also|oh|then) )*")
# Inside a sentence, only patterns that are hardly ever narration.
_INNER = re.compile(
    rf"(?:{_HOLDS}|please (?:always|never|don't|do not)\b|call me\b|my name is\b|{_I_AM} {_VERY}allergic\b"
    rf"|remember that i\b|i prefer\b|(?:always|never|don't) {_DO})",
    re.I,
)


def _found(sentence: str) -> Standing | None:
    """Return the wish in a sentence; of a very long sentence, only the clause that states it."""
    if is_reported(sentence):
        return None
    for start, shown in _starts(sentence):
        for kind, rule in _rules():
            between_strides()
            if rule.match(start):
                return Standing(kind, shorten(shown if len(shown) <= MAX_TEXT else start, MAX_TEXT))
    return None


def is_reported(sentence: str) -> bool:
    """Return whether the sentence is reported speech."""
    return bool(_REPORTED.search(sentence))


def _starts(sentence: str) -> Iterator[tuple[str, str]]:
    """Yield each text that a rule may match, and the text to show for it.

    These are the sentence without its opening, and each clause that begins like an imperative; of a question, only a
    polite request and the statement before it.
    """
    opened = sentence if _NO.match(sentence) else _TOPIC.sub("", _OPENING.sub("", sentence))
    stated, shown = opened, sentence
    if is_question(sentence):
        request, question = _REQUEST.match(opened), _QUESTION.search(opened)
        if request:
            yield opened[request.end() :].rstrip("?"), sentence
        stated = shown = opened[: question.start()] if question else ""
    yield stated, shown
    for clause in _CLAUSE.finditer(stated):
        if _INNER.match(stated, clause.end()):
            yield _OPENING.sub("", stated[clause.end() :]), shown


def is_question(sentence: str) -> bool:
    return sentence.rstrip("\"'”) ").endswith(("?", "？", "؟"))
