// Page elements, and room for them on a node. They work on the classic canvas and in Nodes 2.0.
import { app } from "../../../scripts/app.js"
import { widgetOf } from "./nodes.js"

export const MARGIN = 4 // pixels; the classic canvas subtracts the margin on both sides
const LEAST_TEXT = 110, MOST_TEXT = 150 // pixels, about 6 and 9 lines: what a node's own text box keeps
const OWN_KEYS = ["Enter", " ", "ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"] // buttons, slider

export function make(kind, name, text = "", title = "") {
  const element = document.createElement(kind)
  element.className = name
  element.textContent = text
  if (title) element.title = title
  return element
}

/** A button; ``title`` also names it for a screen reader. */
export const button = (name, text, title, onclick) =>
  Object.assign(make("button", name, text, title), { type: "button", ariaLabel: title, onclick })

export const addStyle = (text) => document.head.append(make("style", "", text))

/**
 * Keep the page from taking these events: keys are its shortcuts, a press drags the node, the wheel zooms.
 * ``scrolled`` returns what an event of the wheel would scroll.
 */
export function keepEvents(element, scrolled) {
  for (const kind of ["keydown", "keyup"])
    element.addEventListener(kind, (event) => {
      if (OWN_KEYS.includes(event.key) && !event.ctrlKey && !event.metaKey) event.stopPropagation()
    })
  for (const kind of ["pointerdown", "dblclick"]) element.addEventListener(kind, (event) => event.stopPropagation())
  element.addEventListener("wheel", (event) => {
    const { scrollHeight, clientHeight } = scrolled(event)
    if (scrollHeight > clientHeight) event.stopPropagation()
    else app.canvas.processMouseWheel(event) // zoom, as elsewhere on the node
  })
}

/** Put an element on a node, as a widget that is neither saved nor sent with a prompt; ``height`` returns pixels. */
export function addElement(node, name, type, element, height, options = {}) {
  const before = node.size[1]
  const widget = node.addDOMWidget(name, type, element, {
    getMinHeight: height, getMaxHeight: height, getHeight: height, margin: MARGIN, serialize: false, ...options,
  })
  widget.serialize = false
  element.style.flex = "none" // Nodes 2.0 would stretch it
  // Nodes 2.0 shares a node's free space among all widgets with a layout size: it belongs to the text box alone.
  widget.computeLayoutSize = undefined
  widget.computeSize = () => [0, height()]
  node.widgets.push(node.widgets.pop()) // Nodes 2.0 looks at the widgets again
  return Object.assign(widget, { before })
}

/** Remove what ``addElement`` put on a node, if it is there; the node shrinks again. */
export function removeElement(node, name) {
  const widget = widgetOf(node, name)
  if (!widget) return
  node.removeWidget(widget)
  takeRoom(node, widget.before)
}

/** Draw what a node shows folded or unfolded: the node grows, and shrinks again. */
export function turn(shown, isOpen, draw) {
  if (isOpen) shown.before = shown.node.size[1]
  draw()
  if (isOpen) giveRoom(shown.node)
  else takeRoom(shown.node, shown.before)
}

/** Enlarge a node for what it shows, so that its own text box keeps its height. */
export function giveRoom(node) {
  keepText(node)
  if (window.LiteGraph.vueNodesMode) return
  const [width, height] = node.computeSize()
  node.setSize([Math.max(node.size[0], width), Math.max(node.size[1], height)])
  app.canvas.setDirty(true, true)
}

/** Make a node as high as it was before it was given room, as far as its widgets allow. */
function takeRoom(node, before) {
  keepText(node)
  const least = window.LiteGraph.vueNodesMode ? 0 : node.computeSize()[1]
  node.setSize([node.size[0], Math.max(Math.min(node.size[1], before), least)])
  app.canvas.setDirty(true, true)
}

/** Let a node's first text box keep the height that it has, within limits. */
function keepText(node) {
  const box = node.widgets?.find((one) => one.element?.tagName === "TEXTAREA")
  if (!box?.options) return
  // Nodes 2.0 draws a box of its own, and gives a node the height that its elements need.
  const drawn = /** @type {HTMLElement | null} */ (document.querySelector(`[data-node-id="${node.id}"] textarea`))
  const kept = Math.min(Math.max(drawn?.offsetHeight ?? box.computedHeight ?? 0, LEAST_TEXT), MOST_TEXT)
  box.options.getMinHeight = () => kept
  if (drawn) drawn.style.minHeight = `${kept}px`
}
