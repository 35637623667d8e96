// The state of the server and the figures of a request.
import { at, fill, put, showAt } from "./fields.js"

const FIGURES = ["first", "rtf", "sound", "late", "rows", "waiting"]

/** Show the fields that the server's checkpoint supports. */
export function showServer(status) {
  at("key-card").hidden = true
  put("model", status.model)
  fill(at("language"), status.languages)
  if (at("groups").dataset.model !== status.model) at("groups").value = status.seq_groups
  at("groups").dataset.model = status.model
  const designs = status.kind === "voice_design"
  at("voice-card").hidden = designs
  at("instructions-field").hidden = !status.follows_instructions
  put("instructions-label", designs ? "Description of the voice" : "How to speak")
}

/** Show the server's state. */
export function showStatus(status) {
  put("state", "Connected")
  at("state").className = "there"
  put("rows", `${status.rows_in_use} of ${status.rows}`)
  put("waiting", status.waiting)
}

/** Clear the server's state. */
export function showGone(words) {
  for (const id of FIGURES) put(id, "–")
  put("state", words)
  at("state").className = "gone"
}

export function showKey(wasWrong) {
  showGone("A key is needed")
  at("state").className = ""
  put("model", "")
  at("key-card").hidden = false
  at("work").hidden = true
  if (wasWrong) showAt("key", "This is not the server's key.")
  else at("key").focus()
}

/** Show how fast a request's audio comes. */
export function showFigures({ first, elapsed, track }) {
  put("first", `${first.toFixed(0)} ms`)
  put("rtf", (elapsed / 1000 / track.seconds).toFixed(2))
  put("sound", `${track.seconds.toFixed(2)} s`)
  put("late", track.underruns)
}
