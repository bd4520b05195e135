"""Pairs written and checked by hand, one phenomenon a block; the grammar must give both sides to the letter."""

from __future__ import annotations

import pytest

from glassformer.phrasebook import english, french
from glassformer.phrasebook.lexicon import (
    ADJECTIVES,
    DESTINATIONS,
    FEELINGS,
    LOCATIONS,
    NOUNS,
    TIMES,
    VERBS,
)
from glassformer.phrasebook.sentence import PRONOUNS, WHO, Clause, NounPhrase, Subject

PEOPLE = {pronoun.english: pronoun for pronoun in (*PRONOUNS, WHO)}
OBJECTS = {pronoun.english_object: pronoun for pronoun in PRONOUNS}
ACTIONS = {" ".join((verb.english[0], verb.particle)).strip(): verb for verb in VERBS}
THINGS = {noun.english: (noun, False) for noun in NOUNS} | {
    noun.english_plural: (noun, True) for noun in NOUNS if not noun.is_mass
}
QUALITIES = {adjective.english: adjective for adjective in ADJECTIVES}
DETERMINERS = ("a lot of", "a", "an", "the", "this", "these", "my", "your", "his", "her", "our", "their")
DETERMINERS += ("two", "three", "any")
PLACES = {place.english: place for place in (*LOCATIONS, *DESTINATIONS)}
MOMENTS = {time.english: time for time in TIMES}
STATES = {feeling.english: feeling for feeling in FEELINGS}


def phrase(text: str) -> NounPhrase:
    """Reads "an old tree" or "my brother's books"."""
    owner = None
    if "'s " in text:
        left, text = text.split("'s ")
        owner, text = phrase(left), f"the {text}"
    determiner = next((word for word in DETERMINERS if text.startswith(word + " ")), "")
    *qualities, noun = text.removeprefix(determiner).split()
    word, is_plural = THINGS[noun]
    adjective = QUALITIES[qualities[0]] if qualities else None
    return NounPhrase(
        word,
        "own" if owner else determiner.replace("an", "a") if determiner == "an" else determiner,
        is_plural,
        adjective,
        owner,
    )


def subject(text: str) -> Subject:
    return PEOPLE[text] if text in PEOPLE else phrase(text)


