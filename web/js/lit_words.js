// Words that light up as they are heard; a click on one plays from there. The list of recordings shows them, and the
// player of speech that is being made.
import { addStyle, make } from "./elements.js"
import { say } from "./words.js"

export const LINE = 18 // pixels

export class LitWords {
  /** ``play`` is called with the moment at which a word that was clicked begins, in seconds. */
  constructor(play) {
    this.heard = this.now = /** @type {number | undefined} */ (undefined) // the last word that has begun; the one that sounds
    this.element = make("div", "morph-lit", "", say("Click a word to play from there"))
    this.element.onclick = ({ target }) => {
      const word = this.words[target.dataset.word]
      if (word) play(word[1])
    }
    this.fill([])
  }

  /** Show words, each with the space before it, its start and its end in seconds; none light up yet. */
  fill(words) {
    if (words === this.words) return
    this.words = words
    this.spans = words.map(([text], place) => {
      const span = make("span", "morph-lit-word", text.trimStart())
      span.dataset.word = place
      return span
    })
    this.element.replaceChildren(
      ...this.spans.flatMap((span, place) => (words[place][0].startsWith(" ") ? [" ", span] : [span])),
    )
    this.element.scrollTop = this.element.scrollLeft = 0
    this.light(undefined)
  }

  /** Light up what has been heard at a moment, in seconds; undefined: it is not played. */
  light(at) {
    const heard = at === undefined ? undefined : this.words.findLastIndex(([, start]) => start <= at)
    const now = heard >= 0 && at < this.words[heard][2] ? heard : undefined
    if (heard === this.heard && now === this.now) return
    this.heard = heard
    this.now = now
    this.element.classList.toggle("morph-lit-plays", heard !== undefined)
    this.spans.forEach((span, place) => {
      span.classList.toggle("morph-lit-heard", place <= heard)
      span.classList.toggle("morph-lit-now", place === now)
    })
    if (now !== undefined) this.reveal(this.spans[now])
  }

  /** Scroll a word into the middle: only here, not the page around it. */
  reveal(span) {
    const { element } = this
    element.scrollTop = span.offsetTop - (element.clientHeight - span.offsetHeight) / 2
    element.scrollLeft = span.offsetLeft - (element.clientWidth - span.offsetWidth) / 2
  }
}

addStyle(`
  .morph-lit { position: relative; overflow-y: auto; overflow-wrap: anywhere; line-height: ${LINE}px; font-size: 13px; }
  .morph-lit-word { cursor: pointer; border-radius: 3px; }
  .morph-lit-word:hover { text-decoration: underline; }
  .morph-lit-plays .morph-lit-word { opacity: .5; }
  .morph-lit-plays .morph-lit-heard { opacity: 1; }
  .morph-lit-plays .morph-lit-now { color: #111; background: #facc15; }`)
