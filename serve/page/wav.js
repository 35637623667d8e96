// Samples as the bytes of a file.

/** Float samples in parts as signed 16 bits, little endian. */
export function pcmOf(chunks) {
  const count = chunks.reduce((sum, chunk) => sum + chunk.length, 0)
  const view = new DataView(new ArrayBuffer(2 * count))
  let at = 0
  for (const chunk of chunks)
    for (const sample of chunk) {
      view.setInt16(at, Math.max(-32768, Math.min(32767, Math.round(sample * 32768))), true)
      at += 2
    }
  return new Uint8Array(view.buffer)
}

/** A WAV file of one channel. */
export function wavOf(chunks, rate) {
  const data = pcmOf(chunks)
  const head = new DataView(new ArrayBuffer(44))
  const text = (at, word) => [...word].forEach((char, n) => head.setUint8(at + n, char.charCodeAt(0)))
  text(0, "RIFF")
  head.setUint32(4, 36 + data.length, true)
  text(8, "WAVEfmt ")
  head.setUint32(16, 16, true)
  head.setUint16(20, 1, true)
  head.setUint16(22, 1, true)
  head.setUint32(24, rate, true)
  head.setUint32(28, 2 * rate, true)
  head.setUint16(32, 2, true)
  head.setUint16(34, 16, true)
  text(36, "data")
  head.setUint32(40, data.length, true)
  return new Blob([head, data], { type: "audio/wav" })
}