# subject | verb (or "be") | object | tense | more | English | French
# more: not, never, often, always, short, a question word, a place, a time, "to" a recipient, "with" a companion.
TABLE = """
we | eat | bread | present | | we eat bread | nous mangeons du pain
we | eat | bread | present | not | we do not eat bread | nous ne mangeons pas de pain
we | eat | any bread | present | not, short | we don't eat any bread | nous ne mangeons pas de pain
we | eat | bread | past | | we ate bread | nous avons mangé du pain
we | eat | bread | past | not, short | we didn't eat bread | nous n'avons pas mangé de pain
we | eat | bread | future | | we will eat bread | nous mangerons du pain
we | eat | bread | near | | we are going to eat bread | nous allons manger du pain
we | eat | bread | imperfect | | we used to eat bread | nous mangions du pain
I | eat | bread | imperfect | | I used to eat bread | je mangeais du pain
we | eat | bread | progressive | | we are eating bread | nous mangeons du pain
you | eat | bread | progressive | not, short | you aren't eating bread | vous ne mangez pas de pain
I | eat | meat | present | | I eat meat | je mange de la viande
they | eat | eggs | present | | they eat eggs | ils mangent des œufs
she | eat | an egg | near | | she is going to eat an egg | elle va manger un œuf
he | eat | an apple | present | not | he does not eat an apple | il ne mange pas de pomme
he | eat | an orange | present | never | he never eats an orange | il ne mange jamais d'orange
we | eat | the lobster | present | | we eat the lobster | nous mangeons le homard
we | eat | lobster | present | never | we never eat lobster | nous ne mangeons jamais de homard
they | eat | beans | present | not | they do not eat beans | ils ne mangent pas de haricots
you | drink | water | present | | you drink water | vous buvez de l'eau
you | drink | water | past | never | you never drank water | vous n'avez jamais bu d'eau
I | drink | coffee | present | often | I often drink coffee | je bois souvent du café
they | drink | cold milk | present | | they drink cold milk | ils boivent du lait froid
they | drink | a lot of water | future | | they will drink a lot of water | ils boiront beaucoup d'eau
she | buy | a lot of eggs | past | | she bought a lot of eggs | elle a acheté beaucoup d'œufs
I | buy | a computer | past | | I bought a computer | j'ai acheté un ordinateur
I | buy | oil | present | | I buy oil | j'achète de l'huile
we | buy | garlic | present | | we buy garlic | nous achetons de l'ail
they | buy | bread | future | | they will buy bread | ils achèteront du pain
he | buy | a new computer | past | | he bought a new computer | il a acheté un nouvel ordinateur
he | buy | a beautiful clock | past | | he bought a beautiful clock | il a acheté une belle horloge
we | see | a beautiful hotel | present | | we see a beautiful hotel | nous voyons un bel hôtel
we | see | an old hotel | past | | we saw an old hotel | nous avons vu un vieil hôtel
we | see | a beautiful owl | past | | we saw a beautiful owl | nous avons vu un beau hibou
they | see | the old man | present | | they see the old man | ils voient le vieil homme
they | see | old houses | present | | they see old houses | ils voient de vieilles maisons
they | see | a big house | present | | they see a big house | ils voient une grande maison
I | see | big birds | future | | I will see big birds | je verrai de grands oiseaux
I | see | white horses | present | | I see white horses | je vois des chevaux blancs
he | see | this man | present | | he sees this man | il voit cet homme
he | see | this hero | present | | he sees this hero | il voit ce héros
he | see | this woman | present | | he sees this woman | il voit cette femme
he | see | these children | past | | he saw these children | il a vu ces enfants
Paul | wash | a red car | present | | Paul washes a red car | Paul lave une voiture rouge
Paul | wash | white shirts | present | | Paul washes white shirts | Paul lave des chemises blanches
Marie | wear | a new jacket | near | | Marie is going to wear a new jacket | Marie va porter une nouvelle veste
my sisters | wear | black hats | present | | my sisters wear black hats | mes sœurs portent des chapeaux noirs
your mother | carry | heavy bags | present | | your mother carries heavy bags | votre mère porte des sacs lourds
the baker | prepare | good cakes | past | | the baker prepared good cakes | le boulanger a préparé de bons gâteaux
the baker | prepare | hot soup | present | | the baker prepares hot soup | le boulanger prépare de la soupe chaude
our aunt | buy | fresh apricots | past | | our aunt bought fresh apricots | notre tante a acheté des abricots frais
our aunt | eat | a fresh orange | past | | our aunt ate a fresh orange | notre tante a mangé une orange fraîche
he | read | an interesting story | present | | he reads an interesting story | il lit une histoire intéressante
he | write | a long letter | past | | he wrote a long letter | il a écrit une longue lettre
I | read | newspapers | present | | I read newspapers | je lis des journaux
I | read | the newspaper | past | yesterday | I read the newspaper yesterday | j'ai lu le journal hier
we | begin | the letter | present | | we begin the letter | nous commençons la lettre
they | finish | our book | future | | they will finish our book | ils finiront notre livre
she | lose | her key | past | | she lost her key | elle a perdu sa clé
she | look for | his umbrella | present | | she looks for his umbrella | elle cherche son parapluie
they | look for | their story | past | | they looked for their story | ils ont cherché leur histoire
I | read | my story | progressive | | I am reading my story | je lis mon histoire
he | sell | his old clock | near | | he is going to sell his old clock | il va vendre sa vieille horloge
you | find | my brother's books | past | | you found my brother's books | vous avez trouvé les livres de mon frère
you | wash | the baker's car | future | | you will wash the baker's car | vous laverez la voiture du boulanger
you | wash | the actress's car | future | | you will wash the actress's car | vous laverez la voiture de l'actrice
I | read | Anna's letter | near | | I am going to read Anna's letter | je vais lire la lettre d'Anna
I | like | bread | present | | I like bread | j'aime le pain
I | like | bread | present | not, short | I don't like bread | je n'aime pas le pain
she | love | oranges | present | | she loves oranges | elle adore les oranges
we | like | water | present | | we like water | nous aimons l'eau
Anna | want | jam | present | | Anna wants jam | Anna veut de la confiture
we | want | a car | present | not, short | we don't want a car | nous ne voulons pas de voiture
they | have | money | present | | they have money | ils ont de l'argent
I | have | money | present | not | I do not have money | je n'ai pas d'argent
he | have | a dog | future | | he will have a dog | il aura un chien
you | have | two cats | imperfect | | you used to have two cats | vous aviez deux chats
you | know | the queen | present | | you know the queen | vous connaissez la reine
she | live in | a big flat | present | | she lives in a big flat | elle habite dans un grand appartement
I | live in | a house | present | not | I do not live in a house | je n'habite pas dans une maison
I | give | bread | present | to the baker | I give bread to the baker | je donne du pain au boulanger
I | give | bread | past | to the children | I gave bread to the children | j'ai donné du pain aux enfants
we | send | a letter | present | to the actor | we send a letter to the actor | nous envoyons une lettre à l'acteur
we | send | flowers | future | to the queen | we will send flowers to the queen | nous enverrons des fleurs à la reine
he | talk to | the hero | past | | he talked to the hero | il a parlé au héros
he | talk about | the film | past | | he talked about the film | il a parlé du film
he | talk about | an actress | past | | he talked about an actress | il a parlé d'une actrice
he | talk about | the heroes | past | | he talked about the heroes | il a parlé des héros
they | talk about | Anna | present | not | they do not talk about Anna | ils ne parlent pas d'Anna
you | answer | the teachers | present | | you answer the teachers | vous répondez aux professeurs
I | go to | | present | the market | I go to the market | je vais au marché
she | go to | | past | school | she went to school | elle est allée à l'école
they | go to | | past | not, the station | they did not go to the station | ils ne sont pas allés à la gare
we | go to | | near | the cinema | we are going to go to the cinema | nous allons aller au cinéma
we | go to | | future | the hospital, tomorrow | we will go to the hospital tomorrow | nous irons à l'hôpital demain
he | come back from | | past | not, school | he did not come back from school | il n'est pas revenu de l'école
I | come back from | | past | the airport | I came back from the airport | je suis revenu de l'aéroport
you | arrive at | | past | the museum | you arrived at the museum | vous êtes arrivé au musée
the girl | arrive at | | future | the beach | the girl will arrive at the beach | la fille arrivera à la plage
she | enter | the church | past | | she entered the church | elle est entrée dans l'église
my aunts | leave | | past | yesterday | my aunts left yesterday | mes tantes sont parties hier
he | leave | | past | never | he never left | il n'est jamais parti
we | leave | | past | this morning | we left this morning | nous sommes partis ce matin
she | get up | | past | | she got up | elle s'est levée
they | get up | | present | | they get up | ils se lèvent
we | get up | | present | not | we do not get up | nous ne nous levons pas
I | get dressed | | past | | I got dressed | je me suis habillé
I | get dressed | | future | | I will get dressed | je m'habillerai
you | hurry | | must | | you must hurry | vous devez vous dépêcher
the girls | have fun | | past | not | the girls did not have fun | les filles ne se sont pas amusées
we | rest | | want | | we want to rest | nous voulons nous reposer
we | swim | | present | | we swim | nous nageons
they | swim | | can | not | they cannot swim | ils ne peuvent pas nager
they | swim | | can | not, short | they can't swim | ils ne peuvent pas nager
he | swim | | want | not, short | he doesn't want to swim | il ne veut pas nager
he | work | | must | not, tomorrow | he must not work tomorrow | il ne doit pas travailler demain
she | sleep | | future | not, short | she won't sleep | elle ne dormira pas
she | run | | future | | she will run | elle courra
they | play | | progressive | in the park | they are playing in the park | ils jouent dans le parc
the dog | sleep | | present | in the garden | the dog sleeps in the garden | le chien dort dans le jardin
Paul | work | | present | at home, every day | Paul works at home every day | Paul travaille à la maison tous les jours
he | dance | | past | with my sister, yesterday | he danced with my sister yesterday | il a dansé avec ma sœur hier
I | travel | | future | by train, with Anna | I will travel by train with Anna | je voyagerai en train avec Anna
they | get up | | present | early | they get up early | ils se lèvent tôt
I | see | him | present | | I see him | je le vois
I | see | her | present | not | I do not see her | je ne la vois pas
I | see | her | past | | I saw her | je l'ai vue
I | see | them | past | | I saw them | je les ai vus
she | wait for | me | present | | she waits for me | elle m'attend
he | invite | us | past | | he invited us | il nous a invités
he | invite | us | near | | he is going to invite us | il va nous inviter
we | help | you | future | | we will help you | nous vous aiderons
they | listen to | her | past | not | they did not listen to her | ils ne l'ont pas écoutée
you | eat | bread | present | yes | do you eat bread? | est-ce que vous mangez du pain ?
he | eat | bread | past | yes | did he eat bread? | est-ce qu'il a mangé du pain ?
Anna | sleep | | progressive | yes | is Anna sleeping? | est-ce qu'Anna dort ?
they | leave | | future | when | when will they leave? | quand est-ce qu'ils partiront ?
you | buy | bread | present | where | where do you buy bread? | où est-ce que vous achetez du pain ?
he | eat | jam | present | why, not, short | why doesn't he eat jam? | pourquoi est-ce qu'il ne mange pas de confiture ?
who | eat | the cake | past | who | who ate the cake? | qui a mangé le gâteau ?
who | go to | | past | who, school | who went to school? | qui est allé à l'école ?
you | drink | | present | what | what do you drink? | qu'est-ce que vous buvez ?
he | read | | near | what | what is he going to read? | qu'est-ce qu'il va lire ?
the house | be | big | present | | the house is big | la maison est grande
the women | be | happy | present | | the women are happy | les femmes sont contentes
she | be | tired | past | | she was tired | elle était fatiguée
we | be | ill | past | not | we were not ill | nous n'étions pas malades
they | be | kind | future | | they will be kind | ils seront gentils
the cars | be | expensive | present | | the cars are expensive | les voitures sont chères
the castles | be | beautiful | past | | the castles were beautiful | les châteaux étaient beaux
my sister | be | old | present | | my sister is old | ma sœur est vieille
you | be | sad | present | yes | are you sad? | est-ce que vous êtes triste ?
she | be | a student | present | | she is a student | elle est étudiante
we | be | an actor | past | | we were actors | nous étions acteurs
I | be | hungry | present | | I am hungry | j'ai faim
she | be | afraid | past | not | she was not afraid | elle n'avait pas peur
they | be | right | future | | they will be right | ils auront raison
"""
ROWS = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()]


