"""Redaction: personal data and secrets become the name of their kind, before anything is stored. Pure.

A rule is a kind, a pattern that proposes and a check that decides: a checksum, a range, or what stands beside it.
Of an address only `[email]` remains, of a card `[card]`; the words around it stay, so the text still reads.

Promises, each with a test:

* **Nothing in part.** Findings that overlap become one, over all their characters, named after the longest and then
  after the most specific.
* **Once is enough.** Redacting redacted text changes nothing.
* **Linear.** Patterns are bounded or possessive, and a rejected match is retried from its next character only.
* **In pieces as at once.** `StreamRedactor` gives what `redact` would give for the whole; its docstring says when.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from itertools import accumulate
from typing import Literal, Protocol

EMAIL, PHONE, CARD, IBAN, IP = "email", "phone", "card", "iban", "ip"
NATIONAL_ID, API_KEY, PASSWORD, TOKEN, PRIVATE_KEY = "national id", "api key", "password", "token", "private key"
ALL = frozenset((EMAIL, PHONE, CARD, IBAN, IP, NATIONAL_ID, API_KEY, PASSWORD, TOKEN, PRIVATE_KEY))

# The words that introduce a finding, and those that rule one out, reach this far.
REACH = 256
# A stream holds back at most this much: the longest private key block, or word, that is still seen whole.
HOLD = 8192


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found at `[start, end)` of the text as it was given."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Redacted:
    """The text that may be stored, and what was taken out of it, in order and without overlap."""

    text: str
    findings: tuple[Finding, ...]


class Redactor(Protocol):
    """Whatever can take secrets out of a text.

    The contract: findings are in order, do not overlap and lie within the text; `text` is the input with each of them
    replaced by its kind in brackets; redacting the result again changes nothing. A model serves the port as well as
    the rules do, best after them, so that what has a checksum never depends on it:

        class ModelRedactor:
            def __init__(self, rules: Redactor, ask: Callable[[str], list[Finding]]) -> None:
                self._rules, self._ask = rules, ask

            def redact(self, text: str) -> Redacted:
                found = merged([*self._rules.redact(text).findings, *self._ask(text)])
                return Redacted(replaced(text, found), found)
    """

    def redact(self, text: str) -> Redacted: ...


# ── Words ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_PASSWORDS = (
    "password passwort passwd passcode passphrase kennwort contraseña contrasena wachtwoord senha hasło lösenord "
    "adgangskode passord пароль parola 密码 密碼 パスワード 비밀번호 mdp pwd mot_de_passe"
).split()
_KEYS = (
    "api_key api_token access_key secret_key client_secret auth_key account_key subscription_key clé_api clé_d'api "
    "clave_api clave_de_api chave_api chiave_api api_schlüssel"
).split()
# These announce a key or a password, but other things too.
_VAGUE_KEYS = "key schlüssel".split()
_VAGUE_PASSWORDS = "clave".split()
_TOKENS = "token jeton secret bearer session_id sessionid cookie signature".split()
_PHONES = (
    "phone telephone telefon telefono teléfono téléphone tel mobile mobil móvil movil cell whatsapp handy portable "
    "anruf rückruf fax sms 电话 手机 電話 携帯"
).split()
# These announce a phone as well, but other things too.
_CALLS = "call ring text contact number número numero appelez llámame llama chiamami bel".split()
_COUNTED = (
    "order invoice ticket tracking serial isbn issn upc ean sku ref part case account commande facture pedido "
    "expediente factura bestell rechnung auftrag kunde customer id no nr n° nº # timestamp 订单 单号"
).split()
_VERSIONS = "version ver v release firmware build rev section chapter clause § oid schema".split()
_CURRENCIES = "eur usd gbp chf".split()
_SSN = "ssn social_security social".split()
_NINO = "nino national_insurance".split()


def _either(words: Iterable[str]) -> str:
    """A pattern for any of the words; an underscore stands for a blank, a hyphen, an underscore or nothing."""
    longest_first = sorted(words, key=len, reverse=True)
    return "|".join(re.escape(word).replace("_", "[ _-]?") for word in longest_first)


def _short(word: str) -> bool:
    return len(word) <= 3 and word.isascii()


def _announcing(words: Iterable[str]) -> str:
    """A pattern for any of the words, within a longer one too (`wifipassword`) unless it is short."""
    words = tuple(words)
    starts = [rf"(?<![a-zA-Z])(?:{_either(filter(_short, words))})"] if any(map(_short, words)) else []
    return "|".join((_either(word for word in words if not _short(word)), *starts)).strip("|")


# Scripts that are written without blanks: each of their characters is a word of its own.
_UNSPACED = r"\u0e00-\u0eff\u3001-\u30ff\u3400-\u9fff\uff00-\uff9f"
_BLANK = r"[ \t\u00a0\u202f]"
_FILLER = rf"(?:{_BLANK}{{1,2}}[^\W\d_]{{1,20}}){{0,5}}?"
_IS = "is|was|are|be|to|ist|lautet|lautete|auf|est|sera|es|era|è|é|jest|är|er|это"
# From the word to what it announces: "password for the door is ", "token=", "**key**: ", "password? It's ", "密码是".
_LINK = (
    rf"[\"'`*]{{0,3}}(?P<filler>{_FILLER})"
    rf"(?:{_BLANK}{{0,2}}(?P<colon>:=|=>|==|[:=：＝])|{_BLANK}{{1,2}}(?:{_IS})(?=[\s:])"
    rf"|[?,]{_BLANK}it['’]?s(?=\s)|{_BLANK}{{0,2}}[是为為は]):?\*{{0,2}}\s{{0,3}}"
)


# ── Checks: from a match to the span that is to go, or None ──────────────────────────────────────────────────────────

Span = tuple[int, int]
Check = Callable[[re.Match[str]], Span | None]

_NOT_DIGIT = re.compile(r"\D+")


def _digits(text: str) -> str:
    return _NOT_DIGIT.sub("", text)


def _follows(match: re.Match[str], pattern: re.Pattern[str], start: int, reach: int = 48) -> bool:
    """Whether the pattern, which is anchored at the end, matches what stands before `start`."""
    return pattern.search(match.string, max(0, start - reach), start) is not None


def _always(match: re.Match[str]) -> Span:
    return match.span()


def _anything(_: str) -> bool:
    return True


def _when(test: Callable[[str], bool]) -> Check:
    """The check that asks only about the matched text (group `value`, if there is one)."""

    def check(match: re.Match[str]) -> Span | None:
        group: str | int = "value" if "value" in match.re.groupindex else 0
        return match.span(group) if test(match[group]) else None

    return check


_URL_LOGIN = re.compile(r"//[^\s:/@]{0,64}:$")
_SSH_PATH = re.compile(r":[\w~.-]{1,64}/")


def _email(match: re.Match[str]) -> Span | None:
    """Not the login of a URL, whose password has a rule of its own, nor the remote of a repository."""
    if _follows(match, _URL_LOGIN, match.start(), reach=80) or _SSH_PATH.match(match.string, match.end()):
        return None
    return match.span()


def luhn(number: str) -> bool:
    """Whether the digits carry the check digit that payment cards do."""
    doubled = (int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(number)))
    return sum(value - 9 * (value > 9) for value in doubled) % 10 == 0


_ISSUERS = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})"  # Visa
    r"|(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}"  # Mastercard
    r"|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11,16}|35(?:2[89]|[3-8]\d)\d{12,15}"  # Amex, Diners, JCB
    r"|(?:6011|64[4-9]\d|65\d\d|62\d\d|220[0-4])\d{12,15}"  # Discover, UnionPay, Mir
    r"|(?:50|5[6-8]|63|67)\d{11,17}"  # Maestro
)


def _card(text: str) -> bool:
    number = _digits(text)
    return bool(_ISSUERS.fullmatch(number)) and len(set(number)) > 1 and luhn(number)


# How long an IBAN is, by country.
_IBAN_LENGTHS = {
    country: length
    for length, countries in {
        15: "NO", 16: "BE", 18: "DK FI FO GL NL SD", 19: "MK SI", 20: "AT BA EE KZ LT LU MN XK",
        21: "CH HR LI LV", 22: "BG BH CR DE GB GE IE ME RS VA", 23: "AE GI IL IQ OM SO TL",
        24: "AD CZ ES MD PK RO SA SE SK TN VG", 25: "LY PT ST", 26: "IS TR", 27: "BI DJ FR GR IT MC MR SM",
        28: "AL AZ BY CY DO GT HU LB NI PL SV", 29: "BR EG PS QA UA", 30: "JO KW MU YE", 31: "MT SC", 32: "LC",
        33: "RU",
    }.items()
    for country in countries.split()
}  # fmt: skip


def _iban(match: re.Match[str]) -> Span | None:
    """As many characters as the country has, with the remainder 1 by 97; what follows them is not looked at."""
    length = _IBAN_LENGTHS.get(match[0][:2].upper(), 0)
    places = [place for place, letter in enumerate(match[0]) if letter.isalnum()]
    if not length or len(places) < length:
        return None
    end = places[length - 1] + 1
    if match[0][end : end + 1].isalnum():
        return None
    code = "".join(letter for letter in match[0][:end].upper() if letter.isalnum())
    number = int("".join(str(int(letter, 36)) for letter in code[4:] + code[:4]))
    return (match.start(), match.start() + end) if number % 97 == 1 else None


_VERSION_BEFORE = re.compile(rf"(?<![a-zA-Z])(?:{_either(_VERSIONS)})s?[\s.:=#]{{0,4}}$", re.IGNORECASE)


def _ipv4(match: re.Match[str]) -> Span | None:
    return None if _follows(match, _VERSION_BEFORE, match.start()) else match.span()


def _ipv6(text: str) -> bool:
    """An address with a figure in it: `abc::def` is rather a name in a program."""
    if text.count(":") < 2 or not any(letter.isdigit() for letter in text):
        return False
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True


_DNI_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"


def _dni(text: str) -> bool:
    code = "".join(letter for letter in text.upper() if letter.isalnum())
    number = code[:-1].translate(str.maketrans("XYZ", "012"))
    return _DNI_LETTERS[int(number) % 23] == code[-1]


def _nino(text: str) -> bool:
    return text[:2].upper() not in ("BG", "GB", "KN", "NK", "NT", "TN", "ZZ")


def _nir(text: str) -> bool:
    code = text.replace(" ", "").upper()
    number = int(code[:-2].replace("2A", "19").replace("2B", "18"))
    return 97 - number % 97 == int(code[-2:])


# ── Phones ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_CALLING_CODES = re.compile(
    r"1[2-9]\d\d[2-9]\d{6}$|7\d{10}$"
    r"|(?:2[07]|3[0-469]|4[013-9]|5[1-8]|6[0-6]|8[1246]|9[0-58])[1-9(0]\d{6,11}$"
    r"|(?:2[1-689]\d|3[578]\d|42[0-3]|50\d|59\d|6[789]\d|80[08]|85\d|88\d|96\d|97\d|99\d)\d{5,10}$"
)
_COUNTED_BEFORE = re.compile(
    rf"(?:(?<![a-zA-Z])(?:{_either((*_COUNTED, *_VERSIONS))})[a-z]{{0,12}}\W{{0,4}}(?:[^\W\d_]{{1,12}}\W{{1,3}}){{0,2}}"
    rf"|[$€£¥]\s?|(?<![a-zA-Z])(?:{_either(_CURRENCIES)})\s)$",
    re.IGNORECASE,
)
_PHONE_BEFORE = re.compile(rf"(?<![a-zA-Z])(?:{_either(_PHONES)})[^\d\n]{{0,12}}$", re.IGNORECASE)
_COUNTED_AFTER = re.compile(
    rf"\s?(?:[€$£¥%]|(?:{_either(_CURRENCIES)}|euros?|dollars?|pounds|million|people|views)(?![a-z]))|[.,:/-]\d",
    re.IGNORECASE,
)
_DATE = re.compile(r"\(?(?:\d{1,2}[./-]\d{1,2}[./-]\d{4}|(?:19|20)\d\d[./ -](?:19|20|0|1[0-2]))")


def _counted(match: re.Match[str], span: Span) -> bool:
    """Whether what stands around the digits says that they are a price, a date, an order or a version."""
    if _COUNTED_AFTER.match(match.string, span[1]) or _DATE.match(match.string, span[0]):
        return True
    return _follows(match, _COUNTED_BEFORE, span[0]) and not _follows(match, _PHONE_BEFORE, span[0])


def _phone(test: Callable[[str], bool]) -> Check:
    def check(match: re.Match[str]) -> Span | None:
        start, end = match.span("value" if "value" in match.re.groupindex else 0)
        while match.string[end - 1] in " ().-/":
            end -= 1
        return (start, end) if test(match.string[start:end]) and not _counted(match, (start, end)) else None

    return check


def _international(text: str) -> bool:
    number = _digits(text).removeprefix("00") if text.startswith("00") else _digits(text.replace("(0)", ""))
    return bool(_CALLING_CODES.match(number)) and len(number) <= 15


_UNBROKEN = re.compile(r"0[67]\d{8}|07\d{9}|0800\d{6,7}")
_GROUPS = re.compile(r"\d+")


def _national(text: str) -> bool:
    """With a leading zero: grouped as people group them, or unbroken and of a mobile's form."""
    groups = _GROUPS.findall(text)
    if len(groups) == 1:
        return bool(_UNBROKEN.fullmatch(text))
    if groups[0] == "0" and not text.startswith("("):
        return False
    return len(groups) <= 6 and all(len(group) > 1 for group in groups[1:]) and not text.startswith(("00", "(00"))


