// Requests to the server. Errors have the server's message, or ours without one.
const KEY = "morph-tts-key" // in the session's storage

/** An error of the server, with its ``status`` and the field, ``param``. */
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

/** Return the server's answer, or throw Refused, Gone or an AbortError. */
export async function ask(path, options = {}) {
  const key = readKey()
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) }
  const response = await reach(fetch(path, { ...options, headers }), "The server does not answer")
  if (response.ok) return response
  const body = await response.json().catch(() => ({}))
  const words = body.error?.message ?? `the server answered with status ${response.status}`
  throw new Refused(words, response.status, body.error?.param)
}

export const askJson = async (path, options) => (await ask(path, options)).json()

/** Post a request for speech; ``json`` is its text. */
export function postSpeech(json, signal) {
  return ask("/v1/audio/speech", { method: "POST", body: json, signal, headers: { "Content-Type": "application/json" } })
}

/** Yield the events of an answer; throw an event of type error. */
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

/** Wait for the network; replace the browser's error, which does not help. */
async function reach(promise, words) {
  try {
    return await promise
  } catch (error) {
    if (error.name === "AbortError") throw error
    throw new Gone(words)
  }
}
