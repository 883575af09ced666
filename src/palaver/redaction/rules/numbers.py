"""Rules for numbers with a check digit or a known form: bank accounts, cards and national ids. Pure."""

from __future__ import annotations

import re

from palaver.redaction.findings import CARD, IBAN, NATIONAL_ID
from palaver.redaction.rules.rule import (
    ALONE,
    Rule,
    Span,
    accept,
    ascii_pattern,
    check_text,
    digits_of,
    is_anything,
)
from palaver.redaction.rules.words import NINO_WORDS, SPACES, SSN_WORDS, any_of

_SSN_FORM = r"(?!000|666|9)\d{3}[ -]?(?!00)\d\d[ -]?(?!0000)\d{4}(?![\w-])"
_NINO_FORM = r"[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z][ -]?\d\d[ -]?\d\d[ -]?\d\d[ -]?[A-D](?!\w)"
_ANNOUNCED = r"(?:[\s:=#.']{1,3}[a-z]{1,12}){0,3}?[\s:=#.]{1,3}"

_ISSUERS = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})"  # Visa
    r"|(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}"  # Mastercard
    r"|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11,16}|35(?:2[89]|[3-8]\d)\d{12,15}"  # Amex, Diners, JCB
    r"|(?:6011|64[4-9]\d|65\d\d|62\d\d|220[0-4])\d{12,15}"  # Discover, UnionPay, Mir
    r"|(?:50|5[6-8]|63|67)\d{11,17}"  # Maestro
)
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
_DNI_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"


def passes_luhn(number: str) -> bool:
    """Return whether the last digit is the check digit of a payment card (Luhn)."""
    doubled = (int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(number)))
    return sum(value - 9 * (value > 9) for value in doubled) % 10 == 0


def _is_card(text: str) -> bool:
    number = digits_of(text)
    return bool(_ISSUERS.fullmatch(number)) and len(set(number)) > 1 and passes_luhn(number)


def _check_iban(match: re.Match[str]) -> Span | None:
    """Accept as many characters as the country's IBANs have, if they pass the mod 97 check. The rest is ignored."""
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


def _is_dni(text: str) -> bool:
    code = "".join(letter for letter in text.upper() if letter.isalnum())
    number = code[:-1].translate(str.maketrans("XYZ", "012"))
    return _DNI_LETTERS[int(number) % 23] == code[-1]


def _is_nino(text: str) -> bool:
    return text[:2].upper() not in ("BG", "GB", "KN", "NK", "NT", "TN", "ZZ")


def _is_nir(text: str) -> bool:
    code = text.replace(" ", "").upper()
    number = int(code[:-2].replace("2A", "19").replace("2B", "18"))
    return 97 - number % 97 == int(code[-2:])


NUMBERS = (
    Rule(
        IBAN,
        ascii_pattern(
            r"(?<![A-Za-z0-9])[A-Z]{2}\d\d[A-Z0-9]{0,30}+",
            rf"(?:[{SPACES}-](?:[A-Z]{{0,4}}\d[A-Z0-9]{{0,29}}|[A-Z]{{1,4}})(?![A-Za-z0-9])){{1,8}}",
        ),
        _check_iban,
        figures=2,
    ),
    Rule(
        IBAN,  # in lower case, in groups of four: "gb82 west 1234 5698 7654 32"
        ascii_pattern(
            rf"(?<![A-Za-z0-9])[a-z]{{2}}\d\d(?:[{SPACES}-][a-z0-9]{{4}}){{2,7}}(?:[{SPACES}-][a-z0-9]{{1,3}})?(?![a-z0-9])"
        ),
        _check_iban,
        figures=2,
    ),
    Rule(
        IBAN,
        ascii_pattern(r"(?<![A-Za-z0-9])[a-z]{2}\d\d[a-z0-9]{11,30}(?![a-z0-9])", flags=re.IGNORECASE),
        _check_iban,
        figures=2,
    ),
    Rule(CARD, ascii_pattern(ALONE, r"\d{13,19}(?![\w-])"), check_text(_is_card), figures=13, begins="number"),
    Rule(
        CARD,
        ascii_pattern(ALONE, rf"\d{{4}}( {{1,2}}|[{SPACES}.-])\d{{4}}\1\d{{4}}\1\d{{1,4}}(?!\d)"),
        check_text(_is_card),
        figures=13,
        begins="number",
    ),
    Rule(
        CARD,
        ascii_pattern(ALONE, rf"\d{{4}}( {{1,2}}|[{SPACES}.-])\d{{4}}\1\d{{4}}\1\d{{4}}\1\d{{3}}(?!\d)"),
        check_text(_is_card),
        figures=19,
        begins="number",
    ),
    Rule(
        CARD,
        ascii_pattern(ALONE, rf"3\d{{3}}([{SPACES}-])\d{{6}}\1\d{{4,5}}(?!\d)"),
        check_text(_is_card),
        figures=14,
        begins="number",
    ),
    Rule(
        CARD,
        ascii_pattern(ALONE, rf"\d{{8}}[{SPACES}-]\d{{8}}(?!\d)"),
        check_text(_is_card),
        figures=16,
        begins="number",
    ),
    Rule(
        NATIONAL_ID,  # FR
        ascii_pattern(
            ALONE,
            r"[1-478] ?\d\d ?(?:0[1-9]|1[0-2]|[2-9]\d) ?(?:\d\d|2[ABab]) ?\d{3} ?\d{3} ?\d\d(?![\w-])",
        ),
        check_text(_is_nir),
        figures=14,
        begins="number",
    ),
    Rule(NATIONAL_ID, ascii_pattern(ALONE, r"(?=\d{3}-\d\d-)", _SSN_FORM), accept, figures=9, begins="number"),  # US
    Rule(
        NATIONAL_ID,
        ascii_pattern(rf"(?<!\w)(?:{any_of(SSN_WORDS)})", _ANNOUNCED, f"(?P<value>{_SSN_FORM})", flags=re.IGNORECASE),
        check_text(is_anything),
        figures=9,
        words=tuple(SSN_WORDS),
        begins="word",
    ),
    Rule(NATIONAL_ID, ascii_pattern(r"(?<!\w)", _NINO_FORM), check_text(_is_nino), figures=6),  # UK
    Rule(
        NATIONAL_ID,
        ascii_pattern(rf"(?<!\w)(?:{any_of(NINO_WORDS)})", _ANNOUNCED, f"(?P<value>{_NINO_FORM})", flags=re.IGNORECASE),
        check_text(_is_nino),
        figures=6,
        words=tuple(NINO_WORDS),
        begins="word",
    ),
    Rule(
        NATIONAL_ID,  # ES
        ascii_pattern(ALONE, r"(?:\d{8}|\d{1,2}\.\d{3}\.\d{3})(?:-?[A-Za-z]| [A-Z])(?!\w)"),
        check_text(_is_dni),
        figures=7,
        begins="number",
    ),
    Rule(NATIONAL_ID, ascii_pattern(ALONE, r"[XYZxyz]-?\d{7}-?[A-Za-z](?!\w)"), check_text(_is_dni), figures=7),
)
