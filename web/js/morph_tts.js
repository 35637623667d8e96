// The pack's extension of ComfyUI's page: it shows the text that a run returns on the node, removes progress texts
// when the run ends, adds search aliases for the nodes, and gives each socket type a color.
// Works on the classic canvas and in Nodes 2.0.
import { app } from "../../../scripts/app.js"
import { isHere, runOf } from "./runs.js"
import "./clips.js" // registered first: a node's list of recordings stands above its text, whatever loads first

const PREFIX = "MorphTTS" // all node types of the pack start with this
const SHOWN = "shown_text" // name of the text box widget; no input has this name
const MIN_LINES = 2, MAX_LINES = 8 // height of the text box; longer texts scroll
const LINE_HEIGHT = 14 // pixels
const PROGRESS_TEXT = "$$node-text-preview" // name of ComfyUI's widget for a node's progress text
const ENDS = ["execution_success", "execution_error", "execution_interrupted"]
// What users search for if they do not know the nodes' names. Frontend 1.32.9 searches only in names.
const ALIASES = {
  MorphTTSGenerateSpeech: ["text to speech", "tts", "speak", "say", "narrate", "read aloud", "voice clone"],
  MorphTTSRenderScript: ["dialogue", "audiobook", "narrate", "podcast", "srt", "multi speaker tts"],
  MorphTTSCast: ["character", "voices"],
  MorphTTSWholeCast: ["characters", "voices", "narrator", "multi speaker tts"],
  MorphTTSCloneVoice: ["voice clone", "voice cloning", "reference audio"],
  MorphTTSPresetVoice: ["speaker", "tts voice"],
  MorphTTSDesignVoice: ["voice from text", "describe a voice"],
  MorphTTSSaveSubtitles: ["captions"],
  MorphTTSSaveSpeech: ["save audio", "export", "wav", "mp3", "opus"],
  MorphTTSSpeechFromFile: ["metadata", "read file"],
  MorphTTSSpeedPitch: ["time stretch", "tempo", "pitch shift", "faster", "slower"],
  MorphTTSDub: ["srt", "subtitles", "captions", "dubbing", "voice over", "webvtt"],
  MorphTTSScriptFromFile: ["load text", "text file", "read file"],
  MorphTTSWordCheck: ["whisper", "word error rate", "speech recognition"],
}
const COLORS = {
  MORPH_TTS_MODEL: "#A78BFA",
  MORPH_TTS_VOICE: "#F59E42",
  MORPH_TTS_CAST: "#2DD4BF",
  MORPH_TTS_SAMPLING: "#F472B6",
  MORPH_TTS_WORD_CHECK: "#A3E635",
}

function boxHeight(text) {
  const lines = text.split("\n").length
  return LINE_HEIGHT * (1 + Math.min(Math.max(lines, MIN_LINES), MAX_LINES))
}

/** Add a read-only text box to the node. It is neither saved with the workflow nor sent with a prompt. */
function addTextBox(node) {
  const box = document.createElement("textarea")
  box.className = "comfy-multiline-input"
  box.readOnly = true
  const widget = node.addDOMWidget(SHOWN, "MORPH_TTS_TEXT", box, {
    getValue: () => box.value,
    setValue: (text) => { box.value = text },
    getMinHeight: () => boxHeight(box.value),
    serialize: false,
  })
  widget.serialize = false
  box.addEventListener("wheel", (event) => {
    if (box.scrollHeight > box.clientHeight) event.stopPropagation()
    else app.canvas.processMouseWheel(event) // zoom, as elsewhere on the node
  })
  return widget
}

/** Show the ``text`` that a run returned (strings, one per execution of the node), and enlarge the node to fit it. */
async function showText(node, output) {
  const text = output?.text
  if (!Array.isArray(text) || !text.length || !isHere(await runOf())) return
  const widget = node.widgets?.find((one) => one.name === SHOWN) ?? addTextBox(node)
  widget.value = text.join("\n")
  const [width, height] = node.computeSize()
  node.setSize([Math.max(node.size[0], width), Math.max(node.size[1], height)])
  app.canvas.setDirty(true, true)
}

/** Remove the progress texts from the pack's nodes: frontend 1.32.9 would show "loading" until the next run. */
function clearProgress() {
  for (const node of app.graph.nodes.filter((one) => one.type?.startsWith(PREFIX))) {
    const widget = node.widgets?.find((one) => one.name === PROGRESS_TEXT)
    if (widget) node.removeWidget(widget)
  }
}

/** Give a socket type a color if the user's palette has none: loading a palette sets missing colors to "". */
function addColor(colors, type) {
  let ofPalette = colors[type]
  Object.defineProperty(colors, type, {
    get: () => ofPalette || COLORS[type],
    set: (color) => { ofPalette = color },
    configurable: true,
    enumerable: true,
  })
}

/** Color sockets and links, on the classic canvas and (with CSS variables) in Nodes 2.0. */
function addColors() {
  for (const type of Object.keys(COLORS)) {
    addColor(window.LGraphCanvas.link_type_colors, type)
    addColor(app.canvas.default_connection_color_byType, type)
  }
  const variables = Object.entries(COLORS).map(([type, color]) => `--color-datatype-${type}: ${color};`)
  const style = document.createElement("style")
  style.textContent = `:root { ${variables.join(" ")} }`
  document.head.append(style)
}

app.registerExtension({
  name: "MorphTTS",
  setup() {
    addColors()
    for (const end of ENDS) app.api.addEventListener(end, clearProgress)
  },
  addCustomNodeDefs(definitions) {
    for (const [type, words] of Object.entries(ALIASES))
      if (definitions[type]) definitions[type].search_aliases = words
  },
  beforeRegisterNodeDef(nodeType, nodeData) {
    if (!nodeData.name.startsWith(PREFIX)) return
    const before = nodeType.prototype.onExecuted
    nodeType.prototype.onExecuted = function (output) {
      before?.apply(this, arguments)
      showText(this, output)
    }
  },
})