def _announced(text: str) -> bool:
    """After a word such as "call": seven digits or more, and not a pair of years."""
    return 7 <= len(_digits(text)) <= 13 and not re.fullmatch(r"(?:(?:19|20)\d\d[ -]?)+", text)


# ── Secrets ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _random(text: str) -> bool:
    """Whether it looks drawn by lot: figures among letters, and three bits or more to a character."""
    sample = text[:64]
    if not any(letter.isdigit() for letter in sample) or not any(letter.isalpha() for letter in sample):
        return False
    counts = Counter(sample).values()
    return -sum(n / len(sample) * math.log2(n / len(sample)) for n in counts) >= 3.0


def _mixed_random(text: str) -> bool:
    return _random(text) and bool(_MIXED.search(text))


_NAME = re.compile(r"[A-Za-z_]{1,20}=(?=[^=])")
_PART = re.compile(r"[A-Za-z0-9+/]{10,}")
_UUID = re.compile(r"[0-9a-f-]{32,36}")
_TOKEN_RUN = re.compile(r"[A-Za-z0-9+/_=.~-]*+")


def _secret(match: re.Match[str]) -> Span | None:
    """An announced value, to the end of its run, if a part of it looks random: `base64-without-padding-2` does not."""
    start, end = match.span("value")
    if name := _NAME.match(match.string, start, end):
        start = name.end()
    value = match.string[start:end]
    if not _UUID.fullmatch(value) and not any(map(_random, _PART.findall(value))):
        return None
    run = _TOKEN_RUN.match(match.string, end)
    end = run.end() if run else end
    return start, start + len(match.string[start:end].rstrip("."))


