// The text that a run returns, on its node: the first line, and the rest folded behind it.
import { app } from "../../../scripts/app.js"
import "./clips.js" // registered first: a node's list of recordings stands above its text, whatever loads first
import { addElement, addStyle, button, giveRoom, keepEvents, make, MARGIN, turn } from "./elements.js"
import { extend, PREFIX, widgetOf } from "./nodes.js"
import { isHere, runOf } from "./runs.js"
import "./trim.js" // as clips.js

const WIDGET = "shown_text" // name of the widget; no input has this name
const REPORT = "morph_clips_report" // of a node's output: all that is to be said, where the text is a part of it
const HEAD = 26, LINE = 15, MOST_LINES = 12 // pixels; more lines scroll
const PER_LINE = 56 // characters that fit: a longer line can be unfolded

const join = (texts) => (Array.isArray(texts) ? texts.filter(Boolean).join("\n") : "")

/** What is behind the first line: the report, or the text's other lines, or the line itself where it is long. */
function hidden(text, report) {
  const [line, ...rest] = text.split("\n")
  const more = report.startsWith(`${line}\n`) ? report.slice(line.length) : report
  return more.trim() || rest.join("\n").trim() || (line.length > PER_LINE ? line : "")
}

/** How many lines a text takes when it is wrapped. */
const linesOf = (text) => text.split("\n").reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / PER_LINE)), 0)

class Report {
  constructor(node) {
    this.node = node
    this.text = this.rest = ""
    this.isOpen = false
    this.head = button("morph-report-head", "", null, () => this.turn())
    this.body = make("pre", "morph-report-rest")
    this.body.tabIndex = 0 // keys scroll it
    this.body.dataset.captureWheel = "true" // Nodes 2.0: the wheel scrolls what has been clicked
    this.element = make("div", "morph-report")
    this.element.append(this.head, this.body)
    keepEvents(this.element, () => this.body)
  }

  get height() {
    const lines = this.isOpen ? Math.min(linesOf(this.rest), MOST_LINES) : 0
    return HEAD + (lines ? LINE * lines + 12 : 0) + 2 * MARGIN
  }

  fill(text, report) {
    this.text = text
    this.rest = hidden(text, report)
    this.isOpen &&= Boolean(this.rest)
    this.draw()
  }

  draw() {
    const [line] = this.text.split("\n")
    this.head.textContent = this.rest ? `${this.isOpen ? "▾" : "▸"} ${line}` : line
    this.head.title = line
    this.head.disabled = !this.rest
    this.head.setAttribute("aria-expanded", String(this.isOpen))
    this.body.textContent = this.rest
    this.body.hidden = !this.isOpen
  }

  turn() {
    this.isOpen = !this.isOpen
    turn(this, this.isOpen, () => this.draw())
  }
}

function addReport(node) {
  const report = new Report(node)
  const options = { getValue: () => report.text, setValue: (text) => report.fill(String(text), "") }
  const widget = addElement(node, WIDGET, "MORPH_TTS_TEXT", report.element, () => report.height, options)
  widget.report = report
  return widget
}

/** Show the texts that a run returned, one per execution of the node. */
async function showText(node, output) {
  const text = join(output?.text)
  if (!text || !isHere(await runOf())) return
  const widget = widgetOf(node, WIDGET) ?? addReport(node)
  widget.report.fill(text, join(output[REPORT]))
  giveRoom(node)
}

addStyle(`
  .morph-report { box-sizing: border-box; width: 100%; contain: inline-size; /* in Nodes 2.0 a long line would widen it */
    border-radius: 6px; font: 12px sans-serif; overflow: hidden;
    background: var(--input, var(--comfy-input-bg, #222)); color: var(--input-text, #ddd); }
  .morph-report-head { all: unset; box-sizing: border-box; display: block; width: 100%; height: ${HEAD}px;
    line-height: ${HEAD}px; padding: 0 8px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap;
    cursor: pointer; }
  .morph-report-head:disabled { cursor: default; }
  .morph-report-head:focus-visible { outline: 2px solid currentColor; outline-offset: -2px; }
  .morph-report-rest { margin: 0; padding: 4px 8px 8px; max-height: ${LINE * MOST_LINES}px; overflow-y: auto;
    box-sizing: content-box; font: 11px/${LINE}px sans-serif; white-space: pre-wrap; overflow-wrap: anywhere;
    user-select: text; opacity: .85; }
  .morph-report-rest[hidden] { display: none; }`)

app.registerExtension({
  name: "MorphTTS.Report",
  beforeRegisterNodeDef(nodeType, nodeData) {
    if (nodeData.name.startsWith(PREFIX)) extend(nodeType, "onExecuted", showText)
  },
})
