// The nodes that bring a voice into a workflow: put on the canvas from the Voices tab, and their lists kept up to date.
import { app } from "../../../scripts/app.js"
import { allNodes, widgetOf } from "./nodes.js"
import { runOf } from "./runs.js"

export const LOADER = "MorphTTSLoadVoice" // its widget "name" is the list of saved voices
export const PRESET = "MorphTTSPresetVoice"
const SAVERS = ["MorphTTSSaveVoice", "MorphTTSTrainVoice"]
const LISTS = { [LOADER]: "name", MorphTTSLoadLora: "adapter" } // the widget of each list that they change
const VOICE = "MORPH_TTS_VOICE" // the type of a socket
const STEP = 40, GAP = 20 // pixels: between places that are tried, and between nodes

const inputsOf = (type) => window.LiteGraph.registered_node_types[type]?.nodeData?.input ?? {}

/** What a list offers: its definition is [values, ...] or ["COMBO", { options: values }]. */
const optionsOf = (definition) => (Array.isArray(definition?.[0]) ? definition[0] : (definition?.[1]?.options ?? []))

export const takesModel = (type) => Boolean({ ...inputsOf(type).required, ...inputsOf(type).optional }.model)

/** What Preset Voice is set to for a speaker: one that its list does not have is a fine-tuned one. */
export function presetInputs(name) {
  const listed = optionsOf(inputsOf(PRESET).required?.speaker)
  return listed.includes(name) ? { speaker: name } : { speaker: listed[0], custom_speaker: name }
}

const nodesOf = (type) => allNodes().filter((node) => node.type === type)

/** All Load Voice nodes of the open workflow, those in subgraphs too. */
export const loaders = () => nodesOf(LOADER)

/** Read the lists of saved voices and LoRAs again, for the nodes that are there and those that will be added. */
export async function refreshLists() {
  const definitions = await app.getNodeDefs()
  for (const [type, name] of Object.entries(LISTS)) {
    await app.registerNodeDef(type, definitions[type])
    const names = optionsOf(definitions[type].input.required[name])
    for (const node of nodesOf(type)) {
      const list = widgetOf(node, name)
      if (list) list.options.values = [...names]
    }
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

/** The place for a node nearest to a point, its middle, at which it covers no other. */
function freePlace(graph, node, middle) {
  const [width, height] = node.size, [x, y] = middle, top = window.LiteGraph.NODE_TITLE_HEIGHT
  const boxes = graph.nodes.map(({ pos, size }) => [pos[0], pos[1] - top, pos[0] + size[0], pos[1] + size[1]])
  const isFree = (left, low) => boxes.every(([x0, y0, x1, y1]) =>
    left > x1 + GAP || left + width < x0 - GAP || low - top > y1 + GAP || low + height < y0 - GAP)
  for (let ring = 0; ; ring++)
    for (let turn = 0; turn < Math.max(1, 8 * ring); turn++) {
      const angle = (2 * Math.PI * turn) / Math.max(1, 8 * ring)
      const place = [x - width / 2 + STEP * ring * Math.cos(angle), y - height / 2 + STEP * ring * Math.sin(angle)]
      if (isFree(place[0], place[1])) return place
    }
}

/** The input that a new voice is obviously for: the first free one of the only node that has one; of those selected. */
function wantedBy(graph) {
  const free = graph.nodes
    .map((node) => ({ node, slot: node.inputs?.findIndex(({ type, link }) => type === VOICE && link == null) ?? -1 }))
    .filter(({ slot }) => slot >= 0)
  const chosen = free.filter(({ node }) => app.canvas.selectedItems?.has(node))
  const found = chosen.length ? chosen : free
  return found.length === 1 ? found[0] : undefined
}

/** Add the node of a voice to the graph that is looked at, where it can be seen beside an element; return it. */
export function addVoiceNode(voice, element) {
  const graph = app.canvas.graph ?? app.graph
  const wanted = wantedBy(graph)
  const node = window.LiteGraph.createNode(voice.isPreset ? PRESET : LOADER)
  node.pos = freePlace(graph, node, middleBeside(element))
  app.canvas.emitBeforeChange?.() // one step that can be undone
  graph.add(node)
  for (const [name, value] of Object.entries(voice.isPreset ? presetInputs(voice.name) : { name: voice.name }))
    widgetOf(node, name).value = value
  if (wanted) node.connect(0, wanted.node, wanted.slot)
  app.canvas.emitAfterChange?.()
  app.canvas.selectItems?.([node])
  app.canvas.setDirty(true, true)
  return node
}

/** Save Voice or Train Voice has run: its voice can be chosen, and the Voices tab is told. */
async function onExecuted({ detail }) {
  const { types } = await runOf(detail.prompt_id)
  if (!SAVERS.includes(types.get(String(detail.node)))) return
  try {
    await refreshLists()
  } catch (error) {
    console.warn("voices: the lists of voices are as before:", error)
  }
  document.dispatchEvent(new CustomEvent("morph.voices.changed"))
}

app.registerExtension({
  name: "MorphTTS.VoiceNodes",
  setup() { app.api.addEventListener("executed", onExecuted) },
})
