// The voice library as a tab of ComfyUI's sidebar: hear, rename, describe, export, import and delete saved voices.
// A voice is heard through ComfyUI's queue, as Generate Speech speaks it.
import { app } from "../../../scripts/app.js"
import { playClip, stopClips } from "./clip_sound.js"
import { queued } from "./runs.js"
import { say } from "./words.js"

const TAB = "morph-voices"
const ROUTE = "/morph/voices"
const LOADER = "MorphTTSLoadVoice" // its widget "name" is the list of voices
const SUFFIX = ".safetensors"
const SENTENCE = "Hello, this is how I sound. I hope that you like it." // English: the demo voice reads no other
const HEARD = "morph-voice-heard" // the node of a hearing whose output is a file
const LIVE = "MorphTTS.LiveSound" // the setting of live.js
const LATE_MS = 1000
const ENDS = ["execution_success", "execution_error", "execution_interrupted"]

let panel, list, sentence // elements of the open tab
let voices = []
const hearings = new Map() // prompt id -> { key, queued, live } of a voice that is being spoken
const heard = new Map() // key -> the file in which it can be heard again
const player = { show() {}, ended() {} } // for clip_sound.js

async function ask(path = "", body, type = "application/json") {
  const options = body === undefined ? {} : { method: "POST", headers: { "Content-Type": type }, body }
  const answer = await fetch(app.api.apiURL(`${ROUTE}${path}`), options)
  const said = await answer.json()
  if (!answer.ok) throw new Error(said.error)
  return said
}

const change = (action, values) => ask(`/${action}`, JSON.stringify(values))

function tell(severity, summary, detail) {
  app.extensionManager.toast.add({ severity, summary, detail, life: 8000 })
}

/** Run what a button asks for; say what went wrong; then show the library as it is. */
async function attempt(act) {
  try {
    await act()
  } catch (error) {
    tell("error", say("The voice library"), error.message)
  }
  await refresh()
}

function make(kind, name, text = "") {
  const element = document.createElement(kind)
  element.className = name
  element.textContent = text
  return element
}

function button(icon, title, onclick) {
  const element = make("button", `pi pi-${icon}`)
  element.title = title
  element.ariaLabel = title
  element.onclick = onclick
  return element
}

/** All Load Voice nodes of the open workflow, those in subgraphs too. */
function loaders(graph = app.rootGraph ?? app.graph) {
  return graph.nodes.flatMap((node) => [
    ...(node.type === LOADER ? [node] : []),
    ...(node.subgraph ? loaders(node.subgraph) : []),
  ])
}

// Hear

const keyOf = (voice) => `${voice.changed} ${voice.name} ${sentence.value}`

/** The smallest workflow that speaks a sentence with a saved voice. */
function hearing(voice) {
  const node = (class_type, inputs) => ({ class_type, inputs })
  return {
    "morph-voice-model": node("MorphTTSLoadModel",
      { checkpoint: voice.checkpoint, precision: "auto", attention: "auto", engine: "auto" }),
    "morph-voice": node(LOADER, { name: voice.name }),
    "morph-voice-speech": node("MorphTTSGenerateSpeech", {
      model: ["morph-voice-model", 0], voice: ["morph-voice", 0], text: sentence.value, language: "auto",
      seq_groups: 15, seed: 0,
    }),
    [HEARD]: node("PreviewAudio", { audio: ["morph-voice-speech", 0] }),
  }
}

