// The player: its buttons, its position, and the waveform.
import { at } from "./fields.js"
import { HeardText } from "./heard.js"
import { PEAK_S } from "./track.js"

const BAR = 4 // pixels from one bar of the waveform to the next
const SHORTEST_S = 4 // of audio in the whole width
const QUIET = 0.2 // of full scale: quieter audio is drawn small
const STEP_S = 2 // of an arrow key

/** 65 as "1:05". */
const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`

export class PlayerBar {
  /** ``onPlay`` is called before audio begins, to stop other audio. */
  constructor(loudspeaker, onPlay) {
    this.loudspeaker = loudspeaker
    this.onPlay = onPlay
    this.track = /** @type {any} */ (undefined) // a Track; without one the buttons are disabled
    this.heard = new HeardText()
    this.frame = 0 // of the next update
    at("play").addEventListener("click", () => this.toggle())
    at("replay").addEventListener("click", () => this.begin(0))
    at("seek").addEventListener("input", () => this.seek(Number(at("seek").value)))
    at("seek").addEventListener("keydown", (event) => this.onKey(event))
    at("volume").addEventListener("input", () => (loudspeaker.volume = Number(at("volume").value) / 100))
    new ResizeObserver(() => this.draw()).observe(at("wave"))
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw())
  }

  /** Show a track, or none; pause the previous one. */
  show(track) {
    if (this.track && this.track !== track) this.track.pause()
    this.track = track
    this.heard.show(track)
    this.follow()
  }

  toggle() {
    if (this.sounds) this.track.pause()
    else return this.begin(this.track.position < this.track.seconds - 0.05 ? this.track.position : 0)
    this.follow()
  }

  async begin(seconds) {
    this.onPlay()
    await this.loudspeaker.open(this.track.sampleRate)
    this.track.play(seconds)
    this.follow()
  }

  seek(seconds) {
    this.track.seek(seconds)
    this.follow()
  }

  onKey(event) {
    const step = { ArrowLeft: -STEP_S, ArrowRight: STEP_S }[event.key]
    if (!step) return
    event.preventDefault()
    this.seek(this.track.position + step)
  }

  /** Whether this track plays now, or when more of it arrives. */
  get sounds() {
    return Boolean(this.track?.playing)
  }

  /** Show the track's position, repeatedly while it plays or grows. */
  follow() {
    cancelAnimationFrame(this.frame)
    this.update()
    if (this.track && (this.sounds || !this.track.ended)) this.frame = requestAnimationFrame(() => this.follow())
  }

  update() {
    const { track } = this
    const seconds = track?.seconds ?? 0
    const position = track?.position ?? 0
    const empty = seconds === 0
    for (const one of [at("play"), at("replay"), at("seek")]) one.disabled = empty
    at("download").disabled = !track?.ended
    at("play").classList.toggle("sounds", this.sounds)
    at("play").setAttribute("aria-label", this.sounds ? "Pause" : "Play")
    at("seek").max = String(seconds || 1)
    at("seek").value = String(position)
    at("seek").setAttribute("aria-valuetext", `${position.toFixed(1)} of ${seconds.toFixed(1)} seconds`)
    const shown = `${clock(position)} / ${clock(seconds)}`
    if (at("time").textContent !== shown) at("time").textContent = shown
    this.heard.update(position)
    this.draw()
  }

  draw() {
    const canvas = at("wave")
    const [width, height] = [canvas.clientWidth, canvas.clientHeight]
    const scale = devicePixelRatio
    canvas.width = width * scale
    canvas.height = height * scale
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"))
    context.scale(scale, scale)
    const style = getComputedStyle(canvas)
    const { peaks = [], seconds = 0, position = 0, ended } = this.track ?? {}
    const span = ended ? seconds : Math.max(seconds, SHORTEST_S)
    const bars = Math.floor(width / BAR)
    const loudest = peaks.reduce((most, one) => Math.max(most, one), QUIET)
    for (let bar = 0; bar < bars; bar++) {
      const from = Math.floor((bar / bars) * (span / PEAK_S))
      const to = Math.max(from + 1, Math.floor(((bar + 1) / bars) * (span / PEAK_S)))
      const peak = peaks.slice(from, to).reduce((most, one) => Math.max(most, one), 0)
      const tall = Math.max(2, (peak / loudest) * (height - 4))
      const played = position > 0 && (bar / bars) * span < position
      context.fillStyle = style.getPropertyValue(played ? "--accent" : "--wave")
      context.fillRect(bar * BAR, (height - tall) / 2, BAR - 1.5, tall)
    }
  }
}
