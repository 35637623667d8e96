// The server's page: type a text, choose a voice, and listen while the speech is generated.
import { addVoice, offer, showFile } from "./add_voice.js"
import { Gone, keepKey, readKey } from "./api.js"
import { copyRequest, showRequest } from "./code.js"
import { Connection } from "./connection.js"
import { at, clearErrors, put, readFields, readText, showAt, showCount, showSliders, showSpeed } from "./fields.js"
import { save } from "./files.js"
import { toggleRecording } from "./microphone.js"
import { PlayerBar } from "./player_bar.js"
import { showFigures, showGone, showKey, showServer, showStatus } from "./shown.js"
import { Speaking } from "./speak.js"
import { sentenceFor, Takes } from "./takes.js"
import { Loudspeaker } from "./track.js"
import { Voices } from "./voices.js"

const SOON_MS = 150 // after a request, to ask whether it is queued
const loudspeaker = new Loudspeaker()
const server = new Connection({ found, now, gone: showGone, key: showKey, voices: () => voices.refresh() })
const voices = new Voices({ loudspeaker, rate, attempt: attemptVoice, quiet, onChoice: showCode, say: sayVoice })
const bar = new PlayerBar(loudspeaker, () => voices.quiet())
const takes = new Takes(hear, use)
let running // the current speech or download, with stop()

const say = (words) => put("message", words)

function attemptVoice(work) {
  return attempt(work, "voice-problem")
}

function sayVoice(words) {
  put("voice-message", words)
}

function rate() {
  return server.facts.sample_rate
}

/** Do something for the user; show an error at its field, or in its card. */
async function attempt(work, place = "problem") {
  at(place).hidden = true
  try {
    await work()
  } catch (error) {
    if (error.name === "AbortError") return
    const noticed = server.notice(error)
    if ((noticed && server.wantsKey) || showAt(error.param, error.message)) return
    put(place, error.message)
    at(place).hidden = false
    at(place).classList.toggle("of-gone", error instanceof Gone)
  }
}

// The server

async function found(status) {
  showServer(status)
  offer(status)
  await voices.refresh()
  for (const one of document.querySelectorAll(".of-gone")) one.toggleAttribute("hidden", true)
  changed()
  at("work").hidden = false // last: speaking before would report that the server does not answer
}

/** Show the server's state and our place in its queue. */
function now(status) {
  showStatus(status)
  if (!(running instanceof Speaking) || running.first) return
  if (!status.waiting) return say("Getting ready")
  const before = running.before(status.waiting)
  say(before ? `Queued: ${before} before you` : "Queued: you are next")
}

function useKey() {
  clearErrors(at("key-card"))
  keepKey(at("key").value.trim())
  return server.connect()
}

// Speaking

/** Stop all audio, and clear the messages. */
function quiet() {
  say("")
  sayVoice("")
  for (const id of ["problem", "voice-problem"]) at(id).hidden = true
  voices.quiet()
  bar.track?.pause()
  bar.follow()
}

/** Replace the running work. */
function start(work) {
  stop()
  clearErrors(at("form"))
  at("stop").disabled = false
  return (running = work)
}

function finish(work) {
  if (running !== work) return
  running = undefined
  at("stop").disabled = true
}

/** Stop the audio and the request. */
function stop() {
  if (!running) return
  running.stop()
  running.track?.pause()
  finish(running)
  bar.follow()
}

async function speak() {
  clearErrors(at("work"))
  const wanted = { ...readFields(server.facts.most_characters, voices.chosen), voice: voices.chosen }
  stop()
  quiet()
  if (!server.status) throw new Gone("The server does not answer: your text is still here, try again in a moment.")
  const hears = await loudspeaker.open(rate())
  const mine = start(new Speaking(wanted, loudspeaker, server.facts))
  say("Getting ready")
  setTimeout(() => running === mine && !mine.first && server.attempt(() => server.look()), SOON_MS)
  try {
    await mine.run(begin, showFigures)
    const silent = hears ? "" : "This browser plays no audio: check the loudspeaker."
    say(`Spoken with seed ${mine.seed}. ${sentenceFor(mine.ended)} ${silent}`.trim())
  } catch (error) {
    if (running === mine || !running) say(mine.ended === "stopped" ? "Stopped." : "")
    throw error
  } finally {
    finish(mine)
    if (mine.track.samples) takes.add(mine)
    bar.follow()
  }
}

/** Show a request whose first audio has come. */
function begin({ track }) {
  say("Speaking")
  bar.show(track)
}

function hear(take) {
  quiet()
  takes.mark(take)
  bar.show(take.track)
  bar.begin(0)
}

/** Put a take's settings back into the fields. */
function use({ fields, seed, voice }) {
  const values = { text: fields.input, seed, groups: fields.seq_groups, language: fields.language }
  values.instructions = fields.instructions ?? ""
  for (const [id, value] of Object.entries(values)) Object.assign(at(id), { value })
  showSpeed(fields.speed ?? 1)
  if (voices.has(voice)) voices.choose(voice)
  changed()
  at("text").focus()
}

/** Save the take that the player has. */
async function download() {
  const abort = new AbortController()
  const mine = start({ stop: () => abort.abort() })
  const format = at("format").value
  say(`Creating the ${format} file`)
  try {
    say(`${await save(takes.shown, format, abort.signal)} was saved.`)
  } catch (error) {
    say("")
    throw error
  } finally {
    finish(mine)
  }
}

// The fields

function changed() {
  showCount(server.facts.most_characters)
  showSliders()
  showCode()
}

function showCode() {
  showRequest(() => readFields(0, voices.chosen), readKey() !== "")
}

async function add() {
  const { name, notes = [] } = await addVoice(server.status ?? server.facts, sayVoice)
  await voices.added(name)
  sayVoice([`${name} was added`, ...notes, ""].join(". ").trim())
}

const on = (id, kind, work) => at(id).addEventListener(kind, work)
for (const [id, work] of Object.entries({ form: speak, "add-form": add, "key-card": useKey })) {
  on(id, "submit", (event) => (event.preventDefault(), attempt(work, id === "add-form" ? "voice-problem" : "problem")))
}
on("stop", "click", stop)
on("download", "click", () => attempt(download))
on("copy", "click", () => attempt(copyRequest))
on("open", "click", () => at("file").click())
on("file", "change", () => attempt(async () => (await readText(at("file"), server.facts.most_characters), changed())))
on("voice-file", "change", showFile)
on("record", "click", () => attempt(() => (clearErrors(at("add-form")), toggleRecording(showFile)), "voice-problem"))
on("as-read", "click", () => { at("transcript").value = at("to-read").textContent })
for (const kind of ["input", "change"]) on("work", kind, changed)
on("text", "keydown", (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && at("form").requestSubmit())
server.watch()
