// Plays one stream of speech, sample for sample, while it arrives. No part of ComfyUI is used here.
const LEAD = 0.08 // seconds between a chunk's arrival and its sound, at the start and after a gap
const LEAST = 1 // seconds of sound that are worth playing, where more may come late
const MARGIN = 1.1 // of the time that the rest is expected to take
const BYTES = 2 // per sample: signed, 16 bits, little endian

/** Let a context play; say after at most ``ms`` whether it does. Without a click or a sound device it may never. */
export async function openSound(context, ms) {
  if (context.state !== "running") await Promise.race([context.resume(), new Promise((go) => setTimeout(go, ms))])
  return context.state === "running"
}

/** Float samples of signed 16-bit bytes; an odd last byte is returned to be put before the next ones. */
function decode(bytes) {
  const whole = bytes.length - (bytes.length % BYTES)
  const view = new DataView(bytes.buffer, bytes.byteOffset, whole)
  const samples = new Float32Array(whole / BYTES)
  for (let n = 0; n < samples.length; n++) samples[n] = view.getInt16(BYTES * n, true) / 32768
  return [samples, bytes.slice(whole)]
}

/** Schedules chunks one behind the other. A late chunk moves all that follow: they never overlap. */
export class StreamPlayer {
  /** ``before``: a player whose sound must end first. */
  constructor(context, output, sampleRate, before) {
    this.context = context
    this.output = output
    this.sampleRate = sampleRate
    this.chunks = [] // all samples, to be played again
    this.waiting = [] // chunks that are not scheduled yet
    this.sources = new Set()
    this.origin = /** @type {number | null} */ (null) // the context's time of sample 0
    this.played = 0 // samples that have been scheduled, or are left out
    this.from = 0 // the sample that was begun with
    this.underruns = 0
    this.samples = 0
    this.rest = new Uint8Array()
    this.ended = false // whether all samples have arrived
    this.expected = /** @type {number | undefined} */ (undefined) // seconds until a slow source may pause; 0: not known yet
    this.first = /** @type {{time: number, samples: number} | null} */ (null) // the first chunk
    this.speed = /** @type {number | undefined} */ (before?.speed) // seconds of sound that arrive in a second
    this.begin(before)
  }

  /** Play from a sample on, by default the first. */
  begin(before, from = 0) {
    this.before = before
    this.silence()
    this.origin = null
    this.played = this.from = from
    this.underruns = 0
    this.stopped = false
    this.waiting = []
    let start = 0
    for (const chunk of this.chunks) {
      if (start + chunk.length > from) this.waiting.push(chunk.subarray(Math.max(0, from - start)))
      start += chunk.length
    }
    this.advance()
  }

  push(bytes) {
    const joined = new Uint8Array(this.rest.length + bytes.length)
    joined.set(this.rest)
    joined.set(bytes, this.rest.length)
    const [samples, rest] = decode(joined)
    this.rest = rest
    if (!samples.length) return
    this.chunks.push(samples)
    this.samples += samples.length
    this.measure()
    if (this.stopped) return
    this.waiting.push(samples)
    this.advance()
  }

  measure() {
    const time = this.context.currentTime
    this.first ??= { time, samples: this.samples }
    if (time > this.first.time) this.speed = (this.samples - this.first.samples) / this.sampleRate / (time - this.first.time)
  }

  /** Whether what is here lasts until the rest has come: a source that is slower than real time is heard later. */
  get isReady() {
    const isPlaying = this.origin !== null && this.origin + this.played / this.sampleRate >= this.context.currentTime
    if (this.expected === undefined || this.ended || isPlaying || (this.speed ?? 0) >= 1) return true
    const here = (this.samples - this.played) / this.sampleRate
    if (this.speed === undefined) return here >= LEAST
    const rest = this.expected - this.samples / this.sampleRate // negative where speech is longer than is likely
    return this.expected > 0 && here >= Math.max(LEAST, rest * (MARGIN / this.speed - 1))
  }

  /** Play what has come, unless it is better to wait. */
  advance() {
    if (!this.isReady) return
    for (const chunk of this.waiting) this.schedule(chunk)
    this.waiting = []
  }

  schedule(samples) {
    const now = this.context.currentTime
    let { origin } = this
    if (origin === null || origin + this.played / this.sampleRate < now) {
      if (origin !== null) this.underruns++
      const first = origin === null ? (this.before?.end ?? 0) : 0
      origin = this.origin = Math.max(now + LEAD, first) - this.played / this.sampleRate
    }
    const buffer = this.context.createBuffer(1, samples.length, this.sampleRate)
    buffer.copyToChannel(samples, 0)
    const source = this.context.createBufferSource()
    source.buffer = buffer
    source.connect(this.output)
    source.onended = () => this.sources.delete(source)
    source.start(origin + this.played / this.sampleRate)
    this.sources.add(source)
    this.played += samples.length
  }

  finish() {
    this.ended = true
    if (!this.stopped) this.advance()
  }

  /** The context's time at which the last sample ends that has arrived. */
  get end() {
    return this.stopped || this.origin === null ? 0 : this.origin + this.played / this.sampleRate
  }

  /** Be silent at once; what arrives later is kept. */
  stop() {
    this.stopped = true
    this.waiting = []
    this.silence()
  }

  silence() {
    for (const source of this.sources) source.stop()
    this.sources.clear()
  }

  /** Seconds of sound that have been heard. */
  get position() {
    const first = this.from / this.sampleRate
    if (this.origin === null) return first
    return Math.min(Math.max(first, this.context.currentTime - this.origin), this.played / this.sampleRate)
  }

  /** Whether sound is heard now, or more is to come. */
  get playing() {
    if (this.stopped) return false
    return !this.ended || this.position < this.samples / this.sampleRate
  }
}
