// What the page knows of the server: whether it is there, whether it wants a key, and what it does now.
import { askJson, Gone, readKey, Refused } from "./api.js"

const LOOK_MS = 1000 // between two looks at what it does
const VOICES_EVERY = 4 // looks

/** Looks at the server again and again; not while it wants a key, or nobody looks at the page. */
export class Connection {
  /** ``on``: what is called: found(status) once, now(status) for each look, voices(), gone(), key(wasWrong). */
  constructor(on) {
    // ``status``: what it said last, undefined while it is gone. ``facts``: the same, kept.
    this.on = on
    this.status = this.facts = undefined
    this.wantsKey = false
    this.looks = 0
  }

  /** Find out all that the page needs to know. */
  async connect() {
    if (!readKey() && (await askJson("/page.json")).wants_key) return this.lock(false)
    const status = await askJson("/v1/status")
    this.wantsKey = false
    this.facts = status
    await this.on.found(status)
    this.status = status
    this.on.now(status)
  }

  /** Ask what it does now. */
  async look() {
    if (!this.status) return this.connect()
    this.status = await askJson("/v1/status")
    this.on.now(this.status)
    if (++this.looks % VOICES_EVERY === 0) await this.on.voices()
  }

  /** Look for ever. */
  async watch() {
    if (!document.hidden && !this.wantsKey) await this.attempt(() => this.look())
    setTimeout(() => this.watch(), LOOK_MS)
  }

  async attempt(work) {
    try {
      await work()
    } catch (error) {
      if (!this.notice(error)) this.lose(error.message)
    }
  }

  /** Note what an error says of the server: true if it wants a key, or is gone. */
  notice(error) {
    if (error instanceof Refused && error.status === 401) this.lock(readKey() !== "")
    else if (error instanceof Gone) this.lose("The server does not answer: trying again")
    else return false
    return true
  }

  lock(wasWrong) {
    this.wantsKey = true
    this.status = undefined
    this.on.key(wasWrong)
  }

  lose(words) {
    this.status = undefined
    this.on.gone(words)
  }
}
