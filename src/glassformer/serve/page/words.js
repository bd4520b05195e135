// The words of the interface, in each language that it has.
const WORDS = {
  en: {
    skip: "To the text", tasks: "Tasks", key: "API key", translate: "Translate", generate: "Continue", embed: "Compare",
    classify: "Classify", label: "Label words", from: "From", into: "Into", swap: "Swap languages", text: "Text",
    write: "Write or paste a text, or drop a file", open: "Open a file", empty: "Clear", translation: "Translation",
    why: "Why?", whynot: "Why not this?", copy: "Copy", copied: "Copied", others: "Other translations", history: "History",
    kept: "Kept in this browser only.", forget: "Clear the history", nothing: "Nothing yet.", model: "Model",
    prompt: "Beginning", begin: "Begin a text", heat: "Randomness", length: "Tokens", go: "Continue", stop: "Stop",
    made: "What the model wrote; arrow keys go from token to token",
    choose: "Point at a token, or go to it with the arrow keys, to see what could stand there. Choose another one and the text goes on from it. The stronger the line under a token, the less probable it was.",
    one: "A text", many: "Texts to compare it with, one per line", alike: "How alike they are (cosine of their vectors)",
    second: "The second text", models: "Models of this server",
    name: "Name", does: "Does", details: "Details", report: "How the model got there", close: "Close", sentence: "Sentence",
    privacy: "Your texts go to this server and nowhere else.", asked: "This server asks for a key.",
    wrong: "The key was not accepted.", session: "It is kept until you close this tab.", cancel: "Not now", use: "Use it",
    detect: "Detect the language", detected: (name) => `Detect (${name})`, working: "Translating…",
    loading: "The models are being loaded…", away: "The server does not answer. It is tried again when you write.",
    chars: (n, most) => `${n} / ${most}`, long: (n, most) => `The text has ${n} characters; at most ${most} are taken.`,
    notext: (name, formats) => `“${name}” is not plain text in UTF-8${formats && `, nor one of ${formats}`}. Copy its text instead.`,
    save: (name) => `Save “${name}”`, by_languages: "For a document, choose a language to translate from.",
    many_files: "One file at a time, please.", making: "The report is being made. That takes some seconds to a minute.",
    looks: (word, list) => `“${word}” looked at ${list}`, unread: "cut at the model's limit",
    per: (share) => `${share} per token`, instead: (piece) => `In place of “${piece}”`, take: (piece, share) => `${piece}, ${share}`,
    ended: "The model ended the text here.", labels: (n) => `${n} labels`, width: (n) => `vectors of ${n} numbers`,
    context: (n) => `up to ${n} tokens`, cut: "The end of the text was too long and was not read.", none: "No label.",
    other: "FR", other_name: "Français", busy: (s) => `The server is busy. Try again in ${s} s.`, use_entry: "Use it again",
    moreby: "by model",
  },
  fr: {
    skip: "Aller au texte", tasks: "Tâches", key: "Clé d’API", translate: "Traduire", generate: "Continuer",
    embed: "Comparer", classify: "Classer", label: "Étiqueter", from: "De", into: "Vers", swap: "Inverser les langues",
    text: "Texte", write: "Écrivez ou collez un texte, ou déposez un fichier", open: "Ouvrir un fichier",
    empty: "Vider", translation: "Traduction", why: "Pourquoi ?", whynot: "Pourquoi pas celle-ci ?", copy: "Copier",
    copied: "Copié", others: "Autres traductions", history: "Historique", kept: "Gardé dans ce navigateur seulement.",
    forget: "Effacer l’historique", nothing: "Rien encore.", model: "Modèle", prompt: "Début", begin: "Commencez un texte",
    heat: "Hasard", length: "Jetons", go: "Continuer", stop: "Arrêter",
    made: "Ce que le modèle a écrit ; les flèches vont d’un jeton à l’autre",
    choose: "Désignez un jeton, ou allez-y avec les flèches, pour voir ce qui pourrait être à sa place. Choisissez-en un autre et le texte continue à partir de lui. Plus le trait sous un jeton est marqué, moins il était probable.",
    one: "Un texte", many: "Des textes à comparer avec lui, un par ligne", alike: "Leur ressemblance (cosinus de leurs vecteurs)",
    second: "Le second texte",
    models: "Modèles de ce serveur", name: "Nom", does: "Fait", details: "Détails", report: "Comment le modèle y est arrivé",
    close: "Fermer", sentence: "Phrase", privacy: "Vos textes vont à ce serveur et nulle part ailleurs.",
    asked: "Ce serveur demande une clé.", wrong: "La clé n’a pas été acceptée.",
    session: "Elle est gardée jusqu’à la fermeture de cet onglet.", cancel: "Plus tard", use: "L’utiliser",
    detect: "Détecter la langue", detected: (name) => `Détectée (${name})`, working: "Traduction…",
    loading: "Les modèles sont en cours de chargement…",
    away: "Le serveur ne répond pas. Un nouvel essai suivra quand vous écrirez.", chars: (n, most) => `${n} / ${most}`,
    long: (n, most) => `Le texte a ${n} caractères ; ${most} au plus sont acceptés.`,
    notext: (name, formats) => `« ${name} » n’est pas du texte brut en UTF-8${formats && `, ni un fichier ${formats}`}. Copiez plutôt son texte.`,
    save: (name) => `Enregistrer « ${name} »`, by_languages: "Pour un document, choisissez la langue d’origine.",
    many_files: "Un fichier à la fois, s’il vous plaît.", making: "Le rapport est en préparation. Cela prend de quelques secondes à une minute.",
    looks: (word, list) => `« ${word} » a regardé ${list}`, unread: "coupé à la limite du modèle",
    per: (share) => `${share} par jeton`, instead: (piece) => `À la place de « ${piece} »`, take: (piece, share) => `${piece}, ${share}`,
    ended: "Le modèle a terminé le texte ici.", labels: (n) => `${n} étiquettes`, width: (n) => `vecteurs de ${n} nombres`,
    context: (n) => `jusqu’à ${n} jetons`, cut: "La fin du texte était trop longue et n’a pas été lue.", none: "Aucune étiquette.",
    other: "EN", other_name: "English", busy: (s) => `Le serveur est occupé. Réessayez dans ${s} s.`, use_entry: "Reprendre",
    moreby: "par modèle",
  },
};
const STORED = "glassformer.language";
let language = stored() || (navigator.languages || [navigator.language]).map((code) => code.slice(0, 2)).find((code) => code in WORDS) || "en";

