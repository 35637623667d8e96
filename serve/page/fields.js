// The page's fields: errors, words for numbers, and the request.

/**
 * The page's element of this id: index.html has it.
 * @template {string} Id
 * @param {Id} id
 * @returns {ElementOf<Id>}
 */
export const at = (id) => /** @type {any} */ (document.getElementById(id))

/** Set an element's text if it differs: screen readers repeat a text that is set again. */
export function put(id, text) {
  if (at(id).textContent !== String(text)) at(id).textContent = text
}

// Elements by the fields of the server's errors.
const FIELDS = {
  input: "text",
  voice: "search",
  name: "voice-name",
  ...Object.fromEntries(
    ["language", "seed", "speed", "instructions", "transcript", "consent"].map((one) => [one, one]),
  ),
  seq_groups: "groups",
}
const MOST_SEED = 2n ** 64n - 1n
const count = new Intl.NumberFormat("en")

/** An error of a field. */
export class Wrong extends Error {
  constructor(param, message) {
    super(message)
    this.param = param
  }
}

/** Show an error at its field, and focus it; return false if it is not visible. */
export function showAt(param, message) {
  const field = at(FIELDS[param] ?? param)
  const note = field && at(`${field.id}-error`)
  if (!note || !field.checkVisibility()) return false
  note.textContent = message
  note.hidden = false
  field.setAttribute("aria-invalid", "true")
  field.focus()
  return true
}

/** Clear the errors inside an element. */
export function clearErrors(element) {
  for (const note of element.querySelectorAll(".error")) note.hidden = true
  for (const field of element.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid")
}

/** Fill a list with names, and keep the choice if possible. */
export function fill(list, names) {
  const chosen = list.value
  list.replaceChildren(...names.map((name) => new Option(name[0].toUpperCase() + name.slice(1), name)))
  if (names.includes(chosen)) list.value = chosen
}

/** Characters as the server counts them. */
export const lengthOf = (text) => [...text].length

/** Show how long the text is. */
export function showCount(most) {
  const length = lengthOf(at("text").value)
  const over = most && length > most ? `: ${count.format(length - most)} too many` : ""
  put("count", `${count.format(length)} of ${most ? count.format(most) : "–"} characters${over}`)
  at("count").classList.toggle("over", over !== "")
}

/** Put a text file into the text's field. */
export async function readText(input, most = 20_000) {
  const [file] = input.files
  input.value = "" // the same file can be chosen again
  if (!file) return
  if (file.size > 4 * most) throw new Wrong("input", `The file has ${count.format(file.size)} bytes: choose one of at most ${count.format(4 * most)}.`)
  try {
    at("text").value = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer())
  } catch {
    throw new Wrong("input", "The file is not UTF-8 text: save it as UTF-8.")
  }
}

/** SEQ_GROUPS in plain words. */
export function wordsFor(groups) {
  if (groups === 15) return "exact"
  if (groups >= 8) return "close to exact"
  if (groups >= 5) return "balanced"
  return groups >= 3 ? "fast" : "fastest, rougher"
}

/** Show the values of the sliders. */
export function showSliders() {
  const groups = Number(at("groups").value)
  at("groups-words").textContent = `${groups} of 15: ${wordsFor(groups)}`
  at("groups").setAttribute("aria-valuetext", at("groups-words").textContent)
  at("speed-words").textContent = `${readSpeed()} ×`
  at("speed").setAttribute("aria-valuetext", `${readSpeed()} times`)
}

// The slider of the speed has even steps for the ear: -2 is a quarter, 2 four times.
const readSpeed = () => Number((2 ** Number(at("speed").value)).toFixed(2))

export const showSpeed = (speed) => { at("speed").value = String(Math.log2(speed)) }

/** The page's request: its fields, and the seed as text (JavaScript rounds numbers above 2**53). */
export function readFields(most, voice) {
  const text = at("text").value
  if (most && lengthOf(text) > most) {
    throw new Wrong("input", `The text has ${count.format(lengthOf(text))} characters and ${count.format(most)} are allowed: shorten it.`)
  }
  const fields = { input: text, language: at("language").value, seq_groups: Number(at("groups").value) }
  if (voice) fields.voice = voice
  if (readSpeed() !== 1) fields.speed = readSpeed()
  if (!at("instructions-field").hidden && at("instructions").value.trim()) fields.instructions = at("instructions").value
  return { fields, seed: readSeed() }
}

function readSeed() {
  const seed = at("seed").value.trim()
  if (seed && !(/^\d{1,20}$/.test(seed) && BigInt(seed) <= MOST_SEED)) {
    throw new Wrong("seed", "The seed must be a whole number from 0 to 18446744073709551615, or empty.")
  }
  return seed && String(BigInt(seed))
}

/** The JSON of a request, with the exact seed. */
export function jsonOf(fields, seed) {
  const pairs = Object.entries(fields).map(([name, value]) => `"${name}": ${JSON.stringify(value)}`)
  if (seed) pairs.push(`"seed": ${seed}`)
  return `{${pairs.join(", ")}}`
}
