// What nodes showed last, kept for the tab: a reload or an undo builds all nodes again.
import { rootGraph } from "./nodes.js"

const ITEM = "MorphTTS.Clips" // of the tab's session storage
const MOST = 30 // nodes; the oldest are forgotten

let kept // Map: key of a node -> what it shows

/** The same node after a reload: of the same workflow, graph (there may be subgraphs), id and type. */
export function keyOf(node) {
  return [rootGraph()?.id, node.graph?.id, node.id, node.type].join(" ")
}

/** The key of a node of a workflow that is not open; of one in no subgraph. */
export const keyIn = (workflow, id, type) => [workflow, workflow, id, type].join(" ")

function all() {
  if (!kept)
    try {
      kept = new Map(JSON.parse(sessionStorage.getItem(ITEM) ?? "[]"))
    } catch (error) {
      console.warn("recordings: nothing is remembered of before the reload:", error)
      kept = new Map()
    }
  return kept
}

/** Keep what a node shows. */
export const remember = (node, shown) => keep(keyOf(node), shown)

/** Keep what the node of a key shows. */
export function keep(key, shown) {
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

/** What this node showed, the same object each time; undefined if it showed nothing. */
export const recall = (node) => all().get(keyOf(node))
