// What the page asks of the server. Errors have the server's words, or ours where it has none.
const KEY = "morph-tts-key" // in the session's storage

/** The server refused. ``param`` is the field that it names, ``status`` the answer's. */
export class Refused extends Error {
  constructor(message, status, param) {
    super(message[0].toUpperCase() + message.slice(1))
    this.status = status
    this.param = param
  }
}

/** The server does not answer. */
export class Gone extends Error {}

export const readKey = () => sessionStorage.getItem(KEY) ?? ""
export const keepKey = (key) => sessionStorage.setItem(KEY, key)

/** Ask the server; return its answer, or throw Refused, Gone or an AbortError. */
export async function ask(path, options = {}) {
  const key = readKey()
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) }
  const response = await reach(fetch(path, { ...options, headers }), "The server does not answer")
  if (response.ok) return response
  const body = await response.json().catch(() => ({}))
  const words = body.error?.message ?? `the server answered with status ${response.status}`
  throw new Refused(words, response.status, body.error?.param)
}

/** Ask for JSON. */
export const askJson = async (path, options) => (await ask(path, options)).json()

/** Post a request for speech; ``json`` is its text. */
export function postSpeech(json, signal) {
  return ask("/v1/audio/speech", { method: "POST", body: json, signal, headers: { "Content-Type": "application/json" } })
}

/** The events of an answer as they come; an error among them is thrown. */
export async function* readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ""
  for (;;) {
    const { done, value } = await reach(reader.read(), "The connection broke off")
    if (done) return
    const parts = (rest + value).split("\n\n")
    rest = parts.pop() ?? ""
    for (const part of parts) {
      const event = JSON.parse(part.slice(part.indexOf("data: ") + 6))
      if (event.error) throw new Refused(event.error.message, 0, event.error.param)
      yield event
    }
  }
}

/** Wait for the network; say in our words that it failed, for the browser's are no help. */
async function reach(promise, words) {
  try {
    return await promise
  } catch (error) {
    if (error.name === "AbortError") throw error
    throw new Gone(words)
  }
}
