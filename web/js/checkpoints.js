// The list of checkpoints in Load Qwen3-TTS Model says which are on this machine and how much the others would download.
// What the widget holds, and what is saved and queued, stays the plain name.
import { app } from "../../../scripts/app.js"
import { widgetOf } from "./nodes.js"

const NODE = "MorphTTSLoadModel"
const WIDGET = "checkpoint"
let labels = {}

async function readLabels() {
  const answer = await app.api.fetchApi("/morph/checkpoints")
  if (answer.ok) labels = (await answer.json()).labels
}

app.registerExtension({
  name: "MorphTTS.checkpoints",
  setup: readLabels,
  nodeCreated(node) {
    if (node.comfyClass === NODE)
      widgetOf(node, WIDGET).options.getOptionLabel = (value) => labels[value] ?? String(value ?? "")
  },
  refreshComboInNodes: readLabels,
})
