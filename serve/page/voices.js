// The list of voices: search, choose, preview, and delete added ones.
import { ask, askJson, postSpeech, readEvents } from "./api.js"
import { at, jsonOf } from "./fields.js"
import { bytesOf } from "./speak.js"
import { Track } from "./track.js"

const SEED = "1" // every preview of a voice is the same take
const SENTENCES = {
  chinese: "你好，这就是我的声音。",
  french: "Bonjour, voici ma voix.",
  german: "Hallo, so klinge ich.",
  italian: "Ciao, questa è la mia voce.",
  japanese: "こんにちは、これが私の声です。",
  korean: "안녕하세요, 제 목소리입니다.",
  portuguese: "Olá, esta é a minha voz.",
  russian: "Здравствуйте, вот мой голос.",
  spanish: "Hola, así suena mi voz.",
}

export class Voices {
  /** ``page``: loudspeaker, rate(), quiet() to silence what sounds, attempt(), onChoice(), say(words). */
  constructor(page) {
    this.page = page
    this.voices = []
    this.chosen = ""
    this.previews = new Map() // tracks by voice, language and SEQ_GROUPS
    at("search").addEventListener("input", () => this.draw())
    at("voices").addEventListener("change", ({ target }) => this.choose(/** @type {HTMLInputElement} */ (target).value))
  }

  /** Load the list; draw it if it has changed. */
  async refresh() {
    const { voices } = await askJson("/v1/audio/voices")
    if (JSON.stringify(voices) === JSON.stringify(this.voices)) return
    this.voices = voices
    if (!this.has(this.chosen)) this.chosen = voices[0]?.name ?? ""
    this.draw()
    this.page.onChoice()
  }

  /** Choose a voice that this page has added. */
  async added(name) {
    for (const key of this.previews.keys()) if (key.startsWith(`${name}\n`)) this.previews.delete(key)
    at("search").value = ""
    await this.refresh()
    this.choose(name)
    this.draw()
    at("voices").querySelector(":checked")?.scrollIntoView({ block: "nearest" })
  }

  has(name) {
    return this.voices.some((one) => one.name === name)
  }

  choose(name) {
    this.chosen = name
    for (const row of at("voices").children) this.mark(row)
    this.page.onChoice()
  }

  draw() {
    const focused = document.activeElement?.closest("#voices li")?.getAttribute("data-name")
    const wanted = at("search").value.trim().toLowerCase()
    const shown = this.voices.filter((one) => `${one.name} ${one.kind}`.toLowerCase().includes(wanted))
    at("voices").replaceChildren(...shown.map((one) => this.row(one)))
    at("no-voices").hidden = shown.length > 0
    at("no-voices").textContent = this.voices.length ? "No voice matches." : "There is no voice yet: add one."
    at("found").textContent = `${wanted ? `${shown.length} of ` : ""}${this.voices.length} voices`
    if (focused) [...at("voices").children].find((row) => row.getAttribute("data-name") === focused)?.querySelector("input")?.focus()
  }

  row({ name, kind, recipe }) {
    const row = document.createElement("li")
    row.dataset.name = name
    const label = document.createElement("label")
    const radio = Object.assign(document.createElement("input"), { type: "radio", name: "voice", value: name })
    const title = Object.assign(document.createElement("span"), { className: "name", textContent: name })
    const badge = Object.assign(document.createElement("span"), { className: "kind", textContent: kind })
    if (recipe) title.title = recipe // what it was made of
    label.append(radio, title, badge)
    row.append(label, button("▶", `Play ${name}`, () => this.page.attempt(() => this.preview(name))))
    if (kind === "uploaded") row.append(button("✕", `Delete ${name}`, () => this.page.attempt(() => this.remove(name))))
    this.mark(row)
    return row
  }

  /** Mark the chosen row; the Tab key reaches only its buttons, not a hundred. */
  mark(row) {
    const is = row.dataset.name === this.chosen
    row.classList.toggle("chosen", is)
    row.querySelector("input").checked = is
    for (const one of row.querySelectorAll("button")) one.tabIndex = is ? 0 : -1
  }

  /** Speak a short sentence with a voice, once. */
  async preview(name) {
    this.page.quiet()
    const language = at("language").value
    const groups = Number(at("groups").value)
    const key = `${name}\n${language}\n${groups}`
    await this.page.loudspeaker.open(this.page.rate())
    const kept = this.previews.get(key)
    if (kept) return this.hear(kept)
    this.page.say(`Speaking with ${name}`)
    const track = this.hear(new Track(this.page.loudspeaker, this.page.rate()))
    const input = SENTENCES[language] ?? "Hello, this is how I sound."
    const fields = { input, voice: name, language, seq_groups: groups, response_format: "pcm", stream_format: "sse" }
    this.abort = new AbortController()
    try {
      const answer = await postSpeech(jsonOf(fields, SEED), this.abort.signal)
      for await (const event of readEvents(answer)) if (event.audio) track.push(bytesOf(event.audio))
      track.finish()
      this.previews.set(key, track)
    } finally {
      this.page.say("")
    }
  }

  hear(track) {
    this.sounding = track
    if (track.ended) track.play(0)
    return track
  }

  /** Stop the preview. */
  quiet() {
    this.abort?.abort()
    this.sounding?.stop()
  }

  async remove(name) {
    if (!confirm(`Delete the voice ${name} from the server, for all its users?`)) return
    await ask(`/v1/audio/voices/${encodeURIComponent(name)}`, { method: "DELETE" })
    await this.refresh()
    this.page.say(`${name} was deleted.`)
    at("search").focus()
  }
}

function button(sign, label, onClick) {
  const made = Object.assign(document.createElement("button"), { type: "button", textContent: sign, title: label })
  made.setAttribute("aria-label", label)
  made.addEventListener("click", onClick)
  return made
}
