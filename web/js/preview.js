// The Voices tab plays a voice: it queues a small workflow, in which Generate Speech speaks a sentence with the voice.
import { app } from "../../../scripts/app.js"
import { addressOf, playClip } from "./clip_sound.js"
import { tell } from "./messages.js"
import { queued } from "./runs.js"
import { LOADER, presetInputs, PRESET, takesModel } from "./voice_nodes.js"
import { say } from "./words.js"

const NODES = "morph-voice" // the ids of a preview's nodes begin with this
const FILE = `${NODES}-file` // the node whose output is a file
const LIVE = "MorphTTS.LiveSound" // the setting of live.js
const LATE_MS = 1000
const ENDS = ["execution_success", "execution_error", "execution_interrupted"]

const previews = new Map() // prompt id -> { key, queued, streamed } of a preview that is being generated
const files = new Map() // key -> the address of a finished one
const player = { show() {}, ended() {} } // for clip_sound.js
let changed = () => {} // called when a preview begins or ends

const keyOf = (voice, sentence) => [voice.changed, voice.checkpoint, voice.name, sentence].join(" ")

/** Whether a node that ran belongs to a preview, and is on no canvas. */
export const isOfPreview = (node) => String(node).startsWith(NODES)

export const isBusy = (voice, sentence) => [...previews.values()].some((one) => one.key === keyOf(voice, sentence))

/** Have a function called when a preview begins or ends. */
export function watchPreviews(then) { changed = then }

const node = (class_type, inputs) => ({ class_type, inputs })

/** The node of a voice: a saved one, a recording that the model clones, or a speaker of the model. */
function voiceNode(voice) {
  const type = voice.isPreset ? PRESET : LOADER
  const model = takesModel(type) ? { model: [`${NODES}-model`, 0] } : {}
  return node(type, { ...model, ...(voice.isPreset ? presetInputs(voice.name) : { name: voice.name }) })
}

function workflowOf(voice, sentence) {
  return {
    [`${NODES}-model`]: node("MorphTTSLoadModel",
      { checkpoint: voice.checkpoint, precision: "auto", attention: "auto", engine: "auto" }),
    [NODES]: voiceNode(voice),
    [`${NODES}-speech`]: node("MorphTTSGenerateSpeech", {
      model: [`${NODES}-model`, 0], voice: [NODES, 0], text: sentence, language: "auto", seq_groups: 15, seed: 0,
    }),
    [FILE]: node("PreviewAudio", { audio: [`${NODES}-speech`, 0] }),
  }
}

/** Speak a sentence with a voice, or play it again. */
export async function play(voice, sentence) {
  const key = keyOf(voice, sentence)
  const file = files.get(key)
  if (file && (await playClip(player, file, 0))) return
  const id = window.LiteGraph.uuidv4()
  previews.set(id, { key, queued: false, streamed: false }) // before the run can begin
  changed()
  try {
    await queue(id, workflowOf(voice, sentence))
  } catch (error) {
    previews.delete(id)
    throw error
  }
}

async function queue(id, prompt) {
  const body = JSON.stringify({ prompt, prompt_id: id, client_id: app.api.clientId })
  const headers = { "Content-Type": "application/json" }
  const answer = await app.api.fetchApi("/prompt", { method: "POST", headers, body })
  if (!answer.ok) {
    const said = await answer.json()
    const [first] = Object.values(said.node_errors ?? {})
    throw new Error(first?.errors[0]?.details || said.error?.message || answer.statusText)
  }
  const one = previews.get(id)
  if (one) one.queued = true // it may have ended already
}

/** Keep the address of a finished preview, and play the preview unless it was streamed. */
function onExecuted({ detail }) {
  const one = previews.get(detail.prompt_id)
  const [file] = (detail.node === FILE && detail.output?.audio) || []
  if (!one || !file) return
  files.set(one.key, addressOf(file))
  if (!one.streamed) playClip(player, addressOf(file), 0)
}

function onEnd({ type, detail }) {
  if (!previews.delete(detail.prompt_id)) return
  if (type === "execution_error") tell("error", say("The voice cannot be played"), detail.exception_message)
  changed()
}

/** Forget previews that were removed from the queue, or lost in a restart of the server: no event ends them. */
async function forgetLost() {
  const sent = [...previews].filter(([, one]) => one.queued).map(([id]) => id)
  if (!sent.length) return
  const there = new Set((await queued()).map(([, id]) => id))
  const lost = sent.filter((id) => !there.has(id))
  setTimeout(() => { // the events of one that has just ended may still be on their way
    for (const id of lost) previews.delete(id)
    changed()
  }, LATE_MS)
}

app.registerExtension({
  name: "MorphTTS.Preview",
  setup() {
    app.api.addEventListener("executed", onExecuted)
    app.api.addEventListener("morph.speech", ({ detail }) => {
      const one = previews.get(detail.prompt_id)
      if (one) one.streamed = app.extensionManager.setting.get(LIVE) !== false // the server may not know yet that it is off
    })
    for (const end of ENDS) app.api.addEventListener(end, onEnd)
    for (const change of ["status", "reconnected"]) app.api.addEventListener(change, forgetLost)
  },
})
