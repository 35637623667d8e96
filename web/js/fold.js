// The classic canvas folds a node's advanced widgets behind one button, as Nodes 2.0 does by itself. The page hides such
// widgets and saves whether they show (`showAdvanced`), but leaves their rows. And SEQ_GROUPS says which value is exact.
import { app } from "../../../scripts/app.js"
import { extend, PREFIX, widgetOf } from "./nodes.js"
import { say } from "./words.js"

const BUTTON = "morph_more" // name of the widget; no input has this name
const ALWAYS = "Comfy.Node.AlwaysShowAdvancedWidgets" // the page's setting
const GROUPS = "seq_groups", FAST = 5, EXACT = 15
const ROW_GAP = 4 // pixels: what the canvas adds to each row

/** The widgets of a node that its definition calls advanced, each with its default value. */
function advancedOf(node) {
  const { required, optional } = node.constructor.nodeData?.input ?? {}
  return Object.entries({ ...required, ...optional })
    .filter(([name, definition]) => definition[1]?.advanced && widgetOf(node, name))
    .map(([name, [, about]]) => [widgetOf(node, name), about.default])
}

const isLinked = (node, widget) => node.inputs?.some(({ name, link }) => name === widget.name && link != null)

/** Fold the widgets that no link gives their values. */
function fold(node) {
  for (const [widget] of advancedOf(node)) widget.advanced = !isLinked(node, widget)
}

/** Do something that shows or hides widgets; the node grows or shrinks by their height, and its text box stays. */
function keepRest(node, change) {
  const before = node.computeSize()[1]
  change()
  const least = node.computeSize()[1]
  const hasBox = node.widgets.some((one) => one.computeLayoutSize && node.isWidgetVisible(one) && !isLinked(node, one))
  node.setSize([node.size[0], hasBox ? Math.max(node.size[1] + least - before, least) : least])
  app.canvas.setDirty(true, true)
}

function foldAll(node) {
  node.showAdvanced = true
  keepRest(node, () => {
    node.showAdvanced = false
    fold(node)
  })
}

/** Let a widget take no row while it is folded. */
function giveNoRow(node, widget) {
  let own = widget.computeSize
  Object.defineProperty(widget, "computeSize", {
    get: () => (node.showAdvanced || isLinked(node, widget) ? own : () => [0, -ROW_GAP]),
    set(size) { own = size },
  })
}

/** What the button says: also how many of the folded widgets are changed. */
function labelOf(node) {
  if (node.showAdvanced) return say("Fewer")
  const changed = advancedOf(node).filter(([widget, initial]) => widget.value !== initial).length
  return changed ? say("More ({0} changed)", changed) : say("More")
}

function addButton(node) {
  const turn = () => node.toggleAdvanced()
  const button = node.addWidget("button", BUTTON, null, turn, { serialize: false, canvasOnly: true })
  button.serialize = false
  Object.defineProperty(button, "label", { get: () => labelOf(node), set() {} })
}

/** Say beside SEQ_GROUPS whether its value is exact, or fast. */
function nameGroups(node) {
  const widget = widgetOf(node, GROUPS)
  if (typeof widget?.value !== "number") return // Sweep has a list
  const { callback } = widget, name = widget.label ?? widget.name
  widget.rename = () => {
    const word = widget.value === EXACT ? say("exact") : widget.value <= FAST ? say("fast") : ""
    widget.label = word ? `${name} (${word})` : name
  }
  widget.callback = function (...given) {
    callback?.apply(this, given)
    widget.rename()
  }
  widget.rename()
}

app.registerExtension({
  name: "MorphTTS.Fold",
  beforeRegisterNodeDef(nodeType, nodeData) {
    if (!nodeData.name.startsWith(PREFIX)) return
    nodeType.prototype.toggleAdvanced = function () {
      keepRest(this, () => { this.showAdvanced = !this.showAdvanced })
    }
    extend(nodeType, "onConnectionsChange", (node) => {
      if (widgetOf(node, BUTTON)) keepRest(node, () => fold(node))
    })
    extend(nodeType, "onConfigure", (node, saved) => {
      widgetOf(node, GROUPS)?.rename?.()
      if (!widgetOf(node, BUTTON)) return
      if (saved.showAdvanced === undefined) foldAll(node) // saved before widgets were folded, with room for all
      else fold(node)
    })
  },
  nodeCreated(node) {
    if (!node.comfyClass?.startsWith(PREFIX)) return
    nameGroups(node)
    const isOwn = node.hasAdvancedWidgets?.() || app.extensionManager.setting.get(ALWAYS)
    if (isOwn || !advancedOf(node).length) return
    addButton(node)
    for (const [widget] of advancedOf(node)) giveNoRow(node, widget)
    foldAll(node)
  },
})
