// The pack's messages of the page. Older pages stack them over the graph: what is past goes before another comes.
import { app } from "../../../scripts/app.js"

const SHOWN_MS = 8000
let shown = /** @type {any[]} */ ([]) // messages, or their ids on newer pages

/** Show a message of the page; those before go, unless it ``joins`` them. */
export function tell(severity, summary, detail, { life = SHOWN_MS, joins = false } = {}) {
  if (!joins) clearMessages()
  const { toast } = app.extensionManager
  const message = { severity, summary, detail, life }
  if (toast.dismiss) shown.push(toast[severity](summary, { description: detail, duration: life }))
  else {
    toast.add(message)
    shown.push(message)
  }
}

export function clearMessages() {
  const { toast } = app.extensionManager
  for (const one of shown) (toast.dismiss ?? toast.remove)(one)
  shown = []
}
