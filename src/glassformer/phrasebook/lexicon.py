"""The words of the phrasebook, English beside French, with the classes that keep sentences sensible."""

from __future__ import annotations

from glassformer.phrasebook.words import adjective, noun, phrase, rows, verb

__all__ = ["ADJECTIVES", "DESTINATIONS", "FEELINGS", "LOCATIONS", "NOUNS", "SPOTS", "TIMES", "VERBS"]

# Irregular plurals stand after a slash. Classes say what can be eaten, opened, worn, owned and so on.
NOUNS = [
    noun(*row)
    for row in rows("""
bread | pain | m | mass food fed
cheese | fromage | m | mass food
meat | viande | f | mass food cooked fed
fish | poisson | m | mass food cooked fed
soup | soupe | f | mass food cooked warm
rice | riz | m | mass food cooked
salad | salade | f | mass food cooked
chocolate | chocolat | m | mass food
jam | confiture | f | mass food
lobster | homard | m | mass food cooked
garlic | ail | m | mass ware
oil | huile | f | mass ware
money | argent | m | mass money
water | eau | f | mass drink warm fed
milk | lait | m | mass drink warm fed
coffee | café | m | mass drink warm cooked
tea | thé | m | mass drink warm cooked
juice | jus | m | mass drink
lemonade | limonade | f | mass drink
apple | pomme | f | food fruit
orange | orange | f | food fruit
apricot | abricot | m | food fruit
tomato | tomate | f | food fruit
bean | haricot | m | food fruit
egg | œuf | m | food
cake | gâteau | m | food cooked
book | livre | m | text written given print
letter | lettre | f | text written sent given
story | histoire | f | text written
poem | poème | m | text written
newspaper | journal/journaux | m | text given print
song | chanson | f | sound
radio | radio | f | sound single
music | musique | f | mass sound
film | film | m | show
car | voiture | f | object washed
bicycle | vélo | m | object
computer | ordinateur | m | object
chair | chaise | f | object
lamp | lampe | f | object
clock | horloge | f | object
key | clé | f | small given
umbrella | parapluie | m | small given object
bag | sac | m | small opened object carried
suitcase | valise | f | small opened object carried
box | boîte | f | small opened object carried
knife/knives | couteau | m | small object
flower | fleur | f | flower given
tree | arbre | m | tree
door | porte | f | opened part
window | fenêtre | f | opened part
shirt | chemise | f | clothes washed
coat | manteau | m | clothes washed
hat | chapeau | m | clothes
jacket | veste | f | clothes washed
train | train | m | transport
bus | bus | m | transport
plane | avion | m | transport
dog | chien | m | animal pet washed
cat | chat | m | animal pet
horse | cheval/chevaux | m | animal washed
bird | oiseau | m | animal
owl | hibou/hiboux | m | animal
cow | vache | f | animal
house | maison | f | building home
castle | château | m | building home
flat | appartement | m | home
city | ville | f | building lived
church | église | f | building
museum | musée | m | building
hotel | hôtel | m | building
man/men | homme | m | person adult
woman/women | femme | f | person adult
boy | garçon | m | person
girl | fille | f | person
child/children | enfant | m | person
baker | boulanger | m | person adult
teacher | professeur | m | person adult close
student | étudiant | m | person close
actor | acteur | m | person adult
doctor | médecin | m | person adult close
actress | actrice | f | person adult
neighbour | voisin | m | person adult close
hero | héros | m | person adult
queen | reine | f | person adult
brother | frère | m | kin
sister | sœur | f | kin
mother | mère | f | kin
father | père | m | kin
uncle | oncle | m | kin
aunt | tante | f | kin
friend | ami | m | kin
Paul | Paul | m | name person adult
Anna | Anna | f | name person adult
Marie | Marie | f | name person adult
""")
]

# Position: before or after the noun, "beside" for before but never behind "to be", "predicate" for only behind it.
# "passing" is what one can be often, always or never.
ADJECTIVES = [
    adjective(*row)
    for row in rows("""
big | grand | before | object animal building tree home
small | petit | before | object animal building clothes tree home small
beautiful | beau/belle/bel | before | object animal building clothes flower tree home text sound
new | nouveau/nouvelle/nouvel | beside | object clothes text home building
old | vieux/vieille/vieil | before | object clothes text animal building tree adult kin home
good | bon/bonne | before | food drink text show
young | jeune | before | person
long | long/longue | before | written show
red | rouge | after | object clothes flower
blue | bleu | after | object clothes flower
green | vert | after | object clothes
white | blanc/blanche | after | object clothes flower animal
black | noir | after | object clothes animal
heavy | lourd | after | carried
expensive | cher/chère | after | object clothes
interesting | intéressant | after | text show
hot | chaud | after | warm
cold | froid | after | drink
fresh | frais/fraîche | after | fruit
rich | riche | after | adult
happy | content | predicate | person kin speaker passing
tired | fatigué | predicate | person kin speaker animal passing
sad | triste | predicate | person kin speaker passing
ill | malade | predicate | person kin speaker animal passing
tall | grand | predicate | person kin speaker
kind | gentil/gentille | predicate | person kin speaker
an actor/actors | acteur/actrice | predicate | kin speaker name
a student/students | étudiant | predicate | kin speaker name
a singer/singers | chanteur/chanteuse | predicate | kin speaker name
""")
]