# What stands after "password is" without being one.
_NOT_A_PASSWORD = frozenset(
    """a abgelaufen about again already also always an and any app are as at auth be because been being blank but by
    case changed choose compromised confirm correct correcta correcte correcto different do dont email empty
    encrypted enter env environ errada errata expirado expired expiré falsch false fehlt field file fine for
    forgotten from geheim getpass gone good great gültig hash hashed here hidden how if in incorrect incorrecta
    incorrecte incorreta input insecure invalid invalide inválida is it its just kein kept known leaked leer
    leider length like long lost manager managers mandatory masked missing must my needed never nicht no noch
    non none not now null obligatoire obligatoria obrigatória of ok okay old on only optional or out outdated
    para pas please policy prompt protected public redacted required requis reset safe same saved sbagliata
    secret secure sehr sensitive sent set shared short should so something still stored str string strong
    terrible text that the their there this to too trop troppo true très undefined unknown unset updated used
    user valid vergessen verloren very visible vuota weak what when where which why with working wrong you your
    zu
    очень неверный""".split()
)
_MASKED = re.compile(r"[*•.xX_-]+|[<{$%(].*|\[.*|https?:.*|.*\(.*")
_VALUE_END = re.compile(r"&[\w.-]{1,32}=|[;,][\w.-]{1,32}=|[\"'`<](?=[\s,;}\])]|$)|\[(?=[a-z])|\\n")
_SENTENCE_END = re.compile(r"[\s\"'”»)]{0,2}(?:$|[.,;!?\n]|[—–(-]| (?:and|und|et|y|e|en|but|for|on)\b)")
_SYMBOL = re.compile(r"[!@#$%^&*+=_~|\\]")
_MIXED = re.compile(r"[a-z][A-Z]")


