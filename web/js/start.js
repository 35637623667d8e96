// The templates: "1 Start here" is opened by a menu entry and by a button of the Voices tab, and is first in ComfyUI's
// list. Each copy of a template is a workflow of its own: under the template's id, one copy would show what another one
// made (display.js), and would take the other's run for its own (runs.js).
import { app } from "../../../scripts/app.js"
import { tell } from "./messages.js"
import { say } from "./words.js"

const COMMAND = "MorphTTS.OpenStart"
const TEMPLATE = "Qwen3-TTS 1 Start here"
// This file's address is /extensions/FOLDER/js/start.js; ComfyUI serves a pack's templates under the same folder name.
const FOLDER = decodeURIComponent(new URL(import.meta.url).pathname.split("/extensions/")[1].split("/")[0])
export const TEMPLATE_IDS = "5b3f0a5e-7774-4d6f-9a70-" // the ids of all shipped workflows begin with this
const FILLED = 0.94 // of the free part of the window

/** Open the template in a tab of its own, as ComfyUI's page of templates does. */
export async function openStart() {
  const path = [FOLDER, `${TEMPLATE}.json`].map(encodeURIComponent).join("/")
  try {
    const answer = await fetch(app.api.apiURL(`/workflow_templates/${path}`))
    if (!answer.ok) throw new Error(`${TEMPLATE}.json: ${answer.status} ${answer.statusText}`)
    await app.loadGraphData(await answer.json(), true, true, TEMPLATE, { openSource: "template" })
    for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame) // the page fits it meanwhile
    fit()
  } catch (error) {
    tell("error", say("The template cannot be opened"), error.message)
  }
}

/** Fit the open graph into what no panel covers: the page fits it into the window, with its note behind the panel. */
function fit() {
  const { canvas, ds, graph } = app.canvas
  const all = canvas.getBoundingClientRect()
  const free = document.querySelector(".graph-canvas-panel")?.getBoundingClientRect() ?? all
  const boxes = [...graph.nodes, ...graph.groups].map((one) => one.boundingRect)
  const [left, top] = [0, 1].map((side) => Math.min(...boxes.map((box) => box[side])))
  const [right, bottom] = [0, 1].map((side) => Math.max(...boxes.map((box) => box[side] + box[side + 2])))
  ds.scale = FILLED * Math.min(free.width / (right - left), free.height / (bottom - top))
  ds.offset[0] = (free.left - all.left + free.width / 2) / ds.scale - (left + right) / 2
  ds.offset[1] = (free.top - all.top + free.height / 2) / ds.scale - (top + bottom) / 2
  app.canvas.setDirty(true, true)
}

/** ComfyUI lists a pack's templates as the file system does: put "1 Start here" first. */
function sortTemplates() {
  const read = app.api.getWorkflowTemplates
  app.api.getWorkflowTemplates = async function () {
    const templates = await read.call(this)
    templates[FOLDER]?.sort()
    return templates
  }
}

app.registerExtension({
  name: "MorphTTS.Start",
  setup: sortTemplates,
  beforeConfigureGraph(workflow) {
    if (workflow?.id?.startsWith?.(TEMPLATE_IDS)) workflow.id = window.LiteGraph.uuidv4()
  },
  commands: [{ id: COMMAND, icon: "pi pi-microphone", label: () => say("Open Start here"), function: openStart }],
  menuCommands: [{ path: ["Extensions", "Qwen3-TTS Morph"], commands: [COMMAND] }],
})
