// Streamed speech plays while its node generates it. The server announces a stream (event "morph.speech"); this page
// fetches its samples and plays them. A small player on the node shows it, until it has ended and the node lists its
// recordings (clips.js). A page setting turns it off or sets the volume.
import { app } from "../../../scripts/app.js"
import { ask } from "./ask.js"
import { stopClips } from "./clips.js"
import { LitWords } from "./lit_words.js"
import { addElement, addStyle, button, giveRoom, make, MARGIN, removeElement } from "./elements.js"
import { findNode, widgetOf } from "./nodes.js"
import { openSound, StreamPlayer } from "./player.js"
import { isOfPreview } from "./preview.js"
import { isHere, runOf } from "./runs.js"
import { say } from "./words.js"

const ON = "MorphTTS.LiveSound", VOLUME = "MorphTTS.LiveVolume"
const ROUTE = "/morph/speech"
const WIDGET = "live_speech" // name of the widget; no input has this name
const ENDS = ["execution_error", "execution_interrupted"]
const REFRESH = 50 // milliseconds between updates of the player's text
const HEIGHT = 34 // pixels
const REFUSAL_HEIGHT = 84
const NO_WORDS = []
const SPEAKING = ["MorphTTSGenerateSpeech", "MorphTTSRenderScript", "MorphTTSSweep"] // heard while they run

const bar = make("div", "morph-live-bar") // for runs whose node cannot be seen
const runs = new Map() // stream id -> Run
const shown = new Map() // execution id of a node -> the Run that its widget shows
const api = app.api
let speaker, gain, asked, last // speaker: the page's audio context; last: the Run that began last
let caughtUp = false // whether this page has asked for the streams that began before it
let refusal // why the server does not answer this page, until a node has shown it

const setting = (name) => app.extensionManager.setting.get(name)

/** The page's audio context: at the speech's own rate, or chunks would be resampled one by one, with clicks between. */
function audio(sampleRate) {
  if (speaker?.sampleRate !== sampleRate) {
    speaker = new AudioContext({ sampleRate })
    gain = speaker.createGain()
    gain.connect(speaker.destination)
  }
  setVolume(setting(VOLUME))
  return speaker
}

function setVolume(percent) {
  if (gain) gain.gain.value = Math.min(Math.max(percent ?? 80, 0), 100) / 100
}

/** Tell the server whether this page wants its runs streamed: as the setting says, or as it is about to. */
async function listen(on = setting(ON)) {
  const client = api.clientId ?? api.initialClientId
  const wanted = on !== false
  const question = `${client} ${wanted}`
  if (!client || question === asked) return
  asked = question
  try {
    await ask(`${ROUTE}/listen`, JSON.stringify({ client, wanted }))
  } catch (error) {
    if (error.status === 403) refuse(error) // asking again would not help
    else asked = undefined
    return
  }
  if (caughtUp) return
  caughtUp = true
  await catchUp(client, false) // the page was loaded again during a run
}

/** Keep what to tell the user: a page that was opened by a name gets no stream until its owner has listed the name. */
function refuse({ error, unlisted_host: host, variable }) {
  refusal = host
    ? say("Not played while it is generated: this page was opened as {0}, which is not a listed name. Open it by address or localhost, or start ComfyUI with {1}={0}", host, variable)
    : `${say("Not played while it is generated:")} ${error}`
}

/** Say once, on a node that speaks, why it does not play. */
function tellRefusal({ detail }) {
  if (!refusal || setting(ON) === false) return
  const id = typeof detail === "object" ? detail?.node : detail // frontend 1.32.9 gives the id alone
  const { node } = findNode(id ?? "")
  if (!node || !SPEAKING.includes(node.type)) return
  const element = make("div", "morph-live morph-live-refused")
  element.append(make("span", "", refusal, refusal), closeButton(() => removeElement(node, WIDGET)))
  refusal = undefined
  putOn(node, element, REFUSAL_HEIGHT)
}

const closeButton = (onclick) => button("morph-live-close", "×", say("Close"), onclick)

function time(seconds) {
  return `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`
}

/** One stream: its player, its words, and the element that shows it. */
class Run {
  constructor({ stream, node, prompt_id, sample_rate }) {
    this.id = stream
    this.nodeId = node
    this.promptId = prompt_id
    this.isListed = false // whether the node lists its recordings
    this.lines = [] // {line, start, name, text}; line is its number
    this.words = new Map() // by the number of their line, where they have times: they come when it is complete
    const context = audio(sample_rate)
    this.player = new StreamPlayer(context, gain, sample_rate, last?.player)
    this.player.expected = 0
    this.element = make("div", "morph-live")
    this.button = button("", "", "", () => this.toggle())
    this.label = make("span", "")
    this.lit = new LitWords((moment) => this.playFrom(moment))
    this.element.append(this.button, this.label, this.lit.element)
    this.timer = /** @type {number | undefined} */ (setInterval(() => this.show(), REFRESH))
    last = this
  }

