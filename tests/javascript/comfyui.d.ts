// What the scripts of web/js use of ComfyUI's page, in all versions that the pack supports. `any` is what ComfyUI does
// not promise.

declare module "*/scripts/app.js" {
  export const app: ComfyUI
}

interface ComfyUI {
  api: ComfyUIServer
  graph: Graph
  rootGraph?: Graph // newer pages
  canvas: any
  extensionManager: any
  registerExtension(extension: Extension): void
  getNodeDefs(): Promise<Record<string, any>>
  registerNodeDef(type: string, definition: object): Promise<void>
  loadGraphData(workflow: object, ...options: any[]): Promise<void>
}

interface ComfyUIServer {
  clientId?: string
  initialClientId?: string
  apiURL(route: string): string
  fetchApi(route: string, options?: RequestInit): Promise<Response>
  getWorkflowTemplates(): Promise<Record<string, string[]>>
  queuePrompt(...given: any[]): Promise<any>
  addEventListener(kind: string, listener: (event: CustomEvent) => any): void
}

interface Extension {
  name: string
  commands?: object[]
  menuCommands?: object[]
  settings?: object[]
  setup?(): any
  addCustomNodeDefs?(definitions: Record<string, any>): any
  afterConfigureGraph?(): any
  beforeConfigureGraph?(workflow: any): any
  beforeRegisterNodeDef?(nodeType: any, nodeData: { name: string }): any
  nodeCreated?(node: GraphNode): any
  refreshComboInNodes?(): any
}

interface Graph {
  id?: string
  nodes: GraphNode[]
  add(node: GraphNode): void
  getNodeById(id: number | string): GraphNode | null
}

interface GraphNode {
  id: number | string
  type?: string
  title?: string
  comfyClass?: string
  pos: number[]
  size: number[]
  graph?: Graph
  subgraph?: Graph
  inputs?: { name: string; link?: number | null }[]
  widgets?: Widget[]
  addDOMWidget(name: string, type: string, element: HTMLElement, options: object): Widget
  addWidget(type: string, name: string, value: any, callback: Function, options?: object): Widget
  removeWidget(widget: Widget): void
  showAdvanced?: boolean // saved with the node
  toggleAdvanced(): void
  hasAdvancedWidgets?(): boolean // newer pages
  isWidgetVisible(widget: Widget): boolean
  getInputNode(slot: number): GraphNode | null
  computeSize(): number[]
  setSize(size: number[]): void
}

interface Widget {
  name: string
  value?: any
  options: any
  callback?: Function
  element?: HTMLElement
  [own: string]: any
}

interface Window {
  LiteGraph: any
  LGraphCanvas: any
}
