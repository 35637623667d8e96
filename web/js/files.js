// The nodes of files: a button that uploads one into ComfyUI's input folder, and what ComfyUI's page asks of a node
// that returns "audio".
import { app } from "../../../scripts/app.js"
import { tell } from "./messages.js"
import { say } from "./words.js"

// Node -> kinds of files that its upload button offers. The widget "file" is the list of names.
const UPLOADS = {
  MorphTTSScriptFromFile: ".txt,.md,.srt,.vtt",
  MorphTTSPronunciation: ".txt",
  MorphTTSSpeechFromFile: "audio/*",
}
const SAVES_AUDIO = ["MorphTTSSaveSpeech"]

function choose(node, name) {
  const list = node.widgets.find((widget) => widget.name === "file")
  if (!list.options.values.includes(name)) list.options.values = [...list.options.values, name]
  list.value = name
  list.callback?.(name)
  app.canvas.setDirty(true, true)
}

function addUpload(node, accept) {
  const input = Object.assign(document.createElement("input"), { type: "file", accept })
  input.onchange = async () => {
    const file = input.files?.[0]
    if (!file) return
    const body = new FormData()
    body.append("image", file) // the server's name for any file
    try {
      const answer = await app.api.fetchApi("/upload/image", { method: "POST", body }) // as ComfyUI's own nodes do
      if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`)
      choose(node, (await answer.json()).name)
    } catch (error) {
      tell("error", say("The file was not uploaded"), error.message)
    }
    input.value = "" // so that the same file can be chosen again
  }
  const button = node.addWidget("button", "upload", null, () => input.click(), { serialize: false })
  button.label = say("Upload a file")
  button.serialize = false
}

/** Older pages look for a player of this name on a node that returns "audio"; the node's own list is the player. */
function addHiddenPlayer(node) {
  const widget = node.addWidget("text", "audioUI", "", () => {}, { serialize: false, hidden: true })
  Object.assign(widget, { hidden: true, serialize: false, element: document.createElement("audio") })
  widget.element.preload = "none"
  widget.computeSize = () => [0, -4] // no row, and no gap between rows
}

app.registerExtension({
  name: "MorphTTS.Files",
  nodeCreated(node) {
    const type = node.comfyClass ?? ""
    if (UPLOADS[type]) addUpload(node, UPLOADS[type])
    if (SAVES_AUDIO.includes(type)) addHiddenPlayer(node)
  },
})