def clause(who: str, verb: str, what: str, tense: str, more: str) -> Clause:
    made: dict[str, object] = {"subject": subject(who), "tense": tense}
    if verb != "be":
        made["verb"] = ACTIONS[verb]
        if what in OBJECTS:
            made["pronoun"] = OBJECTS[what]
        elif what:
            made["objects"] = (phrase(what),)
    elif what in STATES:
        made["feeling"] = STATES[what]
    else:
        made["attribute"] = QUALITIES[what]
    for word in filter(None, more.split(", ")):
        if word in ("not", "never", "often", "always"):
            made["adverb"] = word
        elif word in ("yes", "where", "when", "why", "who", "what"):
            made["question"] = word
        elif word == "short":
            made["is_short"] = True
        elif word.startswith("with "):
            made["companion"] = phrase(word.removeprefix("with "))
        elif word.startswith("to "):
            made["recipient"] = phrase(word.removeprefix("to "))
        else:
            made["place" if word in PLACES else "time"] = PLACES.get(word) or MOMENTS[word]
    return Clause(**made)  # type: ignore[arg-type]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[5])
def test_pair_is_the_one_checked_by_hand(row: list[str]) -> None:
    *spec, expected_english, expected_french = row
    sentence = clause(*spec)
    assert (english.write(sentence), french.write(sentence)) == (expected_english, expected_french)


def test_hand_checked_pairs_are_many_and_different() -> None:
    assert len({row[5] for row in ROWS}) == len(ROWS) >= 120