async function hear(voice) {
  const key = keyOf(voice)
  const file = heard.get(key)
  if (file && (await playClip(player, file, 0))) return
  const id = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}` // a page without TLS has no randomUUID
  hearings.set(id, { key, queued: false, live: false }) // before the run can begin
  show()
  try {
    await queue(id, hearing(voice))
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
  if (type === "execution_error") tell("error", say("The voice cannot be played"), detail.exception_message)
  show()
}

/** Forget hearings that were removed from the queue, or lost in a restart of the server: they have no end. */
async function forgetLost() {
  const sent = [...hearings].filter(([, one]) => one.queued).map(([id]) => id)
  if (!sent.length) return
  const there = new Set((await queued()).map(([, id]) => id))
  const lost = sent.filter((id) => !there.has(id))
  setTimeout(() => { // the events of one that has just ended may still be on their way
    for (const id of lost) hearings.delete(id)
    show()
  }, LATE_MS)
}

// The library's files

async function rename(voice) {
  const given = await app.extensionManager.dialog.prompt({
    title: say("Rename {0}", voice.name), message: say("New name:"), defaultValue: voice.name,
  })
  if (!given || given === voice.name) return
  const { name } = await change("rename", { name: voice.name, new: given })
  const users = loaders().map((node) => node.widgets.find((widget) => widget.name === "name"))
    .filter((widget) => widget?.value === voice.name)
  await app.refreshComboInNodes()
  for (const widget of users) widget.value = name
  tell("info", say("{0} is now {1}", voice.name, name),
    say("Load Voice nodes of this workflow that have the new name: {0}. Choose it in other workflows.", users.length))
}

async function describe(voice) {
  const description = await app.extensionManager.dialog.prompt({
    title: say("Describe {0}", voice.name), message: say("A short text for this list:"),
    defaultValue: voice.description,
  })
  if (description === null || description === undefined) return
  await change("describe", { name: voice.name, description })
}

async function remove(voice) {
  const agreed = await app.extensionManager.dialog.confirm({
    title: say("Delete {0}?", voice.name), type: "delete", itemList: [voice.name],
    message: say("Its file is deleted. This cannot be undone."),
  })
  if (!agreed) return
  await change("delete", { name: voice.name })
  await app.refreshComboInNodes()
}

function save(voice) {
  const link = make("a", "")
  link.href = app.api.apiURL(`${ROUTE}/file?${new URLSearchParams({ name: voice.name })}`)
  link.download = `${voice.name}${SUFFIX}`
  link.click()
}

/** Import the files that the user chose; where a name is taken, ask for another. */
async function takeIn(file) {
  let name = file.name.endsWith(SUFFIX) ? file.name.slice(0, -SUFFIX.length) : file.name
  if (voices.some((voice) => voice.name === name))
    name = await app.extensionManager.dialog.prompt({
      title: say("A voice named {0} exists already", name), message: say("New name:"), defaultValue: `${name} 2`,
    })
  if (!name) return
  await ask(`/import?${new URLSearchParams({ name })}`, file, "application/octet-stream")
  await app.refreshComboInNodes()
}

function choose() {
  const input = Object.assign(make("input", ""), { type: "file", accept: SUFFIX, multiple: true })
  input.onchange = async () => { for (const file of input.files) await attempt(() => takeIn(file)) }
  input.click()
}

// The tab

function makeRow(voice) {
  const row = make("li", "morph-voice")
  const head = make("div", "morph-voice-head")
  head.append(make("strong", "", voice.name))
  row.append(head)
  if (voice.error) {
    row.append(make("p", "morph-voice-error", voice.error))
    head.append(button("trash", say("Delete"), () => attempt(() => remove(voice))))
    return row
  }
  const play = button("play", say("Hear it"), () => attempt(() => hear(voice)))
  if ([...hearings.values()].some((one) => one.key === keyOf(voice))) play.className = "pi pi-spin pi-spinner"
  if (!voice.checkpoint) {
    play.disabled = true
    play.title = say("No checkpoint on this machine fits: it needs {0}", voice.fits)
  }
  head.append(
    play,
    button("pencil", say("Rename"), () => attempt(() => rename(voice))),
    button("comment", say("Describe"), () => attempt(() => describe(voice))),
    button("download", say("Export"), () => save(voice)),
    button("trash", say("Delete"), () => attempt(() => remove(voice))),
  )
  const seconds = voice.reference_seconds ? `, ${voice.reference_seconds.toFixed(1)} s` : ""
  row.append(make("small", "", `${voice.fits} · ${voice.kind}${seconds}`))
  if (voice.description) row.append(make("p", "", voice.description))
  const words = voice.transcript || voice.instruct
  if (words) row.append(make("q", "", words))
  return row
}

function show() {
  if (!list?.isConnected) return
  list.replaceChildren(...voices.map(makeRow))
  if (!voices.length) list.append(make("li", "morph-voice", say("No voices yet: Save Voice adds one.")))
}

async function refresh() {
  try {
    ({ voices } = await ask())
    show()
  } catch (error) {
    tell("error", say("The voice library"), error.message)
  }
}

function render(element) {
  const before = sentence?.value ?? SENTENCE
  panel = make("div", "morph-voices")
  sentence = Object.assign(make("input", ""), { value: before, maxLength: 300, ariaLabel: say("What they say") })
  sentence.title = say("What they say")
  sentence.oninput = show // not onchange: a click that ends the typing would meet another button
  list = make("ul", "")
  const head = make("div", "morph-voices-head")
  head.append(make("h3", "", say("The voice library")),
    button("upload", say("Import voice files"), choose),
    button("stop", say("Stop"), stopClips),
    button("refresh", say("Read the library again"), refresh))
  panel.append(head, sentence, list)
  element.replaceChildren(panel)
  return refresh()
}

function addStyle() {
  document.head.append(make("style", "", `
    .morph-voices { display: flex; flex-direction: column; gap: 8px; height: 100%; padding: 12px; overflow-y: auto;
      box-sizing: border-box; font: 13px sans-serif; color: var(--input-text, #ddd); }
    .morph-voices ul { list-style: none; margin: 0; padding: 0; }
    .morph-voices input { padding: 6px 8px; border: 1px solid var(--border-color, #444); border-radius: 6px;
      background: var(--comfy-input-bg, #222); color: inherit; }
    .morph-voices-head, .morph-voice-head { display: flex; gap: 4px; align-items: center; }
    .morph-voices h3, .morph-voice strong { flex: 1; min-width: 0; margin: 0; overflow-wrap: anywhere; }
    .morph-voices button { padding: 6px; border: 0; border-radius: 4px; background: none; color: inherit;
      cursor: pointer; }
    .morph-voices button:hover { background: var(--comfy-input-bg, #222); }
    .morph-voices button:disabled { opacity: .35; cursor: default; }
    .morph-voice { padding: 8px 0; border-top: 1px solid var(--border-color, #444); }
    .morph-voice small { opacity: .7; }
    .morph-voice p { margin: 4px 0 0; overflow-wrap: anywhere; }
    .morph-voice q { display: -webkit-box; margin-top: 4px; overflow: hidden; opacity: .7; -webkit-line-clamp: 2;
      -webkit-box-orient: vertical; }
    .morph-voice-error { color: var(--error-text, #f66); }`))
}

app.registerExtension({
  name: "MorphTTS.Voices",
  setup() {
    addStyle()
    app.extensionManager.registerSidebarTab({
      id: TAB, icon: "pi pi-microphone", title: say("Voices"), tooltip: say("The voice library"), type: "custom", render,
    })
    app.api.addEventListener("executed", onExecuted)
    app.api.addEventListener("morph.speech", ({ detail }) => {
      const one = hearings.get(detail.prompt_id)
      if (one) one.live = app.extensionManager.setting.get(LIVE) !== false // the server may not know yet that it is off
    })
    for (const end of ENDS) app.api.addEventListener(end, onEnd)
    for (const change of ["status", "reconnected"]) app.api.addEventListener(change, forgetLost)
  },
})