def _strong(value: str) -> bool:
    """Whether no dictionary has this word."""
    figures = any(letter.isdigit() for letter in value)
    return len(value) > 3 and (figures or bool(_SYMBOL.search(value)) or bool(_MIXED.search(value)))


def _password_end(text: str, start: int, end: int) -> int:
    """Where the value ends: before what follows it in a query or in code, and before closing punctuation."""
    cut = _VALUE_END.search(text, start + 1, end)
    value = text[start : cut.start() if cut else end]
    return start + len(value.rstrip(".,;:)]}>\"'`»”?…"))


_WORD_END = re.compile(rf"[\s{_UNSPACED}]")


def _password(match: re.Match[str]) -> Span | None:
    """A quoted value; a word no dictionary has; or a plain word that ends the clause and is no remark about it."""
    if match["quoted"]:
        return match.span("quoted") if not _MASKED.fullmatch(match["quoted"]) else None
    start, end = match.span("value")
    if end - start == REACH:
        after = _WORD_END.search(match.string, end)
        end = after.start() if after else len(match.string)
    end = _password_end(match.string, start, end)
    value = match.string[start:end]
    if len(value) < 3 or _MASKED.fullmatch(value) or value.lower() in _NOT_A_PASSWORD:
        return None
    described = match["filler"] and match["colon"]  # "password strength: medium"
    plain = 4 < len(value) < 32 and value.isalpha() and not described and _SENTENCE_END.match(match.string, end)
    return (start, end) if plain or _strong(value) else None


def _bare_password(value: str) -> bool:
    """Without "is" or a colon only what can hardly be a word or a path."""
    figures, letters = any(map(str.isdigit, value)), any(map(str.isalpha, value))
    return figures and letters and "/" not in value and not _MASKED.fullmatch(value)


_END = re.compile(r"-----END [A-Z0-9 ]{0,40}-----")
_PEM_LINES = re.compile(r"(?:(?:\s|\\n|\\r){0,4}[A-Za-z0-9+/=]{16,}+){0,160}")


def _pem(match: re.Match[str]) -> Span:
    """To the end of the block; when it was cut off, over all lines that look like one."""
    limit = match.start() + HOLD
    following = match.string.find("-----BEGIN", match.end(), limit)
    closing = _END.search(match.string, match.end(), following if following >= 0 else limit)
    if closing:
        return match.start(), closing.end()
    lines = _PEM_LINES.match(match.string, match.end(), limit)
    return match.start(), lines.end() if lines else match.end()


