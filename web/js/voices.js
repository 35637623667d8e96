// The voice library as a tab of ComfyUI's sidebar: the speakers of the checkpoints on this machine, and the saved
// voices. Hear one, put it on the canvas; rename, describe, export, import and delete saved ones.
import { app } from "../../../scripts/app.js"
import { ask } from "./ask.js"
import { stopClips } from "./clip_sound.js"
import { addStyle, button as makeButton, make } from "./elements.js"
import { tell } from "./messages.js"
import { widgetOf } from "./nodes.js"
import { isBusy, play, watchPreviews } from "./preview.js"
import { openStart } from "./start.js"
import { addVoiceNode, loaders, refreshLists } from "./voice_nodes.js"
import { say } from "./words.js"

const TAB = "morph-voices"
const ROUTE = "/morph/voices"
const SUFFIX = ".safetensors"
const RECORDING = "recording" // the kind of what is no voice file: it is managed in the folder
const MENU = 160 // pixels: the most that a menu is high
const SENTENCE = "Hello, this is how I sound. I hope that you like it." // English: the demo voice reads no other

let panel, list, sentence, sought // elements of the open tab
let voices = [], presets = []
let known // the server's answer that they are of

const change = (action, values) => ask(`${ROUTE}/${action}`, JSON.stringify(values))

/** Run what a button asks for; say what went wrong; then show the library as it is. */
async function attempt(act) {
  try {
    await act()
  } catch (error) {
    tell("error", say("The voice library"), error.message)
  }
  await refresh()
}

const button = (icon, title, onclick) => makeButton(`pi pi-${icon}`, "", title, onclick)

// The library's files

async function rename(voice) {
  const given = await app.extensionManager.dialog.prompt({
    title: say("Rename {0}", voice.name), message: say("New name:"), defaultValue: voice.name,
  })
  if (!given || given === voice.name) return
  const { name } = await change("rename", { name: voice.name, new: given })
  const users = loaders().map((node) => widgetOf(node, "name")).filter((widget) => widget?.value === voice.name)
  await refreshLists()
  for (const widget of users) widget.value = name
  tell("info", say("{0} is now {1}", voice.name, name),
    say("Load Voice nodes renamed in this workflow: {0}. Choose the new name in other workflows by hand.", users.length))
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
  await refreshLists()
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
      title: say("A voice named {0} already exists", name), message: say("New name:"), defaultValue: `${name} 2`,
    })
  if (!name) return
  await ask(`${ROUTE}/import?${new URLSearchParams({ name })}`, file, "application/octet-stream")
  await refreshLists()
}

function choose() {
  const input = Object.assign(make("input", ""), { type: "file", accept: SUFFIX, multiple: true })
  input.onchange = async () => { for (const file of input.files) await attempt(() => takeIn(file)) }
  input.click()
}

// The tab

/** An icon beside words, which say the same to a screen reader. */
const picture = (icon) => Object.assign(make("i", `pi pi-${icon}`), { ariaHidden: "true" })

/** A menu that a button opens below itself, or above where there is no room: entries are [icon, words, what they do]. */
function makeMenu(under, entries) {
  const menu = make("div", "morph-voice-menu")
  menu.setAttribute("role", "menu")
  menu.popover = "auto" // the page closes it when something else is pressed
  for (const [icon, words, act] of entries) {
    const entry = makeButton("", words, "", () => { menu.hidePopover(); act() })
    entry.prepend(picture(icon))
    entry.setAttribute("role", "menuitem")
    menu.append(entry)
  }
  menu.firstChild.autofocus = true
  menu.addEventListener("beforetoggle", () => {
    const { right, bottom, top } = under.getBoundingClientRect(), isLow = bottom + MENU > window.innerHeight
    const across = `${window.innerWidth - right}px`
    menu.style.inset = isLow ? `auto ${across} ${window.innerHeight - top}px auto` : `${bottom}px ${across} auto auto`
  })
  under.popoverTargetElement = menu
  return menu
}

