// A list of a node's recordings on the node itself: play, who or which setting, the words, the length, what went wrong.
// Recordings of the same words (a Sweep) are compared: another one goes on at the same moment, blind if wanted.
import { app } from "../../../scripts/app.js"

const KEY = "morph_clips" // of a node's output
const WIDGET = "speech_clips" // name of the widget; no input has this name
const ROW = 24, MOST_ROWS = 6 // pixels; more rows scroll
const MARGIN = 4 // pixels, which the classic canvas subtracts on both sides
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

const lists = new WeakMap() // node -> ClipList
let sound, heard // the page's only <audio> for clips, and the list that uses it

/** Stop what plays: one sound at a time. */
export function stopClips() {
  sound?.pause()
  heard?.show()
}

const address = ({ filename, subfolder, type }) => app.api.apiURL(`/view?${new URLSearchParams({ filename, subfolder, type })}`)
const time = (seconds) => (seconds < 60 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds / 60)}:${String(Math.round(seconds % 60)).padStart(2, "0")}`)

function make(kind, name, text = "", title = "") {
  const element = document.createElement(kind)
  element.className = name
  element.textContent = text
  if (title) element.title = title
  return element
}

function button(text, title, onclick) {
  const made = make("button", "morph-clip-button", text, title)
  made.setAttribute("aria-label", title)
  made.onclick = onclick
  return made
}

/** The list of one node. */
class ClipList {
  constructor() {
    this.element = make("div", "morph-clips")
    this.element.addEventListener("wheel", (event) => {
      const { scrollHeight, clientHeight } = this.rows
      if (scrollHeight > clientHeight) event.stopPropagation()
      else app.canvas.processMouseWheel(event) // zoom, as elsewhere on the node
    })
  }

  fill(clips, compare) {
    Object.assign(this, { clips, compare, current: undefined, all: false, blind: false })
    this.right = this.asked = 0 // guesses
    this.order = clips.map((_, index) => index)
    this.build()
  }

  get height() {
    return ROW * (1 + Math.min(this.clips.length, MOST_ROWS)) + 8 + 2 * MARGIN
  }

  build() {
    this.head = make("div", "morph-clips-head")
    this.rows = make("div", "morph-clips-rows")
    const total = this.clips.reduce((sum, clip) => sum + clip.seconds, 0)
    this.head.append(button("▶ all", "Play all in order", () => this.playAll()))
    if (this.compare) this.head.append(button(this.blind ? "show names" : "blind", "Hide and shuffle the names", () => this.toggleBlind()))
    this.note = make("span", "morph-clips-note", this.blind ? this.question() : `${this.clips.length} · ${time(total)}`)
    this.head.append(this.note)
    this.players = this.order.map((index, place) => this.row(this.clips[index], index, place))
    this.element.replaceChildren(this.head, this.rows)
    this.show()
  }

  row(clip, index, place) {
    const row = make("div", "morph-clip")
    const name = this.blind ? LETTERS[place] : clip.name || String(index + 1)
    const play = button("▶", `Play ${name}`, () => this.toggle(index))
    row.append(play, make("b", "", name))
    if (this.blind) row.append(button("this one", `${name} is ${this.sought.name}?`, () => this.guess(index)))
    else row.append(make("span", "morph-clip-words", clip.text, clip.text))
    if (clip.problem) row.append(make("em", "", clip.problem, clip.problem))
    row.append(make("span", "morph-clip-time", time(clip.seconds)))
    if (!this.blind) {
      const link = make("a", "morph-clip-button", "↓", "Download")
      Object.assign(link, { href: address(clip), download: clip.filename })
      row.append(link)
    }
    this.rows.append(row)
    return { index, play, row }
  }

  // Playing

  toggle(index) {
    if (this.current === index && heard === this && !sound.paused) return stopClips()
    this.all = false
    this.play(index)
  }

  playAll() {
    this.all = true
    this.play(this.order[0])
  }

  /** Play a clip; one that is compared goes on where the other was. */
  play(index) {
    const goesOn = this.compare && !this.all && heard === this && this.current !== index && !sound?.ended
    const at = goesOn ? sound?.currentTime ?? 0 : 0
    stopClips()
    document.dispatchEvent(new CustomEvent("morph.clips.play")) // live.js falls silent
    sound ??= new Audio()
    heard = this
    this.current = index
    sound.src = address(this.clips[index])
    sound.currentTime = Math.min(at, this.clips[index].seconds)
    sound.onended = () => this.next()
    sound.onpause = sound.onplaying = () => this.show()
    sound.play().catch((error) => { this.note.textContent = `cannot play: ${error.message}` })
    this.show()
  }

  next() {
    const place = this.order.indexOf(this.current) + 1
    if (this.all && place < this.order.length) this.play(this.order[place])
    else this.show()
  }

  show() {
    const plays = heard === this && sound && !sound.paused && !sound.ended
    for (const { index, play, row } of this.players ?? []) {
      const own = plays && index === this.current
      play.textContent = own ? "■" : "▶"
      row.classList.toggle("morph-clip-plays", Boolean(own))
    }
  }

  // Blind

  /** What is sought among the shuffled clips: the last one, which is the most exact. */
  get sought() {
    return this.clips.at(-1)
  }

  question() {
    const score = this.asked ? ` (${this.right} of ${this.asked} right)` : ""
    return `Which one is ${this.sought.name}?${score}`
  }

  toggleBlind() {
    stopClips()
    this.blind = !this.blind
    this.order = this.clips.map((_, index) => index)
    if (this.blind)
      for (let last = this.order.length - 1; last > 0; last--) {
        const other = Math.floor(Math.random() * (last + 1))
        ;[this.order[last], this.order[other]] = [this.order[other], this.order[last]]
      }
    this.build()
  }

  guess(index) {
    const place = this.order.indexOf(this.clips.length - 1)
    this.asked++
    this.right += index === this.clips.length - 1
    const verdict = index === this.clips.length - 1 ? "Right" : "No"
    const names = this.order.map((one, at) => `${LETTERS[at]} ${this.clips[one].name.replace(/.* /, "")}`).join(", ")
    this.blind = false
    this.order = this.clips.map((_, one) => one)
    this.build()
    this.note.textContent = `${verdict}: it was ${LETTERS[place]} (${names}). ${this.right} of ${this.asked} right.`
    this.note.title = this.note.textContent
  }
}

/** Show the clips that a run returned on its node. */
function showClips(node, output) {
  const clips = output?.[KEY]
  if (!Array.isArray(clips) || !clips.length) return
  let list = lists.get(node)
  if (!list) {
    list = new ClipList()
    lists.set(node, list)
    const height = () => list.height
    const widget = node.addDOMWidget(WIDGET, "MORPH_TTS_CLIPS", list.element, {
      getMinHeight: height, getMaxHeight: height, getHeight: height, margin: MARGIN, serialize: false,
    })
    widget.serialize = false
  }
  if (heard === list) stopClips()
  list.fill(clips, Boolean(output[`${KEY}_compare`]?.[0]))
  const [width, height] = node.computeSize()
  node.setSize([Math.max(node.size[0], width), Math.max(node.size[1], height)])
  app.canvas.setDirty(true, true)
}

function addStyle() {
  const style = document.createElement("style")
  style.textContent = `
    .morph-clips { box-sizing: border-box; width: 100%; padding: 4px; border-radius: 6px; font: 12px sans-serif;
      background: var(--comfy-input-bg, #222); color: var(--input-text, #ddd); display: flex; flex-direction: column; }
    .morph-clips-head, .morph-clip { display: flex; gap: 8px; align-items: center; height: ${ROW}px; padding: 0 4px;
      flex: none; min-width: 0; }
    .morph-clips-rows { overflow-y: auto; max-height: ${ROW * MOST_ROWS}px; min-height: 0; }
    .morph-clip-button { all: unset; cursor: pointer; flex: none; min-width: 14px; text-align: center; }
    .morph-clip-button:hover { filter: brightness(1.4); }
    .morph-clip-button:focus-visible { outline: 1px solid currentColor; }
    .morph-clips-head .morph-clip-button, .morph-clip > button + b + .morph-clip-button { padding: 0 6px;
      border: 1px solid var(--border-color, #555); border-radius: 4px; }
    .morph-clip b { flex: none; max-width: 40%; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
    .morph-clip-words, .morph-clips-note { flex: 1; overflow: hidden; text-overflow: ellipsis; white-space: nowrap;
      opacity: .8; }
    .morph-clip em { flex: none; max-width: 45%; overflow: hidden; text-overflow: ellipsis; white-space: nowrap;
      color: var(--error-text, #f66); font-style: normal; }
    .morph-clip-time { flex: none; margin-left: auto; opacity: .8; font-variant-numeric: tabular-nums; }
    .morph-clip-plays { background: color-mix(in srgb, currentColor 12%, transparent); border-radius: 4px; }`
  document.head.append(style)
}

app.registerExtension({
  name: "MorphTTS.Clips",
  setup: addStyle,
  beforeRegisterNodeDef(nodeType, nodeData) {
    if (!nodeData.name.startsWith("MorphTTS")) return
    const before = nodeType.prototype.onExecuted
    nodeType.prototype.onExecuted = function (output) {
      before?.apply(this, arguments)
      showClips(this, output)
    }
  },
})
