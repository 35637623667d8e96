// A list of a node's recordings on the node itself: play, who or which setting, the words, the length, what went wrong.
// Recordings of the same words (a Sweep) are compared: another one goes on at the same moment, blind if wanted.
// Below the list are the words of the one that plays, where they have times (lit_words.js).
import { app } from "../../../scripts/app.js"
import * as sound from "./clip_sound.js"
import { Display } from "./display.js"
import { addStyle, button, keepEvents, make, MARGIN, turn } from "./elements.js"
import { LINE, LitWords } from "./lit_words.js"
import { extend, PREFIX } from "./nodes.js"
import { say } from "./words.js"

export { stopClips } from "./clip_sound.js"

const KEY = "morph_clips" // of a node's output
const FOLDED = ["MorphTTSSaveSpeech"] // their lists begin folded: the node that speaks lists the same recordings
const ROW = 26, MOST_ROWS = 6 // pixels; more rows scroll
const PADDING = 4 // pixels
const MOST_LIT = 3 // lines of words; more scroll
const PER_LIT = 40 // characters that a narrow node has in one
const NO_WORDS = []
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
const STEPS = 1000 // of the slider
const UNDO_MS = 2000 // an undo builds all nodes again: sound goes on if its node is back within this time

function time(seconds) {
  if (seconds < 60) return `${seconds.toFixed(1)} s`
  const whole = Math.round(seconds)
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`
}

const clipButton = (text, title, onclick) => button("morph-clip-button", text, title, onclick)

class ClipList {
  /** ``folds``: whether it is folded at first, and has a button that unfolds it. */
  constructor(folds) {
    this.node = this.shown = /** @type {any} */ (undefined) // which node has this list now, and what its run returned
    this.clips = this.players = this.order = /** @type {any[]} */ ([])
    this.folds = this.folded = folds
    this.frame = 0 // of the next look at what is heard
    this.right = this.asked = 0 // guesses
    this.element = make("div", "morph-clips")
    this.lit = new LitWords((moment) => this.playFrom(moment))
    this.lit.element.dataset.captureWheel = "true" // as for the rows
    keepEvents(this.element, ({ target }) => (this.lit.element.contains(target) ? this.lit.element : this.rows))
  }

  fill(shown) {
    if (shown === this.shown) return // after an undo
    this.shown = shown
    this.clips = shown.clips
    this.compare = shown.compare && this.clips.length > 1
    this.current = undefined // index of the clip that plays or played last
    this.right = this.asked = 0
    this.setBlind(false)
  }

  get height() {
    const rows = this.folded ? 0 : Number(this.compare) + Math.min(this.clips.length, MOST_ROWS)
    const lines = this.isAlone ? 1 : 1 + rows
    const words = this.litLines && LINE * this.litLines + PADDING
    return ROW * lines + words + 2 * (PADDING + MARGIN)
  }

  /** How many lines of words are shown: of the recording that plays, or of the first one; 0 if none have times. */
  get litLines() {
    const longest = Math.max(...this.clips.map((clip) => (clip.words?.length ? clip.text.length : 0)))
    return this.folded ? 0 : Math.min(MOST_LIT, Math.ceil(longest / PER_LIT))
  }

  /** Whether there is one clip: then its row has the slider, and there is no head. */
  get isAlone() {
    return this.clips.length === 1
  }

  // Drawing

  build() {
    this.slider = this.buildSlider()
    this.note = make("span", "morph-clips-note")
    const parts = this.isAlone ? [] : [this.buildHead()]
    this.status = make("div", "morph-clips-status")
    if (this.compare) parts.push(this.status)
    this.rows = make("div", "morph-clips-rows")
    this.rows.tabIndex = 0 // keys scroll it
    this.rows.hidden = this.folded && !this.isAlone
    this.rows.dataset.captureWheel = "true" // Nodes 2.0: the wheel scrolls what has been clicked
    this.players = this.order.map((index, place) => this.row(this.clips[index], index, place))
    this.lit.element.style.height = `${LINE * this.litLines}px`
    this.element.replaceChildren(...parts, this.rows, ...(this.litLines ? [this.lit.element] : []))
    this.status.textContent = this.status.title = this.blind ? this.question : this.verdict || say("Switching keeps the position.")
    this.show()
  }

  buildHead() {
    const head = make("div", "morph-clips-head")
    if (this.folds) head.append(this.buildFold())
    head.append(clipButton(`▶ ${say("Play all")}`, say("Play all in order"), () => this.playAll()))
    if (this.compare)
      head.append(
        this.blind
          ? clipButton(say("Show names"), say("Show names"), () => this.setBlind(false))
          : clipButton(say("Blind test"), say("Hide and shuffle the names, and guess"), () => this.setBlind(true)),
      )
    this.note.textContent = this.note.title = this.count()
    head.append(this.slider, this.note)
    return head
  }

  /** How many lines there are and how long they are together; the track holds the same lines again. */
  count() {
    const lines = this.clips.filter((clip) => !clip.track)
    const total = time(lines.reduce((sum, clip) => sum + clip.seconds, 0))
    if (lines.length === this.clips.length) return say("{0} recordings, {1}", lines.length, total)
    return say("{0} lines, {1}, and the track", lines.length, total)
  }

  buildFold() {
    const words = this.folded ? say("Show the list") : say("Hide the list")
    const made = clipButton(this.folded ? "▸" : "▾", words, () => this.fold())
    made.classList.add("morph-clips-fold")
    made.setAttribute("aria-expanded", String(!this.folded))
    return made
  }

  fold() {
    this.folded = !this.folded
    turn(this, !this.folded, () => this.build())
  }

  buildSlider() {
    const slider = make("input", "morph-clips-slider", "", say("Position"))
    Object.assign(slider, { type: "range", min: 0, max: STEPS, value: 0, disabled: true })
    slider.setAttribute("aria-label", say("Position"))
    slider.oninput = () => sound.seek((slider.value / STEPS) * this.clips[this.current].seconds)
    return slider
  }

  /** A row. In a blind test it has nothing that tells the setting: no name, file, length or problem. */
  row(clip, index, place) {
    const row = make("div", "morph-clip")
    const number = String(clip.number ?? index + 1)
    const name = this.blind ? LETTERS[place] : clip.name || number
    const play = clipButton("▶", "", () => this.toggle(index))
    row.append(play)
    if (!this.blind && !this.compare && !this.isAlone && clip.name) row.append(make("i", "", number))
    if (!this.isAlone || clip.name) row.append(make("b", "", name, name))
    if (this.blind) row.append(clipButton(say("This one"), say("{0} is {1}", name, this.sought.name), () => this.guess(index)))
    else this.tell(row, clip)
    this.rows.append(row)
    return { index, name, play, row }
  }

  tell(row, clip) {
    const problems = (clip.problems ?? []).map((one) => say(one)).join(", ")
    if (problems) row.append(make("em", "", problems, problems))
    row.append(make("span", "morph-clip-words", clip.text, clip.text))
    if (this.isAlone) row.append(this.note, this.slider)
    row.append(make("span", "morph-clip-time", time(clip.seconds)))
    const title = `${say("Download")} ${clip.filename}`, link = make("a", "morph-clip-button", "↓", title)
    row.append(Object.assign(link, { href: sound.addressOf(clip), download: clip.filename, ariaLabel: title }))
  }

  show() {
    const playing = sound.plays(this)
    for (const { index, name, play, row } of this.players) {
      const own = index === this.current
      play.textContent = own && playing ? "❚❚" : "▶"
      play.title = play.ariaLabel = own && playing ? say("Pause") : say("Play {0}", name)
      row.classList.toggle("morph-clip-current", own && sound.isOwner(this))
      if (own && playing && this.all) row.scrollIntoView({ block: "nearest" })
    }
    const usable = this.current !== undefined && sound.isOwner(this)
    this.slider.disabled = !usable
    if (usable) this.slider.value = (STEPS * sound.position()) / this.clips[this.current].seconds
    if (this.litLines) this.follow()
  }

  /** Light up the words, and go on while they are heard. */
  follow() {
    cancelAnimationFrame(this.frame)
    const plays = this.current !== undefined && sound.isOwner(this)
    this.lit.fill(this.clips[this.current ?? 0].words ?? NO_WORDS)
    this.lit.light(plays ? sound.position() : undefined)
    if (sound.plays(this)) this.frame = requestAnimationFrame(() => this.follow())
  }

  // Playing

  toggle(index) {
    this.all = false
    if (sound.plays(this) && this.current === index) return sound.stopClips()
    this.play(index)
  }

  playAll() {
    this.all = true
    this.play(this.order[0], 0)
  }

  /** Play a clip from a moment on: by default where it was paused; one that is compared, where the other one is. */
  async play(index, from = this.moment(index)) {
    const before = this.current
    this.current = index
    const goesOn = sound.isOwner(this) && before === index && from !== 0
    const works = await (goesOn ? sound.resumeClip() : sound.playClip(this, sound.addressOf(this.clips[index]), from))
    if (!works && this.current === index) this.fail(index)
    this.show()
  }

  /** Play the recording whose words are shown from a moment on. */
  async playFrom(moment) {
    const index = this.current ?? 0
    if (!sound.isOwner(this) || this.current !== index) return this.play(index, moment)
    sound.seek(moment)
    if (!sound.plays(this) && !(await sound.resumeClip())) this.fail(index)
    this.show()
  }

  /** Seconds at which a clip begins: lengths of settings differ a little, so the same moment is the same share. */
  moment(index) {
    if (!sound.isOwner(this) || this.current === undefined) return 0
    if (index !== this.current && !this.compare) return 0
    const share = sound.position() / this.clips[this.current].seconds
    return share < 0.99 ? share * this.clips[index].seconds : 0
  }

  fail(index) {
    this.all = false
    const said = say("cannot be played: run the node again (ComfyUI deletes temporary files when it restarts)")
    const { name } = this.players.find((one) => one.index === index)
    this.note.textContent = this.note.title = this.isAlone ? said : `${name} ${said}`
    this.note.classList.add("morph-clips-wrong")
  }

  ended() {
    const next = this.order[this.order.indexOf(this.current) + 1]
    if (this.all && next !== undefined) this.play(next, 0)
    else this.show()
  }

  // The blind test

  /** What is sought among the shuffled clips: the last one, which is the most exact. */
  get sought() {
    return this.clips.at(-1)
  }

  get score() {
    return this.asked ? ` ${say("{0} of {1} right", this.right, this.asked)}` : ""
  }

  get question() {
    return say("Which one is {0}?", this.sought.name) + this.score
  }

  setBlind(blind, verdict = "") {
    this.blind = blind
    this.verdict = verdict
    this.all = false // whether the next one follows
    this.order = this.clips.map((_, index) => index)
    if (blind) {
      sound.stopClips() // the ear must not know which one played last
      this.current = undefined
      shuffle(this.order)
    }
    this.build()
  }

  guess(index) {
    const last = this.clips.length - 1
    const isRight = index === last
    this.asked++
    if (isRight) this.right++
    const letter = LETTERS[this.order.indexOf(last)]
    const names = this.order.map((one, place) => `${LETTERS[place]} ${this.clips[one].name.replace(/.* /, "")}`)
    const verdict = say(isRight ? "Right: it is {0}." : "No: it is {0}.", letter)
    this.setBlind(false, `${verdict}${this.score} (${names.join(", ")})`)
  }
}

function shuffle(list) {
  for (let last = list.length - 1; last > 0; last--) {
    const other = Math.floor(Math.random() * (last + 1))
    ;[list[last], list[other]] = [list[other], list[last]]
  }
}

const lists = new Display(
  "speech_clips", "MORPH_TTS_CLIPS", "clips", (node) => new ClipList(FOLDED.includes(node.type)))

async function showClips(node, output) {
  const clips = output?.[KEY]
  if (!clips?.length) return
  const isShown = await lists.showRun(node, { clips, compare: Boolean(output[`${KEY}_compare`]?.[0]) })
  if (isShown) document.dispatchEvent(new CustomEvent("morph.clips.shown", { detail: node })) // live.js gives way
}

addStyle(`
  .morph-clips { box-sizing: border-box; width: 100%; padding: ${PADDING}px; border-radius: 6px; font: 12px sans-serif;
    background: var(--input, var(--comfy-input-bg, #222)); color: var(--input-text, #ddd); display: flex;
    flex-direction: column; }
  .morph-clips-head, .morph-clips-status, .morph-clip { display: flex; gap: 8px; align-items: center; flex: none;
    box-sizing: border-box; height: ${ROW}px; padding: 0 4px; min-width: 0; }
  .morph-clips-status { display: block; line-height: ${ROW}px; }
  .morph-clips-rows { overflow-y: auto; max-height: ${ROW * MOST_ROWS}px; min-height: 0; }
  .morph-clips-rows[hidden] { display: none; }
  .morph-clips-head .morph-clip-button.morph-clips-fold { width: 20px; padding: 0; border: 0; }
  .morph-clips-status, .morph-clips-note, .morph-clip b, .morph-clip em, .morph-clip-words { overflow: hidden;
    text-overflow: ellipsis; white-space: nowrap; }
  .morph-clip-button { all: unset; box-sizing: border-box; cursor: pointer; flex: none; width: 20px; height: 20px;
    line-height: 20px; text-align: center; border-radius: 4px; font-size: 11px; }
  .morph-clip-button:hover { background: color-mix(in srgb, currentColor 20%, transparent); }
  .morph-clip-button:focus-visible, .morph-clips-slider:focus-visible { outline: 2px solid currentColor; }
  .morph-clips-head .morph-clip-button, .morph-clip > b + .morph-clip-button { width: auto; padding: 0 8px;
    line-height: 18px; border: 1px solid color-mix(in srgb, currentColor 35%, transparent); }
  .morph-clips-slider { flex: 1 1 40px; min-width: 30px; height: 16px; margin: 0; accent-color: currentColor; cursor: pointer; }
  .morph-clips-slider:disabled { opacity: .35; cursor: default; }
  .morph-clip .morph-clips-slider { flex: 0 1 80px; }
  .morph-clips-note { flex: 0 1 auto; opacity: .8; }
  .morph-clips-note:empty { display: none; }
  .morph-clip i { flex: none; min-width: 1.2em; text-align: right; font-style: normal; opacity: .6; }
  .morph-clip b { flex: none; max-width: 40%; }
  .morph-clip em { flex: none; max-width: 45%; padding: 0 6px; border-radius: 4px; font-style: normal; font-weight: 600;
    background: #c62828; color: #fff; }
  .morph-clip-words { flex: 1; opacity: .8; }
  .morph-clips-wrong { color: var(--error-text, #f44); opacity: 1; }
  .morph-clip-time { flex: none; margin-left: auto; opacity: .8; font-variant-numeric: tabular-nums; }
  .morph-clips .morph-lit { flex: none; margin: ${PADDING}px 4px 0; }
  .morph-clip-current { background: color-mix(in srgb, currentColor 12%, transparent); border-radius: 4px; }`)

app.registerExtension({
  name: "MorphTTS.Clips",
  setup: sound.listenToOthers,
  afterConfigureGraph: () => lists.restore(),
  beforeRegisterNodeDef(nodeType, nodeData) {
    if (!nodeData.name.startsWith(PREFIX)) return
    extend(nodeType, "onExecuted", showClips)
    // A deleted node falls silent, unless an undo has put another one in its place.
    extend(nodeType, "onRemoved", (node) => {
      setTimeout(() => { if (sound.currentList()?.node === node) sound.stopClips() }, UNDO_MS)
    })
  },
})