function moreButtons(voice) {
  const deletion = ["trash", say("Delete"), () => attempt(() => remove(voice))]
  const entries = voice.error ? [deletion] : [
    ["pencil", say("Rename"), () => attempt(() => rename(voice))],
    ["comment", say("Describe"), () => attempt(() => describe(voice))],
    ["download", say("Export"), () => save(voice)],
    deletion,
  ]
  const made = button("ellipsis-v", say("More"), null)
  made.ariaHasPopup = "menu"
  return [made, makeMenu(made, entries)]
}

function playButton(voice) {
  const made = button("play", say("Play"), () => attempt(() => play(voice, sentence.value)))
  if (isBusy(voice, sentence.value)) made.className = "pi pi-spin pi-spinner"
  if (!voice.checkpoint) {
    made.disabled = true
    made.title = say("No checkpoint on this machine fits: it needs {0}", voice.fits)
  }
  return made
}

function originOf(voice) {
  const seconds = voice.reference_seconds ? `, ${voice.reference_seconds.toFixed(1)} s` : ""
  const words = {
    preset: say("preset speaker"), x_vector: say("timbre"), icl: say("recording with its words"),
    design: say("made from a description"), blend: say("mixed from presets"), recording: say("recording, cloned when it is used"),
  }
  return `${words[voice.kind] ?? voice.kind}${seconds}`
}

function tellVoice(row, voice) {
  row.append(make("small", "", `${voice.fits} · ${originOf(voice)}`))
  if (voice.description) row.append(make("p", "", voice.description))
  if (voice.recipe) row.append(make("p", "", `= ${voice.recipe}`))
  const words = voice.transcript || voice.instruct
  if (words) row.append(make("q", "", words))
}

function makeRow(voice) {
  const row = make("li", "morph-voice")
  const head = make("div", "morph-voice-head")
  row.append(head)
  if (!voice.error) head.append(playButton(voice))
  head.append(make("strong", "", voice.name, voice.name))
  if (voice.isPreset) head.append(make("small", "", voice.fits))
  if (!voice.error) head.append(button("plus", say("Add to the canvas"), () => addVoiceNode(voice, panel)))
  if (!voice.isPreset && voice.kind !== RECORDING) head.append(...moreButtons(voice))
  if (voice.error) row.append(make("p", "morph-voice-error", voice.error))
  else if (!voice.isPreset) tellVoice(row, voice)
  return row
}

/** Whether a voice is among those that are sought: each word is somewhere in what the tab says of it. */
function isSought(voice) {
  const said = [voice.name, voice.fits, voice.description, voice.transcript, voice.instruct, voice.recipe].join(" ").toLowerCase()
  return sought.value.toLowerCase().split(/\s+/).every((word) => said.includes(word))
}

/** A headline and the rows under it; words instead of rows where there are none; nothing where none are sought. */
function section(words, all, ifNone) {
  const found = all.filter(isSought)
  if (all.length ? !found.length : !ifNone) return []
  const rows = found.length ? found.map(makeRow) : [make("li", "morph-voice", ifNone)]
  return [make("li", "morph-voices-part", words), ...rows]
}

function show() {
  if (!list?.isConnected) return
  list.replaceChildren(
    ...section(say("Preset speakers"), presets),
    ...section(say("Saved voices"), voices, say("No voices yet: Save Voice adds one.")),
  )
  if (!list.childElementCount) list.append(make("li", "morph-voice", say("No voice matches.")))
}

/** Read the library, and show it if it changed: on a slow server, the answer may find a menu open. */
async function refresh() {
  try {
    const said = await ask(ROUTE), text = JSON.stringify(said)
    if (text === known && list?.childElementCount) return
    known = text
    voices = said.voices
    presets = said.presets.map((one) => ({ ...one, isPreset: true }))
    show()
  } catch (error) {
    tell("error", say("The voice library"), error.message)
  }
}