# ── The table ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern proposes, a check decides. Earlier rules in the table are more specific than later ones.

    A text that has not so many figures, or none of the words, is not searched: most texts have neither. Where a match
    can only begin with one of the words, or with a number, no other place is looked at.
    """

    kind: str
    pattern: re.Pattern[str]
    check: Check
    figures: int = 0
    words: tuple[str, ...] = ()
    begins: Literal["anywhere", "word", "number"] = "anywhere"


def _clause(kind: str, words: Iterable[str], link: str, value: str, check: Check) -> Rule:
    """A rule for a value that one of the words announces. A placeholder announces nothing."""
    words = tuple(words)
    pattern = rf"(?<!\[)(?:{_announcing(words)})(?![a-zA-Z\]])(?:{link}){value}"
    return Rule(kind, re.compile(pattern, re.IGNORECASE), check, words=words, begins="word")


def _ascii(*parts: str, flags: int = 0) -> re.Pattern[str]:
    """Letters are A to Z, so that a number is found between characters of a script without blanks."""
    return re.compile("".join(parts), re.ASCII | flags)


_LOCAL = r"A-Za-z0-9._%+\u00c0-\u024f-"
_LABEL = r"[A-Za-z0-9\u00c0-\u024f][A-Za-z0-9\u00c0-\u024f-]{0,62}"
_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_SSN_FORM = r"(?!000|666|9)\d{3}[ -]?(?!00)\d\d[ -]?(?!0000)\d{4}(?![\w-])"
_NINO_FORM = r"[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z][ -]?\d\d[ -]?\d\d[ -]?\d\d[ -]?[A-D](?!\w)"
_ANNOUNCED = r"(?:[\s:=#.']{1,3}[a-z]{1,12}){0,3}?[\s:=#.]{1,3}"
_ALONE = r"(?<![\w.-])"  # a figure before it would make it part of something longer
_APART = r"(?<![\w.,:/+-])"
_SEPARATOR = r"[ \u00a0\u2009\u202f().\-/–]"
_PHONE_WORD = (
    rf"(?<![a-zA-Z])(?:{_either((*_PHONES, *_CALLS))})(?:[\s.:;,#'’-]{{0,3}}[^\W\d_]{{1,12}}){{0,3}}?[\s.:#]{{0,3}}"
)
_LONG_VALUE = r"[\"'`]?(?P<value>[A-Za-z0-9+/_=.~-]{16,512})"
_FREE_VALUE = rf"(?:[\"'`“«„](?P<quoted>[^\n\"'`“”«»]{{3,64}})[\"'`”»“]|(?P<value>[^\s{_UNSPACED}]{{3,{REACH}}}))"
_PREFIXES = (
    r"sk-[\w-]{20,}+|[spr]k_(?:live|test)_\w{16,}+|gh[opsur]_[A-Za-z0-9]{30,}+|github_pat_\w{22,}+"
    r"|xox[abeprs]-[A-Za-z0-9-]{10,}+|AIza[\w-]{35}|(?:AKIA|ASIA)[A-Z0-9]{16}|glpat-[\w-]{20,}+"
    r"|npm_[A-Za-z0-9]{36}|hf_[A-Za-z0-9]{30,}+"
)

RULES = (
    Rule(PRIVATE_KEY, _ascii(r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"), _pem, words=("-----begin",)),
    Rule(TOKEN, _ascii(r"(?<![\w-])eyJ[\w-]{8,}+\.eyJ[\w-]{4,}+\.[\w-]{8,}+"), _always, words=("eyj",), begins="word"),
    Rule(API_KEY, _ascii(rf"(?<![\w-])(?:{_PREFIXES})(?![\w-])"), _when(_random), figures=1),
    Rule(
        IBAN,
        _ascii(
            r"(?<![A-Za-z0-9])[A-Z]{2}\d\d[A-Z0-9]{0,30}+",
            r"(?:[ \u00a0-](?:[A-Z]{0,4}\d[A-Z0-9]{0,29}|[A-Z]{1,4})(?![A-Za-z0-9])){1,8}",
        ),
        _iban,
        figures=2,
    ),
    Rule(
        IBAN,
        _ascii(r"(?<![A-Za-z0-9])[a-z]{2}\d\d[a-z0-9]{11,30}(?![a-z0-9])", flags=re.IGNORECASE),
        _iban,
        figures=2,
    ),
    Rule(CARD, _ascii(_ALONE, r"\d{13,19}(?![\w-])"), _when(_card), figures=13, begins="number"),
    Rule(
        CARD,
        _ascii(_ALONE, r"\d{4}( {1,2}|[.-])\d{4}\1\d{4}\1\d{1,4}(?!\d)"),
        _when(_card),
        figures=13,
        begins="number",
    ),
    Rule(
        CARD,
        _ascii(_ALONE, r"\d{4}( {1,2}|[.-])\d{4}\1\d{4}\1\d{4}\1\d{3}(?!\d)"),
        _when(_card),
        figures=19,
        begins="number",
    ),
    Rule(CARD, _ascii(_ALONE, r"3\d{3}([ -])\d{6}\1\d{4,5}(?!\d)"), _when(_card), figures=14, begins="number"),
    Rule(CARD, _ascii(_ALONE, r"\d{8}[ -]\d{8}(?!\d)"), _when(_card), figures=16, begins="number"),
    Rule(
        NATIONAL_ID,  # FR
        _ascii(
            _ALONE,
            r"[1-478] ?\d\d ?(?:0[1-9]|1[0-2]|[2-9]\d) ?(?:\d\d|2[ABab]) ?\d{3} ?\d{3} ?\d\d(?![\w-])",
        ),
        _when(_nir),
        figures=14,
        begins="number",
    ),
    Rule(NATIONAL_ID, _ascii(_ALONE, r"(?=\d{3}-\d\d-)", _SSN_FORM), _always, figures=9, begins="number"),  # US
    Rule(
        NATIONAL_ID,
        _ascii(rf"(?<!\w)(?:{_either(_SSN)})", _ANNOUNCED, f"(?P<value>{_SSN_FORM})", flags=re.IGNORECASE),
        _when(_anything),
        figures=9,
        words=tuple(_SSN),
        begins="word",
    ),
    Rule(NATIONAL_ID, _ascii(r"(?<!\w)", _NINO_FORM), _when(_nino), figures=6),  # UK
    Rule(
        NATIONAL_ID,
        _ascii(rf"(?<!\w)(?:{_either(_NINO)})", _ANNOUNCED, f"(?P<value>{_NINO_FORM})", flags=re.IGNORECASE),
        _when(_nino),
        figures=6,
        words=tuple(_NINO),
        begins="word",
    ),
    Rule(
        NATIONAL_ID,  # ES
        _ascii(_ALONE, r"(?:\d{8}|\d{1,2}\.\d{3}\.\d{3})(?:-?[A-Za-z]| [A-Z])(?!\w)"),
        _when(_dni),
        figures=7,
        begins="number",
    ),
    Rule(NATIONAL_ID, _ascii(_ALONE, r"[XYZxyz]-?\d{7}-?[A-Za-z](?!\w)"), _when(_dni), figures=7),
    Rule(
        PASSWORD,
        re.compile(r"(?<=:)//[^\s:/@]{0,64}:(?P<value>[^\s/@\[]{1,128})@"),
        _when(_anything),
        words=("//",),
        begins="word",
    ),
    _clause(API_KEY, _KEYS, f"{_LINK}|{_BLANK}", _LONG_VALUE, _secret),
    _clause(TOKEN, _TOKENS, f"{_LINK}|{_BLANK}", _LONG_VALUE, _secret),
    _clause(API_KEY, _VAGUE_KEYS, _LINK, r"(?P<value>[A-Za-z0-9_]{20,128})(?![\w-])", _when(_mixed_random)),
    Rule(
        PASSWORD,
        re.compile(
            r"pass(?:phrase|word)[:=] ?(?P<value>[a-z]{3,12}(?: [a-z]{3,12}){2,6})(?=\.?(?:\n|$))", re.IGNORECASE
        ),
        _when(_anything),
        words=("passphrase", "password"),
        begins="word",
    ),
    _clause(PASSWORD, (*_PASSWORDS, "pw"), _LINK, _FREE_VALUE, _password),
    _clause(PASSWORD, ("pass",), r"(?P<filler>)(?P<colon>[:=]) ?", _FREE_VALUE, _password),
    _clause(
        PASSWORD,
        _VAGUE_PASSWORDS,
        _LINK,
        r"(?P<value>[^\s\"'`,;.\[\]]{6,64})(?=[.,;]?(?:\s|$))",
        _when(_bare_password),
    ),
    _clause(
        PASSWORD,
        "pwd passwd password passwort".split(),
        _BLANK,
        r"(?P<value>[^\s\"'`,;\[\]]{6,64})(?!\S)",
        _when(_bare_password),
    ),
    Rule(
        EMAIL,
        _ascii(
            rf"(?<![{_LOCAL}])(?:[{_LOCAL}]{{1,32}}')?[{_LOCAL}]{{1,64}}+@",
            rf"(?:{_LABEL}\.){{1,6}}[A-Za-z]{{2,24}}(?![\w@])",
        ),
        _email,
        words=("@",),
    ),
    Rule(IP, _ascii(rf"(?<![\w.])(?:{_OCTET}\.){{3}}{_OCTET}(?!\w|\.[a-z\d]|-\w)"), _ipv4, figures=4, begins="number"),
    Rule(
        IP,
        _ascii(rf"(?<![\w:.])[0-9A-Fa-f:]{{3,39}}+(?:(?<=:){_OCTET}(?:\.{_OCTET}){{3}})?(?![\w:])"),
        _when(_ipv6),
        figures=1,
        words=(":",),
    ),
    Rule(
        PHONE,
        _ascii(rf"(?<![\w+])(?:\+|00){_SEPARATOR}?\d(?:{_SEPARATOR}{{0,3}}\d){{6,14}}(?!\w)"),
        _phone(_international),
        figures=7,
        begins="number",
    ),
    Rule(
        PHONE,
        _ascii(_APART, rf"(?<!\d )\(?0(?:{_SEPARATOR}{{0,2}}\d){{8,11}}(?! ?\d)(?!\w)"),
        _phone(_national),
        figures=9,
        begins="number",
    ),
    Rule(
        PHONE,  # US
        _ascii(_APART, r"(?:1[ .-])?(?:\([2-9][0-8]\d\) ?|[2-9][0-8]\d[ .-])[2-9]\d\d[ .-]\d{4}(?![\w-])"),
        _phone(_anything),
        figures=10,
        begins="number",
    ),
    Rule(
        PHONE,  # RU
        _ascii(_APART, r"8[ -]?\(?\d{3}\)?[ -]\d{3}-\d\d-\d\d(?!\w)"),
        _phone(_anything),
        figures=11,
        begins="number",
    ),
    Rule(PHONE, _ascii(_APART, r"[679]\d\d \d\d \d\d \d\d(?!\w)"), _phone(_anything), figures=9, begins="number"),  # ES
    Rule(
        PHONE,
        re.compile(
            rf"{_PHONE_WORD}(?P<value>\(?[0-9](?:{_SEPARATOR}{{0,2}}[0-9]){{6,12}})(?! ?[0-9])(?![A-Za-z0-9_])",
            re.IGNORECASE,
        ),
        _phone(_announced),
        figures=7,
        words=(*_PHONES, *_CALLS),
        begins="word",
    ),
)


# ── Where a rule may find something ──────────────────────────────────────────────────────────────────────────────────

# Letters that a pattern takes for another one although their small letter is not that one: with one of them in a text,
# looking for words in its small letters would overlook some. A test finds them among all letters.
_ODD_LETTERS = re.compile("[İıſ\u1c80-\u1c88]")
_NUMBER = re.compile(r"(?<![0-9])[0-9]|[+(]")
# Words by their first part, and the parts that must be somewhere besides.
_Words = tuple[tuple[str, tuple[str, ...]], ...]


class _Looked:
    """What a look over a text tells about where the rules may find something."""

    def __init__(self, text: str) -> None:
        self.figures = sum(map(text.count, "0123456789"))
        self.small = text.lower() if text.isascii() or not _ODD_LETTERS.search(text) else None
        self.numbers = [number.start() for number in _NUMBER.finditer(text)] if self.figures else []

    def places(self, rule: Rule, words: _Words) -> list[int] | None:
        """Where a match may begin; None: anywhere."""
        if self.figures < rule.figures:
            return []
        if rule.begins == "number":
            return self.numbers
        if not words or self.small is None:
            return None
        found = _beginnings(self.small, words)
        return found if rule.begins == "word" or not found else None


def _beginnings(small: str, words: _Words) -> list[int]:
    found = []
    for first, others in words:
        if first in small and all(part in small for part in others):
            at = small.find(first)
            while at >= 0:
                found.append(at)
                at = small.find(first, at + 1)
    return sorted(found)


def _as_parts(words: Iterable[str]) -> _Words:
    return tuple((first, tuple(others)) for first, *others in (word.split("_") for word in words))


# ── One text ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_PLACEHOLDER = re.compile("|".join(re.escape(f"[{kind}]") for kind in sorted(ALL)))
_LONGEST_PLACEHOLDER = max(len(kind) for kind in ALL) + 2


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings in order, with those that overlap made one: over all of them, of the kind of the longest.

    Of equally long ones the first given decides.
    """
    groups: list[list[Finding]] = []
    end = -1
    for finding in sorted(findings, key=lambda found: found.start):
        if finding.start < end:
            groups[-1].append(finding)
        else:
            groups.append([finding])
        end = max(end, finding.end)
    return tuple(_joined(group) for group in groups)


