// The pack's extension of ComfyUI's page: it removes progress texts when the run ends, adds search aliases for the
// nodes, and gives each socket type a color. Works on the classic canvas and in Nodes 2.0.
import { app } from "../../../scripts/app.js"
import { addStyle } from "./elements.js"
import { PREFIX } from "./nodes.js"

const PROGRESS_TEXT = "$$node-text-preview" // name of ComfyUI's widget for a node's progress text
const ENDS = ["execution_success", "execution_error", "execution_interrupted"]
const COLORS = {
  MORPH_TTS_MODEL: "#A78BFA",
  MORPH_TTS_VOICE: "#F59E42",
  MORPH_TTS_CAST: "#2DD4BF",
  MORPH_TTS_SAMPLING: "#F472B6",
  MORPH_TTS_WORD_CHECK: "#A3E635",
  MORPH_TTS_WORDS: "#38BDF8",
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
  addStyle(`:root { ${variables.join(" ")} }`)
}

app.registerExtension({
  name: "MorphTTS",
  setup() {
    addColors()
    for (const end of ENDS) app.api.addEventListener(end, clearProgress)
  },
  /** Add what users search for if they do not know the nodes' names. Frontend 1.32.9 searches only in names. */
  async addCustomNodeDefs(definitions) {
    const answer = await fetch(new URL("./aliases.json", import.meta.url))
    for (const [type, words] of Object.entries(answer.ok ? await answer.json() : {}))
      if (definitions[type]) definitions[type].search_aliases = words
  },
})
