// Which workflow a run is of: the user may have opened another one meanwhile, whose nodes have the same ids.
import { app } from "../../../scripts/app.js"
import { rootGraph } from "./nodes.js"

const NO_ID = "00000000-0000-0000-0000-000000000000" // of a workflow
const known = new Map() // prompt id -> promise of its run: { workflow, types }
let running // the id of the prompt that runs

const read = async (route) => (await app.api.fetchApi(route)).json()

/** The prompts that run or wait: [number, id, nodes, extra data]. */
export async function queued() {
  const { queue_running, queue_pending } = await read("/queue")
  return [...queue_running, ...queue_pending]
}

/** A prompt as ``queued`` gives it; a short one may have left the queue before it is asked for. */
async function find(id) {
  return (await queued()).find(([, one]) => one === id) ?? (await read(`/history/${id}`))[id]?.prompt ?? []
}

/** What the server says of a prompt: the id of its workflow, and the types of its nodes by execution id. */
async function look(id) {
  const [, , nodes, extra] = await find(id)
  const types = new Map()
  for (const [node, { class_type }] of Object.entries(nodes ?? {})) types.set(node, class_type)
  return { workflow: extra?.extra_pnginfo?.workflow?.id, types }
}

/** A prompt's run, that which is executed now if none is named; without a workflow if the server knows none. */
export function runOf(id = running) {
  if (!known.has(id))
    known.set(id, look(id).catch((error) => {
      console.warn("a run's workflow is not known:", error)
      return { types: new Map() }
    }))
  return known.get(id)
}

/** Whether a run is of the workflow that is open, as far as that is known. */
export const isHere = ({ workflow }) => workflow === undefined || workflow === rootGraph()?.id

app.registerExtension({
  name: "MorphTTS.Runs",
  setup() {
    // Frontend 1.49.6 leaves a cleared workflow without an id, and then gives it another at each undo.
    app.api.addEventListener("graphCleared", () => {
      if (rootGraph().id === NO_ID) rootGraph().id = window.LiteGraph.uuidv4()
    })
    app.api.addEventListener("execution_start", ({ detail }) => {
      running = detail.prompt_id
      known.clear()
      runOf()
    })
  },
})
