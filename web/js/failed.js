// A node of the pack that fails, or whose values are refused, says why: on itself, until the next run begins, and in a
// message of the page. Newer pages say only that something is wrong, and keep the sentence in a log.
// ComfyUI gives the sentence of a node's check to every input that the check looks at: one wrong value would be shown as
// several errors, most of them under the names of inputs that are right. One error is kept.
import { app } from "../../../scripts/app.js"
import { stopClips } from "./clip_sound.js"
import { forget } from "./display.js"
import { addElement, addStyle, giveRoom, keepEvents, make, MARGIN, removeElement } from "./elements.js"
import { clearMessages, tell } from "./messages.js"
import { allNodes, findNode, PREFIX, widgetOf } from "./nodes.js"
import { isOfPreview } from "./preview.js"
import { isHere, runOf } from "./runs.js"

const WIDGET = "shown_error" // name of the widget; no input has this name
const CLIPS = "speech_clips", TEXT = "shown_text" // those of clips.js and report.js
const LINE = 16, MOST_LINES = 10, PADDING = 6 // pixels; more lines scroll
const LETTER = 6.4 // pixels, the mean width of a letter
const OWN = "ValueError" // the pack's own sentences; others say what they are
const SHOWN_MS = 20000

function sentenceOf({ exception_type: type, exception_message: message }) {
  const said = (message ?? "").trim()
  return type?.split(".").at(-1) === OWN && said ? said : [type, said].filter(Boolean).join(": ")
}

/** Pixels that a text takes on a node of this width. */
function heightOf(text, width) {
  const letters = Math.max(20, Math.floor((width - 4 * PADDING - 2 * MARGIN) / LETTER))
  const lines = text.split("\n").reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / letters)), 0)
  return LINE * Math.min(lines, MOST_LINES) + 2 * (PADDING + MARGIN)
}

function showOn(node, sentence) {
  clear(node)
  const element = make("div", "morph-failed", sentence)
  element.setAttribute("role", "alert")
  keepEvents(element, () => element)
  addElement(node, WIDGET, "MORPH_TTS_ERROR", element, () => heightOf(sentence, node.size[0]))
  giveRoom(node)
}

const clear = (node) => removeElement(node, WIDGET)

/** Remove what the run before made: it would pass for this one's. */
function clearPast(node) {
  if (widgetOf(node, CLIPS)) {
    stopClips()
    forget(node)
  }
  for (const widget of node.widgets?.filter(({ name }) => [CLIPS, TEXT].includes(name)) ?? []) node.removeWidget(widget)
}

/** Show a sentence on a node, where that is open, and in a message of the page. */
function tellWhy(id, type, sentence, isOpen = true) {
  const found = isOpen ? findNode(id).node : undefined
  const node = found?.type === type ? found : undefined
  if (node) showOn(node, sentence)
  const title = node?.title || window.LiteGraph.registered_node_types[type]?.title || type
  tell("error", title, sentence, { life: SHOWN_MS, joins: true }) // one run may have several
}

const clearAll = () => allNodes().forEach(clear)

async function onError({ detail }) {
  const { prompt_id: prompt, node_id: id, node_type: type } = detail
  if (!type?.startsWith(PREFIX) || isOfPreview(id)) return
  const isOpen = isHere(await runOf(prompt)), { node } = findNode(id)
  if (isOpen && node) clearPast(node)
  tellWhy(id, type, sentenceOf(detail), isOpen)
}

const OF_CHECK = "custom_validation_failed"

const inputOf = (error) => error.extra_info?.input_name

/** What a check said: ComfyUI writes the input before it. */
const refusalOf = (error) => error.details.slice(`${inputOf(error)} - `.length)

/** Whether the sentence is about the input: the pack's sentences begin with the name, some of them in capitals. */
const isAbout = (sentence, input) =>
  sentence.toLowerCase().startsWith(input) && !/^\w/.test(sentence.slice(input.length))

/** Keep the one error of a node's check that is about its own input; the first where none is. */
function keepOne(errors) {
  const ofCheck = errors.filter((error) => error.type === OF_CHECK)
  const kept = ofCheck.find((error) => isAbout(refusalOf(error), inputOf(error))) ?? ofCheck[0]
  return errors.filter((error) => error.type !== OF_CHECK || error === kept)
}

/** Drop the repeated errors of the pack's nodes from an answer of the server, and show the others on their nodes. */
function keepAndTell(answer) {
  for (const [id, node] of Object.entries(answer?.node_errors ?? {})) {
    if (!node.class_type?.startsWith(PREFIX)) continue
    node.errors = keepOne(node.errors)
    const said = node.errors.filter((error) => error.type === OF_CHECK).map(refusalOf)
    if (said.length) tellWhy(id, node.class_type, said.join("\n"))
  }
}

addStyle(`
  .morph-failed { box-sizing: border-box; width: 100%; padding: ${PADDING}px ${2 * PADDING}px; border-radius: 6px;
    overflow-y: auto; font: 12px/${LINE}px sans-serif; white-space: pre-wrap; overflow-wrap: anywhere;
    user-select: text; background: #7f1d1d; color: #fff; }`)

app.registerExtension({
  name: "MorphTTS.Failed",
  setup() {
    app.api.addEventListener("execution_error", onError)
    app.api.addEventListener("execution_start", clearAll)
    const queue = app.api.queuePrompt
    app.api.queuePrompt = async function (...given) {
      clearAll()
      clearMessages()
      try {
        const answer = await queue.apply(this, given)
        keepAndTell(answer) // some outputs may run although others are refused
        return answer
      } catch (error) {
        keepAndTell(error.response)
        throw error
      }
    }
  },
})
