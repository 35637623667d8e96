// Records a voice with the microphone as the form's file.
import { at, put, Wrong } from "./fields.js"

const LONGEST_S = 30
const GOOD_S = 5 // a shorter recording makes a worse voice
const QUIET = 0.05 // the peak of a recording that is too quiet
const TICK_MS = 100
const SOUND = { echoCancellation: false, noiseSuppression: false } // both change the voice
const REFUSED = "The microphone cannot be used: allow it beside the address, or choose a file below."
const INSECURE = "Browsers give the microphone only to https and localhost: record with another program, and choose the file below."

/** @type {MediaRecorder | undefined} */
let recorder

/** Start or stop a recording; ``onFile`` is called with the file in the form. */
export async function toggleRecording(onFile) {
  if (recorder) return recorder.stop()
  if (!navigator.mediaDevices) throw new Wrong("record", INSECURE)
  const stream = await navigator.mediaDevices.getUserMedia({ audio: SOUND }).catch(() => { throw new Wrong("record", REFUSED) })
  const level = watchLevel(stream)
  recorder = new MediaRecorder(stream)
  recorder.ondataavailable = ({ data }) => {
    const list = new DataTransfer()
    list.items.add(new File([data], "My voice.webm", { type: data.type }))
    at("voice-file").files = list.files
    onFile()
  }
  recorder.onstop = () => {
    recorder = undefined
    for (const track of stream.getTracks()) track.stop()
    level.end()
    at("record").textContent = "Record again"
  }
  recorder.start()
  at("record").textContent = "Stop recording"
}

/** Show a stream's level and time until ``end`` is called, which gives advice. */
function watchLevel(stream) {
  const context = new AudioContext()
  const analyser = new AnalyserNode(context, { fftSize: 8192 })
  context.createMediaStreamSource(stream).connect(analyser)
  const samples = new Float32Array(analyser.fftSize)
  const began = performance.now()
  let peak = 0
  let seconds = 0
  const timer = setInterval(() => {
    analyser.getFloatTimeDomainData(samples)
    at("level").value = samples.reduce((most, one) => Math.max(most, Math.abs(one)), 0)
    peak = Math.max(peak, at("level").value)
    seconds = (performance.now() - began) / 1000
    put("recorded", `${seconds.toFixed(0)} s`)
    if (seconds >= LONGEST_S) recorder?.stop()
  }, TICK_MS)
  at("level").hidden = false
  const end = () => {
    clearInterval(timer)
    context.close()
    at("level").hidden = true
    const advice = peak < QUIET ? "It is very quiet: come closer." : seconds < GOOD_S ? "It is short: 5 to 15 seconds are better." : ""
    put("recorded", `${seconds.toFixed(0)} s are recorded. ${advice}`)
  }
  return { end }
}
