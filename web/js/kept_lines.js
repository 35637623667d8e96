// Settings, Qwen3-TTS Morph: how many lines of earlier runs are kept, and a button that removes them.
import { app } from "../../../scripts/app.js"
import { say } from "./words.js"

const SETTING = "MorphTTS.KeptLines"
const ROUTE = "/morph/lines"

const megabytes = (bytes) => (bytes / 1e6).toFixed(1)

/** Ask the server: GET returns what is kept, POST removes it and returns what was removed. */
async function ask(method, path = ROUTE) {
  const headers = { "Content-Type": "application/json" }
  const answer = await fetch(app.api.apiURL(path), { method, headers, body: method === "POST" ? "{}" : undefined })
  const said = await answer.json().catch(() => ({ error: `${path}: ${answer.status}` }))
  if (!answer.ok) throw new Error(said.error)
  return said
}

/** Return a row with what is kept now and a button that removes it; it asks the server each time it is shown. */
function makeRow() {
  const row = document.createElement("div"), words = document.createElement("span")
  const button = document.createElement("button")
  row.className = "morph-kept-lines"
  row.style.cssText = "display: flex; gap: 8px; align-items: center"
  button.style.cssText = "padding: 4px 12px; border: 1px solid var(--border-color, #444); border-radius: 6px; " +
    "background: var(--comfy-input-bg, #222); color: var(--input-text, #ddd)"
  button.textContent = say("Remove")
  button.disabled = true
  const show = ({ lines, bytes }) => {
    words.textContent = say("Lines: {0}, {1} MB", lines, megabytes(bytes))
    button.disabled = !lines
    button.style.opacity = lines ? "1" : "0.5"
  }
  const tell = (error) => { words.textContent = String(error) }
  button.onclick = async () => {
    button.disabled = true
    try {
      await ask("POST", `${ROUTE}/clear`)
      show(await ask("GET"))
    } catch (error) {
      tell(error)
    }
  }
  ask("GET").then(show, tell)
  row.append(words, button)
  return row
}

app.registerExtension({
  name: "MorphTTS.KeptLines",
  settings: [
    {
      id: SETTING, name: "Lines kept from earlier runs", type: makeRow, defaultValue: "",
      category: ["Qwen3-TTS Morph", "Lines", "Kept"],
      tooltip: "Lines that were generated before are on the server's disk. They are generated again once they are removed.",
    },
  ],
})
