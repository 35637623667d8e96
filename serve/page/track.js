// The audio of one take: plays while it arrives, pauses and seeks.
import { openSound, StreamPlayer } from "./player.js"

const LEAD = 0.05 // seconds before complete audio begins
const DEVICE_MS = 500 // for the browser to open its audio device; without one it may wait for ever
export const PEAK_S = 0.02 // of audio per peak

/** The browser's loudspeaker, opened at the first click. */
export class Loudspeaker {
  /** @type {AudioContext | undefined} */
  context
  /** @type {GainNode | undefined} */
  gain
  level = 1

  /** Open it for a sample rate; return whether it plays. */
  async open(rate) {
    this.context ??= new AudioContext({ sampleRate: rate })
    if (!this.gain) {
      this.gain = this.context.createGain()
      this.gain.connect(this.context.destination)
      this.volume = this.level
    }
    return openSound(this.context, DEVICE_MS)
  }

  /** 0 to 1, squared: the ear takes squares as even steps. */
  set volume(level) {
    this.level = level
    if (this.gain) this.gain.gain.value = level * level
  }
}

/** A StreamPlayer with pause and seek, peaks of its waveform, its text and word times. */
export class Track extends StreamPlayer {
  constructor(loudspeaker, rate) {
    super(loudspeaker.context, loudspeaker.gain, rate)
    this.stoppedAt = 0
    this.text = ""
    this.words = []
    this.peaks = []
    this.inPeak = 0 // samples of the last peak
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

  /** Join all chunks after the last one. */
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

  /** Move to a time in seconds; a paused track stays paused. */
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
