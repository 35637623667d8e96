// The server's page: text to /v1/audio/speech, samples to the loudspeaker as they come.
import { openSound, StreamPlayer } from "./player.js"

const KEY = "morph-tts-key" // of the session's storage
const STATUS_MS = 1000
const BYTES = 2 // per sample
const DEVICE_MS = 500 // for the browser to open its sound device; without one it may wait for ever
const at = (id) => document.getElementById(id)
let context, running // the AudioContext, and what is being spoken

/** Ask the server; errors have its words. */
async function ask(path, options = {}) {
  const key = at("key").value
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) }
  const response = await fetch(path, { ...options, headers })
  if (response.ok) return response
  if (response.status === 401) at("key-label").hidden = false
  const body = await response.json().catch(() => ({}))
  throw new Error(body.error?.message ?? `the server answered ${response.status}`)
}

const say = (text, failed = false) => {
  at("message").textContent = text
  at("message").className = failed ? "error" : ""
}

/** Fill a list with names. */
function fill(list, names) {
  list.replaceChildren(...names.map((name) => new Option(name, name)))
}

/** Show what the server does now. */
async function showStatus() {
  const status = await (await ask("/v1/status")).json()
  at("rows").textContent = `${status.rows_in_use} of ${status.rows}`
  at("waiting").textContent = status.waiting
  return status
}

async function connect() {
  const status = await showStatus()
  const { voices } = await (await ask("/v1/audio/voices")).json()
  at("model").textContent = status.model
  fill(at("voice"), voices.map((voice) => voice.name))
  fill(at("language"), status.languages)
  at("instructions-label").hidden = !status.follows_instructions
  at("groups").value = status.seq_groups
  showGroups()
  say("")
}

const showGroups = () => (at("groups-shown").textContent = at("groups").value)

/** The request that the form describes. */
function request() {
  const body = {
    input: at("text").value,
    response_format: "pcm",
    language: at("language").value,
    seq_groups: Number(at("groups").value),
  }
  if (at("voice").value) body.voice = at("voice").value
  if (at("seed").value !== "") body.seed = Number(at("seed").value)
  if (at("instructions").value.trim() && !at("instructions-label").hidden) body.instructions = at("instructions").value
  return body
}

/** Speak the form's text until its end, or until it is aborted. */
async function speak() {
  stop()
  const mine = (running = { abort: new AbortController() })
  context ??= new AudioContext({ sampleRate: 24000 })
  const silent = (await openSound(context, DEVICE_MS)) ? "" : ", and this browser plays no sound: is there a loudspeaker?"
  at("stop").disabled = false
  for (const id of ["first", "rtf", "sound", "late"]) at(id).textContent = "–"
  say(`speaking${silent}`)
  const began = performance.now()
  const response = await ask("/v1/audio/speech", {
    method: "POST",
    body: JSON.stringify(request()),
    headers: { "Content-Type": "application/json" },
    signal: mine.abort.signal,
  })
  const rate = Number(response.headers.get("x-speech-sample-rate"))
  mine.player = new StreamPlayer(context, context.destination, rate)
  await play(response, mine.player, rate, began)
  say(`spoken with seed ${response.headers.get("x-speech-seed")}${silent}`)
}

/** Read samples to their end and show how fast they come. */
async function play(response, player, rate, began) {
  let bytes = 0
  const reader = response.body.getReader()
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const elapsed = performance.now() - began
    if (!bytes) at("first").textContent = `${elapsed.toFixed(0)} ms`
    bytes += part.value.length
    player.push(part.value)
    const seconds = bytes / BYTES / rate
    at("sound").textContent = `${seconds.toFixed(2)} s`
    at("rtf").textContent = (elapsed / 1000 / seconds).toFixed(2)
    at("late").textContent = player.underruns
  }
  player.finish()
}

/** Be silent, and let the server's row go. */
function stop() {
  running?.abort.abort()
  running?.player?.stop()
  running = undefined
  at("stop").disabled = true
}

/** Do something for the user; show what went wrong. */
async function attempt(work) {
  try {
    await work()
  } catch (error) {
    if (error.name !== "AbortError") say(error.message, true)
    else if (!running) say("stopped") // else the next text is being spoken
  }
}

at("key").value = sessionStorage.getItem(KEY) ?? ""
at("key").addEventListener("change", () => {
  sessionStorage.setItem(KEY, at("key").value)
  attempt(connect)
})
at("groups").addEventListener("input", showGroups)
at("form").addEventListener("submit", (event) => {
  event.preventDefault()
  attempt(speak)
})
at("stop").addEventListener("click", stop)
attempt(connect)
setInterval(() => document.hidden || !at("model").textContent || showStatus().catch(() => {}), STATUS_MS)
