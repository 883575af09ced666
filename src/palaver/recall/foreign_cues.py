"""Cues of a question in languages other than English; `palaver.recall.query` has the English ones. Pure.

Whether it asks what the assistant said, what the speaker did, for an overview or for several things; and the words of a
request for an overview that do not say of what.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from palaver.recall.languages import Language


class Cues(NamedTuple):
    """Patterns of one language."""

    asks_assistant: re.Pattern[str]
    recollects: re.Pattern[str]
    overview: re.Pattern[str]
    collects: re.Pattern[str]
    talk: re.Pattern[str]


def _cues(
    asks_assistant: str, recollects: str, overview: str, collects: str, talk: str, *, spaced: bool = True
) -> Cues:
    edge = r"\b" if spaced else ""
    patterns = (asks_assistant, recollects, overview, collects, talk)
    return Cues(*(re.compile(f"{edge}(?:{one}){edge}", re.IGNORECASE) for one in patterns))


_CUES: dict[str, Cues] = {
    "de": _cues(
        r"(?:hast|hattest|warst)\s+du|du\s+(?:hast|hattest)|(?:haben|hatten)\s+sie\s+(?:mir|uns)|dein\w*\s+(?:\w+\s+)?"
        r"(?:rat|vorschl\w+|empfehlung\w*|antwort\w*|erklärung\w*)|sagtest\s+du|du\s+sagtest",
        r"(?:habe?|hatte)\s+ich|(?:haben|hatten)\s+wir|ich\s+(?:habe?|hatte)",
        r"zusammenfass\w*|fass\w*\s+\w*\s*\w*\s*zusammen|überblick|übersicht|rückblick|zeitleiste|in\s+welcher\s+reihenfolge"
        r"|im\s+laufe\s+der\s+zeit|im\s+verlauf|über\s+alle\s+gespräche",
        r"wie\s*(?:viele?|oft|häufig)|welche\s+(?:\w+\s+){0,2}?\w+(?:n|e|s|er)|liste\w*|zähl\w*\s+\w*\s*auf|nenne\s+(?:mir\s+)?"
        r"(?:alle|die)|in\s+welcher\s+reihenfolge|alle\s+\w+",
        r"bitte|gib|zeig\w*|mach\w*|kurz\w*|ganz\w*|alles|bisher\w*|zusammenfass\w*|zusammen|fass\w*|überblick|übersicht|"
        r"rückblick|zeitleiste|reihenfolge|gespräch\w*|unterhaltung\w*|sitzung\w*|chat\w*|nachricht\w*|frage\w*|thema|themen|"
        r"besproch\w*|besprech\w*|geredet|gesprochen|gesagt|laufe|zeit|verlauf",
    ),
    "fr": _cues(
        r"(?:tu|vous)\s+(?:m['’])?(?:as|avez|avais|aviez)|as-tu|avez-vous|(?:t|v)(?:es|on|os|otre)\s+(?:\w+\s+)?"
        r"(?:conseils?|suggestions?|recommandations?|réponses?|explications?)",
        r"ai-je|j['’](?:ai|avais)|avons-nous|nous\s+(?:avons|avions)|est-ce\s+que\s+(?:j['’]ai|nous\s+avons)",
        r"résum\w*|récapitul\w*|vue\s+d['’]ensemble|aperçu|synthèse|chronologie|dans\s+quel\s+ordre|au\s+fil\s+du\s+temps|bilan",
        r"combien|à\s+quelle\s+fréquence|quels|quelles|liste\w*|énumère\w*|dans\s+quel\s+ordre|tou(?:s|tes)\s+(?:les|mes)",
        r"s['’]il\s+(?:te|vous)\s+plaît|donne\w*|montre\w*|fai(?:s|tes)|court\w*|bref|brève|tout\w*|résum\w*|récapitul\w*|vue|"
        r"ensemble|aperçu|synthèse|chronologie|ordre|conversations?|discussions?|échanges?|messages?|questions?|sujets?|"
        r"parlé|discuté|dit|jusqu\w*|présent|ici|fil|temps|bilan",
    ),
    "es": _cues(
        r"(?:me|nos)\s+(?:has|habías|dijiste|recomendaste|sugeriste|explicaste|diste|propusiste)|(?:dijiste|recomendaste|"
        r"sugeriste|explicaste|propusiste|mencionaste)|tus?\s+(?:\w+\s+)?(?:consejos?|sugerenci\w+|recomendaci\w+|"
        r"respuestas?|explicaci\w+)",
        r"(?:he|había|hemos|habíamos)\s+\w+[dt]o|(?:dije|fui|hice|compré|tuve|estuve|puse|vi|leí|comí|pedí)",
        r"resum\w*|panorama|visión\s+general|repaso|cronología|línea\s+de\s+tiempo|en\s+qué\s+orden|a\s+lo\s+largo\s+del\s+tiempo",
        r"cu[aá]nt[oa]s?|con\s+qu[eé]\s+frecuencia|cu[aá]les|qu[eé]\s+(?:\w+\s+){0,2}?\w+s|lista\w*|enumera\w*|en\s+qué\s+orden"
        r"|tod[oa]s\s+(?:l[oa]s|mis)",
        r"por\s+favor|da(?:me|r)|muestra\w*|haz\w*|corto|breve|tod[oa]s?|hasta\s+ahora|resum\w*|panorama|visión|general|repaso|"
        r"cronología|orden|conversaci\w+|charlas?|sesion\w*|mensajes?|preguntas?|temas?|hablado|hablamos|dicho|dijimos|"
        r"tiempo|largo",
    ),
    "it": _cues(
        r"(?:mi|ci)\s+(?:hai|avevi)|(?:hai|avevi)\s+(?:detto|consigliato|suggerito|spiegato|proposto|raccomandato)|"
        r"(?:i\s+)?tuo[i]?\s+(?:\w+\s+)?(?:consigli\w*|suggeriment\w*)|tua\s+(?:risposta|spiegazione|raccomandazione)",
        r"(?:ho|avevo|abbiamo|avevamo)\s+\w+|sono\s+(?:andat|stat)[oa]",
        r"riassu\w*|riepilog\w*|panoramica|sintesi|cronologia|in\s+che\s+ordine|in\s+quale\s+ordine|nel\s+corso\s+del\s+tempo|"
        r"nel\s+tempo",
        r"quant[oaie]|quanto\s+spesso|quali|elenc\w*|lista\w*|in\s+(?:che|quale)\s+ordine|tutt[ie]\s+(?:i|gli|le)",
        r"per\s+favore|dammi|mostra\w*|fammi|breve|tutt[oaie]|finora|riassu\w*|riepilog\w*|panoramica|sintesi|cronologia|"
        r"ordine|conversazion\w*|discussion\w*|chiacchierat\w*|sessioni?|messaggi\w*|domand\w*|argoment\w*|parlato|detto|"
        r"discusso|corso|tempo",
    ),
    "pt": _cues(
        r"(?:você|tu)\s+(?:me\s+|nos\s+)?(?:disse|disseste|recomendou|recomendaste|sugeriu|sugeriste|explicou|falou|deu|"
        r"propôs|mencionou)|(?:disseste|recomendaste|sugeriste|explicaste)|(?:seus?|suas?|teus?|tuas?)\s+(?:\w+\s+)?"
        r"(?:conselhos?|sugest\w+|recomenda\w+|respostas?|explica\w+)",
        r"(?:eu\s+)?(?:disse|fui|fiz|comprei|tive|estive|vi|li|comi|pedi|falei)|nós\s+\w+mos",
        r"resum\w*|vis[ãa]o\s+geral|panorama|recapitul\w*|cronologia|linha\s+do\s+tempo|em\s+que\s+ordem|ao\s+longo\s+do\s+tempo",
        r"quant[oa]s?|com\s+que\s+frequ[êe]ncia|quais|que\s+(?:\w+\s+){0,2}?\w+s|list\w+|enumer\w*|em\s+que\s+ordem|"
        r"tod[oa]s\s+(?:os|as|meus|minhas)",
        r"por\s+favor|dê-me|me\s+dê|mostr\w*|faça|faz|curto|breve|tud?[oa]s?|tod[oa]s?|até\s+agora|resum\w*|visão|geral|"
        r"panorama|recapitul\w*|cronologia|ordem|conversas?|sess\w+|mensage\w+|perguntas?|assuntos?|falado|falamos|dito|"
        r"discutido|tempo|longo",
    ),
    "zh": _cues(
        "你(?:之前|上次|刚才|曾经)?(?:说|告诉|建议|推荐|提到|解释|给)|你的(?:建议|推荐|回答|解释)",
        "我(?:们)?(?:之前|上次|曾经|有没有)?(?:说过|做过|去过|买过|提过|吃过|看过)",
        "总结|概述|概括|回顾|汇总|时间线|按什么顺序|一路以来",
        "多少|几(?:个|次|本|种|位|家)|哪些|列出|列举|所有的?|按什么顺序|多久一次",
        "请|帮我|给我|总结|概述|概括|回顾|汇总|一下|我们|的|对话|谈话|聊天|消息|问题|话题|内容|所有|全部|到目前为止|目前",
        spaced=False,
    ),
    "ja": _cues(
        "(?:あなた|君)(?:が|は).*(?:言|教え|勧め|提案|説明)|(?:言って|教えて|勧めて|提案して|説明して)くれ|(?:アドバイス|おすすめ)(?:は|を)",
        "(?:私|僕|俺)(?:は|が).*(?:まし)?た(?:っけ|か)|たっけ",
        "まとめ|要約|概要|振り返|全体像|時系列|どの順",
        "いくつ|何(?:回|個|冊|人|本|種類)|どんな.*(?:が|を)|リスト|挙げ|全部|すべて|全て|どの順",
        "お願い|ください|して|まとめ|要約|概要|振り返\\w*|全体像|時系列|会話|話|チャット|メッセージ|質問|これまで|今まで|内容|全部|の|を",
        spaced=False,
    ),
    "ko": _cues(
        "(?:네가|당신이|니가).*(?:말|추천|제안|설명)|(?:말해|추천해|제안해|설명해)\\s*(?:줬|주었|준)",
        "(?:내가|제가|우리가|나는|저는).*(?:했|었|았|갔|샀)",
        "요약|정리해|개요|돌아보|전체적|시간순|어떤\\s*순서",
        "몇\\s*(?:번|개|권|명|가지)|얼마나\\s*자주|어떤\\s*\\w+들|목록|나열|모든|전부|어떤\\s*순서",
        "요약\\w*|정리\\w*|개요|해\\s*줘|주세요|지금까지|대화\\w*|채팅\\w*|메시지\\w*|질문\\w*|내용\\w*|우리\\w*|모든|전부",
        spaced=False,
    ),
}  # fmt: skip


def cues_of(language: Language | None) -> Cues | None:
    """Return the patterns of a language. None for English, and if the language is not known."""
    return _CUES.get(language) if language is not None else None
