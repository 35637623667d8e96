// A voice is heard through ComfyUI's queue, as Generate Speech speaks it.
import { app } from "../../../scripts/app.js"
import { playClip } from "./clip_sound.js"
import { tell } from "./messages.js"
import { queued } from "./runs.js"
import { LOADER, presetInputs, PRESET, takesModel } from "./voice_nodes.js"
import { say } from "./words.js"

const NODES = "morph-voice" // the ids of a hearing's nodes begin with this
const HEARD = `${NODES}-heard` // the node whose output is a file
const LIVE = "MorphTTS.LiveSound" // the setting of live.js
const LATE_MS = 1000
const ENDS = ["execution_success", "execution_error", "execution_interrupted"]

const hearings = new Map() // prompt id -> { key, queued, live } of a voice that is being spoken
const heard = new Map() // key -> the file in which it can be heard again
const player = { show() {}, ended() {} } // for clip_sound.js
let changed = () => {} // told when a hearing begins or ends

const keyOf = (voice, sentence) => [voice.changed, voice.checkpoint, voice.name, sentence].join(" ")

/** Whether a node that ran was one of a hearing, and is on no canvas. */
export const isOfHearing = (node) => String(node).startsWith(NODES)

/** Whether a voice is being spoken. */
export const isBusy = (voice, sentence) => [...hearings.values()].some((one) => one.key === keyOf(voice, sentence))

/** Have a function called when a hearing begins or ends. */
export function watchHearings(then) { changed = then }

const node = (class_type, inputs) => ({ class_type, inputs })

/** The node of a voice: a saved one, a recording that the model clones, or a speaker of the model. */
function voiceNode(voice) {
  const type = voice.isPreset ? PRESET : LOADER
  const model = takesModel(type) ? { model: [`${NODES}-model`, 0] } : {}
  return node(type, { ...model, ...(voice.isPreset ? presetInputs(voice.name) : { name: voice.name }) })
}

/** The smallest workflow that speaks a sentence with a voice. */
function hearing(voice, sentence) {
  return {
    [`${NODES}-model`]: node("MorphTTSLoadModel",
      { checkpoint: voice.checkpoint, precision: "auto", attention: "auto", engine: "auto" }),
    [NODES]: voiceNode(voice),
    [`${NODES}-speech`]: node("MorphTTSGenerateSpeech", {
      model: [`${NODES}-model`, 0], voice: [NODES, 0], text: sentence, language: "auto", seq_groups: 15, seed: 0,
    }),
    [HEARD]: node("PreviewAudio", { audio: [`${NODES}-speech`, 0] }),
  }
}

/** Speak a sentence with a voice, or play what was spoken before. */
export async function hear(voice, sentence) {
  const key = keyOf(voice, sentence)
  const file = heard.get(key)
  if (file && (await playClip(player, file, 0))) return
  const id = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}` // a page without TLS has no randomUUID
  hearings.set(id, { key, queued: false, live: false }) // before the run can begin
  changed()
  try {
    await queue(id, hearing(voice, sentence))
  } catch (error) {
    hearings.delete(id)
    throw error
  }
}

async function queue(id, prompt) {
  const body = JSON.stringify({ prompt, prompt_id: id, client_id: app.api.clientId })
  const headers = { "Content-Type": "application/json" }
  const answer = await app.api.fetchApi("/prompt", { method: "POST", headers, body })
  if (answer.ok) {
    const one = hearings.get(id)
    if (one) one.queued = true // it may have ended already
    return
  }
  const said = await answer.json()
  const [first] = Object.values(said.node_errors ?? {})
  throw new Error(first?.errors[0]?.details || said.error?.message || answer.statusText)
}

/** A hearing's file is there: it can be heard again; where it was not heard while it was made, it is heard now. */
function onExecuted({ detail }) {
  const one = hearings.get(detail.prompt_id)
  const [file] = (detail.node === HEARD && detail.output?.audio) || []
  if (!one || !file) return
  const { filename, subfolder, type } = file
  const address = app.api.apiURL(`/view?${new URLSearchParams({ filename, subfolder, type })}`)
  heard.set(one.key, address)
  if (!one.live) playClip(player, address, 0)
}

function onEnd({ type, detail }) {
  if (!hearings.delete(detail.prompt_id)) return
  if (type === "execution_error")
    tell("error", say("The voice cannot be played"), detail.exception_message)
  changed()
}

/** Forget hearings that were removed from the queue, or lost in a restart of the server: they have no end. */
async function forgetLost() {
  const sent = [...hearings].filter(([, one]) => one.queued).map(([id]) => id)
  if (!sent.length) return
  const there = new Set((await queued()).map(([, id]) => id))
  const lost = sent.filter((id) => !there.has(id))
  setTimeout(() => { // the events of one that has just ended may still be on their way
    for (const id of lost) hearings.delete(id)
    changed()
  }, LATE_MS)
}

app.registerExtension({
  name: "MorphTTS.Hearing",
  setup() {
    app.api.addEventListener("executed", onExecuted)
    app.api.addEventListener("morph.speech", ({ detail }) => {
      const one = hearings.get(detail.prompt_id)
      if (one) one.live = app.extensionManager.setting.get(LIVE) !== false // the server may not know yet that it is off
    })
    for (const end of ENDS) app.api.addEventListener(end, onEnd)
    for (const change of ["status", "reconnected"]) app.api.addEventListener(change, forgetLost)
  },
})
