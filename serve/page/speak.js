// One request for speech: its events become a track and figures.
import { postSpeech, readEvents } from "./api.js"
import { jsonOf } from "./fields.js"
import { Track } from "./track.js"

/** The bytes of an event's sound. */
export const bytesOf = (audio) => Uint8Array.from(atob(audio), (char) => char.charCodeAt(0))

/** A running request. ``onSound(speaking)`` is called for the first audio, ``onPart`` for each part. */
export class Speaking {
  constructor(wanted, loudspeaker, facts) {
    this.fields = wanted.fields
    this.seed = wanted.seed
    this.voice = wanted.voice
    this.ended = "broken"
    this.began = performance.now()
    this.abort = new AbortController()
    this.track = new Track(loudspeaker, facts.sample_rate)
    this.track.text = wanted.fields.input
    this.tellsWords = Boolean(facts.word_times)
    this.least = Infinity // the shortest queue since its begin
  }

  async run(onSound, onPart) {
    const fields = { ...this.fields, response_format: "pcm", stream_format: "sse" }
    if (this.tellsWords) fields.return_timestamps = true
    try {
      const answer = await postSpeech(jsonOf(fields, this.seed), this.abort.signal)
      this.seed = answer.headers.get("x-speech-seed")
      for await (const event of readEvents(answer)) this.take(event, onSound, onPart)
    } catch (error) {
      if (error.name === "AbortError") this.ended = "stopped"
      throw error
    } finally {
      this.track.finish()
    }
  }

  take(event, onSound, onPart) {
    if (event.audio) {
      const isFirst = !this.track.samples
      this.track.push(bytesOf(event.audio))
      this.elapsed = performance.now() - this.began
      if (isFirst) {
        this.first = this.elapsed
        onSound(this)
      }
      onPart(this)
    } else if (event.timestamps) {
      this.track.words.push(...event.timestamps)
    } else if (event.report) {
      this.ended = event.report.ended
    }
  }

  stop() {
    this.abort.abort()
  }

  /** The most requests that are queued before this one; ``waiting``: all queued requests now. */
  before(waiting) {
    this.least = Math.min(this.least, waiting)
    return Math.max(0, this.least - 1)
  }
}
