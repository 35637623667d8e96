// What a run shows on a node beside its text, in a widget: a list of recordings (clips.js), or a waveform (trim.js). It
// is kept for the tab, because a reload or an undo builds all nodes again.
import * as sound from "./clip_sound.js"
import { addElement, giveRoom } from "./elements.js"
import { allNodes, rootGraph, widgetOf } from "./nodes.js"
import { isHere, runOf } from "./runs.js"

const ITEM = "MorphTTS.Clips" // of the tab's session storage
const MOST = 30 // nodes; the oldest are forgotten

let kept // Map: key of a node -> what it shows

/** The same node after a reload: of the same workflow, graph (there may be subgraphs), id and type. */
const keyOf = (node) => [rootGraph()?.id, node.graph?.id, node.id, node.type].join(" ")

function all() {
  if (!kept)
    try {
      kept = new Map(JSON.parse(sessionStorage.getItem(ITEM) ?? "[]"))
    } catch (error) {
      console.warn("recordings: those from before the reload are lost:", error)
      kept = new Map()
    }
  return kept
}

function keep(key, shown) {
  const known = all()
  known.delete(key) // the newest is last
  known.set(key, shown)
  for (const oldest of [...known.keys()].slice(0, -MOST)) known.delete(oldest)
  try {
    sessionStorage.setItem(ITEM, JSON.stringify([...known]))
  } catch (error) {
    console.warn("recordings: a reload will forget them:", error) // storage is full, or not allowed
  }
}

export const forget = (node) => keep(keyOf(node), {})

/** One kind of widget for what runs show. */
export class Display {
  /**
   * @param {string} name of the widget; no input has this name
   * @param {string} type of the widget
   * @param {string} mark a property of what these widgets show, and others do not
   * @param {(node: any) => any} build returns a new view: { element, height, fill(shown), attach?(node) }
   */
  constructor(name, type, mark, build) {
    this.name = name
    this.type = type
    this.mark = mark
    this.build = build
    // Key of a node -> its view. A node that was built again keeps its view: what plays goes on, and Nodes 2.0 keeps
    // the element of a node that it knows.
    this.views = new Map()
  }

  show(node, shown) {
    const key = keyOf(node)
    const view = this.views.get(key) ?? this.build(node)
    this.views.set(key, view)
    view.node = node
    view.fill(shown)
    if (!widgetOf(node, this.name)) {
      addElement(node, this.name, this.type, view.element, () => view.height)
      view.attach?.(node)
    }
    giveRoom(node)
  }

  /** Show what a run returned, and keep it. If its node's workflow is not open, only keep it; return whether it shows. */
  async showRun(node, shown) {
    const run = await runOf()
    if (!isHere(run)) { // of a node in no subgraph
      keep([run.workflow, run.workflow, node.id, run.types.get(String(node.id))].join(" "), shown)
      return false
    }
    const key = keyOf(node)
    if (sound.isOwner(this.views.get(key))) sound.stopClips()
    this.show(node, shown)
    keep(key, shown)
    return true
  }

  /** Show again what nodes showed before the graph was loaded: after a reload, an undo, or a change of the workflow. */
  restore() {
    for (const node of allNodes()) {
      const shown = widgetOf(node, this.name) ? undefined : all().get(keyOf(node))
      if (shown?.[this.mark]) this.show(node, shown)
    }
  }
}
