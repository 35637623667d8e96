// Settings, Qwen3-TTS Morph: how many lines are cached, and a button that removes them.
import { app } from "../../../scripts/app.js"
import { ask } from "./ask.js"
import { make } from "./elements.js"
import { say } from "./words.js"

const SETTING = "MorphTTS.KeptLines"
const ROUTE = "/morph/lines"

/** Return a row with the cache's size and a button that clears it; it asks the server each time it is shown. */
function makeRow() {
  const row = make("div", "morph-kept-lines"), words = make("span", ""), button = make("button", "", say("Remove"))
  row.style.cssText = "display: flex; gap: 8px; align-items: center"
  button.style.cssText = "padding: 4px 12px; border: 1px solid var(--border-color, #444); border-radius: 6px; " +
    "background: var(--comfy-input-bg, #222); color: var(--input-text, #ddd)"
  button.disabled = true
  const show = ({ lines, bytes }) => {
    words.textContent = say("Lines: {0}, {1} MB", lines, (bytes / 1e6).toFixed(1))
    button.disabled = !lines
    button.style.opacity = lines ? "1" : "0.5"
  }
  const tell = (error) => { words.textContent = String(error) }
  button.onclick = async () => {
    button.disabled = true
    try {
      await ask(`${ROUTE}/clear`, "{}")
      show(await ask(ROUTE))
    } catch (error) {
      tell(error)
    }
  }
  ask(ROUTE).then(show, tell)
  row.append(words, button)
  return row
}

app.registerExtension({
  name: "MorphTTS.KeptLines",
  settings: [
    {
      id: SETTING, name: "Cached lines", type: makeRow, defaultValue: "",
      category: ["Qwen3-TTS Morph", "Lines", "Kept"],
      tooltip: "Lines of earlier runs are cached on the server's disk. Removed lines are generated again when they are needed.",
    },
  ],
})
