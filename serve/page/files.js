// A take as a file. The page writes uncompressed files itself, with the played samples.
import { postSpeech } from "./api.js"
import { jsonOf } from "./fields.js"
import { pcmOf, wavOf } from "./wav.js"

const LATE_MS = 60_000 // a download has begun by then

/** Save a take as a download; return the file's name. */
export async function save(take, format, signal) {
  const { blob, name } = await fileOf(take, format, signal)
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name })
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), LATE_MS)
  return name
}

/** Return {blob, name}; for other formats the server generates the take again, with its seed. */
async function fileOf(take, format, signal) {
  const { chunks, sampleRate } = take.track
  if (format === "wav") return { blob: wavOf(chunks, sampleRate), name: `speech-${take.seed}.wav` }
  if (format === "pcm") return { blob: new Blob([pcmOf(chunks)]), name: `speech-${take.seed}.pcm` }
  const json = jsonOf({ ...take.fields, response_format: format, stream: false }, take.seed)
  const answer = await postSpeech(json, signal)
  const seed = answer.headers.get("x-speech-seed") // another one after a retry
  return { blob: await answer.blob(), name: `speech-${seed}.${format}` }
}
