// The page's request as a command or a program, without the key.
import { at, jsonOf, put } from "./fields.js"

const KEY = "MORPH_TTS_API_KEY"

/** Show the request; ``read`` returns it or throws its error. */
export function showRequest(read, hasKey) {
  const write = at("language-of-code").value === "curl" ? curlOf : pythonOf
  put("copied", "")
  try {
    put("code", write(read(), at("format").value, hasKey))
  } catch (error) {
    put("code", error.message)
  }
}

export async function copyRequest() {
  if (navigator.clipboard) await navigator.clipboard.writeText(at("code").textContent)
  else getSelection()?.selectAllChildren(at("code")) // without TLS, a page of another computer has no clipboard
  put("copied", navigator.clipboard ? "Copied" : "Marked: press Ctrl+C")
}

function curlOf({ fields, seed }, format, hasKey) {
  const json = jsonOf({ ...fields, response_format: format, stream: false }, seed)
  const lines = [
    `curl ${location.origin}/v1/audio/speech`,
    '-H "Content-Type: application/json"',
    ...(hasKey ? [`-H "Authorization: Bearer $${KEY}"`] : []),
    `-d '${json.replaceAll("'", "'\\''")}'`,
    `-o speech.${format}`,
  ]
  return lines.join(" \\\n  ")
}

function pythonOf({ fields, seed }, format, hasKey) {
  const { input, voice, speed, instructions, ...more } = fields
  const extra = Object.entries(more).map(([name, value]) => `"${name}": ${JSON.stringify(value)}`)
  if (seed) extra.push(`"seed": ${seed}`)
  extra.push('"stream": False')
  const lines = [
    ...(hasKey ? ["import os", ""] : []),
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url="${location.origin}/v1", api_key=${hasKey ? `os.environ["${KEY}"]` : '"none"'})`,
    "speech = client.audio.speech.create(",
    '    model="tts-1",',
    `    voice=${JSON.stringify(voice ?? "alloy")},`,
    `    input=${JSON.stringify(input)},`,
    `    response_format="${format}",`,
    ...(speed ? [`    speed=${speed},`] : []),
    ...(instructions ? [`    instructions=${JSON.stringify(instructions)},`] : []),
    `    extra_body={${extra.join(", ")}},`,
    ")",
    `speech.write_to_file("speech.${format}")`,
  ]
  return lines.join("\n")
}