def _joined(group: Sequence[Finding]) -> Finding:
    longest = max(group, key=lambda found: found.end - found.start)
    return Finding(longest.kind, group[0].start, max(found.end for found in group))


def replaced(text: str, findings: Iterable[Finding]) -> str:
    """The text with the kind of each finding in its place. The findings are in order and do not overlap."""
    parts: list[str] = []
    at = 0
    for finding in findings:
        parts += text[at : finding.start], f"[{finding.kind}]"
        at = finding.end
    return "".join((*parts, text[at:]))


def _found(rule: Rule, text: str, places: Iterable[int] | None = None) -> Iterator[Finding]:
    at, left = 0, None if places is None else iter(places)
    while match := rule.pattern.search(text, at) if left is None else _next(rule.pattern, text, at, left):
        span = rule.check(match)
        at = match.start() + 1
        if span and not _touches_placeholder(text, *span):
            at = max(at, span[1])
            yield Finding(rule.kind, *span)


def _next(pattern: re.Pattern[str], text: str, at: int, places: Iterator[int]) -> re.Match[str] | None:
    """The next match that begins at one of the places, not before `at`."""
    for place in places:
        if place >= at and (match := pattern.match(text, place)):
            return match
    return None


def _touches_placeholder(text: str, start: int, end: int) -> bool:
    """What was redacted before is neither part of a finding nor its neighbour."""
    around = text[max(0, start - _LONGEST_PLACEHOLDER) : end + _LONGEST_PLACEHOLDER]
    first = start - max(0, start - _LONGEST_PLACEHOLDER)
    last = first + end - start
    return any(mark.start() <= last and mark.end() >= first for mark in _PLACEHOLDER.finditer(around))