# Flags: "sudden" has no progressive, "once" no "used to"; a "mishap" only happens or happened; what is "brief" fills no
# week; "state" has no progressive and no past, and nobody asks where and when; "lasting" is a state without a future;
# "generic" takes "le" where English has no article (I like bread: j'aime le pain); "to" needs a recipient; what is
# "joint" can be done with somebody.
VERBS = [
    verb(*row)
    for row in rows("""
eat ate eating | manger | food | meal
share shared sharing | partager | food | meal
buy bought buying | acheter | home food drink ware object clothes print flower | shop
sell sold selling | vendre | home food drink ware object clothes print flower | shop
prepare prepared preparing | préparer | cooked | kitchen
drink drank drinking | boire | drink | meal
read read reading | lire | text | calm
write wrote writing | écrire | written | calm
begin began beginning | commencer | written | calm | once
finish finished finishing | finir | written | calm | once
see saw seeing | voir | person kin animal building | | sudden
find found finding | trouver | small money text clothes | out | sudden once
lose lost losing | perdre | small money | out | mishap
forget forgot forgetting | oublier | small | out | mishap
look looked looking for | chercher | home small text animal person | out
take took taking | prendre | small transport
wash washed washing | laver | washed
open opened opening | ouvrir | opened | | sudden
close closed closing | fermer | opened | | sudden
wait waited waiting for | attendre | person kin transport
listen listened listening to | écouter | sound person kin
watch watched watching | regarder | show animal
help helped helping | aider | person kin
invite invited inviting | inviter | person kin
visit visited visiting | visiter | building
wear wore wearing | porter | clothes
carry carried carrying | porter | carried
talk talked talking to | parler à | person kin | out
talk talked talking about | parler de | show text person kin
answer answered answering | répondre à | person kin
enter entered entering | entrer dans | building home | | sudden
live lived living in | habiter dans | home lived | | state
have had having | avoir | home object small animal clothes money print | | state
want wanted wanting | vouloir | food drink object clothes | | lasting
like liked liking | aimer | food drink text sound animal show | | lasting generic
love loved loving | adorer | food drink text sound animal show | | lasting generic
know knew knowing | connaître | person building | | lasting
give gave giving | donner | food small money flower given | | to
send sent sending | envoyer | sent flower money | | to
show showed showing | montrer | small text clothes | | to
work worked working | travailler | | calm | joint
sleep slept sleeping | dormir | | calm
swim swam swimming | nager | | lake | joint
travel travelled travelling | voyager | | way | joint
sing sang singing | chanter | | out | joint
dance danced dancing | danser | | out | joint
play played playing | jouer | | out | joint
walk walked walking | marcher | | out | joint
run ran running | courir | | out | joint
leave left leaving | partir | | way early | joint
get got getting up | se lever | | early | brief
rest rested resting | se reposer | | calm
have had having fun | se amuser | | out
get got getting dressed | se habiller | | home | brief
hurry hurried hurrying | se dépêcher | | | brief
go went going to | aller à | | destination | joint
come came coming back from | revenir de | | destination | sudden joint
arrive arrived arriving at | arriver à | | destination | sudden joint
""")
]

LOCATIONS = [
    phrase(*row)
    for row in rows("""
at home | à la maison | meal calm home
at the restaurant | à le restaurant | meal
at the hotel | à le hôtel | meal calm
in the kitchen | dans la cuisine | meal kitchen
in the garden | dans le jardin | meal calm out
in the park | dans le parc | meal out
on the beach | sur la plage | out calm
in the street | dans la rue | out
at school | à la école | out meal
at the market | à le marché | shop
in town | en ville | shop
in the lake | dans le lac | lake
in the sea | dans la mer | lake
by train | en train | way
by plane | en avion | way
by car | en voiture | way
early | tôt | early
late | tard | early
""")
]

DESTINATIONS = [
    phrase(*row)
    for row in rows("""
the market | le marché
school | la école
the station | la gare
the beach | la plage
the museum | le musée
the hospital | le hôpital
the bakery | la boulangerie
the airport | le aéroport
the cinema | le cinéma
the church | la église
""")
]

# Where a thing or a being can be, for "there is" and "where is".
SPOTS = [
    phrase(*row)
    for row in rows("""
on the table | sur la table | food drink small given
in the kitchen | dans la cuisine | food drink small person pet
in the house | dans la maison | small given object person pet clothes
in the garden | dans le jardin | animal person tree flower
in the street | dans la rue | person animal object
on the bed | sur le lit | clothes given pet
under the tree | sous le arbre | animal person
""")
]

# English "to be", French "avoir".
FEELINGS = [
    phrase(*row)
    for row in rows("""
hungry | faim
thirsty | soif
cold | froid
hot | chaud
afraid | peur
right | raison
""")
]

# Classes: the tenses with which the time may stand.
TIMES = [
    phrase(*row)
    for row in rows("""
now | maintenant | progressive can must
today | aujourd'hui | past future near can must want progressive
every day | tous les jours | present future imperfect must
in the morning | le matin | present imperfect
in the evening | le soir | present imperfect
yesterday | hier | past
last week | la semaine dernière | past week
this morning | ce matin | past
tomorrow | demain | future near must
next week | la semaine prochaine | future near week
this evening | ce soir | future near want
""")
]