function stored() {
  const code = localStorage.getItem(STORED);
  return code in WORDS ? code : null;
}

export const say = (name, ...values) => {
  const found = WORDS[language][name];
  return typeof found === "function" ? found(...values) : found;
};
export const percent = (share) => new Intl.NumberFormat(language, { style: "percent", maximumFractionDigits: share < 0.1 ? 1 : 0 }).format(share);
export const number = (value, digits = 2) => new Intl.NumberFormat(language, { maximumFractionDigits: digits }).format(value);

// What a language is called, in the language of the interface.
export function languageName(code) {
  const name = new Intl.DisplayNames(language, { type: "language", fallback: "code" }).of(code);
  return name[0].toLocaleUpperCase(language) + name.slice(1);
}

// Writes the words into the page; `switchLanguage` changes to the other language first.
export function writeWords() {
  document.documentElement.lang = language;
  for (const node of document.querySelectorAll("[data-text]")) node.textContent = say(node.dataset.text);
  for (const node of document.querySelectorAll("[data-label]")) node.setAttribute("aria-label", say(node.dataset.label));
  for (const node of document.querySelectorAll("[data-hint]")) node.placeholder = say(node.dataset.hint);
  for (const node of document.querySelectorAll("[data-title]")) node.title = say(node.dataset.title);
  const button = document.getElementById("interface");
  button.textContent = say("other");
  button.setAttribute("aria-label", say("other_name"));
  button.lang = language === "en" ? "fr" : "en";
}

export function switchLanguage() {
  language = language === "en" ? "fr" : "en";
  localStorage.setItem(STORED, language);
  writeWords();
  dispatchEvent(new Event("words"));
}
