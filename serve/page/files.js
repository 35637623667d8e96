// A take as a file. The page itself makes those without compression, of the very samples that were heard.
import { postSpeech } from "./api.js"
import { jsonOf } from "./fields.js"
import { pcmOf, wavOf } from "./wav.js"

const LATE_MS = 60_000 // after which a download has begun

/** Have the browser save a take; return the file's name. */
export async function save(take, format, signal) {
  const { blob, name } = await fileOf(take, format, signal)
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name })
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), LATE_MS)
  return name
}

/** Return {blob, name}; for the other formats the server speaks the take again, with its seed. */
async function fileOf(take, format, signal) {
  const { chunks, sampleRate } = take.track
  if (format === "wav") return { blob: wavOf(chunks, sampleRate), name: `speech-${take.seed}.wav` }
  if (format === "pcm") return { blob: new Blob([pcmOf(chunks)]), name: `speech-${take.seed}.pcm` }
  const json = jsonOf({ ...take.fields, response_format: format, stream: false }, take.seed)
  const answer = await postSpeech(json, signal)
  const seed = answer.headers.get("x-speech-seed") // another one where the first take went wrong
  return { blob: await answer.blob(), name: `speech-${seed}.${format}` }
}