function field(type, value, words, most) {
  const made = Object.assign(make("input", ""), { type, value, maxLength: most, ariaLabel: words, placeholder: words })
  made.title = words
  made.oninput = show // not onchange: a click that ends the typing would meet another button
  return made
}

function startButton() {
  const made = makeButton("morph-voices-start", say("Start here"), "", openStart)
  made.title = say("A small workflow, ready to run")
  made.prepend(picture("play-circle"))
  return made
}

function render(element) {
  const before = sentence?.value ?? SENTENCE
  panel = make("div", "morph-voices")
  sentence = field("text", before, say("Sentence to speak"), 300)
  sought = field("search", "", say("Search voices"), 100)
  list = make("ul", "")
  const head = make("div", "morph-voices-head")
  head.append(make("h3", "", say("The voice library")),
    button("upload", say("Import voice files"), choose),
    button("stop", say("Stop"), stopClips),
    button("refresh", say("Refresh the list"), refresh))
  panel.append(head, startButton(), sentence, sought, list)
  element.replaceChildren(panel)
  return refresh()
}

addStyle(`
    .morph-voices { display: flex; flex-direction: column; gap: 8px; height: 100%; padding: 12px; overflow-y: auto;
      box-sizing: border-box; font: 13px sans-serif; color: var(--input-text, #ddd); }
    .morph-voices ul { list-style: none; margin: 0; padding: 0; }
    .morph-voices input { padding: 6px 8px; border: 1px solid var(--border-color, #444); border-radius: 6px;
      background: var(--comfy-input-bg, #222); color: inherit; }
    .morph-voices-head, .morph-voice-head { display: flex; gap: 4px; align-items: center; }
    .morph-voices h3, .morph-voice strong { flex: 1; min-width: 0; margin: 0; overflow-wrap: anywhere; }
    .morph-voices button, .morph-voice-menu button { padding: 6px; border: 0; border-radius: 4px; background: none;
      color: inherit; cursor: pointer; }
    .morph-voices button:hover, .morph-voice-menu button:hover, .morph-voice-menu button:focus-visible {
      background: var(--comfy-input-bg, #222); }
    .morph-voices button:disabled { opacity: .35; cursor: default; }
    .morph-voices .morph-voices-start, .morph-voice-menu button { display: flex; gap: 8px; align-items: center; width: 100%; }
    .morph-voices .morph-voices-start { justify-content: center; border: 1px solid var(--border-color, #444);
      border-radius: 6px; font: inherit; }
    .morph-voices-part { margin-top: 12px; padding-bottom: 4px; font-size: 11px; opacity: .7; }
    .morph-voice { padding: 4px 0; border-top: 1px solid var(--border-color, #444); }
    .morph-voice small { opacity: .7; }
    .morph-voice > :not(.morph-voice-head) { margin-left: 30px; }
    .morph-voice p { margin: 4px 0 0; overflow-wrap: anywhere; }
    .morph-voice q { display: -webkit-box; margin-top: 4px; overflow: hidden; opacity: .7; -webkit-line-clamp: 2;
      -webkit-box-orient: vertical; }
    .morph-voice-error { color: var(--error-text, #f66); }
    .morph-voice-menu { margin: 0; min-width: 120px; padding: 4px; border: 1px solid var(--border-color, #444); border-radius: 6px; font: 13px sans-serif;
      background: var(--comfy-menu-bg, #333); color: var(--input-text, #ddd); }`)

app.registerExtension({
  name: "MorphTTS.Voices",
  setup() {
    app.extensionManager.registerSidebarTab({
      id: TAB, icon: "pi pi-microphone", title: say("Voices"), tooltip: say("The voice library"), type: "custom", render,
    })
    watchPreviews(show)
    document.addEventListener("morph.voices.changed", () => { if (list?.isConnected) refresh() })
  },
})
