// The list of takes: play one again, or reuse its settings.
import { at } from "./fields.js"

const MOST = 20 // takes
const MOST_S = 1200 // seconds of audio in all takes; the newest one always stays
const ENDS = {
  eos: ["complete", ""],
  echo: ["says its reference", "It begins with words of its reference: try another seed, or pad the reference."],
  words: ["wrong words", "Some of its words are wrong: try another seed."],
  cap: ["cut off at its limit", "It reached its limit and was cut off: try another seed."],
  loop: ["repeated itself", "It repeated itself and was stopped: try another seed."],
  early: ["ended too early", "It ended before the end of the text: try another seed."],
  silent: ["silent", "It is silent: try another seed."],
  stopped: ["stopped", ""],
  broken: ["broke off", ""],
}

/** A sentence for the end of a take; "" for a complete one. */
export const sentenceFor = (ended) => (ENDS[ended] ?? [ended, `It ended with ${ended}.`])[1]

export class Takes {
  /** ``onPlay(take)`` and ``onUse(take)`` are called for each take's buttons. */
  constructor(onPlay, onUse) {
    this.onPlay = onPlay
    this.onUse = onUse
    /** @type {import("./speak.js").Speaking[]} */
    this.takes = []
    this.shown = undefined
  }

  /** Add one: {fields, seed, voice, track, ended}. */
  add(take) {
    this.takes.unshift(take)
    let seconds = 0
    this.takes = this.takes.filter((one, n) => (seconds += one.track.seconds) <= MOST_S || n === 0).slice(0, MOST)
    this.shown = take
    this.draw()
  }

  /** Mark the take in the player. */
  mark(take) {
    this.shown = take
    this.draw()
  }

  draw() {
    const focused = document.activeElement?.closest("#takes button")
    const place = focused && [[...at("takes").children].findIndex((row) => row.contains(focused)), focused.className]
    at("no-takes").hidden = this.takes.length > 0
    at("takes").replaceChildren(...this.takes.map((take) => this.row(take)))
    if (place) at("takes").children[place[0]]?.querySelector(`.${place[1]}`)?.focus()
  }

  row(take) {
    const row = document.createElement("li")
    row.classList.toggle("chosen", take === this.shown)
    const [ended] = ENDS[take.ended] ?? [take.ended]
    const text = element("p", "said", take.fields.input.slice(0, 200))
    const facts = [take.voice, `seed ${take.seed}`, `${take.fields.seq_groups} of 15`]
    if (take.fields.speed) facts.push(`${take.fields.speed} ×`)
    facts.push(`${take.track.seconds.toFixed(1)} s`)
    const about = element("p", "hint", facts.filter(Boolean).join(" · "))
    about.append(" · ", element("span", take.ended === "eos" ? "good" : "bad", ended))
    const words = document.createElement("div")
    words.append(text, about)
    row.append(words, button("hear", "Play", take, this.onPlay), button("use", "Reuse settings", take, this.onUse))
    return row
  }
}

function element(tag, className, textContent) {
  return Object.assign(document.createElement(tag), { className, textContent })
}

function button(className, words, take, onClick) {
  const made = Object.assign(element("button", className, words), { type: "button" })
  made.setAttribute("aria-label", `${words}: ${take.fields.input.slice(0, 40)}, seed ${take.seed}`)
  made.addEventListener("click", () => onClick(take))
  return made
}
