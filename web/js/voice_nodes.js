// The nodes that bring a voice into a workflow: put on the canvas from the Voices tab, and their lists kept up to date.
import { app } from "../../../scripts/app.js"
import { allNodes, widgetOf } from "./nodes.js"
import { runOf } from "./runs.js"

export const LOADER = "MorphTTSLoadVoice" // its widget "name" is the list of saved voices
export const PRESET = "MorphTTSPresetVoice"
const SAVER = "MorphTTSSaveVoice"
const STEP = 40 // pixels between nodes that are put one over the other

const inputsOf = (type) => window.LiteGraph.registered_node_types[type]?.nodeData?.input ?? {}

/** What a list offers: its definition is [values, ...] or ["COMBO", { options: values }]. */
const optionsOf = (definition) => (Array.isArray(definition?.[0]) ? definition[0] : (definition?.[1]?.options ?? []))

/** Whether a node has the input of a model. */
export const takesModel = (type) => Boolean({ ...inputsOf(type).required, ...inputsOf(type).optional }.model)

/** What Preset Voice is set to for a speaker: one that its list does not have is a fine-tuned one. */
export function presetInputs(name) {
  const listed = optionsOf(inputsOf(PRESET).required?.speaker)
  return listed.includes(name) ? { speaker: name } : { speaker: listed[0], custom_speaker: name }
}

/** All Load Voice nodes of the open workflow, those in subgraphs too. */
export const loaders = () => allNodes().filter((node) => node.type === LOADER)

/** Read the list of saved voices again, for the Load Voice nodes that are there and those that will be added. */
export async function refreshLists() {
  const { [LOADER]: definition } = await app.getNodeDefs()
  await app.registerNodeDef(LOADER, definition)
  const names = optionsOf(definition.input.required.name)
  for (const node of loaders()) {
    const list = widgetOf(node, "name")
    if (list) list.options.values = [...names]
  }
  app.canvas.setDirty(true, true)
}

/** The middle of what is visible of the canvas beside an element, in the canvas's own units. */
function middleBeside(element) {
  const canvas = app.canvas.canvas.getBoundingClientRect(), beside = element.getBoundingClientRect()
  const isLeft = beside.left + beside.right < canvas.left + canvas.right
  const x = isLeft ? (beside.right + canvas.right) / 2 : (canvas.left + beside.left) / 2
  return app.canvas.ds.convertCanvasToOffset([x - canvas.left, canvas.height / 2])
}

/** Add the node of a voice to the graph that is looked at, where it can be seen beside an element; return it. */
export function addVoiceNode(voice, element) {
  const graph = app.canvas.graph ?? app.graph
  const node = window.LiteGraph.createNode(voice.isPreset ? PRESET : LOADER)
  const [x, y] = middleBeside(element)
  node.pos = [x - node.size[0] / 2, y - node.size[1] / 2]
  const isTaken = () => graph.nodes.some(({ pos }) => Math.hypot(pos[0] - node.pos[0], pos[1] - node.pos[1]) < STEP / 2)
  while (isTaken()) node.pos = [node.pos[0] + STEP, node.pos[1] + STEP]
  app.canvas.emitBeforeChange?.() // one step that can be undone
  graph.add(node)
  for (const [name, value] of Object.entries(voice.isPreset ? presetInputs(voice.name) : { name: voice.name }))
    widgetOf(node, name).value = value
  app.canvas.emitAfterChange?.()
  app.canvas.selectItems?.([node])
  app.canvas.setDirty(true, true)
  return node
}

/** Save Voice has run: its voice can be chosen, and the Voices tab is told. */
async function onExecuted({ detail }) {
  const { types } = await runOf(detail.prompt_id)
  if (types.get(String(detail.node)) !== SAVER) return
  try {
    await refreshLists()
  } catch (error) {
    console.warn("voices: the lists of Load Voice are as before:", error)
  }
  document.dispatchEvent(new CustomEvent("morph.voices.changed"))
}

app.registerExtension({
  name: "MorphTTS.VoiceNodes",
  setup() { app.api.addEventListener("executed", onExecuted) },
})