  addLine(line) {
    this.lines.push(line)
    this.player.expected = line.start / this.player.sampleRate + (line.seconds ?? 0)
  }

  /** Fetch and play to the end; after a broken connection from where it broke. */
  async follow() {
    this.unlock()
    while (!this.player.ended) { // cancelling ends it too
      this.player.rest = new Uint8Array()
      try {
        await this.fetch(this.player.samples)
        this.player.finish()
      } catch (error) {
        if (this.cancelled) return
        console.warn("speech: the connection broke, trying again", error)
        await new Promise((resolve) => setTimeout(resolve, 500))
      }
    }
  }

  /** Read the stream from a sample on, to its end. */
  async fetch(from) {
    this.abort = new AbortController()
    const answer = await fetch(api.apiURL(`${ROUTE}/${this.id}?from=${from}`), { signal: this.abort.signal })
    if (answer.status === 403) refuse(await answer.json())
    if ([403, 404].includes(answer.status)) return
    if (!answer.ok) throw new Error(`${answer.status}`)
    const reader = /** @type {ReadableStream} */ (answer.body).getReader()
    for (let part = await reader.read(); !part.done; part = await reader.read()) this.player.push(part.value)
  }

  /** A page that nobody has clicked may be silent: then it waits for a click, and plays from the beginning. */
  async unlock() {
    const { context } = this.player
    this.blocked = !(await openSound(context, 300))
    this.show()
    if (!this.blocked) return
    // Firefox may take longer to open the sound device. What has come by then plays from its beginning.
    await context.resume()
    this.blocked = false
    this.show()
  }

  toggle() {
    if (this.blocked) {
      this.player.context.resume()
      this.blocked = false
      this.player.begin()
    } else if (this.player.playing) this.player.stop()
    else {
      for (const run of runs.values()) run.player.stop()
      stopClips()
      last = this
      this.player.begin()
      if (!this.timer) this.timer = setInterval(() => this.show(), REFRESH)
    }
    this.show()
  }

  /** Play from a word of the line that plays, or played last. */
  playFrom(moment) {
    const { player } = this
    const from = this.line.start + Math.round(moment * player.sampleRate)
    if (!player.playing) this.toggle() // others fall silent
    player.begin(undefined, from)
    this.show()
  }

  cancel() {
    this.cancelled = true
    this.abort?.abort()
    this.player.stop()
    this.player.finish()
    this.isListed ||= !this.player.samples // nothing to play again
    this.show()
  }

  get line() {
    const at = this.player.position * this.player.sampleRate
    return this.lines.findLast((one) => one.start <= at) ?? this.lines[0]
  }

  show() {
    const { player } = this
    if (!player.playing && player.ended && this.timer) {
      clearInterval(this.timer)
      this.timer = undefined
    }
    const total = player.samples / player.sampleRate
    this.button.textContent = player.playing && !this.blocked ? "■" : "▶"
    this.button.title = this.button.ariaLabel = this.blocked ? say("Play") : player.playing ? say("Stop") : say("Play again")
    const { line } = this
    const words = line ? [line.name, line.text].filter(Boolean).join(": ") : ""
    const lit = this.cancelled || this.blocked ? undefined : this.words.get(line?.line)
    const said = lit ? line.name && `${line.name}:` : words
    const isWaiting = player.waiting.length && !this.blocked
    const state = this.cancelled ? say("cancelled") : this.blocked ? say("click to play") : isWaiting ? say("generated slower than it plays: buffering") : said
    this.label.textContent = `${time(player.position)} / ${time(total)}${player.ended ? "" : " …"}  ${state}`
    this.label.title = words
    this.label.classList.toggle("morph-live-short", Boolean(lit))
    this.lit.fill(lit ?? NO_WORDS)
    if (lit) this.lit.light(player.position - line.start / player.sampleRate)
    this.giveWay()
  }

  /** Leave the node when it lists its recordings, once nothing plays or is to come. */
  giveWay() {
    const { player } = this
    if (!this.isListed || !player.ended || (player.playing && !this.blocked)) return
    clearInterval(this.timer)
    this.timer = undefined
    if (shown.get(this.nodeId) === this) {
      shown.delete(this.nodeId)
      const { node } = findNode(this.nodeId)
      if (node) removeElement(node, WIDGET)
    }
    this.element.remove()
    player.stop() // a page that could not sound may do so later
    player.chunks = []
  }
}

/** Show a run on its node; if the node cannot be seen (of another workflow, or a subgraph), in a bar at the window's edge. */
async function place(run) {
  const here = isHere(await runOf(run.promptId))
  shown.get(run.nodeId)?.element.remove()
  shown.set(run.nodeId, run)
  const { node, isOpen } = findNode(run.nodeId)
  // Not on a node that is open: it goes when it has ended.
  if (!here || isOfPreview(run.nodeId)) run.isListed = true
  if (!here || !node || !isOpen) {
    run.element.append(closeButton(() => {
      run.player.stop()
      run.element.remove()
    }))
    bar.replaceChildren(run.element)
    return
  }
  putOn(node, run.element, HEIGHT)
}

