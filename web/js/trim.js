// The recording on the node Trim Recording: its waveform with a handle at each end of the part that goes on, what was
// measured of it, and a player. The handles set the node's numbers; both 0 is the best part.
import { app } from "../../../scripts/app.js"
import * as sound from "./clip_sound.js"
import { Display } from "./display.js"
import { addStyle, button, keepEvents, make, MARGIN } from "./elements.js"
import { extend, widgetOf } from "./nodes.js"
import { say } from "./words.js"

const TYPE = "MorphTTSTrimRecording"
const KEY = "morph_trim" // of the node's output
const NUMBERS = ["start", "end"] // the node's inputs
const SHORTEST = 1 // seconds of a part
const AROUND = 0.5 // of its length, at both ends of a part that is enlarged
const WAVE = 76, ROW = 26, LINE = 16, PADDING = 4, WIDTH = 420 // pixels
const HIGHEST = 0.85, THINNEST = 0.01 // of half the waveform's height: marks of clipping are above and below
const STEPS = { ArrowLeft: -0.1, ArrowRight: 0.1, ArrowDown: -0.1, ArrowUp: 0.1, PageDown: -1, PageUp: 1 } // seconds
const FINE = 0.1 // of a step, with Shift

const round = (seconds) => Math.round(100 * seconds) / 100

const trimButton = (text, title, onclick) => button("morph-clip-button morph-trim-button", text, title, onclick)

/** The outline of a waveform, given as [lowest, highest] of its points, as the data of an SVG path of height 2. */
function outline(shape) {
  const loudest = Math.max(1, ...shape.flat().map(Math.abs))
  const tops = shape.map(([, high], n) => `${n},${-HIGHEST * (high / loudest) - THINNEST}`)
  const bottoms = shape.map(([low], n) => `${n},${-HIGHEST * (low / loudest) + THINNEST}`).toReversed()
  return `M${[...tops, ...bottoms].join("L")}Z`
}

function draw(kind, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind)
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  return made
}

class Trimmer {
  constructor() {
    this.node = this.shown = /** @type {any} */ (undefined) // which node has this now, and what its run returned
    this.isLarge = false
    this.view = [0, 0] // the seconds that can be seen
    this.frame = 0 // of the next look at what is heard
    this.element = make("div", "morph-trim")
    this.wave = make("div", "morph-trim-wave", "", say("Click to play from there"))
    this.wave.onclick = (event) => { if (event.target.role !== "slider") this.play(this.momentAt(event)) }
    this.outside = [make("div", "morph-trim-outside"), make("div", "morph-trim-outside")]
    this.playhead = make("div", "morph-trim-playhead")
    this.handles = [this.buildHandle(0, say("Start")), this.buildHandle(1, say("End"))]
    this.player = trimButton("▶", "", () => this.toggle())
    this.times = make("span", "morph-trim-times")
    this.best = trimButton(say("Best part"), say("The best 3 to 12 seconds"), () => this.change(0, 0))
    this.whole = trimButton(say("Whole"), say("The whole recording"), () => this.change(0, round(this.shown.seconds)))
    this.figures = make("div", "morph-trim-figures")
    this.zoom = trimButton(say("Zoom"), say("Enlarge the part"), () => this.enlarge(!this.isLarge))
    const row = make("div", "morph-trim-row")
    row.append(this.player, this.times, this.best, this.whole, this.zoom)
    this.element.append(this.wave, row, this.figures)
    keepEvents(this.element, () => this.element)
  }

  get height() {
    return WAVE + ROW + 2 * LINE + 2 * (PADDING + MARGIN)
  }

  fill(shown) {
    this.shown = shown
    this.svg = draw("svg", { preserveAspectRatio: "none" })
    const marks = shown.clipped.map((moment) => `M${(moment / shown.seconds) * shown.shape.length},-1v.12m0,1.76v.12`)
    this.svg.append(draw("path", { d: outline(shown.shape), class: "morph-trim-shape" }))
    this.svg.append(draw("path", { d: marks.join(""), class: "morph-trim-clipped" }))
    this.wave.replaceChildren(this.svg, ...this.outside, this.playhead, ...this.handles)
    this.tell(shown.figures, shown.faults)
    this.enlarge(false)
    if (this.node.size[0] < WIDTH) this.node.setSize([WIDTH, this.node.size[1]])
  }

  /** Follow the numbers of a node that has just been built. */
  attach(node) {
    const show = () => { if (this.node === node) this.show() }
    for (const widget of NUMBERS.map((name) => widgetOf(node, name))) {
      const before = widget.callback
      widget.callback = function (...given) {
        before?.apply(this, given)
        show()
      }
    }
  }

  /** Show the part and what is around it, or the whole recording. */
  enlarge(isLarge) {
    const { seconds, shape } = this.shown, [start, end] = this.part, around = AROUND * (end - start)
    this.isLarge = isLarge
    this.view = isLarge ? [Math.max(0, start - around), Math.min(seconds, end + around)] : [0, seconds]
    const [left, right] = this.view.map((moment) => (moment / seconds) * shape.length)
    this.svg.setAttribute("viewBox", `${left} -1 ${right - left} 2`)
    this.show()
  }

