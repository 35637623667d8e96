// The first template, "1 Start here": opened by a menu entry, and by a button of the Voices tab.
import { app } from "../../../scripts/app.js"
import { say } from "./words.js"

const COMMAND = "MorphTTS.OpenStart"
const TEMPLATE = "1 Start here - preset speakers"
// This file's address is /extensions/FOLDER/js/start.js; ComfyUI serves a pack's templates under the same folder name.
const FOLDER = decodeURIComponent(new URL(import.meta.url).pathname.split("/extensions/")[1].split("/")[0])

/** Open the template in a tab of its own, as ComfyUI's page of templates does. */
export async function openStart() {
  const path = [FOLDER, `${TEMPLATE}.json`].map(encodeURIComponent).join("/")
  try {
    const answer = await fetch(app.api.apiURL(`/workflow_templates/${path}`))
    if (!answer.ok) throw new Error(`${TEMPLATE}.json: ${answer.status} ${answer.statusText}`)
    await app.loadGraphData(await answer.json(), true, true, TEMPLATE, { openSource: "template" })
  } catch (error) {
    const summary = say("The template cannot be opened")
    app.extensionManager.toast.add({ severity: "error", summary, detail: error.message, life: 8000 })
  }
}

app.registerExtension({
  name: "MorphTTS.Start",
  commands: [{ id: COMMAND, icon: "pi pi-microphone", label: () => say("Open Start here"), function: openStart }],
  menuCommands: [{ path: ["Extensions", "Qwen3-TTS Morph"], commands: [COMMAND] }],
})
