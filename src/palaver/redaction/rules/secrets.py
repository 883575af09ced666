"""Rules for secrets: private keys, tokens, API keys and passwords. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter

from palaver.redaction.findings import API_KEY, PASSWORD, PRIVATE_KEY, TOKEN
from palaver.redaction.rules.rule import (
    Rule,
    Span,
    accept,
    announced_value,
    ascii_pattern,
    check_text,
    is_anything,
)
from palaver.redaction.rules.words import (
    BLANK,
    HOLD,
    KEYS,
    PASSWORDS,
    REACH,
    TOKENS,
    UNSPACED,
    VAGUE_KEYS,
    VAGUE_PASSWORDS,
)

_FILLER = rf"(?:{BLANK}{{1,2}}[^\W\d_]{{1,20}}){{0,5}}?"
_IS = "is|was|are|be|to|ist|lautet|lautete|auf|est|sera|es|era|è|é|jest|är|er|это"
# The text between a word and the value that it announces:
# "password for the door is ", "token=", "**key**: ", "password? It's ", "密码是".
_LINK = (
    rf"[\"'`*]{{0,3}}(?P<filler>{_FILLER})"
    rf"(?:{BLANK}{{0,2}}(?P<colon>:=|=>|==|[:=：＝])|{BLANK}{{1,2}}(?:{_IS})(?=[\s:])"
    rf"|[?,]{BLANK}it['’]?s(?=\s)|{BLANK}{{0,2}}[是为為は]):?\*{{0,2}}\s{{0,3}}"
)
_LONG_VALUE = r"[\"'`]?(?P<value>[A-Za-z0-9+/_=.~-]{16,512})"
_FREE_VALUE = rf"(?:[\"'`“«„](?P<quoted>[^\n\"'`“”«»]{{3,64}})[\"'`”»“]|(?P<value>[^\s{UNSPACED}]{{3,{REACH}}}))"
_PREFIXES = (
    r"sk-[\w-]{20,}+|[spr]k_(?:live|test)_\w{16,}+|gh[opsur]_[A-Za-z0-9]{30,}+|github_pat_\w{22,}+"
    r"|xox[abeprs]-[A-Za-z0-9-]{10,}+|AIza[\w-]{35}|(?:AKIA|ASIA)[A-Z0-9]{16}|glpat-[\w-]{20,}+"
    r"|npm_[A-Za-z0-9]{36}|hf_[A-Za-z0-9]{30,}+|SG\.[\w-]{16,64}\.[\w-]{30,}+|dop_v1_[0-9a-f]{40,}+|pypi-[\w-]{40,}+"
)
# The path of a webhook is its secret: it is all that is needed to post.
_WEBHOOKS = (
    r"https?://(?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks"
    r"|[\w-]{1,63}\.webhook\.office\.com)/[\w/@.-]{20,}+"
)

_MIXED = re.compile(r"[a-z][A-Z]")


def _is_random(text: str) -> bool:
    """Return whether it looks random: digits among letters, and at least three bits of entropy per character."""
    sample = text[:64]
    if not any(letter.isdigit() for letter in sample) or not any(letter.isalpha() for letter in sample):
        return False
    counts = Counter(sample).values()
    return -sum(n / len(sample) * math.log2(n / len(sample)) for n in counts) >= 3.0


def _is_mixed_random(text: str) -> bool:
    return _is_random(text) and bool(_MIXED.search(text))


_NAME = re.compile(r"[A-Za-z_]{1,20}=(?=[^=])")
_PART = re.compile(r"[A-Za-z0-9+/]{10,}")
_UUID = re.compile(r"[0-9a-f-]{32,36}")
_TOKEN_RUN = re.compile(r"[A-Za-z0-9+/_=.~-]*+")


def _check_secret(match: re.Match[str]) -> Span | None:
    """Accept an announced value with a random-looking part, to its end. `base64-without-padding-2` has none."""
    start, end = match.span("value")
    if name := _NAME.match(match.string, start, end):
        start = name.end()
    value = match.string[start:end]
    if not _UUID.fullmatch(value) and not any(map(_is_random, _PART.findall(value))):
        return None
    run = _TOKEN_RUN.match(match.string, end)
    end = run.end() if run else end
    return start, start + len(match.string[start:end].rstrip("."))


# Words after "password is" that are not a password.
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
_WORD_END = re.compile(rf"[\s{UNSPACED}]")


def _is_strong(value: str) -> bool:
    """Return whether the value has digits, symbols or mixed case, so that it is not a dictionary word."""
    figures = any(letter.isdigit() for letter in value)
    return len(value) > 3 and (figures or bool(_SYMBOL.search(value)) or bool(_MIXED.search(value)))


def _password_end(text: str, start: int, end: int) -> int:
    """Return where the value ends: before the next part of a query or of code, and before closing punctuation."""
    cut = _VALUE_END.search(text, start + 1, end)
    value = text[start : cut.start() if cut else end]
    return start + len(value.rstrip(".,;:)]}>\"'`»”?…"))


def _check_password(match: re.Match[str]) -> Span | None:
    """Accept a quoted value, a value that is not a dictionary word, or a word that ends the clause."""
    if match["quoted"]:
        return match.span("quoted") if not _MASKED.fullmatch(match["quoted"]) else None
    start, reach = match.span("value")
    end = _password_end(match.string, start, reach)
    value = match.string[start:end]
    if len(value) < 3 or _MASKED.fullmatch(value) or value.lower() in _NOT_A_PASSWORD:
        return None
    described = match["filler"] and match["colon"]  # "password strength: medium"
    plain = 4 < len(value) < 32 and value.isalpha() and not described and _SENTENCE_END.match(match.string, end)
    if not plain and not _is_strong(value):
        return None
    # A value that is longer than what was matched goes on to the end of its word. Only an accepted one is followed that
    # far, so that a text of many rejected ones is not read again for each of them.
    return (start, end) if reach - start < REACH else (start, _long_password_end(match.string, start, reach))


def _long_password_end(text: str, start: int, reach: int) -> int:
    """Return where a value ends that may be longer than the match, which ends at `reach`."""
    near = _VALUE_END.search(text, start + 1, reach + REACH)
    if near and near.start() < reach:
        return _password_end(text, start, reach + REACH)
    after = _WORD_END.search(text, reach)
    return _password_end(text, start, after.start() if after else len(text))


def _is_bare_password(value: str) -> bool:
    """Return whether a value without "is" or a colon before it can hardly be a word or a path."""
    figures, letters = any(map(str.isdigit, value)), any(map(str.isalpha, value))
    return figures and letters and "/" not in value and not _MASKED.fullmatch(value)


PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}-----")
_PEM_LINES = re.compile(r"(?:(?:\s|\\n|\\r){0,4}[A-Za-z0-9+/=]{16,}+){0,160}")


def _check_pem(match: re.Match[str]) -> Span:
    """Accept to the end of the block; when that is missing, all lines that look like part of it."""
    limit = match.start() + HOLD
    following = match.string.find("-----BEGIN", match.end(), limit)
    closing = PEM_END.search(match.string, match.end(), following if following >= 0 else limit)
    if closing:
        return match.start(), closing.end()
    lines = _PEM_LINES.match(match.string, match.end(), limit)
    return match.start(), lines.end() if lines else match.end()


# Known by their form alone.
UNANNOUNCED_SECRETS = (
    Rule(
        PRIVATE_KEY,
        ascii_pattern(r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"),
        _check_pem,
        words=("-----begin",),
    ),
    Rule(
        TOKEN,
        ascii_pattern(r"(?<![\w-])eyJ[\w-]{8,}+\.eyJ[\w-]{4,}+\.[\w-]{8,}+"),
        accept,
        words=("eyj",),
        begins="word",
    ),
    Rule(
        TOKEN,  # of Google's sign-in
        ascii_pattern(r"(?<![\w-])ya29\.[\w.-]{20,}+"),
        check_text(_is_random),
        figures=2,
        words=("ya29.",),
        begins="word",
    ),
    Rule(
        API_KEY,
        ascii_pattern(rf"(?<!\w){_WEBHOOKS}", flags=re.IGNORECASE),
        check_text(_is_random),
        figures=1,
        words=("http",),
        begins="word",
    ),
    Rule(API_KEY, ascii_pattern(rf"(?<![\w-])(?:{_PREFIXES})(?![\w-])"), check_text(_is_random), figures=1),
)

# Known by the words before them.
ANNOUNCED_SECRETS = (
    Rule(
        PASSWORD,
        re.compile(r"(?<=:)//[^\s:/@]{0,64}:(?P<value>[^\s/@\[]{1,128})@"),
        check_text(is_anything),
        words=("//",),
        begins="word",
    ),
    announced_value(API_KEY, KEYS, f"{_LINK}|{BLANK}", _LONG_VALUE, _check_secret),
    announced_value(TOKEN, TOKENS, f"{_LINK}|{BLANK}", _LONG_VALUE, _check_secret),
    announced_value(
        API_KEY, VAGUE_KEYS, _LINK, r"(?P<value>[A-Za-z0-9_]{20,128})(?![\w-])", check_text(_is_mixed_random)
    ),
    Rule(
        PASSWORD,
        re.compile(
            r"pass(?:phrase|word)[:=] ?(?P<value>[a-z]{3,12}(?: [a-z]{3,12}){2,6})(?=\.?(?:\n|$))", re.IGNORECASE
        ),
        check_text(is_anything),
        words=("passphrase", "password"),
        begins="word",
    ),
    announced_value(PASSWORD, (*PASSWORDS, "pw"), _LINK, _FREE_VALUE, _check_password),
    announced_value(PASSWORD, ("pass",), r"(?P<filler>)(?P<colon>[:=]) ?", _FREE_VALUE, _check_password),
    announced_value(
        PASSWORD,
        VAGUE_PASSWORDS,
        _LINK,
        r"(?P<value>[^\s\"'`,;.\[\]]{6,64})(?=[.,;]?(?:\s|$))",
        check_text(_is_bare_password),
    ),
    announced_value(
        PASSWORD,
        "pwd passwd password passwort".split(),
        BLANK,
        r"(?P<value>[^\s\"'`,;\[\]]{6,64})(?!\S)",
        check_text(_is_bare_password),
    ),
)
