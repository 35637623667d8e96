// Add a voice from a voice file, or from a recording if the checkpoint can clone.
import { askJson } from "./api.js"
import { at, clearErrors, Wrong } from "./fields.js"
import { wavOf } from "./wav.js"

const SUFFIX = ".safetensors"
const SENT_AS_IT_IS = /\.(wav|flac|mp3|ogg)$/i // the server reads these; the browser reads more
const LONGEST_S = 60 // of a recording that the browser reads: the server uses 30
const AGAIN_MS = 2000 // between two tries at a server that is busy
const MOST_WAIT_MS = 600_000

const megabytes = (bytes) => `${(bytes / 2 ** 20).toFixed(0)} MiB`
const chosenFile = () => at("voice-file").files?.[0]
const isRecording = (file) => file && !file.name.toLowerCase().endsWith(SUFFIX)

/** Show which files can be added; ``status`` is the server's. */
export function offer(status) {
  at("voice-file").accept = status.can_clone ? `${SUFFIX},audio/*` : SUFFIX
  const file = `a voice file (${SUFFIX}) that Save Voice wrote`
  at("record-field").hidden = !status.can_clone
  at("add-hint").textContent = status.can_clone
    ? `A recording of one speaker, 1 to 30 seconds, or ${file}. The voice stays until the server ends, and others can use it.`
    : `Add ${file}: this checkpoint cannot clone recordings. The voice stays until the server ends, and others can use it.`
}

/** Show the fields of the chosen file. */
export function showFile() {
  const file = chosenFile()
  at("transcript-field").hidden = !isRecording(file)
  if (file && !at("voice-name").value) at("voice-name").value = file.name.replace(/\.[^.]*$/, "").slice(0, 80)
}

/** Send the form; return the voice's name, and notes about the recording. */
export async function addVoice(status, say) {
  clearErrors(at("add-form"))
  const file = chosenFile()
  if (!file) throw new Wrong("voice-file", "Choose a file first.")
  if (!at("voice-name").value.trim()) throw new Wrong("name", "Give the voice a name.")
  if (!at("consent").checked) throw new Wrong("consent", "A voice can be added only if the speaker has agreed.")
  const clones = isRecording(file)
  if (clones && !status.can_clone) throw new Wrong("voice-file", "This checkpoint cannot clone recordings: choose a voice file.")
  const content = clones && !SENT_AS_IT_IS.test(file.name) ? await readSound(file, status.sample_rate) : file
  const most = clones ? status.most_recording_bytes : status.most_voice_bytes
  if (content.size > most) throw new Wrong("voice-file", `The file is larger than ${megabytes(most)}: choose a shorter one.`)
  const query = new URLSearchParams({ name: at("voice-name").value, consent: "true" })
  const words = at("transcript").value.trim()
  if (clones && words) query.set("transcript", words)
  if (clones && at("best-part").checked) query.set("best", "true")
  at("add-voice").disabled = true
  const options = { method: "POST", body: content, headers: { "Content-Type": "application/octet-stream" } }
  try {
    const answer = await askUntilFree(`/v1/audio/voices${clones ? "/clone" : ""}?${query}`, options, say, status)
    at("add-form").reset()
    showFile()
    return answer
  } finally {
    say("")
    at("add-voice").disabled = false
  }
}

/** Retry while the server is busy; show the time each second. */
async function askUntilFree(path, options, say, status) {
  const began = Date.now()
  const busy = status.rows_in_use ? ": the server is busy with other requests and creates it between two lines" : ""
  const tell = () => say(`Creating the voice${busy}. ${((Date.now() - began) / 1000).toFixed(0)} s`)
  const timer = setInterval(tell, 1000)
  tell()
  try {
    for (;;) {
      const answer = await askJson(path, options).catch((error) => {
        if (error.status !== 503 || Date.now() - began > MOST_WAIT_MS) throw error
      })
      if (answer) return answer
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS))
    }
  } finally {
    clearInterval(timer)
  }
}

/** Return a recording that only the browser can read as a WAV file. */
async function readSound(file, rate) {
  try {
    const sound = await new OfflineAudioContext(1, 1, rate).decodeAudioData(await file.arrayBuffer())
    const channels = [...Array(sound.numberOfChannels).keys()].map((n) => sound.getChannelData(n))
    const mono = channels[0].slice(0, LONGEST_S * rate)
    mono.forEach((_, n) => { mono[n] = channels.reduce((sum, one) => sum + one[n], 0) / channels.length })
    return wavOf([mono], rate)
  } catch {
    throw new Wrong("voice-file", "This file is no sound that the browser can read: save it as wav or mp3.")
  }
}
