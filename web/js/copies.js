// Each copy of a template that is opened is a workflow of its own: under the template's id, one copy would show what
// another one made (clip_store.js), and would take the other's run for its own (runs.js).
import { app } from "../../../scripts/app.js"

export const TEMPLATE_IDS = "5b3f0a5e-7774-4d6f-9a70-" // the ids of all shipped workflows begin with this

app.registerExtension({
  name: "MorphTTS.Copies",
  beforeConfigureGraph(workflow) {
    if (workflow?.id?.startsWith?.(TEMPLATE_IDS)) workflow.id = window.LiteGraph.uuidv4()
  },
})
