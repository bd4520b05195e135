"""French verbs: the forms of je, il, nous, vous, ils in the four simple tenses used, by rule and by table."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

__all__ = ["AUXILIARY_ETRE", "Conjugation", "conjugate"]

# Verbs of movement whose passé composé takes être, and whose participle agrees with the subject.
AUXILIARY_ETRE = frozenset(("aller", "arriver", "entrer", "partir", "revenir"))

# Infinitive: present of je, il, nous, vous, ils; past participle; stem of the future.
IRREGULAR = {
    "aller": ("vais va allons allez vont", "allé", "ir"),
    "attendre": ("attends attend attendons attendez attendent", "attendu", "attendr"),
    "avoir": ("ai a avons avez ont", "eu", "aur"),
    "boire": ("bois boit buvons buvez boivent", "bu", "boir"),
    "connaître": ("connais connaît connaissons connaissez connaissent", "connu", "connaîtr"),
    "courir": ("cours court courons courez courent", "couru", "courr"),
    "devoir": ("dois doit devons devez doivent", "dû", "devr"),
    "dormir": ("dors dort dormons dormez dorment", "dormi", "dormir"),
    "envoyer": ("envoie envoie envoyons envoyez envoient", "envoyé", "enverr"),
    "finir": ("finis finit finissons finissez finissent", "fini", "finir"),
    "lire": ("lis lit lisons lisez lisent", "lu", "lir"),
    "ouvrir": ("ouvre ouvre ouvrons ouvrez ouvrent", "ouvert", "ouvrir"),
    "partir": ("pars part partons partez partent", "parti", "partir"),
    "perdre": ("perds perd perdons perdez perdent", "perdu", "perdr"),
    "pouvoir": ("peux peut pouvons pouvez peuvent", "pu", "pourr"),
    "prendre": ("prends prend prenons prenez prennent", "pris", "prendr"),
    "répondre": ("réponds répond répondons répondez répondent", "répondu", "répondr"),
    "revenir": ("reviens revient revenons revenez reviennent", "revenu", "reviendr"),
    "vendre": ("vends vend vendons vendez vendent", "vendu", "vendr"),
    "voir": ("vois voit voyons voyez voient", "vu", "verr"),
    "vouloir": ("veux veut voulons voulez veulent", "voulu", "voudr"),
    "écrire": ("écris écrit écrivons écrivez écrivent", "écrit", "écrir"),
    "être": ("suis est sommes êtes sont", "été", "ser"),
}
FUTURE_ENDINGS = ("ai", "a", "ons", "ez", "ont")
IMPERFECT_ENDINGS = ("ais", "ait", "ions", "iez", "aient")


class Conjugation(NamedTuple):
    """The forms of a verb; each tense holds those of je, il, nous, vous, ils."""

    present: tuple[str, ...]
    imperfect: tuple[str, ...]
    future: tuple[str, ...]
    participle: str


def _soften(stem: str, ending: str) -> str:
    """Keeps the soft g and c before a and o: mangeons, commençons."""
    if ending[0] in "ao":
        stem = stem + "e" if stem.endswith("g") else re.sub("c$", "ç", stem)
    return stem + ending


@cache
def conjugate(infinitive: str) -> Conjugation:
    """All forms of a verb, from the table or by the rules of the verbs in -er."""
    if infinitive in IRREGULAR:
        forms, participle, future_stem = IRREGULAR[infinitive]
        present = tuple(forms.split())
        imperfect_stem = "ét" if infinitive == "être" else present[2].removesuffix("ons")
    else:
        stem = imperfect_stem = infinitive.removesuffix("er")
        # A mute e becomes è where the syllable behind it is mute too: lever, il lève, il lèvera.
        open_stem = re.sub("e([^aeiou])$", r"è\1", stem)
        present = (open_stem + "e", open_stem + "e", _soften(stem, "ons"), stem + "ez", open_stem + "ent")
        participle, future_stem = stem + "é", open_stem + "er"
    future = tuple(future_stem + ending for ending in FUTURE_ENDINGS)
    imperfect = tuple(_soften(imperfect_stem, ending) for ending in IMPERFECT_ENDINGS)
    return Conjugation(present, imperfect, future, participle)
