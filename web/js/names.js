// In the text box of Render Script a new line offers the names of the connected cast: Tab, a click, or an arrow and
// Enter take one. Works on the classic canvas and in Nodes 2.0. A text box cannot color a part of its text.
import { app } from "../../../scripts/app.js"
import { addStyle, make } from "./elements.js"
import { allNodes, widgetOf } from "./nodes.js"

const SCRIPT = "MorphTTSRenderScript", ONE = "MorphTTSCast", ALL = "MorphTTSWholeCast"
const list = make("div", "morph-names")
/** @type {any} */
let box // that the list belongs to, while it is shown

/** The names of all characters that come out of a node, or go into it. */
function namesOf(node) {
  const own = { [ONE]: "name", [ALL]: "names" }[node?.type]
  const slot = node?.inputs?.findIndex(({ name }) => name === "cast") ?? -1
  const names = own ? String(widgetOf(node, own)?.value ?? "").split("\n") : []
  return [...(slot < 0 ? [] : namesOf(node.getInputNode(slot))), ...names.map((name) => name.trim()).filter(Boolean)]
}

/** The node whose text box this is; Nodes 2.0 draws one of its own. */
function nodeOf(element) {
  const id = element.closest("[data-node-id]")?.dataset.nodeId
  if (id !== undefined) return (app.canvas.graph ?? app.graph).getNodeById(id)
  return allNodes().find(({ widgets }) => widgets?.some((one) => one.element === element))
}

const lineOf = ({ value, selectionStart: end }) => value.slice(value.lastIndexOf("\n", end - 1) + 1, end)

/** Where the line of the caret ends on the page: a copy of the text before it is measured. */
function placeUnder(area) {
  const { left, top, width } = area.getBoundingClientRect(), style = getComputedStyle(area)
  const copy = make("div", "", `${area.value.slice(0, area.selectionStart)}\u200b`)
  for (const name of ["font", "padding", "border", "lineHeight", "letterSpacing"]) copy.style[name] = style[name]
  copy.style.cssText += `; position: fixed; visibility: hidden; box-sizing: border-box; white-space: pre-wrap;
    overflow-wrap: break-word; width: ${area.clientWidth}px`
  document.body.append(copy)
  const below = Math.min(copy.offsetHeight - area.scrollTop, area.clientHeight)
  copy.remove()
  return [left, top + (below * width) / area.offsetWidth]
}

function hide() {
  list.remove()
  box = undefined
}

function take(name) {
  const area = box, end = area.selectionStart
  area.setSelectionRange(end - lineOf(area).length, end)
  document.execCommand("insertText", false, `${name}: `) // as if it were typed: it can be undone
}

function offer({ target }) {
  hide()
  if (target.tagName !== "TEXTAREA" || target.value.slice(target.selectionEnd).split("\n")[0].trim()) return
  const node = nodeOf(target), begun = lineOf(target).toLowerCase()
  const names = node?.type === SCRIPT ? namesOf(node).filter((name) => name.toLowerCase().startsWith(begun)) : []
  if (!names.length) return
  list.replaceChildren(...names.map((name) => make("div", "", name)))
  const [left, top] = placeUnder(target)
  list.style.cssText = `left: ${left}px; top: ${top}px`
  document.body.append(list)
  box = target
}

function onKey(event) {
  if (!box || event.isComposing) return
  const chosen = list.querySelector(".chosen"), { firstElementChild: first, lastElementChild: last } = list
  const next = { ArrowDown: chosen?.nextElementSibling ?? first, ArrowUp: chosen?.previousElementSibling ?? last }[event.key]
  if (next) {
    chosen?.classList.remove("chosen")
    next.classList.add("chosen")
  } else if (event.key === "Tab" || (event.key === "Enter" && chosen)) take((chosen ?? first).textContent)
  else if (event.key === "Escape") hide()
  else return
  event.preventDefault()
  event.stopPropagation()
}

addStyle(`
  .morph-names { position: fixed; z-index: 3000; min-width: 8em; max-height: 12em; overflow-y: auto; font: 13px sans-serif;
    background: var(--comfy-menu-bg); color: var(--input-text); border: 1px solid var(--border-color); }
  .morph-names div { padding: 3px 8px; cursor: pointer; }
  .morph-names div:hover, .morph-names .chosen { background: var(--comfy-input-bg); }`)

app.registerExtension({
  name: "MorphTTS.Names",
  setup() {
    document.addEventListener("input", offer)
    document.addEventListener("keydown", onKey, true)
    for (const kind of ["focusout", "wheel"]) document.addEventListener(kind, hide, true)
    list.addEventListener("pointerdown", (event) => {
      event.preventDefault() // the text box keeps the focus
      if (event.target !== list) take(/** @type {HTMLElement} */ (event.target).textContent)
    })
  },
})
