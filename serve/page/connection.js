// The state of the server: reachable or not, key needed or not, and its status.
import { askJson, Gone, readKey, Refused } from "./api.js"

const LOOK_MS = 1000 // between two requests of the status
const VOICES_EVERY = 4 // looks

/** Polls the server's status, except while a key is needed or the page is hidden. */
export class Connection {
  /** ``on``: callbacks found(status) once, now(status) for each status, voices(), gone(), key(wasWrong). */
  constructor(on) {
    // ``status``: the last one, undefined while the server is gone. ``facts``: the last one ever.
    this.on = on
    this.status = this.facts = undefined
    this.wantsKey = false
    this.looks = 0
  }

  async connect() {
    if (!readKey() && (await askJson("/page.json")).wants_key) return this.lock(false)
    const status = await askJson("/v1/status")
    this.wantsKey = false
    this.facts = status
    await this.on.found(status)
    this.status = status
    this.on.now(status)
  }

  async look() {
    if (!this.status) return this.connect()
    this.status = await askJson("/v1/status")
    this.on.now(this.status)
    if (++this.looks % VOICES_EVERY === 0) await this.on.voices()
  }

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

  /** Update the state after an error; return whether a key is needed or the server is gone. */
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
