import { app } from "../../../scripts/app.js"

/** Ask one of the pack's routes: GET, or POST if there is a body. The Error of a refusal has the answer's fields. */
export async function ask(path, body, type = "application/json") {
  const options = body === undefined ? {} : { method: "POST", headers: { "Content-Type": type }, body }
  const answer = await fetch(app.api.apiURL(path), options)
  const said = await answer.json().catch(() => ({ error: `${path}: ${answer.status}` }))
  if (!answer.ok) throw Object.assign(new Error(said.error), said, { status: answer.status })
  return said
}
