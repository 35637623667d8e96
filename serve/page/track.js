// The sound of one take: it is played while it arrives, and can be paused, and begun anywhere.
import { openSound, StreamPlayer } from "./player.js"

const LEAD = 0.05 // seconds until a sound begins that is there already
const DEVICE_MS = 500 // for the browser to open its sound device; without one it may wait for ever
export const PEAK_S = 0.02 // of sound that each peak is of

/** The browser's loudspeaker, opened at the first click. */
export class Loudspeaker {
  /** @type {AudioContext | undefined} */
  context
  /** @type {GainNode | undefined} */
  gain
  level = 1

  /** Open it for a sample rate; return whether sound is heard. */
  async open(rate) {
    this.context ??= new AudioContext({ sampleRate: rate })
    if (!this.gain) {
      this.gain = this.context.createGain()
      this.gain.connect(this.context.destination)
      this.volume = this.level
    }
    return openSound(this.context, DEVICE_MS)
  }

  /** 0 to 1; the ear hears a square as even steps. */
  set volume(level) {
    this.level = level
    if (this.gain) this.gain.gain.value = level * level
  }
}

/** A StreamPlayer that knows how to pause and seek, the peaks of its waveform, its text and when words are heard. */
export class Track extends StreamPlayer {
  constructor(loudspeaker, rate) {
    super(loudspeaker.context, loudspeaker.gain, rate)
    this.stoppedAt = 0
    this.text = ""
    this.words = []
    this.peaks = []
    this.inPeak = 0 // samples that the last peak has of its own
  }

  push(bytes) {
    const before = this.chunks.length
    super.push(bytes)
    for (const chunk of this.chunks.slice(before)) this.addPeaks(chunk)
  }

  addPeaks(samples) {
    const size = Math.round(PEAK_S * this.sampleRate)
    for (const sample of samples) {
      if (this.inPeak % size === 0) this.peaks.push(0)
      this.inPeak++
      const last = this.peaks.length - 1
      if (Math.abs(sample) > this.peaks[last]) this.peaks[last] = Math.abs(sample)
    }
  }

  /** All samples have arrived: many small parts become one. */
  finish() {
    super.finish()
    const whole = new Float32Array(this.samples)
    let at = 0
    for (const chunk of this.chunks) {
      whole.set(chunk, at)
      at += chunk.length
    }
    this.chunks.splice(0, this.chunks.length, whole)
  }

  get seconds() {
    return this.samples / this.sampleRate
  }

  get position() {
    return this.stopped ? this.stoppedAt : super.position
  }

  pause() {
    this.stoppedAt = this.position
    this.stop()
  }

  /** Move to a time in seconds; what is paused stays so. */
  seek(seconds) {
    const to = Math.min(Math.max(0, seconds), this.seconds)
    if (this.stopped) this.stoppedAt = to
    else this.play(to)
  }

  /** Play from a time on. */
  play(seconds) {
    this.silence()
    this.stopped = false
    const first = Math.round(seconds * this.sampleRate)
    this.origin = this.context.currentTime + LEAD - first / this.sampleRate
    this.played = first
    let begin = 0
    for (const chunk of this.chunks) {
      if (begin + chunk.length > first) this.schedule(chunk.subarray(Math.max(0, first - begin)))
      begin += chunk.length
    }
  }
}