class RuleRedactor:
    """The rules of this module, without a model or a network. Reusable, and safe to share between threads."""

    def __init__(self, kinds: frozenset[str] = ALL) -> None:
        if unknown := kinds - ALL:
            raise ValueError(f"unknown kinds: {', '.join(sorted(unknown))}")
        self._rules = tuple((rule, _as_parts(rule.words)) for rule in RULES if rule.kind in kinds)

    def redact(self, text: str) -> Redacted:
        """`text` without what the rules find. Done again on the result, it changes nothing."""
        findings = self._scan(text)
        while findings:
            # A word that ruled a number out may itself be gone now, so look until nothing is left to find.
            clean = replaced(text, findings)
            more = self._scan(clean)
            if not more:
                return Redacted(clean, findings)
            findings = merged((*findings, *_moved_back(more, findings)))
        return Redacted(text, ())

    def _scan(self, text: str) -> tuple[Finding, ...]:
        looked = _Looked(text)
        return merged(
            finding for rule, words in self._rules for finding in _found(rule, text, looked.places(rule, words))
        )


def _moved_back(more: Iterable[Finding], earlier: Sequence[Finding]) -> Iterator[Finding]:
    """Findings in text where `earlier` ones are replaced already, as places in the text before that."""
    growth = list(accumulate((found.end - found.start - len(found.kind) - 2 for found in earlier), initial=0))
    ends = [found.end - grown for found, grown in zip(earlier, growth[1:], strict=True)]
    for finding in more:
        shift = growth[bisect_right(ends, finding.start)]
        yield Finding(finding.kind, finding.start + shift, finding.end + shift)