  /** Where a moment is in the view, as a share of its width. */
  shareOf(moment) {
    const [left, right] = this.view
    return (moment - left) / (right - left)
  }

  /** Write what was measured of the whole recording; what would spoil a voice stands out. */
  tell({ level, peak, clipped, noise, snr }, faults) {
    const said = [
      ["quiet", say("Level {0} dBFS", level)],
      ["", say("Peak {0} dBFS", peak)],
      ["clipped", clipped || faults.includes("clipped") ? say("Clipped {0} %", clipped) : say("Not clipped")],
      ["noisy", this.tellNoise(noise, snr)],
      ["speech", faults.includes("speech") ? say("No speech is found") : ""],
    ]
    const shown = said.filter(([, words]) => words)
    this.figures.replaceChildren(
      ...shown.map(([name, words]) => make("span", faults.includes(name) ? "morph-trim-wrong" : "", words)),
    )
  }

  tellNoise(noise, snr) {
    if (noise === null) return say("No pause to measure noise in")
    return say("Noise {0} dBFS, {1} dB below the speech", noise, snr)
  }

  // The part

  /** Whether a number comes from another node: then the handles show what the last run used. */
  get isWired() {
    return this.node.inputs?.some((input) => NUMBERS.includes(input.name) && input.link != null)
  }

  /** Where the part starts and ends, in seconds. */
  get part() {
    const { best, part, seconds } = this.shown
    const [start, end] = NUMBERS.map((name) => Number(widgetOf(this.node, name)?.value) || 0)
    const typed = start || end ? [start, end || seconds] : best
    return (this.isWired ? part : typed).map((moment) => Math.min(moment, seconds))
  }

  /** Set the node's numbers, as typing them does. */
  set(...moments) {
    NUMBERS.forEach((name, n) => {
      const widget = widgetOf(this.node, name)
      widget.value = moments[n]
      widget.callback?.(moments[n])
    })
    this.show()
    app.canvas.setDirty(true, true)
  }

  /** Set the numbers as one step that can be undone. */
  change(...moments) {
    if (this.isWired) return
    app.canvas.emitBeforeChange?.()
    this.set(...moments)
    app.canvas.emitAfterChange?.()
  }

  /** Return the part with one end at another moment: inside the recording, and at least a second from the other end. */
  moved(end, moment) {
    const part = [...this.part], { seconds } = this.shown
    const [low, high] = end ? [part[0] + SHORTEST, seconds] : [0, part[1] - SHORTEST]
    part[end] = Math.max(Math.min(moment, high), Math.min(low, seconds))
    return part.map(round)
  }

  buildHandle(end, name) {
    const handle = make("div", "morph-trim-handle", "", name)
    Object.assign(handle, { role: "slider", tabIndex: 0 })
    handle.setAttribute("aria-label", name)
    handle.onpointerdown = (event) => { if (!this.isWired) handle.setPointerCapture(event.pointerId) }
    handle.onpointermove = (event) => {
      if (handle.hasPointerCapture(event.pointerId)) this.set(...this.moved(end, this.momentAt(event)))
    }
    handle.onlostpointercapture = () => this.change(...this.moved(end, this.part[end]))
    handle.onkeydown = (event) => {
      const step = STEPS[event.key] && STEPS[event.key] * (event.shiftKey ? FINE : 1)
      const moment = { Home: 0, End: this.shown.seconds }[event.key] ?? this.part[end] + step
      if (Number.isNaN(moment)) return
      event.preventDefault()
      this.change(...this.moved(end, moment))
    }
    return handle
  }

  /** The moment of the recording under the pointer; the canvas may have scaled the element. */
  momentAt({ clientX }) {
    const { left, width } = this.wave.getBoundingClientRect(), [start, end] = this.view
    return start + Math.max(0, Math.min(1, (clientX - left) / width)) * (end - start)
  }

  show() {
    cancelAnimationFrame(this.frame)
    const part = this.part, isPlaying = sound.plays(this)
    if (this.isLarge && (part[0] < this.view[0] || part[1] > this.view[1])) return this.enlarge(true)
    const [start, end] = part.map((moment) => `${100 * this.shareOf(moment)}%`)
    this.outside[0].style.width = start
    this.outside[1].style.left = end
    this.handles.forEach((handle, n) => this.place(handle, part[n], [start, end][n]))
    const said = say("{0} to {1} s, {2} s long", ...part.map(text), text(part[1] - part[0]))
    this.times.textContent = this.times.title = said
    this.best.ariaPressed = String(!this.isWired && NUMBERS.every((name) => !widgetOf(this.node, name)?.value))
    this.zoom.ariaPressed = String(this.isLarge)
    this.player.textContent = isPlaying ? "❚❚" : "▶"
    this.player.title = this.player.ariaLabel = isPlaying ? say("Pause") : say("Play the part")
    const share = this.shareOf(sound.position())
    this.playhead.hidden = !sound.isOwner(this) || share < 0 || share > 1
    this.playhead.style.left = `${100 * share}%`
    if (isPlaying && sound.position() >= part[1]) sound.stopClips()
    else if (isPlaying) this.frame = requestAnimationFrame(() => this.show())
  }