/** Show an element on a node, in place of the one before. */
function putOn(node, element, height) {
  if (widgetOf(node, WIDGET)?.needs !== height) {
    removeElement(node, WIDGET)
    const holder = make("div", "morph-live-holder")
    Object.assign(addElement(node, WIDGET, "MORPH_TTS_LIVE", holder, () => height), { holder, needs: height })
    giveRoom(node)
  }
  widgetOf(node, WIDGET)?.holder.replaceChildren(element)
  app.canvas.setDirty(true, true)
}

function start(description) {
  if (runs.has(description.stream) || setting(ON) === false) return
  const run = new Run(description)
  runs.set(run.id, run)
  place(run)
  stopClips()
  run.follow()
}

/** After the page has lost its socket: announcements may have been missed. */
async function resume() {
  asked = undefined
  await listen()
  await catchUp(api.clientId ?? "", true)
}

/** Play the streams of this page whose announcements it has missed. */
async function catchUp(client, endedToo) {
  const answer = await fetch(api.apiURL(`${ROUTE}?client=${encodeURIComponent(client)}`))
  if (answer.ok) for (const description of await answer.json()) if (endedToo || !description.ended) start(description)
}

/** A node lists its recordings: its player goes when it has ended. */
function noteList({ detail: node }) {
  for (const run of runs.values())
    if (findNode(run.nodeId).node === node) {
      run.isListed = true
      run.show()
    }
}

addStyle(`
    .morph-live-holder { display: flex; width: 100%; overflow: hidden; }
    .morph-live { display: flex; gap: 8px; align-items: center; width: 100%; min-width: 0; height: ${HEIGHT - 2 * MARGIN}px;
      box-sizing: border-box; padding: 0 8px; border-radius: 6px; font: 12px sans-serif;
      background: var(--comfy-input-bg, #222); color: var(--input-text, #ddd); }
    .morph-live button { all: unset; cursor: pointer; width: 16px; text-align: center; }
    .morph-live .morph-live-close { margin-left: auto; }
    .morph-live button:focus-visible { outline: 1px solid currentColor; }
    .morph-live span { overflow: hidden; white-space: nowrap; text-overflow: ellipsis; }
    .morph-live .morph-live-short { flex: none; max-width: 50%; }
    .morph-live .morph-lit { flex: 1 1 0; min-width: 0; overflow-x: hidden; white-space: nowrap; }
    .morph-live .morph-lit:empty { display: none; }
    .morph-live-refused { height: ${REFUSAL_HEIGHT - 2 * MARGIN}px; align-items: start; padding: 6px 8px; }
    .morph-live-refused span { white-space: normal; overflow-y: auto; max-height: 100%; }
    .morph-live-bar { position: fixed; left: 50%; bottom: 64px; transform: translateX(-50%); width: min(480px, 90vw);
      z-index: 1000; }
    .morph-live-bar:empty { display: none; }`)

app.registerExtension({
  name: "MorphTTS.Live",
  settings: [
    {
      id: ON, name: "Play speech while it is generated", type: "boolean", defaultValue: true,
      category: ["Qwen3-TTS Morph", "Sound", "Play"],
      tooltip: "Speech plays in this page while a node generates it. Off: the node only lists the finished recordings.",
      onChange: (on) => { if (app.api?.clientId) listen(on) }, // frontend 1.32.9 keeps a value after it calls this
    },
    {
      id: VOLUME, name: "Volume of streamed speech", type: "slider", defaultValue: 80,
      attrs: { min: 0, max: 100, step: 1 }, category: ["Qwen3-TTS Morph", "Sound", "Volume"],
      onChange: setVolume,
    },
  ],
  setup() {
    document.body.append(bar)
    api.addEventListener("morph.speech", ({ detail }) => start(detail))
    api.addEventListener("morph.speech.line", ({ detail }) => runs.get(detail.stream)?.addLine(detail))
    api.addEventListener("morph.speech.words", ({ detail }) => runs.get(detail.stream)?.words.set(detail.line, detail.words))
    api.addEventListener("status", () => listen())
    api.addEventListener("reconnected", resume)
    api.addEventListener("executing", tellRefusal)
    document.addEventListener("morph.clips.shown", (event) => noteList(/** @type {CustomEvent} */ (event)))
    document.addEventListener("morph.clips.play", () => { for (const run of runs.values()) run.player.stop() })
    for (const end of ENDS)
      api.addEventListener(end, ({ detail }) => {
        for (const run of runs.values()) if (run.promptId === detail.prompt_id) run.cancel()
      })
    listen()
  },
})