# ── Text that arrives in pieces ──────────────────────────────────────────────────────────────────────────────────────

_STREAM_WORD = re.compile(rf"(?<![^\s{_UNSPACED}])[^\s{_UNSPACED}]++(?=[\s{_UNSPACED}])|[{_UNSPACED}]")
_BREAK = re.compile(rf"[\s{_UNSPACED}]")
_UNSPACED_LETTER = re.compile(rf"[{_UNSPACED}]")
# Words that a number, an account or an id may go on after: with a figure, without any letter, or a short group.
_JOINS = re.compile(r"\S*\d\S*|[\W_]+|[\W_]*[A-Z]{1,4}[\W_]*")


def _first(word: str) -> str:
    return word[0] if _UNSPACED_LETTER.match(word) else word.split("_")[0]


def _openings() -> str:
    """How the words begin that announce a finding or rule one out: from there on the text is held."""
    clauses = (*_PASSWORDS, *_KEYS, *_VAGUE_KEYS, *_VAGUE_PASSWORDS, *_TOKENS, "pass", "pw")
    others = (*_PHONES, *_CALLS, *_COUNTED, *_VERSIONS, *_CURRENCIES, *_SSN, *_NINO)
    anywhere = {_first(word) for word in clauses if not _short(word)}
    at_the_start = {_first(word) for word in (*others, *filter(_short, clauses))}
    return rf"{_either(anywhere)}|(?<![a-zA-Z])(?:{_either(at_the_start)})"


_OPENING = re.compile(_openings(), re.IGNORECASE)


def _quiet(text: str, at: int, word: str) -> bool:
    """Whether the text may be cut at `at`, behind `word`: no rule matches across, whatever comes."""
    if _JOINS.fullmatch(word) or _OPENING.search(text, max(0, at - REACH), at):
        return False
    block = text.rfind("-----BEGIN", max(0, at - HOLD), at)
    return block < 0 or _END.search(text, block, at) is not None


class StreamRedactor:
    """Redacts text that arrives in pieces: `feed` returns what may be stored, `finish` the rest.

    Text is held back until a *quiet* break, one that no rule matches across: mostly a word or two, up to `REACH`
    characters behind a word such as "password" or "order", a private key until its end. So, with `RuleRedactor`:

    * However the text is cut, the results joined are exactly `redact(whole).text`, as long as a quiet break comes
      within `HOLD` characters of the one before.
    * Where none does (thousands of characters without a blank, pages of nothing but figures), the oldest part is given
      out all the same, never cutting through a finding nor between it and the word that announces it. A secret that
      is longer than `HOLD` is replaced, and the rest of its word is dropped. What is found may then differ from
      `redact(whole)` at such a cut.
    * No more than `HOLD` characters are held between two calls.

    Another `Redactor` is handed the text at the same breaks; the equality holds if it, too, never finds across one.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""
        self._checked = 0
        self._dropping = False

    def feed(self, piece: str) -> str:
        """Takes the next piece; returns the redacted text that no later piece can change."""
        self._held += self._after_dropped(piece)
        parts = [self._until_quiet()]
        while len(self._held) > HOLD:
            parts.append(self._forced())
        return "".join(parts)

    def finish(self) -> str:
        """The rest, redacted. The stream can then be used for another text."""
        rest, self._held, self._checked, self._dropping = self._held, "", 0, False
        return self._redactor.redact(rest).text

    def _until_quiet(self) -> str:
        """Gives out the text to the last quiet break. A break that is not quiet stays so: none is asked twice."""
        words = list(_STREAM_WORD.finditer(self._held, self._checked))
        for word in reversed(words):
            if _quiet(self._held, word.end(), word[0]):
                self._checked = words[-1].end() - word.end()
                return self._redactor.redact(self._taken(word.end())).text
        self._checked = words[-1].end() if words else self._checked
        return ""

    def _taken(self, end: int) -> str:
        taken, self._held = self._held[:end], self._held[end:]
        return taken

    def _forced(self) -> str:
        """Gives out the oldest part of a text without a quiet break."""
        window = self._held[:HOLD]
        findings = self._redactor.redact(window).findings
        cut = _cut_beside(window, findings)
        self._taken(cut)
        self._checked = max(0, self._checked - cut)
        if cut == HOLD:
            self._dropping = True
            self._held = self._after_dropped(self._held)
        return replaced(window[:cut], (found for found in findings if found.end <= cut))

    def _after_dropped(self, piece: str) -> str:
        """The piece without the rest of a secret that was replaced already."""
        if not self._dropping or not piece:
            return piece
        end = _BREAK.search(piece)
        self._dropping = end is None
        return piece[end.start() :] if end else ""


def _cut_beside(window: str, findings: Sequence[Finding]) -> int:
    """The last break that leaves room for what may still grow, moved behind findings and what announces them."""
    room = len(window) - 2 * REACH
    cut = max((found.start() for found in _BREAK.finditer(window, 1, room)), default=room)
    for finding in findings:
        if finding.start - REACH < cut < finding.end:
            cut = finding.end
    return cut