  place(handle, moment, left) {
    handle.style.left = left
    handle.ariaDisabled = String(Boolean(this.isWired))
    Object.assign(handle, { ariaValueMin: "0", ariaValueMax: text(this.shown.seconds), ariaValueNow: text(moment) })
    handle.ariaValueText = `${text(moment)} s`
  }

  // Playing, as clip_sound.js asks for it

  toggle() {
    if (sound.plays(this)) return sound.stopClips()
    const [start, end] = this.part, moment = sound.isOwner(this) ? sound.position() : start
    this.play(moment > start && moment < end - 0.05 ? moment : start)
  }

  /** Play from a moment on, up to the end of the part; from behind it, from its start. */
  async play(moment) {
    const [start, end] = this.part
    const works = await sound.playClip(this, sound.addressOf(this.shown), moment < end ? moment : start)
    if (!works) this.fail()
    this.show()
  }

  ended() {
    this.show()
  }

  fail() {
    const said = say("cannot be played: run the node again (ComfyUI deletes temporary files when it restarts)")
    this.figures.replaceChildren(make("span", "morph-trim-wrong", said))
  }
}

const text = (seconds) => seconds.toFixed(2)

const trimmers = new Display("recording_part", "MORPH_TTS_TRIM", "shape", () => new Trimmer())

addStyle(`
  .morph-trim { box-sizing: border-box; width: 100%; padding: ${PADDING}px; border-radius: 6px; font: 12px sans-serif;
    background: var(--input, var(--comfy-input-bg, #222)); color: var(--input-text, #ddd); }
  .morph-trim-wave { position: relative; height: ${WAVE}px; margin: 0 6px; cursor: pointer; }
  .morph-trim-wave svg { display: block; width: 100%; height: 100%; }
  .morph-trim-shape { fill: currentColor; opacity: .8; }
  .morph-trim-clipped { stroke: #e53935; stroke-width: 2px; vector-effect: non-scaling-stroke; }
  .morph-trim-outside { position: absolute; top: 0; bottom: 0; left: 0; pointer-events: none; opacity: .7;
    background: var(--input, var(--comfy-input-bg, #222)); }
  .morph-trim-outside + .morph-trim-outside { right: 0; }
  .morph-trim-playhead { position: absolute; top: 0; bottom: 0; width: 2px; margin-left: -1px; pointer-events: none;
    background: #f59e42; }
  .morph-trim-playhead[hidden] { display: none; }
  .morph-trim-handle { position: absolute; top: 0; bottom: 0; width: 12px; margin-left: -6px; cursor: ew-resize;
    touch-action: none; border-radius: 4px;
    background: linear-gradient(currentColor, currentColor) center / 2px 100% no-repeat; }
  .morph-trim-handle::after { content: ""; position: absolute; top: calc(50% - 9px); left: 2px; width: 8px;
    height: 18px; border-radius: 4px; background: currentColor; }
  .morph-trim-handle[aria-disabled=true] { cursor: default; opacity: .5; }
  .morph-trim-handle:focus-visible { outline: 2px solid #f59e42; outline-offset: -1px; }
  .morph-trim-row { display: flex; gap: 8px; align-items: center; height: ${ROW}px; }
  .morph-trim-times { flex: 1; overflow: hidden; text-overflow: ellipsis; white-space: nowrap;
    font-variant-numeric: tabular-nums; }
  .morph-trim-times ~ .morph-trim-button { width: auto; padding: 0 8px; line-height: 18px;
    border: 1px solid color-mix(in srgb, currentColor 35%, transparent); }
  .morph-trim-button[aria-pressed=true] { background: color-mix(in srgb, currentColor 20%, transparent); }
  .morph-trim-figures { display: flex; flex-wrap: wrap; gap: 0 12px; height: ${2 * LINE}px; padding: 0 4px;
    overflow: hidden; font-size: 11px; line-height: ${LINE}px; }
  .morph-trim-figures > span { opacity: .8; }
  .morph-trim-figures > .morph-trim-wrong { opacity: 1; font-weight: 600;
    color: color-mix(in srgb, #f33 75%, currentColor); }`)

app.registerExtension({
  name: "MorphTTS.Trim",
  afterConfigureGraph: () => trimmers.restore(),
  beforeRegisterNodeDef(nodeType, nodeData) {
    if (nodeData.name !== TYPE) return
    extend(nodeType, "onExecuted", (node, output) => {
      if (output?.[KEY]?.[0]) trimmers.showRun(node, output[KEY][0])
    })
  },
})
