// The page's one audio element for finished recordings. Nothing is loaded before it is played.
import { app } from "../../../scripts/app.js"

let element, owner // owner: the list that plays, with show() and ended()

export const plays = (list) => owner === list && Boolean(element) && !element.paused && !element.ended
/** Whether this list used the element last: then its position is that of the list's recording. */
export const isOwner = (list) => owner === list
/** Seconds into the recording. */
export const position = () => element?.currentTime ?? 0
export const seek = (seconds) => { element.currentTime = seconds }

/** A file's address. ``version``: a file that was replaced keeps its name, and browsers would play a cached one. */
export const addressOf = ({ filename, subfolder, type, version = "" }) =>
  app.api.apiURL(`/view?${new URLSearchParams({ filename, subfolder, type, version })}`)

/** Stop what plays: one sound at a time. Its position is kept. */
export function stopClips() {
  element?.pause()
}

export const currentList = () => owner

/** Silence every other player of the page: ComfyUI's previews and the live speech. */
function silenceOthers() {
  /** @type {NodeListOf<HTMLMediaElement>} */
  const others = document.querySelectorAll("audio, video")
  for (const other of others) other.pause()
  document.dispatchEvent(new CustomEvent("morph.clips.play")) // live.js falls silent
}

/** Play a recording from a moment on; resolves to false if it cannot be played. */
export async function playClip(list, address, from) {
  stopClips()
  const before = owner
  silenceOthers()
  element ??= new Audio()
  owner = list
  if (before !== list) before?.show()
  element.src = address
  element.currentTime = from
  return start()
}

/** Go on where the recording was paused; resolves to false if it cannot be played. */
export async function resumeClip() {
  silenceOthers()
  return start()
}

async function start() {
  element.onplaying = element.onpause = element.ontimeupdate = () => owner.show()
  element.onended = () => owner.ended()
  try {
    await element.play()
    return true
  } catch (error) {
    if (error.name === "AbortError") return true // another recording was chosen before this one had loaded
    console.warn("recordings:", error)
    return false
  }
}

/** Fall silent when another player of the page starts. */
export function listenToOthers() {
  document.addEventListener("play", ({ target }) => { if (target !== element) stopClips() }, true)
}
