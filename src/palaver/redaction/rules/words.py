"""Words that announce a finding or rule one out, and patterns made from them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

# How many characters before a number or a value its announcing words are looked for.
REACH = 256
# How many characters a stream holds back at most: longer private keys and words are not seen whole.
HOLD = 8192

PASSWORDS = (
    "password passwort passwd passcode passphrase kennwort contraseña contrasena wachtwoord senha hasło lösenord "
    "adgangskode passord пароль parola 密码 密碼 パスワード 비밀번호 mdp pwd mot_de_passe"
).split()
KEYS = (
    "api_key api_token access_key secret_key client_secret auth_key account_key subscription_key clé_api clé_d'api "
    "clave_api clave_de_api chave_api chiave_api api_schlüssel"
).split()
# Words with other meanings too, which announce a key or a password.
VAGUE_KEYS = "key schlüssel".split()
VAGUE_PASSWORDS = "clave".split()
TOKENS = "token jeton secret bearer session_id sessionid cookie signature".split()
PHONES = (
    "phone telephone telefon telefono teléfono téléphone tel mobile mobil móvil movil cell whatsapp handy portable "
    "anruf rückruf fax sms cellulare celular telemóvel telemovel zap cep komórka 电话 手机 電話 携帯 휴대폰 전화 "
    "номер телефон"
).split()
# Words with other meanings too, which announce a phone number.
CALLS = "call ring text contact number número numero appelez llámame llama chiamami bel".split()
COUNTED = (
    "order invoice ticket tracking serial isbn issn upc ean sku ref part case account commande facture pedido "
    "expediente factura bestell rechnung auftrag kunde customer id no nr n° nº # timestamp 订单 单号"
).split()
VERSIONS = "version ver v release firmware build rev section chapter clause § oid schema kernel driver package".split()
CURRENCIES = "eur usd gbp chf".split()
SSN_WORDS = "ssn social_security social".split()
NINO_WORDS = "nino national_insurance".split()


def any_of(words: Iterable[str]) -> str:
    """Return a pattern for any of the words. An underscore matches a space, a hyphen, an underscore or nothing."""
    longest_first = sorted(words, key=len, reverse=True)
    return "|".join(re.escape(word).replace("_", "[ _-]?") for word in longest_first)


def is_short(word: str) -> bool:
    """Return whether a word is too short to be looked for inside longer words."""
    return len(word) <= 3 and word.isascii()


def announcing(words: Iterable[str]) -> str:
    """Return a pattern for any of the words. A word that is not short also matches inside others (`wifipassword`)."""
    words = tuple(words)
    starts = [rf"(?<![a-zA-Z])(?:{any_of(filter(is_short, words))})"] if any(map(is_short, words)) else []
    return "|".join((any_of(word for word in words if not is_short(word)), *starts)).strip("|")


# Scripts that are written without spaces: each of their characters counts as a word.
UNSPACED = r"\u0e00-\u0eff\u3001-\u30ff\u3400-\u9fff\uff00-\uff9f"
# Spaces that word processors and web pages put between groups of digits: no-break, figure, thin, narrow and others.
SPACES = r" \u00a0\u2000-\u200a\u202f\u205f\u3000"
BLANK = rf"[\t{SPACES}]"
