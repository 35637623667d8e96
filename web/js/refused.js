// One error for one wrong value. ComfyUI gives the sentence of a node's check to every input that the check looks at:
// one wrong value is then shown as several errors, most of them under the names of inputs that are right. And newer
// pages say only that a value was rejected: the sentence is shown on the node too.
import { app } from "../../../scripts/app.js"
import { clearAll, tellWhy } from "./failed.js"
import { clearMessages } from "./messages.js"
import { PREFIX } from "./nodes.js"

const OF_CHECK = "custom_validation_failed"

const inputOf = (error) => error.extra_info?.input_name

/** What a check said: ComfyUI writes the input before it. */
const sentenceOf = (error) => error.details.slice(`${inputOf(error)} - `.length)

/** Whether the sentence is about the input: the pack's sentences begin with the name, some of them in capitals. */
const isAbout = (sentence, input) =>
  sentence.toLowerCase().startsWith(input) && !/^\w/.test(sentence.slice(input.length))

/** Keep the one error of a node's check that is about its own input; the first where none is. */
function keepOne(errors) {
  const ofCheck = errors.filter((error) => error.type === OF_CHECK)
  const kept = ofCheck.find((error) => isAbout(sentenceOf(error), inputOf(error))) ?? ofCheck[0]
  return errors.filter((error) => error.type !== OF_CHECK || error === kept)
}

/** Drop the repeated errors of the pack's nodes from an answer of the server, and show the others on their nodes. */
function keepAndTell(answer) {
  for (const [id, node] of Object.entries(answer?.node_errors ?? {})) {
    if (!node.class_type?.startsWith(PREFIX)) continue
    node.errors = keepOne(node.errors)
    const said = node.errors.filter((error) => error.type === OF_CHECK).map(sentenceOf)
    if (said.length) tellWhy(id, node.class_type, said.join("\n"))
  }
}

app.registerExtension({
  name: "MorphTTS.Refused",
  setup() {
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
