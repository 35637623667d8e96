// Nodes on the page: how to find them, and how to call code after one of their methods.
import { app } from "../../../scripts/app.js"

export const PREFIX = "MorphTTS" // all node types of the pack start with this

/** The open workflow's graph, whichever subgraph is looked at. */
export const rootGraph = () => app.rootGraph ?? app.graph

/** All nodes of a graph, those in its subgraphs too. */
export function allNodes(graph = rootGraph()) {
  return (graph?.nodes ?? []).flatMap((node) => [node, ...(node.subgraph ? allNodes(node.subgraph) : [])])
}

/** The node of an execution id ("5", or "12:5" in a subgraph) and its graph; the node is missing if it was deleted. */
export function findNode(id) {
  let graph = rootGraph(), node
  for (const part of String(id).split(":")) {
    node = graph?.getNodeById(Number(part)) ?? graph?.getNodeById(part)
    if (!node) return {}
    const inner = node.subgraph
    if (inner) graph = inner
  }
  return { node, isOpen: (app.canvas.graph ?? app.graph) === (node.graph ?? graph) }
}

export const widgetOf = (node, name) => node.widgets?.find((one) => one.name === name)

/** Call ``then`` after a method of a node type, whatever the method was before. */
export function extend(nodeType, method, then) {
  const before = nodeType.prototype[method]
  nodeType.prototype[method] = function (...given) {
    before?.apply(this, given)
    then(this, ...given)
  }
}
