// The text of a take, whose words light up as they are played.
import { at } from "./fields.js"

/** The text below the waveform, hidden for a track without ``words``. */
export class HeardText {
  constructor() {
    /** @type {HTMLElement[]} */
    this.words = [] // of the words so far
    this.lit = 0 // how many of them have begun
    this.now = /** @type {HTMLElement | undefined} */ (undefined) // the current word
    /** @type {string[]} */
    this.letters = []
    this.rest = document.createTextNode("")
    this.end = 0 // of the last word that is shown
    this.show()
  }

  /**
   * Show the text of a track, or nothing.
   * @param {import("./track.js").Track} [track]
   */
  show(track) {
    this.track = track
    this.words = []
    this.lit = 0
    this.now = undefined
    this.letters = [...(track?.text ?? "")] // places in the text are those of Unicode characters
    this.rest = document.createTextNode("")
    at("heard").replaceChildren(this.rest)
    this.end = 0
  }

  /** Add new words, and light up those that have begun at a time in seconds. */
  update(seconds) {
    const words = this.track?.words ?? []
    at("heard").hidden = words.length === 0
    if (words.length === 0) return
    for (const word of words.slice(this.words.length)) this.add(word)
    while (this.lit < words.length && words[this.lit].start_time <= seconds) this.light(this.lit++, true)
    while (this.lit > 0 && words[this.lit - 1].start_time > seconds) this.light(--this.lit, false)
    this.mark(seconds < words[this.lit - 1]?.end_time ? this.words[this.lit - 1] : undefined)
  }

  add(word) {
    const shown = Object.assign(document.createElement("span"), { textContent: word.word }) // of <shown|read> what is shown
    this.rest.before(this.part(this.end, word.first_char), shown)
    this.end = word.last_char
    this.rest.data = this.part(this.end)
    this.words.push(shown)
  }

  /**
   * @param {number} from
   * @param {number} [to]
   */
  part(from, to) {
    return this.letters.slice(from, to).join("")
  }

  light(index, on) {
    this.words[index].classList.toggle("lit", on)
  }

  /** Mark the current word, and keep it in sight. */
  mark(word) {
    if (word === this.now) return
    this.now?.classList.remove("now")
    this.now = word
    if (!word) return
    word.classList.add("now")
    const [box, top] = [at("heard"), word.offsetTop - at("heard").offsetTop]
    if (top < box.scrollTop || top + word.offsetHeight > box.scrollTop + box.clientHeight) box.scrollTop = top
  }
}
